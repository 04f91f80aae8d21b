# SPDX-License-Identifier: Apache-2.0
"""From trace files to a run's tables: read in parts, put together per rank, bounded in memory.

`read_part` streams one file, or one part of it, to Parquet.  What needs the whole rank (which step a
kernel belongs to, which process group a collective) is filled in by `finish_rank`, in a second pass
over the rows of the device alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from cclbench import classify
from cclbench.intervals import Int64
from cclbench.normalize import collectives, steps
from cclbench.normalize.rows import Categories, table
from cclbench.readers import READERS, Cut, Rows, Told
from cclbench.schema import EVENTS, TraceFacts
from cclbench.store import EventFile, write_table

_ROW_GROUP = 1 << 16
_DEVICE_WORK = ("kernel", "copy", "memset")
_PENDING = ".pending"
"""Files whose step and collective columns are still to be filled."""


@dataclass(frozen=True, slots=True)
class PartTask:
    """Read `part` (the `index`-th) of a file into `folder`."""

    path: Path
    reader: str
    part: tuple[int, int] | None
    index: int
    folder: Path
    allow_truncated: bool
    step_annotation: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Launches:
    """Launch calls, arrays of shape (launches,)."""

    correlation: Int64
    start_ns: Int64
    track: Int64
    of_kernel: npt.NDArray[np.bool_]


@dataclass(slots=True, eq=False)
class PartRead:
    """What is known of a part once it is on disk."""

    facts: TraceFacts
    told: Told
    dropped: dict[str, int]
    cut: Cut | None
    in_order: bool
    rows: dict[str, int]
    launches: Launches
    annotations: list[steps.Annotation]
    """Those that may be steps."""
    kernel_ns: dict[str, int]
    """Time of unclassified kernels by name, and of all kernels under the empty name."""
    op_span: tuple[int, int] | None
    pending: list[Path]


@dataclass(slots=True)
class _Kind:
    """Rows of one kind and side, gathered up to a row group."""

    categories: Categories
    file: EventFile
    batches: list[Rows] = field(default_factory=list)
    gathered: int = 0


class _PartWriter:
    def __init__(self, task: PartTask) -> None:
        self.task = task
        self.kinds: dict[tuple[str, bool], _Kind] = {}
        self.rows: Counter[str] = Counter()
        self.kernel_ns: Counter[str] = Counter()
        self.launches: list[tuple[Int64, Int64, Int64, npt.NDArray[np.bool_]]] = []
        self.annotations: list[steps.Annotation] = []
        self.patterns = steps.families(task.step_annotation)
        self.op_span: tuple[int, int] | None = None

    def add(self, rows: Rows) -> None:
        self.rows[rows.kind] += len(rows)
        if rows.side == "device" and rows.kind in _DEVICE_WORK:
            self._put(rows, pending=True)
        elif rows.kind == "op":
            self._span(rows)
            own = np.array([_communicates_itself(name) for name in rows.names], np.bool_)[rows.codes]
            if own.any():
                self._put(_subset(rows, own), pending=True)
                rows = _subset(rows, ~own)
            self._put(rows, pending=False)
        else:
            if rows.kind == "launch":
                self._launch(rows)
            elif rows.kind == "annotation" and rows.side == "host":
                self._annotate(rows)
            self._put(rows, pending=False)

    def _put(self, rows: Rows, *, pending: bool) -> None:
        if not len(rows):
            return
        key = rows.kind, pending
        if rows.side == "device" and not pending:
            key = f"{rows.kind}@device", pending
        kind = self.kinds.get(key)
        if kind is None:
            note = _PENDING if pending else ("-device" if "@" in key[0] else "")
            file = EventFile(self.task.folder, rows.kind, self.task.index, note)
            kind = self.kinds[key] = _Kind(Categories(rows.kind), file)
        kind.batches.append(rows)
        kind.gathered += len(rows)
        if kind.gathered >= _ROW_GROUP:
            self._flush(kind)

    def _flush(self, kind: _Kind) -> None:
        if not kind.batches:
            return
        written = table(kind.batches, kind.categories)
        if kind.batches[0].kind == "kernel":
            self._weigh(kind)
        kind.file.write(written)
        kind.batches, kind.gathered = [], 0

    def _weigh(self, kind: _Kind) -> None:
        """Kernel time that the taxonomy does not know, by name."""
        names = list(kind.batches[0].names)
        total = np.zeros(len(names), np.int64)
        for rows in kind.batches:
            np.add.at(total, rows.codes, rows.dur_ns)
        self.kernel_ns[""] += int(total.sum())
        for code in np.flatnonzero(np.array(kind.categories.unclassified)).tolist():
            self.kernel_ns[names[code]] += int(total[code])

    def _launch(self, rows: Rows) -> None:
        known = np.array([c is not None for c in rows.correlation or ()], np.bool_)
        correlation = np.array([c for c in rows.correlation or () if c is not None], np.int64)
        of_kernel = np.array(["Launch" in name for name in rows.names], np.bool_)[rows.codes]
        self.launches.append((correlation, rows.start_ns[known], rows.track[known], of_kernel[known]))

    def _annotate(self, rows: Rows) -> None:
        names = list(rows.names)
        possible = [any(p.fullmatch(name) for p in self.patterns) for name in names]
        for i in np.flatnonzero(np.array(possible, np.bool_)[rows.codes]).tolist():
            start = int(rows.start_ns[i])
            self.annotations.append(steps.Annotation(names[rows.codes[i]], start, start + int(rows.dur_ns[i])))

    def _span(self, rows: Rows) -> None:
        begin, end = int(rows.start_ns.min()), int((rows.start_ns + rows.dur_ns).max())
        if self.op_span is not None:
            begin, end = min(begin, self.op_span[0]), max(end, self.op_span[1])
        self.op_span = begin, end

    def close(self) -> list[Path]:
        """Write what is left; returns the files still to be filled in."""
        for kind in self.kinds.values():
            self._flush(kind)
            kind.file.close()
        return [kind.file.path for (_, pending), kind in self.kinds.items() if pending]


def read_part(task: PartTask) -> PartRead:
    """Stream one part of a file to Parquet."""
    trace = READERS.get(task.reader).read(task.path, part=task.part, allow_truncated=task.allow_truncated)
    writer = _PartWriter(task)
    for rows in trace.batches:
        writer.add(rows)
    pending = writer.close()
    columns = [np.concatenate(column) for column in zip(*writer.launches, strict=True)] or [
        np.empty(0, np.int64),
        np.empty(0, np.int64),
        np.empty(0, np.int64),
        np.empty(0, np.bool_),
    ]
    return PartRead(
        facts=trace.facts,
        told=trace.told,
        dropped=trace.dropped,
        cut=trace.cut,
        in_order=trace.device_rows_in_order,
        rows=dict(writer.rows),
        launches=Launches(*columns),
        annotations=writer.annotations,
        kernel_ns=dict(writer.kernel_ns),
        op_span=writer.op_span,
        pending=pending,
    )


@dataclass(frozen=True, slots=True, eq=False)
class RankTask:
    """Put the parts of one rank together in `folder`, the run's."""

    rank: int
    rank_source: str
    folder: Path
    parts: list[PartRead]
    step_annotation: str | None


@dataclass(slots=True, eq=False)
class _Pending:
    """The rows to fill in, file by file: what steps and collectives are found from."""

    starts: Int64
    ends: Int64
    track: Int64
    correlation: Int64
    launch: Int64
    """Index into the rank's launches, −1 for none."""
    is_call: npt.NDArray[np.bool_]
    names: list[str]
    """Of the calls only, in order."""
    row: Int64
    """Ordinal among the rank's kernels, −1 for other kinds."""


def finish_rank(task: RankTask) -> dict[str, Any]:
    """Fill in steps and collectives; returns the rank's entry in the manifest."""
    parts, notes = task.parts, list[str]()
    facts = merge_facts([p.facts for p in parts])
    rows: Counter[str] = sum((Counter(p.rows) for p in parts), Counter())
    on_device = any(rows[kind] for kind in _DEVICE_WORK)
    launches = _sorted_launches(parts)
    files = [path for p in parts for path in p.pending]
    pending = _scan(files, launches, on_device)
    facts = msgspec.structs.replace(
        facts,
        rank=task.rank,
        rank_source=task.rank_source,
        works_on="device" if on_device else _without_device(facts, launches, rows),
    )
    cut = next((p.cut for p in parts if p.cut), None)
    horizon, blind = (
        (None, False) if cut is None or cut.rows_whole else _horizon(parts, pending, launches, on_device)
    )
    annotations = [a for p in parts for a in p.annotations]
    found, left_out = steps.marks(annotations, steps.families(task.step_annotation))
    step = np.full(len(pending.starts), -1, np.int64)
    if on_device:
        linked = pending.launch >= 0
        step[linked] = found.holding(launches.start_ns[pending.launch[linked]])
    else:
        step = found.holding(pending.starts)
    windows, more = _windows(facts, found, step, pending, parts, horizon, blind)
    left_out += more
    write_table(task.folder / "steps" / f"rank={task.rank}.parquet", steps.table(task.rank, windows))
    calls, ungrouped = _collectives(task, facts, pending, launches, found, step)
    _fill_in(files, task, found, step, pending.is_call)
    if task.rank_source.startswith("nothing"):
        notes.append("the trace does not say its rank: taken as rank 0")
    if facts.works_on is None and (rows["launch"] or rows["op"]):
        notes.append("host rows only: the accelerator's rows are missing")
    if blind:
        notes.append("the file is cut and its rows are not in order of time: no window is known to be whole")
    return _manifest_entry(task, facts, rows, windows, left_out, calls, ungrouped, cut, horizon, notes)


def merge_facts(told: list[TraceFacts]) -> TraceFacts:
    """The first answer to each question; of ranks the one from the best source."""
    best = min(
        (f for f in told if f.rank is not None),
        key=lambda f: ("distributedInfo", "metadata", "record_param_comms").index(f.rank_source or ""),
        default=None,
    )
    merged = {
        name: next((v for f in told if (v := getattr(f, name)) not in (None, ())), getattr(told[0], name))
        for name in TraceFacts.__struct_fields__
    }
    merged["rank"] = best.rank if best else None
    merged["rank_source"] = best.rank_source if best else None
    return TraceFacts(**merged)


def _communicates_itself(name: str) -> bool:
    """Whether a host row is a transfer, not the call that asks for one."""
    return name.startswith("gloo:")


def _subset(rows: Rows, mask: npt.NDArray[np.bool_]) -> Rows:
    import dataclasses

    kept = np.flatnonzero(mask).tolist()
    changes: dict[str, Any] = {
        name: getattr(rows, name)[mask] for name in ("codes", "start_ns", "dur_ns", "track")
    }
    for column in dataclasses.fields(rows):
        value = getattr(rows, column.name)
        if isinstance(value, list):
            changes[column.name] = [value[i] for i in kept]
    return dataclasses.replace(rows, **changes)


def _without_device(facts: TraceFacts, launches: Launches, rows: Counter[str]) -> str | None:
    if len(launches.correlation) or facts.device_count:
        return None
    return "host" if rows["op"] else None


def _sorted_launches(parts: list[PartRead]) -> Launches:
    columns = [
        np.concatenate([getattr(p.launches, name) for p in parts])
        for name in ("correlation", "start_ns", "track", "of_kernel")
    ]
    order = np.argsort(columns[0], kind="stable")
    return Launches(*(column[order] for column in columns))


def _scan(files: list[Path], launches: Launches, on_device: bool) -> _Pending:
    """Times, launches and communication rows of all pending files, in order."""
    pieces: dict[str, list[Any]] = defaultdict(list)
    kernels = 0
    for path in files:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(
                _ROW_GROUP, columns=["start_ns", "dur_ns", "track", "correlation", "category", "name", "kind"]
            ):
                start = batch["start_ns"].to_numpy()
                kind = batch["kind"].dictionary[batch["kind"].indices[0].as_py()].as_py()
                communicates = batch["category"].indices.to_numpy() == _code(
                    batch["category"], "communication"
                )
                is_call = communicates & (kind == ("kernel" if on_device else "op"))
                names = batch["name"].dictionary.to_pylist()
                pieces["names"] += [names[c] for c in batch["name"].indices.to_numpy()[is_call].tolist()]
                pieces["starts"].append(start)
                pieces["ends"].append(start + batch["dur_ns"].to_numpy())
                pieces["track"].append(batch["track"].to_numpy())
                pieces["is_call"].append(is_call)
                pieces["launch"].append(_find(batch["correlation"], launches))
                row = (
                    np.arange(kernels, kernels + len(start)) if kind == "kernel" else np.full(len(start), -1)
                )
                kernels += len(start) if kind == "kernel" else 0
                pieces["row"].append(row)
    empty = np.empty(0, np.int64)

    def whole(name: str) -> Any:
        return np.concatenate([empty.astype(np.bool_) if name == "is_call" else empty, *pieces[name]])

    return _Pending(
        starts=whole("starts"),
        ends=whole("ends"),
        track=whole("track"),
        correlation=empty,
        launch=whole("launch"),
        is_call=whole("is_call"),
        names=pieces["names"],
        row=whole("row"),
    )


def _code(column: pa.DictionaryArray, word: str) -> int:
    words = column.dictionary.to_pylist()
    return words.index(word) if word in words else -1


def _find(correlation: pa.Array, launches: Launches) -> Int64:
    known = correlation.is_valid().to_numpy(zero_copy_only=False)
    wanted = correlation.fill_null(0).to_numpy(zero_copy_only=False)
    if not len(launches.correlation):
        return np.full(len(wanted), -1, np.int64)
    at = np.minimum(np.searchsorted(launches.correlation, wanted), len(launches.correlation) - 1)
    return np.where(known & (launches.correlation[at] == wanted), at, -1)


def _horizon(
    parts: list[PartRead], pending: _Pending, launches: Launches, on_device: bool
) -> tuple[int | None, bool]:
    """Until when a cut file is known to hold everything, and whether that is unknown.

    Device rows in order of their start miss nothing before the last one; otherwise nothing is missing
    before the first kernel launch that has no kernel.
    """
    if not on_device or not len(pending.starts):
        return None, True
    if all(p.in_order for p in parts):
        return int(pending.starts.max()), False
    answered = np.zeros(len(launches.correlation), np.bool_)
    answered[pending.launch[pending.launch >= 0]] = True
    open_launches = launches.start_ns[launches.of_kernel & ~answered]
    if not len(open_launches):
        return None, True
    return min(int(open_launches.min()), int(pending.ends.max())), False


def _windows(
    facts: TraceFacts,
    found: steps.Marks,
    step: Int64,
    pending: _Pending,
    parts: list[PartRead],
    horizon: int | None,
    blind: bool,
) -> tuple[list[tuple[int | None, int, int, str]], Counter[str]]:
    """All windows the rank offers, as (step, begin, end, source), and the steps left out."""
    if facts.works_on is None or blind:
        return [], Counter()
    annotated, left_out = steps.annotation_windows(found, horizon)
    windows: list[tuple[int | None, int, int, str]] = [(*w, "annotation") for w in annotated]
    if facts.works_on == "device":
        by_launch, more = steps.device_windows(found, step, pending.starts, pending.ends, horizon)
        if (step >= 0).any():
            left_out = more
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
    task: RankTask, facts: TraceFacts, pending: _Pending, launches: Launches, found: steps.Marks, step: Int64
) -> tuple[pa.Table, dict[str, int]]:
    """The rank's collectives, written; and how many of a CPU's rows have no group, by reason."""
    told = Told()
    kernels = 0
    for part in task.parts:
        told.extend(part.told, kernels)
        kernels += part.rows.get("kernel", 0)
    at = np.flatnonzero(pending.is_call)
    names = list(dict.fromkeys(pending.names))
    code = {name: i for i, name in enumerate(names)}
    launch = pending.launch[at]
    calls = collectives.Calls(
        row=pending.row[at],
        start_ns=pending.starts[at],
        end_ns=pending.ends[at],
        track=pending.track[at],
        step=_or_none(found.numbers, step[at]),
        launch_track=_or_none(launches.track, launch),
        launch_ns=_or_none(launches.start_ns, launch),
        name=np.array([code[name] for name in pending.names], np.int64),
        names=[classify.collective(name, facts.vendor) or classify.CollectiveName(None, "custom") for name in names],
    )
    ungrouped: dict[str, int] = {}
    if facts.works_on == "device":
        owner = collectives.on_device(calls, told)
    else:
        owner, ungrouped = collectives.on_host(calls, told)
    rows = collectives.table(task.rank, calls, told, owner, facts)
    write_table(task.folder / "collectives" / f"rank={task.rank}.parquet", rows)
    return rows, ungrouped


def _or_none(values: Int64, at: Int64) -> Int64:
    """`values[at]`, −1 where `at` is −1."""
    return np.where(at >= 0, values[at], -1) if len(values) else np.full(len(at), -1, np.int64)


def _fill_in(
    files: list[Path], task: RankTask, found: steps.Marks, step: Int64, is_call: npt.NDArray[np.bool_]
) -> None:
    """Rewrite the pending files with step and collective, under their final names."""
    done = 0
    key = np.cumsum(is_call) - 1 + (task.rank << collectives.RANK_SHIFT)
    for path in files:
        kind, _, rest = path.name.partition("-")
        part = int(rest[:3])
        final = EventFile(path.parent, kind, part, "-transfer" if kind == "op" else "")
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                rows = file.read_row_group(group)
                here = slice(done, done + len(rows))
                inside = step[here] >= 0
                number = found.numbers[step[here]] if len(found.numbers) else np.zeros(len(rows), np.int64)
                columns = {
                    "step": pa.array(number, pa.int32(), mask=~inside),
                    "collective": pa.array(key[here], pa.int64(), mask=~is_call[here]),
                }
                for name, values in columns.items():
                    rows = rows.set_column(EVENTS.get_field_index(name), EVENTS.field(name), values)
                final.write(rows.cast(EVENTS))
                done += len(rows)
        final.close()
        path.unlink()


def _manifest_entry(
    task: RankTask,
    facts: TraceFacts,
    rows: Counter[str],
    windows: list[tuple[int | None, int, int, str]],
    left_out: Counter[str],
    calls: pa.Table,
    ungrouped: dict[str, int],
    cut: Cut | None,
    horizon: int | None,
    notes: list[str],
) -> dict[str, Any]:
    dropped: Counter[str] = sum((Counter(p.dropped) for p in task.parts), Counter())
    times: Counter[str] = sum((Counter(p.kernel_ns) for p in task.parts), Counter())
    total = times.pop("", 0)
    numbered = [w for w in windows if w[3] == "device"] or [w for w in windows if w[3] == "annotation"]
    sources = Counter(calls["payload_source"].cast(pa.string()).to_pylist())
    libraries = Counter(calls["library"].cast(pa.string()).to_pylist())
    return {
        "rank": task.rank,
        "facts": msgspec.to_builtins(facts),
        "rows": dict(sorted(rows.items())),
        "dropped": dict(sorted(dropped.items())),
        "steps": {
            "found": len(numbered),
            "source": numbered[0][3] if numbered else None,
            "left_out": dict(sorted(left_out.items())),
        },
        "unclassified": {
            "share": sum(times.values()) / total if total else None,
            "names": [name for name, _ in times.most_common(10)],
        },
        "collectives": {
            "count": len(calls),
            "without_bytes": sources.pop(None, 0),
            "payload_sources": dict(sorted(sources.items())),
            "without_group": calls["group"].null_count,
            "ungrouped": dict(sorted(ungrouped.items())),
            "libraries": dict(sorted(libraries.items())),
        },
        "truncated": cut and {**msgspec.to_builtins(cut), "horizon_ns": horizon},
        "notes": notes,
    }
