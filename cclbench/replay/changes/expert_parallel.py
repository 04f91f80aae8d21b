# SPDX-License-Identifier: Apache-2.0
"""`parallelism.ep=8`: experts spread over more or fewer ranks."""

from __future__ import annotations

from cclbench.ground.errors import InputError
from cclbench.replay.change import AddedCommunication, ChangeSubject, LayoutEffect, change, count_of
from cclbench.replay.gradient_exchange import gradient_exchange, trains
from cclbench.replay.rescale import SAME_LAYOUT, card_sizes, layout_change
from cclbench.replay.routing import token_routing


@change(
    "parallelism.ep",
    values="8",
    definition="experts are spread over this many ranks: a rank's all-to-alls have the same bytes, of which"
    " (ep - 1) / ep leave it, in groups of that size; a rank's experts have the same number of tokens; from a"
    " rank with all experts, two all-to-alls a layer are added, in training four",
    read=count_of,
)
def experts(subject: ChangeSubject, _: int) -> LayoutEffect | str:
    """Only groups change: the number of a rank's tokens stays, not their routing; or all-to-alls are new."""
    layouts = layout_change(subject)
    old, new = layouts.old.degrees["ep"], layouts.new.degrees["ep"]
    if old == new:
        return SAME_LAYOUT
    if old == 1:
        return _spread_experts(subject)
    return LayoutEffect(
        subject.graph,
        notes=(
            f"experts over {new} ranks in place of {old}: a rank computes the same number of tokens, evenly"
            " routed; weights read, and the efficiency of products of fewer experts, are assumed the same",
        ),
    )


def _spread_experts(subject: ChangeSubject) -> LayoutEffect:
    """All-to-alls of a rank that held all experts: each token goes to its experts, and its results come back.

    Twice in forward, and in training twice in backward, a layer moves tokens · chosen · hidden elements, none
    overlapped (Lepikhin et al. 2020, section 3.2).
    """
    layouts = layout_change(subject)
    new = layouts.new.degrees["ep"]
    routing = token_routing(subject)
    if routing.experts % new:
        raise InputError(f"parallelism.ep: {routing.experts} experts cannot be spread over {new} ranks")
    size = card_sizes(subject.run.card, "the all-to-alls of tokens", "model.hidden", "element")
    times = 4 if trains(subject) else 2
    nbytes = routing.tokens * routing.chosen * size["model.hidden"] * size["element"]
    nbytes *= layouts.sample_share / layouts.new.degrees["pp"] / layouts.new.degrees["cp"]
    calls = routing.calls / layouts.new.degrees["pp"]
    time = subject.price("all_to_all", layouts.new.first_group("ep"), nbytes / calls)
    what = f"{times * calls:g} all-to-alls of {nbytes / calls / 1e6:.4g} MB of tokens among {new} ranks"
    added: tuple[AddedCommunication, ...] = (
        AddedCommunication(what, time.times_count(times * calls), in_stage=True),
    )
    notes = [
        f"{what} are not in the trace: they are added to the step without overlap; each token goes to"
        f" {routing.chosen} of {routing.experts} experts, evenly, as the routers' calls say"
    ]
    if layouts.new.degrees["dp"] == 1:
        exchange, exchange_notes = gradient_exchange(subject)
        added, notes = (*added, *exchange), [*notes, *exchange_notes]
    return LayoutEffect(subject.graph, added=added, notes=tuple(notes))
