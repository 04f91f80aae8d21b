# SPDX-License-Identifier: Apache-2.0
"""Unfused chains: calls that one fused kernel could replace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from cclbench.analyzers.metric import NotApplicable, Value, metric
from cclbench.analyzers.view.operator_calls import Float64
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S, parts_over_ranks
from cclbench.operators.call import Call, NoModel
from cclbench.operators.chains import Chain, find_chains, fused_cost

_SCALAR_BYTES: Final = 16
"""Calls that move at most this are on scalars, or views."""
_READS_SCALAR: Final = ("aten::item",)


@metric(
    "compute.unfused",
    definition="Time per step of chains of calls that one fused kernel could replace, by kind (category):"
    " attention (product, scale, mask, softmax, product), norm (power, mean, root, products), activation"
    " (SwiGLU, GeGLU), rotary embeddings, optimizer (an update per parameter, or lists in several passes)."
    " Chains are found by the order of calls that launch kernels (on a CPU: that compute), without scalars"
    " and views; the calls of their gradients count as well, by autograd's sequence numbers. Where the CPU is"
    " the device, stat fused: their time in proportion to the bytes of one fused kernel.",
    formula="Σ time of the calls of chains / windows",
    unit="s",
    better="lower",
    inputs=("events", "operators", "steps"),
    combine=parts_over_ranks,
    not_applicable="the trace records no operator calls",
    version=2,
)
def unfused(rank: RankView) -> Iterator[Value]:
    works = rank.works
    if not works.is_linked.any():
        raise NotApplicable("no operator call is linked to a kernel in the window")
    calls = [kind.call for kind in works.kinds]
    chosen = np.arange(len(works))
    if rank.on_host:
        chosen = np.flatnonzero(~((works.bytes <= _SCALAR_BYTES) | works.of_names(_READS_SCALAR)))
    sums: dict[str, int] = {}
    fused: dict[str, float] = {}
    sequence = np.asarray(works.sequence[chosen])
    chosen_calls = [calls[kind] for kind in works.kind[chosen].tolist()]
    for chain in find_chains(chosen_calls, sequence, with_neighbours=False):
        chain_rows, forward = chosen[list(chain.calls)], chosen[list(chain.forward)]
        time = int(works.time_ns[chain_rows].sum())
        sums[chain.kind] = sums.get(chain.kind, 0) + time
        if rank.on_host:
            forward_calls = [calls[kind] for kind in works.kind[forward].tolist()]
            share = _fused_share(chain, forward_calls, works.bytes[chain_rows])
            fused[chain.kind] = fused.get(chain.kind, 0.0) + time * share
    windows = len(rank.windows) * NS_PER_S
    yield Value(value=sum(sums.values()) / windows)
    for kind, ns in sorted(sums.items()):
        yield Value(value=ns / windows, category=kind)
    for kind, least in sorted(fused.items()):
        yield Value(value=least / windows, category=kind, stat="fused", provenance="derived")


def _fused_share(chain: Chain, forward: Sequence[Call], moved: Float64) -> float:
    """Bytes of a chain as one fused kernel over its own; 1 where unknown."""
    try:
        least = fused_cost(chain.kind, forward, backward=chain.is_backward).bytes
    except NoModel:
        return 1.0
    total = float(moved.sum())
    return 1.0 if np.isnan(total) else min(least / total, 1.0)
