# SPDX-License-Identifier: Apache-2.0
"""`cclbench import`: results that others published, as runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cclbench.cli.options import debug_option, format_options, store_option

if TYPE_CHECKING:
    from rich.console import RenderableType

    from cclbench.published import Imported

_COLUMNS = ("run", "row", "name", "numbers", "flagged", "no_number", "card", "new")


@click.command()
@click.argument("source", metavar="SOURCE", type=click.Choice(("ccl-bench",)))
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@store_option
@format_options
@debug_option
def import_(source: str, file: Path, store: Path, form: str) -> None:
    """Bring published results into the store, to compare with.

    SOURCE is ccl-bench, FILE its leaderboard, benchmark_data.json. Each row becomes a run without
    traces: numbers in our names and units, marked as published, with what is known to be wrong with
    each. A row that the store has already stays as it is.

    \b
    Examples:
      cclbench import ccl-bench benchmark_data.json
      cclbench import ccl-bench benchmark_data.json --json
    """
    from dataclasses import asdict

    from cclbench.cli.output import emit
    from cclbench.published import import_ccl_bench

    found = import_ccl_bench(file, store)
    rows = [asdict(run) for run in found.runs]
    emit(
        form,
        document={
            "schema": "import.v1",
            "source": source,
            "file": str(found.file),
            "generated_at": found.generated_at,
            "flags": _flags(found),
            "unknown_columns": dict(found.unknown_columns),
            "runs": rows,
        },
        rows=rows,
        columns=_COLUMNS,
        table=lambda: _page(found),
    )


def _flags(found: Imported) -> list[dict[str, Any]]:
    from cclbench.published.defects import DEFECTS

    return [
        {
            "flag": defect.key,
            "values": found.defects[defect.key],
            "kept": not defect.no_number,
            "words": defect.words,
            "columns": list(defect.columns),
        }
        for defect in DEFECTS
        if found.defects.get(defect.key)
    ]


def _page(found: Imported) -> list[RenderableType]:
    from rich.text import Text

    from cclbench.cli.output import grid
    from cclbench.problem import printable

    runs = found.runs
    numbers, flagged, missing = (
        sum(getattr(run, name) for run in runs) for name in ("numbers", "flagged", "no_number")
    )
    new, cards = sum(run.new for run in runs), sum(run.card for run in runs)
    lines = [
        f"{len(runs):,} runs of {found.file}: {new:,} new, {len(runs) - new:,} as they were;"
        f" {cards:,} have a workload card",
        f"{numbers:,} published numbers, {flagged:,} of them flagged; {missing:,} more stand for no data",
    ]
    for column, values in found.unknown_columns.items():
        lines.append(f"left out: {values:,} numbers of {column}, which answers no metric here")
    flags = [{"values": flag["values"], "what is known": flag["words"]} for flag in _flags(found)]
    told = [Text(printable(line)) for line in lines]
    return [*told, Text(), *grid(flags, ("values", "what is known"))] if flags else list(told)
