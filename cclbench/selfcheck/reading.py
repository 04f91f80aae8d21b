# SPDX-License-Identifier: Apache-2.0
"""A run with its figures and findings, the input of the checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cclbench import api
from cclbench.findings.diagnosis import diagnose_run
from cclbench.findings.finding import Finding
from cclbench.record.facts import TraceFacts
from cclbench.record.metric_name import MetricName
from cclbench.record.rows import Row
from cclbench.record.run import Run

LISTED: Final = 20
"""Most differences that a check lists."""

Key = tuple[str, int | None, int | None, str | None, str | None, str | None, str | None]


class NotApplicableError(Exception):
    """Reason why a check does not apply to a run."""


def row_key(row: Row) -> Key:
    """Key that identifies a row."""
    return row.metric, row.rank, row.step, row.group, row.collective, row.category, row.stat


@dataclass(frozen=True, slots=True)
class CheckedReading:
    """A run, its figures and its findings."""

    run: Run
    rows: list[Row]
    findings: list[Finding]

    @classmethod
    def from_run(cls, run: Run) -> CheckedReading:
        """Compute all measured and derived figures."""
        computed = api.metrics(run, model=False)
        return cls(computed, list(computed.figures), list(diagnose_run(computed).findings))

    def run_row(self, metric: MetricName) -> Row | None:
        """The metric's own row of the whole run."""
        return next((row for row in self.rows if row_key(row) == (metric, *[None] * 6)), None)

    def run_value(self, metric: MetricName) -> float:
        """The metric of the whole run; `NotApplicableError` if it has no value."""
        row = self.run_row(metric)
        if row is None or row.value is None:
            raise NotApplicableError(f"{metric} has no value" + (f": {row.reason}" if row else ""))
        return row.value

    def file_rank(self, file: str, facts: TraceFacts) -> int:
        """The rank of the member of a file whose trace states these facts."""
        entries = [entry for entry in self.run.record.ranks if file in {used.name for used in entry.files}]
        if len(entries) > 1:
            process = facts.local_rank, facts.process_id
            entries = [
                entry for entry in entries if (entry.facts.local_rank, entry.facts.process_id) == process
            ]
        (entry,) = entries
        return entry.rank
