# SPDX-License-Identifier: Apache-2.0
"""In which groups of kernels one job is faster than another, from differences beyond their intervals only.

A group's time is the summed duration of its kernels, by the step that launched them, mean over ranks.  Each
ratio has a 95 % interval as that of step times has (`interval`); since several groups are compared at once,
each interval is widened so that, without any difference, all of them together hold 1 in 95 % of comparisons
(Bonferroni: of N groups each has a level of 1 − 0.05 / N).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

from cclbench.comparison.fingerprint import Equality
from cclbench.comparison.interval import LEVEL, Captures, Floats, compare_captures
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.work import is_work_unknown, work_inequalities
from cclbench.ground.units import humanise
from cclbench.record.run import Run

GROUPS: Final = {
    "GEMM": ("gemm",),
    "attention": ("attention",),
    "convolution": ("convolution",),
    "memory-bound kernels": ("elementwise", "normalization", "reduction", "copy", "embedding", "optimizer"),
    "mixture-of-experts kernels": ("moe",),
    "communication (waiting included)": ("communication",),
}
"""Categories of each group; those of kernels without a known bound are in none."""
_LEAST: Final = 0.05
"""Least share of all kernels' time in either job for which a group is compared."""
_SQL: Final = """
    SELECT rank, step, category::VARCHAR AS category, sum(dur_ns)::BIGINT AS ns FROM events
    WHERE side = 'device' AND kind = 'kernel' AND step IN ({steps}) GROUP BY ALL
"""


@dataclass(frozen=True, slots=True)
class GroupDifference:
    """Ratio of a group's times, other / base, with its widened interval."""

    group: str
    ratio: float
    low: float
    high: float


def group_words(
    base: ComparisonSubject, other: ComparisonSubject, work: Equality, repeats: Sequence[Captures] = ()
) -> str:
    """`B loses in GEMM (...) and wins in attention (...).`; empty where the kernels cannot be compared.

    Jobs of equal work win and lose; of unknown work, only times differ; of different work, none are compared.
    """
    if work_inequalities(base, other, work):
        return ""
    compared = _group_captures(base), _group_captures(other)
    differences = group_differences(*compared, repeats)
    if differences is None:
        return ""
    if not differences:
        return "No group of kernels differs beyond its interval."
    equal = work.status == "proved" or not any(map(is_work_unknown, (base, other)))
    more, less = ("loses", "wins") if equal else ("takes longer", "takes less time")
    name = f"{other.letter}{device_words(base, other)}"
    parts = [
        f"{verb} in {_listed([difference for difference in differences if (difference.ratio > 1) == slower])}"
        for verb, slower in ((more, True), (less, False))
        if any((difference.ratio > 1) == slower for difference in differences)
    ]
    return f"{name} {' and '.join(parts)}: {other.letter}'s time over {base.letter}'s, with its interval."


def group_differences(
    base: Mapping[str, Captures], other: Mapping[str, Captures], repeats: Sequence[Captures] = ()
) -> list[GroupDifference] | None:
    """The groups that differ, largest difference first; None if no group of both has an interval."""
    intervals = group_intervals(base, other, repeats)
    differing = [difference for difference in intervals if not difference.low <= 1 <= difference.high]
    return sorted(differing, key=lambda difference: -abs(math.log(difference.ratio))) if intervals else None


def group_intervals(
    base: Mapping[str, Captures], other: Mapping[str, Captures], repeats: Sequence[Captures] = ()
) -> list[GroupDifference]:
    """Ratio and widened interval of each group that takes 5 % of either job and has enough steps."""
    totals = [
        sum(float(np.mean([c.mean() for c in times])) for times in job.values()) for job in (base, other)
    ]
    names = [
        name
        for name in base
        if all(_is_positive(job.get(name, ())) for job in (base, other))
        and max(_mean(job[name]) / total for job, total in zip((base, other), totals, strict=True)) >= _LEAST
    ]
    intervals = {name: compare_captures(base[name], other[name], repeats) for name in names}
    by_group = {
        name: interval
        for name, interval in intervals.items()
        if interval.low is not None and interval.high is not None
    }
    if not by_group:
        return []
    wider = _quantile(1 - (1 - LEVEL) / len(by_group)) / _quantile(LEVEL)
    widened = []
    for name, interval in by_group.items():
        assert interval.high is not None  # noqa: S101 - see above
        half = wider * math.log(interval.high / interval.ratio)
        low, high = (interval.ratio * math.exp(sign * half) for sign in (-1, 1))
        widened.append(GroupDifference(name, interval.ratio, low, high))
    return widened


def _quantile(level: float) -> float:
    """Half width of the central interval of a standard normal distribution."""
    return NormalDist().inv_cdf((1 + level) / 2)


def _mean(captures: Captures) -> float:
    return float(np.mean([steps.mean() for steps in captures]))


def _is_positive(captures: Captures) -> bool:
    """Whether each capture has steps, each with time: a ratio of nothing is none."""
    return bool(captures) and all(len(steps) and bool((steps > 0).all()) for steps in captures)


def _group_captures(subject: ComparisonSubject) -> dict[str, Captures]:
    """Each group's seconds by step, for each capture; empty where kernels have no steps."""
    captures = [
        _group_times(capture.stored, capture.results.scope.steps) if not capture.is_published else {}
        for capture in subject.each_capture
    ]
    return {name: [times[name] for times in captures] for name in GROUPS if all(name in t for t in captures)}


def _group_times(run: Run, steps: Sequence[int]) -> dict[str, Floats]:
    """Seconds of each group of kernels in each of the steps, mean over ranks; shape (steps,)."""
    if not steps or not run.ranks:
        return {}
    rows = run.sql(_SQL.format(steps=", ".join(map(str, steps)))).to_pylist()
    places = {step: place for place, step in enumerate(sorted(steps))}
    groups = {category: name for name, categories in GROUPS.items() for category in categories}
    by_group: dict[str, Floats] = {}
    for row in rows:
        name = groups.get(row["category"])
        if name is not None:
            times = by_group.setdefault(name, np.zeros(len(places)))
            times[places[row["step"]]] += row["ns"] / (1e9 * len(run.ranks))
    return by_group


def device_words(base: ComparisonSubject, other: ComparisonSubject) -> str:
    """` (AMD Instinct MI300X)` where the devices differ."""
    if base.devices == other.devices or not other.devices:
        return ""
    return f" ({', '.join(other.devices)})"


def _listed(differences: Sequence[GroupDifference]) -> str:
    words = [
        f"{difference.group} ({humanise(difference.ratio, 'ratio')},"
        f" {difference.low:.2f} to {difference.high:.2f})"
        for difference in differences
    ]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
