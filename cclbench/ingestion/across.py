# SPDX-License-Identifier: Apache-2.0
"""Match collectives across ranks, align clocks and separate wait from transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ground.intervals import Int64
from cclbench.ground.schema import COLLECTIVES, GROUPS
from cclbench.ground.scratch import temporary_folder
from cclbench.ingestion.groups import JobGroups, infer_groups, path_of
from cclbench.normalize import clocks, matching
from cclbench.normalize.dimensions import by_shape
from cclbench.normalize.shared_ends import index_of
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
WITH lanes AS MATERIALIZED (SELECT DISTINCT "group", src_rank, dst_rank, channel FROM files), codes AS (
    SELECT "group", row_number() OVER (ORDER BY "group") AS code
    FROM (SELECT DISTINCT "group" FROM lanes WHERE "group" IS NOT NULL)
), channels AS (
    SELECT *, row_number() OVER (ORDER BY src_rank, dst_rank, channel) AS channel_code
    FROM (SELECT DISTINCT src_rank, dst_rank, channel FROM lanes WHERE channel IS NOT NULL)
)
SELECT ("rank"::BIGINT << 32) | file_row_number, "rank", code, group_size,
    kind::VARCHAR::collective_kind, {seq}, step, greatest(in_bytes, out_bytes),
    if(kind = 'send', coalesce(src_rank, "rank"), src_rank),
    if(kind = 'recv', coalesce(dst_rank, "rank"), dst_rank),
    channel_code,
    library = 'mpi' AND kind IN {may_leave} AND coalesce(dst_rank <> "rank" OR kind = 'send', true),
    start_ns, end_ns
FROM files LEFT JOIN codes USING ("group") LEFT JOIN channels USING (src_rank, dst_rank, channel)
"""
"""All ranks' collectives; an unstated source of a send or target of a receive is the row's own rank."""
_PLACE_OF_RANK: Final = 'row_number() OVER (PARTITION BY "rank" ORDER BY start_ns, file_row_number) - 1'


@dataclass(frozen=True, slots=True)
class Places:
    """Where ranks ran: `hosts` is the number of each rank's host, where known.

    `clocks` maps ranks that share a clock, such as threads of one process, to the lowest of them.
    """

    hosts: Mapping[int, int]
    clocks: Mapping[int, int]


def match_ranks(
    folder: Path,
    ranks: Sequence[int],
    places: Places,
    degrees: Mapping[str, int],
    job: JobGroups | None,
    *,
    engine: Engine = SERIAL,
    progress: Progress | None = None,
    size_bytes: int | None = None,
) -> tuple[InferredGroups | None, MatchingCounts, ClockCorrections]:
    """Match all ranks' collectives in the run at `folder` and write arrival, wait and transfer to them.

    `degrees`, the card's parallelism, name the dimension of groups whose description does not.  With a `job`,
    process groups that no trace states are inferred where possible.  Returns the manifest's records of
    inference, matching and clocks.  If all ranks of the group have the instance: wait = latest arrival − own
    arrival, transfer = own end − latest arrival, both limited to the own duration, which is their sum.  A
    rank that may leave before others arrive waits for none that arrives after its end.  If some ranks have no
    trace, the latest arrival of the others gives a lower bound of the wait.
    """
    with database() as connection, temporary_folder() as place:
        # DuckDB accepts only paths that are valid text without glob patterns.
        (place / "run").symlink_to(folder.absolute())
        connection.execute(matching.CALLS)
        _read_calls(connection, place / "run", ranks, "seq")
        inferred = None if job is None else infer_groups(folder, connection, ranks, job)
        if inferred is not None and inferred.group is not None:
            # Number the calls by their place in the order that all ranks share.
            connection.execute("TRUNCATE calls")
            _read_calls(connection, place / "run", ranks, _PLACE_OF_RANK)
        matches = matching.match(connection)
    estimated = _estimate_clocks(matches, places, ranks)
    arrival = estimated.correct_times(matches.rank, matches.start_ns)
    wrong = _contradicting_instances(matches, estimated, arrival)
    if len(wrong):
        matches = matches.drop_instances(wrong)
        estimated = _estimate_clocks(matches, places, ranks)
        arrival = estimated.correct_times(matches.rank, matches.start_ns)
    groups = read_table(folder / "groups.parquet", GROUPS)
    dimensions = {
        group: dimension
        for group, members in zip(groups["group"].to_pylist(), groups["ranks"].to_pylist(), strict=True)
        if (dimension := by_shape(members, degrees))
    }
    overshoot: list[int] = []
    engine.gather(
        _write_matched,
        _write_tasks(folder, ranks, matches, arrival, dimensions),
        overshoot.append,
        progress=progress,
        what="matching ranks",
        size_bytes=size_bytes,
    )
    complete = matches.present == matches.expected
    matched = MatchingCounts(
        rows=matches.rows,
        matched=len(matches.row),
        instances=len(matches.present),
        complete=int(complete.sum()),
        partial=int((~complete).sum()),
        unmatched=matches.unmatched,
        contradicted_instances=len(wrong),
        wait_beyond_duration_ns=max(overshoot, default=0),
    )
    return inferred, matched, _clock_corrections(estimated)


def _read_calls(
    connection: duckdb.DuckDBPyConnection, folder: Path, ranks: Sequence[int], number: str
) -> None:
    """Fill table `calls` from the ranks' files (view `files`); `number` is the SQL expression of `seq`."""
    import duckdb

    files = [str(path_of(folder, rank)) for rank in ranks]
    try:
        connection.read_parquet(files, file_row_number=True).create_view("files")
        connection.execute(_CALLS.format(seq=number, may_leave=matching.MAY_LEAVE))
    except duckdb.Error:
        for rank in ranks:  # find the damaged file and its defect
            read_table(path_of(folder, rank), COLLECTIVES)
        raise


def _estimate_clocks(matches: matching.Matching, places: Places, ranks: Sequence[int]) -> clocks.Clocks:
    every = np.array(ranks, np.int64)
    clock = np.array([places.clocks.get(rank, rank) for rank in ranks], np.int64)
    # The ends of a collective show the clocks only if nobody may leave before others arrive.
    rank, instance, end_ns = matches.rank, matches.instance, matches.end_ns
    if matches.may_leave.any():
        together = np.ones(len(matches.present), np.bool_)
        together[instance[matches.may_leave]] = False
        rows = together[instance]
        rank, instance, end_ns = rank[rows], (np.cumsum(together) - 1)[instance[rows]], end_ns[rows]
    clock_of = clock.astype(np.int32)[index_of(every, rank)]
    host = np.array([places.hosts.get(rank, -1) for rank in np.unique(clock_of).tolist()], np.int32)
    return clocks.for_all(clocks.estimate_clocks(clock_of, instance, end_ns, host), every, clock)


def _contradicting_instances(matches: matching.Matching, estimated: clocks.Clocks, arrival: Int64) -> Int64:
    """Instances whose ranks were never all inside the collective at the same time."""
    tolerance = int(np.ceil(2 * estimated.worst_residual_ns)) + 1
    left = estimated.correct_times(matches.rank, matches.end_ns)
    return matching.contradicting_instances(matches.instance, arrival, left, tolerance, matches.may_leave)


@dataclass(frozen=True, slots=True, eq=False)
class _Matched:
    """Matched rows of one rank, rows `row` of the file at `path`; arrays of shape (rows,), times in ns.

    `arrival_ns` and `latest_ns`, the latest arrival that it waits for, are on the common clock; `complete`
    says whether all ranks of the group have the instance.
    """

    path: Path
    row: Int64
    instance: Int64
    arrival_ns: Int64
    latest_ns: Int64
    duration_ns: Int64
    complete: npt.NDArray[np.bool_]

    def split_durations(self) -> tuple[dict[str, Int64], int]:
        """Columns to be written, −1 where a value is unknown, and the largest overshoot, ns.

        Each row's duration is split into wait and transfer in complete instances; in others a lower bound of
        the wait is known.  The overshoot, latest arrival − a row's own end, is what the clock estimates leave
        unexplained.
        """
        waited = self.latest_ns - self.arrival_ns
        within = np.minimum(waited, self.duration_ns)
        columns = {
            "instance": self.instance,
            "arrival_ns": self.arrival_ns,
            "wait_ns": np.where(self.complete, within, -1),
            "transfer_ns": np.where(self.complete, self.duration_ns - within, -1),
            "least_wait_ns": np.where(self.complete, -1, within),
        }
        return columns, int((waited - self.duration_ns)[self.complete].max(initial=0))


def _write_tasks(
    folder: Path,
    ranks: Sequence[int],
    matches: matching.Matching,
    arrival: Int64,
    dimensions: Mapping[str, str],
) -> list[tuple[list[_Matched], Mapping[str, str]]]:
    """Tasks of up to `_RANKS_A_TASK` ranks' rows, each with the dimensions by group."""
    latest = matching.latest_starts(matches.instance, arrival, len(matches.present))[matches.instance]
    duration = matches.end_ns - matches.start_ns
    if matches.may_leave.any():
        latest_by_end = matching.latest_starts_seen(matches.instance, arrival, arrival + duration)
        latest = np.where(matches.may_leave, latest_by_end, latest)
    complete = (matches.present == matches.expected)[matches.instance]
    bounds = np.searchsorted(matches.rank, np.array([*ranks, np.iinfo(np.int32).max], np.int32)).tolist()
    rank_rows = [
        _Matched(
            path=path_of(folder, rank),
            row=matches.row[begin:end] & (1 << 32) - 1,
            instance=matches.instance[begin:end],
            arrival_ns=arrival[begin:end],
            latest_ns=latest[begin:end],
            duration_ns=duration[begin:end],
            complete=complete[begin:end],
        )
        for rank, (begin, end) in zip(ranks, pairwise(bounds), strict=True)
    ]
    return [(rank_rows[i : i + _RANKS_A_TASK], dimensions) for i in range(0, len(rank_rows), _RANKS_A_TASK)]


def _write_matched(task: tuple[list[_Matched], Mapping[str, str]]) -> int:
    """Write the rows to the ranks' files; returns the largest overshoot, ns."""
    ranks, dimensions = task
    overshoot = 0
    for rank in ranks:
        values_of, beyond = rank.split_durations()
        overshoot = max(overshoot, beyond)
        # A task that dies leaves the original file intact and can be repeated.
        written = rank.path.with_suffix(".matched")
        done = 0
        with (
            opened_table(rank.path, COLLECTIVES) as file,
            closed_at_end(TableFile(written, COLLECTIVES)) as final,
        ):
            for group in range(file.num_row_groups):
                rows = checked_rows(file.read_row_group(group, use_threads=False), COLLECTIVES, rank.path)
                row_range = slice(*np.searchsorted(rank.row, [done, done + len(rows)]))
                unmatched = np.ones(len(rows), np.bool_)
                unmatched[rank.row[row_range] - done] = False
                columns = {}
                for name, values in values_of.items():
                    column = np.full(len(rows), -1)
                    column[~unmatched] = values[row_range]
                    columns[name] = pa.array(column, mask=unmatched if name == "arrival_ns" else column < 0)
                done += len(rows)
                final.write(_with_dimensions(with_columns(rows, COLLECTIVES, columns), dimensions))
        written.replace(rank.path)
    return overshoot


def _with_dimensions(table: pa.Table, dimensions: Mapping[str, str]) -> pa.Table:
    """Fill in `dimension` by group where the group's description does not state it."""
    group = table["group"].combine_chunks()
    of_groups = [dimensions.get(name) for name in group.dictionary.to_pylist()]
    if not any(of_groups):
        return table
    stated = table["dimension"].cast(pa.string())
    filled = pc.coalesce(stated, pa.array(of_groups, pa.string()).take(group.indices))
    words = filled.dictionary_encode().cast(COLLECTIVES.field("dimension").type)
    return with_columns(table, COLLECTIVES, {"dimension": words})


def _clock_corrections(estimated: clocks.Clocks) -> ClockCorrections:
    """Clock corrections for the manifest, ns and ppm, of ranks that share collectives with others."""
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
            for i in np.flatnonzero(estimated.is_estimated).tolist()
        ],
    )
