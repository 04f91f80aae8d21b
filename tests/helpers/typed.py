# SPDX-License-Identifier: Apache-2.0
"""Manifests and result rows that tests write down as plain dicts, as the types of the record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cclbench.record.facts import TraceFacts
from cclbench.record.inventory import write_manifest
from cclbench.record.manifest import MANIFEST, File, Manifest, RankEntry
from cclbench.record.rows import Row
from cclbench.record.run import Run

PUBLISHED = {"source": "somebody", "generated_at": None, "sha256": "0" * 64, "row": 3, "metadata": {}}
PUBLISHED |= {"left_out_of_card": []}
"""What a manifest says of published figures."""


def figures(rows: Iterable[Mapping[str, Any]]) -> list[Row]:
    """The rows; what one does not say is that of a measured step time."""
    blank = {"metric": "time.step", "unit": "s", "status": "ok", "window": "steps", "version": 1}
    return msgspec.convert([{**blank, **row} for row in rows], list[Row])


def record(manifest: Mapping[str, Any]) -> Manifest:
    """The manifest; what it does not say of run and source is empty."""
    return msgspec.convert({"run": "", "fingerprint": "", "source": "", **manifest}, Manifest)


def run_of(folder: Path, files: Iterable[str], rows: Mapping[str, int] | None = None, **facts: Any) -> Run:
    """A run of the tables in its folder; its ranks' traces are those files, with those rows and facts."""
    told = TraceFacts(**{"works_on": "device", **facts})
    entries = [
        RankEntry(rank=rank, facts=told, rows=dict(rows or {}), files=[File(name, 0, "", "kineto")])
        for rank, name in enumerate(files)
    ]
    written = Manifest(run=folder.name, fingerprint="", source="", ranks=entries)
    write_manifest(written, folder)
    return Run(folder)


def rewrite_manifest(folder: Path, document: Mapping[str, Any] | None = None) -> None:
    """Write that manifest, by default the one that is there, with the files that are there now."""
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes()) if document is None else dict(document)
    ranks = [{**entry, "stored": []} for entry in manifest["ranks"]]
    write_manifest(record({**manifest, "ranks": ranks, "stored": []}), folder)


def changed(raw: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The document with those changes: dotted paths with `__`, None removes."""
    for path, value in changes.items():
        *folders, last = path.split("__")
        place = raw
        for folder in folders:
            place = place[folder]
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return raw
