# SPDX-License-Identifier: Apache-2.0
"""Pending rows, whose columns need the whole rank: scanned once, then rewritten with them filled in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench import classify
from cclbench.ground.evidence_schema import EVIDENCE
from cclbench.ground.intervals import Index, Int64, Mask
from cclbench.ground.schema import EVENTS, KINDS
from cclbench.ingestion import plausible
from cclbench.ingestion.evidence import fill_provenance
from cclbench.ingestion.launches import Launches
from cclbench.ingestion.part import ROW_GROUP
from cclbench.ingestion.part_file import PartRead
from cclbench.ingestion.plausible import NO_LAUNCH, broken_rules, without_oversized
from cclbench.ingestion.source import SourceFile
from cclbench.normalize import collectives, steps
from cclbench.record.files import EventFile, TableFile, closed_at_end, parquet_file, with_columns


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """The rows to fill in, in order: `starts` and `ends` of shape (rows,), `call_*` of shape (calls,)."""

    starts: Int64
    ends: Int64
    launch: Index
    """Index into the rank's launches, −1 for none, shape (rows,)."""
    by_device: Mask
    """Which rows ran on the rank's device (all, on a CPU-only rank), shape (rows,)."""
    is_kernel: Mask
    """Which rows are kernels, or graphs recorded in place of theirs, shape (rows,)."""
    is_call: Mask
    """Which rows are communication, shape (rows,)."""
    call_row: Int64
    """Ordinal among the rank's kernels."""
    call_track: Int64
    call_name: Int64
    kept: Mask
    """Which rows of the files are kept; the others are implausible or equal an earlier one, shape (rows of
    the files,)."""
    operator: Int64
    """Id of the operator that each row states, −1 for none, shape (rows,).

    −1 throughout if the field only repeats the correlation, as in torch 1.12 to 2.0."""
    names: list[str]
    set_aside: Counter[tuple[str, str]]
    """Number of implausible rows, by kind and reason."""
    repeated: Counter[str]
    """Rows with a duration that equal an earlier one (time, track, device, launch, name), by kind."""
    left_out_ns: Counter[str]
    """Time of implausible and repeated kernels, ns, by name."""
    early: Counter[str]
    """Number of rows that begin before their launch, by kind; they are kept."""
    unlinked: Mask
    """Which rows state a launch whose time has another base, shape (rows,)."""

    def __len__(self) -> int:
        return len(self.starts)


_COLUMNS: Final = {
    **dict.fromkeys(("starts", "ends", "call_row", "call_track", "call_name", "operator"), np.int64),
    **dict.fromkeys(("by_device", "is_kernel", "is_call", "kept", "unlinked"), np.bool_),
    "launch": np.int32,
}
_KEY_COLUMNS: Final = ("start_ns", "dur_ns", "track", "device", "correlation")
"""Columns that distinguish rows of one name."""


def scan_pending(files: list[Path], launches: Launches, on_device: bool, days: range) -> Pending:
    """Times, launches and communication rows of all pending files, in order; `days` are the capture's.

    A row that equals an earlier one is dropped as a repeat.
    """
    pending, repeats = _scan_without_repeats(files, launches, on_device, days, np.zeros(0, np.int64))
    # Few ranks have repeats: their files are read once more without them.
    return _scan_without_repeats(files, launches, on_device, days, repeats)[0] if len(repeats) else pending


def _scan_without_repeats(
    files: list[Path], launches: Launches, on_device: bool, days: range, repeats: Int64
) -> tuple[Pending, Int64]:
    """The rows without those at positions `repeats`, and the positions of rows that repeat an earlier one."""
    columns = ["start_ns", "dur_ns", "track", "device", "correlation", "category", "name"]
    columns += ["kind", "operator"]
    chunks: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in _COLUMNS}
    identities = [np.empty(0, np.uint64)]
    names: dict[str, int] = {}
    kernels = rows = 0
    set_aside, repeated, left_out_ns = Counter[tuple[str, str]](), Counter[str](), Counter[str]()
    early = Counter[str]()
    by_correlation: set[bool | None] = set()
    for path in files:
        kind = path.name.partition("-")[0]
        is_call_kind = kind == ("kernel" if on_device else "op")
        with parquet_file(path) as file:
            for batch in file.iter_batches(ROW_GROUP, columns=columns, use_threads=False):
                alike = pc.equal(batch["operator"], batch["correlation"])
                by_correlation.update(pc.unique(alike).to_pylist())
                start, duration = (batch[column].to_numpy() for column in ("start_ns", "dur_ns"))
                launch = _launch_indices(batch["correlation"], launches)
                begun = or_none(launches.start_ns, launch)
                unlinked = (launch >= 0) & plausible.is_outside_days(begun, days)
                launch = np.where(unlinked, np.int32(-1), launch)
                times = plausible.TimedRows(start, duration, np.where(launch >= 0, begun, NO_LAUNCH), days)
                kept, broken = broken_rules(times)
                set_aside.update({(kind, words): count for words, count in broken.items()})
                first, last = np.searchsorted(repeats, (rows, rows + len(batch)))
                again = np.zeros(len(batch), np.bool_)
                again[repeats[first:last] - rows] = True
                repeated[kind] += int((kept & again).sum())
                kept &= ~again
                early[kind] += int((kept & plausible.begins_before_launch(times)).sum())
                words, word = batch["name"].dictionary.to_pylist(), batch["name"].indices.to_numpy()
                is_call = pc.equal(batch["category"].cast(pa.string()), "communication")
                is_call = is_call.to_numpy(zero_copy_only=False)
                if not is_call_kind:
                    is_call = is_call & np.array([_by_mpi(n) for n in words], np.bool_)[word]
                call_rows = np.flatnonzero(is_call & kept)
                codes = np.array([names.setdefault(n, len(names)) for n in words], np.int64)
                of_batch = {
                    "starts": start[kept],
                    "ends": (start + duration)[kept],
                    "launch": launch[kept],
                    "by_device": np.full(kept.sum(), kind != "op" or not on_device),
                    "is_kernel": np.full(kept.sum(), kind in ("kernel", "graph")),
                    "is_call": is_call[kept],
                    "kept": kept,
                    "unlinked": unlinked[kept],
                    "operator": batch["operator"].fill_null(-1).to_numpy()[kept],
                    "call_row": kernels + call_rows if kind == "kernel" else np.full(len(call_rows), -1),
                    "call_track": batch["track"].to_numpy()[call_rows],
                    "call_name": codes[word[call_rows]],
                }
                for column, values in of_batch.items():
                    chunks[column].append(values)
                identities.append(_row_hashes(batch, codes[word], rows))
                rows += len(batch)
                if kind == "kernel":
                    kernels += len(batch)
                    for row in np.flatnonzero(~kept).tolist():
                        left_out_ns[words[word[row]]] += int(duration[row])
    arrays: dict[str, npt.NDArray[Any]] = {
        name: np.concatenate([np.empty(0, kind), *chunks.pop(name)], dtype=kind)
        for name, kind in _COLUMNS.items()
    }
    if by_correlation - {None} == {True}:
        arrays["operator"] = np.full(len(arrays["operator"]), -1)
    pending = Pending(
        **arrays,
        names=list(names),
        set_aside=set_aside,
        repeated=+repeated,
        left_out_ns=left_out_ns,
        early=+early,
    )
    identity = np.concatenate(identities)
    order = np.argsort(identity, kind="stable")
    again_at = np.flatnonzero(identity[order[1:]] == identity[order[:-1]]) + 1
    return pending, np.sort(order[again_at])


def _row_hashes(batch: pa.RecordBatch, name: Int64, before: int) -> npt.NDArray[np.uint64]:
    """A hash of each row's distinguishing columns, shape (rows,); for a row without a duration its position,
    counted from `before`: several may be alike."""
    hashed = np.zeros(len(batch), np.uint64)
    for column in (*(batch[key].fill_null(-1).to_numpy() for key in _KEY_COLUMNS), name):
        # FNV-1a's step with its 64-bit prime, then a shift that brings high bits down.
        hashed = (hashed ^ column.astype(np.int64).view(np.uint64)) * np.uint64(0x100000001B3)
        hashed ^= hashed >> np.uint64(29)
    place = np.arange(before, before + len(batch), dtype=np.uint64)
    return np.where(batch["dur_ns"].to_numpy() > 0, hashed, place)


def _by_mpi(name: str) -> bool:
    """Whether a row is MPI communication by the host itself, whatever the device does."""
    collective = classify.collective_name(name)
    return collective is not None and collective.library == "mpi"


def _launch_indices(correlation: pa.Array, launches: Launches) -> Index:
    """Index of each row's launch, −1 for none."""
    has_correlation = correlation.is_valid().to_numpy(zero_copy_only=False)
    correlations = correlation.fill_null(0).to_numpy(zero_copy_only=False)
    if not len(launches):
        return np.full(len(correlations), -1, np.int32)
    at = np.minimum(np.searchsorted(launches.correlation, correlations), len(launches) - 1)
    return np.where(has_correlation & (launches.correlation[at] == correlations), at, -1).astype(np.int32)


def fill_in(
    files: list[Path],
    rank: int,
    marks: steps.Marks,
    step: Index,
    pending: Pending,
    origin: Callable[[slice], Mapping[str, pa.Array]],
) -> int:
    """Write the pending files' rows with step, collective and `origin` under their final names.

    `origin` returns the columns of a slice of rows that state what launched them.

    Returns the number of rows whose size was removed as too large for their duration.
    """
    done = read = oversized = 0
    is_call = pending.is_call
    key = (rank << collectives.RANK_SHIFT) - 1
    for path in files:
        kind = path.name.partition("-")[0]
        note = "-transfer" if kind == "op" else ""
        with (
            closed_at_end(EventFile(path.parent, kind, int(path.name[len(kind) + 1 :][:3]), note)) as final,
            parquet_file(path) as file,
        ):
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group, use_threads=False)
                kept = pending.kept[read : read + len(rows)]
                read += len(rows)
                if not kept.all():
                    rows = rows.filter(pa.array(kept))
                rows, over = without_oversized(rows, rows["dur_ns"].to_numpy(), "bytes")
                oversized += over
                row_range = slice(done, done + len(rows))
                keys = key + np.cumsum(is_call[row_range])
                number = or_none(marks.numbers, step[row_range]).astype(np.int32)
                filled = {
                    "step": pa.array(number, mask=step[row_range] < 0),
                    "collective": pa.array(keys, mask=~is_call[row_range]),
                }
                if (unlinked := pending.unlinked[row_range]).any():
                    nothing = pa.scalar(None, rows["correlation"].type)
                    filled["correlation"] = pc.if_else(pa.array(unlinked), nothing, rows["correlation"])
                filled |= origin(row_range)
                final.write(with_columns(rows, EVENTS, filled))
                done, key = done + len(rows), key + int(is_call[row_range].sum())
    return oversized


def keep_evidence(parts: list[PartRead], folder: Path, rank: int, file: SourceFile) -> None:
    """Write the evidence in the rank's trace under its final name, counters with the rank filled in."""
    by_table: dict[str, list[Path]] = {}
    for path in (path for part in parts for path in part.evidence):
        by_table.setdefault(path.name.partition("-")[0], []).append(path)
    for name, paths in by_table.items():
        schema = EVIDENCE[name]
        with closed_at_end(TableFile(folder / name / f"rank={rank}.parquet", schema)) as final:
            for path in paths:
                with parquet_file(path) as samples:
                    for batch in samples.iter_batches(ROW_GROUP):
                        table = fill_provenance(pa.Table.from_batches([batch]), name, file)
                        if name == "counters":
                            # Without a device they are the host's, whichever rank's trace samples them.
                            ranks = pc.if_else(table["device"].is_null(), None, pa.scalar(rank, pa.int32()))
                            table = with_columns(table, schema, {"rank": ranks})
                        final.write(table)


def or_none(values: Int64, at: npt.NDArray[np.integer[Any]]) -> Int64:
    """`values[at]`, −1 where `at` is −1; shape of `at`."""
    return np.where(at >= 0, values[at], -1) if len(values) else np.full(len(at), -1, np.int64)


def kinds_in_order(paths: list[Path]) -> list[Path]:
    """Pending files in the order of `schema.KINDS`, then of their parts: the order rows are numbered in."""
    return sorted(paths, key=lambda path: (KINDS.index(path.name.partition("-")[0]), path.name))
