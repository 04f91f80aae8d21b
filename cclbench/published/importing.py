# SPDX-License-Identifier: Apache-2.0
"""From a leaderboard to the store: a run a row, without traces, every number as published and flagged."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from cclbench import __version__
from cclbench.file_names import stored_name
from cclbench.published.cards import card_of
from cclbench.published.columns import COLUMNS
from cclbench.published.defects import defects
from cclbench.published.leaderboard import Leaderboard, PublishedRow, read_leaderboard
from cclbench.published.results import SOURCE, result_rows
from cclbench.record.files import write_table
from cclbench.record.inventory import RESULTS_FILE, write_manifest
from cclbench.record.manifest import CardLine, Manifest, Options, Published
from cclbench.record.results import Results
from cclbench.record.rows import Row
from cclbench.record.run import write_results
from cclbench.record.store import Store
from cclbench.schema import GROUPS, LAYOUT, VERSION
from cclbench.scratch import temporary
from cclbench.workspace import store_at

_LONGEST_NAME: Final = 100


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """A row in the store."""

    run: str
    row: int
    name: str
    numbers: int
    """Published numbers that are numbers."""
    flagged: int
    """Of these, those with something to know about them."""
    no_number: int
    """Published numbers that stand for no data."""
    card: bool
    """Whether its metadata makes a valid workload card."""
    new: bool
    """Whether it was not in the store."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import brought in."""

    file: Path
    generated_at: str | None
    runs: tuple[ImportedRun, ...]
    defects: Mapping[str, int]
    """Values by the key of what is wrong with them."""
    unknown_columns: Mapping[str, int]
    """Numbers left out, by the column that answers no metric of ours."""


def import_ccl_bench(path: str | Path, store: str | Path | None = None) -> Imported:
    """Bring CCL-Bench's `benchmark_data.json` into the store as published runs; known rows stay as they are.

    All rows are read before the first is written, and each becomes a run whole or not at all.  Raises
    `InputError` where the file is not what it should be.
    """
    board = read_leaderboard(Path(path))
    into = store_at(store)
    with temporary() as folder:
        runs = tuple(_import_row(row, board, into, folder) for row in board.rows)
    values = [(row, column) for row in board.rows for column in row.metrics]
    return Imported(
        file=board.path,
        generated_at=board.generated_at,
        runs=runs,
        defects=Counter(defect.key for row, column in values for defect in defects(row, column)),
        unknown_columns=Counter(
            column for row, column in values if column not in COLUMNS and row.metrics[column] is not None
        ),
    )


def _import_row(row: PublishedRow, board: Leaderboard, store: Store, scratch: Path) -> ImportedRun:
    slug = re.sub(r"[^a-z0-9._]+", "-", row.name.lower())[:_LONGEST_NAME].strip("-._")
    run = "-".join(filter(None, (SOURCE, slug, row.sha256[:8])))
    fingerprint = sha256(f"{VERSION} {LAYOUT} {__version__} {row.sha256}".encode()).hexdigest()
    kept = store.find(run)
    new = kept is None or not kept.is_current(fingerprint)
    results = result_rows(row)
    if new:
        _write(row, board, store, scratch, run, fingerprint, results)
    of_columns = results[: len(COLUMNS)]
    told = [result for result in of_columns if result.status == "ok"]
    given = sum(row.metrics.get(column) is not None for column in COLUMNS)
    return ImportedRun(
        run=run,
        row=row.number,
        name=row.name,
        numbers=len(told),
        flagged=sum(result.reason is not None for result in told),
        no_number=given - len(told),
        card=store.get(run).card is not None,
        new=new,
    )


def _write(
    row: PublishedRow,
    board: Leaderboard,
    store: Store,
    scratch: Path,
    run: str,
    fingerprint: str,
    results: list[Row],
) -> None:
    card = card_of(row, run, scratch)
    about = CardLine(run, f"row {row.number}", row.text("description") or None)
    manifest = Manifest(
        run=run,
        fingerprint=fingerprint,
        source=stored_name(board.path),
        card=None if card.text is None else about,
        ingest=Options(inference=False),
        notes=[f"figures are as {SOURCE} published them; no trace was read"],
        published=Published(
            source=SOURCE,
            generated_at=board.generated_at,
            sha256=board.sha256,
            row=row.number,
            metadata=dict(row.metadata),
            left_out_of_card=list(card.left_out),
        ),
    )
    with store.creating(run) as folder:
        if card.text is not None:
            (folder / "card.yaml").write_text(card.text, "utf-8")
        write_table(folder / "groups.parquet", GROUPS.empty_table())
        write_results(folder / RESULTS_FILE, Results.of(results), {})
        write_manifest(manifest, folder)
