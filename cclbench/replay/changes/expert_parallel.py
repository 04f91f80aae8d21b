# SPDX-License-Identifier: Apache-2.0
"""`parallelism.ep=8`: experts spread over more or fewer ranks."""

from __future__ import annotations

from cclbench.ground.errors import InputError
from cclbench.replay.change import ChangeSubject, LayoutEffect, change, count_of
from cclbench.replay.rescale import SAME_LAYOUT, asked_layouts


@change(
    "parallelism.ep",
    values="8",
    definition="experts are spread over so many ranks: all-to-alls are of as many bytes of a rank, of which"
    " (ep - 1) / ep leave it, in groups of that size; a rank's experts have as many tokens together",
    read=count_of,
)
def experts(subject: ChangeSubject, _: int) -> LayoutEffect | str:
    """Groups alone change: which tokens go where is another question than how many."""
    wanted = asked_layouts(subject)
    old, new = wanted.old.degrees["ep"], wanted.new.degrees["ep"]
    if old == new:
        return SAME_LAYOUT
    if old == 1:
        raise InputError(
            "parallelism.ep: with experts on one rank the trace has no all-to-all to scale",
            hint="trace a run with ep of 2 or more",
        )
    return LayoutEffect(
        subject.graph,
        notes=(
            f"experts over {new} ranks in place of {old}: a rank computes as many tokens, evenly routed;"
            " weights that a rank reads, and how products of fewer experts run, are taken to be the same",
        ),
    )
