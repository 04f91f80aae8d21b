# SPDX-License-Identifier: Apache-2.0
"""Join the parts of one rank: find steps, describe collectives, fill in pending rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from cclbench.formats import StatedPayloads, execution_trace_reader
from cclbench.ground.errors import InputError
from cclbench.ground.schema import group_id
from cclbench.ingestion import entry
from cclbench.ingestion.evidence import ListedFiles
from cclbench.ingestion.launches import Launches, read_launches
from cclbench.ingestion.part import ROW_GROUP
from cclbench.ingestion.part_file import PartRead, read_part_file
from cclbench.ingestion.pending import Pending, fill_in, keep_evidence, kinds_in_order, or_none, scan_pending
from cclbench.ingestion.plausible import (
    EARLY,
    OVERSIZED,
    capture_days,
    implausible_host_rows,
    is_plausible_range,
    start_times,
)
from cclbench.ingestion.rank_collectives import write_collectives
from cclbench.ingestion.rank_operators import write_operators
from cclbench.ingestion.rank_steps import device_rows, find_steps, horizon_of, windows_of
from cclbench.ingestion.source import SourceFile
from cclbench.normalize import collectives, execution_traces, steps
from cclbench.normalize.device_rows import DEVICE_WORK
from cclbench.record.facts import ProcessGroup, TraceFacts
from cclbench.record.files import parquet_file, write_table
from cclbench.record.manifest import RankEntry, Truncation

_MOST_AGAIN: Final = 0.1
"""Share of repeated rows above which a trace counts as joined to itself."""
_ALIKE: Final = "the same times, stream, launch and name"
_GUESSED = ("record_param_comms",)
"""Sources of a rank that count only if no other part of the trace states one."""


@dataclass(frozen=True, slots=True, eq=False)
class RankTask:
    """Join the parts of one rank in the run's `folder`."""

    rank: int
    rank_source: str
    folder: Path
    parts: list[Path]
    """Its part files, in order."""
    step_annotation: str | None
    file: SourceFile
    """The trace file of its parts."""
    beside: SourceFile | None = None
    """Its execution trace."""
    groups: tuple[ProcessGroup, ...] = ()
    """Process groups that follow from all ranks' communicators."""
    captures: tuple[SourceFile, ...] = ()
    """Traces of its graphs being captured."""
    listed: tuple[ListedFiles, ...] = ()
    """Files of the run that list its calls."""


@dataclass(frozen=True, slots=True, eq=False)
class RankDone:
    """A rank that is on disk: its manifest entry and the process groups in its trace."""

    entry: RankEntry
    groups: collectives.Groups
    descriptions: dict[str, set[str]]
    """The trace's descriptions or names of each group, by group id."""
    names: frozenset[str]
    """Process groups and communicators that its calls name, whether their ranks are known or not."""
    spent: list[Path]
    """Files to delete once the rank is known to be done; until then it can be repeated."""


def finish_rank(task: RankTask) -> RankDone:
    """Join the parts of a rank and write its steps, collectives, operators and events."""
    parts, stated_payloads = _read_parts(task.parts)
    rows: Counter[str] = sum((p.rows for p in parts), Counter())
    dropped: Counter[str] = sum((p.dropped for p in parts), Counter())
    on_device = any(rows[kind] for kind in DEVICE_WORK)
    launches = read_launches(task.folder / "events" / f"rank={task.rank}")
    facts = merge_facts([p.facts for p in parts])
    facts = msgspec.structs.replace(
        facts,
        rank=task.rank,
        rank_source=task.rank_source,
        groups=(*facts.groups, *task.groups),
        works_on=_works_on(facts, launches, rows, on_device),
    )
    notes: list[str] = []
    if task.beside is not None:
        beside = execution_trace_reader(task.beside.reader).read(task.beside.path)
        facts, notes = execution_traces.place_calls(stated_payloads, beside, facts)
    files = [path for p in parts for path in kinds_in_order(p.pending)]
    events = (task.folder / "events" / f"rank={task.rank}").glob("*.parquet")
    evidence = [path for p in parts for path in p.evidence]
    of_host = sorted(set(events) - {*files, *evidence})
    days = capture_days(start_times(files)) or capture_days(start_times(of_host))
    pending = scan_pending(files, launches, on_device, days)
    set_aside = {f"{kind} rows {words}": count for (kind, words), count in pending.set_aside.items()}
    host_rows = implausible_host_rows(of_host, days)
    doubtful = {f"{kind} rows {words}": count for (kind, words), count in host_rows.items()}
    doubtful |= {f"{kind} rows {EARLY}": count for kind, count in pending.early.items()}
    implausible = set_aside | doubtful
    _require_own_rows(pending, set_aside, str(task.file.path))
    for (kind, _), count in pending.set_aside.items():
        rows[kind] -= count
    rows -= pending.repeated
    if again := pending.repeated.total():
        notes.append(f"{again:,} rows equal an earlier one and count once: {_ALIKE}")
        dropped.update({f"{kind} rows that equal an earlier one": n for kind, n in pending.repeated.items()})
    for kernel, ns in pending.left_out_ns.items():
        # from the time of all kernels and of the unclassified ones
        parts[0].kernel_ns[""] -= ns
        if any(kernel in p.kernel_ns for p in parts):
            parts[0].kernel_ns[kernel] -= ns
    ranges = [a for p in parts for a in p.annotations if is_plausible_range(a.start_ns, a.end_ns, days)]
    annotated, left_out = steps.annotated_steps(ranges, steps.step_patterns(task.step_annotation))
    marks, step, source = find_steps(parts, pending, launches, annotated, on_device)
    of_device = device_rows(pending, step)
    cut = next((p.cut for p in parts if p.cut), None)
    horizon, blind = None, False
    if cut is not None and not cut.rows_whole:
        horizon = horizon_of(parts, pending, launches, of_device) if on_device else None
        blind = horizon is None
    windows: list[steps.Window] = []
    periods: steps.Periods | None = None
    if facts.works_on is not None and not blind:
        windows, more, periods = windows_of(facts, (annotated, marks, source), of_device, parts, horizon)
        left_out += more
    write_table(task.folder / "steps" / f"rank={task.rank}.parquet", steps.steps_table(task.rank, windows))
    of_calls, groups, oversized, of_logs = write_collectives(
        task.folder, task.rank, stated_payloads, facts, pending, launches, marks, step, task.listed
    )
    notes += of_logs
    names = frozenset(name for payload in stated_payloads.payloads if (name := payload.group_name))
    del stated_payloads  # its size grows with the rank's collectives
    origin, graphs, operators = write_operators(
        task.folder,
        task.rank,
        pending,
        files,
        launches,
        annotated,
        or_none(marks.numbers, step),
        task.captures,
        on_device=on_device,
    )
    oversized += fill_in(files, task.rank, marks, step, pending, origin)
    dropped.update(set_aside)
    set_aside |= {OVERSIZED: oversized} if oversized else {}
    notes += [f"set aside as implausible: {count:,} {words}" for words, count in set_aside.items()]
    notes += [f"implausible: {count:,} {words}" for words, count in doubtful.items()]
    keep_evidence(parts, task.folder, task.rank, task.file)
    descriptions: dict[str, set[str]] = {}
    for listed in facts.groups:
        if listed.ranks:
            group = group_id(listed.ranks)
            groups[group] = tuple(sorted(set(listed.ranks)))
            descriptions.setdefault(group, set()).add(listed.description or listed.name)
    notes += dict.fromkeys(note for p in parts for note in p.notes)
    missing = 0 if cut or set_aside or not on_device else _missing_kernels(launches, pending, of_host)
    if missing:
        notes.append(f"{missing:,} kernels have a launch and no row: the capture dropped them")
    rank_entry = RankEntry(
        rank=task.rank,
        facts=msgspec.structs.replace(facts, groups=(), communicators=()),
        span_ns=next(((w.start_ns, w.end_ns) for w in windows if w.source == "whole_trace"), None),
        rows=dict(sorted(rows.items())),
        dropped=dict(sorted(dropped.items())),
        implausible=dict(sorted(implausible.items())),
        missing={"kernel": missing} if missing else {},
        steps=entry.step_entries(windows, periods, left_out),
        unclassified=entry.unclassified_kernels(parts),
        collectives=of_calls,
        operators=operators,
        graphs=graphs,
        truncated=None if cut is None else Truncation(**msgspec.structs.asdict(cut), horizon_ns=horizon),
        notes=[*notes, *entry.rank_notes(facts, rows, windows, periods, blind=blind)],
        files=[entry.manifest_file(task.file)],
        beside=[entry.manifest_file(file) for file in (task.beside, *task.captures) if file is not None],
    )
    spent = [*task.parts, *files, *evidence]
    return RankDone(rank_entry, groups, descriptions, names, spent)


def _missing_kernels(launches: Launches, pending: Pending, of_host: Sequence[Path]) -> int:
    """Number of one-kernel launches without a row, before the last launch that has one.

    0 if the trace captures graphs: launches in a capture do not run.
    """
    ran = np.zeros(len(launches), np.bool_)
    ran[pending.launch[pending.launch >= 0]] = True
    if not (ran & launches.of_one).any():
        return 0
    last = launches.start_ns[ran].max()
    missing = int((launches.of_one & ~ran & (launches.start_ns < last)).sum())
    return 0 if missing and _captures_graphs(of_host) else missing


def _captures_graphs(of_host: Sequence[Path]) -> bool:
    for path in of_host:
        with parquet_file(path) as file:
            for batch in file.iter_batches(ROW_GROUP, columns=["name"], use_threads=False):
                if any("BeginCapture" in word for word in batch["name"].dictionary.to_pylist()):
                    return True
    return False


def _require_own_rows(pending: Pending, set_aside: Mapping[str, int], where: str) -> None:
    """`InputError` if no row of the trace is plausible or many are repeated."""
    count = len(pending)
    if set_aside and not count:
        why = ", ".join(f"{number:,} {words}" for words, number in set_aside.items())
        raise InputError(f"holds no plausible row of its device: {why}", where=where)
    again = pending.repeated.total()
    if again > _MOST_AGAIN * (count + again):
        raise InputError(
            f"{again:,} of its {count + again:,} rows equal an earlier one: {_ALIKE}",
            where=where,
            hint="a trace joined to itself counts everything twice: remove the copy",
        )


def merge_facts(facts: list[TraceFacts]) -> TraceFacts:
    """The first stated value of each fact; the rank from the best source."""
    ranked = [f for f in facts if f.rank is not None]
    best = min(ranked, key=lambda f: f.rank_source in _GUESSED, default=None)
    merged = {
        name: next((v for f in facts if (v := getattr(f, name)) not in (None, ())), getattr(facts[0], name))
        for name in TraceFacts.__struct_fields__
    }
    merged["rank"] = best.rank if best else None
    merged["rank_source"] = best.rank_source if best else None
    return TraceFacts(**merged)


def _works_on(facts: TraceFacts, launches: Launches, rows: Counter[str], on_device: bool) -> str | None:
    """`device`, `host`, or None if host rows imply an accelerator whose own rows are missing."""
    if on_device:
        return "device"
    if len(launches) or facts.device_count or facts.whole_graphs or not rows["op"]:
        return None
    return "host"


def _read_parts(paths: list[Path]) -> tuple[list[PartRead], StatedPayloads]:
    """The rank's parts, and their stated payloads, moved out of them so that memory holds one copy."""
    parts, stated_payloads = list[PartRead](), StatedPayloads()
    kernels = 0
    for path in paths:
        part = read_part_file(path)
        stated_payloads.extend_with(part.stated_payloads, kernels)
        kernels += part.rows["kernel"]
        part.stated_payloads = StatedPayloads()
        parts.append(part)
    return parts, stated_payloads
