# SPDX-License-Identifier: Apache-2.0
"""The calls that hold the host while the device waits: name, operator, module, line, count, steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import msgspec
import numpy as np

from cclbench.analyzers.view.columns import has_word, row_spans, word_codes
from cclbench.analyzers.view.host_gaps import (
    HostGaps,
    blocking_copies,
    causes_of,
    host_gaps,
    wait_at_begin,
)
from cclbench.analyzers.view.rank_view import RankView
from cclbench.ground import intervals
from cclbench.ground.codes import combination_codes
from cclbench.ground.intervals import Index, Int64, Intervals, Mask
from cclbench.ground.units import humanise
from cclbench.normalize.operators import Ranges, nearest_flagged

_KINDS: Final = ("launch", "sync", "other", "op", "annotation", "python")
_LEAST: Final = {4: 0.25, 2: 0.1, 1: 0.1}
"""Least share of a finding's time for which a place is named, by the number of its parts."""
_ALL: Final = 0.995
_FRAME: Final = re.compile(r"(?P<file>[^()]*\.py)\((?P<line>\d+)\): ")
_LIBRARY: Final = re.compile(r"(?:^|/)(?:torch|site-packages|dist-packages|lib/python3[.\d]*)/|^<")
_QUERY: Final = """SELECT rank, step, track, name, start_ns, dur_ns FROM events
WHERE side = 'host' AND rank = {rank} AND kind = '{kind}' AND name = '{name}' ORDER BY dur_ns DESC LIMIT 20"""
_MODULE: Final = "nn.Module: "
_NS_PER_S: Final = 1e9


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """The calls from one place of the program that hold a rank's host longest while its device waits.

    `share`: of the device's wait. `total_s`, `longest_s`: of the calls. None: the trace does not state it.
    """

    name: str
    kind: str
    rank: int
    operator: str | None = None
    module: str | None = None
    line: str | None = None
    """Python file and line, of a frame outside libraries where there is one."""
    count: int
    total_s: float
    longest_s: float
    share: float
    steps: int
    """Steps with such calls."""
    of_steps: int
    period: int | None = None
    """Distance between those steps, where it is constant and more than one."""
    since: int | None = None
    """The first step with such calls, unless it is the first of all."""

    def culprit_sentence(self) -> str:
        """`90 % of the device's wait: 8 × cudaStreamSynchronize of up to 1.1 ms under aten::item, ...`."""
        length = f"{'up to ' if self.count > 1 else ''}{humanise(self.longest_s, 's')}"
        part = "All" if self.share > _ALL else humanise(self.share, "1")
        return f"{part} of the device's wait: {self.call_words(f' of {length}')}{self._when_words()}."

    def call_words(self, length: str = "") -> str:
        """`8 × cudaStreamSynchronize under aten::item at train.py:88`; `length` stands after the name."""
        under = f" under {self.operator}" if self.operator else f" in {self.module}" if self.module else ""
        at = f" at {self.line.rpartition('/')[2]}" if self.line else ""
        times = f"{self.count:,} × {self.name}" if self.count > 1 else f"one {self.name}"
        return f"{times}{length}{under}{at}"

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
        """SQL that lists these calls and others of the same name, the longest first."""
        name = self.name.replace("'", "''")
        return _QUERY.format(rank=self.rank, kind=self.kind, name=name)


class _CulpritRows(NamedTuple):
    """Host events in the order of `Ranges`; arrays of shape (rows,)."""

    ranges: Ranges
    kind: Int64
    name: Int64
    names: list[str]
    causes: dict[str, Mask]
    """Masks by cause, from `host_gaps.causes_of`."""


class HostCalls:
    """A rank's host events and the device gaps that they cause, read once for all findings."""

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
            host = has_word(batch, "side", "host")
            name_codes = np.array([names.setdefault(word or "", len(names)) for word in words], np.int64)[
                name
            ]
            kind_codes = np.array([_KINDS.index(word) if word in _KINDS else -1 for word in kinds], np.int64)[
                kind
            ]
            event = (batch["track"].to_numpy(), *row_spans(batch), kind_codes, name_codes)
            columns.append(tuple(column[host] for column in event))
            masks.append({cause: mask[host] for cause, mask in causes_of(batch).items()})
        empty = (np.empty(0, np.int64),) * 5
        track, start, end, kind, name = (np.concatenate(parts) for parts in zip(empty, *columns, strict=True))
        order = Ranges.order_of(track, start, end, np.arange(len(track)))
        cause_names = masks[0] if masks else ()
        causes = {cause: np.concatenate([mask[cause] for mask in masks])[order] for cause in cause_names}
        ranges = Ranges(track[order], start[order], end[order])
        return _CulpritRows(ranges, kind[order], name[order], list(names), causes)

    @cached_property
    def _places(self) -> _PlaceColumns:
        return _PlaceColumns(self._host_rows)

    def main_culprit(self, causes: Sequence[str]) -> Culprit | None:
        """The calls that hold the host longest in the gaps of these causes of `time.idle_host_by`, or None.

        A gap that begins in a wait belongs to that wait; other gaps belong to the events of the launching
        thread by self time. A place is named with its line where it has at least a quarter of the time,
        without the line, then without the operator, where it has a tenth.
        """
        weights, total = self._held_by_rows(causes)
        weighted = np.flatnonzero(weights)
        if not len(weighted):
            return None
        columns = [column[weighted] for column in self._places.codes]
        for parts, least in _LEAST.items():
            codes = combination_codes(*columns[:parts])
            held_ns = np.zeros(int(codes.max()) + 1, np.int64)
            np.add.at(held_ns, codes, weights[weighted])
            # of places with equal times the one that comes first
            at = int(np.argmax(held_ns[codes]))
            longest_ns = int(held_ns[codes[at]])
            if longest_ns >= least * total:
                place = self._places.row_place(int(weighted[at]), parts)
                return self._culprit_of_calls(weighted[codes == codes[at]], longest_ns / total, place)
        return None

    def _held_by_rows(self, causes: Sequence[str]) -> tuple[Int64, int]:
        """Time of each event in the gaps of the causes, ns, shape (rows,); and the gaps' total, ns."""
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
                of_thread = threads == thread
                thread_gaps = intervals.union(late.starts[of_thread], late.ends[of_thread])
                thread_rows = chosen & np.isin(rows.ranges.track, self._host_gaps.turns[thread])
                weights += weigh(rows, intervals.intersect(of_cause, thread_gaps), thread_rows)
        return weights, total

    def _rows_of_cause(self, cause: str) -> Mask:
        """Mask of the events that may be the cause."""
        rows = self._host_rows
        if cause == "cold_start":
            first_calls = self._view.first_calls
            return _rows_at(rows, [(first_calls.threads, first_calls.starts, first_calls.ends)])
        cause_rows = rows.causes.get(
            "sync" if cause == "capture" else cause, np.zeros(len(rows.kind), np.bool_)
        )
        return (
            cause_rows | _rows_at(rows, blocking_copies(self._view))
            if cause in ("sync", "capture")
            else cause_rows
        )

    def _culprit_of_calls(self, calls: Int64 | Index, share: float, place: tuple[str | None, ...]) -> Culprit:
        windows, rows = self._view.windows, self._host_rows
        starts, ends = rows.ranges.start_ns[calls], rows.ranges.end_ns[calls]
        # a call that began before a window counts in the window in which it ends
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
    """Mask of the rows that are calls, given by thread, start and end."""
    mask = np.zeros(len(rows.kind), np.bool_)
    calling = np.isin(rows.kind, [_KINDS.index(word) for word in ("launch", "other")])
    for thread, start, end in calls:
        call_keys = set(zip(thread.tolist(), start.tolist(), end.tolist(), strict=True))
        ranges, candidates = rows.ranges, np.flatnonzero(calling & np.isin(rows.ranges.start_ns, start))
        columns = (ranges.track, ranges.start_ns, ranges.end_ns)
        keys = zip(*(column[candidates].tolist() for column in columns), strict=True)
        mask[candidates] = [key in call_keys for key in keys]
    return mask


def _by_wait(rows: _CulpritRows, gaps: Intervals, chosen: Mask) -> Int64:
    """Total time of the gaps that begin in each chosen row, ns, shape (rows,)."""
    waits = np.flatnonzero(chosen)
    waits = waits[np.argsort(rows.ranges.start_ns[waits], kind="stable")]
    held_ns = np.zeros(len(chosen), np.int64)
    wait = wait_at_begin(rows.ranges.start_ns[waits], rows.ranges.end_ns[waits], gaps.starts)
    within = wait >= 0
    np.add.at(held_ns, waits[wait[within]], (gaps.ends - gaps.starts)[within])
    return held_ns


def _covered_gaps(rows: _CulpritRows, gaps: Intervals, chosen: Mask) -> Int64:
    """The time of the gaps that each of the chosen rows covers, and none within it, ns, shape (rows,)."""
    chosen_rows = np.flatnonzero(chosen)
    ranges = rows.ranges.select_ranges(chosen)
    covered = intervals.within(gaps, ranges.start_ns, ranges.end_ns)
    parents = ranges.parent_indices()
    children_ns = np.zeros(len(chosen_rows), np.int64)
    np.add.at(children_ns, parents[parents >= 0], covered[parents >= 0])
    gap_ns = np.zeros(len(chosen), np.int64)
    gap_ns[chosen_rows] = np.maximum(covered - children_ns, 0)
    return gap_ns


class _PlaceColumns:
    """Places of rows as codes: name, operator, module, and line of Python; −1 for none."""

    def __init__(self, rows: _CulpritRows) -> None:
        parents = rows.ranges.parent_indices()
        frames = [None if name.startswith(_MODULE) else _FRAME.match(name) for name in rows.names]
        is_frame = np.array([frame is not None for frame in frames], np.bool_)
        is_library = np.array([bool(frame and _LIBRARY.search(frame["file"])) for frame in frames], np.bool_)
        is_module = np.array([name.startswith(_MODULE) for name in rows.names], np.bool_)
        is_python = rows.kind == _KINDS.index("python")

        def names_around(chosen: Mask) -> Int64:
            """The name of the innermost of the chosen rows around each row."""
            around = np.append(nearest_flagged(parents, chosen), -1)[parents]
            return np.where(around >= 0, rows.name[around], -1)

        line, library = (
            names_around(is_python & of_name[rows.name]) for of_name in (is_frame & ~is_library, is_library)
        )
        lines: dict[str, int] = {}
        # functions and lambdas of the same line differ in their names
        line_codes = np.array(
            [*(lines.setdefault(_frame_line(frame), len(lines)) if frame else -1 for frame in frames), -1],
            np.int64,
        )
        self.codes = (
            rows.name,
            names_around(rows.kind == _KINDS.index("op")),
            names_around(is_python & is_module[rows.name]),
            line_codes[np.where(line >= 0, line, library)],
        )
        modules = [name.removeprefix(_MODULE) for name in rows.names]
        self._words: tuple[list[str], ...] = (rows.names, rows.names, modules, [*lines])

    def row_place(self, row: int, parts: int) -> tuple[str | None, ...]:
        """The first `parts` of a row's place: name, operator, module and line."""
        codes = [int(column[row]) for column in self.codes[:parts]]
        return tuple(
            None if code < 0 else words[code] for code, words in zip(codes, self._words, strict=False)
        )


def _frame_line(frame: re.Match[str]) -> str:
    return f"{frame['file']}:{frame['line']}"
