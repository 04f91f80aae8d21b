# SPDX-License-Identifier: Apache-2.0
"""A comparison on a terminal: verdict, parts of the difference, most different metrics; 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from cclbench.comparison.comparison import Comparison, GateCheck, Versus, WorkDifference
from cclbench.ground.text import printable, shorten_middle
from cclbench.present import sections
from cclbench.present.charts.palette import LONGER, SHORTER, light_colour
from cclbench.present.terminal import QUIET, VERBOSE
from cclbench.present.terminal.output import labelled_table, titled_bullets
from cclbench.present.terminal.source_summaries import compared_table_lines

_LABEL: Final = 25
_BAR: Final = 21
_MOST_WORKS: Final = 5
_NOTHING: Final = ("0 s", "0 s", "0 s")
"""Cells of a part that neither has."""


def terminal_page(
    comparison: Comparison, *, verbosity: int = 0, unicode: bool = True
) -> list[RenderableType]:
    """The comparison for a terminal; quiet: only verdicts and checks."""
    verbose = verbosity >= VERBOSE
    verdicts: list[RenderableType] = [Text(printable(versus.words)) for versus in comparison.versus]
    checks = [_check_line(check) for check in comparison.checks]
    if verbosity <= QUIET:
        return [*verdicts, *checks]
    parts: list[RenderableType] = [_subject_table(comparison)]
    for words in verdicts:
        parts += [Text(), words]
    parts += titled_bullets("Checks", checks)
    parts += titled_bullets("Warnings", [Text(printable(warning)) for warning in comparison.warnings])
    firsts = [
        (subject.letter, words)
        for subject in comparison.subjects
        for words in sections.foremost_finding(subject)
    ]
    if firsts:
        rows = ((letter, Text(words)) for letter, words in firsts)
        parts += [Text(), Text("First finding of each", "bold"), labelled_table(rows)]
    for table in comparison.tables:
        parts += compared_table_lines(table, None if verbose else sections.MOST_LINES)
    for versus in comparison.versus:
        if versus.changes:
            parts += [Text(), Group(*_waterfall_lines(versus, unicode=unicode, verbose=verbose))]
    for difference in comparison.operators:
        parts += [Text(), Group(*_work_lines(difference, verbose=verbose))]
    if comparison.cards:
        parts += [Text(), Text("Cards differ in", "bold"), _card_differences(comparison)]
    return [
        *parts,
        *([] if comparison.tables and not verbose else _metric_tables(comparison, verbose=verbose)),
    ]


def _subject_table(comparison: Comparison) -> Table:
    return labelled_table(
        row
        for subject in comparison.subjects
        for row in (
            (subject.letter, Text(sections.capture_names(subject))),
            ("", Text(sections.subject_headline(subject), "dim")),
        )
    )


def _check_line(check: GateCheck) -> Text:
    line = Text("passed", "") if check.is_passed else Text(check.outcome.upper(), "bold red")
    return line.append(f"  {printable(check.expression)}: {printable(check.reason)}", "default")


def _waterfall_lines(versus: Versus, *, unicode: bool, verbose: bool) -> Iterator[Text]:
    """A line for each part: before, after, change, and the change as a waterfall bar."""
    title = f"From {versus.base} to {versus.other}, part by part"
    yield Text(f"{title:<{_LABEL}}{versus.base:>9}{versus.other:>10}{'difference':>12}", "bold")
    ends = [0.0, *accumulate(change.change_ns for change in versus.changes)]
    low, high = min(ends), max(ends)
    bars = (_change_bar(begin, end, low, high, unicode) for begin, end in pairwise(ends))
    for row in sections.part_rows(versus, every=verbose):
        if row.mover:
            yield _time_line(f"    {row.label}", row.cells, "dim")
            continue
        bar = next(bars)
        if row.cells != _NOTHING:
            yield _time_line(f"  {row.label}", row.cells).append_text(bar)
    yield _time_line("  total", sections.step_totals(versus))
    if low < high:
        longer, shorter = (glyphs[not unicode] for _, glyphs in (LONGER, SHORTER))
        yield Text(f"  {longer} longer   {shorter} shorter in {versus.other}", "dim")


def _work_lines(difference: WorkDifference, *, verbose: bool) -> Iterator[RenderableType]:
    """A line for each operator and module: before, after, change, shares of each roofline."""
    pair = difference.base, difference.other
    yield Text(sections.WORKS, "bold")
    if families := sections.family_rows(difference):
        yield _work_head(
            "equal work, by family", pair, has_roofline=any(map(any, (row.reached for row in families)))
        )
        for row in families:
            yield _time_line(f"  {row.label}", row.cells).append(
                "".join(f"{cell:>12}" for cell in row.reached)
            )
        yield _time_line("  all", sections.work_totals(difference))
    for what, changes in (("operator", difference.operators), ("module", difference.modules)):
        if not changes:
            continue
        has_roofline = sections.has_roofline(changes)
        yield _work_head(f"by {what}", pair, has_roofline=has_roofline)
        for row in sections.work_rows(changes, len(changes) if verbose else _MOST_WORKS):
            part = row.kind.endswith("shapes")
            if verbose or not part:
                line = _time_line(f"{'    ' if part else '  '}{row.label}", row.cells)
                yield line.append(f"{row.reached[0]:>12}{row.reached[1]:>12}") if has_roofline else line
        yield _time_line("  all", sections.work_totals(difference))
    yield from _replaced_lines(difference, len(difference.replaced) if verbose else _MOST_WORKS)
    notes = [
        *(sections.unmatched_notes(difference) if verbose else ()),
        *sections.match_notes(difference),
        *sections.kernel_notes(difference),
    ]
    yield from (Text(f"  {sections.safe_text(note)}", "dim") for note in notes)


def _work_head(title: str, pair: tuple[str, str], *, has_roofline: bool = False) -> Text:
    """The heading of a block of times; `has_roofline`: with the shares of each roofline."""
    roofs = [f"of {letter}'s roof" for letter in pair if has_roofline]
    ends = "".join(f"{roof:>12}" for roof in roofs)
    return Text(f"  {title:<{_LABEL - 2}}{pair[0]:>9}{pair[1]:>10}{'difference':>12}{ends}", "bold")


def _replaced_lines(difference: WorkDifference, most: int) -> Iterator[RenderableType]:
    """A line for each place with other calls: before, after, change; below it the calls of each subject."""
    rows = sections.replaced_rows(difference, most)
    if not rows:
        return
    pair = difference.base, difference.other
    yield _work_head("in place of each other", pair)
    for row in rows:
        yield _time_line(f"  {_inner_place(row.label, _LABEL - 3)}", row.cells)
        for letter, calls in zip(pair, row.calls, strict=True):
            if calls:
                yield Padding(Text(f"{letter}: {calls}", "dim"), (0, 0, 0, 4))
    yield _time_line("  all", sections.work_totals(difference))


def _inner_place(place: str, width: int) -> str:
    """`backward Attention_*` for `backward Llama_*/Layer_*/Attention_*`: as many inner modules as fit."""
    head, blank, path = place.rpartition(" ")
    while len(place) > width and "/" in path:
        path = path.partition("/")[2]
        place = f"{head}{blank}{path}"
    return place


def _time_line(label: str, cells: tuple[str, str, str], style: str = "") -> Text:
    label = shorten_middle(sections.safe_text(label), _LABEL - 1)
    before, after, change = cells
    return Text(f"{label:<{_LABEL}}{before:>9} {after:>9} {change:>11}", style)


def _change_bar(begin: float, end: float, low: float, high: float, unicode: bool) -> Text:
    if low == high:
        return Text()
    first, last = (round(_BAR * (at - low) / (high - low)) for at in sorted((begin, end)))
    colour, glyphs = LONGER if end > begin else SHORTER
    cells = max(last - first, 1) if end != begin else 0
    return Text(f"  {' ' * min(first, _BAR - cells)}").append(
        glyphs[not unicode] * cells, light_colour(colour)
    )


def _card_differences(comparison: Comparison) -> Padding:
    table = Table.grid(padding=(0, 2))
    table.add_row("", *(Text(subject.letter, "bold") for subject in comparison.subjects))
    for field, values in sections.card_rows(comparison):
        table.add_row(Text(sections.safe_text(field)), *(Text(value or "-") for value in values))
    return Padding(table, (0, 0, 0, 2))


def _metric_tables(comparison: Comparison, *, verbose: bool) -> Iterator[RenderableType]:
    """The most different lines, or all; a column for each subject, and the ratio if there are two."""
    lines = sections.most_different(comparison)
    shown_lines = lines if verbose else lines[: sections.MOST_LINES]
    if not shown_lines:
        return
    yield Text()
    yield Text("Metrics that differ, most important first", "bold")
    ratios = sections.ratio_titles(comparison) if len(comparison.subjects) == 2 else []
    table = Table.grid(Column(overflow="fold"), padding=(0, 2))
    heads = [*(subject.letter for subject in comparison.subjects), *ratios]
    for _ in heads:
        table.add_column(justify="right", no_wrap=True)
    table.add_row("", *(Text(head, "bold") for head in heads))
    for metric, figures, quotients in sections.metric_rows(comparison, shown_lines):
        cells = [*map(Text, figures), *(Text(ratio, "dim") for ratio in quotients[: len(ratios)])]
        table.add_row(Text(sections.safe_text(metric)), *cells)
    yield Padding(table, (0, 0, 0, 2))
    if sections.has_marks(shown_lines):
        yield Text(f"  {sections.MARKS}", "dim")
    if len(shown_lines) < len(lines):
        yield Text(f"  ... {len(lines) - len(shown_lines)} more: -v or --json", "dim")
