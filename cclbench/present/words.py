# SPDX-License-Identifier: Apache-2.0
"""Texts of a page: texts from inputs made safe and bounded, numbers with their provenance."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from markupsafe import Markup, escape

from cclbench.analyzers.metric import METRICS
from cclbench.ground.text import printable, shorten_middle
from cclbench.ground.units import humanise
from cclbench.record.rows import Row

if TYPE_CHECKING:
    from cclbench.analyzers.view.operator_rows import OperatorRow
    from cclbench.findings.finding import Finding

LONGEST: Final = 2000
LONGEST_NAME: Final = 200
FITS: Final = 62
"""Characters of a name that fit a table; a longer one is cut in the middle."""
_TAIL: Final = 24
NOTHING: Final = "no cause was found that would gain 1 % of the time"
"""Text if no finding has a gain."""
_REPEATED: Final = re.compile(r"(?<![\w\]])((?:[\w ]+ x )?[\w ]*\[[\d,]*\])(?:, \1(?!\[))+")
_ALSO: Final = ("rank", "step", "group", "collective", "category", "stat")


def bound_text(text: str, most: int = LONGEST, *, length: int = 0) -> str:
    """`text` without control characters, cut after `most` characters with a note of its length.

    `length` is the full length if `text` is only the beginning.
    """
    full_length = max(length, len(text))
    cut = f"… (cut, {full_length:,} characters)" if full_length > most else ""
    return printable(text[:most]) + cut


def name_markup(text: str, length: int = 0, label: str | None = None) -> Markup:
    """A name that may be long or right-to-left: isolated, or its `label`, with its text on hover.

    If it does not fit a table, it is cut between head and tail.
    """
    full_text = bound_text(text, LONGEST_NAME, length=length)
    shown = shorten_middle(printable(label or text), LONGEST_NAME)
    if full_text == shown and len(shown) <= FITS and shown.isascii():
        return Markup('<bdi class="name">{}</bdi>').format(shown)
    if len(shown) <= FITS:
        return Markup('<bdi class="name" title="{}">{}</bdi>').format(full_text, shown)
    parts = Markup("<span>{}</span><span>{}</span>").format(shown[:-_TAIL], shown[-_TAIL:])
    return Markup('<bdi class="name" title="{}">{}</bdi>').format(full_text, parts)


def breakable_name(metric: str) -> Markup:
    """A metric's name that may break after a dot or an underscore."""
    return Markup(str(escape(bound_text(metric))).replace(".", ".<wbr>").replace("_", "_<wbr>"))  # noqa: S704 - escaped


def prose_markup(text: str) -> Markup:
    """A text whose `commands` stand in backticks, as HTML."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(bound_text(text)))))  # noqa: S704 - escaped


def hover_attribute(*lines: str | None) -> Markup:
    """A `title` attribute of the non-empty lines."""
    text = "\n".join(bound_text(line) for line in lines if line)
    return Markup(' title="{}"').format(text)


def row_description(row: Row, *, defined: bool = True) -> tuple[str, ...]:
    """Description of a result row: value, scope, provenance, definition, reason.

    A part's is without the definition, which its metric has, as is that of a number beside its metric's name.
    """
    about = (
        ", ".join(f"{key} {value}" for key in _ALSO if (value := getattr(row, key)) is not None)
        or "the whole run"
    )
    exact = "no number" if row.value is None else f"{row.value!r} {row.unit}"
    origin = [row.provenance or row.status.replace("_", " "), f"window: {row.window}"]
    if row.status == "partial":
        origin.append(partial_words(row))
    if row.source:
        origin.append(f"source: {row.source}")
    origin.append(f"definition version {row.version}")
    return (
        f"{row.metric} = {exact}",
        about,
        "; ".join(origin),
        metric_definition(row.metric) if defined and not row.narrowed else "",
        row.reason or "",
    )


def partial_words(row: Row) -> str:
    """`partial: 1.4 % of the rows, 12 % of their time`."""
    time = f", {humanise(row.coverage_time, '1')} of their time" if row.coverage_time is not None else ""
    return f"partial: {humanise(row.coverage or 0.0, '1')} of the rows{time}"


@cache
def metric_definition(metric: str) -> str:
    """The definition of a metric, without a suffix such as `[stat=p50]`; empty for an unknown one."""
    name = metric.partition("[")[0]
    return METRICS.get(name).definition if name in METRICS else ""


def number_markup(row: Row, *, defined: bool = True) -> Markup:
    """A result row's number with its description on hover; modelled and published ones are marked."""
    if not row.has_value:
        return missing_markup(
            "failed" if row.status == "failed" else "n/a", *row_description(row, defined=defined)
        )
    return quantity_markup(row.number, row.unit, row.provenance, *row_description(row, defined=defined))


def missing_markup(word: str, *lines: str | None) -> Markup:
    """Placeholder for a missing number, with hover text."""
    return Markup('<span class="none"{}>{}</span>').format(hover_attribute(*lines), word)


def quantity_markup(value: float, unit: str, provenance: str | None, *lines: str | None) -> Markup:
    """A number for display, with its provenance as class, and hover text."""
    marked = provenance if provenance in ("derived", "modelled", "published") else "measured"
    text = ("~" if marked == "modelled" else "") + humanise(value, unit)
    return Markup('<span class="n {}"{}>{}</span>').format(marked, hover_attribute(*lines), text)


def joined_operands(shapes: str) -> str:
    """Equal operands that follow one another as one: `bf16[16,64] ×3, fp32[16]`."""
    return _REPEATED.sub(lambda match: f"{match[1]} ×{match[0].count(match[1])}", shapes)


def operator_markup(row: OperatorRow) -> Markup:
    """The operator of a row, and below it the shapes."""
    operator, shapes = row.operator_and_shapes
    below = (
        Markup('<div class="shapes">{}</div>').format(name_markup(joined_operands(shapes)))
        if shapes
        else Markup("")
    )
    return name_markup(operator) + below


def gain_words(finding: Finding) -> str:
    """`gain: 3.2 % to 9.8 % of the step (10.2 ms to 31.1 ms)`, or why it is unknown."""
    if finding.gain_s is None or finding.gain_share is None:
        return f"gain unknown: {bound_text(finding.no_gain)}" if finding.no_gain else "no time to gain"
    least, most = finding.gain_s
    of_step = finding.gain_share / most if most else 0.0
    if least and humanise(least, "s") == humanise(most, "s"):
        return f"gain: {humanise(finding.gain_share, '1')} of the {finding.window} ({humanise(most, 's')})"
    if not least:
        return (
            f"gain: at most {humanise(finding.gain_share, '1')} of the {finding.window}"
            f" ({humanise(most, 's')})"
        )
    shares = f"{humanise(least * of_step, '1')} to {humanise(finding.gain_share, '1')}"
    return f"gain: {shares} of the {finding.window} ({humanise(least, 's')} to {humanise(most, 's')})"
