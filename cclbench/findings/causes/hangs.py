# SPDX-License-Identifier: Apache-2.0
"""Jobs that stand still: collectives that some ranks wait in and others never called."""

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
_MADE: Final = """SELECT communicator, rank, count(*) AS calls, max(seq) AS last FROM timings
WHERE "group" = '{group}' AND kind = '{kind}' GROUP BY ALL ORDER BY communicator, calls, rank LIMIT 40"""


@finding(
    "unfinished_collectives",
    title="collectives had not completed when the Flight Recorder was written",
    rule=f"{_UNFINISHED} of a process group above 0",
    gain="none: the job stood still, or was being written down while it ran",
    actions={
        "any": (
            "look at what the missing ranks did instead: their stacks (py-spy dump), logs and exit codes",
            "look for collectives that only some ranks call: conditions on the rank, uneven batches, an"
            " exception that one rank caught",
            "where no rank is missing, look at the links: NCCL_DEBUG=INFO, a bandwidth test of its nodes",
        ),
    },
)
def unfinished_collectives(case: Case) -> Iterator[Finding]:
    rows = case.parts(_UNFINISHED)
    for row in rows:
        if row.stat or not row.group or not row.number:
            continue
        apart = {
            stat: sorted(
                int(one.category or 0) for one in rows if one.group == row.group and one.stat == stat
            )
            for stat in (MISSING, OTHER)
        }
        yield case.found(
            "unfinished_collectives",
            f"In group {row.group} {row.number:,.0f} calls had not completed; {row.reason}.",
            confidence="high" if apart[MISSING] or apart[OTHER] else "medium",
            because="the ranks' own records; dumps of a job that runs on may be written between two calls",
            ranks=[*apart[MISSING], *apart[OTHER]],
            evidence=case.evidence((_UNFINISHED, {"group": row.group, "collective": row.collective or ""})),
            query=_CALLS.format(group=row.group),
        )


@finding(
    "missing_calls",
    title="ranks made calls of a collective less often than others of its communicator",
    rule=f"{_MISSING_CALLS} of a process group and kind above 0",
    gain="none: the job stood still, or was stopped while it ran",
    actions={
        "any": (
            "look at what the ranks that lack calls did instead: their last lines, stacks and exit codes",
            "look for collectives that only some ranks call: conditions on the rank, uneven batches, an"
            " exception that one rank caught",
            "where the job was stopped from outside while it ran, nothing: ranks stop at different calls",
        ),
    },
)
def missing_calls(case: Case) -> Iterator[Finding]:
    rows = case.parts(_MISSING_CALLS)
    for row in rows:
        if row.stat or not row.group or not row.collective:
            continue
        ranks = [
            int(one.category or 0)
            for one in rows
            if (one.group, one.collective, one.stat) == (row.group, row.collective, MISSING)
        ]
        yield case.found(
            "missing_calls",
            f"In group {row.group} {row.number:,.0f} calls of {row.collective} are missing: {row.reason}.",
            confidence="medium",
            because="the ranks' own logs; those of a job that was stopped as it ran end at different calls",
            ranks=sorted(ranks),
            evidence=case.evidence((_MISSING_CALLS, {"group": row.group, "collective": row.collective})),
            query=_MADE.format(group=row.group, kind=row.collective),
        )
