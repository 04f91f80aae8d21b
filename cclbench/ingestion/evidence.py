# SPDX-License-Identifier: Apache-2.0
"""Evidence other than traces: its tables into the run's folder, its facts into the manifest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import pyarrow as pa

from cclbench.engine import Engine, Progress
from cclbench.formats import READERS
from cclbench.ingestion.entry import kept
from cclbench.record.files import with_columns, write_table
from cclbench.record.manifest import EvidenceFile
from cclbench.schema import EVIDENCE
from cclbench.source import SourceFile


def ingest_evidence(
    files: Sequence[SourceFile], folder: Path, *, engine: Engine, progress: Progress | None
) -> list[EvidenceFile]:
    """Write the tables of all files under `folder`; returns what the manifest says of each file."""
    work = partial(_one, folder)
    tasks, size = list(enumerate(files)), sum(file.bytes for file in files)
    return engine.map(work, tasks, progress=progress, what="reading evidence", size_bytes=size)


def _one(folder: Path, task: tuple[int, SourceFile]) -> EvidenceFile:
    index, file = task
    reader = READERS.get(file.reader)
    assert reader.reads == "evidence"  # noqa: S101 - sources sort their files by it
    told = reader.read(file.path)
    rows = {}
    for name in EVIDENCE:
        table: pa.Table | None = getattr(told, name)
        if table is not None and len(table):
            rows[name] = len(table)
            write_table(folder / name / f"evidence-{index:03d}.parquet", of_file(table, name, file))
    return EvidenceFile(
        **msgspec.structs.asdict(kept(file)),
        rows=rows,
        facts=told.facts,
        left_out=dict(sorted(told.left_out.items())),
        notes=told.notes,
    )


def of_file(table: pa.Table, name: str, file: SourceFile) -> pa.Table:
    """The table with who says so filled in: `source` is the reader, `file` its name within the source."""
    schema = EVIDENCE[name]
    for column, value in (("source", file.reader), ("file", file.name)):
        words = pa.array([value] * len(table), pa.string()).dictionary_encode()
        table = with_columns(table, schema, {column: words.cast(schema.field(column).type)})
    return table.cast(schema)
