# SPDX-License-Identifier: Apache-2.0
"""Columns of a log about steps, and from them the rows of `LOG_STEPS`."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.formats.job_log.columns import (
    UNKNOWN,
    Attempts,
    Float64,
    nanoseconds,
    split_attempts,
    whole_numbers,
)
from cclbench.formats.trace import LATEST_NS
from cclbench.ground.evidence_schema import LOG_STEPS
from cclbench.ground.intervals import Int64

Int8 = npt.NDArray[np.int8]
_AMOUNTS: Final = ("tokens_per_s_per_device", "prompt_tokens_per_s", "generated_tokens_per_s")
_FLOATS: Final = ("loss", "flops_per_s", "mfu", *_AMOUNTS)
_STRETCH_S: Final = 30


class StepColumns:
    """Columns of lines about steps, which grow in place."""

    def __init__(self, producer: str, *, is_server: bool = False) -> None:
        self.producer, self.is_server, self.count = producer, is_server, 0
        self._columns: dict[str, array[Any]] = {}
        self.profiled: list[tuple[int, str]] = []
        """Number of lines before a profiler's own line, and which."""

    def append(self, name: str, values: Float64 | Int64) -> None:
        """More lines of a column; `stamp` and `rank` are integers, `UNKNOWN` where there is none."""
        column = self._columns.setdefault(name, array("q" if values.dtype.kind == "i" else "d"))
        column.frombytes(np.ascontiguousarray(values).data.cast("B"))

    def has_column(self, name: str) -> bool:
        """Whether the family's lines may state it."""
        return name in self._columns

    def column(self, name: str) -> Float64:
        """Values of all lines, and no longer kept; NaN if the family lacks the column."""
        return self._pop_column(name) if name in self._columns else np.full(self.count, np.nan)

    def whole_column(self, name: str) -> Int64:
        """Whole values of all lines; `UNKNOWN` where there is none."""
        return whole_numbers(self.column(name))

    def stamps(self) -> Int64:
        """When the lines were written, ns."""
        if self.has_column("stamp"):
            return self._pop_column("stamp")
        milliseconds = self.whole_column("time_ms")
        fits = (milliseconds != UNKNOWN) & (milliseconds < LATEST_NS // 1_000_000)
        return np.where(fits, milliseconds, 0) * 1_000_000 + np.where(fits, 0, UNKNOWN)

    def ranks(self) -> Int64:
        """Labels of the lines; `UNKNOWN` without one."""
        return self._pop_column("rank")

    def _pop_column(self, name: str) -> npt.NDArray[Any]:
        values = self._columns.pop(name)
        return np.frombuffer(values, values.typecode)


def step_table(lines: StepColumns, facts: dict[str, int]) -> tuple[pa.Table, int]:
    """Rows of `LOG_STEPS`, and the number of lines that say a step again."""
    samples = lines.whole_column("samples")
    if (batch := facts.get("global_batch")) is not None:
        samples = np.where(samples == UNKNOWN, batch, samples)
    rank, step = lines.ranks(), lines.whole_column("step")
    if lines.producer == "mlperf throughput":
        consumed = lines.whole_column("consumed_samples")
        step = np.where((consumed == UNKNOWN) | (samples <= 0), UNKNOWN, consumed // np.maximum(samples, 1))
    elapsed = None
    if lines.has_column("total"):
        step, elapsed = _bar_steps(lines, step)
    attempts = _attempts(rank, step)
    order = attempts.order
    columns = {
        "rank": _nullable(rank[order], pa.int32()),
        "restart": pa.array(attempts.restart.astype(np.int32, copy=False)),
        "step": _nullable(step[order], pa.int64()),
        "steps": _nullable(attempts.steps, pa.int64()),
        "profiler": _words(_profiled(lines, order), ("recorded", "saved")),
    }
    del rank, step
    end, samples = lines.stamps()[order], samples[order]
    dur, timed = _durations(lines, attempts, end, samples, elapsed)
    columns["end_ns"], columns["dur_ns"] = _nullable(end, pa.int64()), _nullable(dur, pa.int64())
    columns["timed_by"] = _words(timed, ("stated", "rate", "stamps"))
    del end, dur, timed
    columns["samples"] = _nullable(samples, pa.int64())
    if length := facts.get("sequence_length"):
        columns["tokens"] = _nullable(np.where(samples == UNKNOWN, UNKNOWN, samples * length), pa.int64())
    elif lines.has_column("consumed_tokens"):
        consumed = lines.whole_column("consumed_tokens")[order]
        gain = np.diff(consumed, prepend=UNKNOWN)
        has_gain = ~attempts.first & (consumed != UNKNOWN) & (np.roll(consumed, 1) != UNKNOWN) & (gain > 0)
        tokens = np.where(has_gain, gain // np.maximum(attempts.steps, 1), UNKNOWN)
        columns["tokens"] = _nullable(tokens, pa.int64())
    for name in ("memory_bytes", "running", "waiting"):
        if lines.has_column(name):
            columns[name] = _nullable(whole_numbers(np.rint(lines.column(name)[order])), pa.int64())
    for name in filter(lines.has_column, _FLOATS):
        columns[name] = pa.array(lines.column(name)[order], from_pandas=True)
    unknown = pa.nulls(len(attempts.restart), pa.int64())
    arrays = [
        columns[field.name].cast(field.type)
        if field.name in columns
        else (unknown.view(field.type) if field.type.bit_width == 64 else pa.nulls(len(unknown), field.type))
        for field in LOG_STEPS
    ]
    return pa.table(arrays, LOG_STEPS), attempts.repeated


def _bar_steps(lines: StepColumns, step: Int64) -> tuple[Int64, Float64]:
    """Steps of the progress bar that ran longest, over all epochs, `UNKNOWN` of other bars; all bars' clocks.

    Bars of an evaluation look like those of the training that they interrupt, except for their total.
    """
    total, epoch = lines.whole_column("total"), lines.whole_column("epoch")
    hours, minutes, seconds = (np.nan_to_num(lines.column(part)) for part in ("hours", "minutes", "seconds"))
    totals, bar = np.unique(total, return_inverse=True)
    longest = np.full(len(totals), -1.0)
    elapsed = 3600 * hours + 60 * minutes + seconds
    np.maximum.at(longest, bar, elapsed)
    before = np.where(epoch == UNKNOWN, 0, np.minimum(epoch, 1 << 20) * np.minimum(total, 1 << 32))
    return np.where((bar == np.argmax(longest)) & (step > 0), before + step, UNKNOWN), elapsed


def _attempts(rank: Int64, step: Int64) -> Attempts:
    """Attempts by step numbers; lines without any, as servers write them, are kept as they are."""
    if (step == UNKNOWN).all():
        ones = np.ones_like(step)
        return Attempts(np.arange(len(step)), 0 * ones, UNKNOWN * ones, ones == 0, 0)
    numbered = np.flatnonzero(step != UNKNOWN)
    attempts = split_attempts(rank[numbered], step[numbered])
    order = numbered[attempts.order]
    return Attempts(order, attempts.restart, attempts.steps, attempts.first, len(rank) - len(order))


def _durations(
    lines: StepColumns, attempts: Attempts, end: Int64, samples: Int64, elapsed: Float64 | None
) -> tuple[Int64, Int8]:
    """Time of a step in each line, ns, and where it is from: 0 stated, 1 a rate, 2 stamps, −1 unknown."""
    dur, timed = np.full(len(end), UNKNOWN), np.full(len(end), -1, np.int8)
    for number, values in _step_times(lines, attempts, end, samples, elapsed):
        use = (dur == UNKNOWN) & (values != UNKNOWN)
        dur[use], timed[use] = values[use], number
        if (timed >= 0).all():
            break
    return dur, timed


def _step_times(
    lines: StepColumns, attempts: Attempts, end: Int64, samples: Int64, elapsed: Float64 | None
) -> Iterator[tuple[int, Int64]]:
    """Times of steps by precedence, ns, with the numbers of `_durations`."""
    order = attempts.order
    if elapsed is not None and ((times := _clock_times(elapsed[order], attempts)) != UNKNOWN).any():
        yield 2, times
        return
    for name in filter(lines.has_column, ("step_s", "step_ms")):
        yield 0, nanoseconds(lines.column(name)[order])
    with np.errstate(divide="ignore"):
        if lines.has_column("steps_per_s"):
            yield 1, nanoseconds(1 / lines.column("steps_per_s")[order])
        if lines.has_column("samples_per_s"):
            counts = np.where(samples == UNKNOWN, np.nan, samples)
            yield 1, nanoseconds(counts / lines.column("samples_per_s")[order])
    if not lines.is_server:
        before = np.roll(end, 1)
        has_interval = ~attempts.first & (end != UNKNOWN) & (before != UNKNOWN) & (end > before)
        yield 2, np.where(has_interval, (end - before) // np.maximum(attempts.steps, 1), UNKNOWN)


def _clock_times(elapsed: Float64, attempts: Attempts) -> Int64:
    """Mean step, ns, of the stretch of a progress bar in which a line is; `UNKNOWN` outside.

    A stretch ends with the first line of each half minute: the bar's clock counts seconds, and its rate is
    smoothed over many steps.
    """
    restarted = attempts.first | (np.diff(elapsed, prepend=0.0) < 0)
    ends = np.flatnonzero(restarted | (np.diff(elapsed // _STRETCH_S, prepend=0.0) > 0))
    seconds, steps = np.diff(elapsed[ends]), np.diff(np.cumsum(attempts.steps)[ends])
    means = nanoseconds(np.where(restarted[ends[1:]], 0.0, seconds / np.maximum(steps, 1)))
    stretch = np.searchsorted(ends, np.arange(len(elapsed)))
    return np.concatenate([[UNKNOWN], means, [UNKNOWN]])[stretch]


def _profiled(lines: StepColumns, order: Int64 | slice) -> Int8:
    """Of each line: 0 if a profiler recorded its step, 1 if the profile was written during it, else −1."""
    of_line = np.full(lines.count + 1, -1, np.int8)
    for before, what in lines.profiled:
        if what == "started":
            of_line[before] = 0
        else:
            of_line[max(before - 1, 0)], of_line[before] = 0, 1
    return of_line[order]


def _nullable(values: Int64, kind: pa.DataType) -> pa.Array:
    missing = values == UNKNOWN
    if missing.all():
        return pa.nulls(len(values), kind)
    return (
        pa.array(np.where(missing, 0, values), mask=missing).cast(kind)
        if missing.any()
        else pa.array(values, kind)
    )


def _words(codes: Int8, words: tuple[str, ...]) -> pa.Array:
    indices = pa.array(np.maximum(codes, 0), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(words))
