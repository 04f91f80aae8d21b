# SPDX-License-Identifier: Apache-2.0
"""The parts of one rank put together: steps found, collectives described, pending rows filled in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from cclbench import classify
from cclbench.errors import InputError
from cclbench.formats import StatedPayloads, execution_trace_reader
from cclbench.ingestion import entry
from cclbench.ingestion.part import DEVICE_WORK
from cclbench.ingestion.part_file import (
    NO_LAUNCHES,
    Launches,
    PartRead,
    concatenated,
    read_part_file,
)
from cclbench.ingestion.pending import (
    Pending,
    fill_in,
    keep_counters,
    kinds_in_order,
    or_none,
    scan,
)
from cclbench.ingestion.plausible import OVERSIZED, without_oversized
from cclbench.ingestion.rank_operators import write_operators
from cclbench.intervals import Int64
from cclbench.normalize import collectives, execution_traces, steps
from cclbench.record.facts import ProcessGroup, TraceFacts
from cclbench.record.files import write_table
from cclbench.record.manifest import RankEntry, Truncation
from cclbench.schema import group_id
from cclbench.source import SourceFile

_MOST_AGAIN: Final = 0.1
"""Share of repeated rows above which a trace is taken as joined to itself."""
_ALIKE: Final = "the same times, stream, launch and name"
_GUESSED = ("record_param_comms",)
"""Sources of a rank that count only where no other part of the trace states one."""


@dataclass(frozen=True, slots=True, eq=False)
class RankTask:
    """Put the parts of one rank together in `folder`, the run's."""

    rank: int
    rank_source: str
    folder: Path
    parts: list[Path]
    """Its part files, in order."""
    step_annotation: str | None
    file: SourceFile
    """The file its parts are of."""
    beside: SourceFile | None = None
    """Its execution trace."""
    groups: tuple[ProcessGroup, ...] = ()
    """Process groups that follow from all ranks' communicators."""
    captures: tuple[SourceFile, ...] = ()
    """Traces of its graphs being captured."""


@dataclass(frozen=True, slots=True, eq=False)
class RankDone:
    """A rank that is on disk: its entry in the manifest, and the process groups its trace speaks of."""

    entry: RankEntry
    groups: collectives.Groups
    descriptions: dict[str, set[str]]
    """What the trace calls each group, by the group's id."""
    names: frozenset[str]
    """Process groups and communicators that its calls name, whether their ranks are known or not."""
    spent: list[Path]
    """Files that nobody needs once the rank is known to be done: until then it can be done again."""


def finish_rank(task: RankTask) -> RankDone:
    """Fill in steps and collectives."""
    parts = [read_part_file(path) for path in task.parts]
    rows: Counter[str] = sum((p.rows for p in parts), Counter())
    dropped: Counter[str] = sum((p.dropped for p in parts), Counter())
    on_device = any(rows[kind] for kind in DEVICE_WORK)
    launches = _launches(parts)
    facts = merge_facts([p.facts for p in parts])
    facts = msgspec.structs.replace(
        facts,
        rank=task.rank,
        rank_source=task.rank_source,
        groups=(*facts.groups, *task.groups),
        works_on=_works_on(facts, launches, rows, on_device),
    )
    told, notes = _stated_payloads(parts), list[str]()
    if task.beside is not None:
        beside = execution_trace_reader(task.beside.reader).read(task.beside.path)
        facts, notes = execution_traces.place(told, beside, facts)
    files = [path for p in parts for path in kinds_in_order(p.pending)]
    pending = scan(files, launches, on_device)
    set_aside = {f"{kind} rows {words}": count for (kind, words), count in pending.set_aside.items()}
    _require_own_rows(pending, set_aside, str(task.file.path))
    for (kind, _), count in pending.set_aside.items():
        rows[kind] -= count
    if pending.again:
        notes.append(f"{pending.again:,} rows equal an earlier one: {_ALIKE}; both count")
    for kernel, ns in pending.set_aside_ns.items():
        # of all kernels, and of those that the taxonomy does not know
        parts[0].kernel_ns[""] -= ns
        if any(kernel in p.kernel_ns for p in parts):
            parts[0].kernel_ns[kernel] -= ns
    cut = next((p.cut for p in parts if p.cut), None)
    horizon, blind = None, False
    if cut is not None and not cut.rows_whole:
        horizon = _horizon(parts, pending, launches) if on_device else None
        blind = horizon is None
    annotated, left_out = steps.marks(
        [a for p in parts for a in p.annotations], steps.families(task.step_annotation)
    )
    found, step, source = _steps(parts, pending, launches, annotated, on_device)
    windows: list[steps.Window] = []
    periods: steps.Periods | None = None
    if facts.works_on is not None and not blind:
        windows, more, periods = _windows(facts, (annotated, found, source), step, pending, parts, horizon)
        left_out += more
    write_table(task.folder / "steps" / f"rank={task.rank}.parquet", steps.table(task.rank, windows))
    calls, groups, ungrouped, oversized = _collectives(task, told, facts, pending, launches, found, step)
    origin, of_graphs, operators = write_operators(
        task.folder,
        task.rank,
        pending,
        files,
        launches,
        annotated,
        or_none(found.numbers, step),
        task.captures,
        on_device=on_device,
    )
    notes += of_graphs
    oversized += fill_in(files, task.rank, found, step, pending, origin)
    dropped.update(set_aside)
    set_aside |= {OVERSIZED: oversized} if oversized else {}
    notes += [f"set aside as implausible: {count:,} {words}" for words, count in set_aside.items()]
    keep_counters(parts, task.folder, task.rank, task.file)
    descriptions: dict[str, set[str]] = {}
    for listed in facts.groups:
        if listed.ranks:
            group = group_id(listed.ranks)
            groups[group] = tuple(sorted(set(listed.ranks)))
            descriptions.setdefault(group, set()).add(listed.description or listed.name)
    notes += dict.fromkeys(note for p in parts for note in p.notes)
    told_of_rank = RankEntry(
        rank=task.rank,
        facts=msgspec.structs.replace(facts, groups=(), communicators=()),
        span_ns=next(((w.start_ns, w.end_ns) for w in windows if w.source == "whole_trace"), None),
        rows=dict(sorted(rows.items())),
        dropped=dict(sorted(dropped.items())),
        steps=entry.steps(windows, periods, left_out),
        unclassified=entry.unclassified(parts),
        collectives=entry.collectives(calls, ungrouped),
        operators=operators,
        truncated=None if cut is None else Truncation(**msgspec.structs.asdict(cut), horizon_ns=horizon),
        notes=[*notes, *entry.notes(facts, windows, periods, blind=blind)],
        files=[entry.kept(task.file)],
        beside=[entry.kept(file) for file in (task.beside, *task.captures) if file is not None],
    )
    names = frozenset(name for payload in told.payloads if (name := payload.group_name))
    spent = [*task.parts, *files, *(p.counters for p in parts if p.counters is not None)]
    return RankDone(told_of_rank, groups, descriptions, names, spent)


def _launches(parts: list[PartRead]) -> Launches:
    """All launches by correlation, taken out of the parts: they are held once."""
    whole = concatenated([part.launches for part in parts])
    for part in parts:
        part.launches = NO_LAUNCHES
    order = np.argsort(whole.correlation, kind="stable")
    return Launches._make(column[order] for column in whole)


def _require_own_rows(pending: Pending, set_aside: Mapping[str, int], where: str) -> None:
    """`InputError` for a trace of which no row is plausible, or of which many come twice."""
    count = len(pending.starts)
    if set_aside and not count:
        why = ", ".join(f"{number:,} {words}" for words, number in set_aside.items())
        raise InputError(f"holds no plausible row of its device: {why}", where=where)
    if pending.again > _MOST_AGAIN * count:
        raise InputError(
            f"{pending.again:,} of its {count:,} rows equal an earlier one: {_ALIKE}",
            where=where,
            hint="a trace joined to itself counts everything twice: remove the copy",
        )


def merge_facts(told: list[TraceFacts]) -> TraceFacts:
    """The first answer to each question; of ranks the one from the best source."""
    ranked = [f for f in told if f.rank is not None]
    best = min(ranked, key=lambda f: f.rank_source in _GUESSED, default=None)
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


def _stated_payloads(parts: list[PartRead]) -> StatedPayloads:
    """What the rank's trace tells of its collectives."""
    told = StatedPayloads()
    kernels = 0
    for part in parts:
        told.extend(part.told, kernels)
        kernels += part.rows["kernel"]
    return told


def _steps(
    parts: list[PartRead], pending: Pending, launches: Launches, annotated: steps.Marks, on_device: bool
) -> tuple[steps.Marks, Int64, str]:
    """The steps, the index of each pending row's among them (−1 for none), and how they were found.

    A device event is in the step that launched it; where nothing says so, in the step that the device's
    own rows mark; a CPU's transfer in the annotated step that holds it.
    """
    if on_device:
        launched = or_none(launches.start_ns, pending.launch)
        step = np.where(pending.launch >= 0, annotated.holding(launched), -1)
        if (step >= 0).any():
            return annotated, step, "device"
    marked = steps.of_device([s for p in parts for s in p.device_steps])
    if len(marked.numbers):
        return marked, marked.holding(pending.starts), "module"
    if on_device:
        return annotated, step, "device"
    return annotated, annotated.holding(pending.starts), "annotation"


def _horizon(parts: list[PartRead], pending: Pending, launches: Launches) -> int | None:
    """Until when a cut file is known to hold all device rows; None where that is unknown.

    Device rows in order of their start miss nothing before the last one; otherwise nothing is missing
    before the first kernel launch that has no kernel.
    """
    if all(p.device_rows_in_order for p in parts):
        return int(pending.starts[pending.by_device].max())
    answered = np.zeros(len(launches.correlation), np.bool_)
    answered[pending.launch[pending.launch >= 0]] = True
    unanswered = launches.start_ns[launches.of_kernel & ~answered]
    return min(int(unanswered.min()), int(pending.ends[pending.by_device].max())) if len(unanswered) else None


def _windows(
    facts: TraceFacts,
    marks: tuple[steps.Marks, steps.Marks, str],
    step: Int64,
    pending: Pending,
    parts: list[PartRead],
    horizon: int | None,
) -> tuple[list[steps.Window], Counter[str], steps.Periods | None]:
    """All windows the rank offers, the steps left out, and how device windows compare with the host's steps.

    `marks` are the annotated steps, those that `step` indexes, and the source of the latter.
    """
    annotated, found, source = marks
    by_launch = facts.works_on == "device" and source == "device" and bool((step >= 0).any())
    own = pending.by_device
    rows = steps.DeviceRows(step[own], pending.starts[own], pending.ends[own], pending.is_kernel[own])
    windows, left_out = steps.annotation_windows(annotated, horizon, rows=rows if by_launch else None)
    periods = None
    if source == "module":
        by_module, left_out = steps.annotation_windows(found, horizon, "module")
        windows += by_module
    if by_launch:
        of_device, left_out, periods = steps.device_windows(found, rows, horizon)
        windows += of_device
    if facts.works_on == "device":
        begin, end = int(rows.starts.min()), int(rows.ends.max())
    else:
        spans = [p.op_span for p in parts if p.op_span]
        begin, end = min(s[0] for s in spans), max(s[1] for s in spans)
    end = end if horizon is None else min(end, horizon)
    if end > begin:
        windows.append(steps.Window(None, begin, end, "whole_trace"))
    return windows, left_out, periods


def _collectives(
    task: RankTask,
    told: StatedPayloads,
    facts: TraceFacts,
    pending: Pending,
    launches: Launches,
    found: steps.Marks,
    step: Int64,
) -> tuple[pa.Table, collectives.Groups, dict[str, int], int]:
    """The rank's collectives, written; their groups; how many of a CPU's rows have none, by reason.

    Last, how many payloads are set aside as more than anything moves in the call's time.
    """
    at = np.flatnonzero(pending.is_call)
    unknown = classify.CollectiveName(None, "custom")
    calls = collectives.Calls(
        row=pending.call_row,
        start_ns=pending.starts[at],
        end_ns=pending.ends[at],
        track=pending.call_track,
        step=or_none(found.numbers, step[at]),
        launch_track=or_none(launches.track, pending.launch[at]),
        launch_ns=or_none(launches.start_ns, pending.launch[at]),
        name=pending.call_name,
        names=[classify.collective(name, facts.vendor) or unknown for name in pending.names],
    )
    ungrouped: dict[str, int] = {}
    if facts.works_on == "device":
        owner = collectives.on_device(calls, told)
    else:
        owner, ungrouped = collectives.on_host(calls, told, facts)
    rows, groups = collectives.table(task.rank, calls, told, owner, facts)
    lasted = rows["end_ns"].to_numpy() - rows["start_ns"].to_numpy()
    rows, oversized = without_oversized(rows, lasted, "in_bytes", "out_bytes")
    write_table(task.folder / "collectives" / f"rank={task.rank}.parquet", rows)
    return rows, groups, ungrouped, oversized
