# SPDX-License-Identifier: Apache-2.0
"""`batch=global`: the global batch stays when the number of replicas changes."""

from __future__ import annotations

from cclbench.ground.errors import InputError, UsageError
from cclbench.replay.change import ChangeSubject, LayoutEffect, change
from cclbench.replay.layout import BATCHES, Dimension
from cclbench.replay.rescale import ACTIVATIONS, asked_layouts, microbatch_count, scale_nodes, token_nodes


def _which(text: str, value: str) -> int:
    if value not in BATCHES:
        raise UsageError(f"{text}: {value!r} is neither {' nor '.join(BATCHES)}")
    return BATCHES.index(value)


@change(
    "batch",
    values="global, rank",
    definition="what stays where the number of replicas changes: the global batch, so that work of a"
    " rank goes as"
    " 1 / replicas (optimizer and gradients stay); or, as without this setting, the batch of each rank",
    read=_which,
)
def batch(subject: ChangeSubject, _: int) -> LayoutEffect | str:
    """Kernels and transfers of activations times the share of samples, as more or larger micro-batches."""
    wanted, graph = asked_layouts(subject), subject.graph
    share = wanted.sample_share
    if share == 1.0:
        return "each replica has as many samples as before"
    count = microbatch_count(subject.run.card)
    several = wanted.old.degrees["pp"] > 1 or wanted.new.degrees["pp"] > 1 or (count or 1) > 1
    if several and count is not None and (count * share) % 1:
        raise InputError(
            f"batch=global: {count} micro-batches of a rank are {count * share:g} with {wanted.new}",
            hint="a number of replicas that divides them",
        )
    chosen, what = token_nodes(subject)
    scale = scale_nodes(chosen, share)
    moved: dict[Dimension | None, float] = dict.fromkeys(ACTIVATIONS, share)
    how = "micro-batches" if several else "samples in a micro-batch"
    note = (
        f"the global batch stays: {share:.4g} times as many {how} on a rank; {what} "
        f"{subject.window_share(chosen):.1%} of the step, are taken to go along"
    )
    stages = wanted.old.degrees["pp"]
    stay = stages == wanted.new.degrees["pp"] > 1 and "parallelism.interleave" not in subject.settings
    if stay and count is None:
        raise InputError(
            "batch=global: how many micro-batches a step has is not known",
            hint="a card has to state parallelism.microbatches",
        )
    # of a pipeline that is filled as before, only what flows through it goes along
    return LayoutEffect(
        graph,
        scale,
        {} if several else moved,
        moved if several else {},
        fill=(stages - 1) * (1 - share) / (count * share) if stay and count else 0.0,
        hops=2 * (stages - 1) * (1 - share) if stay else 0.0,
        notes=(note,),
    )
