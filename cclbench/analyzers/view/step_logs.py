# SPDX-License-Identifier: Apache-2.0
"""Steps as the logs of jobs state them: one log of one file, by one of the ranks that write it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable, Value, no_value
from cclbench.analyzers.view.columns import has_values, has_word, word_codes
from cclbench.ground.intervals import Int64, Mask, begins

if TYPE_CHECKING:
    from cclbench.analyzers.view.run_view import RunView

NO_LOG: Final = "the run has no log of its job's steps: add the job's output"
_NS_PER_S: Final = 10**9
_OUTLIER: Final = 5.0
"""Robust standard deviations above the median (1.4826 MAD) from which a step is slow."""
_SLOWER: Final = 1.05
"""A slow step is at least this factor of the median."""
_LEAST_SLOW: Final = 3
_IN_PHASE: Final = 0.9
"""Share of the slow steps that a period must hit, and of its hits that must be slow."""
_LONGEST_PERIOD: Final = 10_000

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
        middle = float(np.median(seconds[steady]))
        spread = 1.4826 * float(np.median(np.abs(seconds[steady] - middle)))
        limit = max(middle + _OUTLIER * spread, _SLOWER * middle)
        return steady & (np.nan_to_num(seconds) > limit)

    def slow_period(self) -> tuple[int, int] | None:
        """`period_of` the slow steps, of those without a profiler."""
        known = self.steady & ~self.profiled()
        return period_of(self.steps[known], self.slow_lines()[known])


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


def of_each_log(run: RunView, values: Callable[[StepLog], Iterable[Value]]) -> Iterator[Value]:
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


def period_of(steps: Int64, slow: Mask) -> tuple[int, int] | None:
    """Every how many steps, and after which, nearly all slow steps are and nearly all are slow.

    The period is one of the distances between neighbouring slow steps; None where none fits.
    """
    numbers = steps[slow]
    if len(numbers) < _LEAST_SLOW:
        return None
    distances = np.diff(np.unique(numbers))
    for period in np.unique(distances[(distances > 1) & (distances <= _LONGEST_PERIOD)]).tolist():
        phases, counts = np.unique(numbers % period, return_counts=True)
        phase = int(phases[np.argmax(counts)])
        at = steps % period == phase
        if (at & slow).sum() >= _IN_PHASE * max(int(slow.sum()), int(at.sum())):
            return int(period), phase
    return None
