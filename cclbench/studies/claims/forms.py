# SPDX-License-Identifier: Apache-2.0
"""Claims in every form: the terminal's page, Markdown, the claims.v1 document, rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from cclbench.present.terminal import QUIET, VERBOSE
from cclbench.present.terminal.output import bullets, grid
from cclbench.studies.claims import UNITS, Claim, Examined
from cclbench.studies.claims.claim import grouped
from cclbench.text import as_markdown, markdown_table, printable
from cclbench.units import humanise

Line = Mapping[str, Any]

_SUMMARY: Final[Mapping[str, Sequence[str]]] = {
    "overlap": ("hardware", "model", "batch", "pairs", "longer", "shorter", "neither"),
    "bandwidth": ("accelerator", "phase", "runs", "told", "least", "median", "most"),
    "frameworks": ("framework", "model", "batch", "step", "tokens/s/device", "behind"),
}
_ROWS: Final[Mapping[str, Sequence[str]]] = {
    "overlap": ("hardware", "model", "step", "more overlap", "less overlap"),
    "bandwidth": ("hardware", "model", "phase", "plan", "gain", "provenance"),
    "frameworks": ("hardware", "framework", "model", "batch", "plan", "step", "tokens/s/device"),
}
"""Titles of the tables' columns: those of a claim's lines, or of `_MADE`."""


def _value(line: Line, column: str) -> Any:
    """The column's value, humanised where it has a unit."""
    unit = UNITS.get(column)
    return line[column] if unit is None or line[column] is None else humanise(line[column], unit)


def _hardware(line: Line) -> str:
    return f"{line['devices']} {line['accelerator']}"


def _side(line: Line, side: str) -> str:
    return ", ".join(str(_value(line, f"{side}_{part}")) for part in ("plan", "overlap", "step_s"))


_MADE: Final[Mapping[str, Callable[[Line], Any]]] = {
    "hardware": _hardware,
    "batch": lambda line: f"{line['batch']}x{line['sequence_length']}",
    "neither": lambda line: line["same"] + line["equal_overlap"],
    "step": lambda line: _value(line, "step_ratio" if "step_ratio" in line else "step_s"),
    "tokens/s/device": lambda line: _value(line, "tokens_per_s_per_device"),
    "more overlap": lambda line: _side(line, "higher"),
    "less overlap": lambda line: _side(line, "lower"),
}


def _cells(line: Line, titles: Sequence[str]) -> dict[str, Any]:
    return {title: _MADE[title](line) if title in _MADE else _value(line, title) for title in titles}


def page(examined: Examined, verbosity: int) -> list[RenderableType]:
    """What a person reads; quiet: the verdicts only, verbose: what they rest on too."""
    parts: list[RenderableType] = [Text(_basis(examined))]
    for claim in examined.claims:
        parts += [Text(), Text(printable(claim.statement), "bold"), Text(printable(_verdict(claim)))]
        if verbosity <= QUIET:
            continue
        for title, lines in _tables(claim.summary).items():
            parts += [Text(), *([Text(printable(title))] if title else [])]
            parts += _grid(lines, _SUMMARY[claim.key])
        if verbosity >= VERBOSE and claim.rows:
            parts += [Text(), *_grid(claim.rows, _ROWS[claim.key])]
        parts += [Text(), bullets(claim.caveats)] if claim.caveats else []
    if examined.left_out:
        parts += [Text(), Text("Not examined", "bold")]
        parts.append(bullets([f"{run} {why}" for run, why in examined.left_out.items()]))
    return parts


def markdown(examined: Examined) -> str:
    """The same as Markdown."""
    lines = [_basis(examined), ""]
    for claim in examined.claims:
        lines += [f"### {as_markdown(claim.statement)}", "", as_markdown(_verdict(claim)), ""]
        for title, of_table in _tables(claim.summary).items():
            lines += [
                *([as_markdown(title), ""] if title else []),
                *_table(of_table, _SUMMARY[claim.key]),
                "",
            ]
        lines += [*(f"- {as_markdown(caveat)}" for caveat in claim.caveats), ""]
    return "\n".join(lines)


def document(examined: Examined) -> dict[str, Any]:
    """The claims.v1 document; numbers in base SI."""
    return {
        "schema": "claims.v1",
        "runs": {
            "published": examined.published,
            "computed": examined.computed,
            "left_out": dict(examined.left_out),
        },
        "units": UNITS,
        "claims": [asdict(claim) for claim in examined.claims],
    }


def rows(examined: Examined) -> tuple[Sequence[str], list[dict[str, Any]]]:
    """Columns and lines of what the claims rest on, each with its claim."""
    lines = [{"claim": claim.key, **row} for claim in examined.claims for row in claim.rows]
    return list(dict.fromkeys(column for line in lines for column in line)), lines


def _basis(examined: Examined) -> str:
    return f"Examined on {examined.published:,} published and {examined.computed:,} computed runs."


def _verdict(claim: Claim) -> str:
    return f"{claim.outcome.capitalize()}: {claim.verdict}."


def _tables(summary: Sequence[Line]) -> dict[str, list[Line]]:
    """The summary's lines by their title: what they rest on, and the hardware they compare."""

    def title(line: Line) -> str:
        return f"{line.get('basis', '')}{f', {_hardware(line)}' if 'behind' in line else ''}"

    return grouped(summary, title)


def _grid(lines: Sequence[Line], titles: Sequence[str]) -> list[RenderableType]:
    return grid([_cells(line, titles) for line in lines], titles)


def _table(lines: Sequence[Line], titles: Sequence[str]) -> Iterator[str]:
    rows = (_cells(line, titles).values() for line in lines)
    return markdown_table(titles, (["" if v is None else as_markdown(str(v)) for v in row] for row in rows))
