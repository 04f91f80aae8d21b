# SPDX-License-Identifier: Apache-2.0
"""Steps of one rank: the step of each row, and the step windows."""

from __future__ import annotations

from collections import Counter

import numpy as np

from cclbench.ground.intervals import Index
from cclbench.ingestion.launches import Launches
from cclbench.ingestion.part_file import PartRead
from cclbench.ingestion.pending import Pending, or_none
from cclbench.normalize import steps
from cclbench.normalize.device_rows import DeviceRows
from cclbench.record.facts import TraceFacts


def device_rows(pending: Pending, step: Index) -> DeviceRows:
    """The rows of a rank's device; `step` is each pending row's step index, −1 for none."""
    by_device = pending.by_device
    return DeviceRows(
        step[by_device], pending.starts[by_device], pending.ends[by_device], pending.is_kernel[by_device]
    )


def find_steps(
    parts: list[PartRead], pending: Pending, launches: Launches, annotated: steps.Marks, on_device: bool
) -> tuple[steps.Marks, Index, str]:
    """The steps, each pending row's index among them (−1 for none), and their source.

    A device event is in the step that launched it or, if no launch is in a step, in the step that the
    device's own rows mark; a CPU's transfer is in the annotated step that contains it.
    """
    marked = steps.device_marks([s for p in parts for s in p.device_steps])
    if on_device:
        launch = pending.launch
        launched = annotated.step_at(or_none(launches.start_ns, launch))
        step = np.where(launch >= 0, launched, -1).astype(np.int32)
        if (step >= 0).any() or not len(marked.numbers):
            return annotated, step, "device"
    marks = marked if len(marked.numbers) else annotated
    return marks, marks.step_at(pending.starts).astype(np.int32), marks.source


def horizon_of(parts: list[PartRead], pending: Pending, launches: Launches, rows: DeviceRows) -> int | None:
    """Time until which a cut file is known to hold all device rows, ns; None if unknown.

    If device rows are in order of start, none is missing before the last one; otherwise none is missing
    before the first kernel launch that has no kernel.
    """
    if all(p.device_rows_in_order for p in parts):
        return int(rows.starts.max())
    answered = np.zeros(len(launches), np.bool_)
    answered[pending.launch[pending.launch >= 0]] = True
    unanswered = launches.start_ns[launches.of_kernel & ~answered]
    return min(int(unanswered.min()), int(rows.ends.max())) if len(unanswered) else None


def windows_of(
    facts: TraceFacts,
    marks: tuple[steps.Marks, steps.Marks, str],
    rows: DeviceRows,
    parts: list[PartRead],
    horizon: int | None,
) -> tuple[list[steps.Window], Counter[str], steps.Periods | None]:
    """All windows of the rank, the steps left out, and the periods of device windows and host steps.

    `marks` are the annotated steps, the steps of `rows`, and the source of the latter.
    """
    annotated, device_marks, source = marks
    by_launch = facts.works_on == "device" and source == "device" and bool((rows.step >= 0).any())
    windows, left_out = steps.annotation_windows(annotated, horizon, rows=rows if by_launch else None)
    periods = None
    if device_marks is not annotated:
        by_device, left_out = steps.annotation_windows(device_marks, horizon)
        windows += by_device
    if by_launch:
        of_device, left_out, periods = steps.device_windows(device_marks, rows, horizon)
        windows += of_device
    if facts.works_on == "device":
        spans = [(int(rows.starts.min()), int(rows.ends.max()))]
    else:
        spans = [p.op_span for p in parts if p.op_span]
    begin, end = min(s[0] for s in spans), max(s[1] for s in spans)
    end = end if horizon is None else min(end, horizon)
    if end > begin:
        windows.append(steps.Window(None, begin, end, "whole_trace"))
    return windows, left_out, periods
