# SPDX-License-Identifier: Apache-2.0
"""Which ranks share a node: groups that move most should."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from cclbench.findings.case import Case, sum_by_rank
from cclbench.findings.finding import Finding, finding
from cclbench.findings.groups import describe_groups, ranks_of_group
from cclbench.ground.units import humanise
from cclbench.record.metric_name import metric_name

_VOLUME: Final = metric_name("comm.volume")
_TRANSFER: Final = metric_name("time.exposed_transfer")
_MOST: Final = 1 << 20
"""Ranks of a group that are looked at."""


@dataclass(slots=True)
class _Dimension:
    """Disjoint groups of one size that all stay within nodes, or all do not."""

    groups: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    """Of collectives in the first of them."""
    nbytes: float = 0.0
    """What a rank moves in them in a step, at most."""


@finding(
    "wrong_tier",
    title="what moves most goes from node to node",
    rule="groups that fit into a node, go from node to node, and move at least twice the bytes a step"
    " (comm.volume) of groups that stay within nodes",
    gain="the transfers of those groups are shorter by the share of bytes that would move less far",
    actions={
        "pytorch": (
            "order the dimensions of the DeviceMesh so that this one is the last, whose ranks are neighbours",
        ),
        "any": (
            "give ranks of this dimension to devices of one node: order of parallel dimensions, rank mapping",
        ),
    },
)
def wrong_tier(case: Case) -> Iterator[Finding]:
    crossing, inside = _by_tier(case)
    least = min(inside.values(), key=lambda one: one.nbytes, default=None)
    if least is None:
        return
    transfers = case.rows_of_groups(_TRANSFER)
    for size, one in crossing.items():
        if size > (case.machine.per_node.value or 0) or one.nbytes < 2 * least.nbytes:
            continue
        groups = set(one.groups)
        lost = sum_by_rank(
            case.ranks(_TRANSFER, collective=row.collective or "", group=row.group or "")
            for row in transfers
            if row.group in groups
        )
        share = 1 - least.nbytes / one.nbytes
        yield case.found(
            "wrong_tier",
            f"Transfers in {describe_groups(one.groups)} go from node to node and move"
            f" {humanise(one.nbytes, 'B')} a step; those in {describe_groups(least.groups)} stay within nodes"
            f" and move {humanise(least.nbytes, 'B')}.",
            lost=lost,
            whatif=[f"transfers[group={'|'.join(sorted(one.groups))}].time=x{1 - share:.3f}"],
            confidence="low",
            because="nodes are told by how many devices the traces count; whether the two can change places"
            " is not in the trace",
            evidence=case.evidence(
                *[
                    (_VOLUME, {"collective": kind, "group": dimension.groups[0]})
                    for dimension in (one, least)
                    for kind in dimension.kinds
                ]
            ),
            query="""SELECT "group", kind, count(*) AS calls, sum(in_bytes) AS bytes FROM collectives"""
            " GROUP BY ALL ORDER BY bytes DESC LIMIT 20",
        )


def _by_tier(case: Case) -> tuple[dict[int, _Dimension], dict[int, _Dimension]]:
    """Groups from node to node, and those within nodes, by their size."""
    moved: dict[str, dict[str, float]] = {}
    for row in case.rows_of_groups(_VOLUME):
        moved.setdefault(row.group or "", {})[row.collective or ""] = row.number
    crossing: dict[int, _Dimension] = {}
    inside: dict[int, _Dimension] = {}
    for group, kinds in moved.items():
        ranks = ranks_of_group(group) or ()
        if not 1 < len(ranks) <= _MOST:
            continue
        nodes = {case.machine.node_of(rank) for rank in ranks}
        if None not in nodes:
            one = (crossing if len(nodes) > 1 else inside).setdefault(len(ranks), _Dimension())
            one.kinds = one.kinds or list(kinds)
            one.groups.append(group)
            one.nbytes = max(one.nbytes, sum(kinds.values()))
    return crossing, inside
