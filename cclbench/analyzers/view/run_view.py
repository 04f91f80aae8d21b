# SPDX-License-Identifier: Apache-2.0
"""A whole run as a metric sees it: what files beside its traces tell, and its ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from cclbench.analyzers.view.allocator import History
from cclbench.analyzers.view.logged_calls import LoggedCalls, logged_calls
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.snapshots import of_snapshots
from cclbench.machine import Machine, machine_of_ranks

if TYPE_CHECKING:
    from cclbench.card import Card
    from cclbench.record.run import Run
    from cclbench.replay.step_ratio import StepRatio
    from cclbench.replay.stragglers import StragglerSlowdown


class RunView:
    """What metrics of a run, rather than of a rank's trace, are computed from."""

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
        """The run under a setting such as `scale_up.bandwidth=x2`; None where nothing is to be modelled."""
        self.slowdown = slowdown
        """The run over a replay without stragglers; None where nothing is to be modelled."""
        self.ranks, self.card = tuple(ranks), card
        self.machine = machine or machine_of_ranks(card, {}, {})
        """The run's machine; by the card alone where nothing else is given."""
        self.settings = settings or {}
        """What files of evidence tell besides rows, by their names: the load that a client asked for."""
        self._view, self._tables = view, tables
        self.table: Callable[[str], pa.Table] = cache(tables.evidence)
        """Rows of a table of `schema.EVIDENCE`, by its name."""

    @cached_property
    def snapshots(self) -> list[History]:
        """What each device's allocator held, by memory snapshots."""
        return of_snapshots(self.table("allocations"), self.table("memory_blocks"))

    @cached_property
    def logged_calls(self) -> LoggedCalls | None:
        """The calls that logs list, counted; None where the run has no such log."""
        return logged_calls(self.table("timings"))

    @cached_property
    def group_ranks(self) -> dict[str, tuple[int, ...]]:
        """The ranks of each process group, by its id."""
        return {row["group"]: tuple(row["ranks"]) for row in self._tables.groups().to_pylist()}

    def rank(self, rank: int) -> RankView:
        """One rank's trace."""
        assert self._view is not None and rank in self.ranks  # noqa: S101, PT018 - `ranks` lists them
        return self._view(rank)
