# SPDX-License-Identifier: Apache-2.0
"""What needs all ranks: collectives matched, clocks aligned, waiting told from transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground.intervals import Int64
from cclbench.ground.schema import COLLECTIVES, GROUPS
from cclbench.ground.scratch import temporary_folder
from cclbench.ingestion.groups import Job, infer_groups, path_of
from cclbench.normalize import clocks, matching
from cclbench.normalize.dimensions import by_shape
from cclbench.record.database import database
from cclbench.record.files import (
    TableFile,
    checked_rows,
    closed_at_end,
    opened_table,
    read_table,
    with_columns,
)
from cclbench.record.manifest import ClockCorrection, ClockCorrections, InferredGroups, MatchingCounts

if TYPE_CHECKING:
    import duckdb

_RANKS_A_TASK: Final = 32
_CALLS: Final = """
INSERT INTO calls
WITH codes AS (
    SELECT "group", row_number() OVER (ORDER BY "group") AS code
    FROM (SELECT DISTINCT "group" FROM files WHERE "group" IS NOT NULL)
)
SELECT ("rank"::BIGINT << 32) | file_row_number, "rank", code, group_size,
    kind::VARCHAR::collective_kind, {seq}, step, greatest(in_bytes, out_bytes),
    if(kind = 'send', coalesce(src_rank, "rank"), src_rank),
    if(kind = 'recv', coalesce(dst_rank, "rank"), dst_rank),
    start_ns, end_ns
FROM files LEFT JOIN codes USING ("group")
"""
"""All ranks' collectives; a send's source and a receive's target are its own rank where nothing says so."""
_PLACE_OF_RANK: Final = 'row_number() OVER (PARTITION BY "rank" ORDER BY start_ns, file_row_number) - 1'


@dataclass(frozen=True, slots=True)
class Places:
    """Where ranks ran: `hosts` numbers each rank's host, where that is known.

    `clocks` has the ranks that read one clock, such as the threads of a process, by the lowest of them.
    """

    hosts: Mapping[int, int]
    clocks: Mapping[int, int]


def match_ranks(
    folder: Path,
    ranks: Sequence[int],
    places: Places,
    degrees: Mapping[str, int],
    job: Job | None,
    *,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
    size_bytes: int | None = None,
) -> tuple[InferredGroups | None, MatchingCounts, ClockCorrections]:
    """Match all ranks' collectives in the run at `folder` and write arrival, wait and transfer to them.

    `places` are where the ranks ran; `degrees`, the card's parallelism, name the dimension of groups whose
    description does not; of a `job` the process groups that no trace states are inferred, where that can be
    done.  Returns the manifest's account of them.  For an instance that all ranks
    of its group have: wait = latest arrival − own arrival, transfer = own end − latest arrival, both within
    the own duration, whose sum they are.  Where some of its ranks have no trace, the latest arrival of those
    that have is a lower bound of the wait.
    """
    with database() as connection, temporary_folder() as place:
        # By a name without patterns, and that is text: DuckDB takes no other.
        (place / "run").symlink_to(folder.absolute())
        connection.execute(matching.CALLS)
        _read_calls(connection, place / "run", ranks, "seq")
        inferred = None if job is None else infer_groups(folder, connection, ranks, job)
        if inferred is not None and inferred.group is not None:
            # Calls of the ranks' common order are numbered by it.
            connection.execute("TRUNCATE calls")
            _read_calls(connection, place / "run", ranks, _PLACE_OF_RANK)
        found = matching.match(connection)
    estimated = _clocks(found, places, ranks)
    wrong = _contradictions(found, estimated)
    if len(wrong):
        found = found.drop_instances(wrong)
        estimated = _clocks(found, places, ranks)
    columns, overshoot = _split(found, estimated)
    groups = read_table(folder / "groups.parquet", GROUPS)
    dimensions = {
        group: dimension
        for group, members in zip(groups["group"].to_pylist(), groups["ranks"].to_pylist(), strict=True)
        if (dimension := by_shape(members, degrees))
    }
    engine.gather(
        _write_matched,
        _write_tasks(folder, ranks, found, columns, dimensions),
        lambda _: None,
        progress=progress,
        what="matching ranks",
        size_bytes=size_bytes,
    )
    complete = found.present == found.expected
    matched = MatchingCounts(
        rows=found.rows,
        matched=len(found.row),
        instances=len(found.present),
        complete=int(complete.sum()),
        partial=int((~complete).sum()),
        unmatched=found.unmatched,
        contradicted_instances=len(wrong),
        wait_beyond_duration_ns=overshoot,
    )
    return inferred, matched, _account(estimated)


def _read_calls(
    connection: duckdb.DuckDBPyConnection, folder: Path, ranks: Sequence[int], number: str
) -> None:
    """Fill table `calls` from the ranks' files, view `files`; `number` is the expression of `seq`."""
    import duckdb

    files = [str(path_of(folder, rank)) for rank in ranks]
    try:
        connection.read_parquet(files, file_row_number=True).create_view("files")
        connection.execute(_CALLS.format(seq=number))
    except duckdb.Error:
        for rank in ranks:  # which file is damaged, and how
            read_table(path_of(folder, rank), COLLECTIVES)
        raise


def _clocks(found: matching.Matching, places: Places, ranks: Sequence[int]) -> clocks.Clocks:
    every = np.array(ranks, np.int64)
    clock = np.array([places.clocks.get(rank, rank) for rank in ranks], np.int64)
    clock_of = clock[np.searchsorted(every, found.rank)].astype(np.int32)
    host = np.array([places.hosts.get(one, -1) for one in np.unique(clock_of).tolist()], np.int32)
    return clocks.for_all(clocks.estimate(clock_of, found.instance, found.end_ns, host), every, clock)


def _contradictions(found: matching.Matching, estimated: clocks.Clocks) -> Int64:
    """The instances whose ranks were never inside at once."""
    tolerance = int(np.ceil(2 * estimated.worst_residual_ns)) + 1
    came, left = (estimated.corrected(found.rank, at) for at in (found.start_ns, found.end_ns))
    return matching.contradictions(found.instance, came, left, tolerance)


def _split(found: matching.Matching, estimated: clocks.Clocks) -> tuple[dict[str, Int64], int]:
    """Each row's duration in parts, and the furthest that a latest arrival lies behind a row's own end.

    Columns, ns, −1 where not known, shape (matched rows,): arrival on the common clock; wait and transfer of
    the rows of complete instances, a lower bound of the wait of the others.  The second is what clocks leave
    unexplained.
    """
    arrival = estimated.corrected(found.rank, found.start_ns)
    latest = np.full(len(found.present), np.iinfo(np.int64).min)
    np.maximum.at(latest, found.instance, arrival)
    duration = found.end_ns - found.start_ns
    waited = latest[found.instance] - arrival
    within = np.minimum(waited, duration)
    complete = (found.present == found.expected)[found.instance]
    columns = {
        "arrival_ns": arrival,
        "wait_ns": np.where(complete, within, -1),
        "transfer_ns": np.where(complete, duration - within, -1),
        "least_wait_ns": np.where(complete, -1, within),
    }
    return columns, int((waited - duration)[complete].max(initial=0))


@dataclass(frozen=True, slots=True, eq=False)
class _Matched:
    """Matched rows of a rank, to be written to its file: `row` is the place in it, `columns` go there."""

    path: Path
    row: Int64
    columns: dict[str, Int64]


def _write_tasks(
    folder: Path,
    ranks: Sequence[int],
    found: matching.Matching,
    columns: Mapping[str, Int64],
    dimensions: Mapping[str, str],
) -> list[tuple[list[_Matched], Mapping[str, str]]]:
    """Some ranks' rows each, and the dimensions of groups whose description names none."""
    every = {"instance": found.instance, **columns}
    bounds = np.searchsorted(found.rank, [*ranks, np.iinfo(np.int32).max]).tolist()
    own = [
        _Matched(
            path_of(folder, rank),
            found.row[begin:end] & (1 << 32) - 1,
            {name: values[begin:end] for name, values in every.items()},
        )
        for rank, (begin, end) in zip(ranks, pairwise(bounds), strict=True)
    ]
    return [(own[i : i + _RANKS_A_TASK], dimensions) for i in range(0, len(own), _RANKS_A_TASK)]


def _write_matched(task: tuple[list[_Matched], Mapping[str, str]]) -> None:
    ranks, dimensions = task
    for rank in ranks:
        # A task that dies leaves the file as it was, to be done again.
        written = rank.path.with_suffix(".matched")
        done = 0
        with (
            opened_table(rank.path, COLLECTIVES) as file,
            closed_at_end(TableFile(written, COLLECTIVES)) as final,
        ):
            for group in range(file.num_row_groups):
                rows = checked_rows(file.read_row_group(group, use_threads=False), COLLECTIVES, rank.path)
                here = slice(*np.searchsorted(rank.row, [done, done + len(rows)]))
                unmatched = np.ones(len(rows), np.bool_)
                unmatched[rank.row[here] - done] = False
                columns = {}
                for name, values in rank.columns.items():
                    column = np.full(len(rows), -1)
                    column[~unmatched] = values[here]
                    columns[name] = pa.array(column, mask=unmatched if name == "arrival_ns" else column < 0)
                done += len(rows)
                final.write(_with_dimensions(with_columns(rows, COLLECTIVES, columns), dimensions))
        written.replace(rank.path)


def _with_dimensions(table: pa.Table, dimensions: Mapping[str, str]) -> pa.Table:
    """The table with the dimensions of its groups, where their description names none."""
    group = table["group"].combine_chunks()
    of_groups = [dimensions.get(name) for name in group.dictionary.to_pylist()]
    if not any(of_groups):
        return table
    stated = table["dimension"].cast(pa.string())
    filled = pc.coalesce(stated, pa.array(of_groups, pa.string()).take(group.indices))
    words = filled.dictionary_encode().cast(COLLECTIVES.field("dimension").type)
    return with_columns(table, COLLECTIVES, {"dimension": words})


def _account(estimated: clocks.Clocks) -> ClockCorrections:
    """Clocks for the manifest: ns and parts per million, of ranks that share collectives with others."""
    return ClockCorrections(
        estimated.t0_ns,
        [
            ClockCorrection(
                rank=int(estimated.ranks[i]),
                offset_ns=round(float(estimated.offset_ns[i]), 1),
                drift_ppm=round(float(estimated.drift[i]) * 1e6, 4),
                residual_ns=round(float(estimated.residual_ns[i]), 1),
                uncertainty_ns=round(float(estimated.uncertainty_ns[i]), 1),
                applied=bool(estimated.applied[i]),
            )
            for i in np.flatnonzero(estimated.known).tolist()
        ],
    )
