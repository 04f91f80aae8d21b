# SPDX-License-Identifier: Apache-2.0
"""A job's log against what stands beside it: the traces of some of its steps, and the card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from cclbench.analyzers.counters import windows_of_steps
from cclbench.analyzers.metric import NotApplicable, Value, no_value, run_metric
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.step_logs import NO_LOG, Float64, StepLog, step_logs, values_by_log
from cclbench.ground.intervals import Int64
from cclbench.ground.units import humanise

if TYPE_CHECKING:
    from cclbench.card import Card

_NS_PER_S: Final = 10**9
_FIRST_EPOCH_NS: Final = 10**9 * _NS_PER_S
"""Earlier times are not since 1970, but since some other begin."""
_TIME_ZONES: Final = np.arange(-12 * 4, 14 * 4 + 1) * (900 * _NS_PER_S)
"""Time zones differ from UTC by quarters of an hour."""
_LEAST_TICKS: Final = 2
"""Least ticks of the clock per step for which a step is identified by its time."""
_ONE_JOB: Final = 1.01
"""Logs whose medians differ by less are of one job."""
_DEGREES: Final = {
    "tensor_parallel": "tp",
    "pipeline_parallel": "pp",
    "context_parallel": "cp",
    "expert_parallel": "ep",
    "replicate_parallel": "dp_replicate",
    "shard_parallel": "dp_shard",
}
"""Settings of a log that are fields of a card's `parallelism`."""


@dataclass(frozen=True, slots=True, eq=False)
class TracedSteps:
    """Complete steps of the traces, each of its longest rank; arrays of shape (steps,)."""

    numbers: Int64
    starts: Int64
    ends: Int64

    @property
    def seconds(self) -> Float64:
        """Length of each step."""
        return (self.ends - self.starts) / _NS_PER_S


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """How traced steps belong to a log."""

    log: StepLog
    words: str
    lines: Int64
    """The log's line of each traced step, shape (steps,); −1 where it is unknown."""
    is_stated: bool = True
    """Whether numbers or times say so, not only the folder."""


@run_metric(
    "log.profiler_overhead",
    definition="How much longer a traced step takes than the job's steps without a profiler: the mean over"
    " closed windows of the longest rank, over the log's median of unprofiled steps, − 1. It includes"
    " whatever else made the traced steps slower. Stat longer_than: share of unprofiled logged steps that"
    " are shorter than the traced one, 0.5 for a typical step. Stat logged: the same by the log alone: the"
    " shortest of its steps that a profiler recorded, since the first one may include the profiler's start."
    " The traced step belongs to the log by its number, as the log counts it or from 0, where a profiler's"
    " lines mark that step in the log; else by the clock, if the log's times, shifted by a time zone where it"
    " does not state one, contain those of the traces in one way only; otherwise because trace and log are in"
    " one folder. Traced steps whose line is known have rows of their own.",
    formula="traced step / median(unprofiled steps of the log) − 1",
    unit="1",
    better="lower",
    inputs=("events", "steps", "log_steps"),
    not_applicable=f"{NO_LOG}, or add the traces of some steps",
    version=2,
)
def profiler_overhead(run: RunView) -> Iterator[Value]:
    logs = step_logs(run)
    try:
        traced = _traced_steps(run)
    except NotApplicable as why:
        yield no_value(str(why))
        if len(logs) == 1:
            yield from _logged_values(logs[0], np.flatnonzero(logs[0].profiled("recorded")))
        return
    join = _join_of(logs, traced)
    log, step_s = join.log, float(traced.seconds.mean())
    middle = _unprofiled_median(log)
    reason = f"{humanise(step_s, 's')} traced, {humanise(middle, 's')} in the log; {join.words}"
    yield Value(value=step_s / middle - 1, provenance="derived", reason=reason)
    shorter = float((log.seconds[log.steady & ~log.profiled()] < step_s).mean())
    yield Value(value=shorter, stat="longer_than", provenance="derived")
    lines = join.lines[join.lines >= 0]
    yield from _logged_values(log, lines if len(lines) else np.flatnonzero(log.profiled("recorded")))
    for number, seconds, line in zip(traced.numbers, traced.seconds, join.lines, strict=True):
        if line >= 0:
            yield Value(
                value=float(seconds) / middle - 1,
                step=int(number),
                provenance="derived",
                reason=_words_of_line(log, int(line)),
            )


def _words_of_line(log: StepLog, line: int) -> str:
    step, seconds = int(log.steps[line]), log.seconds[line]
    stated = f", {humanise(seconds, 's')} there" if np.isfinite(seconds) else ""
    period = log.slow_period()
    slow = ""
    if period is not None:
        which = "one" if step % period[0] == period[1] else "none"
        slow = f", {which} of the slow steps, every {period[0]}"
    return f"step {step:,} of the log{stated}{slow}"


def _unprofiled_median(log: StepLog) -> float:
    seconds = log.seconds[log.steady & ~log.profiled()]
    if not len(seconds):
        raise NotApplicable("the log times no step without a profiler")
    return float(np.median(seconds))


def _logged_values(log: StepLog, lines: Int64) -> Iterator[Value]:
    """The overhead of the recorded steps by the log's own times."""
    lines = lines[log.steady[lines]]
    if len(lines):
        shortest = lines[np.argmin(log.seconds[lines])]
        words = f"step {int(log.steps[shortest]):,}: {humanise(log.seconds[shortest], 's')}"
        yield Value(
            value=float(log.seconds[shortest]) / _unprofiled_median(log) - 1,
            stat="logged",
            provenance="derived",
            reason=f"{words}, {humanise(_unprofiled_median(log), 's')} unprofiled",
        )


def _traced_steps(run: RunView) -> TracedSteps:
    longest: dict[int, tuple[int, int]] = {}
    for windows in windows_of_steps(run):
        for step, start, end in zip(
            windows.steps, windows.starts.tolist(), windows.ends.tolist(), strict=True
        ):
            if step is not None and not windows.open:
                longest[step] = max(
                    longest.get(step, (0, 0)), (start, end), key=lambda span: span[1] - span[0]
                )
    if not longest:
        raise NotApplicable("no traced step is complete")
    bounds = np.array(list(longest.values()), np.int64)
    return TracedSteps(np.array(list(longest), np.int64), bounds[:, 0], bounds[:, 1])


def _join_of(logs: Sequence[StepLog], traced: TracedSteps) -> Join:
    """The join with the only log that fits; several that fit are one job's if they agree on its steps."""
    joins = [_join_by_number(log, traced) or _join_by_clock(log, traced) for log in logs]
    stated = [join for join in joins if join is not None]
    if not stated and len(logs) == 1:
        lines = np.full(len(traced.numbers), -1)
        words = "joined by folder: no line of a profiler names the traced steps, and no time fits"
        return Join(logs[0], words, lines, is_stated=False)
    medians = [_unprofiled_median(join.log) for join in stated]
    if not stated or max(medians) > _ONE_JOB * min(medians):
        what = f"{len(stated)} of them fit" if stated else "none fits"
        raise NotApplicable(f"{len(logs)} logs beside the traces: {what} their step numbers or times")
    return (
        stated[0] if len(logs) == 1 else replace(stated[0], words=f"{stated[0].words}: {stated[0].log.file}")
    )


def _join_by_number(log: StepLog, traced: TracedSteps) -> Join | None:
    steps, recorded = log.steps, np.flatnonzero(log.profiled("recorded"))
    for offset, words in ((0, "by step number"), (1, "by step number, which the trace counts from 0")):
        of_line = {int(steps[line]): line for line in recorded.tolist()}
        lines = np.array([of_line.get(number + offset, -1) for number in traced.numbers.tolist()], np.int64)
        if (lines >= 0).any():
            return Join(log, f"joined {words}", lines)
    return None


def _join_by_clock(log: StepLog, traced: TracedSteps) -> Join | None:
    timed_lines = np.flatnonzero(log.timed)
    if len(timed_lines) < 2 or traced.starts.min() < _FIRST_EPOCH_NS:
        return None
    ends = log.rows("end_ns")["end_ns"].fill_null(0).to_numpy()[timed_lines]
    resolution = _NS_PER_S if not (ends % _NS_PER_S).any() else _NS_PER_S // 1000
    begin = int(ends[0]) - int(np.nan_to_num(log.seconds[timed_lines[0]]) * _NS_PER_S)
    shifts = np.array([0]) if log.settings.get("clock") == "utc" else _TIME_ZONES
    fits = shifts[
        (traced.starts.min() + shifts >= begin - resolution)
        & (traced.ends.max() + shifts <= int(ends.max()) + resolution)
    ]
    if len(fits) != 1:
        return None
    shift = int(fits[0])
    lines = np.full(len(traced.numbers), -1)
    if (np.diff(ends) >= 0).all() and np.median(np.diff(ends)) >= _LEAST_TICKS * resolution:
        middles = (traced.starts + traced.ends) // 2 + shift
        lines = timed_lines[np.searchsorted(ends, middles).clip(0, len(timed_lines) - 1)]
    zone = f", the log {shift / 3600 / _NS_PER_S:+g} h from UTC" if shift else ""
    return Join(log, f"joined by clock{zone}", lines)


@run_metric(
    "log.card_agreement",
    definition="Share of the settings stated by both card and log in which they agree: parallel degrees,"
    " number of devices, global batch, sequence length. The reason names those that differ.",
    formula="settings that agree / settings that both state",
    unit="1",
    better="higher",
    inputs=("log_steps", "card: parallelism, hardware.count, workload.batch"),
    not_applicable=f"{NO_LOG}, and a card",
)
def card_agreement(run: RunView) -> Iterator[Value]:
    card = run.card
    if card is None:
        raise NotApplicable("needs a workload card")
    yield from values_by_log(run, lambda log: _agreement(log, card))


def _agreement(log: StepLog, card: Card) -> Iterator[Value]:
    batch = card.workload.batch
    stated = {name: getattr(card.parallelism, degree) for name, degree in _DEGREES.items()}
    stated["data_parallel"] = card.parallelism.dp_replicate * card.parallelism.dp_shard
    stated["devices"] = card.hardware.count
    stated["global_batch"], stated["sequence_length"] = (
        (batch.global_, batch.sequence_length) if batch is not None else (None, None)
    )
    pairs = {
        name: (value, log.settings[name])
        for name, value in stated.items()
        if value is not None and name in log.settings
    }
    if not pairs:
        yield no_value("the log states no setting of the card")
        return
    differing = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    words = [
        f"{name.replace('_', ' ')} {ours} in the card, {logs} in the log"
        for name, (ours, logs) in differing.items()
    ]
    reason = "; ".join(words) or f"{len(pairs)} settings compared"
    yield Value(value=1 - len(differing) / len(pairs), provenance="derived", reason=reason)
