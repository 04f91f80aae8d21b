# SPDX-License-Identifier: Apache-2.0
"""Placement: the groups that move most should stay within nodes."""

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
"""Largest group that is examined, ranks."""


@dataclass(slots=True)
class _Dimension:
    """Disjoint groups of one size that all stay within nodes, or all do not."""

    groups: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    """Kinds of collectives in the first group."""
    nbytes: float = 0.0
    """Most bytes that a rank moves in a step."""


@finding(
    "wrong_tier",
    title="the group with the most traffic spans nodes",
    rule="groups that would fit into a node span nodes, and move at least twice the bytes a step"
    " (comm.volume) of groups within nodes",
    gain="the transfers of those groups are shorter by the share of bytes that would stay within nodes",
    actions={
        "pytorch": ("make this the last dimension of the DeviceMesh, so that its ranks are neighbours",),
        "any": (
            "place the ranks of this dimension within one node: order of parallel dimensions, rank mapping",
        ),
    },
)
def wrong_tier(case: Case) -> Iterator[Finding]:
    crossing, inside = _by_tier(case)
    smallest = min(inside.values(), key=lambda spread: spread.nbytes, default=None)
    if smallest is None:
        return
    transfers = case.rows_of_groups(_TRANSFER)
    for size, spread in crossing.items():
        if size > (case.machine.per_node.value or 0) or spread.nbytes < 2 * smallest.nbytes:
            continue
        groups = set(spread.groups)
        lost = sum_by_rank(
            case.ranks(_TRANSFER, collective=row.collective or "", group=row.group or "")
            for row in transfers
            if row.group in groups
        )
        share = 1 - smallest.nbytes / spread.nbytes
        yield case.finding(
            "wrong_tier",
            f"Transfers in {describe_groups(spread.groups)} cross nodes and move"
            f" {humanise(spread.nbytes, 'B')} a step; those in {describe_groups(smallest.groups)} stay within"
            f" nodes and move {humanise(smallest.nbytes, 'B')}.",
            lost=lost,
            whatif=[f"transfers[group={'|'.join(sorted(spread.groups))}].time=x{1 - share:.3f}"],
            confidence="low",
            because="nodes follow from the number of devices in the traces; the trace does not show whether"
            " the two dimensions can be swapped",
            evidence=case.evidence(
                *[
                    (_VOLUME, {"collective": kind, "group": dimension.groups[0]})
                    for dimension in (spread, smallest)
                    for kind in dimension.kinds
                ]
            ),
            query="""SELECT "group", kind, count(*) AS calls, sum(in_bytes) AS bytes FROM collectives"""
            " GROUP BY ALL ORDER BY bytes DESC LIMIT 20",
        )


def _by_tier(case: Case) -> tuple[dict[int, _Dimension], dict[int, _Dimension]]:
    """Dimensions that cross nodes, and those within nodes, by group size."""
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
            dimension = (crossing if len(nodes) > 1 else inside).setdefault(len(ranks), _Dimension())
            dimension.kinds = dimension.kinds or list(kinds)
            dimension.groups.append(group)
            dimension.nbytes = max(dimension.nbytes, sum(kinds.values()))
    return crossing, inside
