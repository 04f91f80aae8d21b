# SPDX-License-Identifier: Apache-2.0
"""A whole run as metrics see it: evidence from other files than traces, and its ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from cclbench.analyzers.view.logged_calls import LoggedCalls, logged_calls
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.step_logs import StepLog, logs_of_steps
from cclbench.machine import Machine, machine_of_ranks

if TYPE_CHECKING:
    from cclbench.analyzers.view.allocator import History
    from cclbench.card import Card
    from cclbench.record.run import Run
    from cclbench.replay.step_ratio import StepRatio
    from cclbench.replay.stragglers import StragglerSlowdown


class RunView:
    """The input of metrics of a run."""

    def __init__(
        self,
        tables: Run,
        *,
        ranks: Sequence[int] = (),
        view: Callable[[int], RankView] | None = None,
        card: Card | None = None,
        machine: Machine | None = None,
        settings: Mapping[str, Mapping[str, object]] | None = None,
        replayed: Callable[[str], StepRatio] | None = None,
        slowdown: Callable[[], StragglerSlowdown] | None = None,
    ) -> None:
        self.replayed = replayed
        """Replays the run with a setting such as `scale_up.bandwidth=x2`; None where models are disabled."""
        self.slowdown = slowdown
        """Compares the run with a replay without stragglers; None where models are disabled."""
        self.ranks, self.card = tuple(ranks), card
        self.machine = machine or machine_of_ranks(card, {}, {})
        """The run's machine; by default, that of the card."""
        self.settings = settings or {}
        """Settings by file of evidence, such as the load of a benchmark client."""
        self._view, self._tables = view, tables
        self.table: Callable[[str], pa.Table] = cache(tables.evidence)
        """The rows of a table of `EVIDENCE`, by name."""

    @cached_property
    def snapshots(self) -> list[History]:
        """Allocator histories from memory snapshots, by device."""
        # Few runs have snapshots.
        from cclbench.analyzers.view.snapshots import SNAPSHOT_TABLES, snapshot_histories

        return snapshot_histories(*map(self.table, SNAPSHOT_TABLES))

    @cached_property
    def step_logs(self) -> list[StepLog]:
        """Logs that number the job's steps, in the order of files."""
        return logs_of_steps(self._tables.evidence_files("log_steps"), self.settings)

    @cached_property
    def logged_calls(self) -> LoggedCalls | None:
        """Calls that logs list, counted; None without such logs."""
        return logged_calls(self.table("timings"))

    @cached_property
    def group_ranks(self) -> dict[str, tuple[int, ...]]:
        """Ranks of each process group, by its id."""
        return {row["group"]: tuple(row["ranks"]) for row in self._tables.groups().to_pylist()}

    @cached_property
    def trace_files(self) -> dict[int, list[str]]:
        """Names of the files of each rank's trace."""
        return {entry.rank: [file.name for file in entry.files] for entry in self._tables.record.ranks}

    def rank(self, rank: int) -> RankView:
        """The view of one rank's trace."""
        assert self._view is not None and rank in self.ranks  # noqa: S101, PT018 - `ranks` lists them
        return self._view(rank)
