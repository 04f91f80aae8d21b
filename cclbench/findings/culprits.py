# SPDX-License-Identifier: Apache-2.0
"""Which calls hold the host while the device waits: name, operator, module, line, how often, since when."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import msgspec
import numpy as np

from cclbench.analyzers.view.columns import row_spans, word_codes
from cclbench.analyzers.view.host_gaps import (
    HostGaps,
    blocking_copies,
    causes_of,
    host_gaps,
    wait_at_begin,
)
from cclbench.analyzers.view.rank_view import RankView
from cclbench.ground import intervals
from cclbench.ground.intervals import Index, Int64, Intervals, Mask
from cclbench.ground.units import humanise
from cclbench.normalize.operators import Ranges

_KINDS: Final = ("launch", "sync", "other", "op", "annotation", "python")
_LEAST: Final = {4: 0.25, 2: 0.1, 1: 0.1}
"""Share of a finding's time from which on a place in the program is named, by how many parts of it."""
_ALL: Final = 0.995
_FRAME: Final = re.compile(r"(?P<file>[^()]*\.py)\((?P<line>\d+)\): ")
_LIBRARY: Final = re.compile(r"(?:^|/)(?:torch|site-packages|dist-packages|lib/python3[.\d]*)/|^<")
_QUERY: Final = """SELECT rank, step, track, name, start_ns, dur_ns FROM events
WHERE side = 'host' AND rank = {rank} AND kind = '{kind}' AND name = '{name}' ORDER BY dur_ns DESC LIMIT 20"""
_MODULE: Final = "nn.Module: "
_NS_PER_S: Final = 1e9


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """The calls from one place of a program that are most of what holds a rank's host while its device waits.

    `share` is theirs of that time; `total_s` and `longest_s` are of the calls themselves.  What the trace
    does not tell is None.
    """

    name: str
    kind: str
    rank: int
    operator: str | None = None
    module: str | None = None
    line: str | None = None
    """File and line of Python, of a frame outside of libraries where there is one."""
    count: int
    total_s: float
    longest_s: float
    share: float
    steps: int
    """Windows in which they are."""
    of_steps: int
    period: int | None = None
    """Every how many steps they are, where these are evenly spaced and more than one apart."""
    since: int | None = None
    """The first step that has them, where earlier ones have not."""

    def culprit_sentence(self) -> str:
        """`90 % of it: 8 × cudaStreamSynchronize of up to 1.1 ms under aten::item at train.py:88, ...`."""
        under = f" under {self.operator}" if self.operator else f" in {self.module}" if self.module else ""
        at = f" at {self.line.rpartition('/')[2]}" if self.line else ""
        times = f"{self.count:,} × {self.name}" if self.count > 1 else f"one {self.name}"
        length = f"{'up to ' if self.count > 1 else ''}{humanise(self.longest_s, 's')}"
        part = "All" if self.share > _ALL else humanise(self.share, "1")
        return f"{part} of it: {times} of {length}{under}{at}{self._when_words()}."

    def _when_words(self) -> str:
        if self.of_steps < 2:
            return ""
        since = f" since step {self.since}" if self.since is not None else ""
        if self.period is not None:
            return f", every {self.period} steps{since}"
        if self.steps == self.of_steps:
            return ", in every step"
        return f", in {self.steps} of {self.of_steps} steps{since}"

    def calls_query(self) -> str:
        """SQL that lists these calls, and those of the same name elsewhere, the longest first."""
        name = self.name.replace("'", "''")
        return _QUERY.format(rank=self.rank, kind=self.kind, name=name)


class _CulpritRows(NamedTuple):
    """Rows of the host, in the order of `Ranges`; arrays of shape (rows,)."""

    ranges: Ranges
    kind: Int64
    name: Int64
    names: list[str]
    causes: dict[str, Mask]
    """Which rows are what, as `host_gaps.causes_of` tells them apart."""

    def row_name(self, row: int) -> str:
        """A row's name."""
        return self.names[int(self.name[row])]


class HostCalls:
    """A rank's host rows, and the gaps of its device that they hold, each read once for all findings."""

    def __init__(self, view: RankView) -> None:
        self._view = view

    @cached_property
    def _host_gaps(self) -> HostGaps:
        return host_gaps(self._view)

    @cached_property
    def _host_rows(self) -> _CulpritRows:
        names: dict[str, int] = {}
        columns: list[tuple[Int64, ...]] = []
        masks: list[dict[str, Mask]] = []
        read = ("side", "track", "kind", "name", "start_ns", "dur_ns")
        for batch in self._view.tables.events(_KINDS, read):
            name, words = word_codes(batch, "name")
            kind, kinds = word_codes(batch, "kind")
            side, sides = word_codes(batch, "side")
            host = np.array([word == "host" for word in sides], np.bool_)[side]
            known = np.array([names.setdefault(word or "", len(names)) for word in words], np.int64)[name]
            number = np.array([_KINDS.index(word) if word in _KINDS else -1 for word in kinds], np.int64)[
                kind
            ]
            row = (batch["track"].to_numpy(), *row_spans(batch), number, known)
            columns.append(tuple(one[host] for one in row))
            masks.append({cause: mask[host] for cause, mask in causes_of(batch).items()})
        empty = (np.empty(0, np.int64),) * 5
        track, start, end, kind, name = (np.concatenate(one) for one in zip(empty, *columns, strict=True))
        order = Ranges.order_of(track, start, end, np.arange(len(track)))
        found = masks[0] if masks else ()
        causes = {cause: np.concatenate([mask[cause] for mask in masks])[order] for cause in found}
        ranges = Ranges(track[order], start[order], end[order])
        return _CulpritRows(ranges, kind[order], name[order], list(names), causes)

    @cached_property
    def _row_contexts(self) -> _Contexts:
        return _Contexts(self._host_rows)

    def main_culprit(self, causes: Sequence[str]) -> Culprit | None:
        """What holds the host most in the gaps of those causes of `time.idle_host_by`; None where none does.

        Of gaps that a wait began that is the wait; in others each row of the thread that launches counts with
        the time that it, and none within it, covers of them.  A place in the program is named as exactly as
        it still takes a quarter of the time; without line, then without operator, where it takes a tenth.
        """
        weights, total = self._held_by_rows(causes)
        held = np.flatnonzero(weights)
        if not len(held):
            return None
        places = [self._row_contexts.row_place(row) for row in held.tolist()]
        for parts, least in _LEAST.items():
            coarse = [place[:parts] for place in places]
            by_place: Counter[tuple[str | None, ...]] = Counter()
            for place, weight in zip(coarse, weights[held].tolist(), strict=True):
                by_place[place] += weight
            ((most, weight),) = by_place.most_common(1)
            if weight >= least * total:
                calls = held[np.array([place == most for place in coarse], np.bool_)]
                return self._culprit_of_calls(calls, weight / total, most)
        return None

    def _held_by_rows(self, causes: Sequence[str]) -> tuple[Int64, int]:
        """What each row holds of the gaps of the causes, ns, shape (rows,); and how long these are."""
        rows, late = self._host_rows, self._view.idle.late
        threads = self._view.launch_calls.threads[late.call]
        total, weights = 0, np.zeros(len(rows.kind), np.int64)
        for cause in causes:
            of_cause = self._host_gaps.by[cause]
            if cause != "sync":
                of_cause = intervals.join(of_cause, self._host_gaps.after_wait[cause])
            total += of_cause.length
            chosen = self._rows_of_cause(cause)
            weigh = _by_wait if cause == "sync" else _covered_gaps
            for thread in np.unique(threads).tolist():
                ended = threads == thread
                own = intervals.union(late.starts[ended], late.ends[ended])
                here = chosen & np.isin(rows.ranges.track, self._host_gaps.turns[thread])
                weights += weigh(rows, intervals.intersect(of_cause, own), here)
        return weights, total

    def _rows_of_cause(self, cause: str) -> Mask:
        """Which rows may be what a cause is."""
        rows = self._host_rows
        if cause == "cold_start":
            first = self._view.first_calls
            return _rows_at(rows, [(first.threads, first.starts, first.ends)])
        found = rows.causes.get("sync" if cause == "capture" else cause, np.zeros(len(rows.kind), np.bool_))
        return found | _rows_at(rows, blocking_copies(self._view)) if cause in ("sync", "capture") else found

    def _culprit_of_calls(self, calls: Int64 | Index, share: float, place: tuple[str | None, ...]) -> Culprit:
        windows, rows = self._view.windows, self._host_rows
        starts, ends = rows.ranges.start_ns[calls], rows.ranges.end_ns[calls]
        # a call that began before a window counts where it holds the device up: at its end
        within = np.searchsorted(windows.starts, ends - 1, side="right") - 1
        steps = np.unique(within.clip(0))
        apart = np.unique(np.diff(steps))
        name, operator, module, line = (*place, None, None, None)[:4]
        number = windows.steps[int(steps[0])] if steps[0] > 0 else None
        return Culprit(
            name=name or "",
            kind=_KINDS[int(rows.kind[calls[0]])],
            rank=self._view.rank,
            operator=operator,
            module=module,
            line=line,
            count=len(calls),
            total_s=int((ends - starts).sum()) / _NS_PER_S,
            longest_s=int((ends - starts).max()) / _NS_PER_S,
            share=share,
            steps=len(steps),
            of_steps=len(windows),
            period=int(apart[0]) if len(steps) > 2 and len(apart) == 1 and apart[0] > 1 else None,
            since=number if len(steps) > 1 else None,
        )


def _rows_at(rows: _CulpritRows, calls: Iterable[tuple[Int64, Int64, Int64]]) -> Mask:
    """The rows of calls given by thread, begin and end."""
    found = np.zeros(len(rows.kind), np.bool_)
    calling = np.isin(rows.kind, [_KINDS.index(word) for word in ("launch", "other")])
    for thread, start, end in calls:
        wanted = set(zip(thread.tolist(), start.tolist(), end.tolist(), strict=True))
        ranges, here = rows.ranges, np.flatnonzero(calling & np.isin(rows.ranges.start_ns, start))
        columns = (ranges.track, ranges.start_ns, ranges.end_ns)
        keys = zip(*(column[here].tolist() for column in columns), strict=True)
        found[here] = [key in wanted for key in keys]
    return found


def _by_wait(rows: _CulpritRows, gaps: Intervals, chosen: Mask) -> Int64:
    """The time of the gaps that begin in each of the chosen rows, ns, shape (rows,)."""
    waits = np.flatnonzero(chosen)
    waits = waits[np.argsort(rows.ranges.start_ns[waits], kind="stable")]
    found = np.zeros(len(chosen), np.int64)
    wait = wait_at_begin(rows.ranges.start_ns[waits], rows.ranges.end_ns[waits], gaps.starts)
    known = wait >= 0
    np.add.at(found, waits[wait[known]], (gaps.ends - gaps.starts)[known])
    return found


def _covered_gaps(rows: _CulpritRows, gaps: Intervals, chosen: Mask) -> Int64:
    """The time of the gaps that each of the chosen rows covers, and none within it, ns, shape (rows,)."""
    own = np.flatnonzero(chosen)
    ranges = rows.ranges.select_ranges(chosen)
    covered = intervals.within(gaps, ranges.start_ns, ranges.end_ns)
    parents = ranges.parent_indices()
    of_children = np.zeros(len(own), np.int64)
    np.add.at(of_children, parents[parents >= 0], covered[parents >= 0])
    found = np.zeros(len(chosen), np.int64)
    found[own] = np.maximum(covered - of_children, 0)
    return found


class _Context(NamedTuple):
    """What holds a row: its innermost operator, module, and lines outside of and within libraries."""

    operator: str | None = None
    module: str | None = None
    line: str | None = None
    library: str | None = None


class _Contexts:
    """The contexts of rows, each made once."""

    def __init__(self, rows: _CulpritRows) -> None:
        self._rows, self._parents = rows, rows.ranges.parent_indices()
        self._made = {-1: _Context()}

    def row_place(self, row: int) -> tuple[str | None, ...]:
        """Name, operator, module and line of a row."""
        found = self._row_context(int(self._parents[row]))
        return self._rows.row_name(row), found.operator, found.module, found.line or found.library

    def _row_context(self, row: int) -> _Context:
        waiting = []
        while row not in self._made:
            waiting.append(row)
            row = int(self._parents[row])
        found = self._made[row]
        for one in reversed(waiting):
            found = self._made[one] = self._within_row(one, found)
        return found

    def _within_row(self, row: int, around: _Context) -> _Context:
        name, kind = self._rows.row_name(row), _KINDS[int(self._rows.kind[row])]
        if kind == "op":
            return around._replace(operator=name)
        if kind != "python":
            return around
        if name.startswith(_MODULE):
            return around._replace(module=name.removeprefix(_MODULE))
        frame = _FRAME.match(name)
        if frame is None:
            return around
        line = f"{frame['file']}:{frame['line']}"
        return around._replace(**{"library" if _LIBRARY.search(frame["file"]) else "line": line})
