# SPDX-License-Identifier: Apache-2.0
"""`parallelism.pp=4`, `parallelism.interleave=2`: layers split into other pipeline stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Mask
from cclbench.replay import nodes as n
from cclbench.replay.change import (
    AddedCommunication,
    ChangeSubject,
    LayoutEffect,
    Scale,
    TimeBounds,
    change,
    count_of,
    read_choice,
)
from cclbench.replay.gradient_exchange import trains
from cclbench.replay.rescale import (
    SAME_LAYOUT,
    card_sizes,
    compute_nodes,
    layout_change,
    microbatch_count,
    missing_sizes,
)
from cclbench.replay.schedules import SCHEDULES
from cclbench.replay.stages import HEAVY_HEAD, LayerPipeline, head_layers

_SENT: Final = ("batch.micro", "batch.sequence_length", "model.hidden", "element")
"""Fields of a card whose product is what a stage sends."""
_FULLEST_STAGE: Final = 1.41
"""Work of the fullest stage relative to the mean: 1.408 in job ST of J. Lin et al. 2025 (four stages, the
last with the head and the loss)."""


@change(
    "parallelism.pp",
    values="4",
    definition="layers are split into this many stages: kernels, host time, and transfers of layers and"
    " gradients scale as 1 / pp, those of the last stage less, which has the head; filling and draining the"
    " pipeline takes what a simulation of its schedule gives (even stages, 1F1B: (pp - 1) / interleave"
    " micro-batches of a stage)",
    read=count_of,
)
def pipeline(subject: ChangeSubject, _: int) -> LayoutEffect | str:
    """A step of m micro-batches takes (1 + f) m t, t being the time of one on the busiest stage.

    The share f of filling and draining follows from the schedule (`LayerPipeline.span`), with layers split
    evenly and the head on the last stage. The graph has that of the traced stages, so that the difference is
    added.
    """
    layouts = layout_change(subject)
    old, new = layouts.old.degrees["pp"], layouts.new.degrees["pp"]
    turns = int(subject.settings.get("parallelism.interleave", 1))
    schedule = SCHEDULES[int(subject.settings.get("parallelism.schedule", 0))]
    if old == new and turns == 1 and schedule == "1f1b":
        return SAME_LAYOUT
    card = subject.run.card
    layers = card.workload.model.layers if card else None
    if layers is not None and layers < (most := max(new * turns, old)):
        raise InputError(f"parallelism.pp: {layers} layers are too few for {most} parts")
    count = microbatch_count(card)
    if count is None:
        lacking = missing_sizes(card, *_SENT) if old == 1 else []
        raise InputError(
            "parallelism.pp: the number of micro-batches of a step is unknown",
            hint=f"state {', '.join(['parallelism.microbatches', *lacking])} in a card",
        )
    if new > 1 and turns > 1 and count * layouts.sample_share % new:
        raise InputError(
            f"interleaved stages need micro-batches in multiples of pp {new},"
            f" not {count * layouts.sample_share:g}"
        )
    factor, graph = old / new, subject.graph
    nodes = graph.nodes
    chosen = compute_nodes(subject)
    launches = (nodes.kind == n.HOST) & (nodes.busy == 0)
    inside = np.minimum(nodes.gap, np.maximum(subject.since, 0))
    gap = np.where(launches, np.rint(inside * (factor - 1)), 0).astype(np.int64)
    graph = replace(graph, nodes=replace(nodes, gap=nodes.gap + gap))
    head = head_layers(card) if layers else None
    traced = LayerPipeline(old, count, layers or old * new * turns)
    new_count = count * layouts.sample_share
    target = LayerPipeline(new, max(round(new_count), 1), layers or old * new * turns, turns, schedule)
    even = "evenly" if target.layers % (new * turns) == 0 else "as evenly as they can be"
    notes: tuple[str, ...] = (
        f"layers split {even} into {new} in place of {old} stages: kernels,"
        f" {subject.window_share(chosen):.1%} of the step, take {factor:g} of their time",
        f"pipeline of {new_count:g} micro-batches, {schedule}"
        f"{f', {turns} parts a stage' if turns > 1 else ''}: filling and draining it takes"
        f" {target.fill_share(head or 0.0):.1%} of the busiest stage's work",
    )
    if head is not None:
        notes += (
            f"the last stage has the head, by its FLOPs as much as {head:.2f} layers (bounds: 0, twice)",
        )
    if old == 1:
        notes += (
            f"one stage does not show how even {new} are: the fullest has up to {_FULLEST_STAGE:.2f} times"
            " the mean work (upper bound)",
        )
    scale = _stage_scale(subject, chosen, traced, target, head or 0.0)
    fill = target.fill_share(head or 0.0) - traced.fill_share(head or 0.0)
    return LayoutEffect(
        graph,
        scale,
        {"dp": factor},
        {"tp": factor, "cp": factor, "ep": factor},
        added=_hops(subject, target, head or 0.0),
        fill=fill,
        hops=2 * ((new - 1) - (old - 1) * layouts.sample_share) if old > 1 else 0.0,
        notes=notes,
    )


def _stage_scale(
    subject: ChangeSubject, chosen: Mask, traced: LayerPipeline, target: LayerPipeline, head: float
) -> Scale:
    """Scale of the chosen nodes by their stage's layers; a single traced stage becomes the fullest one."""
    old = layout_change(subject).old
    places = np.array([old.place_along(rank, "pp") for rank in range(old.world_size)], np.int64)
    last = places[subject.graph.nodes.rank % old.world_size] == traced.stages - 1
    heads = (head, 0.0, HEAVY_HEAD * head)
    # the first stage has the most layers, the last the head; a single one becomes the busiest
    new_layers, old_layers = (
        [layer_pipeline.stage_layers(h) for h in heads] for layer_pipeline in (target, traced)
    )
    single = traced.stages == 1
    factors = [
        float((new.max() if single else new[-1]) / old[-1])
        for new, old in zip(new_layers, old_layers, strict=True)
    ]
    other = new_layers[0][0] / old_layers[0][0]
    expected, low, high = (
        np.where(chosen, np.where(last, factor, other), 1.0)
        for factor in (factors[0], min(factors), max(factors))
    )
    if single:
        high = np.maximum(high, np.where(chosen, min(_FULLEST_STAGE / target.stages, 1.0), 1.0))
    return Scale(expected, low, high)


def _hops(subject: ChangeSubject, target: LayerPipeline, head: float) -> tuple[AddedCommunication, ...]:
    """Transfers of activations and gradients between stages, where the trace has a single stage."""
    layouts, stages = layout_change(subject), target.stages
    if layouts.old.degrees["pp"] > 1 or stages == 1:
        return ()
    size = card_sizes(subject.run.card, "what stages send each other", *_SENT)
    nbytes = float(np.prod([*size.values()])) / layouts.new.degrees["cp"]
    time = subject.price("send_recv", (0, layouts.new.group_stride("pp")), nbytes)
    passes = 2 if trains(subject) else 1
    hops, most = passes * (stages - 1), passes * (stages + target.microbatches * target.turns - 2)
    exposed = min(max(target.exposed_sends(head) * passes / 2, hops), most)
    description = f"{exposed:g} sends of {nbytes / 1e6:.4g} MB past {stages} stages, not hidden"
    # at best only those that fill the pipeline are exposed, at worst one for each micro-batch and pass
    expected = None if time.expected is None else time.expected * exposed
    sends = TimeBounds(time.low * hops, expected, time.high * most, time.marks)
    return (AddedCommunication(description, sends),)


@change(
    "parallelism.interleave",
    values="2",
    definition="this many interleaved parts per stage, which divides the pipeline's filling time; requires"
    " parallelism.pp",
    read=count_of,
)
def interleave(subject: ChangeSubject, turns: int) -> LayoutEffect | str:
    """No effect of its own: `parallelism.pp` reads it."""
    if "parallelism.pp" not in subject.settings:
        raise InputError("parallelism.interleave requires parallelism.pp", hint="set both")
    return LayoutEffect(subject.graph) if turns > 1 else "stages have one part"


@change(
    "parallelism.schedule",
    values="1f1b, gpipe, zero_bubble",
    definition="the order of forward and backward on pipeline stages: 1F1B (default), all forward first"
    " (GPipe), or ZB-H1, which defers the gradients of weights; requires parallelism.pp",
    read=read_choice(*SCHEDULES),
)
def schedule(subject: ChangeSubject, choice: int) -> LayoutEffect | str:
    """No effect of its own: `parallelism.pp` reads it."""
    if "parallelism.pp" not in subject.settings:
        raise InputError("parallelism.schedule requires parallelism.pp", hint="set both")
    return LayoutEffect(subject.graph) if choice else "1F1B is the default"
