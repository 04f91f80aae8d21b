# SPDX-License-Identifier: Apache-2.0
"""`batch=global`: the global batch stays the same when the number of replicas changes."""

from __future__ import annotations

from cclbench.ground.errors import InputError
from cclbench.replay.change import ChangeSubject, LayoutEffect, change, read_choice
from cclbench.replay.layout import BATCHES, Dimension
from cclbench.replay.rescale import ACTIVATIONS, layout_change, microbatch_count, scale_nodes, token_nodes
from cclbench.replay.stages import LayerPipeline, head_layers


@change(
    "batch",
    values="global, rank",
    definition="what stays the same when the number of replicas changes: the global batch, so that a rank's"
    " work scales as 1 / replicas (optimizer and gradients stay); or, by default, the batch of each rank",
    read=read_choice(*BATCHES),
)
def batch(subject: ChangeSubject, _: int) -> LayoutEffect | str:
    """Scale kernels and transfers of activations by the share of samples, as more or larger micro-batches."""
    layouts, graph, settings = layout_change(subject), subject.graph, subject.settings
    share = layouts.sample_share
    if share == 1.0:
        return "each replica has as many samples as before"
    count = microbatch_count(subject.run.card)
    samples = subject.run.card.workload.batch.global_ if subject.run.card else None
    if samples is not None and samples < layouts.new.batch_groups:
        raise InputError(
            f"batch=global: {samples:,} samples of a step are too few for {layouts.new}",
            hint="fewer replicas, or batch=rank",
        )
    several = layouts.old.degrees["pp"] > 1 or layouts.new.degrees["pp"] > 1 or (count or 1) > 1
    if several and count is not None and (count * share) % 1:
        raise InputError(
            f"batch=global: {count} micro-batches of a rank are {count * share:g} with {layouts.new}",
            hint="a number of replicas that divides them",
        )
    chosen, kernel_words = token_nodes(subject)
    scale = scale_nodes(chosen, share)
    activations: dict[Dimension | None, float] = dict.fromkeys(ACTIVATIONS, share)
    unit = "micro-batches" if several else "samples in a micro-batch"
    note = (
        f"the global batch stays: {share:.4g} times as many {unit} on a rank; {kernel_words} "
        f"{subject.window_share(chosen):.1%} of the step, are assumed to scale with it"
    )
    stages = layouts.old.degrees["pp"]
    same_order = settings.get("parallelism.interleave", 1) == 1 and not settings.get("parallelism.schedule")
    stay = stages == layouts.new.degrees["pp"] > 1 and same_order
    if stay and count is None:
        raise InputError(
            "batch=global: the number of micro-batches of a step is unknown",
            hint="state parallelism.microbatches in a card",
        )
    # filling a pipeline takes as long as before, only its flow scales
    fill = 0.0
    if stay and count:
        model_layers = subject.run.card.workload.model.layers if subject.run.card else None
        head = (head_layers(subject.run.card) or 0.0) if model_layers else 0.0
        before, after = (
            LayerPipeline(stages, max(round(of_step), 1), model_layers or stages).fill_share(head)
            for of_step in (count, count * share)
        )
        fill = after - before
    return LayoutEffect(
        graph,
        scale,
        {} if several else activations,
        activations if several else {},
        fill=fill,
        hops=2 * (stages - 1) * (1 - share) if stay else 0.0,
        notes=(note,),
    )
