# SPDX-License-Identifier: Apache-2.0
"""Memory snapshots: refused requests, each device's peak, and who holds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cclbench.analyzers.view.allocator import History
from cclbench.analyzers.view.memory_owners import (
    GROUPING_WORDS,
    UNKNOWN_SITE,
    history_heading,
    known_groupings,
    owner_rows,
)
from cclbench.analyzers.view.out_of_memory import failed_requests
from cclbench.ground.units import humanise
from cclbench.source_summaries.summary import Cell, FigureColumn, FigureTable, SourceSummary, SummaryInputs

MOST_OWNERS: Final = 20
"""Most owners of a device's peak that are listed: those with the most bytes."""
_DEVICES: Final = (
    FigureColumn(name="device", key=True),
    FigureColumn(name="peak", unit="B", lead=True),
    FigureColumn(name="reserved", unit="B"),
    FigureColumn(name="unused", unit="B"),
    FigureColumn(name="scattered", unit="1"),
    FigureColumn(name="at the end", unit="B"),
)


def summarise_snapshots(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """All devices of all snapshots, and the owners of the highest peak."""
    histories = inputs.view.snapshots
    if not histories:
        return
    recorded = [history for history in histories if history.recorded]
    highest = max(recorded, key=lambda history: history.peak_allocated, default=None)
    tables = [
        FigureTable(
            subject="devices",
            title="Peak of each device",
            columns=_DEVICES,
            rows=[_device_row(history, histories) for history in histories],
        )
    ]
    absent = [
        f"{history_heading(history, histories)}: no history was recorded, only the state at the end"
        for history in histories
        if not history.recorded
    ]
    sentences = list[str]()
    if highest is not None:
        heading = history_heading(highest, histories)
        sentences.append(_peak_sentence(highest, heading))
        groupings = [name for name in known_groupings(highest) if name != "module"]
        tables += [_owner_table(highest, heading, grouping) for grouping in groupings]
        if not groupings:
            absent.append(f"{heading}: who holds the peak is unknown, no stacks were recorded")
    yield SourceSummary(
        kind="memory",
        heading="Memory snapshot" if len(histories) == 1 else "Memory snapshots",
        warnings=[words for history in histories for words in _failure_words(history, histories)],
        sentences=sentences,
        tables=tables,
        absent=absent,
    )


def _failure_words(history: History, among: list[History]) -> Iterator[str]:
    """The last refused request of a device, and why nothing served it."""
    failures = failed_requests(history)
    if failures:
        last = failures[-1]
        several = f" ({len(failures):,} requests were refused)" if len(failures) > 1 else ""
        yield (
            f"{history_heading(history, among)}: out of memory: {humanise(last.request.bytes, 'B')} asked at"
            f" {last.request.call_site or UNKNOWN_SITE}: {last.verdict}{several}"
        )


def _peak_sentence(history: History, heading: str) -> str:
    text = f"{heading}: at most {humanise(history.peak_allocated, 'B')} allocated"
    if history.peak_reserved is not None:
        text += f", {humanise(history.peak_reserved, 'B')} reserved"
    if history.reserved_unused is not None:
        text += f"; {humanise(history.reserved_unused, 'B')} of the reserved bytes are unused at the peak"
    return f"{text}."


def _device_row(history: History, among: list[History]) -> tuple[Cell, ...]:
    recorded = history.recorded
    free = history.free_at(history.peak_moment) if recorded else None
    return (
        history_heading(history, among),
        history.peak_allocated if recorded else None,
        history.peak_reserved if recorded else None,
        history.reserved_unused if recorded else None,
        None if free is None else free.fragmentation,
        int(history.allocated[-1]),
    )


def _owner_table(history: History, heading: str, grouping: str) -> FigureTable:
    """Bytes at the peak by category, module or call site; those beyond `MOST_OWNERS` as one row."""
    owners = [row for row in owner_rows(history, grouping) if row["bytes"]]
    rows: list[tuple[Cell, ...]] = [
        (row[grouping], row["bytes"], row["share"]) for row in owners[:MOST_OWNERS]
    ]
    if rest := owners[MOST_OWNERS:]:
        held, share = (sum(row[name] for row in rest) for name in ("bytes", "share"))
        rows.append((f"{len(rest):,} more", held, share))
    name = GROUPING_WORDS[grouping]
    columns = (
        FigureColumn(name=name, key=True),
        FigureColumn(name="bytes", unit="B", lead=True),
        FigureColumn(name="share", unit="1"),
    )
    return FigureTable(
        subject=grouping, title=f"Held at the peak of {heading}, by {name}", columns=columns, rows=rows
    )
