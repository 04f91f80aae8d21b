# SPDX-License-Identifier: Apache-2.0
"""CUDA graphs traced as a whole: their times are known, their kernels are not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cclbench.analyzers.metric import Coverage
from cclbench.analyzers.view.blurred import MOST_UNKNOWN
from cclbench.analyzers.view.columns import event_table, row_spans
from cclbench.ground import intervals
from cclbench.ground.intervals import Intervals

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView


@dataclass(frozen=True, slots=True)
class UnknownGraphs:
    """Graph launches that begin in a rank's windows."""

    launches: int
    coverage: Coverage
    """Coverage of kernels among kernels and graph launches."""

    @property
    def unknown_ns(self) -> int:
        """Total time of the graphs."""
        return (self.coverage.all_ns or 0) - (self.coverage.ns or 0)

    @property
    def unknown_reason(self) -> str:
        """What is unknown, in words."""
        return (
            f"{self.launches:,} CUDA graph launches traced as a whole: their kernels are not recorded"
            " (nsys: --cuda-graph-trace=node)"
        )

    @property
    def are_most(self) -> bool:
        """Whether too few kernels are known for values based on them."""
        time_share = self.coverage.by_time
        return time_share is None or time_share < 1 - MOST_UNKNOWN


def whole_graphs(rank: RankView) -> UnknownGraphs | None:
    """Graphs of the rank that were traced as a whole; None without any."""
    launches, kernels = (_begun_coverage(rank, kind) for kind in ("graph", "kernel"))
    if not launches.all_rows:
        return None
    return UnknownGraphs(launches.all_rows, launches + kernels)


def _begun_coverage(rank: RankView, kind: str) -> Coverage:
    rows = ns = 0
    for batch, _ in rank.begun((kind,)):
        rows, ns = rows + len(batch), ns + int(batch["dur_ns"].to_numpy().sum())
    is_kernel = kind == "kernel"
    return Coverage(rows * is_kernel, rows, ns * is_kernel, ns)


def graph_times(rank: RankView) -> Intervals:
    """Times of graphs traced as a whole, over the whole trace."""
    return intervals.union(*row_spans(event_table(rank.tables, ("graph",), ("start_ns", "dur_ns"))))
