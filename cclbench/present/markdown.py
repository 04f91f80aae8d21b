# SPDX-License-Identifier: Apache-2.0
"""A comparison as Markdown, fit for a comment on a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cclbench.analyzers.step_parts import PARTS
from cclbench.compare import shown
from cclbench.compare.comparison import Comparison, Line, Mover, Versus
from cclbench.compare.verdict import signed
from cclbench.problem import as_markdown as _text
from cclbench.problem import shown as value_shown
from cclbench.units import humanise


def markdown(comparison: Comparison) -> str:
    """Verdicts, checks, warnings, the parts of each difference, cards and metrics; ends with a line break.

    What strangers wrote is escaped: it neither formats, nor links, nor mentions anybody.
    """
    return "\n".join(_lines(comparison)) + "\n"


def _lines(comparison: Comparison) -> Iterator[str]:
    for one in comparison.versus:
        yield f"**{_text(one.words)}**" if one.outcome == "not comparable" else _text(one.words)
        yield ""
    if comparison.checks:
        for check in comparison.checks:
            mark = check.outcome if check.passed else f"**{check.outcome}**"
            yield f"- {mark}: {_code(check.expression)}: {_text(check.reason)}"
        yield ""
    if comparison.warnings:
        yield from (f"> - {_text(warning)}" for warning in comparison.warnings)
        yield ""
    yield from _table(
        ["", "run", "what"],
        [[s.letter, _code(s.id), _text(shown.headline(s))] for s in comparison.subjects],
    )
    for one in comparison.versus:
        if one.changes:
            yield from ["", *_parts(one)]
    if comparison.cards:
        yield from ["", "**Cards**", ""]
        letters = [s.letter for s in comparison.subjects]
        rows = [
            [
                _code(c.field),
                *(_code(value_shown(c.values[x])) if c.values[x] is not None else "" for x in letters),
            ]
            for c in comparison.cards
        ]
        yield from _table(["field", *letters], rows)
    lines = shown.most_different(comparison)
    if lines:
        yield from ["", "<details><summary>Metrics, most different first</summary>", ""]
        yield from _metrics(comparison, lines)
        yield from ["", "</details>"]


def _parts(one: Versus) -> Iterator[str]:
    before, after = (sum(getattr(c, when) for c in one.changes) for when in ("before_s", "after_s"))
    rows: list[list[str]] = []
    for change in one.changes:
        rows.append([PARTS[change.part], *shown.seconds(change, one), signed(change.change_ns / 1e9)])
        rows += [_mover(mover) for mover in shown.leading(change, one)]
    whole = [humanise(before, "s"), humanise(after, "s"), signed((one.change_ns or 0) / 1e9)]
    rows.append([f"**{cell}**" for cell in ("step", *whole)])
    yield from _table(["part of the step", one.base, one.other, "difference"], rows, numbers=True)


def _mover(mover: Mover) -> list[str]:
    figures = [humanise(mover.before_s, "s"), humanise(mover.after_s, "s"), signed(mover.change_s)]
    return [f"&nbsp;&nbsp;{_text(mover.name)}", *figures]


def _metrics(comparison: Comparison, lines: Sequence[Line]) -> Iterator[str]:
    letters = [s.letter for s in comparison.subjects]
    ratios = [f"{one.other}/{one.base}" for one in comparison.versus]
    rows = []
    for line in lines:
        of_each = [shown.ratio(line, one.base, one.other) for one in comparison.versus]
        rows.append(
            [
                _code(line.metric),
                *(_text(shown.cell(line.figures[letter], line.unit)) for letter in letters),
                *("" if r is None else humanise(r, "ratio") for r in of_each),
            ]
        )
    yield from _table(["metric", *letters, *ratios], rows, numbers=True)
    if shown.marked(lines):
        yield from ["", _text(shown.MARKS)]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "| --- |" + (" ---: |" if numbers else " --- |") * (len(head) - 1)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _code(text: str) -> str:
    """A name as code: nothing in it formats."""
    return "`" + shown.safe(text).replace("`", "'").replace("|", "\\|") + "`"
