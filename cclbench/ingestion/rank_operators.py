# SPDX-License-Identifier: Apache-2.0
"""The operators of one rank, its own and those of graphs that it launched whole, beside its events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cclbench.formats import Names
from cclbench.ingestion.graph_captures import (
    Capture,
    Launch,
    Replays,
    Rows,
    holds_graph,
    join_captures,
    read_captures,
)
from cclbench.ingestion.launches import Launches
from cclbench.ingestion.operators import Host, Launched
from cclbench.ingestion.part import ROW_GROUP, finished
from cclbench.ingestion.pending import Pending, or_none
from cclbench.ingestion.program_operators import ProgramOperators
from cclbench.intervals import Int64
from cclbench.normalize import steps
from cclbench.record.files import TableFile
from cclbench.schema import OPERATORS, PHASES
from cclbench.source import SourceFile


def write_operators(
    folder: Path,
    rank: int,
    pending: Pending,
    files: Sequence[Path],
    launches: Launches,
    annotated: steps.Marks,
    step: Int64,
    captures: Sequence[SourceFile],
    *,
    on_device: bool,
) -> tuple[dict[str, pa.Array], list[str], int]:
    """The columns of device rows that say what launched them, notes, and how many operators are written.

    `files` hold the pending rows, `annotated` are the steps of the host, `step` is the number of each pending
    row's (−1: none), `captures` are traces of the rank's graphs.
    """
    launched = None
    if on_device:
        launched = Launched(
            track=or_none(launches.track, pending.launch),
            at=or_none(launches.start_ns, pending.launch),
            starts=pending.starts,
            ends=pending.ends,
            operator=pending.operator,
        )
    host = Host(folder / "events" / f"rank={rank}", launched)
    operator, origin, notes = pending.operator, dict[str, pa.Array](), list[str]()
    tables: Iterable[pa.Table] = []
    if on_device:
        operator = np.where(operator >= 0, operator, host.operator_of_rows())
        phase, module = host.of_rows(operator)
        if captures:
            found = _replays(folder, rank, host, captures, pending, files, launches, annotated)
            operator = np.where(found.operator >= 0, found.operator, operator)
            module = _first_known(found.module.dictionary_encode(), module)
            tables, notes = found.calls, found.notes
        first = max(int(operator.max(initial=0)), int(host.id.max(initial=0))) + 1
        compiled = ProgramOperators(files, pending, first)
        if compiled.stated.any():
            operator = np.where(compiled.stated, compiled.operator, operator)
            phase = _first_known(compiled.words("phase"), phase)
            module = _first_known(compiled.words("module"), module)
            tables = chain(tables, compiled.rows(rank, step))
        origin = {"operator": pa.array(operator, mask=operator < 0), "phase": phase, "module": module}
    of_calls = or_none(annotated.numbers, annotated.holding(host.start_ns)).astype(np.int32)
    count = 0
    with finished(TableFile(folder / "operators" / f"rank={rank}.parquet", OPERATORS)) as file:
        for rows in _row_groups(chain(host.operators(rank, operator, of_calls), tables)):
            count += len(rows)
            file.write(rows)
    return origin, notes, count


def _first_known(one: pa.Array, other: pa.Array) -> pa.Array:
    """The words of one, of the other where one has none, coded as the other."""
    words = Names()
    own, others = (
        pa.array([words[word] for word in column.dictionary.to_pylist()], other.type.index_type).take(
            column.indices
        )
        for column in (one, other)
    )
    return pa.DictionaryArray.from_arrays(pc.coalesce(own, others), pa.array(list(words), pa.string()))


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The rows of the tables, which may be small, in tables of at least a row group but for the last."""
    gathered, length = list[pa.Table](), 0
    for table in tables:
        gathered.append(table)
        length += len(table)
        if length >= ROW_GROUP:
            yield pa.concat_tables(gathered).unify_dictionaries()
            gathered, length = [], 0
    if gathered:
        yield pa.concat_tables(gathered).unify_dictionaries()


def _replays(
    folder: Path,
    rank: int,
    host: Host,
    captures: Sequence[SourceFile],
    pending: Pending,
    files: Sequence[Path],
    launches: Launches,
    annotated: steps.Marks,
) -> Replays:
    """The graphs that the rank launched, joined with their captures."""
    known = pending.launch >= 0
    index, rows = np.unique(pending.launch[known], return_counts=True)
    of_graphs = index[holds_graph(rows)]
    at, track = launches.start_ns[of_graphs], launches.track[of_graphs]
    step = or_none(annotated.numbers, annotated.holding(at)).tolist()
    phases = [PHASES[code] for code in host.phases_at(track, at).tolist()]
    annotations = host.annotations_at(track, at).to_pylist()
    graphs = {
        number: Launch(thread, start, None if own < 0 else own, phase, annotation)
        for number, thread, start, own, phase, annotation in zip(
            of_graphs.tolist(), track.tolist(), at.tolist(), step, phases, annotations, strict=True
        )
    }
    read: list[Capture] = []
    if graphs:
        with TemporaryDirectory(prefix="captures-", dir=folder) as place:
            read = read_captures(captures, Path(place))
    names = list(_names(files, pending)) if graphs else []
    first = max(int(host.id.max(initial=0)), int(pending.operator.max(initial=0))) + 1
    launch = pending.launch.astype(np.int64)
    return join_captures(rank, read, Rows(launch, pending.starts, pending.ends, names), graphs, first)


def _names(files: Sequence[Path], pending: Pending) -> Iterator[str | None]:
    """The kernel's name of each pending row, None of a copy."""
    read = 0
    for path in files:
        is_kernel = path.name.startswith("kernel")
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(ROW_GROUP, columns=["name"]):
                kept = pending.kept[read : read + len(batch)]
                read += len(batch)
                words = batch["name"].filter(pa.array(kept)).to_pylist()
                yield from words if is_kernel else [None] * len(words)
