# SPDX-License-Identifier: Apache-2.0
"""`parallelism.dp=64`, `ranks=1024`, `ranks.add=8`: more or fewer replicas of the model."""

from __future__ import annotations

from cclbench.replay.change import (
    AddedCommunication,
    ChangeSubject,
    LayoutEffect,
    Scale,
    TimeBounds,
    change,
    count_of,
)
from cclbench.replay.layout import Layout
from cclbench.replay.rescale import SAME_LAYOUT, asked_layouts, card_sizes, of_categories, scale_nodes


@change(
    "parallelism.dp",
    values="64",
    definition="so many replicas do what those of the run do: their collectives are priced in the larger"
    " groups, which also wait for the last of more ranks; batch= says what stays",
    read=count_of,
)
@change(
    "ranks",
    values="1024",
    definition="so many ranks in all, by as many replicas (parallelism.dp)",
    read=count_of,
)
@change(
    "ranks.add",
    values="8",
    definition="so many more ranks, by as many replicas (parallelism.dp)",
    read=count_of,
)
def replicas(subject: ChangeSubject, _: object) -> LayoutEffect | str:
    """What another number of replicas does, each doing the same: `batch` is a setting of its own.

    Gradients that nobody exchanged with one replica are all-reduced once: behind all of backward, or hidden
    in it. A sharded optimizer has so many times as much less to do.
    """
    wanted, graph = asked_layouts(subject), subject.graph
    growth = wanted.degree_growth("dp")
    if growth == 1:
        return SAME_LAYOUT
    notes = [
        f"the {wanted.old.world_size:,} ranks that were traced stand for {wanted.new.world_size:,}:"
        f" {_replicas(wanted.new)}"
    ]
    if not wanted.fixed_batch:
        notes.append(
            f"each replica's batch stays, so that the global batch is {growth:.4g} times as large"
            " (batch=rank)"
        )
    scale: Scale | None = None
    added: tuple[AddedCommunication, ...] = ()
    kinds = {
        kind
        for kind, group in zip(graph.transfers.kind, graph.transfers.group, strict=True)
        if subject.dimensions.get(group or "") == "dp"
    }
    if "reduce_scatter" in kinds:
        chosen = of_categories(subject, "optimizer")
        scale = scale_nodes(chosen, 1 / growth)
        if subject.window_share(chosen):
            notes.append(
                f"a sharded optimizer, {subject.window_share(chosen):.1%} of the step, has 1/{growth:g} to do"
            )
    if wanted.old.degrees["dp"] == 1 and not wanted.removed:
        added = (_gradients(subject),)
        notes.append(
            "gradients' all-reduce is not in the trace: bounds are hidden by backward, and behind it"
        )
    return LayoutEffect(graph, scale, added=added, notes=tuple(notes))


def _replicas(layout: Layout) -> str:
    count = layout.degrees["dp"]
    return f"{count:,} {'replica' if count == 1 else 'replicas'} of {layout.model_size}"


def _gradients(subject: ChangeSubject) -> AddedCommunication:
    """One all-reduce of a rank's part of the gradients, as wide as parameters are."""
    new = asked_layouts(subject).new
    size = card_sizes(
        subject.run.card,
        "the gradients' all-reduce, which one replica does not need,",
        "model.parameters",
        "element",
    )
    nbytes = size["model.parameters"] * size["element"] / (new.degrees["tp"] * new.degrees["pp"])
    apart = new.group_stride("dp")
    time = subject.price("all_reduce", tuple(range(0, new.degrees["dp"] * apart, apart)), nbytes)
    return AddedCommunication(
        f"all-reduce of {nbytes / 1e6:,.4g} MB of gradients", TimeBounds(0.0, None, time.high)
    )
