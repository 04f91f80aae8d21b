# SPDX-License-Identifier: Apache-2.0
"""What needs all ranks: collectives matched, clocks aligned, waiting told from transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.disk_arithmetic import Values, accumulate, distinct, elementwise
from cclbench.disk_columns import DiskTable, disk_array, pieces, release, taken
from cclbench.engine import SERIAL, Engine, Progress
from cclbench.ingestion.groups import Gathered, Job, infer_groups, numbered, path_of
from cclbench.intervals import Int64, Mask
from cclbench.normalize import clocks, matching
from cclbench.normalize.call_keys import Int32, Rows
from cclbench.normalize.dimensions import by_shape
from cclbench.record.files import TableFile, finished, opened_table, read_table, whole, with_columns
from cclbench.record.manifest import Clock, Clocks, Inference, Matching
from cclbench.schema import COLLECTIVE_KINDS, COLLECTIVES, GROUPS

_RANKS_A_TASK: Final = 32
_GATHERED: Final = (
    *("kind", "library", "group", "group_size", "seq", "src_rank", "dst_rank"),
    *("in_bytes", "out_bytes", "step", "start_ns", "end_ns"),
)
_PARTS: Final = ("wait_ns", "transfer_ns", "least_wait_ns")
_PAIR_KINDS: Final = (COLLECTIVE_KINDS.index("send"), COLLECTIVE_KINDS.index("recv"))


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
) -> tuple[Inference | None, Matching, Clocks]:
    """Match all ranks' collectives in the run at `folder` and write arrival, wait and transfer to them.

    `places` are where the ranks ran; `degrees`, the card's parallelism, name the dimension of groups whose
    description does not; of a `job` the process groups that no trace states are inferred, where that can be
    done.  Returns the manifest's account of them.  For an instance that all ranks
    of its group have: wait = latest arrival − own arrival, transfer = own end − latest arrival, both within
    the own duration, whose sum they are.  Where some of its ranks have no trace, the latest arrival of those
    that have is a lower bound of the wait.
    """
    gathered = _gather(folder, ranks)
    inferred = None if job is None else infer_groups(folder, gathered, ranks, job)
    if inferred is not None and inferred.group is not None:
        gathered = numbered(_gather(folder, ranks))
    rows, ends = gathered.rows, gathered.ends

    def clocks_by(found: matching.Matching) -> clocks.Clocks:
        return _clocks(rows, found, ends, places, ranks)

    found = matching.match(rows, _PAIR_KINDS)
    estimated = clocks_by(found)
    wrong = _contradictions(gathered, found, estimated)
    if len(wrong):
        found = _without(found, wrong)
        estimated = clocks_by(found)
    arrival = _corrected(estimated, rows.rank, gathered.starts)
    split, overshoot = _split(found, arrival, gathered)
    groups = read_table(folder / "groups.parquet", GROUPS)
    dimensions = {
        group: dimension
        for group, members in zip(groups["group"].to_pylist(), groups["ranks"].to_pylist(), strict=True)
        if (dimension := by_shape(members, degrees))
    }
    columns = {"instance": found.instance, "arrival_ns": arrival, **split}
    tasks = _write_tasks(folder, ranks, gathered.lengths, columns, dimensions)

    def written(_: None) -> None:
        release(*columns.values())

    engine.gather(
        _write_matched, tasks, written, progress=progress, what="matching ranks", size_bytes=size_bytes
    )
    complete = found.present == found.expected
    unmatched = found.counts()
    matched = Matching(
        rows=len(rows),
        matched=len(rows) - sum(unmatched.values()),
        instances=len(found.present),
        complete=int(complete.sum()),
        partial=int((~complete).sum()),
        unmatched=unmatched,
        contradicted_instances=len(wrong),
        wait_beyond_duration_ns=overshoot,
    )
    return inferred, matched, _account(estimated)


def _gather(folder: Path, ranks: Sequence[int]) -> Gathered:
    kinds = {kind: code for code, kind in enumerate(COLLECTIVE_KINDS)}
    groups: dict[str, int] = {}
    libraries: set[str] = set()
    lengths = []
    gathered = DiskTable(
        rank=np.int32,
        group=np.int32,
        kind=np.int8,
        size=np.int32,
        seq=np.int64,
        step=np.int32,
        bytes=np.int64,
        source=np.int32,
        target=np.int32,
        starts=np.int64,
        ends=np.int64,
    )
    for rank in ranks:
        table = read_table(path_of(folder, rank), COLLECTIVES, columns=_GATHERED)
        libraries.update(table["library"].cast(pa.string()).unique().to_pylist())
        kind = _coded(table["kind"], dict(kinds)).astype(np.int8)
        sides = (_integers(table["in_bytes"], np.int64), _integers(table["out_bytes"], np.int64))
        own = {
            "rank": np.full(len(table), rank, np.int32),
            "group": _coded(table["group"], groups),
            "kind": kind,
            "size": _integers(table["group_size"], np.int32),
            "seq": _integers(table["seq"], np.int64),
            "step": _integers(table["step"], np.int32),
            "bytes": np.maximum(*sides),
            "source": _peer(table["src_rank"], kind == kinds["send"], rank),
            "target": _peer(table["dst_rank"], kind == kinds["recv"], rank),
            "starts": table["start_ns"].to_numpy(),
            "ends": table["end_ns"].to_numpy(),
        }
        order = np.argsort(own["starts"], kind="stable")
        gathered.append(**{name: values[order] for name, values in own.items()})
        lengths.append(len(table))
    rows = Rows(**{field.name: gathered[field.name] for field in fields(Rows)})
    return Gathered(rows, gathered["starts"], gathered["ends"], lengths, sorted(libraries))


def _coded(column: pa.ChunkedArray, codes: dict[str, int]) -> Any:
    """Codes of a dictionary column in a vocabulary that grows, −1 for null, int32."""
    array = column.combine_chunks()
    own = [codes.setdefault(word, len(codes)) for word in array.dictionary.to_pylist()]
    return np.array([*own, -1], np.int32)[array.indices.fill_null(len(own)).to_numpy(zero_copy_only=False)]


def _integers(column: pa.ChunkedArray, kind: Any) -> Any:
    return column.fill_null(-1).to_numpy().astype(kind)


def _peer(stated: pa.ChunkedArray, own: Mask, rank: int) -> Any:
    """The rank at that end of a transfer: as stated, or the row's own where the row is that end itself."""
    ranks = _integers(stated, np.int32)
    return np.where((ranks < 0) & own, np.int32(rank), ranks)


def _clocks(
    rows: Rows, found: matching.Matching, ends: Int64, places: Places, ranks: Sequence[int]
) -> clocks.Clocks:
    every = np.array(ranks, np.int64)
    clock = np.array([places.clocks.get(rank, rank) for rank in ranks], np.int64)
    rank, instance, ends = _in_instances(found, rows.rank, found.instance, ends)
    clock_of = elementwise(lambda rank: clock[np.searchsorted(every, rank)], rank, dtype=np.int32)
    host = np.array([places.hosts.get(one, -1) for one in distinct(clock_of).tolist()], np.int32)
    return clocks.for_all(clocks.estimate(clock_of, instance, ends, host), every, clock)


def _in_instances(found: matching.Matching, *columns: Values) -> tuple[Values, ...]:
    """Of the columns the rows that are in instances."""
    matched = elementwise(lambda instance: instance >= 0, found.instance, dtype=np.bool_)
    return tuple(taken(column, matched) for column in columns)


def _corrected(estimated: clocks.Clocks, rank: Int32, at: Int64) -> Int64:
    return elementwise(estimated.corrected, rank, at, dtype=np.int64)


def _contradictions(gathered: Gathered, found: matching.Matching, estimated: clocks.Clocks) -> Int64:
    """The instances whose ranks were never inside at once."""
    instance, rank, starts, ends = _in_instances(
        found, found.instance, gathered.rows.rank, gathered.starts, gathered.ends
    )
    tolerance = int(np.ceil(2 * estimated.worst_residual_ns)) + 1
    came, left = (_corrected(estimated, rank, own) for own in (starts, ends))
    return matching.contradictions(instance, came, left, tolerance)


def _without(found: matching.Matching, wrong: Int64) -> matching.Matching:
    """The matching without those instances, which say why."""
    kept = np.ones(len(found.present), np.bool_)
    kept[wrong] = False
    number = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)

    def reason(former: npt.NDArray[np.int8], instance: Int64) -> npt.NDArray[np.int8]:
        lost = (instance >= 0) & (number[instance] < 0)
        return np.where(lost, np.int8(matching.CONTRADICTED), former)

    return matching.Matching(
        # Of none, −1, it is the last number.
        instance=elementwise(lambda instance: number[instance], found.instance, dtype=np.int64),
        reason=elementwise(reason, found.reason, found.instance, dtype=np.int8),
        present=found.present[kept],
        expected=found.expected[kept],
    )


def _split(found: matching.Matching, arrival: Int64, gathered: Gathered) -> tuple[dict[str, Int64], int]:
    """Each row's duration in parts, and the furthest that a latest arrival lies behind a row's own end.

    By column the parts, ns, −1 where not known, shape (rows,): wait and transfer of the rows of complete
    instances, a lower bound of the wait of the others.  The second is what clocks leave unexplained.
    """
    latest = disk_array(len(found.present), np.int64, np.iinfo(np.int64).min)
    accumulate(np.maximum, latest, *_in_instances(found, found.instance, arrival))
    parts = DiskTable(**dict.fromkeys(_PARTS, np.int64))
    overshoot = 0
    for here in pieces(len(arrival)):
        at = np.flatnonzero(found.instance[here] >= 0)
        instance = found.instance[here][at]
        duration = (gathered.ends[here] - gathered.starts[here])[at]
        waited = latest[instance] - arrival[here][at]
        within = np.minimum(waited, duration)
        whole = found.present[instance] == found.expected[instance]
        own = {name: np.full(here.stop - here.start, -1) for name in _PARTS}
        own["wait_ns"][at[whole]] = within[whole]
        own["transfer_ns"][at[whole]] = (duration - within)[whole]
        own["least_wait_ns"][at[~whole]] = within[~whole]
        parts.append(**own)
        overshoot = max(overshoot, int((waited - duration)[whole].max(initial=0)))
        release(latest, found, arrival, gathered)
    return {name: parts[name] for name in _PARTS}, overshoot


@dataclass(frozen=True, slots=True, eq=False)
class _Matched:
    """Columns of ranks' collectives, each rank's in order of their start, to be written to their files."""

    paths: list[Path]
    columns: list[dict[str, Int64]]
    dimensions: Mapping[str, str]


def _write_tasks(
    folder: Path,
    ranks: Sequence[int],
    lengths: Sequence[int],
    columns: Mapping[str, Int64],
    dimensions: Mapping[str, str],
) -> list[_Matched]:
    ends = np.cumsum(lengths)
    own = [
        {name: values[end - length : end] for name, values in columns.items()}
        for end, length in zip(ends.tolist(), lengths, strict=True)
    ]
    paths = [path_of(folder, rank) for rank in ranks]
    return [
        _Matched(paths[i : i + _RANKS_A_TASK], own[i : i + _RANKS_A_TASK], dimensions)
        for i in range(0, len(paths), _RANKS_A_TASK)
    ]


def _write_matched(task: _Matched) -> None:
    for path, found in zip(task.paths, task.columns, strict=True):
        starts = read_table(path, COLLECTIVES, columns=["start_ns"])["start_ns"].to_numpy()
        # The rows were gathered in order of their start; put them back in the file's own order.
        place = np.argsort(np.argsort(starts, kind="stable"))
        # A task that dies leaves the file as it was, to be done again.
        written = path.with_suffix(".matched")
        done = 0
        with opened_table(path, COLLECTIVES) as file, finished(TableFile(written, COLLECTIVES)) as final:
            for group in range(file.num_row_groups):
                rows = whole(file.read_row_group(group, use_threads=False), COLLECTIVES, path)
                here = place[done : done + len(rows)]
                done += len(rows)
                unmatched = found["instance"][here] < 0
                columns = {}
                for name, values in found.items():
                    own = values[here]
                    columns[name] = pa.array(own, mask=unmatched if name == "arrival_ns" else own < 0)
                final.write(_with_dimensions(with_columns(rows, COLLECTIVES, columns), task.dimensions))
        written.replace(path)


def _with_dimensions(table: pa.Table, dimensions: Mapping[str, str]) -> pa.Table:
    """The table with the dimensions of its groups, where their description names none."""
    group = table["group"].combine_chunks()
    of_groups = [dimensions.get(name) for name in group.dictionary.to_pylist()]
    told = table["dimension"].cast(pa.string())
    filled = pc.coalesce(told, pa.array(of_groups, pa.string()).take(group.indices))
    words = filled.dictionary_encode().cast(COLLECTIVES.field("dimension").type)
    return with_columns(table, COLLECTIVES, {"dimension": words})


def _account(estimated: clocks.Clocks) -> Clocks:
    """Clocks for the manifest: ns and parts per million, of ranks that share collectives with others."""
    return Clocks(
        estimated.t0_ns,
        [
            Clock(
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
