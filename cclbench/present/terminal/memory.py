# SPDX-License-Identifier: Apache-2.0
"""Memory on a terminal: each device's peak, then the call sites at the peak."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.table import Table
from rich.text import Text

from cclbench.analyzers.view.allocator import History
from cclbench.ground.text import printable
from cclbench.ground.units import humanise
from cclbench.present.memory import NO_STACK, NOTHING, OLDER_WORDS, device_numbers, history_heading, peak_rows
from cclbench.present.terminal import QUIET, VERBOSE
from cclbench.present.terminal.output import bullet_lines

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_SITES: Final = 10
"""Most call sites listed for a device, unless verbose."""
_LONGEST: Final = 150
"""Most characters of a call site, unless verbose."""
_SITE: Final = "call site, innermost first"


def memory_page(found: Sequence[History], verbosity: int) -> list[RenderableType]:
    """The devices as a table, the live allocations at each one's peak, and remarks."""
    if not found:
        return [Text(NOTHING)]
    parts: list[RenderableType] = [
        _number_table([_device_row(history, found) for history in found], texts=("device", "by"))
    ]
    if verbosity > QUIET:
        for history in found:
            parts += _peak_table(history, history_heading(history, found), verbosity)
        parts += _remark_lines(found)
    return parts


def _device_row(history: History, among: Sequence[History]) -> dict[str, str | None]:
    told = device_numbers(history)

    def shown_number(name: str, unit: str) -> str | None:
        return None if told[name] is None else humanise(told[name], unit)

    return {
        "device": history_heading(history, among),
        "peak": shown_number("peak_allocated", "B"),
        "reserved": shown_number("peak_reserved", "B"),
        "unused": shown_number("fragmentation", "1"),
        "at the end": shown_number("end_allocated", "B"),
        "by": told["source"],
    }


def _peak_table(history: History, title: str, verbosity: int) -> Iterator[RenderableType]:
    rows = peak_rows(history)
    if not rows:
        return
    *sites, older = rows
    listed = sites if verbosity >= VERBOSE else sites[:MOST_SITES]
    longest = None if verbosity >= VERBOSE else _LONGEST
    shown = [_site_line(row, row["call_site"] or NO_STACK, longest) for row in listed]
    if rest := sites[len(listed) :]:
        together = {key: sum(row[key] for row in rest) for key in ("bytes", "share", "blocks")}
        shown.append(_site_line(together, f"{len(rest)} more call sites (-v lists them)"))
    shown.append(_site_line(older, OLDER_WORDS))
    whole = {"bytes": history.peak_allocated, "share": 1.0, "blocks": sum(row["blocks"] for row in rows)}
    shown.append(_site_line(whole, "all allocations"))
    yield Text(f"\n{printable(title)}: live allocations at the peak, by call site")
    yield _number_table(shown, texts=(_SITE,))


def _site_line(row: dict[str, Any], of: str, longest: int | None = None) -> dict[str, str | None]:
    cut = longest is not None and len(of) > longest
    return {
        "bytes": humanise(row["bytes"], "B"),
        "share": f"{100 * row['share']:.1f} %",
        "blocks": f"{row['blocks']:,}",
        _SITE: f"{of[:longest]}…" if cut else of,
    }


def _number_table(rows: Sequence[dict[str, str | None]], *, texts: Collection[str]) -> Table:
    """The rows as a table of numbers, except the columns `texts`; empty columns are left out."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    used = [column for column in rows[0] if any(row[column] is not None for row in rows)]
    for column in used:
        text = column in texts
        table.add_column(column, justify="left" if text else "right", no_wrap=not text, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(row[column] or "")) for column in used))
    return table


def _remark_lines(found: Sequence[History]) -> Iterator[RenderableType]:
    lines = [
        f"{history_heading(history, found)}: {history.qualifier_words}"
        for history in found
        if history.qualifier_words
    ]
    lines += [
        f"{history_heading(history, found)}: no history was recorded, only the state at the end"
        for history in found
        if not history.recorded
    ]
    if lines:
        yield Text()
        yield bullet_lines(lines)
