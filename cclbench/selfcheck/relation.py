# SPDX-License-Identifier: Apache-2.0
"""A relation: a change of traces, and the expected figures of the run made from them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import isclose
from pathlib import Path

from cclbench.findings.finding import Finding
from cclbench.ingestion.source import Source
from cclbench.record.facts import TraceFacts
from cclbench.record.rows import Row
from cclbench.selfcheck.changes import TraceChange
from cclbench.selfcheck.outcome import Outcome
from cclbench.selfcheck.reading import LISTED, CheckedReading, Key, NotApplicableError, key_of

Place = tuple[Key, float]
"""Key and factor expected of a row in the changed run."""


class Relation:
    """A change of traces, and its expected effect on each row."""

    name: str
    claim: str
    tolerance = 1e-9
    """Relative tolerance of figures of equal times: floating-point sums in another order."""
    absolute = 1e-15
    """Absolute tolerance, for figures that are 0."""
    keeps_findings = True
    """Whether findings and their gains must stay the same."""
    on_device = False
    """Whether it does not apply to runs whose device is the CPU."""
    kind: Callable[[], TraceChange] = TraceChange
    """The change of each trace."""

    def __init__(self, source: Source, reading: CheckedReading) -> None:
        self.source, self.reading = source, reading

    def changed_source(self, folder: Path) -> Source:
        """The source to read; further files may be created in the folder."""
        del folder
        if self.on_device and any(one.facts.works_on == "host" for one in self.reading.run.record.ranks):
            raise NotApplicableError("threads are the devices of this run")
        return self.source

    def change_of(self, path: Path) -> TraceChange:
        """The change of a file's trace, or of one of its members."""
        del path
        return self.kind()

    def is_new(self, key: Key) -> bool:
        """Whether a row may exist only in the changed run."""
        del key
        return False

    def begin_ns(self) -> int:
        """Begin of the run, ns; `NotApplicableError` if its traces hold no work."""
        spans = [entry.span_ns for entry in self.reading.run.record.ranks if entry.span_ns is not None]
        if not spans:
            raise NotApplicableError("the traces hold no work")
        return min(begin for begin, _ in spans)

    def rank_of(self, path: Path) -> Callable[[TraceFacts], int]:
        """Function that gives the rank of a file's member from its facts."""
        name = next(file.name for file in self.source.files if file.path == path)
        return partial(self.reading.rank_of, name)

    def expected_place(self, row: Row) -> Place | None:
        """Expected key and factor of a row; None if not predicted."""
        return key_of(row), 1.0


def compare_readings(relation: Relation, again: CheckedReading) -> Outcome:
    """Compare each row and finding of the run with that of the changed run."""
    found = {key_of(row): row for row in again.rows}
    differences, compared, placed = list[str](), 0, set[Key]()
    for row in relation.reading.rows:
        if (place := relation.expected_place(row)) is None:
            continue
        key, factor = place
        compared += 1
        placed.add(key)
        if (said := _row_difference(row, factor, found.get(key), relation)) is not None:
            differences.append(f"{_row_label(key)}: {said}")
    if compared == len(relation.reading.rows):
        more = [key for key in found if key not in placed and not relation.is_new(key)]
        differences += [f"{_row_label(key)}: only then" for key in more]
    if relation.keeps_findings:
        own, others = (
            [_gain_words(one) for one in reading.findings] for reading in (relation.reading, again)
        )
        compared += len(own)
        differences += [f"finding {one}: not found any more" for one in own if one not in others]
        differences += [f"finding {one}: only then" for one in others if one not in own]
    return Outcome(
        check=relation.name,
        claim=relation.claim,
        status="broken" if differences else "holds",
        compared=compared,
        differing=len(differences),
        differences=differences[:LISTED],
    )


def _row_difference(row: Row, factor: float, other: Row | None, relation: Relation) -> str | None:
    """How a row differs from the expected one; None if it does not."""
    if other is None:
        return "no such row then"
    if row.status != other.status:
        return f"{row.status}, then {other.status} ({other.reason})"
    if row.value is None or other.value is None:
        return None
    expected = row.value * factor
    if isclose(expected, other.value, rel_tol=relation.tolerance, abs_tol=relation.absolute):
        return None
    return f"{other.value:.12g} where {expected:.12g} {row.unit} has to be"


def _row_label(key: Key) -> str:
    """Label of a row: its metric and the key fields that are set."""
    metric, rank, step, *others = key
    narrowed = [f"rank {rank}"] * (rank is not None) + [f"step {step}"] * (step is not None)
    return " ".join([metric, *narrowed, *filter(None, others)])


def _gain_words(found: Finding) -> str:
    """Name, ranks and gain of a finding."""
    gain = "no gain" if found.gain_s is None else " to ".join(f"{bound:.4g}" for bound in found.gain_s)
    return f"{found.name} {found.ranks or ''} {gain}"
