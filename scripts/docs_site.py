# SPDX-License-Identifier: Apache-2.0
"""Generate the reference pages of the documentation's site from the code, as a mkdocs hook (see mkdocs.yml).

Texts are written as escaped HTML, so that bars and stars in formulas are not parsed as markup.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from html import escape
from inspect import cleandoc
from itertools import groupby
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import click
import pyarrow as pa

from cclbench.analyzers.metric import METRICS
from cclbench.cli import cli
from cclbench.findings.finding import FINDINGS
from cclbench.formats import READERS
from cclbench.ground import schema
from cclbench.hardware.catalog import VARIABLE, accelerators, fabrics, systems
from cclbench.hardware.describe import Entry, entry_summary, figures_of
from cclbench.operators.cost import MODELS
from cclbench.present.terminal.explanation import metric_explanation
from cclbench.present.topics import metric_order, topic_of
from cclbench.sql import VIEWS
from cclbench.sql.machine_tables import TABLES as MACHINE_TABLES

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent


def prose(text: str) -> str:
    """HTML of a text, with `code` in code elements."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def _code(name: str) -> str:
    """A name as code that may wrap after dots and underscores."""
    breakable = re.sub(r"([._])", r"\1<wbr>", escape(name))
    return f"<code>{breakable}</code>"


def facts(rows: Iterable[tuple[str, ...]]) -> str:
    """A table with names in the first column; cells are HTML."""
    lines = (
        f"<tr><th>{head}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for head, *cells in rows
    )
    return '<table class="facts">\n' + "\n".join(lines) + "\n</table>"


def _page(title: str, *parts: str) -> str:
    """A Markdown page."""
    return "\n\n".join([f"# {title}", *parts]) + "\n"


def metrics() -> str:
    """Built-in metrics by topic, as in `cclbench explain`."""
    found = [
        metric_explanation(METRICS.get(name))
        for name in METRICS
        if METRICS.origin(name).startswith("cclbench.")
    ]
    parts = [
        "The output of `cclbench explain` for built-in metrics; `cclbench list metrics` includes plug-ins."
        " C, K and M are the sets of [Concepts](../concepts.md#how-the-time-divides), W is the window.",
    ]
    for title, rows in groupby(
        sorted(found, key=lambda row: metric_order(row["name"])), lambda row: topic_of(row["name"])
    ):
        parts.append(f"## {title}")
        for row in rows:
            parts += [f"### {row['name']}", f"<p>{prose(row['definition'])}</p>", _metric(row)]
    return _page("Metrics", *parts)


def _metric(row: Mapping[str, Any]) -> str:
    rows = {
        "formula": f"<code>{escape(row['formula'])}</code>",
        "unit": {"1": "a fraction", "count": "a count"}.get(row["unit"], escape(row["unit"])),
        "better": row["better"] or "neither: descriptive",
        "inputs": escape(", ".join(row["inputs"])),
        "over ranks": prose(row["combined"]),
        "not applicable": prose(row["not_applicable"]),
        "also called": ", ".join(map(_code, row["aliases"])),
        "version": str(row["version"]),
    }
    return facts((name, cell) for name, cell in rows.items() if cell)


def findings() -> str:
    """Built-in findings, as in `cclbench explain`."""
    parts = ["Order and bounds of findings: [Why is it slow?](../findings.md)."]
    for name in FINDINGS:
        if FINDINGS.origin(name).startswith("cclbench."):
            finding = FINDINGS.get(name)
            rows = [("condition", prose(finding.rule)), ("gain", prose(finding.gain))]
            for framework, actions in finding.actions.items():
                title = "try" if framework == "any" else f"try with {framework}"
                rows += [(title, prose(action)) for action in actions]
            parts += [f"## {name}", f"<p>{prose(finding.title)}</p>", facts(rows)]
    return _page("Findings", *parts)


def operators() -> str:
    """Built-in cost models by family, from their docstrings."""
    models = [MODELS.get(name) for name in MODELS if MODELS.origin(name).startswith("cclbench.")]
    parts = [
        "Definitions and verification: [What an operator costs](../operators.md)."
        " Operators are regular expressions that match whole names.",
    ]
    by_family = groupby(sorted(models, key=lambda model: model.family), lambda model: model.family)
    for family, family_models in by_family:
        parts.append(f"## {family}")
        for model in family_models:
            names = ("operators", ", ".join(f"<code>{escape(text)}</code>" for text in model.patterns))
            costs = [
                (key, escape(text)) for key, text in model.docstring_parts.items() if key != "definition"
            ]
            definition = f"<p>{prose(model.docstring_parts['definition'])}</p>"
            parts += [f"### {model.name}", definition, facts([names, *costs])]
    return _page("Operators", *parts)


_READS = {
    "trace": "traces",
    "execution_trace": "operators without times, in addition to traces",
    "evidence": "evidence, with traces or alone",
}


def readers() -> str:
    """Built-in formats, as in `cclbench list readers`."""
    parts = ["Limits of each format: [What cclbench reads](../what-cclbench-reads.md)."]
    for name in READERS:
        if READERS.origin(name).startswith("cclbench."):
            reader = READERS.get(name)
            rows = [
                ("reads", _READS[reader.reads]),
                ("formats", prose(reader.description)),
                ("files", " ".join(map(_code, reader.extensions))),
                ("capture", prose(reader.capture)),
                ("versions", prose(reader.versions)),
                ("tested on", prose(reader.tested)),
            ]
            parts += [f"## {name}", facts(rows)]
    return _page("Readers", *parts)


def tables() -> str:
    """Columns of a run's tables, with units and meanings."""
    parts = [
        "Tables for `cclbench sql`, also returned by `run.events()` and similar methods. Times are in ns"
        " since 1970 on the rank's own clock, unless a column says otherwise. Unknown values are null.",
    ]
    for name, fields in (schema.TABLES | MACHINE_TABLES).items():
        rows = [(field.name, _kind(field), _meaning(field)) for field in fields]
        rows += [("rank", "int32", "rank of the event")] if name == "events" else []
        parts += [f"## {name}", facts((_code(column), kind, text) for column, kind, text in rows)]
    return _page("Tables", *parts)


def views() -> str:
    """Built-in views of the SQL library, as in `cclbench explain`."""
    parts = [
        "Views for `cclbench sql`, `run.sql()` and agents, in addition to the [tables](tables.md);"
        " [Add a view](../add-a-view.md) describes how to write one. Times are nanoseconds.",
    ]
    for name in VIEWS:
        if VIEWS.origin(name).startswith("cclbench."):
            view = VIEWS.get(name)
            rows = [
                (
                    _code(column.name),
                    escape(column.type),
                    prose(column.meaning) + (f" ({escape(column.unit)})" if column.unit else ""),
                )
                for column in view.columns
            ]
            example = f"```sql\n{view.example}\n```"
            parts += [f"## {name}", f"<p>{prose(view.definition)}</p>", facts(rows), example]
    return _page("SQL views", *parts)


def _kind(field: pa.Field) -> str:
    kind = "text" if pa.types.is_dictionary(field.type) else str(field.type).replace("string", "text")
    return escape(kind) + (", or null" if field.nullable else "")


def _meaning(field: pa.Field) -> str:
    texts = {key.decode(): value.decode() for key, value in field.metadata.items()}
    return prose(texts["meaning"]) + (f" ({escape(texts['unit'])})" if texts["unit"] else "")


def hardware(title: str, entries: Callable[[], Mapping[str, Entry]]) -> str:
    """Catalog entries, each figure with its source."""
    os.environ.pop(VARIABLE, None)  # built-in entries only
    parts = ["Also printed by `cclbench hardware show ID`. Rates are per direction, peaks are dense."]
    for entry in entries().values():
        rows = [
            (_code(row["field"]), escape(row["shown"]), escape(row["source"] or ""))
            for row in figures_of(entry)
        ]
        parts += [f"## {entry.id}", f"<p>{prose(entry_summary(entry))}</p>", facts(rows), _sources(entry)]
    return _page(title, *parts)


def _sources(entry: Entry) -> str:
    lines = []
    for key, source in entry.sources.items():
        title = escape(source.title)
        linked = f'<a href="{escape(source.url)}">{title}</a>' if source.url else title
        lines.append(f"<li>{_code(key)}: {linked}, {escape(source.date)}</li>")
    lines += [
        f"<li>{_code(other.source)} states for {_code(other.field)}: {escape(other.says)}</li>"
        for other in entry.disagreements
    ]
    notes = f"<p>{prose(entry.notes)}</p>" if entry.notes else ""
    return f"<ul>{''.join(lines)}</ul>{notes}" if lines or notes else ""


def command_line() -> str:
    """All commands, from their help texts."""
    parts = [
        "Results are written to stdout, messages to stderr. Exit codes: 0 success; 1 a check failed; 2 wrong"
        " usage; 3 input unreadable, corrupt or unsupported; 4 internal error.",
    ]
    return _page("Command line", *parts, *_commands(cli, click.Context(cli, info_name="cclbench")))


def _commands(group: click.Group, context: click.Context) -> Iterable[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None  # noqa: S101  (the group lists it)
        inner = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from _commands(command, inner)
        else:
            yield f"## {inner.command_path}"
            yield f"```text\n{command.get_usage(inner).removeprefix('Usage: ')}\n```"
            yield from map(_paragraph, cleandoc(command.help or "").split("\n\n"))
            options = [option for option in command.get_params(inner) if isinstance(option, click.Option)]
            records = filter(None, (option.get_help_record(inner) for option in options))
            yield facts((_code(names), prose(text)) for names, text in records)


def _paragraph(text: str) -> str:
    """A paragraph of a help text; click does not rewrap those that begin with a backspace."""
    if not text.startswith("\b\n"):
        return f"<p>{prose(' '.join(text.split()))}</p>"
    head, _, lines = text.removeprefix("\b\n").partition("\n")
    language = "sh" if head == "Examples:" else "text"
    return f"<p>{prose(head)}</p>\n\n```{language}\n{dedent(lines)}\n```"


PAGES: Mapping[str, Callable[[], str]] = {
    "command-line": command_line,
    "metrics": metrics,
    "findings": findings,
    "operators": operators,
    "tables": tables,
    "views": views,
    "readers": readers,
    "accelerators": lambda: hardware("Accelerators", accelerators),
    "fabrics": lambda: hardware("Fabrics", fabrics),
    "systems": lambda: hardware("Systems", systems),
}
"""Generated pages, by name under reference/."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """mkdocs hook: leave pages that do not exist out of the navigation."""
    config.nav = _existing_pages(config.nav, Path(config.docs_dir))
    return config


def _existing_pages(nav: Any, docs: Path) -> Any:
    if isinstance(nav, list):
        return [kept for kept in (_existing_pages(entry, docs) for entry in nav) if kept]
    if isinstance(nav, dict):
        ((title, target),) = nav.items()
        kept = _existing_pages(target, docs)
        return {title: kept} if kept else None
    return nav if nav.startswith("reference/") or (docs / nav).is_file() else None


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """mkdocs hook: add the reference, and the repository's files that pages link to."""
    from mkdocs.structure.files import File

    pages = files.documentation_pages()
    linked = {target for page in pages for target in _outgoing(page.src_uri).findall(page.content_string)}
    for name, make_page in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=make_page()))
    for target in sorted(linked):
        files.append(File.generated(config, f"files/{target}", abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """mkdocs hook: point links out of docs/ to the copies of the files that they link to."""
    if page.file.generated_by:
        return markdown
    return _outgoing(page.file.src_uri).sub(rf"]({'../' * page.file.src_uri.count('/')}files/\1", markdown)


def _outgoing(page: str) -> re.Pattern[str]:
    """Matches a page's links out of docs/; the group is the path in the repository."""
    return re.compile(rf"\]\((?:\.\./){{{page.count('/') + 1}}}([^)#]+)")
