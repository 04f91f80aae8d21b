# SPDX-License-Identifier: Apache-2.0
"""`parallelism.pp=4`, `parallelism.interleave=2`: layers cut into other pipeline stages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cclbench.ground.errors import InputError
from cclbench.replay import nodes as n
from cclbench.replay.change import AddedCommunication, ChangeSubject, LayoutEffect, change, count_of
from cclbench.replay.rescale import (
    SAME_LAYOUT,
    asked_layouts,
    card_sizes,
    compute_nodes,
    microbatch_count,
    scale_nodes,
)


@change(
    "parallelism.pp",
    values="4",
    definition="layers are cut into so many stages: kernels, the host's time, transfers of layers and"
    " gradients go"
    " as 1 / pp; filling and draining the pipeline (1F1B) takes (pp - 1) / interleave micro-batches of a"
    " stage",
    read=count_of,
)
def pipeline(subject: ChangeSubject, _: int) -> LayoutEffect | str:
    """A step of m micro-batches on p stages takes (m + (p − 1) / v) · t (Narayanan et al. 2021, section 2.2).

    t is what a micro-batch takes on a stage, forth and back.  The graph has (m + p − 1) · t of the traced
    p; with m′ = share · m of it, t going as p / p′, the rest of ((p′ − 1) / v − (p − 1) · share) · t is
    added.
    """
    wanted = asked_layouts(subject)
    old, new = wanted.old.degrees["pp"], wanted.new.degrees["pp"]
    turns = int(subject.settings.get("parallelism.interleave", 1))
    if old == new and turns == 1:
        return SAME_LAYOUT
    card = subject.run.card
    layers = card.workload.model.layers if card else None
    if layers is not None and layers % (new * turns):
        raise InputError(f"parallelism.pp: {layers} layers cannot be cut into {new * turns} equal parts")
    count = microbatch_count(card)
    if count is None:
        raise InputError(
            "parallelism.pp: how many micro-batches a step has is not known",
            hint="a card has to state parallelism.microbatches",
        )
    if new > 1 and turns > 1 and count * wanted.sample_share % new:
        raise InputError(
            f"interleaved stages need micro-batches in multiples of pp {new},"
            f" not {count * wanted.sample_share:g}"
        )
    factor, graph = old / new, subject.graph
    nodes = graph.nodes
    chosen = compute_nodes(subject)
    launches = (nodes.kind == n.HOST) & (nodes.busy == 0)
    inside = np.minimum(nodes.gap, np.maximum(subject.since, 0))
    gap = np.where(launches, np.rint(inside * (factor - 1)), 0).astype(np.int64)
    graph = replace(graph, nodes=replace(nodes, gap=nodes.gap + gap))
    fill = ((new - 1) / turns - (old - 1) * wanted.sample_share) / (count * wanted.sample_share)
    notes = (
        f"layers re-cut from {old} to {new} stages, evenly: kernels,"
        f" {subject.window_share(chosen):.1%} of the step, take {factor:g} of their time",
        f"pipeline of {count * wanted.sample_share:g} micro-batches,"
        f" 1F1B{f', {turns} parts a stage' if turns > 1 else ''}:"
        f" filling it takes {(new - 1) / turns:g} of them",
    )
    return LayoutEffect(
        graph,
        scale_nodes(chosen, factor),
        {"dp": factor},
        {"tp": factor, "cp": factor, "ep": factor},
        added=_hops(subject, new),
        fill=fill,
        hops=2 * ((new - 1) - (old - 1) * wanted.sample_share) if old > 1 else 0.0,
        notes=notes,
    )


def _hops(subject: ChangeSubject, stages: int) -> tuple[AddedCommunication, ...]:
    """Activations forth and gradients back past each stage, where no stages were traced to do so."""
    wanted = asked_layouts(subject)
    if wanted.old.degrees["pp"] > 1 or stages == 1:
        return ()
    fields = ("batch.micro", "batch.sequence_length", "model.hidden", "element")
    size = card_sizes(subject.run.card, "what stages send each other", *fields)
    nbytes = float(np.prod([*size.values()])) / wanted.new.degrees["cp"]
    time = subject.price("send_recv", (0, wanted.new.group_stride("pp")), nbytes)
    hops = 2 * (stages - 1)
    what = f"{hops} hops of {nbytes / 1e6:.4g} MB past {stages} stages"
    return (AddedCommunication(what, time.times_count(hops)),)


@change(
    "parallelism.interleave",
    values="2",
    definition="so many parts of a stage take turns, which divides the pipeline's filling by as many; it"
    " goes with parallelism.pp",
    read=count_of,
)
def interleave(subject: ChangeSubject, turns: int) -> LayoutEffect | str:
    """`parallelism.pp` has it."""
    if "parallelism.pp" not in subject.settings:
        raise InputError("parallelism.interleave goes with parallelism.pp", hint="set both")
    return LayoutEffect(subject.graph) if turns > 1 else "stages have one part"
