# SPDX-License-Identifier: Apache-2.0
"""Runs without traces: published figures that a study or a plug-in writes into a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from cclbench import __version__
from cclbench.ground.schema import GROUPS, LAYOUT, VERSION
from cclbench.record.files import write_table
from cclbench.record.inventory import RESULTS_FILE, write_manifest
from cclbench.record.manifest import CardLine, Manifest, Options, Published
from cclbench.record.results import Results
from cclbench.record.rows import Row
from cclbench.record.run import Run, write_results
from cclbench.record.store import Store

__all__ = ["Published", "current_run", "metadata_count", "metadata_text", "write_published_run"]


def current_run(store: Store, run: str, content: str) -> Run | None:
    """The run of that id if it is intact and this version of cclbench made it from that content, else None.

    `content` is the SHA-256 of the publication.
    """
    stored = store.find(run)
    return stored if stored is not None and stored.is_current(_published_fingerprint(content)) else None


def write_published_run(
    store: Store,
    run: str,
    content: str,
    *,
    published: Published,
    file: str,
    figures: Sequence[Row],
    card: str | None = None,
    description: str | None = None,
) -> Run:
    """Write published figures into the store as the run of that id, whole or not at all.

    `file` is the name of their source; `card` the text of a valid workload card, shown with `description`.
    The rows of `figures` have the provenance `published`.  An existing run of that id is replaced.
    """
    about = CardLine(run, f"row {published.row}", description)
    manifest = Manifest(
        run=run,
        fingerprint=_published_fingerprint(content),
        source=file,
        card=None if card is None else about,
        ingest=Options(inference=False),
        notes=[f"figures are as {published.source} published them; no trace was read"],
        published=published,
    )
    with store.new_run_folder(run) as folder:
        if card is not None:
            (folder / "card.yaml").write_text(card, "utf-8")
        write_table(folder / "groups.parquet", GROUPS.empty_table())
        write_results(folder / RESULTS_FILE, Results.from_rows(figures), {})
        write_manifest(manifest, folder)
    return store.get(run)


def _published_fingerprint(content: str) -> str:
    return sha256(f"{VERSION} {LAYOUT} {__version__} {content}".encode()).hexdigest()


def metadata_text(metadata: Mapping[str, Any], key: str) -> str:
    """A text of published metadata; empty if there is none."""
    value = metadata.get(key)
    return value if isinstance(value, str) else ""


def metadata_count(metadata: Mapping[str, Any], key: str) -> int | None:
    """A whole number of published metadata; None if there is none."""
    value = metadata.get(key)
    return value if type(value) is int else None
