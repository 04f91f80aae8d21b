# SPDX-License-Identifier: Apache-2.0
"""Runs whose work is proved equal, as groups, and their ranking within them.

Two runs are proved equal where a comparison would rank them without a caveat about their work: by the
evidence of both, which their cards do not contradict, or by MLPerf's rules for the closed division.  Equality
by evidence has a tolerance, so it is not transitive: each pair of a group is proved.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cclbench.comparison.division_rules import equal_by_rules, has_division
from cclbench.comparison.fingerprint import Equality, Fingerprint, work_equality
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.verdict import window_refusal
from cclbench.comparison.work import work_inequalities
from cclbench.record.metric_name import metric_name
from cclbench.record.rows import Row

RANKINGS: Final = {
    metric_name("throughput.tokens_per_device"): "tokens/s per device",
    metric_name("serving.output_tokens_per_device"): "output tokens/s per device",
    metric_name("serving.output_throughput"): "output tokens/s in all",
    metric_name("energy.token"): "J per token (tokens/s per W)",
    metric_name("cost.token"): "USD per token (tokens per USD)",
    metric_name("log.time_to_train"): "time to train",
}
"""Metrics by which equal work is ranked, and what they are called."""
_BY_RULES: Final = "a benchmark of MLPerf's closed division, whose rules make its results equal work"


@dataclass(frozen=True, slots=True)
class WorkGroup:
    """Indices of the runs of which each pair does equal work, and by what that is proved."""

    members: tuple[int, ...]
    basis: str


def proof_of_equal_work(base: ComparisonSubject, other: ComparisonSubject, evidence: Equality) -> str | None:
    """By what the work of two runs is proved equal; None where it is not.

    `evidence` is the equality of their fingerprints.
    """
    if window_refusal(base, other):
        return None
    if equal_by_rules(base, other):
        return _BY_RULES
    is_proved = evidence.status == "proved" and not work_inequalities(base, other)
    return evidence.reason if is_proved else None


def work_groups(runs: Sequence[tuple[ComparisonSubject, Fingerprint]]) -> list[WorkGroup]:
    """Groups of two or more runs with proved equal work, in order of their first members.

    A run joins the first group of which each member does equal work.
    """

    def proof(first: int, second: int) -> str | None:
        (base, before), (other, after) = runs[first], runs[second]
        return proof_of_equal_work(base, other, work_equality(before, after))

    groups: list[list[int]] = []
    for number, (subject, fingerprint) in enumerate(runs):
        if not (fingerprint.flops or fingerprint.served or has_division(subject)):
            continue
        first_match = next(
            (group for group in groups if all(proof(member, number) for member in group)), None
        )
        if first_match is None:
            groups.append([number])
        else:
            first_match.append(number)
    return [WorkGroup(tuple(group), proof(group[0], group[1]) or "") for group in groups if len(group) > 1]


def ranks_of(
    groups: Sequence[WorkGroup],
    figures: Mapping[int, Row],
    *,
    published: bool = False,
    modelled: bool = False,
) -> dict[int, int]:
    """The rank within its group of each run with a whole figure, from 1; equal figures share a rank.

    `figures` are of one metric, by the run's index.  Published and modelled ones count only if asked for,
    partial ones never.  A group with one such figure has no ranks.
    """
    is_counted = {"published": published, "modelled": modelled}
    ranks: dict[int, int] = {}
    for group in groups:
        values = {
            member: row.number if row.better == "lower" else -row.number
            for member in group.members
            if (row := figures.get(member))
            and row.status == "ok"
            and is_counted.get(row.provenance or "", True)
        }
        if len(values) > 1:
            ordered = sorted(values.values())
            ranks |= {member: 1 + bisect_left(ordered, value) for member, value in values.items()}
    return ranks
