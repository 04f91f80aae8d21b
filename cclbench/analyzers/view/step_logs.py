# SPDX-License-Identifier: Apache-2.0
"""Steps as the logs of jobs state them: one log of one file, by one of the ranks that write it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import exp, lgamma
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable, Value, no_value
from cclbench.analyzers.view.columns import has_values, has_word, word_codes
from cclbench.ground.intervals import Int64, Mask, begins
from cclbench.ground.outliers import slow_limit

if TYPE_CHECKING:
    from cclbench.analyzers.view.run_view import RunView

NO_LOG: Final = "the run has no log of its job's steps: add the job's output"
_NS_PER_S: Final = 10**9
_LEAST_SLOW: Final = 3
_IN_PHASE: Final = 0.9
"""Least share of slow steps among those of a period."""
_OF_SLOW: Final = 0.25
"""Least share of the slow steps that are those of a period: others may be slow, too."""
_CHANCE: Final = 5e-4
"""Most probability that as many slow steps are so regular by chance."""
_LONGEST_PERIOD: Final = 10_000
_NEIGHBOURS: Final = 25
"""Lines around one that tell its usual time: the time of steps drifts, and changes at restarts."""
_MOST_LINES: Final = 1 << 15
"""Lines, the last ones, in which a period is looked for: a lasting one is in all of them."""

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StepLog:
    """Lines of one rank in one log, in the order of attempts and steps; arrays of shape (lines,).

    A log may have millions of lines: columns are read when they are needed, and few are kept.
    """

    file: str
    reader: str
    """Name of the reader of the log."""
    settings: Mapping[str, object]
    """What the log states once: devices, global_batch, ..."""
    ranks: int
    """Ranks that write the same steps; 1 where lines have no label."""
    restart: Int64
    rows: Callable[..., pa.Table]
    """Reads the columns of `LOG_STEPS` with these names."""

    def numbers(self, column: str) -> Float64:
        """A column; NaN where it is null."""
        return np.asarray(self.rows(column)[column].to_numpy(), np.float64)

    @cached_property
    def steps(self) -> Int64:
        """Numbers of the steps."""
        return np.asarray(self.rows("step")["step"].to_numpy(), np.int64)

    @cached_property
    def seconds(self) -> Float64:
        """Time of a step; NaN where it is unknown."""
        return self.numbers("dur_ns") / _NS_PER_S

    @cached_property
    def first(self) -> Mask:
        """Whether a line is the first of its attempt, whose step includes compilation and warm-up."""
        return begins(self.restart)

    @cached_property
    def steady(self) -> Mask:
        """Lines whose time is known and that are not the first of an attempt."""
        return ~np.isnan(self.seconds) & ~self.first

    @property
    def timed(self) -> Mask:
        """Lines that state when they were written."""
        return has_values(self.rows("end_ns"), "end_ns")

    @cached_property
    def _profiling(self) -> dict[str, Mask]:
        rows = self.rows("profiler")
        return {what: has_word(rows, "profiler", what) for what in ("recorded", "saved")}

    def profiled(self, what: str | None = None) -> Mask:
        """Lines during which a profiler recorded, or saved what it had recorded; or only one of both."""
        recorded, saved = self._profiling.values()
        return recorded | saved if what is None else self._profiling[what]

    def slow_lines(self) -> Mask:
        """Steady lines whose steps are slower than the median by more than their usual spread."""
        seconds, steady = self.seconds, self.steady
        return steady & (np.nan_to_num(seconds) > slow_limit(seconds[steady]))

    def slow_period(self) -> tuple[int, int] | None:
        """`period_of` the steps that are slower than their neighbours, without a profiler and warm-up."""
        lines = np.flatnonzero(self.steady & ~self.profiled())[-_MOST_LINES:]
        if len(lines) < 2:
            return None
        slow = _slower_than_neighbours(self.seconds[lines])
        kept = _after_warm_up(slow, self.restart[lines])
        return period_of(self.steps[lines][kept], slow[kept])


def step_logs(run: RunView) -> list[StepLog]:
    """The logs that number steps, in the order of files; `NotApplicable` without any."""
    if not run.step_logs:
        raise NotApplicable(NO_LOG)
    return run.step_logs


def logs_of_steps(
    files: Iterable[Callable[..., pa.Table]], settings: Mapping[str, Mapping[str, object]]
) -> list[StepLog]:
    """The logs that number steps, in the order of files, from readers of files of `log_steps`."""
    logs = [log for read in files for log in _logs_of_table(read, settings)]
    return sorted(logs, key=lambda log: log.file)


def server_lines(run: RunView) -> pa.Table:
    """The lines of servers, which are about a time and not about a step."""
    table = run.table("log_steps")
    return table.filter(pa.array(~has_values(table, "step")))


def values_by_log(run: RunView, values: Callable[[StepLog], Iterable[Value]]) -> Iterator[Value]:
    """The values of the only log; of several, each with its file as category."""
    logs = step_logs(run)
    if len(logs) == 1:
        yield from (replace(value, source=logs[0].reader) for value in values(logs[0]))
        return
    yield no_value(f"{len(logs)} logs: see their rows")
    for log in logs:
        for value in values(log):
            category = ": ".join(filter(None, (log.file, value.category)))
            yield replace(value, source=log.reader, category=category)


def _logs_of_table(
    read: Callable[..., pa.Table], settings: Mapping[str, Mapping[str, object]]
) -> Iterator[StepLog]:
    """Of each log the rank with most lines, of several the lowest."""
    table = read(columns=("source", "file", "rank", "restart", "step"))
    numbered, (files, names) = has_values(table, "step"), word_codes(table, "file")
    rank = table["rank"].fill_null(-1).to_numpy()
    for number, name in enumerate(names):
        lines = numbered & (files == number)
        if not lines.any():
            continue
        ranks, counts = np.unique(rank[lines], return_counts=True)
        lines &= rank == ranks[np.argmax(counts)]
        yield StepLog(
            file=str(name),
            reader=str(table["source"][int(np.argmax(lines))].as_py()),
            settings=settings.get(str(name), {}),
            ranks=len(ranks),
            restart=table["restart"].to_numpy()[lines].astype(np.int64),
            rows=partial(_read_lines, read, None if lines.all() else pa.array(lines)),
        )


def _read_lines(read: Callable[..., pa.Table], lines: pa.BooleanArray | None, *columns: str) -> pa.Table:
    """Columns of those lines, by default all."""
    table = read(columns=columns)
    return table if lines is None else table.filter(lines)


def _slower_than_neighbours(seconds: Float64) -> Mask:
    """Steps slower than those around them by more than their usual spread.

    Of neighbouring steps the faster one counts: every second step may be slow.
    """
    faster = np.minimum(seconds, np.append(seconds[1:], seconds[-2]))
    around = min(_NEIGHBOURS, len(seconds)) // 2
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(faster, around, "reflect"), 2 * around + 1)
    level = np.median(windows, axis=1)
    return np.asarray(seconds / level > slow_limit(faster / level))


def _after_warm_up(slow: Mask, restart: Int64) -> Mask:
    """Lines from the first of their attempt on that is not slow."""
    begins = np.append(0, np.flatnonzero(np.diff(restart)) + 1)
    kept = np.ones(len(slow), np.bool_)
    for begin, end in zip(begins, np.append(begins[1:], len(slow)), strict=True):
        usual = np.flatnonzero(~slow[begin:end])
        kept[begin : begin + usual[0] if len(usual) else end] = False
    return kept


def period_of(steps: Int64, slow: Mask) -> tuple[int, int] | None:
    """Every how many steps, and after which, nearly all steps are slow; of several periods the shortest.

    It is one of the distances between neighbouring slow steps.  None where none fits, and where slow steps at
    random positions might fit as well.
    """
    # A step that an attempt repeats counts once.
    steps, lines = np.unique(steps, return_inverse=True)
    slow = 2 * np.bincount(lines, slow) > np.bincount(lines)
    numbers = steps[slow]
    if len(numbers) < _LEAST_SLOW:
        return None
    distances = np.diff(numbers)
    for period in np.unique(distances[(distances > 1) & (distances <= _LONGEST_PERIOD)]).tolist():
        phases, counts = np.unique(numbers % period, return_counts=True)
        if counts.max() < max(_LEAST_SLOW, _OF_SLOW * len(numbers)):
            continue
        phase = int(phases[np.argmax(counts)])
        at = steps % period == phase
        hits, among = int((at & slow).sum()), int(at.sum())
        if hits >= _IN_PHASE * among and _chance_of(hits, among, len(numbers), len(steps)) < _CHANCE:
            return int(period), phase
    return None


def _chance_of(hits: int, among: int, slow: int, lines: int) -> float:
    """Bound of the probability that `hits` of `slow` lines at random are at some period and phase.

    For one with `among` lines that is at most C(among, hits) · C(lines − hits, slow − hits) of C(lines, slow)
    choices; at most (lines / among + 1)² / 2 periods and phases have as many lines.
    """
    log_chance = (
        _log_choices(among, hits) + _log_choices(lines - hits, slow - hits) - _log_choices(lines, slow)
    )
    return exp(min(log_chance, 0.0)) * (lines / among + 1) ** 2 / 2


def _log_choices(items: int, chosen: int) -> float:
    return lgamma(items + 1) - lgamma(chosen + 1) - lgamma(items - chosen + 1)
