# SPDX-License-Identifier: Apache-2.0
"""What a rank's works are: by what called for them, with what they take and what they cost at least."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cclbench.analyzers.metric import Coverage
from cclbench.analyzers.view.operator_calls import Float64, WorkKind
from cclbench.ground import intervals
from cclbench.ground.intervals import Index, Int64, Intervals, Mask
from cclbench.ground.schema import CATEGORIES


@dataclass(frozen=True, slots=True, eq=False)
class WorkRows:
    """The device rows of the works, arrays of shape (rows,); a CPU has none."""

    starts: Int64
    ends: Int64
    work: Index
    """Index of the work that each belongs to."""
    name: Index
    names: Sequence[str | None]


NO_ROWS: Final = WorkRows(
    np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int32), []
)
"""Those of a CPU's works."""


@dataclass(frozen=True, slots=True, eq=False)
class Works:
    """What a rank did in its windows, a work a call, or a kernel that no call launched; shape (works,)."""

    kinds: Sequence[WorkKind]
    kind: Index
    phase: Index
    """Index in `PHASES`."""
    module: Index
    """Index in `modules`, whose last one, None, stands for none."""
    modules: Sequence[str | None]
    category: Index
    """Index in `CATEGORIES`, of the row that takes longest."""
    time_ns: Int64
    """|its device rows|; of a CPU's call its time outside of calls that are works of their own."""
    kernels: Index
    computes: Mask
    """Whether a kernel that is not communication is among its rows, or the CPU runs it."""
    recomputed: Mask
    sequence: Int64
    """Autograd's number of the call, or of the one whose gradient it computes; −1 of none."""
    flops: Float64
    """Of the cost model, or as the trace states them; NaN where neither is."""
    bytes: Float64
    stated: Mask
    """Whether the trace states them."""
    rows: WorkRows

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def is_communication(self) -> Mask:
        """Which works are communication."""
        return np.asarray(self.category == CATEGORIES.index("communication"))

    @property
    def is_linked(self) -> Mask:
        """Which works an operator's call launched."""
        return self._of_kinds([kind.linked for kind in self.kinds], np.bool_)

    @property
    def has_cost(self) -> Mask:
        """Which works have FLOPs and bytes, by a model or by the trace."""
        return np.isfinite(self.flops) & np.isfinite(self.bytes)

    @property
    def kind_precisions(self) -> list[str | None]:
        """The precision of each kind's arithmetic."""
        return [kind.cost.precision if kind.cost else None for kind in self.kinds]

    def of_family(self, family: str) -> Mask:
        """Which works have a cost model of that family."""
        return self._of_kinds([kind.model_family == family for kind in self.kinds], np.bool_)

    def of_names(self, names: Collection[str]) -> Mask:
        """Which works are calls of operators of those names."""
        return self._of_kinds([kind.call.name in names for kind in self.kinds], np.bool_)

    def of_precision(self, word: str) -> Mask:
        """Which works' arithmetic is of that precision."""
        return self._of_kinds([one == word for one in self.kind_precisions], np.bool_)

    def roofline_ns(
        self, peaks: Mapping[str, float | None], stated_peak: float | None, memory: float
    ) -> Float64:
        """The least time of each work at those peaks, FLOP/s by precision and B/s; NaN where unknown.

        `stated_peak` is that of works whose FLOPs the trace states.
        """
        moving = self.bytes / memory * 1e9
        # The memory's time is the least there is where the arithmetic's is not known.
        return np.where(np.isnan(moving), np.nan, np.fmax(self.compute_ns(peaks, stated_peak), moving))

    def compute_ns(self, peaks: Mapping[str, float | None], stated_peak: float | None) -> Float64:
        """The time of each work's arithmetic at those peaks; NaN where unknown, 0 where it has none."""
        peak_of_kinds = np.array(
            [peaks.get(word or "") or np.nan for word in self.kind_precisions], np.float64
        )
        peak = peak_of_kinds[self.kind]
        peak[self.stated] = stated_peak or np.nan
        with np.errstate(invalid="ignore"):
            return np.where(self.flops == 0, 0.0, self.flops / peak * 1e9)

    def intervals_of(self, chosen: Mask) -> Intervals:
        """When device rows of the chosen works run."""
        own = chosen[self.rows.work]
        return intervals.union(self.rows.starts[own], self.rows.ends[own])

    def sum_amounts(self, amounts: npt.NDArray[Any], chosen: Mask) -> float:
        """Σ amounts of the chosen works."""
        total: float = amounts[chosen].sum().item()
        return total

    def used_coverage(self, chosen: Mask, used: Mask) -> Coverage:
        """Of the chosen works those that are used, too."""
        return Coverage.of_rows(used[chosen], self.time_ns[chosen])

    def _of_kinds(self, values: list[Any], dtype: Any) -> npt.NDArray[Any]:
        return np.asarray(np.array(values, dtype)[self.kind])
