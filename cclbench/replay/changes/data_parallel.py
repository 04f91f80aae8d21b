# SPDX-License-Identifier: Apache-2.0
"""`parallelism.dp=64`, `ranks=1024`, `ranks.add=8`: more or fewer replicas of the model."""

from __future__ import annotations

from functools import cache
from typing import Final

from cclbench.ground.errors import InputError
from cclbench.replay.change import (
    AddedCommunication,
    ChangeSubject,
    LayoutEffect,
    PlacedTransfer,
    Scale,
    TimeBounds,
    change,
    count_of,
    read_choice,
)
from cclbench.replay.gradient_exchange import ddp_transfers, fsdp_transfers
from cclbench.replay.gradients import even_gradients, recorded_gradients, updated_bytes
from cclbench.replay.layout import Layout
from cclbench.replay.rescale import SAME_LAYOUT, asked_layouts, card_sizes, of_categories, scale_nodes

STRATEGIES: Final = ("ddp", "fsdp")


@change(
    "parallelism.dp",
    values="64",
    definition="this many replicas do what the run's replicas do: their collectives are modelled in the"
    " larger groups, which also wait for the last of more ranks; see batch= for what stays",
    read=count_of,
)
@change(
    "ranks",
    values="1024",
    definition="this many ranks in total, by more or fewer replicas (parallelism.dp)",
    read=count_of,
)
@change(
    "ranks.add",
    values="8",
    definition="this many additional ranks, by more replicas (parallelism.dp)",
    read=count_of,
)
def replicas(subject: ChangeSubject, _: object) -> LayoutEffect | str:
    """Effect of another number of replicas that each do the same; `batch` is a separate setting.

    A single replica exchanges no gradients: with more, they are all-reduced in buckets, each when its last
    gradient is ready, or where that is unknown, after all of backward or hidden in it. The work of a sharded
    optimizer is divided by the growth.
    """
    layouts, graph = asked_layouts(subject), subject.graph
    growth = layouts.degree_growth("dp")
    if growth == 1:
        return SAME_LAYOUT
    notes = [
        f"the {layouts.old.world_size:,} traced ranks stand for {layouts.new.world_size:,}:"
        f" {_replicas(layouts.new)}"
    ]
    if not layouts.fixed_batch:
        notes.append(
            f"each replica's batch stays, so the global batch is {growth:.4g} times as large (batch=rank)"
        )
    scale: Scale | None = None
    added: tuple[AddedCommunication, ...] = ()
    kinds = {
        kind
        for kind, group in zip(graph.transfers.kind, graph.transfers.group, strict=True)
        if subject.dimensions.get(group or "") == "dp"
    }
    if "reduce_scatter" in kinds or (layouts.old.degrees["dp"] == 1 and _is_sharded(subject)):
        chosen = of_categories(subject, "optimizer")
        scale = scale_nodes(chosen, 1 / growth)
        if subject.window_share(chosen):
            notes.append(
                f"a sharded optimizer, {subject.window_share(chosen):.1%} of the step, has 1/{growth:g} to do"
            )
    if layouts.old.degrees["dp"] == 1 and not layouts.removed:
        added, exchange_notes = _gradient_exchange(subject)
        notes += exchange_notes
    return LayoutEffect(graph, scale, added=added, notes=tuple(notes))


def _replicas(layout: Layout) -> str:
    count = layout.degrees["dp"]
    return f"{count:,} {'replica' if count == 1 else 'replicas'} of {layout.model_size}"


def _gradient_exchange(subject: ChangeSubject) -> tuple[tuple[AddedCommunication, ...], list[str]]:
    """The collectives that a single replica does not need, and what is assumed of them.

    Split layers have gradients of 1 / (tp · pp).
    """
    layouts = asked_layouts(subject)
    if not _trains(subject):
        return (), ["replicas exchange nothing: by card or trace the job has no backward pass"]
    split = layouts.degree_growth("tp") * layouts.degree_growth("pp")
    steps, origin = recorded_gradients(subject), "recorded with the gradients"
    if not steps:
        nbytes, origin = _parameter_bytes(subject)
        steps = even_gradients(subject, nbytes)
        if not steps:
            return _unplaced_gradients(subject, nbytes / split)
    stride, degree = layouts.new.group_stride("dp"), layouts.new.degrees["dp"]
    members = tuple(range(0, degree * stride, stride))
    price = cache(lambda kind, nbytes: subject.price(kind, members, nbytes))
    placed: list[PlacedTransfer] = []
    sharded = _is_sharded(subject)
    if sharded:
        units = round(card_sizes(subject.run.card, "units of FSDP", "model.layers")["model.layers"])
        units = max(units // layouts.new.degrees["pp"], 1)
    for step in (step._replace(nbytes=step.nbytes / split) for step in steps):
        if sharded:
            placed += fsdp_transfers(subject, step, units, degree, price)
        else:
            placed += ddp_transfers(step, degree, price)
    mb = sum(float(step.nbytes.sum()) for step in steps) / len(steps) / split / 1e6
    count = len(placed) / len(steps)
    time = TimeBounds.total(one.time for one in placed).times_count(1 / len(steps))
    if sharded:
        what = f"{count:.4g} all-gathers and reduce-scatters of {mb:,.4g} MB among {degree:,} ranks"
        how = f"FSDP with {units} units of equal size, one prefetched"
    else:
        what = f"all-reduce of {mb:,.4g} MB of gradients among {degree:,} ranks"
        how = f"{count:.4g} buckets (DDP: 1 MiB, then 25 MiB), each from when its last gradient is ready"
    note = f"{what}, {origin}: {how}; what follows backward waits for all, and calls take no host time"
    return (AddedCommunication(what, time, tuple(placed)),), [note]


def _trains(subject: ChangeSubject) -> bool:
    """Whether the job trains: by the card, else by the phases of its operators; `InputError` if unknown."""
    run = subject.run
    if run.card is not None:
        return run.card.workload.phase == "training"
    phases = set(run.rank(run.ranks[0]).operators(("phase",))["phase"].unique().to_pylist())
    if not phases & {"forward", "backward", "optimizer"}:
        raise InputError(
            "whether the job trains, so that replicas exchange gradients, is unknown",
            hint="state workload.phase in a card",
        )
    return bool(phases & {"backward", "optimizer"})


def _is_sharded(subject: ChangeSubject) -> bool:
    return STRATEGIES[int(subject.settings.get("strategy", 0))] == "fsdp"


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
    old = asked_layouts(subject).old.degrees
    nbytes = size["model.parameters"] * size["element"] / (old["tp"] * old["pp"])
    return nbytes, "of the card's parameters, spread evenly over backward"


def _unplaced_gradients(
    subject: ChangeSubject, nbytes: float
) -> tuple[tuple[AddedCommunication, ...], list[str]]:
    """One all-reduce of a rank's gradients, between hidden and exposed."""
    new = asked_layouts(subject).new
    stride = new.group_stride("dp")
    time = subject.price("all_reduce", tuple(range(0, new.degrees["dp"] * stride, stride)), nbytes)
    what = f"all-reduce of {nbytes / 1e6:,.4g} MB of gradients"
    note = "the all-reduce of gradients is not in the trace: bounds are all of it hidden in backward, or none"
    return (AddedCommunication(what, TimeBounds(0.0, None, time.high)),), [note]


@change(
    "strategy",
    values="ddp, fsdp",
    definition="how replicas of a single traced one share its parameters: each has all of them, and gradients"
    " are all-reduced (ddp, the default); or each has a part, and layers are gathered when needed (fsdp)",
    read=read_choice(*STRATEGIES),
)
def strategy(subject: ChangeSubject, _: int) -> LayoutEffect | str:
    """No effect of its own: settings of the number of replicas read it."""
    layouts = subject.relayout
    if layouts is None or layouts.old.degrees["dp"] > 1 or layouts.new.degrees["dp"] == 1:
        return "it applies to more replicas than one, of which the trace has one"
    return LayoutEffect(subject.graph)
