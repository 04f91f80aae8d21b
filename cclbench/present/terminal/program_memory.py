# SPDX-License-Identifier: Apache-2.0
"""Memory of compiled programs on a terminal: what each needs as compiled, and what its peak consists of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from cclbench.ground.text import printable
from cclbench.ground.units import humanise
from cclbench.present.program_memory import AS_COMPILED, buffer_words, peak_owners
from cclbench.present.terminal import VERBOSE
from cclbench.present.terminal.output import number_table

if TYPE_CHECKING:
    from rich.console import RenderableType

_MOST_PROGRAMS: Final = 3
_MOST_OWNERS: Final = 10


def program_tables(programs: Sequence[dict[str, Any]], verbosity: int) -> Iterator[RenderableType]:
    """A section for each program, the largest first; with verbosity for all of them."""
    listed = programs if verbosity >= VERBOSE else programs[:_MOST_PROGRAMS]
    for program in listed:
        name = printable(program["module"] or "compiled programs")
        profiles = f", in {program['profiles']} profiles" if program["profiles"] > 1 else ""
        heading = f"\n{name}{profiles}: {AS_COMPILED}"
        if program["bytes"] is None:
            yield Text(f"{heading}: unknown: {'; '.join(program['reasons'])}")
            continue
        elsewhere = sum(row["bytes"] for row in program["buffers"] if row["memory_space"])
        apart = f", of which {humanise(elsewhere, 'B')} in other memory spaces" if elsewhere else ""
        yield Text(f"{heading}: {humanise(program['bytes'], 'B')}{apart}")
        yield number_table(list(_kind_lines(program)), texts=("buffers",))
        if program["peak"] is not None:
            yield from _peak_table(program, name, verbosity)
        for reason in program["reasons"]:
            yield Text(f"temporaries are not split: {reason}")
    if rest := programs[len(listed) :]:
        yield Text(f"\n{len(rest)} more programs (-v lists them)")


def _kind_lines(program: dict[str, Any]) -> Iterator[dict[str, str | None]]:
    for row in program["buffers"]:
        line = _line(row["bytes"], program["bytes"], row["allocations"])
        yield line | {"buffers": buffer_words(row["kind"], row["memory_space"])}


def peak_allocation_lines(matched: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[str]:
    """Which program's allocation made the measured peak of devices, by heading; equal ones in one line."""
    devices: dict[str, list[str]] = {}
    for heading, allocation in matched:
        owner = printable(allocation["module"] or "the program")
        words = (
            f"the allocation that made the measured peak, {humanise(allocation['bytes'], 'B')}, has the size"
            f" of {owner}'s {buffer_words(allocation['kind'])}"
        )
        devices.setdefault(words, []).append(heading)
    for words, headings in devices.items():
        more = f" and {len(headings) - 1} more" if len(headings) > 1 else ""
        yield f"{headings[0]}{more}: {words}"


def _peak_table(program: dict[str, Any], name: str, verbosity: int) -> Iterator[RenderableType]:
    """Buffers in the temporaries at the peak."""
    owners = peak_owners(program)
    total = sum(size for _, size, _ in owners)
    named = [row for row in owners if row[2] is not None]
    listed = named if verbosity >= VERBOSE else named[:_MOST_OWNERS]
    lines = [_line(size, total, count) | {"held by": owner} for owner, size, count in listed]
    if rest := named[len(listed) :]:
        size, count = sum(size for _, size, _ in rest), sum(count or 0 for _, _, count in rest)
        lines.append(_line(size, total, count) | {"held by": f"{len(rest)} more (-v lists them)"})
    for words, size, _ in owners[len(named) :]:
        lines.append(_line(size, total) | {"held by": words})
    lines.append(_line(total, total, len(program["peak"]["live"])) | {"held by": "all temporaries"})
    yield Text(f"\n{name}: temporaries at the peak of the compiler's heap trace")
    yield number_table(lines, texts=("held by",))


def _line(size: int, total: int, count: int | None = None) -> dict[str, str | None]:
    return {
        "bytes": humanise(size, "B"),
        "share": f"{100 * size / max(total, 1):.1f} %",
        "number": None if count is None else f"{count:,}",
    }
