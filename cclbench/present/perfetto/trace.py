# SPDX-License-Identifier: Apache-2.0
"""Write a run in the Chrome Trace Event Format, rank by rank, in bounded batches.

In memory at a time: a batch, one rank's times and threads, and the beginnings of all shown matched parts.
Format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Final

import msgspec

from cclbench import __version__
from cclbench.ground.destination import atomic_replacement, check_folder
from cclbench.ground.errors import UsageError
from cclbench.ground.units import humanise
from cclbench.present.perfetto.events import TraceEvents
from cclbench.present.perfetto.instances import LatestRanks
from cclbench.present.perfetto.lines import event_line
from cclbench.present.perfetto.shown import ShownRows
from cclbench.present.timeline import TimelineClock, clocks_of
from cclbench.record.rank import Rank
from cclbench.record.run import Run
from cclbench.record.selection import Steps

_COMPRESSION: Final = 3
SUFFIXES: Final = (".json", ".json.gz")
"""Suffixes of files for Perfetto's viewer."""


@dataclass(frozen=True, slots=True)
class TraceSummary:
    """Content of a written file."""

    slices: int
    """Number of events, steps and waits."""
    arrows: int
    """Number of collectives with linked parts of at least two ranks."""
    bytes: int

    def __str__(self) -> str:
        size = humanise(self.bytes, "B")
        return f"{self.slices:,} slices, arrows through {self.arrows:,} collectives, {size}"


def check_trace(path: Path) -> None:
    """`UsageError` if the file's suffix is not that of a Chrome trace, or its folder does not exist."""
    if not path.name.lower().endswith(SUFFIXES):
        raise UsageError(f"{path}: unsupported suffix for a trace", hint=f"use {' or '.join(SUFFIXES)}")
    check_folder(path)


def write_trace(
    run: Run, path: Path, *, ranks: Sequence[int] | None = None, steps: Steps | None = None
) -> TraceSummary:
    """Write the run's events for Perfetto's viewer; gzipped if the path ends in `.gz`.

    A process for each rank, a thread for each stream or host thread (and another if its rows cross), lanes
    for steps and for waits in matched collectives, an arrow through the parts of each collective.  Times are
    on the ranks' common clock, from the earliest shown event.  `UsageError` for ranks or steps that the run
    lacks.
    """
    clocks = clocks_of(run.record.clocks)
    files = {rank: run.rank(rank) for rank in (run.ranks if ranks is None else sorted(set(ranks)))}
    cut = {
        rank: ShownRows.from_rank(rank_tables, clocks.get(rank, TimelineClock()), steps)
        for rank, rank_tables in files.items()
    }
    shown = {rank: rows for rank, rows in cut.items() if rows is not None}
    earliest = [begin for rows in shown.values() if (begin := rows.earliest_ns()) is not None]
    if not earliest:
        raise UsageError("there is nothing to show", where=run.id, hint=_steps_hint(files, steps))
    latest = LatestRanks.from_ranks(map(run.rank, run.ranks))
    with _open_trace(path) as file:
        file.write(b'{"traceEvents":[')
        trace = TraceEvents(file, min(earliest), latest, first_thread=max(run.ranks) + 1)
        for rank, rows in shown.items():
            trace.add_rank(rank, rows, corrected=rank in clocks)
        trace.add_arrows()
        about = {
            "run": run.id,
            "cclbench": __version__,
            "begin_ns": min(earliest),
            "ranks": list(shown),
            "steps": steps,
            "clocks": msgspec.to_builtins(run.record.clocks),
        }
        file.write(b'\n],"otherData":' + event_line(**about) + b"}\n")
    return TraceSummary(trace.slices, trace.arrows.linked_count, path.stat().st_size)


def _steps_hint(files: dict[int, Rank], steps: Steps | None) -> str:
    tables = [rank_tables.steps()["step"].drop_null().to_pylist() for rank_tables in files.values()]
    numbers = sorted({step for table in tables for step in table})
    if steps is None:
        return "no rank's trace has an event"
    return f"its steps are {', '.join(map(str, numbers[:12]))}" if numbers else "it marks no steps"


@contextmanager
def _open_trace(path: Path) -> Iterator[BufferedIOBase]:
    with atomic_replacement(path) as unfinished, unfinished.open("wb") as file:
        if path.suffix.lower() == ".gz":
            # Without a name and a time, the same run gives the same bytes.
            with gzip.GzipFile("", "wb", _COMPRESSION, file, mtime=0) as packed:
                yield packed
        else:
            yield file
