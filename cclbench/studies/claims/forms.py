# SPDX-License-Identifier: Apache-2.0
"""Renderings of claims: terminal page, Markdown, the claims.v1 document, rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import RenderableType
from rich.text import Text

from cclbench.ground.text import as_markdown, markdown_table, printable
from cclbench.ground.units import humanise
from cclbench.present.terminal import QUIET, VERBOSE
from cclbench.present.terminal.output import bullet_lines, grid_table
from cclbench.studies.claims import UNITS, Claim, Examined
from cclbench.studies.claims.claim import group_items

Line = Mapping[str, Any]

_SUMMARY: Final[Mapping[str, Sequence[str]]] = {
    "overlap": ("hardware", "model", "batch", "pairs", "longer", "shorter", "neither"),
    "bandwidth": ("accelerator", "phase", "runs", "known", "min", "median", "max"),
    "frameworks": ("framework", "model", "batch", "step", "tokens/s/device", "behind"),
    "figures": ("figure", "stated", "nearest published", "equal"),
}
_ROWS: Final[Mapping[str, Sequence[str]]] = {
    "overlap": ("hardware", "model", "step", "more overlap", "less overlap"),
    "bandwidth": ("hardware", "model", "phase", "plan", "gain", "provenance"),
    "frameworks": ("hardware", "framework", "model", "batch", "plan", "step", "tokens/s/device"),
    "figures": ("stated", "nearest published", "metric", "workload"),
}
"""Titles of the tables' columns: keys of a claim's lines, or of `_MADE`."""


def _column_value(line: Line, column: str) -> Any:
    """The column's value, formatted if it has a unit."""
    unit = UNITS.get(column)
    return line[column] if unit is None or line[column] is None else humanise(line[column], unit)


def _hardware_words(line: Line) -> str:
    return f"{line['devices']} {line['accelerator']}"


def _side_words(line: Line, side: str) -> str:
    return ", ".join(str(_column_value(line, f"{side}_{part}")) for part in ("plan", "overlap", "step_s"))


_MADE: Final[Mapping[str, Callable[[Line], Any]]] = {
    "hardware": _hardware_words,
    "batch": lambda line: f"{line['batch']}x{line['sequence_length']}",
    "neither": lambda line: line["same"] + line["equal_overlap"],
    "min": lambda line: _column_value(line, "low"),
    "max": lambda line: _column_value(line, "high"),
    "step": lambda line: _column_value(line, "step_ratio" if "step_ratio" in line else "step_s"),
    "tokens/s/device": lambda line: _column_value(line, "tokens_per_s_per_device"),
    "nearest published": lambda line: line["published"],
    "equal": lambda line: "yes" if line["equal"] else "no",
    "more overlap": lambda line: _side_words(line, "higher"),
    "less overlap": lambda line: _side_words(line, "lower"),
}


def _line_cells(line: Line, titles: Sequence[str]) -> dict[str, Any]:
    return {title: _MADE[title](line) if title in _MADE else _column_value(line, title) for title in titles}


def claims_page(examined: Examined, verbosity: int) -> list[RenderableType]:
    """The terminal page; quiet: verdicts only, verbose: also the rows behind them."""
    parts: list[RenderableType] = [Text(_basis_words(examined))]
    for claim in examined.claims:
        parts += [Text(), Text(printable(claim.statement), "bold"), Text(printable(_verdict_words(claim)))]
        if verbosity <= QUIET:
            continue
        for title, lines in _titled_tables(claim.summary).items():
            parts += [Text(), *([Text(printable(title))] if title else [])]
            parts += _lines_grid(lines, _SUMMARY[claim.key])
        if verbosity >= VERBOSE and claim.rows:
            parts += [Text(), *_lines_grid(claim.rows, _ROWS[claim.key])]
        parts += [Text(), bullet_lines(claim.caveats)] if claim.caveats else []
    if examined.left_out:
        parts += [Text(), Text("Not examined", "bold")]
        parts.append(bullet_lines([f"{run} {why}" for run, why in examined.left_out.items()]))
    return parts


def claims_markdown(examined: Examined) -> str:
    """The page as Markdown."""
    lines = [_basis_words(examined), ""]
    for claim in examined.claims:
        lines += [f"### {as_markdown(claim.statement)}", "", as_markdown(_verdict_words(claim)), ""]
        for title, of_table in _titled_tables(claim.summary).items():
            lines += [
                *([as_markdown(title), ""] if title else []),
                *_markdown_lines(of_table, _SUMMARY[claim.key]),
                "",
            ]
        lines += [*(f"- {as_markdown(caveat)}" for caveat in claim.caveats), ""]
    return "\n".join(lines)


def claims_document(examined: Examined) -> dict[str, Any]:
    """The claims.v1 document; values in base SI units."""
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


def claims_rows(examined: Examined) -> tuple[Sequence[str], list[dict[str, Any]]]:
    """Columns and rows behind the claims, each row with its claim."""
    lines = [{"claim": claim.key, **row} for claim in examined.claims for row in claim.rows]
    return list(dict.fromkeys(column for line in lines for column in line)), lines


def _basis_words(examined: Examined) -> str:
    return f"Examined on {examined.published:,} published and {examined.computed:,} computed runs."


def _verdict_words(claim: Claim) -> str:
    return f"{claim.outcome.capitalize()}: {claim.verdict}."


def _titled_tables(summary: Sequence[Line]) -> dict[str, list[Line]]:
    """The summary's lines by table title: their basis, and the hardware they compare."""

    def table_title(line: Line) -> str:
        return f"{line.get('basis', '')}{f', {_hardware_words(line)}' if 'behind' in line else ''}"

    return group_items(summary, table_title)


def _lines_grid(lines: Sequence[Line], titles: Sequence[str]) -> list[RenderableType]:
    return grid_table([_line_cells(line, titles) for line in lines], titles)


def _markdown_lines(lines: Sequence[Line], titles: Sequence[str]) -> Iterator[str]:
    rows = (_line_cells(line, titles).values() for line in lines)
    return markdown_table(titles, (["" if v is None else as_markdown(str(v)) for v in row] for row in rows))
