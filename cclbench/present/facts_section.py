# SPDX-License-Identifier: Apache-2.0
"""Facts about a run on a page: ingestion facts, its card, its files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any, Final

import msgspec

from cclbench.comparison.subject import ComparisonSubject
from cclbench.present.run_summary import device_words, fact_lines, summarise_run
from cclbench.record.manifest import File, Manifest
from cclbench.record.metric_name import metric_name
from cclbench.record.store import stated_date

_STEP: Final = metric_name("time.step")

MOST_FILES: Final = 300
MOST_FIELDS: Final = 200
_DEEPEST: Final = 8


def facts_section(subject: ComparisonSubject) -> dict[str, Any]:
    """The facts of a run, for the template; files beyond `MOST_FILES` are counted.

    Files have their rank, if any, and their names without folders.
    """
    record = subject.stored.record
    files = list(_source_files(record))
    step = subject.results.run.get(_STEP)
    summary = summarise_run(record, subject.results.scope, step.window if step else None)
    return {
        "subject": subject,
        "found": list(fact_lines(record, summary)),
        "published": _dotted_fields(msgspec.to_builtins(record.published) if record.published else {}),
        "card": _dotted_fields(subject.card or {}),
        "files": files[:MOST_FILES],
        "more_files": max(0, len(files) - MOST_FILES),
    }


def about_run(subject: ComparisonSubject) -> Iterator[tuple[str, str]]:
    """The facts at the head of a page: device, ranks, date, card, and the command that measures it."""
    record = subject.stored.record
    if record.ranks:
        facts = dict(fact_lines(record, summarise_run(record, subject.results.scope, None)))
        yield "device", device_words(record) or ""
        yield ("rank" if len(record.ranks) == 1 else "ranks"), facts["ranks"]
        open_words = ", incomplete" if subject.all_open else ""
        yield "steps", f"{subject.step_count}{open_words}" if subject.step_count else "none, whole trace"
    if dated := stated_date(record):
        yield "date", f"{dated[0]:%Y-%m-%d %H:%M} UTC"
    yield "card", record.card.id if record.card else "none"
    yield "command", f"cclbench run {record.source}"


def _dotted_fields(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A document's fields by dotted path; fields beyond `MOST_FIELDS` are counted."""
    fields = list(_flatten_value(document, "", 0))
    more = len(fields) - MOST_FIELDS
    return [*fields[:MOST_FIELDS], *([("…", f"{more} more fields")] if more > 0 else [])]


def _flatten_value(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and depth < _DEEPEST:
        for key, inner in value.items():
            yield from _flatten_value(inner, f"{path}.{key}".removeprefix("."), depth + 1)
    elif isinstance(value, list | tuple) and depth < _DEEPEST and any(isinstance(v, Mapping) for v in value):
        for place, inner in enumerate(value):
            yield from _flatten_value(inner, f"{path}[{place}]", depth + 1)
    elif value is not None:
        yield path, ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _source_files(record: Manifest) -> Iterator[tuple[str, str, File]]:
    of_ranks = [(str(rank.rank), file) for rank in record.ranks for file in (*rank.files, *rank.beside)]
    for rank, file in (*of_ranks, *(("", file) for file in record.evidence)):
        yield rank, PurePath(file.name).name, file
