# SPDX-License-Identifier: Apache-2.0
"""The model's FLOPs against those that a job's operators execute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cclbench.analyzers.metric import NotApplicable, Value, metric, total_coverage
from cclbench.analyzers.pickling import pickled_by_position
from cclbench.analyzers.view.model_flops import flops_per_step
from cclbench.analyzers.view.platform import card_field
from cclbench.analyzers.view.rank_view import RankView
from cclbench.operators.cost import PRODUCTS


@pickled_by_position
@dataclass(frozen=True, slots=True)
class _RankFlops:
    """One rank's FLOPs a step and compute time, and what the card states of the job.

    `model_flops` are those of a step over all devices by the pairs of tokens that attend, `square_flops` by
    all pairs.
    """

    recomputed: float
    compute_ns: int
    compute_ns_without_flops: int
    model_flops: int
    square_flops: int
    devices: int
    is_divided_equally: bool


def share_over_ranks(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """FLOPs of the model over those that all ranks execute; a rank's own part of the model is unknown."""
    values = [value for rank in sorted(ranks) for value in ranks[rank]]
    parts = [part for value in values if isinstance(part := value.detail, _RankFlops)]
    job, count = parts[0], len(parts)
    if count < job.devices and not job.is_divided_equally:
        raise NotApplicable(
            f"{count} of {job.devices} devices have FLOPs, and pipeline stages and experts divide the"
            " model's FLOPs unequally"
        )
    executed = sum(value.value or 0.0 for value in values)
    needed, square = (flops * count / job.devices for flops in (job.model_flops, job.square_flops))
    recomputed = sum(part.recomputed for part in parts) / executed
    all_ns = sum(part.compute_ns for part in parts)
    without = sum(part.compute_ns_without_flops for part in parts) / all_ns if all_ns else 0.0
    of_run = partial(Value, provenance="derived", coverage=total_coverage(values))
    words = (
        f"operators' FLOPs a step and device: {executed / count:.4g}, of which {recomputed:.1%} recomputed;"
        f" {without:.1%} of compute time is in operators without FLOPs"
    )
    if needed <= executed:
        yield of_run(value=needed / executed, reason=words)
    else:
        yield Value(
            value=None,
            status="failed",
            reason=f"the card's model needs {needed / count:.4g} FLOPs a step and device, more than ran: the"
            f" card's sizes or a formula are wrong, or operators have no FLOPs; {words}",
        )
    yield of_run(value=recomputed, stat="recomputed")
    yield of_run(value=without, stat="without_model")
    for stat, flops in (("executed", executed), ("needed", needed), ("needed_all_pairs", square)):
        yield of_run(value=flops / count, stat=stat, unit="FLOP")


@metric(
    "compute.model_flops_share",
    definition="The FLOPs that the card's model needs over the operators' executed FLOPs, of all ranks; the"
    " rest is recomputed, padded, or not part of the card's model. The model's are those of compute.mfu, with"
    " only the pairs of tokens that attend, where the card states its attention. Not known by rank: stages of"
    " a pipeline and experts divide the model unequally. Failed above 1: card and operators disagree, or"
    " operators lack a cost model. Elementwise operators do not count, as in the model's FLOPs. Stats:"
    " recomputed, the share of recomputed FLOPs; without_model, the share of compute time in operators"
    " without FLOPs; executed, needed and needed_all_pairs (with S·S pairs of tokens), FLOPs a step and"
    " device.",
    formula="FLOPs of the card's model per step / Σ over ranks FLOPs of matrix products, convolutions and"
    " attention per step; where only some ranks of equal parts have a trace, over theirs and their part",
    unit="1",
    inputs=("events", "operators", "steps", "card: workload.model, workload.batch, hardware.count"),
    not_applicable="no operator has a cost model and recorded arguments, the card lacks a field, or ranks of"
    " unequal parts have no trace",
    version=4,
    combine=share_over_ranks,
    rank_rows=False,
)
def model_flops_share(rank: RankView) -> Value:
    model, devices = flops_per_step(rank), int(card_field(rank, "hardware.count"))
    parallelism = card_field(rank, "parallelism")
    works = rank.works
    counted = [number for number, kind in enumerate(works.kinds) if kind.model_family in PRODUCTS]
    products = works.computes & ~np.isnan(works.flops) & np.isin(works.kind, counted)
    executed = works.sum_amounts(works.flops, products)
    if not executed:
        raise NotApplicable("no matrix product, convolution or attention has recorded arguments")
    if rank.windows.policy == "trace":
        raise NotApplicable("FLOPs per step need steps: the window is the whole trace")
    steps = len(rank.windows)
    return Value(
        value=executed / steps,
        unit="FLOP",
        detail=_RankFlops(
            works.sum_amounts(works.flops, products & works.recomputed) / steps,
            int(works.sum_amounts(works.time_ns, works.computes)),
            int(works.sum_amounts(works.time_ns, works.computes & np.isnan(works.flops))),
            min(model.values()),
            model[None],
            devices,
            parallelism.pp == 1 and not card_field(rank, "workload.model").moe,
        ),
    )
