# SPDX-License-Identifier: Apache-2.0
"""Process groups of a run: as its traces state them, else the one inferred from its collectives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.ground.schema import COLLECTIVES, GROUPS, group_id
from cclbench.ingestion.rank import RankDone
from cclbench.normalize import inferred_groups
from cclbench.record.facts import ProcessGroup
from cclbench.record.files import read_table, with_columns, write_table
from cclbench.record.manifest import InferredGroups

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class JobGroups:
    """A job whose process groups may be inferred: its number of ranks, None if not stated, and the names of
    groups and communicators in each rank's trace."""

    world: int | None
    names: Sequence[frozenset[str]]


class StatedGroups:
    """Process groups that the ranks' traces state, or other files if no rank has a trace."""

    def __init__(self, listed: Iterable[ProcessGroup] = ()) -> None:
        self._ranks: dict[str, tuple[int, ...]] = {}
        self._descriptions: dict[str, set[str]] = {}
        for group in listed:
            if group.ranks:
                ranks = self._ranks.setdefault(group_id(group.ranks), tuple(sorted(set(group.ranks))))
                called = group.description or group.name
                self._descriptions.setdefault(group_id(ranks), set()).update([called] if called else [])

    def add(self, rank: RankDone) -> None:
        """Add the groups of another rank."""
        for group, ranks in rank.groups.items():
            self._ranks.setdefault(group, ranks)
        for group, descriptions in rank.descriptions.items():
            self._descriptions.setdefault(group, set()).update(descriptions)

    def write(self, folder: Path) -> None:
        """Write all groups as rows of `schema.GROUPS`."""
        ids = sorted(self._ranks)
        listed = [(self._ranks[group], sorted(self._descriptions.get(group, ()))) for group in ids]
        _write_groups(folder, listed, "stated")


def _write_groups(folder: Path, groups: Sequence[tuple[Sequence[int], Sequence[str]]], source: str) -> None:
    """Write `groups`, pairs of ranks and descriptions, as rows of `schema.GROUPS`."""
    columns = {
        "group": [group_id(tuple(ranks)) for ranks, _ in groups],
        "ranks": [ranks for ranks, _ in groups],
        "size": [len(ranks) for ranks, _ in groups],
        "descriptions": [descriptions for _, descriptions in groups],
        "source": [source] * len(groups),
    }
    write_table(folder / "groups.parquet", pa.table(columns, schema=GROUPS))


def infer_groups(
    folder: Path, connection: duckdb.DuckDBPyConnection, ranks: Sequence[int], job: JobGroups
) -> InferredGroups | None:
    """Infer the process group of all ranks; None if the group of every row of `calls` is stated.

    An inferred group is written to the table of groups and assigned to all collectives.  If the traces name
    any process group, none is inferred: they would also name the groups of the other collectives if they
    knew them.  Returns the manifest's record.
    """
    missing, named = connection.execute(
        "SELECT count(*) FILTER (process_group IS NULL AND (source IS NULL OR target IS NULL)),"
        " count(process_group) FROM calls"
    ).fetchone() or (0, 0)
    if not missing:
        return None
    stated = read_table(folder / "groups.parquet", GROUPS)["size"].to_numpy()
    if (stated > 1).any() or named:
        reason = f"the traces name process groups, and not those of {missing} collectives"
        inference = inferred_groups.Inference(None, reason)
    else:
        columns = connection.execute(
            'SELECT "rank", coalesce(enum_code(kind)::INTEGER, -1) AS kind, coalesce("size", -1) AS "size",'
            ' start_ns AS starts, end_ns AS ends FROM calls ORDER BY "rank", start_ns, "row"'
        ).fetchnumpy()
        libraries = connection.execute("SELECT DISTINCT library FROM files ORDER BY library").fetchall()
        calls = inferred_groups.JobCalls(
            **columns, libraries=[library for (library,) in libraries], names=job.names
        )
        inference = inferred_groups.infer_group(calls, ranks, job.world)
    group = None
    if inference.rule is not None:
        group = group_id(tuple(ranks))
        _write_groups(folder, [(ranks, [])], "inferred")
        _assign_group(folder, ranks, group)
    return InferredGroups(inference.rule, group, inference.reason)


def path_of(folder: Path, rank: int) -> Path:
    """Path of a rank's collectives in the run at `folder`."""
    return folder / "collectives" / f"rank={rank}.parquet"


def _assign_group(folder: Path, ranks: Sequence[int], group: str) -> None:
    """Assign all ranks' collectives to `group`; of two ranks, each is the other's peer."""
    for rank in ranks:
        table = read_table(path_of(folder, rank), COLLECTIVES)
        columns: dict[str, npt.NDArray[Any] | pa.Array] = {
            "group": pa.array([group] * len(table), COLLECTIVES.field("group").type),
            "group_size": np.full(len(table), len(ranks), np.int32),
        }
        if len(ranks) == 2:
            other = ranks[1 - ranks.index(rank)]
            kind = table["kind"].cast(pa.string()).to_numpy(zero_copy_only=False)
            pair = np.isin(kind, ("send", "recv"))
            for end, own_kind in (("src_rank", "send"), ("dst_rank", "recv")):
                columns[end] = pa.array(np.where(kind == own_kind, rank, other).astype(np.int32), mask=~pair)
        arrays = {name: pa.array(column) for name, column in columns.items()}
        write_table(path_of(folder, rank), with_columns(table, COLLECTIVES, arrays))
