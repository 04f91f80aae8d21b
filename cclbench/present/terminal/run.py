# SPDX-License-Identifier: Apache-2.0
"""A run on a terminal: facts, step partition, findings, and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import structs
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cclbench.findings.diagnosis import diagnose_run, findings_of_run, unknown_step
from cclbench.findings.finding import Finding
from cclbench.ground.schema import RESULTS
from cclbench.ground.text import cut_text, printable
from cclbench.ground.units import humanise
from cclbench.present.headline import (
    MOST_CAUSES,
    busy_with,
    first_findings,
    longest_kernels,
    modelled_words,
    opening_words,
)
from cclbench.present.run_summary import fact_lines, notes_by_weight, summarise_run
from cclbench.present.terminal import BRIEF, DOCUMENTS, QUIET, VERBOSE
from cclbench.present.terminal.bars import bar_chart
from cclbench.present.terminal.figures import key_figures, metrics_lines, missing_lines, qualifier_lines
from cclbench.present.terminal.findings import numbered_findings
from cclbench.present.terminal.output import emit_answer, labelled_table, titled_bullets, writes_unicode
from cclbench.present.terminal.source_summaries import summary_lines
from cclbench.present.words import NOTHING
from cclbench.record.card_agreement import card_contradiction
from cclbench.record.manifest import Manifest
from cclbench.record.metric_name import metric_name
from cclbench.record.results import Results, Scope
from cclbench.record.rows import Row, builtins
from cclbench.record.run import Run
from cclbench.source_summaries import source_summaries
from cclbench.source_summaries.summary import SourceSummary, summary_document

_FIRST: Final = ("run", "card", "ranks", "steps", "device", "groups", "cut")
"""Facts on the first screen."""
_MOST_LINES: Final = 40
_MANY: Final = 1000


class _Room(NamedTuple):
    """What the first screen has room for."""

    ranks: int = 8
    causes: int = MOST_CAUSES
    notes: int = _MANY
    kernels: bool = True
    """Whether the longest kernels are shown of a run that communicates, too."""
    table: int = 2
    """Rows of each table of a source without device steps."""


_ROOMS: Final = (
    _Room(),
    _Room(ranks=4),
    _Room(ranks=4, kernels=False),
    _Room(ranks=4, kernels=False, notes=1),
    _Room(ranks=4, kernels=False, notes=1, causes=MOST_CAUSES - 1),
    _Room(ranks=4, kernels=False, notes=1, causes=1),
)
"""The first that fits, else the last."""
_TABLE_ROWS: Final = (24, 16, 12, 8, 6, 4, 3, 2)
"""Rows of each table of a source without device steps: the most that fit, else the last."""
_PAPER: Final = Console(width=80, color_system=None)
_COMM_TIME: Final = metric_name("comm.time")


def show_run(run: Run, form: str, verbosity: int, *, per_rank: bool, all_metrics: bool) -> None:
    """Print a run's results on stdout: as a document, as rows, or as text.

    `all_metrics`: all metrics were requested, and the first screen is shown.  Documents and rows have parts
    of single ranks (steps, groups, ...) only with `per_rank`.
    """
    rows = map(structs.asdict, run.figures if per_rank else run.figures.summary)
    short = all_metrics and verbosity not in (QUIET, VERBOSE)
    summaries = source_summaries(run, run.figures) if all_metrics and form in (*DOCUMENTS, "table") else []
    emit_answer(
        form,
        document={
            **document_head(run.record, run.figures, run.window),
            "summaries": list(map(summary_document, summaries)),
            **({"findings": diagnose_run(run).top_rows()} if all_metrics and form == BRIEF else {}),
            "results": rows,
        },
        rows=rows,
        columns=RESULTS.names,
        table=lambda: _run_page(run, summaries, verbosity, short=short),
    )


def _run_page(
    run: Run, summaries: Sequence[SourceSummary], verbosity: int, *, short: bool
) -> list[RenderableType]:
    causes = findings_of_run(run, run.figures) if short or verbosity >= VERBOSE else ()
    shown = first_screen if short else partial(run_page, verbosity=verbosity)
    return shown(run.record, run.figures, run.window, causes, summaries=summaries, unicode=writes_unicode())


def run_document(record: Manifest, results: Results, window: str) -> dict[str, Any]:
    """The result.v1 document (`cclbench/schemas/result.json`)."""
    return {**document_head(record, results, window), "results": builtins(results)}


def document_head(
    record: Manifest, results: Results, window: str, *, schema: str = "result.v1"
) -> dict[str, Any]:
    """The name of a document's schema, and the summary of its run."""
    return {"schema": schema, "run": msgspec.to_builtins(summarise_run(record, results.scope, window))}


def first_screen(
    record: Manifest,
    results: Results,
    window: str,
    causes: Sequence[Finding],
    *,
    summaries: Sequence[SourceSummary] = (),
    unicode: bool = True,
) -> list[RenderableType]:
    """The first screen: facts, bars, findings and key figures, or what the source is; limited to 40 lines.

    `summaries`: those of a run without device steps.
    """
    rows = list(results.summary)
    matter = [] if summaries else list(key_figures(rows))
    kernels = [] if summaries else list(kernel_lines(results))
    opening = opening_words(results, causes)
    parts: list[RenderableType] = []
    tables = [_Room(table=most) for most in _TABLE_ROWS if summaries]
    for room in (*tables, *_ROOMS):
        parts = [Text(printable(opening), "bold")] if opening else []
        parts.append(_head_of(record, results, window, room.notes))
        if bars := list(bar_chart(rows, unicode=unicode, most=room.ranks)):
            parts += [Text(), Group(*bars)]
        shown = summary_lines(summaries, most=room.table)
        parts += [Text(), *_finding_lines(causes, results, shown, room.causes)]
        parts += [Text(), *matter] if matter else []
        parts += [Text(), *kernels] if kernels and (room.kernels or not results.value(_COMM_TIME)) else []
        parts += [Text(), *_further_reading(record, rows, len(causes), room.causes)]
        if len(_PAPER.render_lines(Group(*parts))) <= _MOST_LINES:
            break
    return parts


def _head_of(record: Manifest, results: Results, window: str, most: int) -> RenderableType:
    """The facts of a run, and at most that many notes, those on wrong or missing figures first."""
    facts = [*fact_lines(record, summarise_run(record, results.scope, window))]
    notes = notes_by_weight(text for label, text in facts if label == "note")
    notes = [*filter(None, [card_contradiction(results)]), *notes]
    shown = [label for label in _FIRST if label != "card" or record.card]
    rows = [(label, text) for label, text in facts if label in shown]
    rows += [("note", note) for note in notes[:most]]
    if len(notes) > most:
        rows[-1] = ("note", f"{notes[most - 1]} ({len(notes) - most} more with -v)")
    return labelled_table((label, Text(cut_text(text))) for label, text in rows)


def _further_reading(
    record: Manifest, rows: Sequence[Row], causes: int, shown: int
) -> Iterator[RenderableType]:
    """Commands for more."""
    none = Counter(row.status for row in rows if row.rank is None and not row.narrowed)
    failed = f"; {none['failed']} failed" if none["failed"] else ""
    of_all = [f"diagnose: {f'all {causes} findings' if causes > shown else 'evidence'}"] if causes else []
    yield Text(f"cclbench {'diagnose' if causes else 'report'} {record.run}", "dim")
    metrics = f"metrics: all, {none['not_applicable']} not applicable{failed}"
    yield Text("; ".join([*of_all, "report: page", metrics]), "dim")


def _finding_lines(
    causes: Sequence[Finding],
    results: Results,
    summary: Iterable[RenderableType],
    most: int = MOST_CAUSES,
) -> Iterator[RenderableType]:
    """The main findings; without a step time the lines of `summary`, or why there is none."""
    shown = first_findings(causes)[:most]
    timed = any(finding.lost_s is not None for finding in shown)
    unknown = unknown_step(results)
    if timed:
        yield Text("Main findings", "bold")
    elif unknown is not None:
        yield from [*summary] or [Text(f"No step time: {printable(unknown)}.", "bold")]
    else:
        yield Text(NOTHING.capitalize(), "bold")
        yield Text(busy_with(results))
    if shown:
        yield from numbered_findings(shown)


def kernel_lines(results: Results) -> Iterator[Text]:
    """The longest kernels, and how much of the kernels' time cost models cover."""
    kernels = longest_kernels(results)
    if kernels:
        yield Text(f"Longest kernels, of all kernels' time ({modelled_words(results)})", "bold")
    for share, name in kernels:
        yield Text(f"{humanise(share, '1'):>8}  {printable(name)}")


def run_page(
    record: Manifest,
    results: Results,
    window: str,
    causes: Sequence[Finding] = (),
    *,
    summaries: Sequence[SourceSummary] = (),
    verbosity: int = 0,
    unicode: bool = True,
) -> list[RenderableType]:
    """The full page: facts, bars, metrics, missing metrics; quiet: only metrics, and those that failed."""
    verbose = verbosity >= VERBOSE
    rows = list(results.summary)
    table = Group(*metrics_lines(rows, verbose=verbose))
    failed = titled_bullets("Failed", missing_lines(rows, "failed"))
    if verbosity <= QUIET:
        return [table, *failed]
    parts: list[RenderableType] = [facts_table(record, results.scope, window, verbose=verbose)]
    bars = list(bar_chart(rows, unicode=unicode, every_rank=verbose))
    if bars:
        parts += [Text(), Group(*bars)]
    if verbose:
        parts += [Text(), *_finding_lines(causes, results, summary_lines(summaries))]
    parts += [Text(), table] if table.renderables else []
    return [
        *parts,
        *failed,
        *titled_bullets("Notes", qualifier_lines(rows, record.inference_note)),
        *titled_bullets("Not applicable", missing_lines(rows, "not_applicable")),
    ]


def facts_table(record: Manifest, scope: Scope, window: str | None, *, verbose: bool = False) -> Table:
    """A line for each fact, label and wrapped text; without a window, the ingestion facts."""
    summary = summarise_run(record, scope, window)
    return labelled_table(
        (label, Text(cut_text(text))) for label, text in fact_lines(record, summary, verbose)
    )
