# SPDX-License-Identifier: Apache-2.0
"""Agreements: figures of one run that are computed in two ways, or of which one is a part of another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isclose
from typing import Final

import numpy as np

from cclbench import api
from cclbench.ground.errors import CclbenchError
from cclbench.ground.intervals import Int64
from cclbench.normalize.device_rows import DEVICE_WORK
from cclbench.record.metric_name import MetricName, metric_name, metric_names
from cclbench.record.run import Run
from cclbench.replay.answer import Replay
from cclbench.selfcheck.outcome import Outcome, Status
from cclbench.selfcheck.reading import LISTED, CheckedReading, NotApplicableError
from cclbench.stragglers import find_stragglers

_STEP: Final = metric_name("time.step")
_IDLE: Final = metric_name("time.idle")
_COMPUTE_ONLY: Final = metric_name("time.compute_only")
_OVERLAPPED: Final = metric_name("time.overlapped")
_EXPOSED_COMM: Final = metric_name("time.exposed_comm")
_EXPOSED_COPY: Final = metric_name("time.exposed_copy")
_STRAGGLER_SLOWDOWN: Final = metric_name("balance.straggler_slowdown")

_NS_PER_S: Final = 10**9
_REPLAY_TOLERANCE: Final = 0.01
"""Relative tolerance of the replay of an unchanged run against its mean step."""
_STEP_PARTS: Final = (_COMPUTE_ONLY, _OVERLAPPED, _EXPOSED_COMM, _EXPOSED_COPY, _IDLE)
_IDLE_PARTS: Final = metric_names("time.idle_host", "time.idle_device", "time.idle_unknown")
_DEVICE_PARTS: Final = (_COMPUTE_ONLY, _OVERLAPPED, _EXPOSED_COPY)
_UNBOUNDED_STATS: Final = ("cv", "drift")
"""Statistics that are no shares: a variation may exceed 1, a drift be negative."""

Window = tuple[int | None, int | None]
"""A rank and a step, None for all of them."""
Check = Callable[[CheckedReading], "Iterator[str | None]"]
"""Yields a difference for each comparison, None if there is none."""


def _metric_times_ns(reading: CheckedReading, metric: MetricName) -> dict[Window, float]:
    """A metric's time, in ns, by rank and step; None for all of them."""
    return {
        (row.rank, row.step): row.number * _NS_PER_S
        for row in reading.rows
        if row.metric == metric and row.has_value
        if row.group is row.collective is row.category is row.stat is None
    }


def _window_times_ns(reading: CheckedReading, metric: MetricName) -> dict[Window, int]:
    """A metric's time in each window."""
    times = _metric_times_ns(reading, metric)
    return {window: round(ns) for window, ns in times.items() if None not in window}


def parts_of_steps(reading: CheckedReading) -> Iterator[str | None]:
    """The five parts of a window add up to its length."""
    lengths = _window_times_ns(reading, _STEP)
    parts = [_window_times_ns(reading, metric) for metric in _STEP_PARTS]
    for window, ns in lengths.items():
        if all(window in part for part in parts):
            total = sum(part[window] for part in parts)
            yield None if total == ns else f"rank {window[0]} step {window[1]}: {total} ns of {ns}"


def parts_of_idle_time(reading: CheckedReading) -> Iterator[str | None]:
    """Idle times due to the host, due to the device and of unknown cause add up to the idle time."""
    idle = _metric_times_ns(reading, _IDLE)
    parts = [_metric_times_ns(reading, metric) for metric in _IDLE_PARTS]
    for window, ns in idle.items():
        if any(window in part for part in parts):
            total = sum(part.get(window, 0.0) for part in parts)
            agrees = abs(total - ns) <= len(parts)
            yield None if agrees else f"rank {window[0]} step {window[1]}: {total} ns of {ns}"


def unions_of_rows(reading: CheckedReading) -> Iterator[str | None]:
    """Times of compute, communication and copies equal those from a sweep over the rows."""
    metrics = (_COMPUTE_ONLY, _OVERLAPPED, _EXPOSED_COMM, _EXPOSED_COPY)
    times = {metric: _window_times_ns(reading, metric) for metric in metrics}
    for rank in reading.run.ranks:
        if reading.run.rank(rank).facts.works_on != "device":
            continue
        swept = _swept_parts_ns(reading.run, rank)
        for metric in metrics:
            for (row_rank, step), ns in times[metric].items():
                if row_rank == rank and (metric, step) in swept:
                    swept_ns = swept[metric, step]
                    difference = f"{metric} rank {rank} step {step}: {ns} ns, from the rows {swept_ns}"
                    yield None if swept_ns == ns else difference


def _swept_parts_ns(run: Run, rank: int) -> dict[tuple[str, int | None], int]:
    """Parts of each window of a rank, ns, from a sweep over the begins and ends of its rows."""
    columns = ["kind", "category", "start_ns", "dur_ns"]
    times, classes, changes = list[Int64](), list[Int64](), list[Int64]()
    for batch in run.rank(rank).events(DEVICE_WORK, columns):
        kind, category = (batch[name].cast("string").to_numpy(zero_copy_only=False) for name in columns[:2])
        start, duration = (batch[name].to_numpy() for name in columns[2:])
        row_class = np.where(
            np.isin(kind, ("copy", "memset")), 2, np.where(category == "communication", 1, 0)
        )
        times += [start, start + duration]
        classes += [row_class, row_class]
        changes += [np.ones(len(row_class), np.int64), np.full(len(row_class), -1, np.int64)]
    steps = run.rank(rank).steps()
    if not times or not len(steps):
        return {}
    begins, ends = (steps[name].to_numpy() for name in ("start_ns", "end_ns"))
    edges = np.unique(np.concatenate([*times, begins, ends]))
    running = np.zeros((3, len(edges)), np.int64)
    np.add.at(
        running,
        (np.concatenate(classes), np.searchsorted(edges, np.concatenate(times))),
        np.concatenate(changes),
    )
    computes, communicates, copies = np.cumsum(running, axis=1) > 0
    length = np.diff(edges, append=edges[-1])
    masks = {
        _COMPUTE_ONLY: computes & ~communicates,
        _OVERLAPPED: computes & communicates,
        _EXPOSED_COMM: communicates & ~computes,
        _EXPOSED_COPY: copies & ~computes & ~communicates,
    }
    first, last = np.searchsorted(edges, begins), np.searchsorted(edges, ends)
    sums = {name: np.concatenate([[0], np.cumsum(np.where(mask, length, 0))]) for name, mask in masks.items()}
    return {
        (name, step): int(total[last[i]] - total[first[i]])
        for name, total in sums.items()
        for i, step in enumerate(steps["step"].to_pylist())
    }


def shares(reading: CheckedReading) -> Iterator[str | None]:
    """A share lies between 0 and 1."""
    for row in reading.rows:
        if row.unit == "1" and row.has_value and row.stat not in _UNBOUNDED_STATS:
            yield (
                None
                if -1e-9 <= row.number <= 1 + 1e-9
                else f"{row.metric} {row.stat or ''}: {row.number:.6g}"
            )


def unchanged_replay(reading: CheckedReading) -> Iterator[str | None]:
    """The replay of an unchanged run takes as long as its mean step."""
    step = reading.run_value(_STEP)
    replayed_s = Replay(reading.run).unchanged.step_ns / _NS_PER_S
    agrees = isclose(replayed_s, step, rel_tol=_REPLAY_TOLERANCE)
    yield None if agrees else f"replayed {replayed_s:.6g} s, measured {step:.6g} s"


def gains(reading: CheckedReading) -> Iterator[str | None]:
    """The what-if of a finding's settings lies within its bounds, and no gain exceeds the time they free."""
    step = reading.run_value(_STEP)
    for finding in reading.findings:
        if finding.gain_s is None or finding.stacked_s is None:
            stated_reason = finding.no_gain or finding.lost_s is None
            yield None if stated_reason else f"{finding.name}: neither a gain nor a reason"
            continue
        answer = api.whatif(reading.run, *finding.whatif)
        slack = 1e-6 * step
        unchanged = answer.unchanged.step_ns
        saved = [
            (1 - ns / unchanged) * step
            for ns in (answer.single_outcome.low_ns, answer.single_outcome.high_ns)
        ]
        low, high = finding.gain_s
        stated = f"{finding.name} {low:.4g} to {high:.4g} s"
        within = all(low - slack <= seconds <= high + slack for seconds in saved)
        yield None if within else f"{stated}: the what-if gains {min(saved):.4g} to {max(saved):.4g} s"
        most = _freed_limit_s(reading, finding.whatif, step)
        bounded = 0 <= low <= high <= min(step, most) and finding.stacked_s[1] <= step
        yield None if bounded else f"{stated}: the limit is {min(step, most):.4g} s of a step of {step:.4g} s"


def _freed_limit_s(reading: CheckedReading, settings: Sequence[str], step: float) -> float:
    """Most time that settings can free, s: host settings cannot free the busiest device's compute and copies.

    A gain may be the mean over all steps but the first.
    """
    if not all(text.startswith("host") for text in settings):
        return step
    parts = [reading.run.figures.ranks(part) for part in _DEVICE_PARTS]
    busiest = max((sum(part.get(rank, 0.0) for part in parts) for rank in parts[0]), default=0.0)
    steps = max(len(reading.run.figures.scope.steps), 2)
    return (step - busiest) * steps / (steps - 1) + 0.01 * step


def slowdown(reading: CheckedReading) -> Iterator[str | None]:
    """`find_stragglers` and `balance.straggler_slowdown` agree."""
    (stragglers,) = find_stragglers([reading.run]).runs
    computed = api.metrics(reading.run, metrics=[_STRAGGLER_SLOWDOWN])
    value = computed.figures.value(_STRAGGLER_SLOWDOWN)
    agrees = stragglers.slowdown == value
    yield None if agrees else f"{stragglers.slowdown} by stragglers, {value} by the metric"


CHECKS: Final[tuple[Check, ...]] = (
    *(parts_of_steps, parts_of_idle_time, unions_of_rows, shares, unchanged_replay, gains, slowdown),
)


def check_agreements(reading: CheckedReading) -> Iterator[Outcome]:
    """Run all `CHECKS` on the run's figures."""
    for check in CHECKS:
        name, claim = check.__name__.replace("_", " "), (check.__doc__ or "").strip(".")
        try:
            comparisons = list(check(reading))
        except (CclbenchError, NotApplicableError) as error:
            yield Outcome(check=name, claim=claim, status="not_applicable", reason=str(error))
            continue
        differences = [difference for difference in comparisons if difference is not None]
        status: Status = "broken" if differences else "holds" if comparisons else "not_applicable"
        yield Outcome(
            check=name,
            claim=claim,
            status=status,
            compared=len(comparisons),
            differing=len(differences),
            differences=differences[:LISTED],
            reason=None if comparisons else "the run has no figures to compare",
        )
