# SPDX-License-Identifier: Apache-2.0
"""The steps of one rank: which of its rows are of which, and the windows that they give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cclbench.disk_columns import DiskColumn, pieces
from cclbench.ingestion.launches import Launches
from cclbench.ingestion.part_file import PartRead
from cclbench.ingestion.pending import Pending, or_none
from cclbench.intervals import Int64
from cclbench.normalize import steps
from cclbench.normalize.device_rows import DeviceRows
from cclbench.record.facts import TraceFacts


@dataclass(frozen=True, slots=True, eq=False)
class OfDevice:
    """The rows of a rank's device, some at a time."""

    pending: Pending
    step: DiskColumn[np.int32]
    """Index of each pending row's step, −1 for none."""

    def __iter__(self) -> Iterator[DeviceRows]:
        pending, step = self.pending, self.step.values()
        for here in pieces(len(pending), pending, self.step):
            own = pending.by_device[here]
            if own.any():
                starts, ends = pending.starts[here][own], pending.ends[here][own]
                yield DeviceRows(step[here][own], starts, ends, pending.is_kernel[here][own])


def find_steps(
    parts: list[PartRead], pending: Pending, launches: Launches, annotated: steps.Marks, on_device: bool
) -> tuple[steps.Marks, DiskColumn[np.int32], str]:
    """The steps, the index of each pending row's among them (−1 for none), and how they were found.

    A device event is in the step that launched it; where nothing says so, in the step that the device's
    own rows mark; a CPU's transfer in the annotated step that holds it.
    """
    if on_device:
        step = DiskColumn(np.int32)
        known = False
        for here in pieces(len(pending), pending, launches):
            launch = pending.launch[here]
            index = np.where(launch >= 0, annotated.holding(or_none(launches.start_ns, launch)), -1)
            known |= bool((index >= 0).any())
            step.append(index)
        if known:
            return annotated, step, "device"
    marked = steps.of_device([s for p in parts for s in p.device_steps])
    if on_device and not len(marked.numbers):
        return annotated, step, "device"
    found = marked if len(marked.numbers) else annotated
    step = DiskColumn(np.int32)
    for here in pieces(len(pending), pending):
        step.append(found.holding(pending.starts[here]))
    return found, step, found.source


def horizon_of(parts: list[PartRead], pending: Pending, launches: Launches, rows: OfDevice) -> int | None:
    """Until when a cut file is known to hold all device rows; None where that is unknown.

    Device rows in order of their start miss nothing before the last one; otherwise nothing is missing
    before the first kernel launch that has no kernel.
    """
    if all(p.device_rows_in_order for p in parts):
        return max(int(piece.starts.max()) for piece in rows)
    answered = np.zeros(len(launches), np.bool_)
    for here in pieces(len(pending), pending):
        launch = pending.launch[here]
        answered[launch[launch >= 0]] = True
    unanswered = [
        int(launches.start_ns[here][own].min())
        for here in pieces(len(launches), launches)
        if (own := launches.of_kernel[here] & ~answered[here]).any()
    ]
    return min(*unanswered, max(int(piece.ends.max()) for piece in rows)) if unanswered else None


def windows_of(
    facts: TraceFacts,
    marks: tuple[steps.Marks, steps.Marks, str],
    rows: OfDevice,
    parts: list[PartRead],
    horizon: int | None,
) -> tuple[list[steps.Window], Counter[str], steps.Periods | None]:
    """All windows the rank offers, the steps left out, and how device windows compare with the host's steps.

    `marks` are the annotated steps, those that `rows` are in, and the source of the latter.
    """
    annotated, found, source = marks
    by_launch = facts.works_on == "device" and source == "device" and any((p.step >= 0).any() for p in rows)
    windows, left_out = steps.annotation_windows(annotated, horizon, rows=rows if by_launch else None)
    periods = None
    if found is not annotated:
        by_device, left_out = steps.annotation_windows(found, horizon)
        windows += by_device
    if by_launch:
        of_device, left_out, periods = steps.device_windows(found, rows, horizon)
        windows += of_device
    if facts.works_on == "device":
        spans = [(int(piece.starts.min()), int(piece.ends.max())) for piece in rows]
    else:
        spans = [p.op_span for p in parts if p.op_span]
    begin, end = min(s[0] for s in spans), max(s[1] for s in spans)
    end = end if horizon is None else min(end, horizon)
    if end > begin:
        windows.append(steps.Window(None, begin, end, "whole_trace"))
    return windows, left_out, periods


def numbers_of(found: steps.Marks, step: DiskColumn[np.int32]) -> Int64:
    """The number of each row's step, −1 for none, by its index among the steps found; on disk."""
    index, numbers = step.values(), DiskColumn(np.int64)
    for here in pieces(len(step), step):
        numbers.append(or_none(found.numbers, index[here]))
    return numbers.values()
