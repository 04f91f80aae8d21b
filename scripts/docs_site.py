# SPDX-License-Identifier: Apache-2.0
"""Reference pages of the documentation's site, made from the code while mkdocs builds it (see mkdocs.yml).

Texts come out as HTML, escaped, so that no bar or star in a formula is taken for markup.
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
    """A text with its `code` marked."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def _code(name: str) -> str:
    """A name as code, which may break after its dots and underscores."""
    breakable = re.sub(r"([._])", r"\1<wbr>", escape(name))
    return f"<code>{breakable}</code>"


def facts(rows: Iterable[tuple[str, ...]]) -> str:
    """A table whose first column names; cells are HTML."""
    lines = (
        f"<tr><th>{head}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for head, *cells in rows
    )
    return '<table class="facts">\n' + "\n".join(lines) + "\n</table>"


def _page(title: str, *parts: str) -> str:
    """A page of Markdown."""
    return "\n\n".join([f"# {title}", *parts]) + "\n"


def metrics() -> str:
    """All of ours, by topic, as `cclbench explain` explains them."""
    found = [
        metric_explanation(METRICS.get(name))
        for name in METRICS
        if METRICS.origin(name).startswith("cclbench.")
    ]
    parts = [
        "What `cclbench explain` prints, for every metric; `cclbench list metrics` has those of plug-ins too."
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
        "better": row["better"] or "neither: it describes",
        "inputs": escape(", ".join(row["inputs"])),
        "over ranks": prose(row["combined"]),
        "not applicable": prose(row["not_applicable"]),
        "also called": ", ".join(map(_code, row["aliases"])),
        "version": str(row["version"]),
    }
    return facts((name, cell) for name, cell in rows.items() if cell)


def findings() -> str:
    """All of ours, as `cclbench explain` explains them."""
    parts = ["How they are ranked and bounded: [Why is it slow?](../findings.md)."]
    for name in FINDINGS:
        if FINDINGS.origin(name).startswith("cclbench."):
            one = FINDINGS.get(name)
            rows = [("found by", prose(one.rule)), ("gain", prose(one.gain))]
            for framework, actions in one.actions.items():
                title = "try" if framework == "any" else f"try with {framework}"
                rows += [(title, prose(action)) for action in actions]
            parts += [f"## {name}", f"<p>{prose(one.title)}</p>", facts(rows)]
    return _page("Findings", *parts)


def operators() -> str:
    """Every cost model of ours, by family, as its docstring has it."""
    models = [MODELS.get(name) for name in MODELS if MODELS.origin(name).startswith("cclbench.")]
    parts = [
        "What is counted, and how it is checked: [What an operator costs](../operators.md)."
        " Operators are regular expressions of whole names.",
    ]
    for family, own in groupby(sorted(models, key=lambda one: one.family), lambda one: one.family):
        parts.append(f"## {family}")
        for model in own:
            names = ("operators", ", ".join(f"<code>{escape(one)}</code>" for one in model.patterns))
            told = [(key, escape(model.docstring_parts[key])) for key in ("FLOPs", "Bytes", "Source")]
            definition = f"<p>{prose(model.docstring_parts['definition'])}</p>"
            parts += [f"### {model.name}", definition, facts([names, *told])]
    return _page("Operators", *parts)


_READS = {
    "trace": "traces",
    "execution_trace": "operators without times, beside traces",
    "evidence": "evidence beside traces, or alone",
}


def readers() -> str:
    """Every format, as `cclbench list readers` has it."""
    parts = ["What each cannot tell: [What cclbench reads](../what-cclbench-reads.md)."]
    for name in READERS:
        if READERS.origin(name).startswith("cclbench."):
            one = READERS.get(name)
            rows = [
                ("reads", _READS[one.reads]),
                ("formats", prose(one.description)),
                ("files", " ".join(map(_code, one.extensions))),
                ("capture", prose(one.capture)),
                ("versions", prose(one.versions)),
                ("tested on", prose(one.tested)),
            ]
            parts += [f"## {name}", facts(rows)]
    return _page("Readers", *parts)


def tables() -> str:
    """The columns of what a run stores, each with its unit and meaning."""
    parts = [
        "What `cclbench sql` queries and what `run.events()` and its like return. Times are nanoseconds since"
        " 1970 by the rank's own clock, unless a column says otherwise. What nobody knows is null.",
    ]
    for name, own in (schema.TABLES | MACHINE_TABLES).items():
        rows = [(field.name, _kind(field), _meaning(field)) for field in own]
        rows += [("rank", "int32", "rank whose event it is")] if name == "events" else []
        parts += [f"## {name}", facts((_code(column), kind, text) for column, kind, text in rows)]
    return _page("Tables", *parts)


def views() -> str:
    """Every view of the SQL library of ours, as `cclbench explain` explains it."""
    parts = [
        "What `cclbench sql`, `run.sql()` and agents query beside the [tables](tables.md);"
        " [Add a view](../add-a-view.md) says how to write one. Times are nanoseconds.",
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
    told = {key.decode(): value.decode() for key, value in field.metadata.items()}
    return prose(told["meaning"]) + (f" ({escape(told['unit'])})" if told["unit"] else "")


def hardware(title: str, entries: Callable[[], Mapping[str, Entry]]) -> str:
    """Entries of the catalog, each figure with its source."""
    os.environ.pop(VARIABLE, None)  # ours alone
    parts = ["`cclbench hardware show ID` prints the same. Rates are per direction, peaks are dense."]
    for one in entries().values():
        rows = [
            (_code(row["field"]), escape(row["shown"]), escape(row["source"] or ""))
            for row in figures_of(one)
        ]
        parts += [f"## {one.id}", f"<p>{prose(entry_summary(one))}</p>", facts(rows), _sources(one)]
    return _page(title, *parts)


def _sources(one: Entry) -> str:
    lines = []
    for key, source in one.sources.items():
        title = escape(source.title)
        linked = f'<a href="{escape(source.url)}">{title}</a>' if source.url else title
        lines.append(f"<li>{_code(key)}: {linked}, {escape(source.date)}</li>")
    lines += [
        f"<li>{_code(other.source)} says of {_code(other.field)}: {escape(other.says)}</li>"
        for other in one.disagreements
    ]
    notes = f"<p>{prose(one.notes)}</p>" if one.notes else ""
    return f"<ul>{''.join(lines)}</ul>{notes}" if lines or notes else ""


def command_line() -> str:
    """Every command, from its own help."""
    parts = [
        "Data goes to stdout, all else to stderr. Exit codes: 0 done; 1 a check failed; 2 wrong usage;"
        " 3 input unreadable, corrupt or unsupported; 4 internal error.",
    ]
    return _page("Command line", *parts, *_commands(cli, click.Context(cli, info_name="cclbench")))


def _commands(group: click.Group, context: click.Context) -> Iterable[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None  # noqa: S101  (the group lists it)
        own = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from _commands(command, own)
        else:
            yield f"## {own.command_path}"
            yield f"```text\n{command.get_usage(own).removeprefix('Usage: ')}\n```"
            yield from map(_paragraph, cleandoc(command.help or "").split("\n\n"))
            options = [one for one in command.get_params(own) if isinstance(one, click.Option)]
            records = filter(None, (option.get_help_record(own) for option in options))
            yield facts((_code(names), prose(told)) for names, told in records)


def _paragraph(text: str) -> str:
    """A paragraph of a help text; click prints those that begin with a backspace as they are."""
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
"""What is made, by name under reference/."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """mkdocs' hook: pages that are not written yet have no place in the navigation."""
    config.nav = _there(config.nav, Path(config.docs_dir))
    return config


def _there(nav: Any, docs: Path) -> Any:
    if isinstance(nav, list):
        return [one for one in (_there(entry, docs) for entry in nav) if one]
    if isinstance(nav, dict):
        ((title, target),) = nav.items()
        kept = _there(target, docs)
        return {title: kept} if kept else None
    return nav if nav.startswith("reference/") or (docs / nav).is_file() else None


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """mkdocs' hook: adds the reference, and the repository's files that pages link to."""
    from mkdocs.structure.files import File

    pages = files.documentation_pages()
    linked = {target for page in pages for target in _outward(page.src_uri).findall(page.content_string)}
    for name, made in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=made()))
    for target in sorted(linked):
        files.append(File.generated(config, f"files/{target}", abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """mkdocs' hook: a link out of docs/, as it works in the repository, leads to the file's copy."""
    if page.file.generated_by:
        return markdown
    return _outward(page.file.src_uri).sub(rf"]({'../' * page.file.src_uri.count('/')}files/\1", markdown)


def _outward(page: str) -> re.Pattern[str]:
    """Links of a page that lead out of docs/, with the place in the repository that each leads to."""
    return re.compile(rf"\]\((?:\.\./){{{page.count('/') + 1}}}([^)#]+)")
