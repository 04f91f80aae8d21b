# SPDX-License-Identifier: Apache-2.0
"""Time of a rank by role of reinforcement learning, from the ranges that the program marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.view.columns import has_word, row_spans, word_codes
from cclbench.classify.rl_phases import annotated_role
from cclbench.ground import intervals
from cclbench.ground.intervals import Intervals

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

PRECEDENCE: Final = ("weight_sync", "tools", "score", "update", "generate")
"""Roles in the order in which an instant counts: weights and tools are also within generation."""


@dataclass(frozen=True, slots=True, eq=False)
class RoleTimes:
    """Disjoint times of a rank by role, and the groups whose collectives it shares with other ranks."""

    roles: Mapping[str, Intervals]
    groups: frozenset[str]

    @property
    def busy(self) -> Intervals:
        """When the rank is in any role."""
        return intervals.join(*self.roles.values())


def role_times(rank: RankView) -> RoleTimes | None:
    """Times by role over the whole trace; None where the rank marks none."""
    role_spans: dict[str, list[Intervals]] = {}
    for batch in rank.tables.events(("annotation",), ("side", "name", "start_ns", "dur_ns")):
        codes, words = word_codes(batch, "name")
        roles = [annotated_role(word or "") for word in words]
        on_host = has_word(batch, "side", "host")
        for role in filter(None, set(roles)):
            in_role = on_host & np.array([each == role for each in roles], np.bool_)[codes]
            if in_role.any():
                role_spans.setdefault(role, []).append(
                    intervals.union(*row_spans(batch.filter(pa.array(in_role))))
                )
    if not role_spans:
        return None
    covered, parts = intervals.EMPTY, dict[str, Intervals]()
    for role in PRECEDENCE:
        if role in role_spans:
            times = intervals.join(*role_spans[role])
            parts[role] = intervals.subtract(times, covered)
            covered = intervals.join(covered, times)
    matched = rank.tables.collectives().select(["group", "instance"]).drop_null()
    return RoleTimes(parts, frozenset(map(str, matched["group"].unique().to_pylist())))


def share_a_clock(ranks: Sequence[RoleTimes]) -> bool:
    """Whether collectives link all ranks, directly or through others, so that clocks were compared."""
    linked, rest = set(ranks[0].groups), list(ranks[1:])
    while more := [times for times in rest if times.groups & linked]:
        linked.update(*(times.groups for times in more))
        rest = [times for times in rest if times not in more]
    return not rest
