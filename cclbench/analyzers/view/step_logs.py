# SPDX-License-Identifier: Apache-2.0
"""Steps as the logs of jobs state them: one log of one file, by one of the ranks that write it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.metric import NotApplicable, Value, no_value
from cclbench.analyzers.view.columns import has_values, has_word, word_codes
from cclbench.analyzers.view.run_view import RunView
from cclbench.ground.intervals import Int64, Mask
from cclbench.ground.outliers import slow_limit

NO_LOG: Final = "the run has no log of its job's steps: add the job's output"
_NS_PER_S: Final = 10**9
_LEAST_SLOW: Final = 3
_IN_PHASE: Final = 0.9
"""Share of the slow steps that a period must hit, and of its hits that must be slow."""
_LONGEST_PERIOD: Final = 10_000

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class StepLog:
    """Lines of one rank in one log, in the order of attempts and steps; arrays of shape (lines,)."""

    file: str
    settings: Mapping[str, object]
    """What the log states once: devices, global_batch, ..."""
    rows: pa.Table
    """Rows of `LOG_STEPS`."""
    restart: Int64
    first: Mask
    """Whether a line is the first of its attempt, whose step includes compilation and other beginnings."""
    ranks: int
    """Ranks that write the same steps; 1 where lines have no label."""

    def numbers(self, column: str) -> Float64:
        """A column; NaN where it is null."""
        return np.asarray(self.rows[column].to_numpy(), np.float64)

    @property
    def reader(self) -> str:
        """Name of the reader of the log."""
        return str(self.rows["source"][0].as_py())

    @property
    def seconds(self) -> Float64:
        """Time of a step; NaN where it is unknown."""
        return self.numbers("dur_ns") / _NS_PER_S

    @property
    def steady(self) -> Mask:
        """Lines whose time is known and that are not the first of an attempt."""
        return has_values(self.rows, "dur_ns") & ~self.first

    @property
    def timed(self) -> Mask:
        """Lines that state when they were written."""
        return has_values(self.rows, "end_ns")

    def profiled(self, *what: str) -> Mask:
        """Lines during which a profiler recorded, or saved what it had recorded."""
        return has_word(self.rows, "profiler", *(what or ("recorded", "saved")))

    def slow_lines(self) -> Mask:
        """Steady lines whose steps are slower than the median by more than their usual spread."""
        seconds, steady = self.seconds, self.steady
        return steady & (np.nan_to_num(seconds) > slow_limit(seconds[steady]))

    def slow_period(self) -> tuple[int, int] | None:
        """`period_of` the slow steps, of those without a profiler."""
        known = self.steady & ~self.profiled()
        return period_of(self.numbers("step").astype(np.int64)[known], self.slow_lines()[known])


def step_logs(run: RunView) -> list[StepLog]:
    """The logs that number steps, in the order of files; `NotApplicable` without any."""
    table = run.table("log_steps")
    table = _filter_rows(table, has_values(table, "step"))
    files, names = word_codes(table, "file")
    logs = [
        _one_log(str(name), run.settings.get(str(name), {}), _filter_rows(table, files == number))
        for number, name in enumerate(names)
        if (files == number).any()
    ]
    if not logs:
        raise NotApplicable(NO_LOG)
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


def _filter_rows(table: pa.Table, mask: Mask) -> pa.Table:
    """The rows in the mask; the table itself if these are all, since a log may have millions."""
    return table if mask.all() else table.filter(pa.array(mask))


def _one_log(file: str, settings: Mapping[str, object], rows: pa.Table) -> StepLog:
    """The rank with most lines, of several the lowest."""
    rank = rows["rank"].fill_null(-1).to_numpy()
    ranks, counts = np.unique(rank, return_counts=True)
    rows = _filter_rows(rows, rank == ranks[np.argmax(counts)])
    restart = rows["restart"].to_numpy().astype(np.int64)
    first = np.concatenate([[True], np.diff(restart) != 0])
    return StepLog(file, settings, rows, restart, first, len(ranks))


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
