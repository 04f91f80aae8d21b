# SPDX-License-Identifier: Apache-2.0
"""Rows from lines of a device, from either kind of file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.formats import DeviceStep, Names, Rows
from cclbench.ground.intervals import Int64

DERIVED: Final = (
    *("TensorFlow Ops", "TensorFlow Name Scope", "Framework Ops", "Framework Name Scope", "Source code"),
    *("Overlay", "XLA Ops", "XLA TraceMe"),
)
"""Lines whose events are derived from those of other lines."""


class LineEvents:
    """A line's events in time order; `code` is each event's index into the reader's table of ops.

    `shown_ns` are their starts in the file, if `start_ns` are corrected; `awaited_ns` is the core's time to
    issue and await a transfer, −1 of other events.
    """

    __slots__ = ("awaited_ns", "code", "dur_ns", "name", "shown_ns", "start_ns", "track")

    def __init__(
        self,
        name: str,
        track: int,
        code: Int64,
        start_ns: Int64,
        dur_ns: Int64,
        shown_ns: Int64 | None = None,
        awaited_ns: Int64 | None = None,
    ) -> None:
        order = np.lexsort((-dur_ns, start_ns))
        self.name, self.track = name, track
        self.code, self.start_ns, self.dur_ns = code[order], start_ns[order], dur_ns[order]
        self.shown_ns = self.start_ns if shown_ns is None else shown_ns[order]
        self.awaited_ns = np.full(len(code), -1) if awaited_ns is None else awaited_ns[order]

    def __len__(self) -> int:
        return len(self.code)

    def take_events(self, chosen: npt.NDArray[np.bool_]) -> LineEvents:
        """The chosen events."""
        columns = (self.code, self.start_ns, self.dur_ns, self.shown_ns, self.awaited_ns)
        return LineEvents(self.name, self.track, *(column[chosen] for column in columns))

    def holds_others(self) -> npt.NDArray[np.bool_]:
        """Whether another event begins within each event."""
        held = np.zeros(len(self), bool)
        held[:-1] = self.start_ns[1:] < (self.start_ns + self.dur_ns)[:-1]
        return held


def marked_steps(
    line: LineEvents, names: Sequence[str] | Mapping[int, str], numbered: bool
) -> list[DeviceStep]:
    """Step marks of a line: by number if it numbers steps, else by module."""
    marks = []
    for code, start, dur in zip(
        line.code.tolist(), line.start_ns.tolist(), line.dur_ns.tolist(), strict=True
    ):
        name = names[code]
        number = int(name) if numbered and name.isdecimal() and len(name) < 10 else None
        if number is not None or not numbered:
            marks.append(DeviceStep(name=name, start_ns=start, end_ns=start + dur, number=number))
    return marks


def kind_rows(
    kind: str,
    side: str,
    lines: Iterable[LineEvents],
    names: Sequence[str],
    *,
    device: int | None = None,
    columns: Mapping[str, pa.Array] | None = None,
    categories: Sequence[str | None] = (),
) -> tuple[Rows, Int64] | None:
    """Rows of one kind in order of start, and the code of each; None if there are none.

    `names`, `columns` and `categories` have one entry for each code.
    """
    lines = [line for line in lines if len(line)]
    if not lines:
        return None
    start = np.concatenate([line.start_ns for line in lines])
    order = np.argsort(start, kind="stable")
    codes = np.concatenate([line.code for line in lines])[order]
    table = Names()
    used = np.unique(codes)
    of_name = np.zeros(len(names), np.int32)
    category_of: dict[int, str] = {}
    for code in used.tolist():
        name, category = names[code], categories[code] if categories else None
        if category is not None and category_of.get(table.get(name, -1), category) != category:
            name = f"{name} ({category})"  # instructions of two programs may share a name
        of_name[code] = table[name]
        if category is not None:
            category_of[table[name]] = category
    row_columns = {name: column.take(pa.array(codes)) for name, column in (columns or {}).items()}
    if device is not None:
        row_columns["device"] = pa.array(np.full(len(order), device, np.int16))
    awaited = np.concatenate([line.awaited_ns for line in lines])[order]
    row_columns["awaited_ns"] = pa.array(awaited, mask=awaited < 0)
    rows = Rows(
        kind=kind,
        side=side,
        names=table,
        codes=of_name[codes],
        start_ns=start[order],
        dur_ns=np.concatenate([line.dur_ns for line in lines])[order],
        track=np.concatenate([np.full(len(line), line.track, np.int64) for line in lines])[order],
        name_categories=category_of or None,
        **row_columns,
    )
    return rows, codes
