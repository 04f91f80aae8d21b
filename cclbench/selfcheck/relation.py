# SPDX-License-Identifier: Apache-2.0
"""A relation: a change of traces, and how each figure has to be in the run that is made of them."""

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
"""Where a row has to be found once more, and times what."""


class Relation:
    """A change of traces, and what follows for each row."""

    name: str
    claim: str
    tolerance = 1e-9
    """By what share figures of equal times may differ: floating-point sums in another order."""
    absolute = 1e-15
    """By how much: a figure that is 0."""
    keeps_findings = True
    """Whether the same is found, with the same gains."""
    on_device = False
    """Whether it says nothing of runs whose device is the CPU."""
    kind: Callable[[], TraceChange] = TraceChange
    """What happens to each trace."""

    def __init__(self, source: Source, reading: CheckedReading) -> None:
        self.source, self.reading = source, reading

    def changed_source(self, folder: Path) -> Source:
        """The files to be read, further ones of which may lie in the folder."""
        del folder
        if self.on_device and any(one.facts.works_on == "host" for one in self.reading.run.record.ranks):
            raise NotApplicableError("threads are the devices of this run")
        return self.source

    def change_of(self, path: Path) -> TraceChange:
        """What happens to the trace of a file, or of one of its members."""
        del path
        return self.kind()

    def is_new(self, key: Key) -> bool:
        """Whether a row may be there that was not."""
        del key
        return False

    def begin_ns(self) -> int:
        """When the run begins; `NotApplicableError` where its traces hold no work."""
        spans = [entry.span_ns for entry in self.reading.run.record.ranks if entry.span_ns is not None]
        if not spans:
            raise NotApplicableError("the traces hold no work")
        return min(begin for begin, _ in spans)

    def rank_of(self, path: Path) -> Callable[[TraceFacts], int]:
        """The rank of a file's members, by what their traces say of themselves."""
        name = next(file.name for file in self.source.files if file.path == path)
        return partial(self.reading.rank_of, name)

    def expected_place(self, row: Row) -> Place | None:
        """Of a row of the run; None for one of which nothing is known."""
        return key_of(row), 1.0


def compare_readings(relation: Relation, again: CheckedReading) -> Outcome:
    """Each row of the run, and each finding, with what has become of it."""
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
    """How a row differs from what it has to be; None where it does not."""
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
    """A row by what narrows it."""
    metric, rank, step, *others = key
    narrowed = [f"rank {rank}"] * (rank is not None) + [f"step {step}"] * (step is not None)
    return " ".join([metric, *narrowed, *filter(None, others)])


def _gain_words(found: Finding) -> str:
    """A finding by its name, its ranks and its gain."""
    gain = "no gain" if found.gain_s is None else " to ".join(f"{bound:.4g}" for bound in found.gain_s)
    return f"{found.name} {found.ranks or ''} {gain}"
