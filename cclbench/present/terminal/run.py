# SPDX-License-Identifier: Apache-2.0
"""A run on a terminal: what it was found to be, where its step went, its metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import structs
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cclbench.analyzers.verdict import verdict
from cclbench.present.charts.palette import SLICES, light
from cclbench.present.findings import facts, summary
from cclbench.present.partition import Bar, bars_of, by_rank, extremes
from cclbench.present.terminal import QUIET, VERBOSE
from cclbench.present.terminal.figures import metrics_lines, missing, qualifiers
from cclbench.present.terminal.output import emit, labelled, titled, writes_unicode
from cclbench.record.manifest import Manifest
from cclbench.record.results import Results, Scope
from cclbench.record.rows import Row, builtins
from cclbench.record.run import Run
from cclbench.schema import RESULTS
from cclbench.text import bounded, printable
from cclbench.units import humanise

_MOST_RANKS: Final = 16
_BAR: Final = 34


def show(run: Run, form: str, verbosity: int, *, per_rank: bool) -> None:
    """Print a run's results on stdout: as a document, as rows, or as what a person reads.

    Documents and rows have the parts of single ranks (steps, groups, ...) with `per_rank` only.
    """
    rows = map(structs.asdict, run.figures if per_rank else run.figures.in_short)
    emit(
        form,
        document={**_head(run.record, run.figures, run.window), "results": rows},
        rows=rows,
        columns=RESULTS.names,
        table=lambda: page(
            run.record, run.figures, run.window, verbosity=verbosity, unicode=writes_unicode()
        ),
    )


def document(record: Manifest, results: Results, window: str) -> dict[str, Any]:
    """The result.v1 document (`cclbench/schemas/result.json`)."""
    return {**_head(record, results, window), "results": builtins(results)}


def _head(record: Manifest, results: Results, window: str) -> dict[str, Any]:
    run = msgspec.to_builtins(summary(record, results.scope, window))
    return {"schema": "result.v1", "run": run}


def page(
    record: Manifest,
    results: Results,
    window: str,
    *,
    verbosity: int = 0,
    unicode: bool = True,
) -> list[RenderableType]:
    """What a person reads: findings, bars, verdict, metrics, what does not apply; quiet: metrics only."""
    verbose = verbosity >= VERBOSE
    rows = list(results.in_short)
    table = Group(*metrics_lines(rows, verbose=verbose))
    if verbosity <= QUIET:
        return [table]
    parts: list[RenderableType] = [findings(record, results.scope, window, verbose=verbose)]
    bars = list(chart(rows, unicode=unicode, every_rank=verbose))
    if bars:
        parts += [Text(), Group(*bars)]
    inferred = record.inferred
    if (sentence := verdict(rows, inferred)) is not None:
        parts += [Text(), Text(printable(sentence))]
    parts += [Text(), table] if table.renderables else []
    return [
        *parts,
        *titled("Failed", missing(rows, "failed")),
        *titled("Notes", qualifiers(rows, inferred)),
        *titled("Not applicable", missing(rows, "not_applicable")),
    ]


def findings(record: Manifest, scope: Scope, window: str | None, *, verbose: bool = False) -> Table:
    """A line a fact: label and text, wrapped; without a window, what was ingested."""
    found = summary(record, scope, window)
    return labelled((label, Text(bounded(text))) for label, text in facts(record, found, verbose))


def chart(rows: Sequence[Row], *, unicode: bool, every_rank: bool = False) -> Iterator[Text]:
    """The step partition as a stacked bar a rank, readable without colour: header, a line a rank, legend.

    80 columns; nothing where no rank has all five parts.  A bar's length is its rank's window over the
    longest; behind it the window and its shares in %.
    """
    ranks = bars_of(by_rank(rows), finer=False)
    if not ranks:
        return
    shown = ranks if every_rank else extremes(ranks, _MOST_RANKS)
    name = max(len(rank.name) for rank in shown)
    header = Text(f"{'':{name}}  {'':{_BAR}} {'window':>8}", "dim")
    for part in SLICES:
        header.append(f"{part.glyphs[not unicode]:>5}", light(part.colour))
    header.append(" %", "dim")
    yield header
    longest = max(rank.seconds for rank in ranks)
    for rank in shown:
        line = Text(f"{rank.name:{name}}  ")
        line.append_text(_bar(rank, longest, unicode))
        line.append(f" {humanise(rank.seconds, 's'):>8}")
        for _, seconds in rank.slices:
            line.append(f"{_percent(seconds, rank.seconds):>5}")
        yield line
    if len(shown) < len(ranks):
        yield Text(
            f"{len(ranks) - len(shown)} ranks between the slowest and the fastest not shown (-v: all)", "dim"
        )
    legend = Text()
    for part in SLICES:
        legend.append(part.glyphs[not unicode], light(part.colour)).append(f" {part.short}   ")
    legend.rstrip()
    yield legend


def _percent(seconds: float, step: float) -> str:
    percent = 100 * seconds / step if step else 0.0
    return "<1" if 0 < percent < 0.5 else f"{percent:.0f}"


def _bar(rank: Bar, longest: float, unicode: bool) -> Text:
    """Each part ends at the cell nearest to where it ends in time, so that errors do not add up."""
    bar, end, cells = Text(), 0.0, 0
    for part, seconds in rank.slices:
        end += seconds
        upto = round(_BAR * end / longest) if longest else 0
        bar.append(part.glyphs[not unicode] * (upto - cells), light(part.colour))
        cells = upto
    bar.append(" " * (_BAR - cells))
    return bar
