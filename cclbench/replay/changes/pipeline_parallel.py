# SPDX-License-Identifier: Apache-2.0
"""`parallelism.pp=4`, `parallelism.interleave=2`: layers split into other pipeline stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from cclbench.ground.errors import InputError
from cclbench.replay import nodes as n
from cclbench.replay.change import AddedCommunication, ChangeSubject, LayoutEffect, change, count_of
from cclbench.replay.gradient_exchange import trains
from cclbench.replay.rescale import (
    SAME_LAYOUT,
    asked_layouts,
    card_sizes,
    compute_nodes,
    microbatch_count,
    missing_sizes,
    scale_nodes,
)

_SENT: Final = ("batch.micro", "batch.sequence_length", "model.hidden", "element")
"""Fields of a card whose product is what a stage sends."""
_FULLEST_STAGE: Final = 1.41
"""Work of the fullest stage relative to the mean: 1.408 in job ST of J. Lin et al. 2025 (four stages, the
last with the head and the loss)."""


@change(
    "parallelism.pp",
    values="4",
    definition="layers are split into this many stages: kernels, host time, and transfers of layers and"
    " gradients scale as 1 / pp; filling and draining the pipeline (1F1B) takes (pp - 1) / interleave"
    " micro-batches of a stage",
    read=count_of,
)
def pipeline(subject: ChangeSubject, _: int) -> LayoutEffect | str:
    """A step of m micro-batches on p stages takes (m + (p − 1) / v) · t (Narayanan et al. 2021, section 2.2).

    t is the forward and backward time of a micro-batch on a stage. The graph has (m + p − 1) · t of the
    traced p; with m′ = share · m and t scaling as p / p′, the difference ((p′ − 1) / v − (p − 1) · share) · t
    is added.
    """
    layouts = asked_layouts(subject)
    old, new = layouts.old.degrees["pp"], layouts.new.degrees["pp"]
    turns = int(subject.settings.get("parallelism.interleave", 1))
    if old == new and turns == 1:
        return SAME_LAYOUT
    card = subject.run.card
    layers = card.workload.model.layers if card else None
    if layers is not None and layers % (new * turns):
        raise InputError(f"parallelism.pp: {layers} layers cannot be split into {new * turns} equal parts")
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
    fill = ((new - 1) / turns - (old - 1) * layouts.sample_share) / (count * layouts.sample_share)
    notes: tuple[str, ...] = (
        f"layers split evenly into {new} in place of {old} stages: kernels,"
        f" {subject.window_share(chosen):.1%} of the step, take {factor:g} of their time",
        f"pipeline of {count * layouts.sample_share:g} micro-batches,"
        f" 1F1B{f', {turns} parts a stage' if turns > 1 else ''}:"
        f" filling it takes {(new - 1) / turns:g} of them",
    )
    scale = scale_nodes(chosen, factor)
    if old == 1:
        scale = replace(scale, high=np.where(chosen, min(factor * _FULLEST_STAGE, 1.0), 1.0))
        notes += (
            f"one stage does not show how even {new} are: the fullest has up to {_FULLEST_STAGE:.2f} times"
            " the mean work (upper bound)",
        )
    return LayoutEffect(
        graph,
        scale,
        {"dp": factor},
        {"tp": factor, "cp": factor, "ep": factor},
        added=_hops(subject, new),
        fill=fill,
        hops=2 * ((new - 1) - (old - 1) * layouts.sample_share) if old > 1 else 0.0,
        notes=notes,
    )


def _hops(subject: ChangeSubject, stages: int) -> tuple[AddedCommunication, ...]:
    """Transfers of activations and gradients between stages, where the trace has a single stage."""
    layouts = asked_layouts(subject)
    if layouts.old.degrees["pp"] > 1 or stages == 1:
        return ()
    size = card_sizes(subject.run.card, "what stages send each other", *_SENT)
    nbytes = float(np.prod([*size.values()])) / layouts.new.degrees["cp"]
    time = subject.price("send_recv", (0, layouts.new.group_stride("pp")), nbytes)
    passes = 2 if trains(subject) else 1
    hops = passes * (stages - 1)
    # at worst no send is hidden: one for each micro-batch and pass, besides those that fill the pipeline
    exposed = hops + passes * ((microbatch_count(subject.run.card) or 1) * layouts.sample_share - 1)
    description = f"{hops} hops of {nbytes / 1e6:.4g} MB past {stages} stages"
    most = time.high * max(exposed, hops)
    return (AddedCommunication(description, time.times_count(hops)._replace(high=most)),)


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
