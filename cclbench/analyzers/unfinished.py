# SPDX-License-Identifier: Apache-2.0
"""Collectives that had not completed when the Flight Recorder's buffers were written, and who is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from cclbench.analyzers.metric import NotApplicable, Value, run_metric
from cclbench.analyzers.view.columns import with_words
from cclbench.analyzers.view.run_view import RunView

_READER: Final = "flight_recorder"
_PAIRS: Final = ("send", "recv", "send_recv")
_WAITING: Final = ("scheduled", "started")
MISSING, OTHER = "missing", "other_call"
_MOST: Final = 16
"""Ranks that a reason lists."""


@run_metric(
    "comm.unfinished",
    definition="Calls of collectives that had not completed when the ranks' Flight Recorder buffers were"
    " written, of all ranks; by process group, with the kind of the first such call by its sequence number."
    f" Stats, with the rank as category: {MISSING}, whose own last call of the group comes before that one;"
    f" {OTHER}, which has another kind under that number. Sends and receives are left out: their numbers are"
    " their own.",
    formula="n of calls scheduled or started",
    unit="count",
    better="lower",
    inputs=("timings",),
    not_applicable="the run holds no Flight Recorder dump that states groups, sequence numbers and states",
)
def unfinished(run: RunView) -> Iterator[Value]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in with_words(run.table("timings"), "source", [_READER]).to_pylist():
        known = all(row[name] is not None for name in ("rank", "group", "seq", "kind"))
        if known and row["kind"] not in _PAIRS:
            groups.setdefault(row["group"], []).append(row)
    if not groups:
        raise NotApplicable("the run holds no Flight Recorder dump with groups and sequence numbers")
    waiting = {group: [row for row in rows if row["state"] in _WAITING] for group, rows in groups.items()}
    yield Value(value=float(sum(map(len, waiting.values()))), source=_READER)
    for group, calls in sorted(waiting.items()):
        if calls:
            yield from _of_group(group, groups[group], calls)


def _of_group(
    group: str, rows: Sequence[Mapping[str, Any]], calls: Sequence[Mapping[str, Any]]
) -> Iterator[Value]:
    """The first unfinished call of a group: who is in it, who is not."""
    first = min(row["seq"] for row in calls)
    here = {row["rank"]: row for row in rows if row["seq"] == first}
    kinds = [row["kind"] for row in here.values()]
    kind = max(sorted(set(kinds)), key=kinds.count)
    last: dict[int, Mapping[str, Any]] = {}
    for row in rows:
        if row["rank"] not in last or row["seq"] > last[row["rank"]]["seq"]:
            last[row["rank"]] = row
    missing = sorted(rank for rank, row in last.items() if row["seq"] < first)
    others = sorted(rank for rank, row in here.items() if row["kind"] != kind)
    inside = sorted(rank for rank, row in here.items() if row["kind"] == kind and row["state"] in _WAITING)
    told = [f"{kind} {first}: {_list_ranks(inside)} had not completed it"]
    told += [
        f"rank {rank} had not called it (its last is {last[rank]['kind']} {last[rank]['seq']})"
        for rank in missing[:_MOST]
    ]
    told += [f"rank {rank} calls {here[rank]['kind']} there" for rank in others[:_MOST]]
    about = {"group": group, "collective": kind, "source": _READER}
    yield Value(value=float(len(calls)), reason="; ".join(told), **about)
    for stat, ranks in ((MISSING, missing), (OTHER, others)):
        for rank in ranks:
            yield Value(value=1.0, category=str(rank), stat=stat, **about)


def _list_ranks(ranks: Sequence[int]) -> str:
    """`ranks 0, 1, 3`."""
    more = ", ..." if len(ranks) > _MOST else ""
    return f"rank{'s'[: len(ranks) != 1]} {', '.join(map(str, ranks[:_MOST]))}{more}"
