# SPDX-License-Identifier: Apache-2.0
"""Where data-parallel training calls its collectives in a step: by PyTorch's DDP, and by its FSDP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64, Mask
from cclbench.replay.change import AddedCommunication, ChangeSubject, PlacedTransfer, TimeBounds
from cclbench.replay.gradients import (
    Float64,
    StepGradients,
    even_gradients,
    in_phase,
    launched_kernels,
    recorded_gradients,
    updated_bytes,
)
from cclbench.replay.layout import Dimension, Relayout
from cclbench.replay.rescale import card_sizes, layout_change
from cclbench.replay.routing import token_routing

FIRST_BUCKET: Final = 1 << 20
BUCKET: Final = 25 << 20
"""Bytes of DistributedDataParallel's buckets (`_DEFAULT_FIRST_BUCKET_BYTES`, `bucket_cap_mb`)."""
STRATEGIES: Final = ("ddp", "fsdp")
Price = Callable[[str, float], TimeBounds]
"""Time of a collective of a kind and bytes."""


def bucket_ends(nbytes: Float64, first: float, others: float) -> Int64:
    """Index of the last gradient of each bucket; a bucket is full as soon as it has its size or more."""
    ends, filled, limit = [], 0.0, first
    for i, size in enumerate(nbytes.tolist()):
        filled += size
        if filled >= limit:
            ends.append(i)
            filled, limit = 0.0, others
    if filled or not ends:
        ends.append(len(nbytes) - 1)
    return np.array(ends, np.int64)


def ddp_transfers(step: StepGradients, degree: int, price: Price) -> list[PlacedTransfer]:
    """All-reduces of DistributedDataParallel.

    Gradients fill buckets in the order in which they are ready, and what follows backward waits for all.
    """
    ends = bucket_ends(step.nbytes, FIRST_BUCKET, BUCKET)
    total = np.add.reduceat(step.nbytes, np.append(0, ends[:-1] + 1))
    return [
        PlacedTransfer(
            step.rank,
            "all_reduce",
            degree,
            nbytes,
            price("all_reduce", nbytes),
            int(step.node[end]),
            step.resume,
        )
        for nbytes, end in zip(total.tolist(), ends.tolist(), strict=True)
    ]


class _PhasedKernels(NamedTuple):
    """A rank's kernels in order of launch: nodes, steps, and whether they belong to forward."""

    node: Int64
    step: Int64
    forward: Mask


def _phased_kernels(subject: ChangeSubject, rank: int) -> _PhasedKernels:
    launched = launched_kernels(subject, rank)
    forward = in_phase(subject, rank, launched, "forward")
    return _PhasedKernels(launched.node, subject.step[launched.node], forward)


def fsdp_transfers(
    subject: ChangeSubject,
    step: StepGradients,
    phased: _PhasedKernels,
    units: int,
    degree: int,
    price: Price,
) -> Iterator[PlacedTransfer]:
    """All-gathers and reduce-scatters of FullyShardedDataParallel, with that many units of equal bytes.

    Each unit is gathered before its forward and before its backward, from when the unit before it begins
    (one is prefetched), and its gradients are scattered once they are ready. The units of forward, in reverse
    order, share its time by bytes. `InputError` where the kernels of forward are unknown.
    """
    in_step = phased.step == step.step
    kernels, forward = phased.node[in_step], phased.node[in_step & phased.forward]
    if not len(forward):
        raise InputError(
            "strategy=fsdp: the kernels of forward are unknown", hint="trace with recorded operators"
        )
    limit = step.nbytes.sum() / units * (1 - 1e-9)
    ends = bucket_ends(step.nbytes, limit, limit)
    total = np.add.reduceat(step.nbytes, np.append(0, ends[:-1] + 1))
    begun = np.cumsum(total[::-1]) - total[::-1]
    done = np.cumsum(subject.graph.nodes.dur[forward])
    firsts = forward[
        np.searchsorted(done, begun / total.sum() * done[-1], side="right").clip(0, len(done) - 1)
    ]
    place = {node: i for i, node in enumerate(kernels.tolist())}
    behind = [place[int(forward[-1])], *(place[int(node)] for node in step.node[ends[:-1]])]
    starts = kernels[np.minimum(np.array(behind) + 1, len(kernels) - 1)]

    def transfer(kind: str, nbytes: float, after: int, before: int) -> PlacedTransfer:
        return PlacedTransfer(step.rank, kind, degree, nbytes, price(kind, nbytes), int(after), int(before))

    launch = int(subject.graph.nodes.feeder[firsts[0]])
    for nbytes, after, before in zip(total[::-1].tolist(), [launch, *firsts[:-1]], firsts, strict=True):
        yield transfer("all_gather", nbytes, after, before)
    for i, nbytes in enumerate(total.tolist()):
        yield transfer("all_gather", nbytes, starts[i - 1] if i else forward[-1], starts[i])
        if i:
            yield transfer("reduce_scatter", total[i - 1], step.node[ends[i - 1]], step.resume)
    yield transfer("reduce_scatter", total[-1], step.node[ends[-1]], step.resume)


def gradient_exchange(subject: ChangeSubject) -> tuple[tuple[AddedCommunication, ...], list[str]]:
    """The collectives that a single replica does not need, and what is assumed of them.

    Split layers have gradients of 1 / (tp · pp).
    """
    layouts = layout_change(subject)
    if not trains(subject):
        return (), ["replicas exchange nothing: by card or trace the job has no backward pass"]
    split = layouts.degree_growth("tp") * layouts.degree_growth("pp") / _held_share(subject)
    steps, origin = recorded_gradients(subject), "recorded with the gradients"
    if not steps:
        nbytes, origin = _parameter_bytes(subject)
        steps = even_gradients(subject, nbytes)
        if not steps:
            return _unplaced_gradients(subject, nbytes / split)
    members = _exchanging_ranks(layouts)
    degree = len(members)
    price = cache(lambda kind, nbytes: subject.price(kind, members, nbytes))
    phased = cache(lambda rank: _phased_kernels(subject, rank))
    placed: list[PlacedTransfer] = []
    sharded = shards_parameters(subject.settings)
    if sharded:
        units = round(card_sizes(subject.run.card, "units of FSDP", "model.layers")["model.layers"])
        units = max(units // layouts.new.degrees["pp"], 1)
    for step in (step._replace(nbytes=step.nbytes / split) for step in steps):
        if sharded:
            placed += fsdp_transfers(subject, step, phased(step.rank), units, degree, price)
        else:
            placed += ddp_transfers(step, degree, price)
    mb = sum(float(step.nbytes.sum()) for step in steps) / len(steps) / split / 1e6
    count = len(placed) / len(steps)
    time = TimeBounds.total(transfer.time for transfer in placed).times_count(1 / len(steps))
    if sharded:
        what = f"{count:.4g} all-gathers and reduce-scatters of {mb:,.4g} MB among {degree:,} ranks"
        how = f"FSDP with {units} units of equal size, one prefetched"
    else:
        what = f"all-reduce of {mb:,.4g} MB of gradients among {degree:,} ranks"
        how = f"{count:.4g} buckets (DDP: 1 MiB, then 25 MiB), each from when its last gradient is ready"
    note = f"{what}, {origin}: {how}; what follows backward waits for all, and calls take no host time"
    return (AddedCommunication(what, time, tuple(placed)),), [note]


def trains(subject: ChangeSubject) -> bool:
    """Whether the job trains: by the card, else by the phases of its operators; `InputError` if unknown."""
    run = subject.run
    if run.card is not None:
        return run.card.workload.phase == "training"
    phases = set(run.rank(run.ranks[0]).operators(("phase",))["phase"].unique().to_pylist())
    if not phases & {"forward", "backward", "optimizer"}:
        raise InputError(
            "whether the job trains, so that replicas exchange gradients, is unknown",
            hint="state workload.phase in a card; for training also workload.model.parameters and"
            " workload.precision",
        )
    return bool(phases & {"backward", "optimizer"})


def shards_parameters(settings: Mapping[str, Any]) -> bool:
    """Whether replicas of a single traced one share its parameters, by a scenario's settings."""
    return STRATEGIES[int(settings.get("strategy", 0))] == "fsdp"


def _parameter_bytes(subject: ChangeSubject) -> tuple[float, str]:
    """Bytes of the traced rank's parameters, and where they come from; `InputError` where unknown."""
    updated = updated_bytes(subject)
    if updated is not None:
        return updated, "of the parameters that the optimizer updates, spread evenly over backward"
    size = card_sizes(
        subject.run.card,
        "the all-reduce of gradients, which a single replica does not need,",
        "model.parameters",
        "element",
    )
    # the card counts the whole model, of which a traced rank may hold a part
    old = layout_change(subject).old.degrees
    nbytes = size["model.parameters"] * size["element"] / (old["tp"] * old["pp"])
    return nbytes, "of the card's parameters, spread evenly over backward"


def _unplaced_gradients(
    subject: ChangeSubject, nbytes: float
) -> tuple[tuple[AddedCommunication, ...], list[str]]:
    """One exchange of a rank's gradients, and with FSDP of its parameters, between hidden and exposed."""
    sharded = shards_parameters(subject.settings)
    kinds = ("all_gather", "all_gather", "reduce_scatter") if sharded else ("all_reduce",)
    members = _exchanging_ranks(layout_change(subject))
    time = TimeBounds.total(subject.price(kind, members, nbytes) for kind in kinds)
    calls = "two all-gathers and a reduce-scatter" if sharded else "all-reduce"
    what = f"{calls} of {nbytes / 1e6:,.4g} MB of gradients"
    note = f"the {calls} of gradients is not in the trace: bounds are all of it hidden in backward, or none"
    return (AddedCommunication(what, time._replace(low=0.0, expected=None)),), [note]


def _exchanging_ranks(layouts: Relayout) -> tuple[int, ...]:
    """Ranks of the first group that exchanges gradients: replicas, with those over which sequences or experts
    spread."""
    new = layouts.new
    spread = spread_dimensions(layouts)
    return new.first_group(*spread, "dp")


def spread_dimensions(layouts: Relayout) -> tuple[Dimension, ...]:
    """Dimensions besides replicas that a rank with whole sequences, or all experts, is spread over: ranks
    of these hold the same parameters."""
    names: tuple[Dimension, ...] = ("cp", "ep")
    return tuple(name for name in names if layouts.old.degrees[name] == 1 < layouts.new.degrees[name])


def _held_share(subject: ChangeSubject) -> float:
    """Share of the traced parameters that a rank has once experts are spread; 1 where they are not."""
    layouts = layout_change(subject)
    if "ep" not in spread_dimensions(layouts):
        return 1.0
    fields = ("model.parameters", "model.active_parameters")
    size = card_sizes(subject.run.card, "the gradients of experts", *fields)
    parameters, active = (size[field] for field in fields)
    return token_routing(subject).held_share(parameters, active, layouts.new.degrees["ep"])
