# SPDX-License-Identifier: Apache-2.0
"""Model for unstated payloads: what data-parallel training exchanges, by the card."""

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

# Bytes of a gradient's element. With 16-bit products frameworks reduce in 16 bits (weights of that type) or
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
    """P·b bytes of gradients per step, and of gathered weights, by kind, with data parallelism alone.

    For P parameters of b bytes: all_reduce P·b / dp_shard among replicas; among shards reduce_scatter P·b and
    all_gather P·b each time that the weights are gathered (once or twice, the ratio of all_gather to
    reduce_scatter calls). Payloads are the large side.
    """
    if not len(rank.collectives):
        return
    parallelism: Parallelism = card_field(rank, "parallelism")
    _require_data_parallel(rank, parallelism)
    shards, replicas = parallelism.dp_shard, parallelism.dp_replicate
    exchanges = _by_window(rank, {shards, replicas})
    parameters, precision = (
        card_field(rank, path) for path in ("workload.model.parameters", "workload.precision")
    )
    if precision not in _ELEMENT:
        raise NotApplicable(f"the type of gradients in {precision} training is unknown")
    amounts = _exchanged_bytes(parameters, _ELEMENT[precision], parallelism, exchanges)
    total = [sum(parts) for parts in zip(*amounts.values(), strict=True)]
    other_count = len(rank.collectives) - int(sum(exchanges[kind].sum() for kind in amounts))
    reason = (
        "by the card's parameters, assuming that all are trained and nothing else is exchanged, with elements"
        f" of 2 to 4 bytes as in {precision} training"
    )
    left_out = {"of other kinds or groups": other_count} if other_count else {}
    coverage = Coverage(len(rank.collectives) - other_count, len(rank.collectives))
    yield from banded_values(total, reason=reason, left_out=left_out, coverage=coverage)
    yield from banded_values(total, category="dp", reason=reason)
    for kind, band in amounts.items():
        yield from banded_values(band, collective=kind, reason=reason)


def _require_data_parallel(rank: RankView, parallelism: Parallelism) -> None:
    """Raise `NotApplicable` unless the run is data-parallel training with one pass a step."""
    if card_field(rank, "workload.phase") != "training":
        raise NotApplicable("the exchange of a step is known only for training")
    dimensions = [
        f"{name} {size}" for name in ("tp", "pp", "cp", "ep") if (size := getattr(parallelism, name)) > 1
    ]
    if dimensions:
        raise NotApplicable(f"the exchange of {', '.join(dimensions)} needs model sizes that no card states")
    ranks = parallelism.dp_shard * parallelism.dp_replicate
    if ranks < 2:
        raise NotApplicable("the card states no data parallelism (parallelism.dp_replicate, dp_shard)")
    if rank.facts.world_size not in (None, ranks):
        raise NotApplicable(f"the card has {ranks} ranks, the trace {rank.facts.world_size}")
    batch = card_field(rank, "workload.batch")
    if batch.global_ is None or batch.micro is None:
        raise NotApplicable(
            "whether gradients are accumulated needs workload.batch.global and .micro in the card"
        )
    if batch.global_ != batch.micro * ranks:
        raise NotApplicable("a step has several passes, and how often gradients are reduced is unknown")
    if rank.windows.policy == "trace":
        raise NotApplicable("an amount per step needs steps: the window is the whole trace")


def _by_window(rank: RankView, sizes: set[int]) -> dict[str, Int64]:
    """Number of exchanges by kind and window, in groups of these sizes or of unknown size."""
    table = rank.collectives
    table = table.filter(pa.array(np.isin(group_sizes(table), [0, *sizes - {1}])))
    kind, window = collective_kinds(table), rank.window_of(table["start_ns"].to_numpy())
    return {
        exchange: np.bincount(window[kind == exchange], minlength=len(rank.windows)).astype(np.int64)
        for exchange in _EXCHANGED
    }


def _exchanged_bytes(
    parameters: int, element: Band, parallelism: Parallelism, exchanges: dict[str, Int64]
) -> dict[str, Band]:
    """Bytes per step and rank by kind; `NotApplicable` where the trace has other kinds."""
    shards, replicas = parallelism.dp_shard, parallelism.dp_replicate
    expected_kinds = {"all_reduce": replicas > 1, "reduce_scatter": shards > 1, "all_gather": shards > 1}
    for kind, needed in expected_kinds.items():
        if needed and not exchanges[kind].all():
            raise NotApplicable(
                f"the card's data parallelism needs {kind} in every step, which the trace lacks"
            )
    if shards == 1 and (exchanges["reduce_scatter"].any() or exchanges["all_gather"].any()):
        raise NotApplicable("the trace has all_gather or reduce_scatter, and the card no dp_shard")
    by_kind: dict[str, Band] = {}
    if replicas > 1:
        by_kind["all_reduce"] = _scale_band(element, parameters / shards)
    if shards > 1:
        gathers = float(exchanges["all_gather"].sum() / exchanges["reduce_scatter"].sum())
        if not 1 <= gathers <= 2:
            raise NotApplicable(f"there are {gathers:.3g} all_gather per reduce_scatter, not 1 to 2")
        by_kind["reduce_scatter"] = _scale_band(element, parameters)
        expected, low, high = _scale_band(element, parameters)
        by_kind["all_gather"] = expected * gathers, low, 2 * high
    return by_kind


def _scale_band(band: Band, factor: float) -> Band:
    expected, low, high = band
    return expected * factor, low * factor, high * factor
