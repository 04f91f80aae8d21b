# SPDX-License-Identifier: Apache-2.0
"""Timelines of operators as tables (Parquet, CSV or JSON lines), described by a mapping, `timeline.yaml`.

A row is one run of an operator on a rank: its name, start, duration and step.  The mapping states what each
operator does and which ranks communicate: nothing is inferred from names.
"""

from __future__ import annotations

from pathlib import Path

from cclbench.formats import READERS, Part, Reader, Trace
from cclbench.formats.rewriting import Redactor
from cclbench.formats.timeline.mapping import ENDINGS, FILE, is_mapped
from cclbench.ground.errors import InputError


class Timeline(Reader):
    """Reader of operator timelines."""

    name = "timeline"
    precedence = 5
    description = "timelines of operators as tables, Parquet, CSV or JSON lines, with a mapping beside them"
    extensions: tuple[str, ...] = (*ENDINGS, ".csv.gz", ".jsonl.gz")
    described_by = FILE
    capture = (
        "rows of rank, step, operator, start and duration; `timeline.yaml` next to them names the columns"
    )
    versions = "version 1 of the mapping"
    tested = "real: the operators of an 8-rank pipeline job"

    def sniff(self, head: bytes) -> float:
        """Always 0: tables are recognised by the mapping next to them."""
        del head
        return 0.0

    def is_described(self, path: Path) -> bool:
        """Whether the `timeline.yaml` next to it names the file."""
        return is_mapped(path)

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """`InputError`: a data point cannot contain the mapping, without which a table cannot be read."""
        del target, redactor
        raise InputError(f"needs the {FILE} next to it, which a data point cannot contain", where=str(path))

    def parts(self, path: Path) -> list[Part]:
        """One part for each rank of the file."""
        from cclbench.formats.timeline.reading import rank_parts

        return rank_parts(path)

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """Read one rank of the file."""
        from cclbench.formats.timeline.reading import read_rank

        del allow_truncated
        return read_rank(path, int(part.member))


READERS.add(Timeline.name, Timeline(), origin=__name__)
