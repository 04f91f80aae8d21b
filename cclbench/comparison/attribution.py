# SPDX-License-Identifier: Apache-2.0
"""Attribution of a step-time difference: exact by part, and by component within a part."""

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
    """Step time of `other` minus that of `base`, in whole ns; None where either has none."""
    before, after = base.results.value(_STEP), other.results.value(_STEP)
    if before is None or after is None:
        return None
    return round((Fraction(after) - Fraction(before)) * NS_PER_S)


def part_changes(base: ComparisonSubject, other: ComparisonSubject, change_ns: int) -> tuple[PartChange, ...]:
    """Each part's share of `change_ns`, in the order of `PARTS`; empty where a subject has no step parts.

    A part that a subject cannot distinguish has no time there: its time is in `exposed_unmatched` or
    `idle_other`.  Where only one subject has CUDA graphs traced whole, they cannot be matched to parts of the
    other's busy time: all busy time is one part, `BUSY`.  Rounded by largest remainder to whole ns that sum
    to `change_ns`.
    """
    if any(subject.results.value(_STEP_PARTS) is None for subject in (base, other)):
        return ()
    spans = {part: [s.results.value(_STEP_PARTS, stat=part) for s in (base, other)] for part in PARTS}
    if (spans["graphs"][0] is None) != (spans["graphs"][1] is None):
        busy = [pair for part, pair in spans.items() if part not in IDLE]
        whole_busy = [sum(seconds or 0.0 for seconds in column) for column in zip(*busy, strict=True)]
        spans = {BUSY: [*whole_busy], **{part: spans[part] for part in IDLE}}
    part_seconds = {part: (a or 0.0, b or 0.0) for part, (a, b) in spans.items() if (a, b) != (None, None)}
    exact = [(Fraction(after) - Fraction(before)) * NS_PER_S for before, after in part_seconds.values()]
    unknown_for = {
        part: tuple(s.letter for s, span in zip((base, other), pair, strict=True) if span is None)
        for part, pair in spans.items()
    }
    return tuple(
        PartChange(part, before, after, ns, _part_movers(base, other, part), unknown_for[part])
        for (part, (before, after)), ns in zip(
            part_seconds.items(), round_to_total(exact, change_ns), strict=True
        )
    )


def round_to_total(exact: Sequence[Fraction], total: int) -> list[int]:
    """Integers near `exact` that sum to `total`: rounded down, the rest added by largest remainder."""
    if not exact:
        return []
    rounded = [number.__floor__() for number in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (rounded[i] - exact[i], i))
    addition, larger = divmod(total - sum(rounded), len(exact))
    for position, i in enumerate(by_remainder):
        rounded[i] += addition + (position < larger)
    return rounded


def _part_movers(base: ComparisonSubject, other: ComparisonSubject, part: str) -> tuple[PartMover, ...]:
    """The components of a part whose time differs, largest change first."""
    before, after = _component_seconds(base, part), _component_seconds(other, part)
    movers = [
        PartMover(dimension, name, before.get((dimension, name), 0.0), after.get((dimension, name), 0.0))
        for dimension, name in sorted(before.keys() | after.keys())
    ]
    changed = [mover for mover in movers if mover.change_s]
    return tuple(sorted(changed, key=lambda m: (-abs(m.change_s), _DIMENSIONS.index(m.dimension), m.name)))


def _component_seconds(subject: ComparisonSubject, part: str) -> dict[tuple[Dimension, str], float]:
    """Seconds of the part by kernel category, collective, group and parallel dimension."""
    seconds: dict[tuple[Dimension, str], float] = {}
    part_row = subject.results.row(_STEP_PARTS, stat=part)
    for row in subject.results.rows:
        if row.metric == _STEP_PARTS and row.stat == part and row is not part_row:
            component = _row_component(row, part)
            seconds[component] = seconds.get(component, 0.0) + row.number
    return seconds


def _row_component(row: Row, part: str) -> tuple[Dimension, str]:
    if row.group is not None:
        return "group", row.group
    if row.collective is not None:
        return "collective", row.collective
    return ("category" if part == "compute" else "dimension"), row.category or ""
