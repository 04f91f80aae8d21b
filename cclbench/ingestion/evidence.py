# SPDX-License-Identifier: Apache-2.0
"""Ingest evidence other than traces: tables to the run's folder, facts to the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.engine import Engine, Progress
from cclbench.formats import READERS, LoggedCommunicator, sort_by_precedence
from cclbench.ground.evidence_schema import EVIDENCE, TIMINGS
from cclbench.ground.registry import plugin_code
from cclbench.ground.schema import group_id
from cclbench.ingestion.entry import manifest_file
from cclbench.ingestion.source import SourceFile
from cclbench.normalize.communicators import Membership, join_communicators
from cclbench.normalize.logged_calls import ListedCalls
from cclbench.record.facts import ProcessGroup
from cclbench.record.files import TableFile, closed_at_end, opened_table, with_columns
from cclbench.record.manifest import EvidenceFile

_ROWS: Final = 1 << 18
"""Rows per write."""
_PLACES: Final = 21
"""Bits of a rank's index within a communicator."""


@dataclass(frozen=True, slots=True)
class ListedFiles:
    """Timing tables in which the reader `source` lists a rank's calls in order, and the rank's groups."""

    source: str
    paths: tuple[Path, ...]
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class EvidenceDone:
    """The manifest's record of each file, the process groups that the files list, and notes."""

    files: list[EvidenceFile]
    groups: list[ProcessGroup]
    notes: list[str]
    calls: dict[str, dict[int, list[Path]]]
    """Tables that list a rank's calls, by reader and rank."""

    def call_lists(self, rank: int) -> tuple[ListedFiles, ...]:
        """Tables that list the rank's calls, one entry per reader, in order of precedence."""
        files = {source: of_rank[rank] for source, of_rank in self.calls.items() if rank in of_rank}
        if not files:
            return ()
        groups = tuple({group.ranks for group in self.groups if group.ranks and rank in group.ranks})
        return tuple(ListedFiles(source, tuple(paths), groups) for source, paths in files.items())


def calls_of(files: ListedFiles, rank: int) -> ListedCalls:
    """The rank's calls that these files list."""
    tables = []
    for path in files.paths:
        with opened_table(path, TIMINGS) as file:
            for batch in file.iter_batches(_ROWS, use_threads=False):
                table = pa.Table.from_batches([batch]).cast(TIMINGS)
                tables.append(table.filter(pc.equal(table["rank"], rank)))
    groups = {group_id(ranks): tuple(sorted(ranks)) for ranks in files.groups}
    return ListedCalls(files.source, pa.concat_tables(tables).unify_dictionaries(), groups)


class _FileDone(NamedTuple):
    """A file whose tables are written; `timings` is the path of its timings, for joins with other files."""

    entry: EvidenceFile
    groups: list[ProcessGroup]
    communicators: list[LoggedCommunicator]
    timings: Path
    ranks: list[int]
    """Ranks whose calls it lists."""


def ingest_evidence(
    files: Sequence[SourceFile], folder: Path, *, engine: Engine, progress: Progress | None
) -> EvidenceDone:
    """Write the tables of all files under `folder`."""
    work = partial(_ingest_file, folder)
    tasks, size = list(enumerate(files)), sum(file.bytes for file in files)
    done = engine.map(work, tasks, progress=progress, what="reading evidence", size_bytes=size)
    logs = [number for number, file in enumerate(done) if file.communicators]
    joined, notes = join_communicators([done[number].communicators for number in logs]) if logs else ([], [])
    for number, parts in zip(logs, joined, strict=True):
        if done[number].entry.rows:
            _name_ranks(done[number].timings, parts)
            ranks = {part.rank for part in parts if part.rank is not None}
            done[number] = done[number]._replace(ranks=sorted(ranks))
    listed = {group for file in done for group in file.groups}
    listed |= {
        ProcessGroup(name="", ranks=group)
        for memberships in joined
        for membership in memberships
        if (group := membership.communicator.group)
    }
    groups = sorted(listed, key=lambda group: (group.ranks or (), group.name))
    calls: dict[str, dict[int, list[Path]]] = {}
    for name in sort_by_precedence({file.entry.reader for file in done if file.ranks}):
        for file in done:
            for rank in file.ranks if file.entry.reader == name else ():
                calls.setdefault(name, {}).setdefault(rank, []).append(file.timings)
    return EvidenceDone([file.entry for file in done], groups, notes, calls)


def _ingest_file(folder: Path, task: tuple[int, SourceFile]) -> _FileDone:
    index, file = task
    reader = READERS.get(file.reader)
    assert reader.reads == "evidence"  # noqa: S101 - sources sort their files by it
    with plugin_code(type(reader).__module__):
        evidence = reader.read(file.path)
    rows = {}
    for name in EVIDENCE:
        table: pa.Table | None = getattr(evidence, name)
        if table is not None and len(table):
            rows[name] = len(table)
            with closed_at_end(TableFile(_table_path(folder, name, index), EVIDENCE[name])) as target:
                for first in range(0, len(table), _ROWS):
                    target.write(fill_provenance(table.slice(first, _ROWS), name, file))
    entry = EvidenceFile(
        **msgspec.structs.asdict(manifest_file(file)),
        rows=rows,
        facts=evidence.facts,
        left_out=dict(sorted(evidence.left_out.items())),
        notes=evidence.notes,
    )
    ranks = (
        evidence.timings["rank"].unique().drop_null().to_pylist()
        if reader.lists_calls and evidence.timings
        else []
    )
    return _FileDone(
        entry, evidence.groups, evidence.communicators, _table_path(folder, "timings", index), ranks
    )


def _table_path(folder: Path, table: str, index: int) -> Path:
    return folder / table / f"evidence-{index:03d}.parquet"


def _name_ranks(path: Path, parts: Sequence[Membership]) -> None:
    """Rewrite a file's timings with the job's ranks and groups in place of those of its communicators."""
    rank = np.array([-1 if part.rank is None else part.rank for part in parts], np.int32)
    number = np.array([part.communicator.number for part in parts], np.int32)
    ids = pa.array(
        [group_id(part.communicator.group) if part.communicator.group else None for part in parts],
        pa.string(),
    )
    group = ids.dictionary_encode().cast(TIMINGS.field("group").type)
    joined = {part.communicator.number: part.communicator.ranks for part in parts}
    pairs = sorted(
        (number << _PLACES | place, rank)
        for number, job_ranks in joined.items()
        for place, rank in job_ranks.items()
    )
    places, ranks = np.array([*pairs, (np.iinfo(np.int64).max, -1)], np.int64).T
    written = path.with_suffix(".ranks")
    with opened_table(path, TIMINGS) as file, closed_at_end(TableFile(written, TIMINGS)) as target:
        for batch in file.iter_batches(_ROWS, use_threads=False):
            table = pa.Table.from_batches([batch]).cast(TIMINGS)
            communicator = table["communicator"].to_numpy()
            columns = {
                "rank": _rank_column(rank[communicator]),
                "group": group.take(pa.array(communicator)),
                "communicator": pa.array(number[communicator]),
            }
            for end in ("src_rank", "dst_rank"):
                within = table[end].fill_null(-1).to_numpy().astype(np.int64)
                place = number[communicator].astype(np.int64) << _PLACES | np.maximum(within, 0)
                at = np.searchsorted(places, place)
                columns[end] = _rank_column(np.where((within >= 0) & (places[at] == place), ranks[at], -1))
            target.write(with_columns(table, TIMINGS, columns))
    written.replace(path)


def _rank_column(ranks: npt.NDArray[np.signedinteger[Any]]) -> pa.Array:
    return pa.array(ranks.astype(np.int32), mask=ranks < 0)


def fill_provenance(table: pa.Table, name: str, file: SourceFile) -> pa.Table:
    """Fill in the provenance: `source` is the reader, `file` the file's name within the source."""
    schema = EVIDENCE[name]
    for column, value in (("source", file.reader), ("file", file.name)):
        kind = schema.field(column).type
        codes = pa.array(np.zeros(len(table), np.int8), kind.index_type)
        words = pa.DictionaryArray.from_arrays(codes, pa.array([value], pa.string()))
        table = with_columns(table, schema, {column: words})
    return table.cast(schema)
