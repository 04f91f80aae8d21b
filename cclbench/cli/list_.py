# SPDX-License-Identifier: Apache-2.0
"""`cclbench list`: metrics, findings, views, readers, cost models, hardware, settings, workloads, runs..."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from cclbench.cli import options
from cclbench.ground.file_names import stored_name
from cclbench.record.metric_name import metric_name

_STEP: Final = metric_name("time.step")

Rows = list[dict[str, Any]]


@click.command()
@click.argument(
    "what",
    metavar="WHAT",
    type=click.Choice(
        (
            *("metrics", "findings", "views", "readers", "operators", "hardware", "settings"),
            *("workloads", "runs", "cards"),
        )
    ),
)
@options.store
@options.form
def list_(what: str, store: Path, form: str) -> None:
    """List metrics, findings, views, readers, operators, hardware, settings, workloads, runs, cards.

    WHAT is metrics, findings, views, readers, operators (their cost models), hardware, settings, workloads
    (standard ones, which cards may name), runs or cards. Runs are those of the store, the newest first, cards
    those in workload_cards/ of the current folder. A plug-in that did not load is listed with its error. For
    details, see `cclbench explain NAME` (metrics, findings, views, readers, settings, workloads) and
    `cclbench hardware show ID`.

    \b
    Examples:
      cclbench list metrics
      cclbench list runs --store /scratch/runs
      cclbench list hardware --json
    """
    from cclbench.present.terminal.output import emit_answer, grid_table
    from cclbench.present.terminal.runs import cards_table, runs_table

    columns, rows_of = _LISTS[what]
    rows = rows_of(store)
    tables = {"runs": runs_table, "cards": cards_table, "readers": _readers_table}
    emit_answer(
        form,
        document={"schema": "list.v1", "what": what, "rows": rows},
        rows=rows,
        columns=columns,
        table=lambda: (
            tables[what](rows) if what in tables else grid_table(list(map(_first_sentences, rows)), columns)
        ),
    )


def _first_sentences(row: dict[str, Any]) -> dict[str, Any]:
    """The row with each text cut to its first sentence, for the table."""
    return {key: cell.partition(". ")[0] if isinstance(cell, str) else cell for key, cell in row.items()}


def _metric_rows(_: Path) -> Rows:
    from cclbench.analyzers.metric import METRICS

    columns = ("name", "unit", "better", "definition")
    rows = [
        {column: getattr(m, column) for column in columns} | {"origin": METRICS.origin(m.name)}
        for m in map(METRICS.get, METRICS)
    ]
    return rows + _broken_rows(METRICS.broken, "definition")


def _finding_rows(_: Path) -> Rows:
    from cclbench.findings.finding import FINDINGS
    from cclbench.present.terminal.explanation import finding_explanation

    rows = [finding_explanation(FINDINGS.get(name)) for name in FINDINGS]
    return rows + _broken_rows(FINDINGS.broken, "title")


def _view_rows(_: Path) -> Rows:
    from cclbench.present.terminal.explanation import view_row
    from cclbench.sql import VIEWS

    rows = [view_row(VIEWS.get(name)) for name in VIEWS]
    return rows + _broken_rows(VIEWS.broken, "definition")


def _reader_rows(_: Path) -> Rows:
    from cclbench.formats import READERS
    from cclbench.present.terminal.readers import reader_row

    return [*map(reader_row, READERS), *_broken_rows(READERS.broken, "formats")]


def _readers_table(rows: Rows) -> list[Any]:
    from cclbench.present.terminal.readers import readers_table

    return readers_table(rows)


def _operator_rows(_: Path) -> Rows:
    from cclbench.operators.cost import MODELS

    rows = [
        {
            "name": model.name,
            "family": model.family,
            "operators": list(model.patterns),
            "definition": model.docstring_parts["definition"],
            "flops": model.docstring_parts["FLOPs"],
            "tested": model.tested,
            "origin": MODELS.origin(model.name),
        }
        for model in map(MODELS.get, MODELS)
    ]
    return rows + _broken_rows(MODELS.broken, "definition")


def _broken_rows(plugins: dict[str, str], column: str) -> Rows:
    return [{"name": name, column: f"did not load: {error}"} for name, error in sorted(plugins.items())]


def _setting_rows(_: Path) -> Rows:
    from cclbench.present.terminal.explanation import setting_row
    from cclbench.replay.change import CHANGES

    rows = [setting_row(CHANGES.get(key)) for key in CHANGES]
    return rows + _broken_rows(CHANGES.broken, "definition")


def _hardware_rows(_: Path) -> Rows:
    import msgspec

    from cclbench.hardware.catalog import catalog_entries
    from cclbench.hardware.describe import entry_summary

    return [{**msgspec.to_builtins(e), "summary": entry_summary(e)} for e in catalog_entries().values()]


def _run_rows(store: Path) -> Rows:
    from cclbench.ground.errors import InputError
    from cclbench.present.run_summary import device_words
    from cclbench.workspace import store_at

    rows: Rows = []
    opened_store = store_at(store)
    for stored in opened_store.runs_by_time():
        try:
            record, step = stored.record, stored.saved_value(_STEP)
            written = opened_store.finished_at(stored)
        except InputError as error:
            rows.append({"run": stored.id, "problem": f"not readable: {error}"})
            continue
        rows.append(
            {
                "run": record.run,
                "date": None if written is None else str(written.astimezone().date()),
                "devices": device_words(record),
                "ranks": len(record.ranks),
                "step_s": step,
                "steps": max((rank.steps.found for rank in record.ranks), default=0),
                "card": record.card.id if record.card else None,
                "published": record.published.source if record.published else None,
                "source": record.source,
            }
        )
    return rows


def _workload_rows(_: Path) -> Rows:
    from cclbench.card.standard import standard_workloads
    from cclbench.present.terminal.explanation import workload_row

    return [workload_row(standard) for standard in standard_workloads().values()]


def _card_rows(_: Path) -> Rows:
    from cclbench.card.read import read_card
    from cclbench.card.validate import validate_card
    from cclbench.ground.errors import CclbenchError

    rows: Rows = []
    for path in sorted(Path("workload_cards").glob("*.yaml")):
        try:
            value = read_card(path).value
            errors = sum(problem.severity == "error" for problem in validate_card(path))
            state = f"no: {errors} error{'s'[: errors != 1]}" if errors else "yes"
        except CclbenchError as error:
            value, state = {}, f"no: {error.what}"
        shown = {"id": value.get("id"), "valid": state, "path": stored_name(path)}
        rows.append({**shown, "description": value.get("description")})
    return rows


_LISTS: Final = {
    "metrics": (("name", "unit", "better", "definition"), _metric_rows),
    "findings": (("name", "title"), _finding_rows),
    "views": (("name", "definition"), _view_rows),
    "readers": (("name", "formats", "versions", "tested"), _reader_rows),
    "operators": (("name", "family", "definition", "tested"), _operator_rows),
    "hardware": (("id", "kind", "summary"), _hardware_rows),
    "settings": (("name", "values", "definition"), _setting_rows),
    "workloads": (("name", "title"), _workload_rows),
    "runs": (
        ("run", "date", "devices", "ranks", "steps", "step_s", "card", "published", "source", "problem"),
        _run_rows,
    ),
    "cards": (("id", "valid", "path", "description"), _card_rows),
}
