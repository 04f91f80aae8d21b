# SPDX-License-Identifier: Apache-2.0
"""Memory on a terminal: each device's peak, its call sites, failed requests, growth from step to step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from cclbench.analyzers.view.allocator import History
from cclbench.analyzers.view.leaks import LEAST_STEPS, growth_by_site
from cclbench.analyzers.view.memory_owners import (
    GROUPING_WORDS,
    NO_STACK,
    OLDER_WORDS,
    UNKNOWN_SITE,
    history_heading,
    known_groupings,
    owner_rows,
)
from cclbench.analyzers.view.memory_scenarios import MemoryPrediction
from cclbench.analyzers.view.out_of_memory import OutOfMemory, failed_requests
from cclbench.ground.text import printable
from cclbench.ground.units import humanise
from cclbench.present.memory import NOTHING, device_numbers, peak_rows
from cclbench.present.program_memory import peak_allocation
from cclbench.present.terminal import QUIET, VERBOSE
from cclbench.present.terminal.output import bullet_lines, labelled_table, number_table
from cclbench.present.terminal.program_memory import peak_allocation_lines, program_tables

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_SITES: Final = 10
"""Most call sites listed for a device, unless verbose."""
_LONGEST: Final = 150
"""Most characters of a call site, unless verbose."""
_SITE: Final = "call site, innermost first"


def memory_page(
    histories: Sequence[History],
    predictions: Sequence[MemoryPrediction],
    programs: Sequence[dict[str, Any]],
    verbosity: int,
) -> list[RenderableType]:
    """The devices as a table, live allocations at each one's peak, modelled peaks, programs, and remarks.

    Predictions, if any, are those of the devices with a history.
    """
    parts: list[RenderableType] = [
        number_table([_device_row(history, histories) for history in histories], texts=("device", "by"))
        if histories
        else Text(NOTHING)
    ]
    if verbosity > QUIET:
        for history in histories:
            heading = history_heading(history, histories)
            for grouping in known_groupings(history):
                if grouping != "call_site":
                    parts += _owner_table(history, heading, grouping, verbosity)
            parts += _peak_table(history, heading, verbosity)
            parts += _failure_tables(history, heading, verbosity)
            parts += _growth_table(history, heading, verbosity)
    recorded = [history for history in histories if history.recorded]
    for history, prediction in zip(recorded, predictions, strict=False):
        parts += _prediction_table(prediction, history_heading(history, histories))
    if verbosity > QUIET:
        parts += program_tables(programs, verbosity)
        parts += _remark_lines(histories, programs)
    return parts


def _device_row(history: History, histories: Sequence[History]) -> dict[str, str | None]:
    numbers = device_numbers(history)

    def shown_number(name: str, unit: str) -> str | None:
        return None if numbers[name] is None else humanise(numbers[name], unit)

    return {
        "device": history_heading(history, histories),
        "peak": shown_number("peak_allocated", "B"),
        "reserved": shown_number("peak_reserved", "B"),
        "unused": shown_number("reserved_unused", "B"),
        "scattered": shown_number("fragmentation", "1"),
        "at the end": shown_number("end_allocated", "B"),
        "by": numbers["source"],
    }


def _owner_table(history: History, title: str, grouping: str, verbosity: int) -> Iterator[RenderableType]:
    """Categories or modules: at the device's peak, at their own peaks, and at the end of the last step."""
    rows = owner_rows(history, grouping)
    listed = rows if verbosity >= VERBOSE else rows[:MOST_SITES]
    shown: list[dict[str, str | None]] = [
        {
            "bytes": humanise(row["bytes"], "B"),
            "share": f"{100 * row['share']:.1f} %",
            "own peak": humanise(row["peak"], "B"),
            "at": _moment_words(history, row["peak_event"]),
            "step end": None if row["step_ends"] is None else humanise(row["step_ends"][-1], "B"),
            GROUPING_WORDS[grouping]: printable(row[grouping]),
        }
        for row in listed
    ]
    yield Text(f"\n{printable(title)}: live allocations at the peak, by {GROUPING_WORDS[grouping]}")
    yield number_table(shown, texts=(GROUPING_WORDS[grouping],))
    if rest := len(rows) - len(listed):
        yield Text(f"{rest} more (-v lists them)")


def _moment_words(history: History, moment: int) -> str:
    if history.time_ns is None:
        return f"event {moment:,}"
    return humanise((history.time_ns[moment] - history.time_ns[0]) / 1e9, "s")


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
    total = {"bytes": history.peak_allocated, "share": 1.0, "blocks": sum(row["blocks"] for row in rows)}
    shown.append(_site_line(total, "all allocations"))
    yield Text(f"\n{printable(title)}: live allocations at the peak, by call site")
    yield number_table(shown, texts=(_SITE,))


def _failure_tables(history: History, title: str, verbosity: int) -> Iterator[RenderableType]:
    """The last failed request, or with verbosity all: what was free and who held what."""
    failures = failed_requests(history)
    for number, failure in enumerate(failures, 1):
        if number < len(failures) and verbosity < VERBOSE:
            continue
        which = f" ({number} of {len(failures)} failed requests)" if len(failures) > 1 else ""
        request = failure.request
        yield Text(f"\n{printable(title)}: out of memory{which}: {failure.verdict}")
        yield labelled_table(list(_failure_lines(failure)))
        listed = failure.sites if verbosity >= VERBOSE else failure.sites[:MOST_SITES]
        longest = None if verbosity >= VERBOSE else _LONGEST
        allocated = max(failure.allocated, 1)
        shown = [
            _site_line(
                {"bytes": site.bytes, "share": site.bytes / allocated, "blocks": site.blocks},
                site.call_site or UNKNOWN_SITE,
                longest,
            )
            for site in listed
        ]
        if shown:
            yield Text(f"\nheld when {humanise(request.bytes, 'B')} were asked for, by call site")
            yield number_table(shown, texts=(_SITE,))


def _failure_lines(failure: OutOfMemory) -> Iterator[tuple[str, str]]:
    request, unknown = failure.request, "not stated"
    yield "asked", f"{humanise(request.bytes, 'B')} at {printable(request.call_site or UNKNOWN_SITE)}"
    if failure.usable is not None and failure.free is not None:
        yield (
            "free blocks",
            f"{humanise(failure.usable.bytes, 'B')} in {len(failure.usable.sizes):,} of the request's stream"
            f" and pool, the largest {humanise(failure.usable.largest, 'B')};"
            f" {humanise(failure.free.bytes - failure.usable.bytes, 'B')} in others",
        )
    reserved = unknown if failure.reserved is None else humanise(failure.reserved, "B")
    yield "reserved", f"{reserved}, of which {humanise(failure.allocated, 'B')} as requested by the program"
    device_free = unknown if request.device_free is None else humanise(request.device_free, "B")
    if failure.limit is not None:
        least, most = (humanise(bound, "B") for bound in failure.limit)
        device_free += f": a limit of the process, between {least} and {most}, refused it"
    yield "device's own free memory", device_free
    if failure.largest_served is not None:
        yield "would have fitted", f"{humanise(failure.largest_served, 'B')} or less"
    if failure.missing:
        names = ", ".join(printable(site.call_site or UNKNOWN_SITE) for site in failure.sites_to_free[:3])
        yield "missing", f"{humanise(failure.missing, 'B')}: as much as is held by {names}"


def _prediction_table(prediction: MemoryPrediction, title: str) -> Iterator[RenderableType]:
    """A modelled peak, what it consists of, and what it assumes."""
    change = prediction.peak / max(prediction.recorded, 1) - 1
    yield Text(
        f"\n{printable(title)}: modelled peak with {printable(', '.join(prediction.settings))}:"
        f" {humanise(prediction.peak, 'B')} ({100 * change:+.1f} %)"
    )
    rows: list[dict[str, str | None]] = [
        {"bytes": humanise(size, "B"), "category": name}
        for name, size in sorted(prediction.by_category.items(), key=lambda pair: -pair[1])
    ]
    if rows:
        yield number_table(rows, texts=("category",))
    yield bullet_lines([f"assumed: {words}" for words in prediction.assumed])


def _growth_table(history: History, title: str, verbosity: int) -> Iterator[RenderableType]:
    """The call sites that grow from step end to step end."""
    growth = growth_by_site(history)
    if growth is None or history.step_ends is None or not growth:
        return
    ends = len(history.step_ends)
    few = "" if ends >= LEAST_STEPS else f": too few to tell a leak from warm-up (at least {LEAST_STEPS})"
    listed = growth if verbosity >= VERBOSE else growth[:MOST_SITES]
    shown: list[dict[str, str | None]] = [
        {
            "per step": humanise(site.bytes_per_step, "B"),
            "first": humanise(site.first, "B"),
            "last": humanise(site.last, "B"),
            "leak": "yes" if site.leaks else "no" if ends >= LEAST_STEPS else "unknown",
            _SITE: printable(site.call_site or UNKNOWN_SITE),
        }
        for site in listed
    ]
    yield Text(f"\n{printable(title)}: growth over {ends} step ends, by call site{few}")
    yield number_table(shown, texts=("leak", _SITE))
    if rest := len(growth) - len(listed):
        yield Text(f"{rest} more call sites (-v lists them)")


def _site_line(row: dict[str, Any], label: str, longest: int | None = None) -> dict[str, str | None]:
    cut = longest is not None and len(label) > longest
    return {
        "bytes": humanise(row["bytes"], "B"),
        "share": f"{100 * row['share']:.1f} %",
        "blocks": f"{row['blocks']:,}",
        _SITE: f"{label[:longest]}…" if cut else label,
    }


def _remark_lines(
    histories: Sequence[History], programs: Sequence[dict[str, Any]]
) -> Iterator[RenderableType]:
    lines = [
        f"{history_heading(history, histories)}: {history.qualifier_words}"
        for history in histories
        if history.qualifier_words
    ]
    lines += [
        f"{history_heading(history, histories)}: no history was recorded, only the state at the end"
        for history in histories
        if not history.recorded
    ]
    matches = [
        (history_heading(history, histories), peak_allocation(history, programs)) for history in histories
    ]
    lines += peak_allocation_lines([(heading, match) for heading, match in matches if match is not None])
    if lines:
        yield Text()
        yield bullet_lines(lines)
