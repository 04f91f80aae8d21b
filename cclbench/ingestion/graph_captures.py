# SPDX-License-Identifier: Apache-2.0
"""Operators of the kernels of CUDA and HIP graphs, from traces taken while the graphs were captured.

A capture records the operators, launches and modules in order, and runs nothing; a replay runs the kernels in
that order and records one launch.  They are joined only if the sequences of kernel names are equal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.classify.serving_steps import batch_size
from cclbench.formats import Names as Words
from cclbench.formats import Part
from cclbench.ground.intervals import Index, Int64
from cclbench.ground.schema import OPERATORS
from cclbench.ingestion.host_rows import Texts
from cclbench.ingestion.launched import Launched, device_time
from cclbench.ingestion.operator_rows import operator_rows
from cclbench.ingestion.operators import Operators
from cclbench.ingestion.part import PartTask, read_part
from cclbench.ingestion.source import SourceFile, captured_batch
from cclbench.normalize.steps import NO_MARKS
from cclbench.record.files import parquet_file
from cclbench.record.manifest import Options

_BEGIN: Final = re.compile(r"(cuda|hip)StreamBeginCapture\w*")
_END: Final = re.compile(r"(cuda|hip)StreamEndCapture\w*")
_LEAST: Final = 2
"""Least number of device rows of one launch that make it a graph launch."""

Names = tuple[str | None, ...]
"""Kernel names in launch order, None for a copy."""


@dataclass(frozen=True, slots=True, eq=False)
class Capture:
    """Launches recorded while a graph was captured, in order."""

    file: str
    batch: int | None
    """Batch size that it was captured for, requests."""
    launched: Names
    calls: pa.Table
    """Rows of `schema.OPERATORS`, with indices in place of ids."""
    call: Index
    """Index of the call around each launch, −1 for none, shape (launches,)."""


@dataclass(slots=True, eq=False)
class Replays:
    """Graph launches of a rank."""

    operator: Int64
    """Id of each device row's call, −1 if no capture states it, shape (rows,)."""
    module: Texts
    """Path of the module that each of these rows belongs to, shape (rows,)."""
    calls: list[pa.Table] = field(default_factory=list)
    """Rows of `schema.OPERATORS`, one table per replay."""
    notes: list[str] = field(default_factory=list)


def holds_graph(rows: Int64) -> npt.NDArray[np.bool_]:
    """Whether launches with these numbers of device rows are graph launches, shape of `rows`."""
    return np.asarray(rows >= _LEAST)


def read_captures(files: Sequence[SourceFile], folder: Path) -> list[Capture]:
    """Graph captures recorded in the files; intermediate tables stay in `folder`."""
    return [
        one for number, file in enumerate(files) for one in _read_captures(file, folder / f"capture-{number}")
    ]


def _read_captures(file: SourceFile, folder: Path) -> list[Capture]:
    folder.mkdir(parents=True)
    read_part(PartTask(file, Part(), 0, folder, Options()))
    marks = _host_rows(folder, "other", "name")
    begins, ends = (
        marks["start_ns"].to_numpy()[[bool(mark.fullmatch(name)) for name in marks["name"].to_pylist()]]
        for mark in (_BEGIN, _END)
    )
    launches = _host_rows(folder, "launch", "track", "launched")
    at, track = launches["start_ns"].to_numpy(), launches["track"].to_numpy()
    found = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=False):
        own = np.flatnonzero((at >= begin) & (at < end))
        none = np.full(len(own), -1, np.int64)
        called = Operators(folder, Launched(track[own], at[own], at[own], at[own], none))
        operator = called.link_rows().operator
        tables = operator_rows(called, 0, operator, NO_MARKS)
        calls = pa.concat_tables([OPERATORS.empty_table(), *tables]).unify_dictionaries()
        names = tuple(launches["launched"].take(pa.array(own)).to_pylist())
        batch = captured_batch(file.path)
        call = called.index_of(operator).astype(np.int32)
        found.append(Capture(file.name, batch, names, _by_index(calls, called.parents), call))
    return found


def _host_rows(folder: Path, kind: str, *columns: str) -> pa.Table:
    """`start_ns` and `columns` of the host's rows of a kind, sorted by start."""
    path = folder / f"{kind}-000.parquet"
    if not path.is_file():
        return pa.table({name: [] for name in ("start_ns", *columns)})
    with parquet_file(path) as file:
        return file.read(["start_ns", *columns]).sort_by("start_ns")


def _by_index(calls: pa.Table, parents: Index) -> pa.Table:
    """The calls with indices in place of ids."""
    above = pa.array(parents, pa.int64(), mask=parents < 0)
    for name, values in (("operator", pa.array(np.arange(len(calls)))), ("parent", above)):
        calls = calls.set_column(OPERATORS.get_field_index(name), OPERATORS.field(name), values)
    return calls


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A rank's device rows, arrays of shape (rows,)."""

    launch: Int64
    """Index of each one's launch, −1 for none."""
    starts: Int64
    ends: Int64
    names: Sequence[str | None]
    """A kernel's name, None for a copy."""


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """A graph launch: its thread, time, step, phase and annotation."""

    track: int
    at: int
    step: int | None
    phase: str
    annotation: str | None


def join_captures(
    rank: int, captures: Sequence[Capture], rows: Rows, launches: dict[int, Launch], first_id: int
) -> Replays:
    """Operators of the kernels of graph `launches`, by launch index; their ids start at `first_id`."""
    operator = np.full(len(rows.launch), -1, np.int64)
    module, modules = np.full(len(rows.launch), -1, np.int32), Words()
    found, refused = Replays(operator, Texts(module, [])), Counter[str]()
    order = np.lexsort((rows.starts, rows.launch))
    for index, launch in sorted(launches.items()):
        here = order[slice(*np.searchsorted(rows.launch[order], (index, index + 1)))]
        capture = _matching_capture(captures, tuple(rows.names[row] for row in here.tolist()), launch)
        if isinstance(capture, str):
            refused[capture] += 1
            continue
        known = here[capture.call >= 0]
        call = capture.call[capture.call >= 0]
        operator[known] = first_id + call
        own = [-1 if word is None else modules[word] for word in capture.calls["module"].to_pylist()]
        module[known] = np.array(own, np.int32)[call]
        kernels, busy = device_time(call, rows.starts[known], rows.ends[known], len(capture.calls))
        found.calls.append(_replay_calls(capture.calls, rank, launch, first_id, kernels, busy))
        first_id += len(capture.calls)
    found.module = Texts(module, list(modules))
    joined = len(found.calls)
    if joined:
        found.notes.append(f"launches of graphs with operators from the graphs' captures: {joined:,}")
    found.notes += [
        f"launches of graphs without operators: {number:,}: {why}" for why, number in refused.items()
    ]
    return found


def _matching_capture(captures: Sequence[Capture], names: Names, launch: Launch) -> Capture | str:
    """The capture that launched the same kernel names in the same order, or the reason for None."""
    fitting = [one for one in captures if one.launched == names and any(one.launched)]
    if not fitting:
        counts = ", ".join(f"{len(one.launched):,}" for one in captures[:3])
        return f"{len(names):,} device rows in another order or of other names than the captures' ({counts})"
    if len(fitting) == 1:
        return fitting[0]
    batch = batch_size(launch.annotation or "")
    # An engine pads a batch to the next size that it has a graph for.
    larger = sorted(
        (one for one in fitting if batch is not None and one.batch is not None and one.batch >= batch),
        key=lambda one: one.batch or 0,
    )
    if larger and (len(larger) == 1 or larger[0].batch != larger[1].batch):
        return larger[0]
    return f"{len(fitting)} captures have the same kernels, and no batch size tells which it is"


def _replay_calls(
    calls: pa.Table, rank: int, launch: Launch, first_id: int, kernels: Int64, busy: Int64
) -> pa.Table:
    """The calls of one replay, at the time of its graph's launch."""
    length = len(calls)
    phase = pa.DictionaryArray.from_arrays(np.zeros(length, np.int8), pa.array([launch.phase]))
    columns = {
        "rank": np.full(length, rank, np.int32),
        "operator": pc.add(calls["operator"], first_id),
        "parent": pc.add(calls["parent"], first_id),
        "track": np.full(length, launch.track),
        **dict.fromkeys(("start_ns", "end_ns"), np.full(length, launch.at)),
        "step": pa.array([launch.step] * length, pa.int32()),
        "phase": phase,
        "annotation": pa.array([launch.annotation] * length, pa.string()).dictionary_encode(),
        "kernels": kernels,
        "device_ns": busy,
    }
    return pa.table([columns.get(name, calls[name]) for name in OPERATORS.names], schema=OPERATORS)
