# SPDX-License-Identifier: Apache-2.0
"""What of a comparison a person sees first, in any medium, and how its figures read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from cclbench.compare.comparison import Change, Comparison, Figure, Line, Mover, Versus
from cclbench.compare.subject import Subject
from cclbench.problem import printable
from cclbench.record.rows import Row
from cclbench.units import humanise

MOST_LINES: Final = 12
_MOST_MOVERS: Final = 3
_TOLD: Final = 0.05
_LONGEST: Final = 200
_MARKS: Final = {"modelled": "~", "published": "*"}
_PARTIAL: Final = "†"
MARKS: Final = "~ modelled   * published   † partial"


def headline(subject: Subject) -> str:
    """What a subject is: devices, ranks, steps, reader."""
    count = subject.device_count
    devices = f"{count} × {', '.join(subject.devices) or 'unknown device'}" if count else "unknown devices"
    told = [devices]
    if subject.published:
        told.append("published figures")
    else:
        ranks, steps = len(subject.ranks), subject.steps
        told.append(f"{ranks} rank{'s' * (ranks != 1)} traced")
        told.append(f"{steps} step{'s' * (steps != 1)}" if steps else "no numbered steps")
        told.append(subject.stored.reader or "no trace")
    return safe(", ".join(told))


def safe(text: str) -> str:
    """A stranger's text on one line, without what steers a terminal, cut after 200 characters."""
    return printable(text[:_LONGEST]) + ("…" if len(text) > _LONGEST else "")


def cell(figure: Figure, unit: str) -> str:
    """A figure for a table; modelled, published and partial ones are marked, a missing one is a word."""
    if figure.value is None:
        return "failed" if figure.status == "failed" else "n/a"
    partial = _PARTIAL if figure.status == "partial" else ""
    return _MARKS.get(figure.provenance or "", "") + humanise(figure.value, unit) + partial


def stated(row: Row) -> str:
    """A row's figure in a sentence; one that is neither measured nor derived says what it is."""
    figure = humanise(row.number, row.unit)
    return figure if row.provenance in ("measured", "derived") else f"{row.provenance} {figure}"


def seconds(change: Change, versus: Versus) -> tuple[str, str]:
    """A part's time in the base and in the other, for a table."""
    told = ((versus.base, change.before_s), (versus.other, change.after_s))
    before, after = ("n/a" if letter in change.untold else humanise(s, "s") for letter, s in told)
    return before, after


def marked(lines: Sequence[Line]) -> bool:
    """Whether any of the lines' figures is marked."""
    figures = [figure for line in lines for figure in line.figures.values()]
    return any(figure.provenance in _MARKS or figure.status == "partial" for figure in figures)


def ratio(line: Line, base: str, other: str) -> float | None:
    """The other's figure over the base's; None where either is missing, zero or partial."""
    figures = [line.figures[letter] for letter in (base, other)]
    before, after = (figure.value if figure.status == "ok" else None for figure in figures)
    return after / before if before and after else None


def most_different(comparison: Comparison) -> list[Line]:
    """The lines in order of how far any subject is from the first, by ratio; those without a ratio last."""

    def distance(line: Line) -> float:
        ratios = (ratio(line, one.base, one.other) for one in comparison.versus)
        return max((abs(math.log(r)) for r in ratios if r is not None and r > 0), default=-1.0)

    known = [line for line in comparison.lines if any(f.value is not None for f in line.figures.values())]
    return sorted(known, key=lambda line: (-distance(line), line.metric))


def leading(change: Change, versus: Versus) -> list[Mover]:
    """What moved most within a part, told apart by category or by collective: at most three, none small."""
    largest = max((abs(one.change_ns) for one in versus.changes), default=0) / 1e9
    kinds = [m for m in change.movers if m.dimension in ("category", "collective")]
    return [m for m in kinds if abs(m.change_s) >= _TOLD * largest > 0][:_MOST_MOVERS]
