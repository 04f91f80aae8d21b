# SPDX-License-Identifier: Apache-2.0
"""Sections of a comparison as text cells, for terminal and Markdown, and their order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from cclbench.classify.kernel_labels import kernel_label, shorten_name
from cclbench.comparison.comparison import (
    PARTS,
    CallCount,
    Comparison,
    Line,
    MetricFigure,
    PartChange,
    PartMover,
    ReplacedCalls,
    Versus,
    WorkChange,
    WorkDifference,
)
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.verdict import signed_seconds
from cclbench.ground.text import printable, quoted_value, shorten_middle
from cclbench.ground.units import humanise
from cclbench.present.headline import run_findings
from cclbench.present.topics import KEY_METRICS
from cclbench.present.words import gain_words
from cclbench.record.metric_name import MetricName

MOST_LINES: Final = 12
MOST_SHAPES: Final = 5
WORKS: Final = "Device time of operators and modules, per step and rank"
_MOST_MOVERS: Final = 3
_MOST_KERNELS: Final = 5
_MOST_CALLS: Final = 4
_LONGEST_CALL: Final = 40
_LONGEST_KERNEL: Final = 72
_LEAST_NOTABLE: Final = 0.05
_LONGEST: Final = 200
_MARKS: Final = {"modelled": "~", "published": "*"}
_PARTIAL: Final = "†"
MARKS: Final = "~ modelled   * published   † partial"


def subject_headline(subject: ComparisonSubject) -> str:
    """Description of a subject: devices, ranks, steps, reader."""
    count = subject.device_count
    devices = f"{count} × {', '.join(subject.devices) or 'unknown device'}" if count else "unknown devices"
    captures = len(subject.each_capture)
    facts = [f"{captures} captures"] * (captures > 1) + [devices]
    if subject.summaries:
        return safe_text("; ".join(summary.heading for summary in subject.summaries))
    if subject.is_published:
        facts.append("published figures")
    else:
        ranks, steps = len(subject.ranks), subject.step_count
        facts.append(f"{ranks} rank{'s' * (ranks != 1)} traced")
        facts.append(f"{steps} step{'s' * (steps != 1)}" if steps else "no numbered steps")
        facts.append(subject.stored.reader or "no trace")
    return safe_text(", ".join(facts))


def capture_names(subject: ComparisonSubject) -> str:
    """The names of a subject's captures."""
    return ", ".join(safe_text(capture.id) for capture in subject.each_capture)


def foremost_finding(subject: ComparisonSubject) -> Iterator[str]:
    """The finding with the largest gain, and that gain; nothing without one."""
    first = next((finding for finding in run_findings(subject) if finding.gain_s), None)
    if first is not None:
        yield f"{printable(first.claim)} {gain_words(first).capitalize()}."


def safe_text(text: str) -> str:
    """A text from an input on one line, without control characters, cut after 200 characters."""
    return printable(text[:_LONGEST]) + ("…" if len(text) > _LONGEST else "")


def figure_cell(figure: MetricFigure, unit: str) -> str:
    """A figure for a table; modelled, published and partial ones are marked; `n/a` or `failed` if missing."""
    if figure.value is None:
        return "failed" if figure.status == "failed" else "n/a"
    partial = _PARTIAL if figure.status == "partial" else ""
    return _MARKS.get(figure.provenance or "", "") + humanise(figure.value, unit) + partial


@dataclass(frozen=True, slots=True)
class TimeRow:
    """A time in the base, in the other, and their difference."""

    label: str
    cells: tuple[str, str, str]
    mover: bool = False
    """Whether it is a component of the part above it."""


def part_rows(versus: Versus, *, every: bool = False) -> Iterator[TimeRow]:
    """The parts of the step, each followed by its largest changes, or all of them with `every`."""
    for change in versus.changes:
        times = ((versus.base, change.before_s), (versus.other, change.after_s))
        before, after = ("n/a" if letter in change.unknown_for else humanise(s, "s") for letter, s in times)
        yield TimeRow(PARTS[change.part], (before, after, signed_seconds(change.change_ns / 1e9)))
        for mover in change.movers if every else leading_movers(change, versus):
            plain = mover.dimension in ("category", "collective")
            label = mover.name if plain else f"{mover.dimension} {mover.name}"
            yield TimeRow(label, _time_cells(mover.before_s, mover.after_s, mover.change_s), mover=True)


def step_totals(versus: Versus) -> tuple[str, str, str]:
    """The sums over the parts, and of their differences."""
    before, after = (sum(getattr(c, when) for c in versus.changes) for when in ("before_s", "after_s"))
    return _time_cells(before, after, (versus.change_ns or 0) / 1e9)


def _time_cells(before_s: float, after_s: float, change_s: float) -> tuple[str, str, str]:
    return humanise(before_s, "s"), humanise(after_s, "s"), signed_seconds(change_s)


@dataclass(frozen=True, slots=True)
class WorkRow:
    """An operator, a module or the rest of them: times, difference, shares of the roofline."""

    label: str
    cells: tuple[str, str, str]
    change_ns: int
    roofline: tuple[str, str] = ("", "")
    """Roofline time on each subject's accelerator."""
    reached: tuple[str, str] = ("", "")
    kind: Literal["work", "shapes", "more shapes", "rest"] = "work"
    """`shapes` and `more shapes` belong to the operator above them."""


def work_rows(changes: Sequence[WorkChange], most: int) -> Iterator[WorkRow]:
    """The largest changes, each followed by those of its shapes; then the sum of the others."""
    for change in changes[:most]:
        yield work_row(change)
        for shape in change.shapes[:MOST_SHAPES]:
            yield replace(work_row(shape), kind="shapes")
        if more := remaining_works(change.shapes, MOST_SHAPES):
            yield replace(more, kind="more shapes")
    if rest := remaining_works(changes, most):
        yield rest


def work_row(change: WorkChange) -> WorkRow:
    """A change as text cells; 0 s for a subject without this work."""
    sides = (change.before, change.after)
    before, after = (side.time_s if side else 0.0 for side in sides)
    least = [side.roofline_s if side else None for side in sides]
    reached = [side.reached if side else None for side in sides]
    return WorkRow(
        label=f"{change.name} / {change.other_name}" if change.other_name else change.name,
        cells=_time_cells(before, after, change.change_ns / 1e9),
        change_ns=change.change_ns,
        roofline=(_optional_cell(least[0], "s"), _optional_cell(least[1], "s")),
        reached=(_optional_cell(reached[0], "1"), _optional_cell(reached[1], "1")),
    )


def _optional_cell(value: float | None, unit: str) -> str:
    return "" if value is None else humanise(value, unit)


def has_roofline(changes: Sequence[WorkChange]) -> bool:
    """Whether the roofline time of any is known."""
    return any(
        side and side.roofline_s is not None for change in changes for side in (change.before, change.after)
    )


def remaining_works(changes: Sequence[WorkChange], most: int) -> WorkRow | None:
    """The sum of all after the first `most`; None if there are none."""
    rest = changes[most:]
    if not rest:
        return None
    before, after = (
        sum(side.time_s for change in rest if (side := getattr(change, when))) for when in ("before", "after")
    )
    change_ns = sum(change.change_ns for change in rest)
    label = f"{len(rest):,} other{'s'[: len(rest) != 1]}"
    return WorkRow(label, _time_cells(before, after, change_ns / 1e9), change_ns, kind="rest")


def work_totals(difference: WorkDifference) -> tuple[str, str, str]:
    """The total device time, and its difference."""
    return _time_cells(difference.before_s, difference.after_s, difference.change_ns / 1e9)


def family_rows(difference: WorkDifference) -> list[WorkRow]:
    """Each family of equal work, largest change first, and the unmatched work; empty without equal work."""
    matched = difference.matched
    if matched is None or not matched.families:
        return []
    rows = [
        WorkRow(
            family.family,
            _time_cells(family.before_ns / 1e9, family.after_ns / 1e9, family.change_ns / 1e9),
            family.change_ns,
            reached=(_optional_cell(family.before_reached, "1"), _optional_cell(family.after_reached, "1")),
        )
        for family in matched.families
    ]
    before, after = map(matched.unmatched_ns, (difference.base, difference.other))
    cells = _time_cells(before / 1e9, after / 1e9, (after - before) / 1e9)
    return rows + [WorkRow("unmatched", cells, after - before, kind="rest")] * bool(before or after)


def unmatched_notes(difference: WorkDifference) -> list[str]:
    """`unmatched in B: aten::fill_(int[1]), 24 calls, 108 µs: A has no call of equal work`, largest first."""
    matched = difference.matched
    if matched is None or not matched.families:
        return []
    totals = {difference.base: matched.before_ns, difference.other: matched.after_ns}
    notable = [work for work in matched.unmatched if work.time_ns >= _LEAST_NOTABLE * totals[work.subject]]
    return [
        f"unmatched in {work.subject}: {shorten_middle(work.name, _LONGEST_KERNEL)},"
        f" {humanise(work.calls, 'count')} calls, {humanise(work.time_ns / 1e9, 's')}: {work.reason}"
        for work in notable[:_MOST_KERNELS]
    ]


@dataclass(frozen=True, slots=True)
class ReplacedRow:
    """Calls of the base against those of the other in their place, or the sum of several such rows."""

    label: str
    """Phase and module."""
    calls: tuple[str, str]
    """`32 × aten::mul, 8 × aten::cat` of the base and of the other; empty of a sum."""
    cells: tuple[str, str, str]
    change_ns: int


def replaced_rows(difference: WorkDifference, most: int) -> list[ReplacedRow]:
    """The largest changes of calls that differ, the sum of the others, and that of equal calls.

    Empty where all calls are equal, or none could be aligned.
    """
    unequal = [replacement for replacement in difference.replaced if not replacement.is_equal]
    if not unequal or len(difference.replaced) == 1:
        return []
    rows = [
        ReplacedRow(
            " ".join(filter(None, (replacement.phase, replacement.module))) or "several phases",
            (_call_words(replacement.before), _call_words(replacement.after)),
            _time_cells(replacement.before_s, replacement.after_s, replacement.change_ns / 1e9),
            replacement.change_ns,
        )
        for replacement in unequal[:most]
    ]
    others, equal = (
        unequal[most:],
        [replacement for replacement in difference.replaced if replacement.is_equal],
    )
    sums = ((f"{len(others):,} other{'s'[: len(others) != 1]}", others), ("equal calls", equal))
    return rows + [_replaced_sum(label, changes) for label, changes in sums if changes]


def _replaced_sum(label: str, changes: Sequence[ReplacedCalls]) -> ReplacedRow:
    before, after, ns = (
        sum(getattr(change, name) for change in changes) for name in ("before_s", "after_s", "change_ns")
    )
    return ReplacedRow(label, ("", ""), _time_cells(before, after, ns / 1e9), ns)


def _call_words(calls: Sequence[CallCount]) -> str:
    """`32 × aten::mul, 8 × aten::cat and 3 more`; `none` without calls."""
    words = [
        f"{humanise(call.calls, 'count')} × {shorten_middle(safe_text(call.name), _LONGEST_CALL)}"
        for call in calls[:_MOST_CALLS]
    ]
    rest = len(calls) - len(words)
    return (", ".join(words) or "none") + (f" and {rest} more" if rest else "")


def match_notes(difference: WorkDifference) -> list[str]:
    """`aten::mm of A and aten::linear of B are matched by ...`, for operators of different names."""
    return [
        f"{shorten_middle(operator.name, _LONGEST)} of {difference.base} and"
        f" {shorten_middle(operator.other_name, _LONGEST)} of {difference.other} are matched by cost model"
        " and FLOPs"
        for operator in difference.operators
        if operator.other_name
    ]


def kernel_notes(difference: WorkDifference) -> list[str]:
    """`aten::mm(...) runs x in A and y in B: 1 ms to 2 ms a step (+1 ms)`, largest change first."""
    notes = []
    for work in difference.kernels[:_MOST_KERNELS]:
        a, b = (_kernel_words(kernels) for kernels in (work.before, work.after))
        before, after, change = _time_cells(work.before_s, work.after_s, work.change_ns / 1e9)
        notes.append(
            f"{shorten_middle(work.name, _LONGEST)} runs {a} in {difference.base} and {b} in"
            f" {difference.other}: {before} to {after} a step ({change})"
        )
    rest = len(difference.kernels) - len(notes)
    return notes + ([f"{rest:,} more calls with the same shapes run other kernels: --json"] if rest else [])


def _kernel_words(kernels: Sequence[str]) -> str:
    """The first kernel's name and the number of others."""
    if not kernels:
        return "no other kernel"
    others = f" and {len(kernels) - 1} more" if len(kernels) > 1 else ""
    return shorten_name(kernel_label(kernels[0]), _LONGEST_KERNEL) + others


def metric_rows(comparison: Comparison, lines: Sequence[Line]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each line's metric, its figure for each subject, and the ratio of each further one to the first."""
    for line in lines:
        ratios = (figure_ratio(line, versus.base, versus.other) for versus in comparison.versus)
        figures = [figure_cell(line.figures[subject.letter], line.unit) for subject in comparison.subjects]
        yield line.metric, figures, ["" if r is None else humanise(r, "ratio") for r in ratios]


def ratio_titles(comparison: Comparison) -> list[str]:
    """Headings of the ratios of `metric_rows`."""
    return [f"{versus.other}/{versus.base}" for versus in comparison.versus]


def card_rows(comparison: Comparison) -> Iterator[tuple[str, list[str | None]]]:
    """Each field in which cards differ, with each subject's value; None if its card lacks the field."""
    for card in comparison.cards:
        values = (card.values[subject.letter] for subject in comparison.subjects)
        yield card.field, [None if value is None else quoted_value(value) for value in values]


def has_marks(lines: Sequence[Line]) -> bool:
    """Whether any figure of the lines is marked."""
    figures = [figure for line in lines for figure in line.figures.values()]
    return any(figure.provenance in _MARKS or figure.status == "partial" for figure in figures)


def figure_ratio(line: Line, base: str, other: str) -> float | None:
    """The other's figure over the base's; None if either is missing, zero or partial."""
    figures = [line.figures[letter] for letter in (base, other)]
    before, after = (figure.value if figure.status == "ok" else None for figure in figures)
    return after / before if before and after else None


def most_different(comparison: Comparison) -> list[Line]:
    """The lines with different figures: key figures by importance, then by the largest ratio to the first."""
    order = {metric: place for place, metric in enumerate(KEY_METRICS)}

    def log_distance(line: Line) -> float:
        ratios = (figure_ratio(line, versus.base, versus.other) for versus in comparison.versus)
        return max((abs(math.log(r)) for r in ratios if r is not None and r > 0), default=-1.0)

    lines = [line for line in comparison.lines if _is_different(line)]
    place = {line.metric: order.get(MetricName(line.metric), len(order)) for line in lines}
    return sorted(lines, key=lambda line: (place[line.metric], -log_distance(line), line.metric))


def _is_different(line: Line) -> bool:
    """Whether any two figures differ as shown."""
    figures = [figure for figure in line.figures.values() if figure.value is not None]
    return bool(figures) and len({figure_cell(figure, line.unit) for figure in line.figures.values()}) > 1


def leading_movers(change: PartChange, versus: Versus) -> list[PartMover]:
    """The largest changes in a part by category or collective: at most three, without small ones."""
    largest = max((abs(part.change_ns) for part in versus.changes), default=0) / 1e9
    kinds = [m for m in change.movers if m.dimension in ("category", "collective")]
    return [m for m in kinds if abs(m.change_s) >= _LEAST_NOTABLE * largest > 0][:_MOST_MOVERS]
