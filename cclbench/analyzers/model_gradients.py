# SPDX-License-Identifier: Apache-2.0
"""Stand-in for unstated payloads: what data-parallel training exchanges, by the card's model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import Coverage, NotApplicable, Value
from cclbench.analyzers.stand_ins import stand_in
from cclbench.analyzers.view.collectives import collective_kinds, group_sizes
from cclbench.analyzers.view.platform import card_field
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import banded_values
from cclbench.ground.intervals import Int64

if TYPE_CHECKING:
    from cclbench.card.model import Parallelism

Band = tuple[float, float, float]
"""Expected, low, high."""

# Bytes of a gradient's element.  Under 16-bit products frameworks reduce in 16 bits (weights of that type) or
# in 32 (autocast over 32-bit weights, FSDP's reduce_dtype); hooks may halve those of 32-bit training.
_ELEMENT: Final[dict[str, Band]] = {
    "bf16": (2, 2, 4),
    "fp16": (2, 2, 4),
    "fp32": (4, 2, 4),
    "tf32": (4, 2, 4),
}
_EXCHANGED: Final = ("all_reduce", "reduce_scatter", "all_gather")


@stand_in("comm.volume")
def volume(rank: RankView) -> Iterator[Value]:
    """P·b of gradients per step where data parallelism is the only one, and of gathered weights; by kind.

    Of P parameters with b bytes: all_reduce P·b / dp_shard among replicas; among shards reduce_scatter P·b,
    all_gather P·b for each time that the weights are gathered, which is once or twice: as often as there are
    all_gathers to a reduce_scatter.  Payloads are the large side.
    """
    if not len(rank.collectives):
        return
    parallelism: Parallelism = card_field(rank, "parallelism")
    _require_data_parallel(rank, parallelism)
    shards, replicas = parallelism.dp_shard, parallelism.dp_replicate
    begun = _by_window(rank, {shards, replicas})
    parameters, precision = (
        card_field(rank, path) for path in ("workload.model.parameters", "workload.precision")
    )
    if precision not in _ELEMENT:
        raise NotApplicable(f"what type gradients have in {precision} training nobody states")
    amounts = _exchanged_bytes(parameters, _ELEMENT[precision], parallelism, begun)
    whole = [sum(parts) for parts in zip(*amounts.values(), strict=True)]
    others = len(rank.collectives) - int(sum(begun[kind].sum() for kind in amounts))
    reason = (
        "by the card's parameters, were all of them trained and nothing else exchanged, in elements of the"
        f" 2 to 4 bytes that {precision} training uses"
    )
    left_out = {"of other kinds or groups": others} if others else {}
    coverage = Coverage(len(rank.collectives) - others, len(rank.collectives))
    yield from banded_values(whole, reason=reason, left_out=left_out, coverage=coverage)
    yield from banded_values(whole, category="dp", reason=reason)
    for kind, band in amounts.items():
        yield from banded_values(band, collective=kind, reason=reason)


def _require_data_parallel(rank: RankView, parallelism: Parallelism) -> None:
    """Not applicable unless this is data-parallel training of one pass a step."""
    if card_field(rank, "workload.phase") != "training":
        raise NotApplicable("what is exchanged per step is known of training only")
    more = [f"{name} {size}" for name in ("tp", "pp", "cp", "ep") if (size := getattr(parallelism, name)) > 1]
    if more:
        raise NotApplicable(f"what {', '.join(more)} exchange takes sizes of the model that no card states")
    ranks = parallelism.dp_shard * parallelism.dp_replicate
    if ranks < 2:
        raise NotApplicable("the card states no data parallelism (parallelism.dp_replicate, dp_shard)")
    if rank.facts.world_size not in (None, ranks):
        raise NotApplicable(f"the card's {ranks} ranks are not the trace's {rank.facts.world_size}")
    batch = card_field(rank, "workload.batch")
    if batch.global_ is None or batch.micro is None:
        raise NotApplicable(
            "whether gradients are accumulated takes workload.batch.global and .micro in the card"
        )
    if batch.global_ != batch.micro * ranks:
        raise NotApplicable("a step has several passes, and how often gradients are reduced nobody states")
    if rank.windows.policy == "trace":
        raise NotApplicable("an amount per step needs steps: the window is the whole trace")


def _by_window(rank: RankView, sizes: set[int]) -> dict[str, Int64]:
    """How many exchanges of each kind begin in each window, in groups of those sizes or of unknown size."""
    table = rank.collectives
    table = table.filter(pa.array(np.isin(group_sizes(table), [0, *sizes - {1}])))
    kind, window = collective_kinds(table), rank.window_of(table["start_ns"].to_numpy())
    return {
        one: np.bincount(window[kind == one], minlength=len(rank.windows)).astype(np.int64)
        for one in _EXCHANGED
    }


def _exchanged_bytes(
    parameters: int, element: Band, parallelism: Parallelism, begun: dict[str, Int64]
) -> dict[str, Band]:
    """Bytes per step and rank by kind; not applicable where the trace's kinds are not those."""
    shards, replicas = parallelism.dp_shard, parallelism.dp_replicate
    awaited = {"all_reduce": replicas > 1, "reduce_scatter": shards > 1, "all_gather": shards > 1}
    for kind, needed in awaited.items():
        if needed and not begun[kind].all():
            raise NotApplicable(
                f"the card's data parallelism takes {kind} in every step, and the trace has not"
            )
    if shards == 1 and (begun["reduce_scatter"].any() or begun["all_gather"].any()):
        raise NotApplicable("the trace gathers or scatters, and the card states no dp_shard")
    own: dict[str, Band] = {}
    if replicas > 1:
        own["all_reduce"] = _scale_band(element, parameters / shards)
    if shards > 1:
        gathers = float(begun["all_gather"].sum() / begun["reduce_scatter"].sum())
        if not 1 <= gathers <= 2:
            raise NotApplicable(f"there are {gathers:.3g} all_gathers to a reduce_scatter, not one or two")
        own["reduce_scatter"] = _scale_band(element, parameters)
        expected, low, high = _scale_band(element, parameters)
        own["all_gather"] = expected * gathers, low, 2 * high
    return own


def _scale_band(band: Band, factor: float) -> Band:
    expected, low, high = band
    return expected * factor, low * factor, high * factor
