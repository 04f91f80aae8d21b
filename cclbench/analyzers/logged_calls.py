# SPDX-License-Identifier: Apache-2.0
"""Calls by files that list them: how many, of how many bytes, between whom, and which ranks lack some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cclbench.analyzers.metric import Coverage, NotApplicable, Unknown, Value, no_value, run_metric
from cclbench.analyzers.stand_ins import from_evidence
from cclbench.analyzers.unfinished import MISSING
from cclbench.analyzers.view.logged_calls import CountedCalls, LoggedCalls
from cclbench.analyzers.view.run_view import RunView
from cclbench.ground.schema import TOTAL
from cclbench.ground.text import first_few
from cclbench.ground.units import binary_text

UNMATCHED: Final = "unmatched"
_NONE: Final = "no file of the run lists calls: log them with NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,COLL"
_PAIRS: Final = ("send", "recv")
_MOST_SIZES: Final = 8
"""Sizes of one pair of ranks that are told apart, those of most transfers."""
_MOST: Final = 8
"""Ranks that a reason lists."""
_PARTS: Final[tuple[tuple[str, ...], ...]] = (
    ("kind",),
    ("kind", "group"),
    ("kind", "size"),
    ("kind", "group", "size"),
)
_FIELDS: Final = {"kind": "collective", "group": "group", "size": "category"}


def _run_logged_calls(run: RunView) -> LoggedCalls:
    if run.logged_calls is None:
        raise NotApplicable(_NONE)
    return run.logged_calls


@from_evidence("comm.count")
def logged_count(run: RunView) -> Iterator[Value]:
    """Calls that files list, whatever their size."""
    yield from _of_each(_run_logged_calls(run), lambda some: some.calls)


@from_evidence("comm.volume")
def logged_volume(run: RunView) -> Iterator[Value]:
    """Payload of the calls that files list."""
    logged = _run_logged_calls(run)
    (every,) = logged.counted_by()
    coverage = Coverage(every.sized, every.calls)
    if not every.sized:
        raise Unknown("no call that the files list states its size", coverage)
    yield from _of_each(logged, lambda some: some.bytes, coverage)


def _of_each(
    logged: LoggedCalls, amount: Callable[[CountedCalls], float], coverage: Coverage | None = None
) -> Iterator[Value]:
    """The mean of ranks and the sum of all, by kind, group and size; then each rank's, by kind and group."""
    (every,) = logged.counted_by()
    of_ranks = logged.of_known_rank()
    ranks = len(of_ranks.ranks)
    told = f"all that the files list: {every.calls:,} calls"
    if ranks:
        (known,) = of_ranks.counted_by()
        told += f" of {ranks} rank{'s'[: ranks != 1]}"
        if number := logged.communicators:
            told += f" on {number} communicator{'s'[: number != 1]}"
        reason = f"{told}; no step is marked in them"
        yield Value(value=amount(known) / ranks, reason=reason, coverage=coverage, source=logged.source)
    else:
        yield no_value(f"{told}, which do not tell their ranks: see the total", source=logged.source)
    yield Value(value=float(amount(every)), stat=TOTAL, coverage=coverage, source=logged.source)
    for columns in _PARTS:
        about = [_FIELDS[name] for name in columns]
        for part in logged.counted_by(*columns):
            key = dict(zip(about, part.key, strict=True))
            yield Value(value=float(amount(part)), stat=TOTAL, source=logged.source, **key)
        for part in of_ranks.counted_by(*columns) if "size" not in columns else ():
            key = dict(zip(about, part.key, strict=True))
            yield Value(value=amount(part) / part.ranks, source=logged.source, **key)
    for columns in ((), *_PARTS[:2]):
        for part in of_ranks.counted_by("rank", *columns):
            rank, *values = part.key
            key = dict(zip([_FIELDS[name] for name in columns], values, strict=True))
            yield Value(value=float(amount(part)), rank=rank, source=logged.source, **key)


@run_metric(
    "comm.edges",
    definition="Sends and receives between pairs of ranks, by files that list calls one by one: NCCL's logs,"
    " all of a job's; Flight Recorder dumps, its last. By kind and pair (category `0->1`), and by size"
    f" (`0->1 64MiB`; beyond {_MOST_SIZES} sizes of a pair the others together). Stats: bytes, what a pair's"
    f" calls carry; {UNMATCHED}, sends without a receive of their size and receives without a send, of pairs"
    " of which both ranks list all calls. In the run's own figure a send and its receive are one.",
    formula="Σ over pairs and sizes of max(n of send, n of recv)",
    unit="count",
    inputs=("timings",),
    not_applicable="no file of the run lists sends and receives of known ranks",
)
def edges(run: RunView) -> Iterator[Value]:
    logged = _run_logged_calls(run)
    pairs: dict[tuple[int, int], dict[int | None, Counter[str]]] = {}
    chosen = logged.table.filter(pc.is_in(logged.table["kind"], pa.array(_PAIRS)))
    known = chosen.filter(pc.and_(chosen["src_rank"].is_valid(), chosen["dst_rank"].is_valid()))
    late = set[tuple[int, int]]()
    columns = ["kind", "src_rank", "dst_rank", "bytes", "from_begin", "calls"]
    for row in known.select(columns).to_pylist():
        pair = row["src_rank"], row["dst_rank"]
        late |= set() if row["from_begin"] else {pair}
        sizes = pairs.setdefault(pair, {})
        sizes.setdefault(row["bytes"], Counter())[row["kind"]] += row["calls"]
    if not pairs:
        raise NotApplicable("the files list no send or receive of known ranks")
    unknown = (pc.sum(chosen["calls"]).as_py() or 0) - (pc.sum(known["calls"]).as_py() or 0)
    whole = sum(max(calls.values()) for sizes in pairs.values() for calls in sizes.values())
    yield Value(value=float(whole), left_out={"of unknown ranks": unknown}, source=logged.source)
    there, alone = set(logged.ranks), 0
    for pair, sizes in sorted(pairs.items()):
        both = pair not in late and there.issuperset(pair)
        for value in _of_pair(f"{pair[0]}->{pair[1]}", sizes, both=both):
            alone += int(value.value or 0) if value.stat == UNMATCHED and value.collective is None else 0
            yield replace(value, source=logged.source)
    if not late:
        yield Value(value=float(alone), stat=UNMATCHED, source=logged.source)


def _of_pair(pair: str, sizes: Mapping[int | None, Counter[str]], *, both: bool) -> Iterator[Value]:
    """The transfers of two ranks, one way: by kind, by size, and those that only one of them calls."""
    for kind in _PAIRS:
        own = {size: calls[kind] for size, calls in sizes.items() if calls[kind]}
        if not own:
            continue
        carried = sum((size or 0) * calls for size, calls in own.items())
        coverage = Coverage(sum(own.values()) - own.get(None, 0), sum(own.values()))
        yield Value(value=float(sum(own.values())), collective=kind, category=pair)
        yield Value(
            value=float(carried), collective=kind, category=pair, stat="bytes", unit="B", coverage=coverage
        )
        for words, number in _told_apart(own).items():
            yield Value(value=float(number), collective=kind, category=f"{pair} {words}")
    if not both:
        return
    alone = {size: abs(calls["send"] - calls["recv"]) for size, calls in sizes.items()}
    yield Value(value=float(sum(alone.values())), category=pair, stat=UNMATCHED)
    for size, number in alone.items():
        calls = sizes[size]
        if number:
            yield Value(
                value=float(number),
                collective="send" if calls["send"] > calls["recv"] else "recv",
                category=f"{pair} {_size_words(size)}",
                stat=UNMATCHED,
                reason=f"{calls['send']:,} of send, {calls['recv']:,} of recv",
            )


def _told_apart(calls: Mapping[int | None, int]) -> dict[str, int]:
    """Calls by the words of their size, those of most calls first; the others together."""
    ordered = sorted(calls.items(), key=lambda one: (-one[1], one[0] or 0))
    found = {_size_words(size): number for size, number in ordered[:_MOST_SIZES]}
    others = sum(number for _, number in ordered[_MOST_SIZES:])
    return found | ({"other sizes": others} if others else {})


def _size_words(size: int | None) -> str:
    return "unknown size" if size is None else binary_text(size)


@run_metric(
    "comm.missing_calls",
    definition="Calls of collectives that ranks of a communicator made less often than the one of them that"
    " made most, by logs that hold all calls of the communicator; by process group and kind, and by rank"
    f" (category, stat {MISSING}). Such is a hang: the others wait in a call that these ranks never made. A"
    " job that was stopped while it ran has some as well, as has one whose log is cut.",
    formula="Σ over ranks of (most calls of any rank − own calls)",
    unit="count",
    better="lower",
    inputs=("timings", "groups"),
    not_applicable="the run has no log of the calls of a communicator whose ranks are known",
)
def missing_calls(run: RunView) -> Iterator[Value]:
    logged = _run_logged_calls(run)
    made: dict[tuple[str, str], dict[int, dict[int, int]]] = {}
    late = set[tuple[str, int]]()
    for one in logged.counted_by("group", "kind", "communicator", "rank", "from_begin"):
        group, kind, communicator, rank, whole = one.key
        if not whole:
            late.add((group, rank))
        elif kind not in _PAIRS:
            made.setdefault((group, kind), {}).setdefault(communicator, {})[rank] = one.calls
    if not made:
        raise NotApplicable("no log holds all calls of a communicator whose ranks are known")
    there = set(logged.ranks)
    found = list[Value]()
    for (group, kind), communicators in sorted(made.items()):
        lacking, told = Counter[int](), list[str]()
        for own in communicators.values():
            most = max(own.values())
            members = [rank for rank in run.group_ranks.get(group, ()) if rank in there]
            fewer = {
                rank: calls
                for rank in members
                if (calls := own.get(rank, 0)) < most and (group, rank) not in late
            }
            lacking.update({rank: most - calls for rank, calls in fewer.items()})
            told += [f"rank {rank} made {calls:,} of {most:,}" for rank, calls in sorted(fewer.items())]
        about: dict[str, Any] = {"group": group, "collective": kind, "source": logged.source}
        if lacking:
            found.append(Value(value=float(lacking.total()), reason=first_few(told, _MOST), **about))
        found += [
            Value(value=float(calls), category=str(rank), stat=MISSING, **about)
            for rank, calls in sorted(lacking.items())
        ]
    total = sum(value.value or 0.0 for value in found if value.stat is None)
    reason = f"{found[0].collective} in group {found[0].group}: {found[0].reason}" if found else None
    yield Value(value=total, reason=reason, source=logged.source)
    yield from found
