# SPDX-License-Identifier: Apache-2.0
"""A whole run as a metric sees it: what files beside its traces tell, and its ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from cclbench.analyzers.view import RankView

if TYPE_CHECKING:
    from cclbench.card import Card


class RunTables(Protocol):
    """Where a view gets its evidence from: the store, or a test."""

    def evidence(self, name: str) -> pa.Table:
        """Rows of `counters`, `timings`, `requests` or `serving`; none where no file tells of it."""
        ...


class Replayed(Protocol):
    """A changed step over the step as it is."""

    @property
    def ratio(self) -> float | None:
        """As expected; None where only its bounds are known."""
        ...

    @property
    def low(self) -> float:
        """The lower bound."""
        ...

    @property
    def high(self) -> float:
        """The upper bound."""
        ...

    @property
    def basis(self) -> tuple[str, ...]:
        """What the numbers rest on."""
        ...


class RunView:
    """What metrics of a run, rather than of a rank's trace, are computed from."""

    def __init__(
        self,
        tables: RunTables,
        *,
        ranks: Sequence[int] = (),
        view: Callable[[int], RankView] | None = None,
        card: Card | None = None,
        replayed: Callable[[str], Replayed] | None = None,
    ) -> None:
        self.replayed = replayed
        """The run under a setting such as `scale_up.bandwidth=x2`; None where nothing is to be modelled."""
        self.ranks, self.card = tuple(ranks), card
        self._view = view
        self.table: Callable[[str], pa.Table] = cache(tables.evidence)
        """Rows of a table of `schema.EVIDENCE`, by its name."""

    def rank(self, rank: int) -> RankView:
        """One rank's trace."""
        assert self._view is not None and rank in self.ranks  # noqa: S101, PT018 - `ranks` lists them
        return self._view(rank)
