# SPDX-License-Identifier: Apache-2.0
"""Write the operators of one rank, including those of its graphs and compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa

from cclbench.formats import Names
from cclbench.ground.intervals import Int64
from cclbench.ground.schema import OPERATORS, PHASES
from cclbench.ground.table_schema import WORD
from cclbench.ingestion.captured_launches import read_captures
from cclbench.ingestion.graph_captures import GraphLaunch, GraphReplays, GraphRows, join_captures
from cclbench.ingestion.host_rows import Texts
from cclbench.ingestion.launched import Launched
from cclbench.ingestion.launches import Launches
from cclbench.ingestion.operator_rows import operator_rows
from cclbench.ingestion.operators import Operators
from cclbench.ingestion.optimizers import argument_shapes
from cclbench.ingestion.part import ROW_GROUP
from cclbench.ingestion.pending import Pending, or_none
from cclbench.ingestion.program_operators import ProgramOperators
from cclbench.ingestion.source import SourceFile
from cclbench.normalize import steps
from cclbench.record.files import TableFile, closed_at_end, parquet_file
from cclbench.record.manifest import GraphJoins

Origin = Callable[[slice], Mapping[str, pa.Array]]
"""Returns the columns of a slice of a rank's device rows that state what launched them."""


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
) -> tuple[Origin, GraphJoins, int]:
    """Write the rank's operators; returns the `Origin` of its device rows, its graphs and the number written.

    `files` hold the pending rows, `annotated` are the host's steps, `step` is each pending row's step number
    (−1: none), `captures` are traces of the rank's graph captures.
    """
    launched = _launching_calls(pending, launches) if on_device else None
    calls = Operators(folder / "events" / f"rank={rank}", launched)
    linked, graphs = calls.link_rows(), GraphJoins()
    tables: Iterable[pa.Table] = []
    operator, phase, module = linked.operator, linked.phase, linked.module
    if on_device:
        replays = _graph_replays(rank, calls, captures, pending, files, launches, annotated)
        if replays is not None:
            np.copyto(operator, replays.operator, where=replays.operator >= 0)
            module = _first_known(replays.module, module)
            tables, graphs = replays.calls, replays.joins
        first = max(int(operator.max(initial=0)), int(calls.id.max(initial=0))) + 1
        compiled = ProgramOperators(files, pending, first)
        if compiled.stated.any():
            np.copyto(operator, compiled.operator_ids, where=compiled.stated)
            phase = _first_known(compiled.texts_of_rows("phase"), phase)
            module = _first_known(compiled.texts_of_rows("module"), module)
            tables = chain(tables, compiled.operator_rows(rank, step))

    def origin(row_range: slice) -> dict[str, pa.Array]:
        if not on_device:
            return {}
        return {
            "operator": pa.array(operator[row_range], mask=operator[row_range] < 0),
            "phase": phase.texts_of_rows(WORD.index_type, row_range),
            "module": module.texts_of_rows(pa.int32(), row_range),
        }

    shapes = argument_shapes(calls, operator, files if on_device else (), pending)
    count = 0
    with closed_at_end(TableFile(folder / "operators" / f"rank={rank}.parquet", OPERATORS)) as file:
        for rows in _row_groups(chain(operator_rows(calls, rank, operator, shapes, annotated), tables)):
            count += len(rows)
            file.write(rows)
    return origin, graphs, count


def _launching_calls(pending: Pending, launches: Launches) -> Launched:
    """The pending rows with their launches."""
    track, at = (or_none(column, pending.launch) for column in (launches.track, launches.start_ns))
    return Launched(track, at, pending.starts, pending.ends, pending.operator)


def _first_known(primary: Texts, fallback: Texts) -> Texts:
    """The texts of `primary`, or of `fallback` where `primary` has none."""
    words = Names()
    primary_codes, fallback_codes = (
        np.array([*(words[word] for word in texts.words), -1], np.int32) for texts in (primary, fallback)
    )
    return Texts(
        np.where(primary.codes >= 0, primary_codes[primary.codes], fallback_codes[fallback.codes]),
        list(words),
    )


def _row_groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join small tables into tables of at least a row group, except the last."""
    gathered, length = list[pa.Table](), 0
    for table in tables:
        gathered.append(table)
        length += len(table)
        if length >= ROW_GROUP:
            yield pa.concat_tables(gathered).unify_dictionaries()
            gathered, length = [], 0
    if gathered:
        yield pa.concat_tables(gathered).unify_dictionaries()


def _graph_replays(
    rank: int,
    calls: Operators,
    captures: Sequence[SourceFile],
    pending: Pending,
    files: Sequence[Path],
    launches: Launches,
    annotated: steps.Marks,
) -> GraphReplays | None:
    """The graphs that the rank launched, joined with their captures; None without a launch that has rows."""
    index = np.unique(pending.launch[pending.launch >= 0])
    of_graphs = index[launches.of_graph[index]]
    if not len(of_graphs):
        return None
    at, track = launches.start_ns[of_graphs], launches.track[of_graphs]
    step = or_none(annotated.numbers, annotated.step_at(at)).tolist()
    phase, annotation = calls.phases_at(track, at)
    phases = [PHASES[code] for code in phase.tolist()]
    annotations = annotation.texts_of_rows(pa.int32()).to_pylist()
    graphs = {
        number: GraphLaunch(thread, start, None if step_number < 0 else step_number, phase, annotation)
        for number, thread, start, step_number, phase, annotation in zip(
            of_graphs.tolist(), track.tolist(), at.tolist(), step, phases, annotations, strict=True
        )
    }
    read = read_captures(captures)
    first = max(int(calls.id.max(initial=0)), int(pending.operator.max(initial=0))) + 1
    stream, kernels = _streams_and_kernels(files, pending)
    launch = pending.launch.astype(np.int64)
    rows = GraphRows(launch, pending.starts, pending.ends, stream, kernels)
    return join_captures(rank, read, rows, graphs, first)


def _streams_and_kernels(files: Sequence[Path], pending: Pending) -> tuple[Int64, Texts]:
    """Stream and kernel name of each pending row, no name for a copy."""
    words, read = Names(), 0
    streams, codes = [np.empty(0, np.int64)], [np.empty(0, np.int32)]
    for path in files:
        is_kernel = path.name.startswith("kernel")
        with parquet_file(path) as file:
            for batch in file.iter_batches(ROW_GROUP, columns=["name", "track"]):
                kept = pending.kept[read : read + len(batch)]
                read += len(batch)
                streams.append(batch["track"].to_numpy()[kept])
                numbers = np.array([words[word] for word in batch["name"].dictionary.to_pylist()], np.int32)
                names = (
                    numbers[batch["name"].indices.to_numpy()]
                    if is_kernel
                    else np.full(len(batch), -1, np.int32)
                )
                codes.append(names[kept])
    return np.concatenate(streams), Texts(np.concatenate(codes), list(words))
