# SPDX-License-Identifier: Apache-2.0
"""A rank's work by operator call, with time and cost."""

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

_ROUNDING: Final = 1 + 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class WorkRows:
    """Device events of work items, arrays of shape (rows,); a CPU has none."""

    starts: Int64
    ends: Int64
    ns: Int64
    """Device time: the length, or the core's time to issue and await a transfer that runs beside it."""
    work: Index
    """Index of the work item of each event."""
    name: Index
    names: Sequence[str | None]


NO_ROWS: Final = WorkRows(
    starts=np.empty(0, np.int64),
    ends=np.empty(0, np.int64),
    ns=np.empty(0, np.int64),
    work=np.empty(0, np.int32),
    name=np.empty(0, np.int32),
    names=[],
)
"""For work of a CPU."""


@dataclass(frozen=True, slots=True, eq=False)
class Works:
    """Work of a rank in its windows; an item is a call, or a kernel without one; arrays of shape (items,)."""

    kinds: Sequence[WorkKind]
    kind: Index
    phase: Index
    """Index in `PHASES`."""
    module: Index
    """Index in `modules`, whose last entry is None."""
    modules: Sequence[str | None]
    program: Index
    """Index in `programs`, whose last entry is None."""
    programs: Sequence[str | None]
    """Names of compiled programs."""
    category: Index
    """Index in `CATEGORIES`, of the longest event."""
    start_ns: Int64
    """Start of its first event; on a CPU of its call."""
    time_ns: Int64
    """Length of the union of its events, or the core's time for transfers beside it; on a CPU self time
    outside calls that are other items."""
    kernels: Index
    computes: Mask
    """Whether it has a compute kernel, or runs on the CPU."""
    recomputed: Mask
    operator: Int64
    """Id of the call, as in the table `operators`; −1 for a kernel without one."""
    sequence: Int64
    """Autograd's sequence number of the call, or of the call whose gradient it computes; −1 for none."""
    flops: Float64
    """From the cost model, or as the trace states; NaN where unknown."""
    bytes: Float64
    written_bytes: Float64
    """Those of `bytes` that are results; NaN where only their sum is known."""
    stated: Mask
    """Whether the trace states FLOPs."""
    rows: WorkRows

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def is_communication(self) -> Mask:
        """Mask of communication."""
        return np.asarray(self.category == CATEGORIES.index("communication"))

    @property
    def is_linked(self) -> Mask:
        """Mask of work launched by an operator call."""
        return self._of_kinds([kind.linked for kind in self.kinds], np.bool_)

    @property
    def has_cost(self) -> Mask:
        """Mask of work with FLOPs and bytes, from a model or the trace."""
        return np.isfinite(self.flops) & np.isfinite(self.bytes)

    @property
    def kind_precisions(self) -> list[str | None]:
        """Arithmetic precision by kind."""
        return [kind.cost.precision if kind.cost else None for kind in self.kinds]

    def of_family(self, family: str) -> Mask:
        """Mask of work with a cost model of the family."""
        return self._of_kinds([kind.model_family == family for kind in self.kinds], np.bool_)

    def of_names(self, names: Collection[str]) -> Mask:
        """Mask of calls of operators with these names."""
        return self._of_kinds([kind.call.name in names for kind in self.kinds], np.bool_)

    def of_precision(self, word: str) -> Mask:
        """Mask of work of the arithmetic precision."""
        return self._of_kinds([own_precision == word for own_precision in self.kind_precisions], np.bool_)

    def roofline_ns(
        self, peaks: Mapping[str, float | None], stated_peak: float | None, memory: float, cache: float = 0.0
    ) -> Float64:
        """Roofline time of each item at the peaks, FLOP/s by precision and B/s; NaN where unknown.

        `stated_peak`: peak for work whose FLOPs the trace states.  `cache`: bytes of a cache that may hold as
        much of what is read when the work begins, and of what is written when it ends.
        """
        written = np.nan_to_num(self.written_bytes)
        kept = np.minimum(self.bytes - written, cache) + np.minimum(written, cache)
        moving = (self.bytes - kept) / memory * 1e9
        # memory time is the lower bound where arithmetic time is unknown
        return np.where(np.isnan(moving), np.nan, np.fmax(self.compute_ns(peaks, stated_peak), moving))

    def compute_ns(self, peaks: Mapping[str, float | None], stated_peak: float | None) -> Float64:
        """Arithmetic time of each item at the peaks; NaN where unknown, 0 without arithmetic."""
        with np.errstate(invalid="ignore"):
            return np.where(self.flops == 0, 0.0, self.flops / self.peaks_of(peaks, stated_peak) * 1e9)

    def peaks_of(self, peaks: Mapping[str, float | None], stated_peak: float | None) -> Float64:
        """Peak that each item's FLOPs are compared with, FLOP/s; NaN where unknown."""
        peak_of_kinds = np.array(
            [peaks.get(word or "") or np.nan for word in self.kind_precisions], np.float64
        )
        peak = peak_of_kinds[self.kind]
        peak[self.stated] = stated_peak or np.nan
        return peak

    def is_faster_than(self, ideal_ns: Float64) -> Mask:
        """Mask of computing work whose calls of equal kind took less than their ideal time, taken together.

        No device is faster than its peaks: a formula, an element type or a peak is wrong, or a cache that the
        ideal time leaves out served the operands.
        """
        has_ideal = self.computes & ~np.isnan(ideal_ns)
        kind, kinds = self.kind[has_ideal], len(self.kinds)
        least = np.bincount(kind, ideal_ns[has_ideal], kinds)
        return has_ideal & (least > np.bincount(kind, self.time_ns[has_ideal], kinds) * _ROUNDING)[self.kind]

    def intervals_of(self, chosen: Mask) -> Intervals:
        """Times of the chosen items' events."""
        event_mask = chosen[self.rows.work]
        return intervals.union(self.rows.starts[event_mask], self.rows.ends[event_mask])

    def sum_amounts(self, amounts: npt.NDArray[Any], chosen: Mask) -> float:
        """Sum of the amounts of the chosen items."""
        total: float = amounts[chosen].sum().item()
        return total

    def used_coverage(self, chosen: Mask, used: Mask) -> Coverage:
        """Coverage of the chosen items by the used ones."""
        return Coverage.from_rows(used[chosen], self.time_ns[chosen])

    def _of_kinds(self, values: list[Any], dtype: Any) -> npt.NDArray[Any]:
        return np.asarray(np.array(values, dtype)[self.kind])
