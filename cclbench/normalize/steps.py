# SPDX-License-Identifier: Apache-2.0
"""Step windows: the time of step N on a rank (definition: metrics, ground rules).

A device event belongs to the step whose host annotation contains its launch; the device window of step i
runs from the first kernel that the step launched to the begin of the next step's window.  Copies open no
window: prefetched input runs ahead of its step.  The last window has no successor: it is open, and ends
with the last device event of its step.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from cclbench.ground import intervals
from cclbench.ground.errors import UsageError
from cclbench.ground.intervals import Int64
from cclbench.ground.schema import STEPS
from cclbench.normalize.device_rows import DeviceRows, own_shares, step_extents

if TYPE_CHECKING:
    from cclbench.formats import DeviceStep

FAMILIES = (
    r"ProfilerStep#(\d+)",
    r"execute_(?:model|context_|\d+_context_).*",
    r"(?:step\[.*|run_batch.*)",
    r"(?i:(?:train(?:ing)?[ _])?(?:step|iteration|iter)[ _#:=]*(\d+)?)",
)
"""Step annotations of PyTorch, vLLM, SGLang, and NVTX ranges as Megatron-LM and torchtitan write them."""
OPTIMIZER: Final = re.compile(r"Optimizer\.step#(\S+)\.step")
"""PyTorch's annotation of an optimizer call, which ends a step if nothing marks steps."""
_ONE_CALL: Final = 0.1
"""Gap between consecutive calls of several optimizers in one step, as a share of the shorter call."""
_ROUNDED_NS: Final = 1_000
"""Rounding of the times of annotations: some profilers write them in whole µs."""


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
    closed: bool = False
    """Whether the last step's end is known without the begin of a next one."""
    source: str = "annotation"
    """Source of the marks, one of `schema.WINDOW_SOURCES`."""

    def step_at(self, at: Int64) -> Int64:
        """Index of the step that contains each instant, −1 for none, shape of `at`."""
        return intervals.innermost(self.starts, self.ends, at)


NO_MARKS = Marks(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))


def device_marks(device_steps: Sequence[DeviceStep]) -> Marks:
    """Steps that the device's own rows mark: numbered ones, else the runs of the module that takes longest.

    A step lasts until the begin of the next one, so that device work in between belongs to it; the last one
    and closed ones last until their own end.
    """
    numbered = [s for s in device_steps if s.number is not None]
    if numbered:
        chosen = numbered
    else:
        total_ns: Counter[str] = Counter()
        for run in device_steps:
            total_ns[run.name] += run.end_ns - run.start_ns
        dominant = max(sorted(total_ns), key=total_ns.__getitem__, default=None)
        chosen = [run for run in device_steps if run.name == dominant]
    chosen = sorted((s for s in chosen if s.end_ns > s.start_ns), key=lambda s: s.start_ns)
    if not chosen:
        return NO_MARKS
    starts = np.array([s.start_ns for s in chosen], np.int64)
    own_ends = np.array([s.end_ns for s in chosen], np.int64)
    closed = np.array([s.closed for s in chosen], np.bool_)
    ends = np.where(closed, own_ends, np.append(starts[1:], own_ends.max()))
    numbers = _distinct_numbers([s.number for s in chosen])
    return Marks(numbers, starts, ends, closed=bool(closed[-1]), source=chosen[-1].source)


def _distinct_numbers(numbers: list[int | None]) -> Int64:
    """The steps' numbers; counted from 0 if one has none or two have the same."""
    counted = None in numbers or len(set(numbers)) < len(numbers)
    return np.array(range(len(numbers)) if counted else numbers, np.int64)


def step_patterns(pattern: str | None) -> tuple[re.Pattern[str], ...]:
    """The step patterns to try, in order; only the user's own if there is one."""
    try:
        return tuple(re.compile(p) for p in ([pattern] if pattern else FAMILIES))
    except re.error as error:
        raise UsageError(f"--step-annotation {pattern!r} is no regular expression: {error}") from None


def annotated_steps(
    annotations: Sequence[Annotation], patterns: Sequence[re.Pattern[str]]
) -> tuple[Marks, Counter[str]]:
    """Steps annotated with the first family of names that occurs, and the steps left out by reason.

    A number in the name is the step's number; without one, or if numbers repeat, steps are counted from 0.
    Overlapping ranges of one number are one step; a step inside another is left out; two that overlap by
    less than 1 µs, and by less than half of the shorter one, are neighbours.  If no name of `FAMILIES`
    occurs, steps last from the end of one optimizer call to that of the next.
    """
    for pattern in patterns:
        matches = [(a, m) for a in annotations if (m := pattern.fullmatch(a.name))]
        if matches:
            break
    else:
        return _optimizer_marks(annotations) if patterns == step_patterns(None) else (NO_MARKS, Counter())
    matches.sort(key=lambda pair: (pair[0].start_ns, -pair[0].end_ns))
    left_out: Counter[str] = Counter()
    numbers: list[int | None] = []
    starts: list[int] = []
    ends: list[int] = []
    for annotation, match in matches:
        text = next((g for g in match.groups() if g), None)
        number = int(text) if text and text.isdecimal() and len(text) < 10 else None
        if annotation.end_ns <= annotation.start_ns:
            left_out["its annotation has no duration"] += 1
            continue
        overlaps = bool(ends) and annotation.start_ns < ends[-1]
        if overlaps and number is not None and number == numbers[-1]:
            ends[-1] = max(ends[-1], annotation.end_ns)
        elif overlaps and not _are_neighbours(starts[-1], ends[-1], annotation):
            left_out["its annotation lies inside another step's"] += 1
        else:
            numbers.append(number)
            starts.append(ends[-1] if overlaps else annotation.start_ns)
            ends.append(annotation.end_ns)
    return Marks(_distinct_numbers(numbers), np.array(starts, np.int64), np.array(ends, np.int64)), left_out


def _optimizer_marks(annotations: Sequence[Annotation]) -> tuple[Marks, Counter[str]]:
    """Steps that end with the calls of the optimizer that is called most often, the first if several are.

    The time before the first call's end is the rest of a step that began before the capture.
    """
    calls: dict[str, list[Annotation]] = {}
    for annotation in sorted(annotations, key=lambda a: a.start_ns):
        match = OPTIMIZER.fullmatch(annotation.name)
        if match is not None and annotation.end_ns > annotation.start_ns:
            calls.setdefault(match[1], []).append(annotation)
    optimizer_calls = max(calls.values(), key=len, default=[])
    ends: list[int] = []
    for place, call in enumerate(optimizer_calls):
        before = optimizer_calls[place - 1]
        shorter = min(call.end_ns - call.start_ns, before.end_ns - before.start_ns)
        if place and call.start_ns - before.end_ns < _ONE_CALL * shorter:
            ends[-1] = max(ends[-1], call.end_ns)
        else:
            ends.append(call.end_ns)
    if len(ends) < 2:
        return NO_MARKS, Counter()
    at = np.array(ends, np.int64)
    left_out = Counter({"it began before the capture, as its optimizer's call tells": 1})
    return Marks(np.arange(len(at) - 1), at[:-1], at[1:]), left_out


def _are_neighbours(start_ns: int, end_ns: int, later: Annotation) -> bool:
    """Whether a step and one that begins within it follow each other, apart from rounding."""
    shorter = min(end_ns - start_ns, later.end_ns - later.start_ns)
    return later.end_ns > end_ns and end_ns - later.start_ns < min(_ROUNDED_NS, shorter / 2)


POLICIES: Final = ("steps", "annotations", "trace")
"""Window policies; the next one replaces one that a trace does not support."""
SOURCES: Final = {
    "steps": ("device", "module", "graph"),
    "annotations": ("annotation",),
    "trace": ("whole_trace",),
}
"""Sources of the rows of `schema.STEPS` that each window policy uses."""


def choose_windows(table: pa.Table, policy: str = "steps") -> tuple[str, pa.Table, pa.Table] | None:
    """The policy, closed windows and open windows to use for a rank; None if it has no window.

    From the rank's rows of `schema.STEPS`, those of `policy` or of the next policy that has any, in order of
    time.  If all are open they count as closed.
    """
    source = table["source"].unify_dictionaries().combine_chunks()
    for candidate in POLICIES[POLICIES.index(policy) :]:
        of_policy = np.array([word in SOURCES[candidate] for word in source.dictionary.to_pylist()], np.bool_)
        rows = table.filter(pa.array(of_policy[source.indices.to_numpy()])).sort_by("start_ns")
        closed, still_open = rows.filter(pa.array(~rows["open"].to_numpy())), rows.filter(rows["open"])
        if len(rows):
            return (candidate, closed, still_open) if len(closed) else (candidate, rows, closed)
    return None


class Window(NamedTuple):
    """A stretch of one rank's time, int64 ns, [start_ns, end_ns)."""

    step: int | None
    """The step's number; None for the whole trace."""
    start_ns: int
    end_ns: int
    source: str
    """One of `schema.WINDOW_SOURCES`."""
    open: bool = False
    """Whether its end is unknown: no further step follows."""
    purity: float | None = None
    """Share of the kernel time in it that its own step launched; None without kernels or launches."""


@dataclass(frozen=True, slots=True)
class Periods:
    """Mean length of the closed device windows, and of the same steps on the host, begin to begin, ns."""

    device_ns: float
    host_ns: float


def device_windows(
    marks: Marks, rows: DeviceRows, horizon: int | None
) -> tuple[list[Window], Counter[str], Periods | None]:
    """Device windows, steps left out by reason, and the periods of closed windows and host steps.

    Windows that reach past `horizon`, the end of a damaged file, are left out.  Periods are None if no
    window is closed.
    """
    left_out: Counter[str] = Counter()
    opening, ending = step_extents(rows, len(marks.numbers))
    present = sorted(opening)
    left_out["no kernel was launched in it"] = len(marks.numbers) - len(present)
    windows: dict[int, Window] = {}
    host_ns: list[int] = []
    for i, index in enumerate(present):
        following = present[i + 1] if i + 1 < len(present) else None
        begin, end = opening[index], ending[index] if following is None else opening[following]
        if end <= begin:
            left_out["its device work begins after the next step's"] += 1
        elif horizon is not None and (following is None or end > horizon):
            left_out["the file is cut before its end"] += 1
        else:
            windows[index] = Window(int(marks.numbers[index]), begin, end, "device", following is None)
            if following is not None:
                host_ns.append(int(marks.starts[following] - marks.starts[index]))
    closed = [w.end_ns - w.start_ns for w in windows.values() if not w.open]
    periods = Periods(fmean(closed), fmean(host_ns)) if closed else None
    return _with_purity(windows, rows, len(marks.numbers)), +left_out, periods


def _with_purity(windows: Mapping[int, Window], rows: DeviceRows, steps: int) -> list[Window]:
    """The windows, keyed by step index below `steps`, with their purity (see `Window`)."""
    if not windows:
        return []
    starts, ends = (
        np.array([getattr(window, name) for window in windows.values()], np.int64)
        for name in ("start_ns", "end_ns")
    )
    place = np.full(steps, -1, np.int32)
    place[list(windows)] = np.arange(len(windows))
    shares = own_shares(rows, starts, ends, place)
    return [window._replace(purity=share) for window, share in zip(windows.values(), shares, strict=True)]


def annotation_windows(
    marks: Marks, horizon: int | None, rows: DeviceRows | None = None
) -> tuple[list[Window], Counter[str]]:
    """The marks' own windows, except those that reach past the horizon.

    A host annotation states its end.  A step marked by the device's own rows lasts until the next one
    begins, so the last one is open unless `closed`.  `rows`, if launches link them with the marks, give the
    purity.
    """
    last = len(marks.numbers) - 1 if marks.source != "annotation" and not marks.closed else None
    windows = {
        i: Window(int(n), int(s), int(e), marks.source, i == last)
        for i, (n, s, e) in enumerate(zip(marks.numbers, marks.starts, marks.ends, strict=True))
        if horizon is None or e <= horizon
    }
    left_out = +Counter({"the file is cut before its end": len(marks.numbers) - len(windows)})
    if rows is None:
        return list(windows.values()), left_out
    return _with_purity(windows, rows, len(marks.numbers)), left_out


def steps_table(rank: int, windows: Sequence[Window]) -> pa.Table:
    """Rows of `schema.STEPS`."""
    columns: dict[str, list[object]] = {
        name: [getattr(window, name) for window in windows] for name in Window._fields
    }
    columns["rank"] = [rank] * len(windows)
    return pa.table([pa.array(columns[field.name], field.type) for field in STEPS], schema=STEPS)
