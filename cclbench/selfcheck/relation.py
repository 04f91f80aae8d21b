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
from cclbench.selfcheck.reading import LISTED, CheckedReading, Key, NotApplicableError, row_key

ExpectedRow = tuple[Key, float]
"""Key and factor expected of a row in the changed run."""


class Relation:
    """A change of traces, and its expected effect on each row."""

    name: str
    claim: str
    tolerance = 1e-9
    """Relative tolerance: floating-point sums depend on the order of their terms."""
    absolute_tolerance = 1e-15
    """Absolute tolerance, for figures that are 0."""
    keeps_findings = True
    """Whether findings and their gains must not change."""
    device_only = False
    """Whether it does not apply to runs whose device is the CPU."""
    make_change: Callable[[], TraceChange] = TraceChange
    """The change of each trace."""

    def __init__(self, source: Source, reading: CheckedReading) -> None:
        self.source, self.reading = source, reading

    def changed_source(self, folder: Path) -> Source:
        """The source to read; further files may be created in the folder."""
        del folder
        if self.device_only and any(
            entry.facts.works_on == "host" for entry in self.reading.run.record.ranks
        ):
            raise NotApplicableError("the run's device is the CPU")
        return self.source

    def trace_change(self, path: Path) -> TraceChange:
        """The change of a file's trace, or of one of its members."""
        del path
        return self.make_change()

    def may_be_new(self, key: Key) -> bool:
        """Whether a row may exist only in the changed run."""
        del key
        return False

    def begin_ns(self) -> int:
        """Begin of the run, ns; `NotApplicableError` if its traces hold no work."""
        spans = [entry.span_ns for entry in self.reading.run.record.ranks if entry.span_ns is not None]
        if not spans:
            raise NotApplicableError("the traces hold no work")
        return min(begin for begin, _ in spans)

    def rank_resolver(self, path: Path) -> Callable[[TraceFacts], int]:
        """Function that gives the rank of a file's member from its facts."""
        name = next(file.name for file in self.source.files if file.path == path)
        return partial(self.reading.file_rank, name)

    def expected_row(self, row: Row) -> ExpectedRow | None:
        """Expected key and factor of a row; None if not predicted."""
        return row_key(row), 1.0


def compare_readings(relation: Relation, changed: CheckedReading) -> Outcome:
    """Compare each row and finding of the run with that of the changed run."""
    changed_rows = {row_key(row): row for row in changed.rows}
    differences, compared, expected_keys = list[str](), 0, set[Key]()
    for row in relation.reading.rows:
        if (expected := relation.expected_row(row)) is None:
            continue
        key, factor = expected
        compared += 1
        expected_keys.add(key)
        if (difference := _row_difference(row, factor, changed_rows.get(key), relation)) is not None:
            differences.append(f"{_row_label(key)}: {difference}")
    if compared == len(relation.reading.rows):
        new_keys = [key for key in changed_rows if key not in expected_keys and not relation.may_be_new(key)]
        differences += [f"{_row_label(key)}: only in the changed run" for key in new_keys]
    if relation.keeps_findings:
        before, after = (
            [_finding_label(finding) for finding in reading.findings]
            for reading in (relation.reading, changed)
        )
        compared += len(before)
        differences += [f"finding {label}: not in the changed run" for label in before if label not in after]
        differences += [f"finding {label}: only in the changed run" for label in after if label not in before]
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
        return "not in the changed run"
    if row.status != other.status:
        return f"{other.status} ({other.reason}), expected {row.status}"
    if row.value is None or other.value is None:
        return None
    expected = row.value * factor
    if isclose(expected, other.value, rel_tol=relation.tolerance, abs_tol=relation.absolute_tolerance):
        return None
    return f"{other.value:.12g}, expected {expected:.12g} {row.unit}"


def _row_label(key: Key) -> str:
    """Label of a row: its metric and the key fields that are set."""
    metric, rank, step, *others = key
    scope = [f"rank {rank}"] * (rank is not None) + [f"step {step}"] * (step is not None)
    return " ".join([metric, *scope, *filter(None, others)])


def _finding_label(finding: Finding) -> str:
    """Name, ranks and gain of a finding."""
    gain = "no gain" if finding.gain_s is None else " to ".join(f"{bound:.4g}" for bound in finding.gain_s)
    return f"{finding.name} {finding.ranks or ''} {gain}"
