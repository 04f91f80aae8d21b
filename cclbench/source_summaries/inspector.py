# SPDX-License-Identifier: Apache-2.0
"""NCCL Inspector: calls, sizes and bandwidth by communicator and kind; the process that arrives last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.timings import group_size_words
from cclbench.analyzers.view.collectives import UNKNOWN
from cclbench.analyzers.view.columns import with_values, with_words, word_codes
from cclbench.analyzers.view.late_rank import LEAST_SHARE, SIGNIFICANT, chance_of_lateness
from cclbench.formats.nccl_inspector import NcclInspector
from cclbench.ground.units import humanise
from cclbench.source_summaries.summary import FigureColumn, FigureTable, SourceSummary, SummaryInputs

_NS_PER_S: Final = 1e9
_TRANSFERS: Final = ("send", "recv", "send_recv")
_BLOCKS: Final = 40
"""Most blocks of consecutive calls, the unit in which lateness is tested: who is late in one call is often
late in the next."""
_FEWEST_CALLS: Final = _BLOCKS
_LEAST_NS: Final = 2000
"""Least mean lateness of a process that is named: times are whole µs."""
_COLUMNS: Final = (
    FigureColumn(name="communicator", key=True),
    FigureColumn(name="kind", key=True),
    FigureColumn(name="calls", unit="count"),
    FigureColumn(name="bytes", unit="B"),
    FigureColumn(name="median size", unit="B"),
    FigureColumn(name="largest size", unit="B", detail=True),
    FigureColumn(name="median time", unit="s"),
    FigureColumn(name="p99 time", unit="s", detail=True),
    FigureColumn(name="busbw", unit="B/s", lead=True),
    FigureColumn(name="highest busbw", unit="B/s", detail=True),
)
"""Calls and bytes of all processes that have a file; `busbw` is the median over calls as stated."""


def summarise_inspector(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """All communicators, most bytes first; a process that all others wait for before them."""
    rows = with_words(inputs.view.table("timings"), "source", (NcclInspector.name,))
    if not len(rows):
        return
    rows = rows.set_column(rows.schema.get_field_index("kind"), "kind", rows["kind"].cast(pa.string()))
    names = _communicator_names(rows)
    table = [
        (names[number], kind or UNKNOWN, *_cells(part))
        for (number, kind), part in _parts(rows, "communicator", "kind").items()
    ]
    table.sort(key=lambda row: (-(row[3] or 0.0), -row[2], row[:2]))
    files = len(rows["file"].unique())
    total = float(np.sum(rows["bytes"].fill_null(0).to_numpy().astype(np.float64)))
    yield SourceSummary(
        kind="inspector",
        heading="Collectives by NCCL Inspector",
        warnings=list(_late_words(rows, names)),
        sentences=[
            f"{len(rows):,} calls of {files:,} process{'es'[: 2 * (files != 1)]} in {len(names):,}"
            f" communicator{'s'[: len(names) != 1]} carry {humanise(total, 'B')}."
        ],
        tables=[
            FigureTable(subject="calls", title="Calls by communicator and kind", columns=_COLUMNS, rows=table)
        ],
        absent=["which process arrives last: needs the files of several processes"] if files < 2 else [],
    )


def _parts(rows: pa.Table, *columns: str) -> dict[tuple[Any, ...], pa.Table]:
    """The rows by the values of columns."""
    if not len(rows):
        return {}
    codes = np.zeros(len(rows), np.int64)
    for name in columns:
        numbers, words = word_codes(rows, name)
        codes = codes * len(words) + numbers
    order = np.argsort(codes, kind="stable")
    bounds = np.flatnonzero(np.diff(codes[order])) + 1
    parts = [rows.take(pa.array(places)) for places in np.split(order, bounds)]
    return {tuple(part[name][0].as_py() for name in columns): part for part in parts}


def _communicator_names(rows: pa.Table) -> dict[int, str]:
    """`8 ranks on 1 node`; numbered in the order of their bytes where several have as many."""
    communicators = []
    for (number,), part in _parts(rows, "communicator").items():
        size, nodes = (part[name][0].as_py() for name in ("group_size", "nodes"))
        carried = float(np.sum(part["bytes"].fill_null(0).to_numpy().astype(np.float64)))
        communicators.append((-carried, number, group_size_words(size, nodes)))
    counts, places = Counter(words for *_, words in communicators), Counter[str]()
    names = {}
    for _, number, words in sorted(communicators):
        places[words] += 1
        names[number] = words if counts[words] == 1 else f"{words}, no. {places[words]}"
    return names


def _cells(part: pa.Table) -> tuple[Any, ...]:
    """The cells of `_COLUMNS` behind communicator and kind."""
    sizes, times, busbw = (part[name].drop_null().to_numpy() for name in ("bytes", "dur_ns", "busbw"))
    return (
        len(part),
        float(sizes.astype(np.float64).sum()) if len(sizes) else None,
        float(np.median(sizes)) if len(sizes) else None,
        float(sizes.max()) if len(sizes) else None,
        float(np.median(times)) / _NS_PER_S if len(times) else None,
        float(np.percentile(times, 99)) / _NS_PER_S if len(times) else None,
        float(np.median(busbw)) if len(busbw) else None,
        float(busbw.max()) if len(busbw) else None,
    )


def _late_words(rows: pa.Table, names: Mapping[int, str]) -> Iterator[str]:
    """The process of each communicator that arrives last beyond chance: its calls are the shortest."""
    calls = with_values(rows, "communicator", "kind", "seq", "dur_ns")
    calls = calls.filter(pa.array(~np.isin(calls["kind"].to_numpy(zero_copy_only=False), _TRANSFERS)))
    for (number,), part in _parts(calls, "communicator").items():
        files, times = _common_calls(part)
        if times.shape[1] < _FEWEST_CALLS:
            continue
        late = times.max(axis=0) - times
        blocks = np.add.reduceat(late, np.arange(_BLOCKS) * late.shape[1] // _BLOCKS, axis=1)
        chance = chance_of_lateness(blocks.astype(np.float64)) * len(files)
        latest = int(np.argmax(late.sum(axis=1)))
        others = np.delete(late, latest, axis=0)
        excess = late[latest] - np.median(others, axis=0)
        waited = float(excess.sum() / times.max(axis=0).sum())
        if chance[latest] < SIGNIFICANT and waited >= LEAST_SHARE and excess.mean() >= _LEAST_NS:
            last = float((times[latest] < np.delete(times, latest, axis=0).min(axis=0)).mean())
            yield (
                f"{names[number]}: the process of {files[latest]} arrives last in {humanise(last, '1')} of"
                f" {times.shape[1]:,} collectives, where the others wait for it: {humanise(waited, '1')} of"
                " their time"
            )


def _common_calls(part: pa.Table) -> tuple[list[str], np.ndarray[tuple[int, int], np.dtype[np.int64]]]:
    """Files of a communicator's processes, and times of the calls that all of them list, in their order.

    Shape (files, calls).  No calls where a file lists one twice: it is then of several processes.
    """
    files, words = word_codes(part, "file")
    kinds, _ = word_codes(part, "kind")
    seq = part["seq"].to_numpy()
    used = np.unique(files)
    files = np.searchsorted(used, files)
    order = np.lexsort((files, kinds, seq))
    call = np.stack([seq[order], kinds[order]])
    first = np.concatenate([[True], (np.diff(call) != 0).any(axis=0)])
    number = np.cumsum(first) - 1
    complete = np.flatnonzero(np.bincount(number) == len(used))
    chosen = order[np.isin(number, complete)]
    of_file = files[chosen].reshape(-1, len(used))
    names = [words[code] or "" for code in used.tolist()]
    if len(used) < 2 or (of_file != np.arange(len(used))).any():
        return names, np.zeros((len(used), 0), np.int64)
    return names, part["dur_ns"].to_numpy()[chosen].reshape(-1, len(used)).T
