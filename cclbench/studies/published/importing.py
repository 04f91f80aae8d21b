# SPDX-License-Identifier: Apache-2.0
"""Import of published rows into the store: one run per row, without traces, each number as published."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from cclbench.ground.file_names import stored_name
from cclbench.ground.scratch import temporary_folder
from cclbench.record.published import Published, current_run, write_published_run
from cclbench.record.rows import Row
from cclbench.record.run import Run
from cclbench.record.store import Store
from cclbench.studies.published.cards import card_of
from cclbench.studies.published.columns import COLUMNS
from cclbench.studies.published.defects import defects_of
from cclbench.studies.published.leaderboard import Publication, PublishedRow, read_leaderboard
from cclbench.studies.published.results import result_rows
from cclbench.studies.published.search import read_search
from cclbench.workspace import store_at

_LONGEST_NAME: Final = 100


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """A row imported as a run."""

    run: str
    row: int
    name: str
    numbers: int
    """Published numbers that are valid."""
    flagged: int
    """Of these, the ones with known defects."""
    no_number: int
    """Published numbers that mean no data."""
    card: bool
    """Whether its metadata form a valid workload card."""
    new: bool
    """Whether it was not in the store before."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The outcome of an import."""

    file: Path
    generated_at: str | None
    remarks: tuple[str, ...]
    """What is to be known about all runs, most important first."""
    runs: tuple[ImportedRun, ...]
    defects: Mapping[str, int]
    """Number of values by defect."""
    unknown_columns: Mapping[str, int]
    """Numbers left out, by column without a corresponding metric."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A published row with its figures as our metrics."""

    row: PublishedRow
    figures: Sequence[Row]
    numbers: int
    """Published numbers that are valid."""
    flagged: int = 0
    """Of these, the ones with known defects."""
    no_number: int = 0
    """Published numbers that mean no data."""


def import_ccl_bench(path: str | Path, store: str | Path | None = None) -> Imported:
    """Import CCL-Bench's `benchmark_data.json` as published runs; rows already in the store are unchanged.

    All rows are read before the first is written, and each run is written entirely or not at all.  Raises
    `InputError` if the file is invalid.
    """
    return _import_columns(read_leaderboard(Path(path)), store)


def import_ccl_search(
    path: str | Path, script: str | Path, card: str | Path | None = None, store: str | Path | None = None
) -> Imported:
    """Import the trials of a configuration search by CCL-Bench's agent, its `results.csv`, as published runs.

    `script` is the launch script that the search ran, which is read and never run; `card` the search's
    workload card of version 1, without which model and hardware are unknown.  Otherwise as
    `import_ccl_bench`.
    """
    return _import_columns(read_search(Path(path), Path(script), None if card is None else Path(card)), store)


def _import_columns(publication: Publication, store: str | Path | None) -> Imported:
    """Import rows of CCL-Bench's columns."""
    values = [(row, column) for row in publication.rows for column in row.metrics]
    return import_publication(
        publication,
        [_entry(row, publication.source) for row in publication.rows],
        store,
        defects=Counter(defect.key for row, column in values for defect in defects_of(row, column)),
        unknown_columns=Counter(
            column for row, column in values if column not in COLUMNS and row.metrics[column] is not None
        ),
    )


def _entry(row: PublishedRow, publisher: str) -> Entry:
    figures = result_rows(row, publisher)
    with_value = [figure for figure in figures[: len(COLUMNS)] if figure.status == "ok"]
    numbers = sum(row.metrics.get(column) is not None for column in COLUMNS)
    flagged = sum(figure.reason is not None for figure in with_value)
    return Entry(row, figures, len(with_value), flagged, numbers - len(with_value))


def import_publication(
    publication: Publication,
    entries: Sequence[Entry],
    store: str | Path | None,
    defects: Mapping[str, int] = MappingProxyType({}),
    unknown_columns: Mapping[str, int] = MappingProxyType({}),
) -> Imported:
    """Write the entry of each row as a run; those already in the store are unchanged."""
    into = store_at(store)
    with temporary_folder() as folder:
        runs = tuple(_import_entry(entry, publication, into, folder) for entry in entries)
    return Imported(
        publication.path, publication.generated_at, publication.remarks, runs, defects, unknown_columns
    )


def _import_entry(entry: Entry, publication: Publication, store: Store, scratch: Path) -> ImportedRun:
    row = entry.row
    slug = re.sub(r"[^a-z0-9._]+", "-", row.workload_name.lower())[:_LONGEST_NAME].strip("-._")
    run = "-".join(filter(None, (publication.source, slug, row.sha256[:8])))
    current = current_run(store, run, row.sha256)
    stored = _write_run(entry, publication, store, scratch, run) if current is None else current
    return ImportedRun(
        run=run,
        row=row.number,
        name=row.workload_name,
        numbers=entry.numbers,
        flagged=entry.flagged,
        no_number=entry.no_number,
        card=stored.card is not None,
        new=current is None,
    )


def _write_run(entry: Entry, publication: Publication, store: Store, scratch: Path, run: str) -> Run:
    row = entry.row
    card = card_of(row, run, scratch)
    published = Published(
        source=publication.source,
        generated_at=publication.generated_at,
        sha256=publication.sha256,
        row=row.number,
        metadata=dict(row.metadata),
        left_out_of_card=list(card.left_out),
    )
    return write_published_run(
        store,
        run,
        row.sha256,
        published=published,
        file=stored_name(publication.path),
        figures=entry.figures,
        card=card.text,
        description=row.text("description") or None,
    )
