# SPDX-License-Identifier: Apache-2.0
"""Collectives that had not completed when the Flight Recorder dumps were written, and missing ranks."""

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
"""Most ranks that a reason lists."""


@run_metric(
    "comm.unfinished",
    definition="Number of collective calls of all ranks that had not completed when the Flight Recorder dumps"
    " were written; by process group, with the kind of the first such call by sequence number. Stats, with"
    f" the rank as category: {MISSING}, ranks whose last call of the group is before that one; {OTHER}, ranks"
    " with another kind under that number. Sends and receives are left out: their sequence numbers are"
    " separate.",
    formula="n of calls in state scheduled or started",
    unit="count",
    better="lower",
    inputs=("timings",),
    not_applicable="the run has no Flight Recorder dump with groups, sequence numbers and states",
)
def unfinished(run: RunView) -> Iterator[Value]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in with_words(run.table("timings"), "source", [_READER]).to_pylist():
        is_complete = all(row[name] is not None for name in ("rank", "group", "seq", "kind"))
        if is_complete and row["kind"] not in _PAIRS:
            groups.setdefault(row["group"], []).append(row)
    if not groups:
        raise NotApplicable("the run has no Flight Recorder dump with groups and sequence numbers")
    waiting = {group: [row for row in rows if row["state"] in _WAITING] for group, rows in groups.items()}
    yield Value(value=float(sum(map(len, waiting.values()))), source=_READER)
    for group, calls in sorted(waiting.items()):
        if calls:
            yield from _group_values(group, groups[group], calls)


def _group_values(
    group: str, rows: Sequence[Mapping[str, Any]], calls: Sequence[Mapping[str, Any]]
) -> Iterator[Value]:
    """The first unfinished call of a group: the ranks in it, and those missing."""
    seq = min(row["seq"] for row in calls)
    by_rank = {row["rank"]: row for row in rows if row["seq"] == seq}
    kinds = [row["kind"] for row in by_rank.values()]
    kind = max(sorted(set(kinds)), key=kinds.count)
    last_calls: dict[int, Mapping[str, Any]] = {}
    for row in rows:
        if row["rank"] not in last_calls or row["seq"] > last_calls[row["rank"]]["seq"]:
            last_calls[row["rank"]] = row
    missing = sorted(rank for rank, row in last_calls.items() if row["seq"] < seq)
    others = sorted(rank for rank, row in by_rank.items() if row["kind"] != kind)
    inside = sorted(rank for rank, row in by_rank.items() if row["kind"] == kind and row["state"] in _WAITING)
    words = [f"{kind} {seq}: {_list_ranks(inside)} had not completed it"]
    words += [
        f"rank {rank} had not called it (its last is {last_calls[rank]['kind']} {last_calls[rank]['seq']})"
        for rank in missing[:_MOST]
    ]
    words += [f"rank {rank} calls {by_rank[rank]['kind']} there" for rank in others[:_MOST]]
    about = {"group": group, "collective": kind, "source": _READER}
    yield Value(value=float(len(calls)), reason="; ".join(words), **about)
    for stat, ranks in ((MISSING, missing), (OTHER, others)):
        for rank in ranks:
            yield Value(value=1.0, category=str(rank), stat=stat, **about)


def _list_ranks(ranks: Sequence[int]) -> str:
    """`ranks 0, 1, 3`."""
    more = ", ..." if len(ranks) > _MOST else ""
    return f"rank{'s'[: len(ranks) != 1]} {', '.join(map(str, ranks[:_MOST]))}{more}"
