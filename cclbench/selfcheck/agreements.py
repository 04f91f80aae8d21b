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
_REPLAY: Final = 0.01
"""Relative tolerance of the replay of an unchanged run against its mean step."""
_PARTS: Final = (
    _COMPUTE_ONLY,
    _OVERLAPPED,
    _EXPOSED_COMM,
    _EXPOSED_COPY,
    _IDLE,
)
_IDLE_PARTS: Final = metric_names("time.idle_host", "time.idle_device", "time.idle_unknown")
_DEVICE: Final = (_COMPUTE_ONLY, _OVERLAPPED, _EXPOSED_COPY)
_UNSHARED: Final = ("cv",)
"""Statistics of shares that are not shares themselves."""

Place = tuple[int | None, int | None]
"""A rank and a step, None for all of them."""
Check = Callable[[CheckedReading], "Iterator[str | None]"]
"""Yields a difference for each comparison, None if there is none."""


def _metric_times_ns(reading: CheckedReading, metric: MetricName) -> dict[Place, float]:
    """A metric's time, in ns, by rank and step; None for all of them."""
    return {
        (row.rank, row.step): row.number * _NS_PER_S
        for row in reading.rows
        if row.metric == metric and row.has_value
        if row.group is row.collective is row.category is row.stat is None
    }


def _by_window(reading: CheckedReading, metric: MetricName) -> dict[Place, int]:
    """A metric's time in each window."""
    found = _metric_times_ns(reading, metric)
    return {place: round(ns) for place, ns in found.items() if None not in place}


def parts_of_steps(reading: CheckedReading) -> Iterator[str | None]:
    """The five parts of a window are its length."""
    whole = _by_window(reading, _STEP)
    parts = [_by_window(reading, metric) for metric in _PARTS]
    for place, ns in whole.items():
        if all(place in own for own in parts):
            total = sum(own[place] for own in parts)
            yield None if total == ns else f"rank {place[0]} step {place[1]}: {total} ns of {ns}"


def parts_of_idle_time(reading: CheckedReading) -> Iterator[str | None]:
    """What the host, the device and nobody knows causes is the idle time."""
    whole = _metric_times_ns(reading, _IDLE)
    parts = [_metric_times_ns(reading, metric) for metric in _IDLE_PARTS]
    for place, ns in whole.items():
        if any(place in own for own in parts):
            total = sum(own.get(place, 0.0) for own in parts)
            yield (
                None
                if abs(total - ns) <= len(parts)
                else f"rank {place[0]} step {place[1]}: {total} ns of {ns}"
            )


def unions_of_rows(reading: CheckedReading) -> Iterator[str | None]:
    """Times of compute, communication and copies are what a count of the rows at each instant gives."""
    metrics = (_COMPUTE_ONLY, _OVERLAPPED, _EXPOSED_COMM, _EXPOSED_COPY)
    told = {metric: _by_window(reading, metric) for metric in metrics}
    for rank in reading.run.ranks:
        if reading.run.rank(rank).facts.works_on != "device":
            continue
        counted = _swept_parts_ns(reading.run, rank)
        for metric in metrics:
            for (of, step), ns in told[metric].items():
                if of == rank and (metric, step) in counted:
                    own = counted[metric, step]
                    yield None if own == ns else f"{metric} rank {rank} step {step}: {ns} ns, rows give {own}"


def _swept_parts_ns(run: Run, rank: int) -> dict[tuple[str, int | None], int]:
    """Parts of each window of a rank, ns, from a sweep over the begins and ends of its rows."""
    columns = ["kind", "category", "start_ns", "dur_ns"]
    at, what, change = list[Int64](), list[Int64](), list[Int64]()
    for batch in run.rank(rank).events(DEVICE_WORK, columns):
        kind, category = (batch[name].cast("string").to_numpy(zero_copy_only=False) for name in columns[:2])
        start, duration = (batch[name].to_numpy() for name in columns[2:])
        of = np.where(np.isin(kind, ("copy", "memset")), 2, np.where(category == "communication", 1, 0))
        at += [start, start + duration]
        what += [of, of]
        change += [np.ones(len(of), np.int64), np.full(len(of), -1, np.int64)]
    steps = run.rank(rank).steps()
    if not at or not len(steps):
        return {}
    begins, ends = (steps[name].to_numpy() for name in ("start_ns", "end_ns"))
    edges = np.unique(np.concatenate([*at, begins, ends]))
    running = np.zeros((3, len(edges)), np.int64)
    np.add.at(
        running, (np.concatenate(what), np.searchsorted(edges, np.concatenate(at))), np.concatenate(change)
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
        if row.unit == "1" and row.has_value and row.stat not in _UNSHARED:
            yield (
                None
                if -1e-9 <= row.number <= 1 + 1e-9
                else f"{row.metric} {row.stat or ''}: {row.number:.6g}"
            )


def unchanged_replay(reading: CheckedReading) -> Iterator[str | None]:
    """The replay of a run as it is takes as long as its steps."""
    step = reading.run_value(_STEP)
    took_s = Replay(reading.run).unchanged.step_ns / _NS_PER_S
    yield None if isclose(took_s, step, rel_tol=_REPLAY) else f"{took_s:.6g} s, the step {step:.6g} s"


def gains(reading: CheckedReading) -> Iterator[str | None]:
    """The what-if of a finding's settings lies within its bounds, and no gain exceeds what could be freed."""
    step = reading.run_value(_STEP)
    for found in reading.findings:
        if found.gain_s is None or found.stacked_s is None:
            yield None if found.no_gain or found.lost_s is None else f"{found.name}: no gain, and no reason"
            continue
        answer = api.whatif(reading.run, *found.whatif)
        slack = 1e-6 * step
        unchanged = answer.unchanged.step_ns
        saved = [
            (1 - ns / unchanged) * step
            for ns in (answer.single_outcome.low_ns, answer.single_outcome.high_ns)
        ]
        low, high = found.gain_s
        stated = f"{found.name} {low:.4g} to {high:.4g} s"
        within = all(low - slack <= one <= high + slack for one in saved)
        yield None if within else f"{stated}: the what-if gains {min(saved):.4g} to {max(saved):.4g} s"
        most = _most_freed(reading, found.whatif, step)
        bounded = 0 <= low <= high <= min(step, most) and found.stacked_s[1] <= step
        yield None if bounded else f"{stated}: at most {min(step, most):.4g} s of a step of {step:.4g} s"


def _most_freed(reading: CheckedReading, settings: Sequence[str], step: float) -> float:
    """Most time that settings can save, s: host settings cannot save the busiest device's compute and copies.

    A gain may be in all steps but the first.
    """
    if not all(text.startswith("host") for text in settings):
        return step
    parts = [reading.run.figures.ranks(part) for part in _DEVICE]
    busiest = max((sum(part.get(rank, 0.0) for part in parts) for rank in parts[0]), default=0.0)
    steps = max(len(reading.run.figures.scope.steps), 2)
    return (step - busiest) * steps / (steps - 1) + 0.01 * step


def slowdown(reading: CheckedReading) -> Iterator[str | None]:
    """`find_stragglers` and `balance.straggler_slowdown` have one answer."""
    (own,) = find_stragglers([reading.run]).runs
    computed = api.metrics(reading.run, metrics=[_STRAGGLER_SLOWDOWN])
    known = computed.figures.value(_STRAGGLER_SLOWDOWN)
    yield None if own.slowdown == known else f"{own.slowdown} by stragglers, {known} by the metric"


CHECKS: Final[tuple[Check, ...]] = (
    *(parts_of_steps, parts_of_idle_time, unions_of_rows, shares, unchanged_replay, gains, slowdown),
)


def check_agreements(reading: CheckedReading) -> Iterator[Outcome]:
    """Run all `CHECKS` on the run's figures."""
    for check in CHECKS:
        name, claim = check.__name__.replace("_", " "), (check.__doc__ or "").strip(".")
        try:
            found = list(check(reading))
        except (CclbenchError, NotApplicableError) as error:
            yield Outcome(check=name, claim=claim, status="not_applicable", reason=str(error))
            continue
        differences = [one for one in found if one is not None]
        status: Status = "broken" if differences else "holds" if found else "not_applicable"
        yield Outcome(
            check=name,
            claim=claim,
            status=status,
            compared=len(found),
            differing=len(differences),
            differences=differences[:LISTED],
            reason=None if found else "the run has nothing that it is about",
        )
