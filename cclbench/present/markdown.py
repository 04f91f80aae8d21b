# SPDX-License-Identifier: Apache-2.0
"""A comparison as Markdown, for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cclbench.comparison.comparison import Comparison, Line, Versus, WorkDifference
from cclbench.ground.text import as_markdown as _text
from cclbench.ground.text import markdown_table
from cclbench.present import sections
from cclbench.present.figure_tables import comparison_cells, comparison_heads
from cclbench.present.sections import WorkRow

_MOST_WORKS: Final = 12
_MOST_ROWS: Final = 40
"""Most rows of a table of sources without device steps."""


def comparison_markdown(comparison: Comparison) -> str:
    """Verdicts, checks, warnings, the parts of each difference, cards and metrics; ends with a line break.

    Texts from inputs are escaped: they cannot format, link or mention anybody.
    """
    return "\n".join(_markdown_lines(comparison)) + "\n"


def _markdown_lines(comparison: Comparison) -> Iterator[str]:
    for versus in comparison.versus:
        yield f"**{_text(versus.words)}**" if versus.outcome == "not comparable" else _text(versus.words)
        yield ""
    if comparison.checks:
        for check in comparison.checks:
            mark = check.outcome if check.is_passed else f"**{check.outcome}**"
            yield f"- {mark}: {_as_code(check.expression)}: {_text(check.reason)}"
        yield ""
    if comparison.warnings:
        yield from (f"> - {_text(warning)}" for warning in comparison.warnings)
        yield ""
    yield from markdown_table(
        ["", "run", "what"],
        [
            [
                s.letter,
                ", ".join(_as_code(capture.id) for capture in s.each_capture),
                _text(sections.subject_headline(s)),
            ]
            for s in comparison.subjects
        ],
    )
    for table in comparison.tables:
        if cells := comparison_cells(table, _MOST_ROWS):
            yield from ["", f"**{_text(table.title)}**", ""]
            heads = [_text(name) for name, _ in comparison_heads(table)]
            yield from markdown_table(heads, [list(map(_text, row)) for row in cells], numbers=True)
    for versus in comparison.versus:
        if versus.changes:
            yield from ["", *_part_lines(versus)]
    for difference in comparison.operators:
        yield from _work_lines(difference)
    if comparison.cards:
        yield from ["", "**Cards**", ""]
        letters = [s.letter for s in comparison.subjects]
        rows = [
            [_as_code(field), *(_as_code(value) if value else "" for value in values)]
            for field, values in sections.card_rows(comparison)
        ]
        yield from markdown_table(["field", *letters], rows)
    lines = sections.most_different(comparison)
    if lines:
        yield from ["", "<details><summary>Metrics, most different first</summary>", ""]
        yield from _metric_lines(comparison, lines)
        yield from ["", "</details>"]


def _part_lines(versus: Versus) -> Iterator[str]:
    rows = [
        [f"&nbsp;&nbsp;{_text(row.label)}" if row.mover else row.label, *row.cells]
        for row in sections.part_rows(versus)
    ]
    rows.append([f"**{cell}**" for cell in ("step", *sections.step_totals(versus))])
    yield from markdown_table(
        ["part of the step", versus.base, versus.other, "difference"], rows, numbers=True
    )


def _work_lines(difference: WorkDifference) -> Iterator[str]:
    pair = difference.base, difference.other
    yield from ["", f"<details><summary>{sections.WORKS}</summary>"]
    if families := sections.family_rows(difference):
        rows = [[row.label, *row.cells, *row.reached] for row in families]
        rows.append([*(f"**{cell}**" for cell in ("all", *sections.work_totals(difference))), "", ""])
        heads = ["equal work", *pair, "difference", *(f"of the roofline of {letter}" for letter in pair)]
        yield from ["", *markdown_table(heads, rows, numbers=True)]
    for what, changes in (("operator", difference.operators), ("module", difference.modules)):
        if not changes:
            continue
        has_rooflines = sections.has_roofline(changes)
        rows = [
            [
                _work_label(row),
                *row.cells,
                *(map(_roofline_words, row.roofline, row.reached) if has_rooflines else ()),
            ]
            for row in sections.work_rows(changes, _MOST_WORKS)
        ]
        rows.append(
            [
                *(f"**{cell}**" for cell in ("all", *sections.work_totals(difference))),
                *[""] * (2 * has_rooflines),
            ]
        )
        roofs = [f"roofline of {letter} (reached)" for letter in pair if has_rooflines]
        heads = [what, *pair, "difference", *roofs]
        yield from ["", *markdown_table(heads, rows, numbers=True)]
    if replaced := sections.replaced_rows(difference, _MOST_WORKS):
        rows = [
            [_text(f"{row.label}: {' | '.join(row.calls)}" if all(row.calls) else row.label), *row.cells]
            for row in replaced
        ]
        rows.append([f"**{cell}**" for cell in ("all", *sections.work_totals(difference))])
        heads = [f"in place of each other: {pair[0]} | {pair[1]}", *pair, "difference"]
        yield from ["", *markdown_table(heads, rows, numbers=True)]
    notes = (sections.unmatched_notes, sections.match_notes, sections.kernel_notes)
    for line in (note for notes_of in notes for note in notes_of(difference)):
        yield from ["", _text(line)]
    yield from ["", "</details>"]


def _roofline_words(roofline: str, reached: str) -> str:
    return f"{roofline} ({reached})" if roofline else ""


def _work_label(row: WorkRow) -> str:
    label = row.label if row.kind in ("rest", "more shapes") else _as_code(row.label)
    return f"&nbsp;&nbsp;{label}" if row.kind.endswith("shapes") else label


def _metric_lines(comparison: Comparison, lines: Sequence[Line]) -> Iterator[str]:
    rows = [
        [_as_code(metric), *map(_text, figures), *ratios]
        for metric, figures, ratios in sections.metric_rows(comparison, lines)
    ]
    heads = ["metric", *(s.letter for s in comparison.subjects), *sections.ratio_titles(comparison)]
    yield from markdown_table(heads, rows, numbers=True)
    if sections.has_marks(lines):
        yield from ["", _text(sections.MARKS)]


def _as_code(text: str) -> str:
    """A name as inline code, escaped."""
    return "`" + sections.safe_text(text).replace("`", "'").replace("|", "\\|") + "`"
