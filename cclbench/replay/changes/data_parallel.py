# SPDX-License-Identifier: Apache-2.0
"""`parallelism.dp=64`, `ranks=1024`, `ranks.add=8`: more or fewer replicas of the model."""

from __future__ import annotations

from cclbench.replay.change import (
    AddedCommunication,
    ChangeSubject,
    LayoutEffect,
    Scale,
    change,
    count_of,
    read_choice,
)
from cclbench.replay.gradient_exchange import STRATEGIES, gradient_exchange, shards_parameters
from cclbench.replay.layout import Layout
from cclbench.replay.rescale import SAME_LAYOUT, category_nodes, layout_change, scale_nodes


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
    layouts, graph = layout_change(subject), subject.graph
    growth = layouts.degree_growth("dp")
    if growth == 1:
        return SAME_LAYOUT
    notes = [f"{_traced(layouts.old.world_size)} for {layouts.new.world_size:,}: {_replicas(layouts.new)}"]
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
    if "reduce_scatter" in kinds or (layouts.old.degrees["dp"] == 1 and shards_parameters(subject.settings)):
        chosen = category_nodes(subject, "optimizer")
        scale = scale_nodes(chosen, 1 / growth)
        if subject.window_share(chosen):
            notes.append(
                f"a sharded optimizer, {subject.window_share(chosen):.1%} of the step, has 1/{growth:g} to do"
            )
    if layouts.old.degrees["dp"] == 1 and not layouts.removed:
        added, exchange_notes = gradient_exchange(subject)
        notes += exchange_notes
    return LayoutEffect(graph, scale, added=added, notes=tuple(notes))


def _traced(ranks: int) -> str:
    return "the traced rank stands" if ranks == 1 else f"the {ranks:,} traced ranks stand"


def _replicas(layout: Layout) -> str:
    count = layout.degrees["dp"]
    return f"{count:,} {'replica' if count == 1 else 'replicas'} of {layout.model_size}"


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
