# SPDX-License-Identifier: Apache-2.0
"""`parallelism.cp=4`: sequences split over more or fewer ranks."""

from __future__ import annotations

from cclbench.ground.errors import InputError
from cclbench.hardware.collectives.p2p import PAIRS
from cclbench.replay.change import ChangeSubject, LayoutEffect, change, count_of
from cclbench.replay.layout import Dimension
from cclbench.replay.rescale import SAME_LAYOUT, asked_layouts, scale_nodes, token_nodes


@change(
    "parallelism.cp",
    values="4",
    definition="sequences are split over this many ranks: kernels except the optimizer's, and activations of"
    " other dimensions, scale as 1 / cp; all-gathers of keys and values stay the same, and rings have cp - 1"
    " turns of 1 / cp",
    read=count_of,
)
def context(subject: ChangeSubject, _: int) -> LayoutEffect | str:
    """Tokens of a rank scale as 1 / cp, and with them FLOPs and bytes of work on each token.

    So do a rank's pairs of causal attention, where ranks take parts from both ends.
    """
    layouts = asked_layouts(subject)
    old, new = layouts.old.degrees["cp"], layouts.new.degrees["cp"]
    if old == new:
        return SAME_LAYOUT
    if old == 1:
        raise InputError(
            "parallelism.cp: the trace has no exchange of keys and values to scale, since cp is 1; whether"
            " that is a ring hidden by attention, or all-gathers before it, is the framework's choice",
            hint="trace a run with cp of at least 2",
        )
    chosen, kernel_words = token_nodes(subject)
    factor = old / new
    kinds = zip(subject.graph.transfers.kind, subject.graph.transfers.group, strict=True)
    ring = any(kind in PAIRS for kind, group in kinds if subject.dimensions.get(group or "") == "cp")
    payload: dict[Dimension | None, float] = {"tp": factor, "ep": factor, "pp": factor}
    repeats: dict[Dimension | None, float] = {}
    if ring:
        payload["cp"], repeats["cp"] = factor, (new - 1) / (old - 1)
    return LayoutEffect(
        subject.graph,
        scale_nodes(chosen, factor),
        payload,
        repeats,
        notes=(
            f"tokens of a rank scale as 1 / cp: {kernel_words} {subject.window_share(chosen):.1%}"
            f" of the step, take {factor:g} of their time, by the ratio of work",
        ),
    )
