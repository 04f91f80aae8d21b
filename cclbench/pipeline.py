# SPDX-License-Identifier: Apache-2.0
"""The main job: from a source to a run with results.  The command line is a thin layer over this."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cclbench import __version__, engine
from cclbench.analyzers.aliases import ALIASES, Alias
from cclbench.analyzers.metric import METRICS, Metric, Value
from cclbench.analyzers.rows import Row, rank_rows, run_rows, select, window_policy
from cclbench.analyzers.view import RankView
from cclbench.card import Card, TraceFile
from cclbench.card import TraceFacts as CardFacts
from cclbench.card import load as load_card
from cclbench.engine import Progress
from cclbench.errors import InputError, UsageError, near
from cclbench.ingest import PartRead, PartTask, RankTask, finish_rank, merge_facts, read_part
from cclbench.normalize.ranks import distinct, rank_of
from cclbench.normalize.steps import families
from cclbench.readers import READERS
from cclbench.schema import EVENTS, KINDS, RESULTS, VERSION
from cclbench.source import Source, SourceFile, find
from cclbench.store import Store, StoredRun

if TYPE_CHECKING:
    import pandas as pd

Steps = tuple[int | None, int | None]


class Run:
    """A data point in the store, with the metrics computed from it.

    `rows` are the result rows as flat dicts, `results` the same as a pandas DataFrame with the columns
    of `schema.RESULTS`; the tables come as Arrow (`.to_pandas()` where you want that).
    """

    def __init__(self, stored: StoredRun, rows: Sequence[Row] = (), window: str = "steps") -> None:
        self._stored, self.rows, self.window = stored, list(rows), window

    @property
    def id(self) -> str:
        """The run's name in its store."""
        return self._stored.id

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self._stored.path

    @property
    def store(self) -> Path:
        """The store's folder."""
        return self._stored.path.parent

    @property
    def manifest(self) -> dict[str, Any]:
        """What was found: source files and their hashes, ranks, counts, what was left out and why."""
        return self._stored.manifest

    @property
    def results(self) -> pd.DataFrame:
        """The result rows, columns as `schema.RESULTS`."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=RESULTS.names)

    def events(
        self,
        *,
        rank: int | None = None,
        kinds: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Rows of `schema.EVENTS`, of one rank or all, of some kinds or all; `rank` is added as a column."""
        names = list(columns or EVENTS.names)
        for name in names:
            if name not in EVENTS.names:
                raise UsageError(f"events have no column {name!r}", hint=near(name, EVENTS.names))
        schema = pa.schema([EVENTS.field(name) for name in names])
        tables = [schema.empty_table().append_column("rank", pa.array([], pa.int32()))]
        for one in self._stored.ranks if rank is None else [rank]:
            batches = self._stored.rank(one).events(kinds or KINDS, names)
            table = pa.Table.from_batches(batches, schema)
            tables.append(table.append_column("rank", pa.repeat(pa.scalar(one, pa.int32()), len(table))))
        return pa.concat_tables(tables).unify_dictionaries()

    def collectives(self) -> pa.Table:
        """Rows of `schema.COLLECTIVES` of all ranks."""
        return self._stored.table("collectives")

    def steps(self) -> pa.Table:
        """Rows of `schema.STEPS` of all ranks."""
        return self._stored.table("steps")

    def sql(self, query: str) -> pa.Table:
        """DuckDB over the tables events, collectives, steps and results."""
        return self._stored.sql(query)

    def __repr__(self) -> str:
        return f"<Run {self.id}: {len(self._stored.ranks)} ranks, {len(self.rows)} result rows>"

    def _repr_html_(self) -> str:
        own = self.results
        if len(own):
            keys = ["rank", "step", "group", "collective", "category", "stat"]
            own = own[own[keys].isna().all(axis=1)][["metric", "value", "unit", "status", "reason"]]
        return f"<p><b>{escape(self.id)}</b></p>" + str(
            own.to_html(index=False, escape=True, na_rep="", border=0)
        )


def run(
    source: str | Path,
    *,
    store: str | Path | None = None,
    metrics: Sequence[str] = ("*",),
    window: str = "steps",
    steps: Steps | None = None,
    ranks: Sequence[int] | None = None,
    jobs: int = 1,
    allow_truncated: bool = False,
    step_annotation: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Ingest SOURCE (a card, a trace folder or a trace file) unless the store has it, and compute metrics.

    `jobs` processes share the work; more than one needs the usual `if __name__ == "__main__"` guard in a
    script.  Raises `InputError` for unreadable or contradictory input, `UsageError` for a wrong call.
    """
    chosen = select_metrics(metrics)
    ingested = ingest(
        source,
        store=store,
        jobs=jobs,
        allow_truncated=allow_truncated,
        step_annotation=step_annotation,
        progress=progress,
    )
    return _compute(ingested._stored, chosen, window, steps, ranks, jobs, progress)


def metrics(
    run: str | Path,
    *,
    store: str | Path | None = None,
    metrics: Sequence[str] = ("*",),
    window: str = "steps",
    steps: Steps | None = None,
    ranks: Sequence[int] | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Run:
    """Compute metrics of a run in the store, or of a SOURCE, which is then ingested on demand."""
    chosen = select_metrics(metrics)
    return _compute(
        open_run(run, store=store, jobs=jobs)._stored, chosen, window, steps, ranks, jobs, progress
    )


def open_run(run: str | Path, *, store: str | Path | None = None, jobs: int = 1) -> Run:
    """The run of that id in the store, or of that SOURCE, ingested on demand."""
    stored = Store(store).find(str(run))
    if stored is None and not Path(run).exists():
        Store(store).get(str(run))
    return Run(stored) if stored is not None else ingest(run, store=store, jobs=jobs)


def runs(store: str | Path | None = None) -> list[dict[str, Any]]:
    """Manifests of all runs in the store, by id."""
    return [stored.manifest for stored in Store(store).runs()]


@dataclass(frozen=True, slots=True)
class Chosen:
    """Metrics to compute, and the aliases they were asked for by."""

    metrics: tuple[Metric, ...]
    aliases: tuple[Alias | None, ...]


def select_metrics(patterns: Sequence[str]) -> Chosen:
    """Metrics whose names match the patterns (globs, or a leaderboard name of CCL-Bench), in name order."""
    wanted: dict[str, list[Alias | None]] = {}
    for pattern in patterns:
        if pattern in ALIASES:
            wanted.setdefault(ALIASES[pattern].metric, []).append(ALIASES[pattern])
            continue
        names = [name for name in METRICS if fnmatchcase(name, pattern)]
        if not names:
            raise UsageError(f"no metric matches {pattern!r}", hint=near(pattern, [*METRICS, *ALIASES]))
        for name in names:
            wanted.setdefault(name, []).append(None)
    names = sorted(wanted)
    aliases = [None if None in wanted[name] else _joined([a for a in wanted[name] if a]) for name in names]
    return Chosen(tuple(METRICS.get(name) for name in names), tuple(aliases))


def _joined(aliases: Sequence[Alias]) -> Alias:
    kinds = (
        () if any(not a.collectives for a in aliases) else tuple(k for a in aliases for k in a.collectives)
    )
    return replace(aliases[0], collectives=kinds)


def ingest(
    source: str | Path,
    *,
    store: str | Path | None = None,
    jobs: int = 1,
    allow_truncated: bool = False,
    step_annotation: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Bring SOURCE into the store, unless an unchanged copy is there; the run is whole or absent."""
    families(step_annotation)
    found = find(source)
    shape = (VERSION, __version__, allow_truncated, step_annotation)
    fingerprint = found.fingerprint(*shape)
    keeper = Store(store)
    run_id = f"{found.name}-{fingerprint[:8]}"
    kept = keeper.find(run_id)
    if kept is not None and kept.manifest.get("fingerprint") == fingerprint:
        return Run(kept)
    with keeper.creating(run_id) as folder:
        read = _read(found, folder, jobs, allow_truncated, step_annotation, progress)
        ranks = _ranks(found.files, read)
        tasks = []
        for file in found.files:
            rank, rank_source = ranks[file.name]
            _folder(folder, file, found.files).rename(folder / "events" / f"rank={rank}")
            tasks.append(
                RankTask(rank, rank_source, folder, _moved(read[file.name], folder, rank), step_annotation)
            )
        order = sorted(range(len(tasks)), key=lambda i: tasks[i].rank)
        entries = engine.each(
            finish_rank,
            [tasks[i] for i in order],
            jobs=jobs,
            progress=progress,
            what="putting ranks together",
        )
        for i, entry in zip(order, entries, strict=True):
            file = found.files[i]
            entry["files"] = [
                {"name": file.name, "bytes": file.bytes, "sha256": file.sha256, "reader": file.reader}
            ]
        _check_one_job(entries)
        if found.card is not None:
            shutil.copyfile(found.card, folder / "card.yaml")
        options = {"allow_truncated": allow_truncated, "step_annotation": step_annotation}
        manifest = {
            "schema": VERSION,
            "cclbench": __version__,
            "run": run_id,
            "fingerprint": fingerprint,
            "source": str(found.path),
            "card": _card_summary(found),
            "ingest": options,
            "ranks": entries,
            "notes": _notes(found, entries),
        }
        (folder / "manifest.json").write_text(json.dumps(manifest, indent=1, allow_nan=False) + "\n")
    return Run(StoredRun(keeper.folder / run_id))


def _folder(folder: Path, file: SourceFile, files: Sequence[SourceFile]) -> Path:
    return folder / "events" / f"file-{files.index(file)}"


def _read(
    found: Source,
    folder: Path,
    jobs: int,
    allow_truncated: bool,
    step_annotation: str | None,
    progress: Progress | None,
) -> dict[str, list[PartRead]]:
    """All files' parts, read side by side; a file whose parts do not read is read again as a whole."""
    tasks = [task for file in found.files for task in _tasks(file, found, folder, allow_truncated, step_annotation)]
    try:
        read = engine.each(read_part, tasks, jobs=jobs, progress=progress, what="reading traces")
    except InputError:
        if all(task.part is None for task in tasks):
            raise
        shutil.rmtree(folder / "events", ignore_errors=True)
        tasks = [replace(task, part=None) for task in tasks if task.index == 0]
        read = engine.each(read_part, tasks, jobs=jobs, progress=progress, what="reading traces again")
    by_file: dict[str, list[PartRead]] = {file.name: [] for file in found.files}
    names = {file.path: file.name for file in found.files}
    for task, part in zip(tasks, read, strict=True):
        by_file[names[task.path]].append(part)
    return by_file


def _tasks(
    file: SourceFile, found: Source, folder: Path, allow_truncated: bool, step_annotation: str | None
) -> list[PartTask]:
    # A damaged file ends at its first defect: only reading it in order finds that.
    ranges = [] if allow_truncated else READERS.get(file.reader).parts(file.path)
    into = _folder(folder, file, found.files)
    return [
        PartTask(file.path, file.reader, part, index, into, allow_truncated, step_annotation)
        for index, part in enumerate(ranges if len(ranges) > 1 else [None])
    ]


def _moved(parts: Sequence[PartRead], folder: Path, rank: int) -> list[PartRead]:
    into = folder / "events" / f"rank={rank}"
    return [replace(part, pending=[into / path.name for path in part.pending]) for part in parts]


def _ranks(files: Sequence[SourceFile], read: dict[str, list[PartRead]]) -> dict[str, tuple[int, str]]:
    told = {
        file.name: rank_of(
            file.name, merge_facts([part.facts for part in read[file.name]]), file.rank_by_card
        )
        for file in files
    }
    return distinct(told)


def _check_one_job(entries: Sequence[dict[str, Any]]) -> None:
    """All ranks must say the same world size, and lie within it."""
    sizes = {entry["facts"]["world_size"]: entry for entry in entries if entry["facts"].get("world_size")}
    if len(sizes) > 1:
        said = " and ".join(f"{size} in {entry['files'][0]['name']}" for size, entry in sorted(sizes.items()))
        raise InputError(
            f"traces of different jobs: the world has {said} ranks", hint="run one job at a time"
        )
    for size in sizes:
        for entry in entries:
            if entry["rank"] >= size:
                name = entry["files"][0]["name"]
                raise InputError(f"is rank {entry['rank']} of a world of {size}", where=name)


def _card_summary(found: Source) -> dict[str, Any] | None:
    if found.card is None:
        return None
    card = load_card(found.card)
    return {"id": card.id, "path": str(found.card), "description": card.description}


def _notes(found: Source, entries: Sequence[dict[str, Any]]) -> list[str]:
    notes = []
    if found.ignored:
        shown = ", ".join(found.ignored[:3]) + (", ..." if len(found.ignored) > 3 else "")
        notes.append(f"{len(found.ignored)} files in the folder are no traces and were not read: {shown}")
    world = next((e["facts"]["world_size"] for e in entries if e["facts"].get("world_size")), None)
    if world and len(entries) < world:
        notes.append(f"traces of {len(entries)} of {world} ranks: the others are missing, not assumed")
    return notes


@dataclass(frozen=True, slots=True)
class _MetricTask:
    path: Path
    rank: int
    metrics: tuple[str, ...]
    window: str
    steps: Steps | None


def _compute(
    stored: StoredRun,
    chosen: Chosen,
    window: str,
    steps: Steps | None,
    ranks: Sequence[int] | None,
    jobs: int,
    progress: Progress | None,
) -> Run:
    if ranks is not None:
        for rank in ranks:
            stored.rank(rank)
    names = tuple(metric.name for metric in chosen.metrics)
    wanted = stored.ranks if ranks is None else sorted(set(ranks))
    tasks = [_MetricTask(stored.path, rank, names, window, steps) for rank in wanted]
    computed = engine.each(_rank_metrics, tasks, jobs=jobs, progress=progress, what="computing metrics")
    values = {rank: answered for rank, (answered, _) in zip(wanted, computed, strict=True)}
    policies = {rank: policy for rank, (_, policy) in zip(wanted, computed, strict=True)}
    rows = run_rows(chosen.metrics, values, policies)
    full = ranks is None and steps is None and len(names) == len(list(METRICS)) and not any(chosen.aliases)
    if full:
        stored.save_results(rows)
    for alias in chosen.aliases:
        if alias is not None:
            others = [row for row in rows if row["metric"] != alias.metric]
            rows = sorted([*others, *select(rows, alias)], key=lambda row: names.index(row["metric"]))
    return Run(stored, rows, max(policies.values(), key=lambda p: list(policies.values()).count(p)))


def _rank_metrics(task: _MetricTask) -> tuple[dict[str, list[Value]], str]:
    stored = StoredRun(task.path)
    card = _card(task.path)
    view = RankView(stored.rank(task.rank), rank=task.rank, window=task.window, steps=task.steps, card=card)
    return rank_rows(view, [METRICS.get(name) for name in task.metrics]), window_policy(view, task.window)


def _card(run: Path) -> Card | None:
    path = run / "card.yaml"
    return load_card(path) if path.is_file() else None


def trace_facts(source: str | Path, *, store: str | Path | None = None, jobs: int = 1) -> CardFacts:
    """What a card can learn from traces: world size, accelerator, groups, library, precision, steps."""
    from cclbench.hardware.catalog import by_device_name

    found = find(source)
    ingested = ingest(source, store=store, jobs=jobs)
    entries = ingested.manifest["ranks"]
    facts = entries[0]["facts"]
    device = facts.get("device_name")
    known = by_device_name(device, facts.get("device_memory_bytes")) if device else None
    ranks = {entry["files"][0]["name"]: entry["rank"] for entry in entries}
    groups = {
        (group.get("description"), tuple(group["ranks"]))
        for entry in entries
        for group in entry["facts"].get("groups", ())
        if group.get("description") and group.get("ranks")
    }
    library = max(
        (library for entry in entries for library in entry["collectives"]["libraries"]), default=None
    )
    return CardFacts(
        traces=tuple(
            TraceFile(str(file.path), file.reader, (ranks[file.name],), file.sha256, file.bytes)
            for file in found.files
        ),
        world_size=facts.get("world_size"),
        accelerator=known.id if known else "generic-cpu" if facts.get("works_on") == "host" else None,
        accelerator_name=device,
        per_node=facts.get("device_count") or None,
        framework="pytorch" if facts.get("producer") == "PyTorch Profiler" else None,
        framework_version=facts.get("producer_version"),
        communication_library=library,
        communication_version=facts.get("library_version"),
        groups=tuple(sorted((str(d), r) for d, r in groups)),
        precision=_precision(ingested),
        steps=entries[0]["steps"]["found"] or None,
    )


def _precision(ingested: Run) -> str | None:
    """The element type of the collectives, where all have one that a card knows."""
    known = {"bfloat16": "bf16", "float": "fp32", "float32": "fp32", "half": "fp16", "float16": "fp16"}
    floats = {
        known[name]
        for dtype in ingested.collectives()["dtype"].cast(pa.string()).unique().to_pylist()
        if dtype and (name := dtype.lower().removeprefix("c10::")) in known
    }
    return floats.pop() if len(floats) == 1 else None
