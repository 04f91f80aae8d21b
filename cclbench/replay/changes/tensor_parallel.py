# SPDX-License-Identifier: Apache-2.0
"""`parallelism.tp=8`: layers' tensors split over more or fewer ranks."""

from __future__ import annotations

from typing import Final

import numpy as np

from cclbench.ground.errors import InputError
from cclbench.replay.change import AddedCommunication, ChangeSubject, LayoutEffect, Scale, change, count_of
from cclbench.replay.gradient_exchange import trains
from cclbench.replay.rescale import (
    SAME_LAYOUT,
    card_sizes,
    compute_nodes,
    cuts_sequences,
    layer_passes,
    layout_change,
)
from cclbench.replay.sharded_operators import BoundedFactor, TensorCutting, cut_kernels

_ALL_REDUCES: Final = 2
"""All-reduces of a layer in forward, and again in backward."""


@change(
    "parallelism.tp",
    values="8",
    definition="tensors of layers are split over this many ranks: matrix products by roofline times of their"
    " shapes, attention by heads, the optimizer and gradients by parameters; exchanged activations stay the"
    " same size",
    read=count_of,
)
def tensors(subject: ChangeSubject, _: int) -> LayoutEffect | str:
    """Kernels by `sharded_operators`; gradients 1 / tp; four all-reduces per layer that is split for the
    first time.

    Two forward and two backward (Shoeybi et al. 2019, section 3), each of a micro-batch's activations, none
    overlapped; with split sequences the same bytes move in all-gathers and reduce-scatters.
    """
    layouts, graph = layout_change(subject), subject.graph
    old, new = layouts.old.degrees["tp"], layouts.new.degrees["tp"]
    if old == new:
        return SAME_LAYOUT
    card = subject.run.card
    model = card.workload.model if card else None
    if model is not None and model.heads is not None and model.heads % new:
        raise InputError(f"parallelism.tp: {model.heads} heads cannot be split over {new} ranks")
    batch = card.workload.batch if card else None
    tokens = batch.micro * batch.sequence_length if batch and batch.micro and batch.sequence_length else None
    cutting = TensorCutting(
        new / old,
        hidden=model.hidden if model else None,
        tokens=tokens,
        sequences=cuts_sequences(graph, subject.dimensions),
        accelerator=subject.machine.accelerator.value,
    )
    scale, notes = _kernels(subject, cutting)
    added: tuple[AddedCommunication, ...] = ()
    if old == 1:
        added = (_all_reduces(subject),)
        notes += (f"{added[0].what} are not in the trace: they are added to the step without overlap",)
    return LayoutEffect(graph, scale, {"dp": old / new}, added=added, notes=notes)


def _kernels(subject: ChangeSubject, cutting: TensorCutting) -> tuple[Scale, tuple[str, ...]]:
    """New over old times of compute, and their basis, with shares of the step."""
    graph = subject.graph
    nodes = graph.nodes
    split = cut_kernels(subject.run, [rank.rank for rank in graph.windowed], cutting)
    chosen = compute_nodes(subject)
    categories = [cutting.category_factor(name) for name in graph.categories] + [cutting.cut_or_whole_factor]
    names: list[BoundedFactor | None] = [*(split.by_name.get(name) for name in graph.names), None]
    linked = np.array([bounds is not None for bounds in names], np.bool_)[nodes.name] & chosen
    arrays = []
    for field in range(3):
        by_category = np.array([bounds[field] for bounds in categories], np.float64)[nodes.category]
        by_name = np.array([np.nan if bounds is None else bounds[field] for bounds in names], np.float64)[
            nodes.name
        ]
        factors = np.where(linked, by_name, by_category)
        factors = np.where(nodes.busy > 0, split.together[field], factors)
        arrays.append(np.where(chosen, factors, 1.0))
    on_host = nodes.busy > 0
    cut = chosen & ~linked & ~on_host & (arrays[1] == arrays[2])
    either = chosen & ~linked & ~on_host & (arrays[1] != arrays[2])
    basis = [
        (linked, "kernels whose calls are recorded: by roofline times of split shapes"),
        (
            on_host,
            f"operators of the CPU, {split.shaped:.0%} of their time by recorded shapes: by the ratio of"
            " work",
        ),
        (cut, "kernels without recorded shapes: by the ratio of work"),
        (either, "kernels that may be split or not: bounds, expected is their geometric mean"),
    ]
    notes = tuple(
        f"{words}, {subject.window_share(chosen & part):.1%} of the step"
        for part, words in basis
        if subject.window_share(chosen & part)
    )
    return Scale(*arrays), notes


def _all_reduces(subject: ChangeSubject) -> AddedCommunication:
    new = layout_change(subject).new
    need = "the all-reduces of activations, which unsplit layers do not need,"
    fields = ("batch.micro", "batch.sequence_length", "model.hidden", "element", "model.layers")
    size = card_sizes(subject.run.card, need, *fields)
    tokens, passes = layer_passes(subject, size)
    nbytes = tokens * size["model.hidden"] * size["element"]
    calls = (2 if trains(subject) else 1) * _ALL_REDUCES * passes
    time = subject.price("all_reduce", new.first_group("tp"), nbytes)
    return AddedCommunication(
        f"{calls:g} all-reduces of {nbytes / 1e6:.4g} MB of activations among {new.degrees['tp']} ranks",
        time.times_count(calls),
        in_stage=True,
    )
