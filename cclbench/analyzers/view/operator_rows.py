# SPDX-License-Identifier: Apache-2.0
"""Rows of the operators' table, and what each of their columns means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, Literal

from cclbench.analyzers.view.durations import Durations
from cclbench.analyzers.view.operator_sums import NS_PER_S, DeviceRoof, OperatorSums
from cclbench.analyzers.view.work_keys import BY, DEEPEST, Words
from cclbench.operators.product_sizes import ProductSizes

SEPARATOR: Final = " | "
"""Between the words of a row of several keys."""

COLUMNS: Final[Mapping[str, str]] = {
    "row": "number of the row, for `cclbench reproduce --row`",
    "key": "the operator, module, ... of the row; of several keys all, with ` | ` between them",
    **{key: f"value of the key {key}, of a table by several keys" for key in BY},
    "depth": "level in the tree, 1 at the top",
    "calls": "number of calls, or of launches by kernel",
    "time_s": "device time: of each call the union of its kernels; in a tree with all modules within it",
    "own_s": "in a tree: time of no module within it",
    "share": "time over the device time of all work, also where filters choose less",
    "mean_s": "time per call: mean",
    "p50_s": "time per call: median, interpolated between calls, from all calls of all ranks",
    "p90_s": "time per call: 90th percentile, likewise",
    "max_s": "time per call: longest",
    "flops": "floating-point operations of the calls with a cost model",
    "bytes": "compulsory traffic of these calls: each operand read once, each result written once",
    "flops_per_s": "FLOPs over the time of these calls",
    "bytes_per_s": "bytes over the time of these calls",
    "peak_flops_per_s": "dense peak in the catalog that the FLOPs are compared with",
    "attainable_flops_per_s": "fastest matrix product of that precision measured on the device",
    "roofline_s": "roofline time of the calls that are not faster than it",
    "gap_s": "time of these calls above it",
    "peak_share": "FLOPs over what the peak allows in the time, of the work whose FLOPs are known",
    "wasted_flops": "what the device could have computed in that time at its peak, less what it did",
    "bound": "compute or memory, whichever bounds more of the time; else unknown",
    "mark": "calls are faster than their roofline: cache if the last cache may explain it, else above",
    "marked_time_s": "time of these calls, in no sum of the roofline",
    "marked_roofline_s": "their roofline time",
    "modelled_share": "coverage: share of the row's time that has a cost model",
    "why_not": "why the rest has none",
    "precision": "precision of the arithmetic, where all calls have one",
    "batch": "number of matrix products of a call, where all calls have equal sizes",
    **dict.fromkeys(("m", "n", "k"), "size of these products: (M, K) times (K, N)"),
    "layout": "N or T of each operand: rows or columns contiguous; only with recorded strides",
    "assumes": "assumptions of the cost models besides the recorded arguments",
}
"""Meaning of each column, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRow:
    """The work of one key over all ranks and steps; unknown values are None.

    FLOPs, bytes and rates are of work with a cost model, `modelled_share` of the time; the gap is time above
    the roofline, of work whose least time is known and that is not faster than it.  That is marked.
    """

    words: Words
    """The row's value of each key."""
    calls: int
    time_ns: int
    share: float
    durations: Durations = field(default_factory=Durations, compare=False)
    """Device time of each call."""
    flops: float | None
    bytes: float | None
    flops_per_s: float | None
    bytes_per_s: float | None
    roofline_s: float | None
    gap_s: float | None
    bound: Literal["compute", "memory", "unknown"]
    modelled_share: float
    why_not: str | None
    """Why some works of the key have no cost."""
    operator: str | None
    family: str | None
    precision: str | None
    """The operator of all works, the family of their cost models, the precision of their arithmetic; None if
    there are several."""
    mark: Literal["cache", "above"] | None = None
    """Works are faster than their roofline: by no more than the device's cache may save, or by more, which a
    wrong formula, element type or peak explains."""
    marked_time_s: float = 0.0
    marked_roofline_s: float = 0.0
    """Time and roofline time of these works; in no other sum."""
    own_ns: int | None = None
    depth: int | None = None
    """Of a tree: time of no module within it (None by several keys), and its level from 1."""
    row: int = 0
    """Its number in the whole table, from 1."""
    peak_flops_per_s: float | None = None
    attainable_flops_per_s: float | None = None
    peak_share: float | None = None
    """F / (P·t) of the work with known FLOPs F and peak P that is not marked above; t is its time."""
    wasted_flops: float | None = None
    """Σ (P·t − F) of that work; P is the dense peak that its FLOPs are compared with, of work
    without arithmetic (copies, lookups) the peak with which most FLOPs of the rank are compared."""
    product: ProductSizes | None = None
    """Sizes of the matrix products, where all calls have the same."""
    assumes: str | None = None

    @property
    def key(self) -> str:
        """The values of all keys."""
        return SEPARATOR.join(self.words)

    @property
    def time_s(self) -> float:
        """Σ device time of the works."""
        return self.time_ns / NS_PER_S

    @property
    def own_s(self) -> float | None:
        """Of a tree: time of no module within it."""
        return None if self.own_ns is None else self.own_ns / NS_PER_S

    @property
    def mean_s(self) -> float | None:
        """Mean time per call."""
        return self.time_ns / self.calls / NS_PER_S if self.calls else None

    @property
    def p50_s(self) -> float | None:
        """Median time per call."""
        return _seconds(self.durations.quantile_ns(0.5))

    @property
    def p90_s(self) -> float | None:
        """90th percentile of the time per call."""
        return _seconds(self.durations.quantile_ns(0.9))

    @property
    def max_s(self) -> float | None:
        """The longest call."""
        return _seconds(self.durations.max_ns)

    @property
    def operator_and_shapes(self) -> tuple[str, str]:
        """Operator and shapes of a row whose last key is shape: `aten::mm`, `bf16[16,559], bf16[559,64]`."""
        operator = self.operator or self.words[-1]
        return operator, self.words[-1].removeprefix(operator).removeprefix("(").removesuffix(")")

    @property
    def roofline_share(self) -> float | None:
        """Least time divided by time, of works whose least time is known."""
        if self.roofline_s is None or self.gap_s is None or self.roofline_s + self.gap_s <= 0:
            return None
        return self.roofline_s / (self.roofline_s + self.gap_s)

    @property
    def marked_share(self) -> float | None:
        """Roofline time divided by time of the marked works; None where there are none."""
        return self.marked_roofline_s / self.marked_time_s if self.mark and self.marked_time_s else None

    def values(self, by: tuple[str, ...]) -> dict[str, Any]:
        """The columns of `COLUMNS`; those of the single keys only of a table by several."""
        sizes = self.product._asdict() if self.product else {}
        keys = dict(zip_longest(by, self.words)) if len(by) > 1 else {}
        cells = sizes | keys
        return {
            name: cells.get(name) if name in ProductSizes._fields or name in BY else getattr(self, name)
            for name in COLUMNS
            if name not in BY or name in keys
        }


def operator_row(
    words: Words,
    sums: OperatorSums,
    total_ns: int,
    roof: DeviceRoof | None = None,
    *,
    tree: Literal["path", "keys"] | None = None,
) -> OperatorRow:
    """The row of some work's sums; `total_ns`: device time of all work; `tree`: by paths, or keys."""
    modelled_s = sums.modelled_ns / NS_PER_S
    has_cost = sums.modelled_ns > 0
    least = sums.roofline_ns / NS_PER_S if sums.rooflined_ns else None
    marked_ns = sums.cached_ns + sums.above_ns
    bounded_ns = sums.compute_ns + sums.memory_ns
    precision = _single(sums.precisions)
    return OperatorRow(
        words=words,
        calls=sums.calls,
        time_ns=sums.time_ns,
        share=sums.time_ns / total_ns if total_ns else 0.0,
        durations=sums.durations,
        flops=sums.flops if has_cost else None,
        bytes=sums.bytes if has_cost else None,
        flops_per_s=sums.flops / modelled_s if has_cost else None,
        bytes_per_s=sums.bytes / modelled_s if has_cost else None,
        roofline_s=least,
        gap_s=None if least is None else sums.rooflined_ns / NS_PER_S - least,
        peak_share=sums.done_flops / sums.possible_flops if sums.possible_flops else None,
        wasted_flops=sums.possible_flops - sums.done_flops if sums.possible_flops else None,
        bound="unknown" if not bounded_ns else "compute" if sums.compute_ns > sums.memory_ns else "memory",
        mark="above" if sums.above_ns else "cache" if sums.cached_ns else None,
        marked_time_s=marked_ns / NS_PER_S,
        marked_roofline_s=sums.beaten_ns / NS_PER_S,
        modelled_share=sums.modelled_ns / sums.time_ns if sums.time_ns else 0.0,
        why_not=sums.why_not,
        operator=_single(sums.operators),
        family=_single(sums.families),
        precision=precision,
        own_ns=sums.own_ns if tree == "path" else None,
        depth=len(words) if tree == "keys" else min(1 + words[0].count("/"), DEEPEST) if tree else None,
        peak_flops_per_s=roof.peaks.get(precision or "") if roof else None,
        attainable_flops_per_s=roof.attainable.get(precision or "") if roof else None,
        product=_single(sums.products),
        assumes="; ".join(sorted(sums.assumptions)) or None,
    )


def _single(values: frozenset[Any]) -> Any:
    """The only value; None if there are several."""
    return next(iter(values)) if len(values) == 1 else None


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / NS_PER_S
