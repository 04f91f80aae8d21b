# SPDX-License-Identifier: Apache-2.0
"""Windows: which stretch of a rank's time is step N (definition: metrics, ground rules).

A device event belongs to the step whose host annotation holds its launch; the device window of step i
runs from its first device event to the first device event of step i+1, the last one to the end of its
last device event.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cclbench.errors import UsageError
from cclbench.intervals import Int64
from cclbench.readers import DeviceStep
from cclbench.schema import STEPS

FAMILIES = (
    r"ProfilerStep#(\d+)",
    r"execute_(?:model|context_|\d+_context_).*",
    r"(?:step\[.*|run_batch.*)",
    r"(?i:(?:train(?:ing)?[ _])?(?:step|iteration|iter)[ _#:=]*(\d+)?)",
)
"""Step annotations of PyTorch, vLLM, SGLang, and NVTX ranges as Megatron-LM and torchtitan write them."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """A host range with a name, int64 ns."""

    name: str
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """Step annotations in time order: number, begin and end of each, shape (steps,)."""

    numbers: Int64
    starts: Int64
    ends: Int64

    def holding(self, at: Int64) -> Int64:
        """Index of the step that holds each instant, −1 for none, shape of `at`."""
        index = np.searchsorted(self.starts, at, side="right") - 1
        if not len(self.ends):
            return np.full(len(at), -1, np.int64)
        return np.where((index >= 0) & (at < self.ends[index]), index, -1)


NO_MARKS = Marks(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


def of_device(told: Sequence[DeviceStep]) -> Marks:
    """Steps that the device's own rows mark: numbered ones, else the runs of the module that takes longest.

    A step reaches to the begin of the next one, the last to its own end: what the device does in between
    belongs to it.
    """
    numbered = [s for s in told if s.number is not None]
    if numbered:
        chosen = numbered
    else:
        taken: Counter[str] = Counter()
        for run in told:
            taken[run.name] += run.end_ns - run.start_ns
        dominant = max(sorted(taken), key=taken.__getitem__, default=None)
        chosen = [run for run in told if run.name == dominant]
    chosen = sorted((s for s in chosen if s.end_ns > s.start_ns), key=lambda s: s.start_ns)
    if not chosen:
        return NO_MARKS
    starts = np.array([s.start_ns for s in chosen], np.int64)
    numbers = [s.number for s in chosen]
    if None in numbers or len(set(numbers)) < len(numbers):
        numbers = list(range(len(chosen)))
    ends = np.append(starts[1:], max(s.end_ns for s in chosen))
    return Marks(np.array(numbers, np.int64), starts, ends)


def families(pattern: str | None) -> tuple[re.Pattern[str], ...]:
    """The step patterns to try, in order; only the user's own where there is one."""
    try:
        return tuple(re.compile(p) for p in ([pattern] if pattern else FAMILIES))
    except re.error as error:
        raise UsageError(f"--step-annotation {pattern!r} is no regular expression: {error}") from None


def marks(
    annotations: Sequence[Annotation], patterns: Sequence[re.Pattern[str]]
) -> tuple[Marks, Counter[str]]:
    """The steps annotated, by the first family of names that occurs, and what was left out and why.

    A number in the name is the step's number; without one, or where numbers repeat, steps are counted
    from 0.  Ranges of one number that overlap are one step; a step inside another is left out.
    """
    for pattern in patterns:
        found = [(a, m) for a in annotations if (m := pattern.fullmatch(a.name))]
        if found:
            break
    else:
        return NO_MARKS, Counter()
    found.sort(key=lambda pair: (pair[0].start_ns, -pair[0].end_ns))
    left_out: Counter[str] = Counter()
    steps: list[list[int | None]] = []
    for annotation, match in found:
        text = next((g for g in match.groups() if g), None)
        number = int(text) if text and text.isdecimal() and len(text) < 10 else None
        if annotation.end_ns <= annotation.start_ns:
            left_out["its annotation has no duration"] += 1
        elif steps and annotation.start_ns < (steps[-1][2] or 0):
            if number != steps[-1][0] or number is None:
                left_out["its annotation lies inside another step's"] += 1
            else:
                steps[-1][2] = max(steps[-1][2] or 0, annotation.end_ns)
        else:
            steps.append([number, annotation.start_ns, annotation.end_ns])
    numbers = [s[0] for s in steps]
    if None in numbers or len(set(numbers)) < len(numbers):
        numbers = list(range(len(steps)))
    return (
        Marks(
            np.array(numbers, np.int64),
            np.array([s[1] for s in steps], np.int64),
            np.array([s[2] for s in steps], np.int64),
        ),
        left_out,
    )


def device_windows(
    found: Marks, step: Int64, starts: Int64, ends: Int64, horizon: int | None
) -> tuple[list[tuple[int, int, int]], Counter[str]]:
    """Device windows (number, begin, end), and steps left out by reason.

    `step` is the index into `found` of each device event, −1 for none; `starts`, `ends` its times.
    Windows that reach past `horizon`, where a damaged file ends, are left out.
    """
    left_out: Counter[str] = Counter()
    inside = step >= 0
    by_step = np.argsort(step[inside], kind="stable")
    present, at = np.unique(step[inside][by_step], return_index=True)
    first = np.minimum.reduceat(starts[inside][by_step], at) if len(at) else at
    last = np.maximum.reduceat(ends[inside][by_step], at) if len(at) else at
    left_out["no device event was launched in it"] = len(found.numbers) - len(present)
    windows = []
    for i, index in enumerate(present.tolist()):
        final = i + 1 == len(present)
        begin, end = int(first[i]), int(last[i] if final else first[i + 1])
        if end <= begin:
            left_out["its device work begins after the next step's"] += 1
        elif horizon is not None and (final or end > horizon):
            left_out["the file is cut before its end"] += 1
        else:
            windows.append((int(found.numbers[index]), begin, end))
    return windows, +left_out


def annotation_windows(found: Marks, horizon: int | None) -> tuple[list[tuple[int, int, int]], Counter[str]]:
    """The annotations' own windows, less those that reach past the horizon."""
    windows = [
        (int(n), int(s), int(e))
        for n, s, e in zip(found.numbers, found.starts, found.ends, strict=True)
        if horizon is None or e <= horizon
    ]
    return windows, +Counter({"the file is cut before its end": len(found.numbers) - len(windows)})


def table(rank: int, windows: Sequence[tuple[int | None, int, int, str]]) -> pa.Table:
    """Rows of `schema.STEPS` from (number, begin, end, source)."""
    columns = list(zip(*windows, strict=True)) or [(), (), (), ()]
    return pa.table(
        {
            "rank": pa.array([rank] * len(windows), pa.int32()),
            "step": pa.array(columns[0], pa.int32()),
            "start_ns": pa.array(columns[1], pa.int64()),
            "end_ns": pa.array(columns[2], pa.int64()),
            "source": pa.array(columns[3], pa.string()).dictionary_encode().cast(STEPS.field("source").type),
        },
        schema=STEPS,
    )
