# SPDX-License-Identifier: Apache-2.0
"""Where the difference of two step times lies: by part, exactly, and within a part by what moved."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from cclbench.analyzers.step_parts import PARTS
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.comparison.comparison import BUSY, IDLE, Dimension, PartChange, PartMover
from cclbench.comparison.subject import ComparisonSubject
from cclbench.record.metric_name import metric_name
from cclbench.record.rows import Row

_STEP: Final = metric_name("time.step")
_STEP_PARTS: Final = metric_name("time.step_parts")
_DIMENSIONS: Final[tuple[Dimension, ...]] = ("category", "collective", "group", "dimension")


def change_of_step(base: ComparisonSubject, other: ComparisonSubject) -> int | None:
    """The other's step time less the base's, whole ns; None where either has none."""
    before, after = base.results.value(_STEP), other.results.value(_STEP)
    if before is None or after is None:
        return None
    return round((Fraction(after) - Fraction(before)) * NS_PER_S)


def part_changes(base: ComparisonSubject, other: ComparisonSubject, change_ns: int) -> tuple[PartChange, ...]:
    """The parts' shares of `change_ns`, in the order of `PARTS`; nothing where a subject has no parts.

    A part that one of the two cannot tell has no time there: it is in its `exposed_unmatched` or
    `idle_other`.  Where CUDA graphs of one of the two alone were traced whole, nothing says what of the
    other's busy time they stand for: it is one part, `BUSY`.  Whole ns by largest remainder, so that they sum
    to `change_ns`.
    """
    if any(subject.results.value(_STEP_PARTS) is None for subject in (base, other)):
        return ()
    spans = {part: [s.results.value(_STEP_PARTS, stat=part) for s in (base, other)] for part in PARTS}
    if (spans["graphs"][0] is None) != (spans["graphs"][1] is None):
        busy = [pair for part, pair in spans.items() if part not in IDLE]
        whole_busy = [sum(seconds or 0.0 for seconds in own) for own in zip(*busy, strict=True)]
        spans = {BUSY: [*whole_busy], **{part: spans[part] for part in IDLE}}
    known = {part: (a or 0.0, b or 0.0) for part, (a, b) in spans.items() if (a, b) != (None, None)}
    exact = [(Fraction(after) - Fraction(before)) * NS_PER_S for before, after in known.values()]
    untold = {
        part: tuple(s.letter for s, span in zip((base, other), pair, strict=True) if span is None)
        for part, pair in spans.items()
    }
    return tuple(
        PartChange(part, before, after, ns, _part_movers(base, other, part), untold[part])
        for (part, (before, after)), ns in zip(known.items(), round_to_total(exact, change_ns), strict=True)
    )


def round_to_total(exact: Sequence[Fraction], total: int) -> list[int]:
    """Whole numbers near `exact` that sum to `total`: rounded down, the rest to the largest remainders."""
    if not exact:
        return []
    found = [number.__floor__() for number in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (found[i] - exact[i], i))
    each, more = divmod(total - sum(found), len(exact))
    for place, i in enumerate(by_remainder):
        found[i] += each + (place < more)
    return found


def _part_movers(base: ComparisonSubject, other: ComparisonSubject, part: str) -> tuple[PartMover, ...]:
    """What a part consists of and differs, largest change first."""
    before, after = _finer_seconds(base, part), _finer_seconds(other, part)
    movers = [
        PartMover(dimension, name, before.get((dimension, name), 0.0), after.get((dimension, name), 0.0))
        for dimension, name in sorted(before.keys() | after.keys())
    ]
    moved = [mover for mover in movers if mover.change_s]
    return tuple(sorted(moved, key=lambda m: (-abs(m.change_s), _DIMENSIONS.index(m.dimension), m.name)))


def _finer_seconds(subject: ComparisonSubject, part: str) -> dict[tuple[Dimension, str], float]:
    """Seconds of the part by kernel category, collective, group and parallel dimension."""
    found: dict[tuple[Dimension, str], float] = {}
    own = subject.results.row(_STEP_PARTS, stat=part)
    for row in subject.results.rows:
        if row.metric == _STEP_PARTS and row.stat == part and row is not own:
            place = _mover_place(row, part)
            found[place] = found.get(place, 0.0) + row.number
    return found


def _mover_place(row: Row, part: str) -> tuple[Dimension, str]:
    if row.group is not None:
        return "group", row.group
    if row.collective is not None:
        return "collective", row.collective
    return ("category" if part == "compute" else "dimension"), row.category or ""
