# SPDX-License-Identifier: Apache-2.0
"""A metric, a finding, a view, a reader, a setting or a standard workload explained on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from rich.console import RenderableType

from cclbench.analyzers.aliases import refusal_of
from cclbench.analyzers.metric import METRICS, OTHER_NAMES, Metric, resolve_metrics
from cclbench.findings.finding import FINDINGS, Detector
from cclbench.formats import READERS
from cclbench.ground.errors import UsageError, near
from cclbench.ground.schema import TABLES as STORED_TABLES
from cclbench.present.terminal.output import named_fields
from cclbench.present.terminal.readers import reader_row

if TYPE_CHECKING:
    from cclbench.card.standard import StandardWorkload
    from cclbench.replay.change import ReplaySetting
    from cclbench.sql import View

COLUMNS: Final = (
    *("name", "definition", "formula", "unit", "better", "inputs", "combined", "not_applicable", "limits"),
    *("aliases", "version", "origin"),
)
_UNITS: Final = {"1": "a fraction, shown in %", "count": "a count"}
_BETTER: Final = {"higher": "higher", "lower": "lower", None: "neither: it describes"}


class Explanations(NamedTuple):
    """The explained entries, a row each."""

    metrics: Sequence[dict[str, Any]]
    findings: Sequence[dict[str, Any]] = ()
    views: Sequence[dict[str, Any]] = ()
    readers: Sequence[dict[str, Any]] = ()
    settings: Sequence[dict[str, Any]] = ()
    workloads: Sequence[dict[str, Any]] = ()


def sql_table_schemas() -> dict[str, pa.Schema]:
    """The tables of a run that `cclbench sql` queries."""
    from cclbench.sql.machine_tables import TABLES

    return {**STORED_TABLES, **TABLES}


def explanations(names: Sequence[str]) -> Explanations:
    """The metrics, findings, views, tables (as views), readers, settings and standard workloads that names,
    globs or aliases select; without names, all metrics.

    `UsageError` for an unknown name, with near matches.
    """
    metrics = {name: METRICS.get(name) for name in names or METRICS if name in METRICS}
    others = [name for name in names if name not in metrics]
    if not others:
        return Explanations([metric_explanation(metrics[name]) for name in sorted(metrics)])
    from cclbench.card.standard import standard_workloads
    from cclbench.sql import VIEWS

    tables = sql_table_schemas()
    findings = [finding_explanation(FINDINGS.get(name)) for name in others if name in FINDINGS]
    views = [view_row(VIEWS.get(name)) for name in others if name in VIEWS]
    views += [_table_row(name, tables[name]) for name in others if name in tables]
    readers = [reader_row(name) for name in others if name in READERS]
    workloads = [workload_row(standard_workloads()[name]) for name in others if name in standard_workloads()]
    settings = []
    explained = (FINDINGS, VIEWS, tables, READERS, standard_workloads())
    for name in [name for name in others if not any(name in registry for registry in explained)]:
        try:
            metrics |= {metric.name: metric for metric, _ in resolve_metrics([name])}
        except UsageError:
            settings.append(_setting_row(name, list(chain(*explained))))
    return Explanations(
        [metric_explanation(metrics[name]) for name in sorted(metrics)],
        *(findings, views, readers, settings, workloads),
    )


def metric_explanation(metric: Metric) -> dict[str, Any]:
    """A metric as a row of `COLUMNS`."""
    return {name: getattr(metric, name) for name in COLUMNS[:-1]} | {"origin": METRICS.origin(metric.name)}


def finding_explanation(finding: Detector) -> dict[str, Any]:
    """A finding as a row."""
    fields = {name: getattr(finding, name) for name in ("name", "title", "rule", "gain")}
    actions = {framework: list(listed) for framework, listed in finding.actions.items()}
    return fields | {"actions": actions, "origin": FINDINGS.origin(finding.name)}


def view_row(view: View) -> dict[str, Any]:
    """A view as a row: columns with type, unit and meaning, and the tables it reads."""
    from cclbench.sql import VIEWS

    columns = [
        {"name": column.name, "type": column.type, "unit": column.unit, "meaning": column.meaning}
        for column in view.columns
    ]
    return {
        "name": view.name,
        "definition": view.definition,
        "columns": columns,
        "example": view.example,
        "reads": sorted(view.reads),
        "origin": VIEWS.origin(view.name),
    }


def _table_row(name: str, schema: pa.Schema) -> dict[str, Any]:
    """A table of runs as a row like that of a view."""
    columns = [
        {
            "name": field.name,
            "type": "VARCHAR" if pa.types.is_dictionary(field.type) else str(field.type),
            "unit": field.metadata[b"unit"].decode() or None,
            "meaning": field.metadata[b"meaning"].decode(),
        }
        for field in schema
    ]
    return {
        "name": name,
        "definition": f"A table of a run ({len(columns)} columns)",
        "columns": columns,
        "example": f"FROM {name} LIMIT 10",
        "reads": [],
        "origin": "cclbench",
    }


def setting_row(setting: ReplaySetting) -> dict[str, Any]:
    """A setting of `cclbench whatif` as a row."""
    from cclbench.replay.change import CHANGES

    described = {"definition": setting.definition, "values": setting.values}
    return {"name": setting.key, **described, "origin": CHANGES.origin(setting.key)}


def _setting_row(name: str, others: Sequence[str]) -> dict[str, Any]:
    """The setting of `cclbench whatif` that has the key as a row; `UsageError` if there is none, with near
    matches among settings, metrics and the other names."""
    from cclbench.replay.change import CHANGES

    for setting in map(CHANGES.get, CHANGES):
        if setting.is_named(name):
            return setting_row(setting)
    hint = near(name, [*METRICS, *others, *CHANGES], OTHER_NAMES)
    unknown = f"unknown metric, finding, view, table, reader, setting or standard workload {name!r}"
    raise refusal_of(name) or UsageError(unknown, hint=hint)


def workload_row(standard: StandardWorkload) -> dict[str, Any]:
    """A standard workload as a row."""
    fields = {name: getattr(standard, name) for name in standard.__struct_fields__}
    return fields | {name: list(fields[name]) for name in ("vary", "capture")}


def workload_paragraph(row: dict[str, Any]) -> list[RenderableType]:
    """A standard workload's name and rules, a line for each field."""
    fields = [("workload", row["title"])]
    fields += [("equal", f"{path}: {value}") for path, value in row["equal"].items()]
    fields += [("open", f"{path}: {why}") for path, why in row["open"].items()]
    fields += [("may vary", ", ".join(row["vary"])), *(("capture", rule) for rule in row["capture"])]
    fields += [("source", row["source"]), ("in a card", f"workload: {{standard: {row['name']}}}")]
    return named_fields(row["name"], fields)


def setting_paragraph(row: dict[str, Any]) -> list[RenderableType]:
    """A setting's name, definition and values, a line for each field."""
    fields = (("setting", row["definition"]), ("values", row["values"]), ("from", row["origin"]))
    return named_fields(row["name"], fields)


def view_paragraph(row: dict[str, Any]) -> list[RenderableType]:
    """A view's name, definition, columns and example, a line for each field."""
    fields = [("view", row["definition"])]
    fields += [
        (column["name"], f"{column['meaning']} ({', '.join(filter(None, (column['type'], column['unit'])))})")
        for column in row["columns"]
    ]
    fields += [("reads", ", ".join(row["reads"])), ("example", row["example"]), ("from", row["origin"])]
    return named_fields(row["name"], fields)


def paragraph_of_finding(row: dict[str, Any]) -> list[RenderableType]:
    """A finding's name and description, a line for each field."""
    fields = [("says", row["title"]), ("found by", row["rule"]), ("gain", row["gain"])]
    fields += [
        ("try" if framework == "any" else f"try with {framework}", action)
        for framework, listed in row["actions"].items()
        for action in listed
    ]
    fields.append(("from", row["origin"]))
    return named_fields(row["name"], fields)


def explanation_paragraph(row: dict[str, Any]) -> list[RenderableType]:
    """A metric's name and description, a line for each field."""
    fields = (
        ("definition", row["definition"]),
        ("formula", row["formula"]),
        ("unit", _UNITS.get(row["unit"], row["unit"])),
        ("better", _BETTER[row["better"]]),
        ("inputs", ", ".join(row["inputs"])),
        ("over ranks", row["combined"]),
        ("not applicable", row["not_applicable"]),
        ("limits", row["limits"]),
        ("aliases", ", ".join(row["aliases"]) or "none"),
        ("version", f"{row['version']}, from {row['origin']}"),
    )
    return named_fields(row["name"], [(label, text) for label, text in fields if text is not None])
