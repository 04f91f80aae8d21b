# SPDX-License-Identifier: Apache-2.0
"""`parallelism.ep=8`: experts spread over more or fewer ranks."""

from __future__ import annotations

from cclbench.ground.errors import InputError
from cclbench.replay.change import ChangeSubject, LayoutEffect, change, count_of
from cclbench.replay.rescale import SAME_LAYOUT, asked_layouts


@change(
    "parallelism.ep",
    values="8",
    definition="experts are spread over this many ranks: a rank's all-to-alls have the same bytes, of which"
    " (ep - 1) / ep leave it, in groups of that size; a rank's experts have the same number of tokens",
    read=count_of,
)
def experts(subject: ChangeSubject, _: int) -> LayoutEffect | str:
    """Only groups change: the number of a rank's tokens stays, not their routing."""
    layouts = asked_layouts(subject)
    old, new = layouts.old.degrees["ep"], layouts.new.degrees["ep"]
    if old == new:
        return SAME_LAYOUT
    if old == 1:
        raise InputError(
            "parallelism.ep: the trace has no all-to-all to scale, since ep is 1",
            hint="trace a run with ep of at least 2",
        )
    return LayoutEffect(
        subject.graph,
        notes=(
            f"experts over {new} ranks in place of {old}: a rank computes the same number of tokens, evenly"
            " routed; weights read, and the efficiency of products of fewer experts, are assumed the same",
        ),
    )
