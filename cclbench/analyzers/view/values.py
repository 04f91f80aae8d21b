# SPDX-License-Identifier: Apache-2.0
"""Common values of metrics: mean per step, share of time, rate per step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.metric import (
    Coverage,
    NotApplicable,
    Unknown,
    Value,
    max_over_ranks,
    mean_over_ranks,
    no_value,
)
from cclbench.analyzers.view.blurred import AmbiguousKernels
from cclbench.analyzers.view.collectives import Label, label_numbers, sum_by_wider_label
from cclbench.analyzers.view.rank_view import RankView
from cclbench.ground.intervals import Int64
from cclbench.ground.schema import OPEN

NS_PER_S = 10**9
LEAST_FOR_P95: Final = 20
"""Least number of values for a 95th percentile."""
OPEN_WINDOW: Final = (
    "incomplete step: no step follows, so it ends with its last device event; not part of any mean"
)
ALL_OPEN: Final = "the only step is incomplete: no step follows, so it ends with its last device event"


def spread_values(values: npt.NDArray[np.float64], *, in_place: bool = False) -> Iterator[Value]:
    """p50, p95 and max of `values`; p95 needs `LEAST_FOR_P95` values.

    `in_place`: the values may be reordered.
    """
    yield Value(value=float(np.percentile(values, 50, overwrite_input=in_place)), stat="p50")
    if len(values) >= LEAST_FOR_P95:
        yield Value(value=float(np.percentile(values, 95, overwrite_input=in_place)), stat="p95")
    else:
        reason = f"a 95th percentile needs {LEAST_FOR_P95} values, there are {len(values)}: see the maximum"
        yield no_value(reason, stat="p95")
    yield Value(value=float(values.max()), stat="max")


def time_distribution(ns: Int64) -> Iterator[Value]:
    """p50, p95 and max of times, s, weighted by their number; nothing without times."""
    for value in spread_values(ns / NS_PER_S, in_place=True) if len(ns) else ():
        yield replace(value, weight=len(ns))


def spread_over_ranks(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Mean over ranks weighted by count, also of percentiles; the maximum over ranks of max."""

    def values_by_rank(*, largest: bool) -> dict[int, list[Value]]:
        return {
            rank: [entry for entry in values if (entry.stat == "max") is largest]
            for rank, values in ranks.items()
        }

    combined = [
        *mean_over_ranks(values_by_rank(largest=False)),
        *max_over_ranks(values_by_rank(largest=True)),
    ]
    yield from combined
    keys = {value.key for value in combined}
    lacking = {
        entry.key: entry
        for values in ranks.values()
        for entry in values
        if entry.stat == "p95" and not entry.has_value
    }
    yield from (value for key, value in lacking.items() if key not in keys)


def parts_over_ranks(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Mean over the ranks that have a value; a part counts as 0 on ranks that lack it."""
    number = sum(
        1 for values in ranks.values() if any(entry.has_value and entry.category is None for entry in values)
    )
    for value in mean_over_ranks(ranks):
        if value.category is not None and value.value is not None:
            have = sum(1 for values in ranks.values() for entry in values if entry.key == value.key)
            value = replace(value, value=value.value * have / number)
        yield value


def per_step(
    rank: RankView,
    amounts: Int64 | Sequence[Fraction],
    *,
    unit: int = NS_PER_S,
    reason: str | None = None,
    left_out: Mapping[str, int] | None = None,
    coverage: Coverage | None = None,
    of_open: Int64 | None = None,
    blurred: AmbiguousKernels | None = None,
) -> Iterator[Value]:
    """Mean over the windows, and a row per step; `amounts` has shape (windows,).

    `unit`: amount per unit of the metric: 1e9 ns per second, or 1. `of_open`: amounts of `rank.open_windows`,
    rows of stat `open` that are in no mean. `blurred`: kernels that make the mean inexact.
    """
    if blurred is not None:
        reason, coverage = "; ".join(filter(None, [reason, blurred.reason])), blurred.coverage
    mean = float(sum(_exact_amounts(amounts)) / (len(amounts) * unit))
    yield Value(value=mean, reason=reason, left_out=left_out or {}, coverage=coverage)
    for step, amount in zip(rank.windows.steps, _exact_amounts(amounts), strict=True):
        if step is not None:
            yield Value(value=float(amount / unit), step=step)
    if of_open is not None:
        for step, amount in zip(rank.open_windows.steps, of_open.tolist(), strict=True):
            yield Value(value=amount / unit, step=step, stat=OPEN, reason=OPEN_WINDOW)


def _exact_amounts(amounts: Int64 | Sequence[Fraction]) -> Sequence[int | Fraction]:
    """Python's numbers: quotients of its integers, and of fractions, are rounded once."""
    return amounts.tolist() if isinstance(amounts, np.ndarray) else amounts


def per_step_and_label(
    rank: RankView,
    collectives: pa.Table,
    amounts: Int64,
    **about: Any,
) -> Iterator[Value]:
    """`per_step` of amounts of collectives, shape (rows,), and means by kind, group and dimension.

    Amounts are in the metric's unit; `about`: fields of the mean over the windows, as in `per_step`.
    """
    by_window = np.zeros(len(rank.windows), np.int64)
    np.add.at(by_window, rank.window_of(collectives["start_ns"].to_numpy()), amounts)
    yield from per_step(rank, by_window, unit=1, **about)
    label, labels = label_numbers(collectives)
    sums = np.zeros(len(labels), np.int64)
    np.add.at(sums, label, amounts)
    yield from by_label(labels, [Fraction(amount, len(by_window)) for amount in sums.tolist()])


def by_label(labels: Sequence[Label], amounts: Sequence[Fraction]) -> Iterator[Value]:
    """A value per kind, per kind and group, and per dimension; `amounts` has shape (labels,)."""
    for key, amount in sum_by_wider_label(labels, amounts).items():
        yield labelled_value(key, float(amount))


def labelled_value(key: Label, value: float, **about: Any) -> Value:
    """A value of a label; `about`: its other fields."""
    return Value(value=value, collective=key.collective, group=key.group, category=key.dimension, **about)


def banded_values(
    band: Sequence[float], *, collective: str | None = None, category: str | None = None, **about: Any
) -> Iterator[Value]:
    """A modelled value with its fields `about`, and its stats low and high; `band`: the three."""
    for stat, amount in zip((None, "low", "high"), band, strict=True):
        more = {} if stat else about
        yield Value(value=amount, stat=stat, collective=collective, category=category, **more)


def share_values(
    rank: RankView, part: Int64, base: Int64, *, noun: str, blurred: AmbiguousKernels | None = None
) -> Iterator[Value]:
    """Σ part / Σ base over the windows, and part / base of each step; both of shape (windows,).

    `NotApplicable` where the base, named by `noun`, is 0. `blurred`: kernels that make the share inexact.
    """
    total = int(base.sum())
    if not total and blurred is not None:
        raise Unknown(f"no {noun} is known in the window: {blurred.reason}", blurred.coverage)
    if not total:
        raise NotApplicable(f"there is no {noun} in the window")
    yield Value(
        value=int(part.sum()) / total,
        weight=total,
        reason=blurred.reason if blurred else None,
        coverage=blurred.coverage if blurred else None,
    )
    for step, step_part, step_base in zip(rank.windows.steps, part.tolist(), base.tolist(), strict=True):
        if step is not None and step_base:
            yield Value(value=step_part / step_base, step=step)


def rate_per_step(rank: RankView, amount: float) -> Iterator[Value]:
    """`amount` per step over the mean W, and over W of each step, per second."""
    w = rank.windows
    if w.policy == "trace":
        raise NotApplicable("a rate per step needs steps: the window is the whole trace")
    if not (w.ends > w.starts).all():
        raise NotApplicable("a step of this rank has no length")
    yield Value(value=amount * len(w) * NS_PER_S / w.total, provenance="derived")
    for step, length in zip(w.steps, (w.ends - w.starts).tolist(), strict=True):
        if step is not None:
            yield Value(value=amount * NS_PER_S / length, step=step, provenance="derived")


def by_step(ranks: Mapping[int, Sequence[Value]], stat: str | None = None) -> dict[int | None, list[float]]:
    """The ranks' values by step; under None those of ranks whose windows have no number."""
    values: dict[int | None, list[float]] = {}
    for rank in sorted(ranks):
        of_stat = [value for value in ranks[rank] if value.stat == stat and value.value is not None]
        for value in [value for value in of_stat if value.step is not None] or of_stat:
            values.setdefault(value.step, []).append(value.value or 0.0)
    return values


def rate_at_slowest_rank(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Rate of each step on its slowest rank; harmonic mean over steps, which is amount / `time.step`."""
    for stat in dict.fromkeys(value.stat for values in ranks.values() for value in values):
        slowest = {step: min(rates) for step, rates in by_step(ranks, stat).items()}
        mean = len(slowest) / sum(1 / rate for rate in slowest.values())
        yield Value(value=mean, stat=stat, provenance="derived")
        for step in sorted(s for s in slowest if s is not None):
            yield Value(value=slowest[step], step=step, stat=stat, provenance="derived")
