# SPDX-License-Identifier: Apache-2.0
"""A rank's rows that wait for the whole rank: scanned once for what decides, then rewritten filled in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cclbench import classify
from cclbench.ingestion.part import ROW_GROUP, Launches, PartRead
from cclbench.intervals import Int64, Mask
from cclbench.normalize import collectives, steps
from cclbench.normalize.operators import Operators
from cclbench.record.files import EventFile, TableFile, with_columns
from cclbench.schema import COUNTERS, EVENTS, KINDS
from cclbench.source import SourceFile


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """The rows to fill in, in order: times of all, shape (rows,); the rest of the calls, shape (calls,)."""

    starts: Int64
    ends: Int64
    launch: npt.NDArray[np.int32]
    """Index into the rank's launches, −1 for none, shape (rows,)."""
    by_device: Mask
    """Which rows are of the rank's device (on a CPU-only rank all are), shape (rows,)."""
    is_kernel: Mask
    """Which rows are kernels, shape (rows,)."""
    is_call: Mask
    """Which rows are communication, shape (rows,)."""
    call_row: Int64
    """Ordinal among the rank's kernels."""
    call_track: Int64
    call_name: Int64
    names: list[str]
    repeat_correlation: bool
    """Whether what stands for the rows' operator is their correlation once more, as in torch 1.12 to 2.0."""


def scan(files: list[Path], launches: Launches, on_device: bool) -> Pending:
    """Times, launches and communication rows of all pending files, in order."""
    columns = ["start_ns", "dur_ns", "track", "correlation", "category", "name", "kind", "operator"]
    starts, ends, launch = ([np.empty(0, t)] for t in (np.int64, np.int64, np.int32))
    is_call, is_kernel, by_device = ([np.empty(0, np.bool_)] for _ in range(3))
    row, track, name = ([np.empty(0, np.int64)] for _ in range(3))
    names: dict[str, int] = {}
    kernels = 0
    repeats: set[bool | None] = set()
    for path in files:
        kind = path.name.partition("-")[0]
        calls_here = kind == ("kernel" if on_device else "op")
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROW_GROUP, columns=columns):
                starts.append(batch["start_ns"].to_numpy())
                ends.append(starts[-1] + batch["dur_ns"].to_numpy())
                launch.append(_find(batch["correlation"], launches))
                repeats.update(pc.unique(pc.equal(batch["operator"], batch["correlation"])).to_pylist())
                by_device.append(np.full(len(batch), kind != "op" or not on_device))
                is_kernel.append(np.full(len(batch), kind == "kernel"))
                communicates = batch["category"].indices.to_numpy() == _code(
                    batch["category"], "communication"
                )
                words, word = batch["name"].dictionary.to_pylist(), batch["name"].indices.to_numpy()
                if not calls_here:
                    communicates &= np.array([_by_mpi(n) for n in words], np.bool_)[word]
                is_call.append(communicates)
                codes = [names.setdefault(n, len(names)) for n in words]
                name.append(np.array(codes, np.int64)[word[is_call[-1]]])
                track.append(batch["track"].to_numpy()[is_call[-1]])
                here = np.flatnonzero(is_call[-1])
                row.append(kernels + here if kind == "kernel" else np.full(len(here), -1))
                kernels += len(batch) if kind == "kernel" else 0
    return Pending(
        starts=np.concatenate(starts),
        ends=np.concatenate(ends),
        launch=np.concatenate(launch),
        by_device=np.concatenate(by_device),
        is_kernel=np.concatenate(is_kernel),
        is_call=np.concatenate(is_call),
        call_row=np.concatenate(row),
        call_track=np.concatenate(track),
        call_name=np.concatenate(name),
        names=list(names),
        repeat_correlation=repeats - {None} == {True},
    )


def _by_mpi(name: str) -> bool:
    """Whether the host communicates itself, whatever the device does."""
    told = classify.collective(name)
    return told is not None and told.library == "mpi"


def _code(column: pa.DictionaryArray, word: str) -> int:
    words = column.dictionary.to_pylist()
    return words.index(word) if word in words else -1


def _find(correlation: pa.Array, launches: Launches) -> npt.NDArray[np.int32]:
    """Index of each row's launch, −1 for none."""
    known = correlation.is_valid().to_numpy(zero_copy_only=False)
    wanted = correlation.fill_null(0).to_numpy(zero_copy_only=False)
    if not len(launches.correlation):
        return np.full(len(wanted), -1, np.int32)
    at = np.minimum(np.searchsorted(launches.correlation, wanted), len(launches.correlation) - 1)
    return np.where(known & (launches.correlation[at] == wanted), at, -1).astype(np.int32)


def launching_operators(files: list[Path], pending: Pending, launches: Launches) -> Int64 | None:
    """Id of the operator that each row's launch lies in, −1 for none; None where the rows state their own."""
    if not pending.repeat_correlation:
        return None
    columns = ["operator", "track", "start_ns", "dur_ns"]
    tables = [EVENTS.empty_table().select(columns)]
    for path in sorted(files[0].parent.glob("op-[0-9][0-9][0-9].parquet")):
        with pq.ParquetFile(path) as file:
            tables.append(file.read(columns))
    calls = pa.concat_tables(tables).drop_null()
    number, track, start, duration = (calls[name].to_numpy() for name in columns)
    known = pending.launch >= 0
    launch = pending.launch[known]
    found = np.full(len(known), -1, np.int64)
    found[known] = Operators(number, track, start, start + duration).innermost(
        launches.track[launch], launches.start_ns[launch]
    )
    return found


def fill_in(
    files: list[Path], rank: int, found: steps.Marks, step: Int64, is_call: Mask, operator: Int64 | None
) -> None:
    """Rewrite the pending files with step and collective, and operator if given, under their final names."""
    done = 0
    key = (rank << collectives.RANK_SHIFT) - 1
    for path in files:
        kind = path.name.partition("-")[0]
        final = EventFile(
            path.parent, kind, int(path.name[len(kind) + 1 :][:3]), "-transfer" if kind == "op" else ""
        )
        try:
            with pq.ParquetFile(path) as file:
                for group in range(file.num_row_groups):
                    rows = file.read_row_group(group)
                    here = slice(done, done + len(rows))
                    keys = key + np.cumsum(is_call[here])
                    number = or_none(found.numbers, step[here]).astype(np.int32)
                    filled = {
                        "step": pa.array(number, mask=step[here] < 0),
                        "collective": pa.array(keys, mask=~is_call[here]),
                    }
                    if operator is not None:
                        filled["operator"] = pa.array(operator[here], mask=operator[here] < 0)
                    final.write(with_columns(rows, EVENTS, filled).cast(EVENTS))
                    done, key = done + len(rows), key + int(is_call[here].sum())
            final.close()
        except BaseException:
            final.abandon()
            raise
        path.unlink()


def keep_counters(parts: list[PartRead], folder: Path, rank: int, file: SourceFile | None) -> None:
    """What the rank's trace samples of the hardware, under its final name, with the rank filled in."""
    files = [p.counters for p in parts if p.counters is not None]
    if not files:
        return
    final = TableFile(folder / "counters" / f"rank={rank}.parquet", COUNTERS)
    known = {"rank": rank, "source": file and file.reader, "file": file and file.name}
    try:
        for path in files:
            with pq.ParquetFile(path) as samples:
                for batch in samples.iter_batches(ROW_GROUP):
                    table = pa.Table.from_batches([batch])
                    # What is not counted on a device is the host's, whichever rank's trace samples it.
                    by_host = table["device"].is_null()
                    for name, value in known.items():
                        field = COUNTERS.field(name)
                        column = pa.repeat(pa.scalar(value), len(table))
                        if name == "rank":
                            column = pc.if_else(by_host, None, column).combine_chunks()
                        if pa.types.is_dictionary(field.type):
                            column = column.dictionary_encode()
                        table = with_columns(table, COUNTERS, {name: column.cast(field.type)})
                    final.write(table)
            path.unlink()
        final.close()
    except BaseException:
        final.abandon()
        raise


def or_none(values: Int64, at: npt.NDArray[np.integer[Any]]) -> Int64:
    """`values[at]`, −1 where `at` is −1; shape of `at`."""
    return np.where(at >= 0, values[at], -1) if len(values) else np.full(len(at), -1, np.int64)


def kinds_in_order(paths: list[Path]) -> list[Path]:
    """Pending files in the order of `schema.KINDS`, then of their parts: the order rows are numbered in."""
    return sorted(paths, key=lambda path: (KINDS.index(path.name.partition("-")[0]), path.name))
