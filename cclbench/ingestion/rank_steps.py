# SPDX-License-Identifier: Apache-2.0
"""The steps of one rank: which of its rows are of which, and the windows that they give."""

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
    """The rows of a rank's device; `step` is the index of each pending row's, −1 for none."""
    own = pending.by_device
    return DeviceRows(step[own], pending.starts[own], pending.ends[own], pending.is_kernel[own])


def find_steps(
    parts: list[PartRead], pending: Pending, launches: Launches, annotated: steps.Marks, on_device: bool
) -> tuple[steps.Marks, Index, str]:
    """The steps, the index of each pending row's among them (−1 for none), and how they were found.

    A device event is in the step that launched it; where nothing says so, in the step that the device's
    own rows mark; a CPU's transfer in the annotated step that holds it.
    """
    marked = steps.of_device([s for p in parts for s in p.device_steps])
    if on_device:
        launch = pending.launch
        launched = annotated.step_at(or_none(launches.start_ns, launch))
        step = np.where(launch >= 0, launched, -1).astype(np.int32)
        if (step >= 0).any() or not len(marked.numbers):
            return annotated, step, "device"
    found = marked if len(marked.numbers) else annotated
    return found, found.step_at(pending.starts).astype(np.int32), found.source


def horizon_of(parts: list[PartRead], pending: Pending, launches: Launches, rows: DeviceRows) -> int | None:
    """Until when a cut file is known to hold all device rows; None where that is unknown.

    Device rows in order of their start miss nothing before the last one; otherwise nothing is missing
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
    """All windows the rank offers, the steps left out, and how device windows compare with the host's steps.

    `marks` are the annotated steps, those that `rows` are in, and the source of the latter.
    """
    annotated, found, source = marks
    by_launch = facts.works_on == "device" and source == "device" and bool((rows.step >= 0).any())
    windows, left_out = steps.annotation_windows(annotated, horizon, rows=rows if by_launch else None)
    periods = None
    if found is not annotated:
        by_device, left_out = steps.annotation_windows(found, horizon)
        windows += by_device
    if by_launch:
        of_device, left_out, periods = steps.device_windows(found, rows, horizon)
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
