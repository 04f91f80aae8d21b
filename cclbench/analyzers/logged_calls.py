# SPDX-License-Identifier: Apache-2.0
"""Collective calls listed by files: number, payload, pairs of ranks, missing calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from cclbench.analyzers.metric import Coverage, NotApplicable, Unknown, Value, no_value, run_metric
from cclbench.analyzers.stand_ins import from_evidence
from cclbench.analyzers.unfinished import MISSING
from cclbench.analyzers.view.columns import with_values, with_words
from cclbench.analyzers.view.logged_calls import CountedCalls, LoggedCalls
from cclbench.analyzers.view.run_view import RunView
from cclbench.ground.schema import TOTAL
from cclbench.ground.text import first_few
from cclbench.ground.units import binary_text

UNMATCHED: Final = "unmatched"
_NONE: Final = "no file of the run lists calls: log them with NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,COLL"
_PAIRS: Final = ("send", "recv")
_MOST_SIZES: Final = 8
"""Most sizes listed for a pair of ranks, those with the most transfers."""
_MOST: Final = 8
"""Most ranks that a reason lists."""
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
    """Number of calls that files list."""
    yield from _amount_values(_run_logged_calls(run), lambda some: some.calls)


@from_evidence("comm.volume")
def logged_volume(run: RunView) -> Iterator[Value]:
    """Payload of the calls that files list."""
    logged = _run_logged_calls(run)
    (all_calls,) = logged.counted_by()
    coverage = Coverage(all_calls.sized, all_calls.calls)
    if not all_calls.sized:
        raise Unknown("no listed call states its size", coverage)
    yield from _amount_values(logged, lambda some: some.bytes, coverage)


def _amount_values(
    logged: LoggedCalls, amount: Callable[[CountedCalls], float], coverage: Coverage | None = None
) -> Iterator[Value]:
    """Mean over ranks and total, by kind, group and size; then each rank's value, by kind and group."""
    (all_calls,) = logged.counted_by()
    of_ranks = logged.of_known_rank()
    ranks = len(of_ranks.ranks)
    scope = f"everything that the files list: {all_calls.calls:,} calls"
    if ranks:
        (ranked_calls,) = of_ranks.counted_by()
        scope += f" of {ranks} rank{'s'[: ranks != 1]}"
        if number := logged.communicators:
            scope += f" on {number} communicator{'s'[: number != 1]}"
        reason = f"{scope}; the files mark no steps"
        yield Value(
            value=amount(ranked_calls) / ranks, reason=reason, coverage=coverage, source=logged.source
        )
    else:
        yield no_value(f"{scope} without ranks: see the total", source=logged.source)
    yield Value(value=float(amount(all_calls)), stat=TOTAL, coverage=coverage, source=logged.source)
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
    definition="Number of sends and receives between pairs of ranks, from files that list single calls: NCCL"
    " logs, all of a job; Flight Recorder dumps, its last ones. By kind and pair (category `0->1`), and by"
    f" size (`0->1 64MiB`; up to {_MOST_SIZES} sizes a pair, the others together). Stats: bytes, the payload"
    f" of a pair's calls; {UNMATCHED}, sends without a receive of the same size and receives without a send,"
    " where both ranks list all calls. The run's value counts a send and its receive once.",
    formula="Σ over pairs and sizes of max(n of send, n of recv)",
    unit="count",
    inputs=("timings",),
    not_applicable="no file of the run lists sends and receives between known ranks",
)
def edges(run: RunView) -> Iterator[Value]:
    logged = _run_logged_calls(run)
    pairs: dict[tuple[int, int], dict[int | None, Counter[str]]] = {}
    chosen = with_words(logged.table, "kind", _PAIRS)
    pair_calls = with_values(chosen, "src_rank", "dst_rank")
    incomplete = set[tuple[int, int]]()
    columns = ["kind", "src_rank", "dst_rank", "bytes", "from_begin", "calls"]
    for row in pair_calls.select(columns).to_pylist():
        pair = row["src_rank"], row["dst_rank"]
        incomplete |= set() if row["from_begin"] else {pair}
        sizes = pairs.setdefault(pair, {})
        sizes.setdefault(row["bytes"], Counter())[row["kind"]] += row["calls"]
    if not pairs:
        raise NotApplicable("the files list no sends or receives between known ranks")
    unknown = int(chosen["calls"].to_numpy().sum() - pair_calls["calls"].to_numpy().sum())
    total = sum(max(calls.values()) for sizes in pairs.values() for calls in sizes.values())
    yield Value(value=float(total), left_out={"of unknown ranks": unknown}, source=logged.source)
    logged_ranks, alone = set(logged.ranks), 0
    for pair, sizes in sorted(pairs.items()):
        complete = pair not in incomplete and logged_ranks.issuperset(pair)
        for value in _pair_values(f"{pair[0]}->{pair[1]}", sizes, complete=complete):
            alone += int(value.value or 0) if value.stat == UNMATCHED and value.collective is None else 0
            yield replace(value, source=logged.source)
    if not incomplete:
        yield Value(value=float(alone), stat=UNMATCHED, source=logged.source)


def _pair_values(pair: str, sizes: Mapping[int | None, Counter[str]], *, complete: bool) -> Iterator[Value]:
    """Transfers from one rank to another: by kind, by size, and unmatched ones."""
    for kind in _PAIRS:
        by_size = {size: calls[kind] for size, calls in sizes.items() if calls[kind]}
        if not by_size:
            continue
        carried = sum((size or 0) * calls for size, calls in by_size.items())
        coverage = Coverage(sum(by_size.values()) - by_size.get(None, 0), sum(by_size.values()))
        yield Value(value=float(sum(by_size.values())), collective=kind, category=pair)
        yield Value(
            value=float(carried), collective=kind, category=pair, stat="bytes", unit="B", coverage=coverage
        )
        for words, count in _calls_by_size(by_size).items():
            yield Value(value=float(count), collective=kind, category=f"{pair} {words}")
    if not complete:
        return
    alone = {size: abs(calls["send"] - calls["recv"]) for size, calls in sizes.items()}
    yield Value(value=float(sum(alone.values())), category=pair, stat=UNMATCHED)
    for size, count in alone.items():
        calls = sizes[size]
        if count:
            yield Value(
                value=float(count),
                collective="send" if calls["send"] > calls["recv"] else "recv",
                category=f"{pair} {_size_words(size)}",
                stat=UNMATCHED,
                reason=f"{calls['send']:,} of send, {calls['recv']:,} of recv",
            )


def _calls_by_size(calls: Mapping[int | None, int]) -> dict[str, int]:
    """Number of calls by size in words, the most frequent sizes first; the others together."""
    ordered = sorted(calls.items(), key=lambda item: (-item[1], item[0] or 0))
    listed = {_size_words(size): number for size, number in ordered[:_MOST_SIZES]}
    others = sum(number for _, number in ordered[_MOST_SIZES:])
    return listed | ({"other sizes": others} if others else {})


def _size_words(size: int | None) -> str:
    return "unknown size" if size is None else binary_text(size)


@run_metric(
    "comm.missing_calls",
    definition="Number of collective calls that ranks of a communicator lack compared with the rank that made"
    " the most, from logs of all calls of the communicator; by process group and kind, and by rank (category,"
    f" stat {MISSING}). In a hang the other ranks wait in a call that these ranks never made. Jobs that were"
    " stopped and logs that are cut off also have missing calls.",
    formula="Σ over ranks of (most calls of any rank − own calls)",
    unit="count",
    better="lower",
    inputs=("timings", "groups"),
    not_applicable="the run has no log of all calls of a communicator with known ranks",
)
def missing_calls(run: RunView) -> Iterator[Value]:
    logged = _run_logged_calls(run)
    call_counts: dict[tuple[str, str], dict[int, dict[int, int]]] = {}
    incomplete = set[tuple[str, int]]()
    for counted in logged.counted_by("group", "kind", "communicator", "rank", "from_begin"):
        group, kind, communicator, rank, from_begin = counted.key
        if not from_begin:
            incomplete.add((group, rank))
        elif kind not in _PAIRS:
            call_counts.setdefault((group, kind), {}).setdefault(communicator, {})[rank] = counted.calls
    if not call_counts:
        raise NotApplicable("no log contains all calls of a communicator with known ranks")
    logged_ranks = set(logged.ranks)
    values = list[Value]()
    for (group, kind), communicators in sorted(call_counts.items()):
        lacking, words = Counter[int](), list[str]()
        for rank_calls in communicators.values():
            most = max(rank_calls.values())
            members = [rank for rank in run.group_ranks.get(group, ()) if rank in logged_ranks]
            fewer = {
                rank: calls
                for rank in members
                if (calls := rank_calls.get(rank, 0)) < most and (group, rank) not in incomplete
            }
            lacking.update({rank: most - calls for rank, calls in fewer.items()})
            words += [f"rank {rank} made {calls:,} of {most:,}" for rank, calls in sorted(fewer.items())]
        about: dict[str, Any] = {"group": group, "collective": kind, "source": logged.source}
        if lacking:
            values.append(Value(value=float(lacking.total()), reason=first_few(words, _MOST), **about))
        values += [
            Value(value=float(calls), category=str(rank), stat=MISSING, **about)
            for rank, calls in sorted(lacking.items())
        ]
    total = sum(value.value or 0.0 for value in values if value.stat is None)
    reason = f"{values[0].collective} in group {values[0].group}: {values[0].reason}" if values else None
    yield Value(value=total, reason=reason, source=logged.source)
    yield from values
