# SPDX-License-Identifier: Apache-2.0
"""The parts of one rank put together: steps found, collectives described, pending rows filled in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from cclbench import classify
from cclbench.ingestion.entry import Account, entry
from cclbench.ingestion.part import DEVICE_WORK, ROW_GROUP, Launches, PartRead
from cclbench.intervals import Int64, Mask
from cclbench.normalize import collectives, execution_traces, steps
from cclbench.readers import Told, execution_trace
from cclbench.schema import COUNTERS, EVENTS, KINDS, TraceFacts, group_id
from cclbench.source import SourceFile
from cclbench.store import EventFile, TableFile, write_table

_RANK_SOURCES = ("distributedInfo", "metadata", "record_param_comms")
"""Who may say a trace's rank, the most trustworthy first."""

Window = tuple[int | None, int, int, str]


@dataclass(frozen=True, slots=True, eq=False)
class RankTask:
    """Put the parts of one rank together in `folder`, the run's."""

    rank: int
    rank_source: str
    folder: Path
    parts: list[PartRead]
    step_annotation: str | None
    beside: SourceFile | None = None
    """Its execution trace."""
    file: SourceFile | None = None
    """The file its parts are of."""


@dataclass(frozen=True, slots=True, eq=False)
class _Pending:
    """The rows to fill in, in order: times of all, shape (rows,); the rest of the calls, shape (calls,)."""

    starts: Int64
    ends: Int64
    launch: npt.NDArray[np.int32]
    """Index into the rank's launches, −1 for none, shape (rows,)."""
    is_call: Mask
    """Which rows are communication, shape (rows,)."""
    call_row: Int64
    """Ordinal among the rank's kernels."""
    call_track: Int64
    call_name: Int64
    names: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class RankDone:
    """A rank that is on disk: its entry in the manifest, and the process groups its trace speaks of."""

    entry: dict[str, Any]
    groups: collectives.Groups
    descriptions: dict[str, set[str]]
    """What the trace calls each group, by the group's id."""


def finish_rank(task: RankTask) -> RankDone:
    """Fill in steps and collectives."""
    parts = task.parts
    rows: Counter[str] = sum((Counter(p.rows) for p in parts), Counter())
    on_device = any(rows[kind] for kind in DEVICE_WORK)
    launches = _launches(parts)
    facts = msgspec.structs.replace(
        merge_facts([p.facts for p in parts]), rank=task.rank, rank_source=task.rank_source
    )
    facts = msgspec.structs.replace(facts, works_on=_works_on(facts, launches, rows, on_device))
    told, notes = _told(parts), list[str]()
    if task.beside is not None:
        facts, notes = execution_traces.place(told, execution_trace.read(task.beside.path), facts)
    files = [path for p in parts for path in p.pending]
    pending = _scan(files, launches, on_device)
    cut = next((p.cut for p in parts if p.cut), None)
    horizon, blind = None, False
    if cut is not None and not cut.rows_whole:
        horizon = _horizon(parts, pending, launches) if on_device else None
        blind = horizon is None
    annotated, left_out = steps.marks(
        [a for p in parts for a in p.annotations], steps.families(task.step_annotation)
    )
    found, step, source = _steps(parts, pending, launches, annotated, on_device)
    windows: list[Window] = []
    if facts.works_on is not None and not blind:
        windows, more = _windows(facts, (annotated, found, source), step, pending, parts, horizon)
        left_out += more
    write_table(task.folder / "steps" / f"rank={task.rank}.parquet", steps.table(task.rank, windows))
    calls, groups, ungrouped = _collectives(task, told, facts, pending, launches, found, step)
    _fill_in(files, task.rank, found, step, pending.is_call)
    _keep_counters(parts, task.folder, task.rank, task.file)
    descriptions: dict[str, set[str]] = {}
    for listed in facts.groups:
        if listed.ranks:
            group = group_id(listed.ranks)
            groups[group] = tuple(sorted(set(listed.ranks)))
            descriptions.setdefault(group, set()).add(listed.description or listed.name)
    account = entry(
        Account(
            rank=task.rank,
            facts=facts,
            rows=rows,
            windows=windows,
            left_out=left_out,
            calls=calls,
            ungrouped=ungrouped,
            cut=cut,
            horizon_ns=horizon,
            blind=blind,
            notes=[*notes, *dict.fromkeys(note for p in parts for note in p.notes)],
        ),
        parts,
    )
    return RankDone(account, groups, descriptions)


def merge_facts(told: list[TraceFacts]) -> TraceFacts:
    """The first answer to each question; of ranks the one from the best source."""
    ranked = [f for f in told if f.rank is not None and f.rank_source in _RANK_SOURCES]
    best = min(ranked, key=lambda f: _RANK_SOURCES.index(f.rank_source or ""), default=None)
    merged = {
        name: next((v for f in told if (v := getattr(f, name)) not in (None, ())), getattr(told[0], name))
        for name in TraceFacts.__struct_fields__
    }
    merged["rank"] = best.rank if best else None
    merged["rank_source"] = best.rank_source if best else None
    return TraceFacts(**merged)


def _works_on(facts: TraceFacts, launches: Launches, rows: Counter[str], on_device: bool) -> str | None:
    """`device`, `host`, or None where host rows speak of an accelerator whose own rows are missing."""
    if facts.whole_graphs:
        return None
    if on_device:
        return "device"
    if len(launches.correlation) or facts.device_count or not rows["op"]:
        return None
    return "host"


def _told(parts: list[PartRead]) -> Told:
    """What the rank's trace tells of its collectives."""
    told = Told()
    kernels = 0
    for part in parts:
        told.extend(part.told, kernels)
        kernels += part.rows.get("kernel", 0)
    return told


def _launches(parts: list[PartRead]) -> Launches:
    """All launches of the rank, by correlation."""
    names = ("correlation", "start_ns", "track", "of_kernel")
    columns = [np.concatenate([getattr(p.launches, name) for p in parts]) for name in names]
    order = np.argsort(columns[0], kind="stable")
    return Launches(*(column[order] for column in columns))


def _scan(files: list[Path], launches: Launches, on_device: bool) -> _Pending:
    """Times, launches and communication rows of all pending files, in order."""
    columns = ["start_ns", "dur_ns", "track", "correlation", "category", "name", "kind"]
    starts, ends, launch, is_call = ([np.empty(0, t)] for t in (np.int64, np.int64, np.int32, np.bool_))
    row, track, name = ([np.empty(0, np.int64)] for _ in range(3))
    names: dict[str, int] = {}
    kernels = 0
    for path in files:
        kind = path.name.partition("-")[0]
        calls_here = kind == ("kernel" if on_device else "op")
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROW_GROUP, columns=columns):
                starts.append(batch["start_ns"].to_numpy())
                ends.append(starts[-1] + batch["dur_ns"].to_numpy())
                launch.append(_find(batch["correlation"], launches))
                communicates = batch["category"].indices.to_numpy() == _code(
                    batch["category"], "communication"
                )
                is_call.append(communicates & calls_here)
                codes = [names.setdefault(n, len(names)) for n in batch["name"].dictionary.to_pylist()]
                name.append(np.array(codes, np.int64)[batch["name"].indices.to_numpy()[is_call[-1]]])
                track.append(batch["track"].to_numpy()[is_call[-1]])
                row.append(kernels + np.flatnonzero(is_call[-1]))
                kernels += len(batch) if kind == "kernel" else 0
    return _Pending(
        starts=np.concatenate(starts),
        ends=np.concatenate(ends),
        launch=np.concatenate(launch),
        is_call=np.concatenate(is_call),
        call_row=np.concatenate(row) if on_device else np.full(sum(map(len, row)), -1),
        call_track=np.concatenate(track),
        call_name=np.concatenate(name),
        names=list(names),
    )


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


def _steps(
    parts: list[PartRead], pending: _Pending, launches: Launches, annotated: steps.Marks, on_device: bool
) -> tuple[steps.Marks, Int64, str]:
    """The steps, the index of each pending row's among them (−1 for none), and how they were found.

    A device event is in the step that launched it; where nothing says so, in the step that the device's
    own rows mark; a CPU's transfer in the annotated step that holds it.
    """
    if on_device:
        launched = _or_none(launches.start_ns, pending.launch)
        step = np.where(pending.launch >= 0, annotated.holding(launched), -1)
        if (step >= 0).any():
            return annotated, step, "device"
    marked = steps.of_device([s for p in parts for s in p.device_steps])
    if len(marked.numbers):
        return marked, marked.holding(pending.starts), "module"
    if on_device:
        return annotated, step, "device"
    return annotated, annotated.holding(pending.starts), "annotation"


def _keep_counters(parts: list[PartRead], folder: Path, rank: int, file: SourceFile | None) -> None:
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
                    for name, value in known.items():
                        field = COUNTERS.field(name)
                        column = pa.repeat(pa.scalar(value), len(table))
                        if pa.types.is_dictionary(field.type):
                            column = column.dictionary_encode()
                        at = COUNTERS.get_field_index(name)
                        table = table.set_column(at, field, column.cast(field.type))
                    final.write(table)
            path.unlink()
        final.close()
    except BaseException:
        final.abandon()
        raise


def _horizon(parts: list[PartRead], pending: _Pending, launches: Launches) -> int | None:
    """Until when a cut file is known to hold all device rows; None where that is unknown.

    Device rows in order of their start miss nothing before the last one; otherwise nothing is missing
    before the first kernel launch that has no kernel.
    """
    if all(p.in_order for p in parts):
        return int(pending.starts.max())
    answered = np.zeros(len(launches.correlation), np.bool_)
    answered[pending.launch[pending.launch >= 0]] = True
    unanswered = launches.start_ns[launches.of_kernel & ~answered]
    return min(int(unanswered.min()), int(pending.ends.max())) if len(unanswered) else None


def _windows(
    facts: TraceFacts,
    marks: tuple[steps.Marks, steps.Marks, str],
    step: Int64,
    pending: _Pending,
    parts: list[PartRead],
    horizon: int | None,
) -> tuple[list[Window], Counter[str]]:
    """All windows the rank offers, as (step, begin, end, source), and the steps left out.

    `marks` are the annotated steps, those that `step` indexes, and the source of the latter.
    """
    annotated, found, source = marks
    by_annotation, left_out = steps.annotation_windows(annotated, horizon)
    windows: list[Window] = [(*w, "annotation") for w in by_annotation]
    if source == "module":
        by_module, left_out = steps.annotation_windows(found, horizon)
        windows += [(*w, "module") for w in by_module]
    if facts.works_on == "device":
        if source == "device" and (step >= 0).any():
            by_launch, left_out = steps.device_windows(found, step, pending.starts, pending.ends, horizon)
            windows += [(*w, "device") for w in by_launch]
        begin, end = int(pending.starts.min()), int(pending.ends.max())
    else:
        spans = [p.op_span for p in parts if p.op_span]
        begin, end = min(s[0] for s in spans), max(s[1] for s in spans)
    end = end if horizon is None else min(end, horizon)
    if end > begin:
        windows.append((None, begin, end, "whole_trace"))
    return windows, left_out


def _collectives(
    task: RankTask,
    told: Told,
    facts: TraceFacts,
    pending: _Pending,
    launches: Launches,
    found: steps.Marks,
    step: Int64,
) -> tuple[pa.Table, collectives.Groups, dict[str, int]]:
    """The rank's collectives, written; their groups; how many of a CPU's rows have none, by reason."""
    at = np.flatnonzero(pending.is_call)
    unknown = classify.CollectiveName(None, "custom")
    calls = collectives.Calls(
        row=pending.call_row,
        start_ns=pending.starts[at],
        end_ns=pending.ends[at],
        track=pending.call_track,
        step=_or_none(found.numbers, step[at]),
        launch_track=_or_none(launches.track, pending.launch[at]),
        launch_ns=_or_none(launches.start_ns, pending.launch[at]),
        name=pending.call_name,
        names=[classify.collective(name, facts.vendor) or unknown for name in pending.names],
    )
    ungrouped: dict[str, int] = {}
    if facts.works_on == "device":
        owner = collectives.on_device(calls, told)
    else:
        owner, ungrouped = collectives.on_host(calls, told, facts)
    rows, groups = collectives.table(task.rank, calls, told, owner, facts)
    write_table(task.folder / "collectives" / f"rank={task.rank}.parquet", rows)
    return rows, groups, ungrouped


def _or_none(values: Int64, at: npt.NDArray[np.integer[Any]]) -> Int64:
    """`values[at]`, −1 where `at` is −1."""
    return np.where(at >= 0, values[at], -1) if len(values) else np.full(len(at), -1, np.int64)


def _fill_in(files: list[Path], rank: int, found: steps.Marks, step: Int64, is_call: Mask) -> None:
    """Rewrite the pending files with step and collective, under their final names."""
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
                    number = _or_none(found.numbers, step[here]).astype(np.int32)
                    filled = {
                        "step": pa.array(number, mask=step[here] < 0),
                        "collective": pa.array(keys, mask=~is_call[here]),
                    }
                    for name, values in filled.items():
                        rows = rows.set_column(EVENTS.get_field_index(name), EVENTS.field(name), values)
                    final.write(rows.cast(EVENTS))
                    done, key = done + len(rows), key + int(is_call[here].sum())
            final.close()
        except BaseException:
            final.abandon()
            raise
        path.unlink()


def kinds_in_order(paths: list[Path]) -> list[Path]:
    """Pending files in the order of `schema.KINDS`, then of their parts: the order rows are numbered in."""
    return sorted(paths, key=lambda path: (KINDS.index(path.name.partition("-")[0]), path.name))
