# SPDX-License-Identifier: Apache-2.0
"""Serving benchmarks as points of throughput and latency, and those that no other point beats in both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cclbench.ground.intervals import Mask
from cclbench.ground.text import letters_and_digits
from cclbench.record.metric_name import metric_name
from cclbench.record.rows import Row

_PER_DEVICE: Final = metric_name("serving.output_tokens_per_device")
_IN_ALL: Final = metric_name("serving.output_throughput")
_LOAD: Final = metric_name("serving.load")
_LATENCIES: Final = {
    metric_name(f"serving.{figure}"): figure for figure in ("ttft", "tpot", "itl", "e2e_latency")
}
STATS: Final = ("mean", "p50", "p90", "p99")
LATENCIES: Final = tuple(f"{figure} {stat}" for figure in _LATENCIES.values() for stat in STATS)
"""Latencies by which points are compared, such as `ttft p99`."""
COLUMNS: Final = (
    *("run", "benchmark", "workload", "max_concurrency", "request_rate"),
    *("output_tokens_per_s_per_device", "output_tokens_per_s"),
    *(name.replace(" ", "_") for name in LATENCIES),
    "best_for",
)
_MOST_NAMED: Final = 8
_LIKE_LENGTHS: Final = 0.05
"""Largest relative difference of mean lengths of requests that are compared without a note."""


@dataclass(frozen=True, slots=True)
class ServingPoint:
    """One benchmark: rates of output tokens, latencies in seconds by `LATENCIES`, and its load."""

    run: str
    benchmark: str | None
    workload: str | None
    """What was served, as the file or the card states it."""
    in_all: float | None
    """Output tokens per second."""
    per_device: float | None
    """The same over the number of accelerators; None where that is unknown."""
    latencies: Mapping[str, float]
    load: Mapping[str, float] = field(default_factory=dict)
    """max_concurrency, request_rate, input_tokens, output_tokens, as far as they are stated."""

    @property
    def name(self) -> str:
        """Run and benchmark."""
        return ": ".join(filter(None, (self.run, self.benchmark)))


@dataclass(frozen=True)
class ServingPoints:
    """Points of several runs, and the non-dominated ones by latency."""

    points: tuple[ServingPoint, ...]

    @cached_property
    def is_per_device(self) -> bool:
        """Whether throughput is that of an accelerator; in all if a point's number of them is unknown."""
        return all(point.per_device is not None for point in self.points)

    def throughput(self, point: ServingPoint) -> float | None:
        """The rate by which points are compared, output tokens per second."""
        return point.per_device if self.is_per_device else point.in_all

    @cached_property
    def fronts(self) -> Mapping[str, tuple[int, ...]]:
        """Indices of the points that no other of the same workload dominates, by latency."""
        return {name: front for name in LATENCIES if (front := tuple(self._front(name)))}

    def _front(self, latency: str) -> Iterator[int]:
        groups: dict[str, list[int]] = {}
        for number, point in enumerate(self.points):
            if latency in point.latencies and self.throughput(point) is not None:
                groups.setdefault(letters_and_digits(point.workload or ""), []).append(number)
        front = []
        for numbers in groups.values():
            rates = np.array([self.throughput(self.points[number]) for number in numbers], np.float64)
            times = np.array([self.points[number].latencies[latency] for number in numbers], np.float64)
            front += [numbers[place] for place in np.flatnonzero(non_dominated(rates, times)).tolist()]
        yield from sorted(front)

    @cached_property
    def notes(self) -> list[str]:
        """What limits the comparison of the points."""
        notes = []
        unknown = sum(point.per_device is None for point in self.points)
        if unknown:
            notes.append(
                f"throughput is in all, not per accelerator: {unknown} of {len(self.points)} points do not"
                " state the number of accelerators (a workload card with hardware.count does)"
            )
        workloads = list(dict.fromkeys(point.workload for point in self.points))
        if len(workloads) > 1:
            listed = "; ".join(workload or "unknown" for workload in workloads[:_MOST_NAMED])
            notes.append(f"{len(workloads)} workloads, each with its own best points: {listed}")
        for side in ("input_tokens", "output_tokens"):
            lengths = [point.load[side] for point in self.points if side in point.load]
            if lengths and max(lengths) > (1 + _LIKE_LENGTHS) * min(lengths):
                words = side.replace("_", " ")
                span = f"{min(lengths):,.0f} to {max(lengths):,.0f}"
                notes.append(f"unequal work: a request has {span} {words} in the mean")
        return notes

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row for each point, columns `COLUMNS`."""
        best: dict[int, list[str]] = {}
        for name in self.fronts:
            for number in self.fronts[name]:
                best.setdefault(number, []).append(name)
        return [
            {
                "run": point.run,
                "benchmark": point.benchmark,
                "workload": point.workload,
                "max_concurrency": point.load.get("max_concurrency"),
                "request_rate": point.load.get("request_rate"),
                "output_tokens_per_s_per_device": point.per_device,
                "output_tokens_per_s": point.in_all,
                **{name.replace(" ", "_"): point.latencies.get(name) for name in LATENCIES},
                "best_for": ", ".join(best.get(number, [])) or None,
            }
            for number, point in enumerate(self.points)
        ]


def serving_points(run: str, rows: Sequence[Row], model: str | None = None) -> Iterator[ServingPoint]:
    """The benchmarks of a run by its result rows; `model` is the card's, for those that name none."""
    run_rows = [row for row in rows if row.rank is None and row.step is None]
    by_key = {(row.metric, row.category, row.stat): row for row in run_rows if row.value is not None}
    served = {row.category: row.reason for row in run_rows if row.metric == _LOAD and row.value is not None}
    labels = dict.fromkeys(row.category for row in run_rows if row.metric in (_IN_ALL, _PER_DEVICE))

    def value(metric: Any, label: str | None, stat: str | None = None) -> float | None:
        row = by_key.get((metric, label, stat))
        return None if row is None else row.value

    for label in labels:
        rates = value(_IN_ALL, label), value(_PER_DEVICE, label)
        if rates == (None, None):
            continue
        latencies = {
            f"{figure} {stat}": seconds
            for metric, figure in _LATENCIES.items()
            for stat in STATS
            if (seconds := value(metric, label, None if stat == "mean" else stat)) is not None
        }
        load = {
            stat: number
            for stat in ("max_concurrency", "request_rate", "input_tokens", "output_tokens")
            if (number := value(_LOAD, label, None if stat == "max_concurrency" else stat)) is not None
        }
        yield ServingPoint(run, label, served.get(label) or model, *rates, latencies, load)


def collected_points(runs: Iterable[Iterable[ServingPoint]]) -> ServingPoints:
    """The points of several runs."""
    return ServingPoints(tuple(point for run in runs for point in run))


def non_dominated(rates: npt.NDArray[np.float64], times: npt.NDArray[np.float64]) -> Mask:
    """Mask of the points of which no other has a rate as high and a time as short, one of them better.

    Equal points do not dominate each other.  Arrays of shape (points,).
    """
    if not len(rates):
        return np.zeros(0, np.bool_)
    levels, level = np.unique(rates, return_inverse=True)
    shortest = np.full(len(levels), np.inf)
    np.minimum.at(shortest, level, times)
    of_higher = np.r_[np.minimum.accumulate(shortest[::-1])[::-1][1:], np.inf]
    mask: Mask = (times == shortest[level]) & (times < of_higher[level])
    return mask
