# SPDX-License-Identifier: Apache-2.0
"""Match collectives across ranks: find the rows of different ranks that are the same collective.

Rows match by process group, kind and sequence number; without numbers by order within the group (and step),
where sequences of different length are aligned on their longest common subsequence; sends and receives match
by (source, destination, order), or if both state a channel, such as MPI's communicator and tag, by channel
and number.  Rows that cannot be matched are counted by reason; rows that could be
matched in two ways are ambiguous, and none is guessed.

A *lane* is a set of rows in which only rows at the same place of their ranks' orders can be one collective:
the rows of a group and sequence number, of a group without numbers, or of a pair of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.ground.intervals import Int64, Mask, by_code
from cclbench.ground.schema import COLLECTIVE_KINDS
from cclbench.normalize.alignment import align_sequences

if TYPE_CHECKING:
    import duckdb

Int32 = npt.NDArray[np.int32]

NO_PEER: Final = "its peer is unknown"
NO_GROUP: Final = "its process group is unknown"
ONE_RANK: Final = "its process group has one rank"
NO_KIND: Final = "its kind is unknown"
ALONE: Final = "no other rank's trace has it"
AMBIGUOUS: Final = "order within the group is ambiguous"
CONTRADICTED: Final = "the ranks' times contradict it"
_REASONS: Final = (NO_GROUP, ONE_RANK, NO_KIND, NO_PEER, ALONE, AMBIGUOUS)
"""Why a row is in no instance."""
MAY_LEAVE: Final = ("send", "broadcast", "scatter", "gather", "reduce")
"""Kinds of MPI's calls that a rank may leave before others arrive, but for the root of the last two: a send
returns once its message is in a buffer."""
NUMBERED, ORDERED, PAIRED, SPLIT, ALIGNED = range(5)
"""How the rows of a lane are matched."""

ALIGNED_ROWS: Final = 1 << 18
"""Approximate number of rows in memory while their lanes are aligned."""

CALLS: Final = f"""
CREATE TYPE collective_kind AS ENUM {COLLECTIVE_KINDS};
CREATE TABLE calls (
    "row" BIGINT, "rank" INTEGER, process_group INTEGER, "size" INTEGER, kind collective_kind, seq BIGINT,
    step INTEGER, bytes BIGINT, source INTEGER, target INTEGER, channel INTEGER, may_leave BOOLEAN,
    start_ns BIGINT, end_ns BIGINT
)
"""
"""The table of all ranks' collectives that `match` reads, null where a value is unknown.

`row` identifies them, in order of rank; `process_group` is a code, `size` the number of its ranks, `bytes`
the payload's larger side; `source` and `target` are the ranks of a point-to-point transfer, `channel` is a
code of them and of their channel; `may_leave` says whether the rank may leave before the others arrive.
"""

_CANDIDATES: Final = f"""
CREATE VIEW candidates AS
SELECT "row", "rank", "size", kind, coalesce(bytes, -1) AS bytes, coalesce(step, -1) AS step,
    start_ns, end_ns, coalesce(may_leave, false) AS may_leave,
    CASE WHEN pair THEN {PAIRED} WHEN seq IS NULL THEN {ORDERED} ELSE {NUMBERED} END::TINYINT AS way,
    if(pair, coalesce(-1 - channel, source), process_group) AS lane,
    if(pair AND channel IS NULL, target, coalesce(seq, -1)) AS number,
    CASE
        WHEN pair THEN if(source IS NULL OR target IS NULL, '{NO_PEER}', NULL)
        WHEN "size" = 1 THEN '{ONE_RANK}'
        WHEN process_group IS NULL THEN '{NO_GROUP}'
        WHEN kind IS NULL THEN '{NO_KIND}'
    END AS reason
FROM (SELECT *, coalesce(kind IN ('send', 'recv'), false) AS pair FROM calls)
"""  # noqa: S608 - texts of this module
"""Each call's lane, as (way, lane, number), or the reason why it has none."""

_PLACED: Final = """
CREATE TABLE {to} AS
WITH repeated AS (SELECT way, lane, number, "rank" FROM {rows} GROUP BY ALL HAVING count(*) > 1)
SELECT *, 0 AS place FROM {rows} ANTI JOIN repeated USING (way, lane, number, "rank")
UNION ALL
SELECT *, row_number() OVER (PARTITION BY way, lane, number, "rank" ORDER BY start_ns, "row") - 1
FROM {rows} SEMI JOIN repeated USING (way, lane, number, "rank")
"""
"""Place of each row in its rank's order within the lane: a grouped call may run as several kernels.

Most rows are the only one of their rank, and are not sorted.
"""

_PLACES: Final = f"""
CREATE TABLE {{to}}_places AS
SELECT way, lane, number, place, present, expected,
    missing OR if(way = {NUMBERED}, differs, bool_or(differs) OVER (PARTITION BY way, lane, number)) AS uneven
FROM (
    SELECT *, min(present) OVER one_lane < max(present) OVER one_lane AS missing
    FROM (
        SELECT way, lane, number, place, count(*) AS present,
            if(way = {PAIRED}, 2, arg_max("size", "row")) AS expected,
            (way <> {PAIRED} AND min(kind) < max(kind))
                OR (way <> {NUMBERED} AND (min(bytes) < max(bytes) OR (lane >= 0 AND min(step) < max(step))))
                AS differs
        FROM {{to}} GROUP BY way, lane, number, place
    )
    WINDOW one_lane AS (PARTITION BY way, lane, number)
)
"""  # noqa: S608 - texts of this module
"""Number of ranks with a row at each place, and whether the place is uneven.

All places of a lane are uneven if its ranks have different numbers of rows or, at one place, different calls;
in a lane with a sequence number, different calls make only their own place uneven.  A message of a channel
may be received in another step than it is sent in.
"""

_UNEVEN: Final = """
CREATE TABLE {to}_uneven AS
SELECT {to}.* EXCLUDE (place)
FROM {to} JOIN {to}_places USING (way, lane, number, place) WHERE uneven
"""

_CALLS_ALIKE: Final = f"""
CREATE TABLE split_rows AS
WITH ordered AS (FROM first_uneven WHERE way = {ORDERED}),
occurrences AS (SELECT lane, count(DISTINCT "rank") AS ranks FROM ordered GROUP BY lane),
times_of AS (
    SELECT lane, kind, bytes, step, "rank", count(*) AS times FROM ordered WHERE step >= 0 GROUP BY ALL
),
alike AS (
    SELECT lane, kind, bytes, step, row_number() OVER (ORDER BY lane, kind, bytes, step) AS call
    FROM times_of JOIN occurrences USING (lane)
    GROUP BY lane, kind, bytes, step, ranks
    HAVING min(times) = max(times) AND count(*) = ranks
)
SELECT ordered.* REPLACE ({SPLIT}::TINYINT AS way, coalesce(call, -1) AS number)
FROM ordered LEFT JOIN alike USING (lane, kind, bytes, step)
"""  # noqa: S608 - texts of this module
"""Rows of uneven lanes without numbers: one lane per call that all ranks have equally often in a step.

Collectives of several streams may begin in a different order on each rank; equal calls do not.
"""

_ALIGNED: Final = f"""
CREATE TABLE to_align AS
SELECT "row", "rank", lane, number, "size", start_ns, end_ns, may_leave,
    dense_rank() OVER (ORDER BY lane, number) AS ordinal,
    dense_rank() OVER (ORDER BY if(way = {PAIRED}, NULL, kind), bytes, step) AS call
FROM (FROM first_uneven WHERE way = {PAIRED} UNION ALL FROM split_uneven)
ORDER BY lane, number, "rank", start_ns, "row";
CREATE TABLE aligned (
    "row" BIGINT, lane INTEGER, number BIGINT, "size" INTEGER, place BIGINT, ambiguous BOOLEAN
);
"""  # noqa: S608 - texts of this module
"""Rows whose lanes are to be aligned, and the table of the result."""

_LANES: Final = f"""
SELECT min(ordinal), max(ordinal)
FROM (
    SELECT ordinal, sum(count(*)) OVER (ORDER BY ordinal) // {ALIGNED_ROWS} AS part
    FROM to_align GROUP BY ordinal
)
GROUP BY part ORDER BY part
"""  # noqa: S608 - texts of this module
"""First and last lane of each batch to align."""

_ROWS: Final = """
SELECT "row", "rank", call, ordinal, lane, number, coalesce("size", -1) AS "size"
FROM to_align WHERE ordinal BETWEEN ? AND ? ORDER BY ordinal, "rank", start_ns, "row"
"""

_INSTANCES: Final = f"""
CREATE TABLE instances AS
SELECT *, row_number() OVER (ORDER BY way, lane, number, place) - 1 AS instance
FROM (
    SELECT way, lane, number, place, present, expected FROM first_places WHERE NOT uneven
    UNION ALL SELECT way, lane, number, place, present, expected FROM split_places WHERE NOT uneven
    UNION ALL
    SELECT {ALIGNED}, lane, number, place, count(*), if(number < 0, arg_max("size", "row"), 2)
    FROM aligned WHERE place >= 0 GROUP BY lane, number, place
)
WHERE present > 1
"""  # noqa: S608 - texts of this module

_SIZES: Final = """
SELECT present::INTEGER AS present, coalesce(expected, -1) AS expected FROM instances ORDER BY instance
"""

_MATCHED: Final = f"""
SELECT "row", "rank", instance, start_ns, end_ns, may_leave
FROM (
    SELECT "row", "rank", start_ns, end_ns, may_leave, way, lane, number, place FROM first
    UNION ALL SELECT "row", "rank", start_ns, end_ns, may_leave, way, lane, number, place FROM split
    UNION ALL
    SELECT "row", "rank", start_ns, end_ns, may_leave, {ALIGNED}, aligned.lane, aligned.number, place
    FROM aligned JOIN to_align USING ("row")
) JOIN instances USING (way, lane, number, place)
ORDER BY "row"
"""  # noqa: S608 - texts of this module

_UNMATCHED: Final = f"""
SELECT reason, count(*) FROM candidates WHERE reason IS NOT NULL GROUP BY reason
UNION ALL
SELECT '{AMBIGUOUS}', count(*) FROM (
    SELECT "row" FROM first JOIN first_places USING (way, lane, number, place)
    WHERE uneven AND way = {NUMBERED}
    UNION ALL SELECT "row" FROM aligned WHERE ambiguous
)
"""  # noqa: S608 - texts of this module


@dataclass(frozen=True, slots=True, eq=False)
class Matching:
    """Rows that are in instances, and the number of others by reason; `rows` is the number of all.

    `row`, `rank`, `instance`, `start_ns`, `end_ns` and `may_leave`, whether the rank may leave before others
    arrive, have shape (matched rows,), in order of `row`;
    `present` and `expected`, the numbers of ranks in an instance and in its group (−1 if not stated), have
    shape (instances,).
    """

    rows: int
    row: Int64
    rank: Int32
    instance: Int64
    start_ns: Int64
    end_ns: Int64
    may_leave: Mask
    present: Int32
    expected: Int32
    unmatched: dict[str, int]

    def drop_instances(self, wrong: Int64) -> Matching:
        """The matching without the instances `wrong`, whose rows count as contradicted."""
        kept = np.ones(len(self.present), np.bool_)
        kept[wrong] = False
        rows = kept[self.instance]
        number = np.cumsum(kept) - 1
        return Matching(
            self.rows,
            self.row[rows],
            self.rank[rows],
            number[self.instance[rows]],
            self.start_ns[rows],
            self.end_ns[rows],
            self.may_leave[rows],
            self.present[kept],
            self.expected[kept],
            {**self.unmatched, CONTRADICTED: int((~rows).sum())},
        )


def match(connection: duckdb.DuckDBPyConnection) -> Matching:
    """Match the rows of table `calls` (see `CALLS`)."""
    connection.execute(_CANDIDATES)
    _place_rows(connection, "first", "(SELECT * EXCLUDE (reason) FROM candidates WHERE reason IS NULL)")
    connection.execute(_CALLS_ALIKE)
    _place_rows(connection, "split", "split_rows")
    connection.execute(_ALIGNED)
    for lanes in _align_lanes(connection):
        connection.register("lanes", lanes)
        connection.execute("INSERT INTO aligned BY NAME FROM lanes")
    connection.execute(_INSTANCES)
    columns = connection.execute(_MATCHED).fetchnumpy()
    sizes = connection.execute(_SIZES).fetchnumpy()
    counts = dict(connection.execute(_UNMATCHED).fetchall())
    (rows,) = connection.execute("SELECT count(*) FROM calls").fetchone() or (0,)
    counts[ALONE] = rows - len(columns["row"]) - sum(counts.values())
    unmatched = {reason: counts[reason] for reason in _REASONS if counts.get(reason)}
    return Matching(rows, **columns, **sizes, unmatched=unmatched)


def _place_rows(connection: duckdb.DuckDBPyConnection, to: str, rows: str) -> None:
    """Create tables of the rows' places in their lanes, of these places, and of rows at uneven places."""
    for statement in (_PLACED, _PLACES, _UNEVEN):
        connection.execute(statement.format(to=to, rows=rows))


def _align_lanes(connection: duckdb.DuckDBPyConnection) -> Iterator[pa.Table]:
    """Rows of uneven lanes with their places, null for none, in batches of lanes."""
    for first, last in connection.execute(_LANES).fetchall():
        rows = connection.execute(_ROWS, [first, last]).fetchnumpy()
        rank, call, ordinal = (rows.pop(name) for name in ("rank", "call", "ordinal"))
        place, ambiguous = np.empty(len(rank), np.int64), np.empty(len(rank), np.bool_)
        for _, lane in by_code(ordinal, np.unique(ordinal)):
            place[lane], ambiguous[lane] = align_sequences(rank[lane], call[lane])
        yield pa.table({**rows, "place": pa.array(place, mask=place < 0), "ambiguous": ambiguous})


def latest_starts(instance: Int64, starts: Int64, instances: int) -> Int64:
    """The latest of the starts of each instance's rows, ns, shape (instances,)."""
    latest = np.full(instances, np.iinfo(np.int64).min)
    np.maximum.at(latest, instance, starts)
    return latest


def latest_starts_seen(instance: Int64, starts: Int64, ends: Int64) -> Int64:
    """Latest start in the same instance that is not after the row's own end, ns, shape (rows,)."""
    rows = len(instance)
    is_end = np.arange(2 * rows) >= rows
    times = np.concatenate([starts, ends])
    order = np.lexsort((is_end, times, np.concatenate([instance, instance])))
    # A row's own start stands before its end, in the same instance.
    last = np.maximum.accumulate(np.where(is_end[order], 0, np.arange(2 * rows)))
    latest = np.empty(2 * rows, np.int64)
    latest[order] = times[order][last]
    return latest[rows:]


def contradicting_instances(
    instance: Int64, starts: Int64, ends: Int64, tolerance: int, may_leave: Mask | None = None
) -> Int64:
    """Instances whose ranks were never all inside at once: one left before another arrived.

    A collective ends on no rank before its last rank arrives, except on those that `may_leave`; `starts` and
    `ends` are on the common clock, ns, shape (rows,), of the rows of `instance`; differences up to
    `tolerance` are allowed.
    """
    count = int(instance.max(initial=-1)) + 1
    latest = latest_starts(instance, starts, count)
    if may_leave is not None and may_leave.any():
        instance, ends = instance[~may_leave], ends[~may_leave]
    earliest = np.full(count, np.iinfo(np.int64).max - tolerance)
    np.minimum.at(earliest, instance, ends)
    return np.flatnonzero(latest > earliest + tolerance)
