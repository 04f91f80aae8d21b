# SPDX-License-Identifier: Apache-2.0
"""Hangs: collectives in which some ranks wait while others never called them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cclbench.analyzers.unfinished import MISSING, OTHER
from cclbench.findings.case import Case
from cclbench.findings.finding import Finding, finding
from cclbench.record.metric_name import metric_name

_UNFINISHED: Final = metric_name("comm.unfinished")
_MISSING_CALLS: Final = metric_name("comm.missing_calls")
_CALLS: Final = """SELECT rank, kind, seq, state, bytes FROM timings
WHERE "group" = '{group}' AND source = 'flight_recorder' ORDER BY seq DESC, rank LIMIT 40"""
_MADE: Final = """SELECT communicator, rank, sum(coalesce(calls, 1)) AS calls, max(seq) AS last FROM timings
WHERE "group" = '{group}' AND kind = '{kind}' GROUP BY ALL ORDER BY communicator, calls, rank LIMIT 40"""


@finding(
    "unfinished_collectives",
    title="collectives had not completed when the Flight Recorder was written",
    rule=f"{_UNFINISHED} of a process group above 0",
    gain="none: the job hung, or the dump was written while it ran",
    actions={
        "any": (
            "check what the missing ranks did instead: stacks (py-spy dump), logs, exit codes",
            "look for collectives that only some ranks call: conditions on the rank, uneven batches, an"
            " exception that one rank caught",
            "where no rank is missing, check the links: NCCL_DEBUG=INFO, a bandwidth test of the nodes",
        ),
    },
)
def unfinished_collectives(case: Case) -> Iterator[Finding]:
    rows = case.parts(_UNFINISHED)
    for row in rows:
        if row.stat or not row.group or not row.number:
            continue
        ranks_by_stat = {
            stat: sorted(
                int(other.category or 0) for other in rows if other.group == row.group and other.stat == stat
            )
            for stat in (MISSING, OTHER)
        }
        yield case.finding(
            "unfinished_collectives",
            f"In group {row.group} {row.number:,.0f} calls had not completed; {row.reason}.",
            confidence="high" if ranks_by_stat[MISSING] or ranks_by_stat[OTHER] else "medium",
            because="the ranks' own records; dumps of a running job may be written between two calls",
            ranks=[*ranks_by_stat[MISSING], *ranks_by_stat[OTHER]],
            evidence=case.evidence((_UNFINISHED, {"group": row.group, "collective": row.collective or ""})),
            query=_CALLS.format(group=row.group),
        )


@finding(
    "missing_calls",
    title="some ranks of a communicator called a collective less often than others",
    rule=f"{_MISSING_CALLS} of a process group and kind above 0",
    gain="none: the job hung, or was stopped while it ran",
    actions={
        "any": (
            "check what the ranks with missing calls did instead: last log lines, stacks, exit codes",
            "look for collectives that only some ranks call: conditions on the rank, uneven batches, an"
            " exception that one rank caught",
            "nothing, where the job was stopped from outside: ranks then stop at different calls",
        ),
    },
)
def missing_calls(case: Case) -> Iterator[Finding]:
    rows = case.parts(_MISSING_CALLS)
    for row in rows:
        if row.stat or not row.group or not row.collective:
            continue
        ranks = [
            int(other.category or 0)
            for other in rows
            if (other.group, other.collective, other.stat) == (row.group, row.collective, MISSING)
        ]
        yield case.finding(
            "missing_calls",
            f"In group {row.group} {row.number:,.0f} calls of {row.collective} are missing: {row.reason}.",
            confidence="medium",
            because="the ranks' own counts, which of a job that runs or was stopped end at different calls",
            ranks=sorted(ranks),
            evidence=case.evidence((_MISSING_CALLS, {"group": row.group, "collective": row.collective})),
            query=_MADE.format(group=row.group, kind=row.collective),
        )
