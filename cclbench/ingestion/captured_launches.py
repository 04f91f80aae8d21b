# SPDX-License-Identifier: Apache-2.0
"""Launches recorded while CUDA and HIP graphs were captured, with the operators around them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.formats import Part, Rows, trace_reader
from cclbench.ground.intervals import Index, Int64, Mask
from cclbench.ground.registry import plugin_code
from cclbench.ground.schema import OPERATORS
from cclbench.ingestion.host_rows import ARGUMENTS, CALL_COLUMNS, SPANS, Texts
from cclbench.ingestion.launched import Launched
from cclbench.ingestion.operator_rows import operator_rows
from cclbench.ingestion.operators import Operators
from cclbench.ingestion.source import SourceFile, captured_batch
from cclbench.normalize.rows import stated_columns
from cclbench.normalize.steps import NO_MARKS

_COLUMNS: Final = {"op": CALL_COLUMNS, "launch": (*SPANS, "launched")}
_BEGIN: Final = re.compile(r"(cuda|hip)StreamBeginCapture\w*")
_END: Final = re.compile(r"(cuda|hip)StreamEndCapture\w*")


@dataclass(frozen=True, slots=True, eq=False)
class Capture:
    """Launches recorded while a graph was captured, in order, arrays of shape (launches,)."""

    file: str
    batch: int | None
    """Batch size that it was captured for, requests."""
    kernels: Texts
    """Kernel names, where the runtime states them."""
    copies: Mask
    """Which launches copy or set memory."""
    calls: pa.Table
    """Rows of `schema.OPERATORS`, with indices in place of ids."""
    call: Index
    """Index of the call around each launch, −1 for none."""
    work: Int64
    """Code of the names and arguments of that call and of those around it, the same for equal ones in all
    captures that were read together."""
    place: Int64
    """Code of `work` and the call's module."""


def read_captures(files: Sequence[SourceFile]) -> list[Capture]:
    """Graph captures recorded in the files."""
    return _with_content_codes([capture for file in files for capture in _read_captures(file)])


def _read_captures(file: SourceFile) -> list[Capture]:
    events = _host_events(file)
    launches = _sorted_rows(events, "launch")
    at, track = launches["start_ns"].to_numpy(), launches["track"].to_numpy()
    copies = pc.match_substring_regex(launches["name"].cast(pa.string()), "Memcpy|Memset")
    captures = []
    for thread, begin, end, alone in _capture_ranges(_sorted_rows(events, "other")):
        rows = np.flatnonzero((at >= begin) & (at < end) & (alone | (track == thread)))
        none = np.full(len(rows), -1, np.int64)
        called = Operators(events, Launched(track[rows], at[rows], at[rows], at[rows], none))
        operator = called.link_rows().operator
        tables = operator_rows(called, 0, operator, called.host.calls.texts_of("shapes"), NO_MARKS)
        calls = pa.concat_tables([OPERATORS.empty_table(), *tables]).unify_dictionaries()
        names = launches["launched"].take(pa.array(rows)).combine_chunks().dictionary_encode()
        captures.append(
            Capture(
                file=file.name,
                batch=captured_batch(file.path),
                kernels=Texts(names.indices.fill_null(-1).to_numpy(), names.dictionary.to_pylist()),
                copies=copies.take(pa.array(rows)).to_numpy(),
                calls=_by_index(calls, called.parents),
                call=called.index_of(operator).astype(np.int32),
                work=none,
                place=none,
            )
        )
    return captures


def _capture_ranges(marks: pa.Table) -> list[tuple[int, int, int, bool]]:
    """Thread, begin and end of each capture, by begin, and whether no other thread captures meanwhile.

    A capture that has no end in the trace is left out: an error ended it, or the trace ends first.
    """
    marks = marks.filter(pc.match_substring(marks["name"].cast(pa.string()), "Capture"))
    begun: dict[int, int] = {}
    ranges: list[tuple[int, int, int]] = []
    columns = (marks[name].to_pylist() for name in ("start_ns", "track", "name"))
    for at, thread, name in zip(*columns, strict=True):
        if _BEGIN.fullmatch(name):
            begun[thread] = at
        elif _END.fullmatch(name) and thread in begun:
            ranges.append((thread, begun.pop(thread), at))
    return [
        (thread, begin, end, all(t == thread or e <= begin or end <= b for t, b, e in ranges))
        for thread, begin, end in sorted(ranges, key=lambda span: span[1])
    ]


def _host_events(file: SourceFile) -> dict[str, pa.Table]:
    """The calls and launches in a file, and names and times of its other host rows, by kind.

    They are kept in memory: a capture runs a model once, its rows are a small part of those of a run.
    """
    reader = trace_reader(file.reader)
    batches = defaultdict[str, list[Rows]](list)
    with plugin_code(type(reader).__module__):
        trace = reader.read(file.path, part=Part(calls_only=True), allow_truncated=False)
        for rows in trace.batches:
            if isinstance(rows, Rows) and rows.side == "host":
                batches[rows.kind].append(rows)
    return {
        kind: pa.table(stated_columns(kind_batches, _COLUMNS.get(kind, SPANS)))
        for kind, kind_batches in batches.items()
    }


def _sorted_rows(events: Mapping[str, pa.Table], kind: str) -> pa.Table:
    """The rows of a kind, sorted by start."""
    if kind not in events:
        return pa.table({name: [] for name in _COLUMNS.get(kind, SPANS)})
    return events[kind].sort_by("start_ns")


def _by_index(calls: pa.Table, parents: Index) -> pa.Table:
    """The calls with indices in place of ids."""
    above = pa.array(parents, pa.int64(), mask=parents < 0)
    for name, values in (("operator", pa.array(np.arange(len(calls)))), ("parent", above)):
        calls = calls.set_column(OPERATORS.get_field_index(name), OPERATORS.field(name), values)
    return calls


def _with_content_codes(captures: Sequence[Capture]) -> list[Capture]:
    """The captures with codes of what each launch's call does."""
    first = np.cumsum([0, *(len(capture.calls) for capture in captures)]).tolist()
    calls = pa.concat_tables([OPERATORS.empty_table(), *(capture.calls for capture in captures)])
    calls = calls.unify_dictionaries().combine_chunks()
    parents = calls["parent"].fill_null(-1).to_numpy().copy()
    for begin, end in pairwise(first):
        parents[begin:end] += np.where(parents[begin:end] >= 0, begin, 0)
    call_codes = _codes_of_rows([_text_codes(calls[name]) for name in ("name", *ARGUMENTS)])
    work, outer = call_codes, parents
    while (outer >= 0).any():
        work = _codes_of_rows([work, np.where(outer >= 0, call_codes[outer], -1)])
        outer = np.where(outer >= 0, parents[outer], -1)
    place = _codes_of_rows([work, _text_codes(calls["module"])])
    return [
        replace(
            capture,
            work=np.append(work[begin:end], -1)[capture.call],
            place=np.append(place[begin:end], -1)[capture.call],
        )
        for (begin, end), capture in zip(pairwise(first), captures, strict=True)
    ]


def _text_codes(column: pa.ChunkedArray) -> Int64:
    return np.asarray(column.combine_chunks().indices.fill_null(-1).to_numpy(), np.int64)


def _codes_of_rows(columns: Sequence[Int64]) -> Int64:
    """A code for each distinct row of the columns."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, ranks = np.unique(column, return_inverse=True)
        _, code = np.unique(code * (len(column) + 1) + ranks, return_inverse=True)
    return code.astype(np.int64)
