# SPDX-License-Identifier: Apache-2.0
"""A run as findings see it: its result rows, and what its manifest says."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

from cclbench.findings.finding import FRAMEWORKS, Confidence, EvidenceRow, Finding
from cclbench.machine import Machine, machine_of_entries
from cclbench.record.metric_name import MetricName, metric_name

if TYPE_CHECKING:
    from cclbench.record.manifest import Manifest
    from cclbench.record.results import Results
    from cclbench.record.rows import Row

_STEP: Final = metric_name("time.step")


_MOST: Final = 0.6
"""Share of what all ranks lose from which on it is one rank's."""


def sum_by_rank(parts: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """Each rank's sum over parts, some of which may lack it."""
    found: dict[int, float] = {}
    for part in parts:
        for rank, seconds in part.items():
            found[rank] = found.get(rank, 0.0) + seconds
    return found


class Case:
    """One run's evidence."""

    def __init__(self, results: Results, record: Manifest, machine: Machine | None = None) -> None:
        self.results, self.record, self._machine = results, record, machine

    @cached_property
    def machine(self) -> Machine:
        """The run's machine; by what the traces tell of it where nothing else is given."""
        return self._machine or machine_of_entries(None, self.record.ranks)

    @cached_property
    def windows(self) -> dict[int, float]:
        """Seconds of each rank's step, its mean."""
        return self.results.ranks(_STEP)

    @cached_property
    def step_s(self) -> float:
        """Seconds of a step on the rank whose steps are longest; 0 without any."""
        return max(self.windows.values(), default=0.0)

    @property
    def on_host(self) -> bool:
        """Whether the CPU is the device of all ranks."""
        ranks = self.record.ranks
        return bool(ranks) and all(rank.facts.works_on == "host" for rank in ranks)

    def ranks(self, metric: MetricName, **keys: str) -> dict[int, float]:
        """Each rank's number of a metric, or of the part that the keys name."""
        return self.results.ranks(metric, **keys)

    def number(self, metric: MetricName, **keys: str) -> float | None:
        """The run's number of it."""
        return self.results.value(metric, **keys)

    def parts(self, metric: MetricName) -> list[Row]:
        """The run's rows of the metric by group, collective, category and stat that have a number."""
        return self.results.parts(metric, most=sys.maxsize)[0]

    def rows_of_groups(self, metric: MetricName) -> list[Row]:
        """The run's rows of the metric by kind of collective and group."""
        rows = self.parts(metric)
        return [row for row in rows if row.collective and row.group and not row.category and not row.stat]

    def framework(self) -> str | None:
        """The framework whose advice applies, by the traces' producer: XLA's profiler serves several."""
        names = " ".join((rank.facts.producer or "").lower() for rank in self.record.ranks)
        return next((word for word in FRAMEWORKS if word in names), None)

    def row(self, metric: MetricName, **keys: str) -> Row | None:
        """The run's row, where it has a number."""
        row = self.results.row(metric, **keys)
        return row if row is not None and row.has_value else None

    def evidence(self, *asked: MetricName | tuple[MetricName, Mapping[str, str]]) -> list[EvidenceRow]:
        """The run's rows of those metrics, or of the parts that keys name, that have a number."""
        pairs = [(one, {}) if isinstance(one, str) else one for one in asked]
        rows = [row for metric, keys in pairs if (row := self.row(metric, **keys)) is not None]
        return [
            EvidenceRow(
                metric=row.metric,
                value=row.number,
                unit=row.unit,
                group=row.group,
                collective=row.collective,
                category=row.category,
                stat=row.stat,
            )
            for row in rows
        ]

    def found(
        self,
        name: str,
        claim: str,
        *,
        because: str,
        lost: Mapping[int, float] | None = None,
        whatif: Sequence[str] = (),
        surely: Sequence[str] | None = None,
        host_causes: Sequence[str] = (),
        no_gain: str | None = None,
        confidence: Confidence = "high",
        ranks: Sequence[int] = (),
        evidence: Sequence[EvidenceRow] = (),
        query: str | None = None,
    ) -> Finding:
        """What a finding yields: `lost` are the seconds of a step that it takes each rank, `whatif` the
        settings whose replay says what the step would gain without it; without such, `no_gain` says why.
        `surely` are those of them whose gain is the least, where it is uncertain that all can be had.
        `host_causes` are those of `time.idle_host_by` that it is about, whose time is 0 in that replay unless
        `whatif` says otherwise.
        """
        if host_causes and no_gain is None and not whatif:
            whatif = [f"host[{'+'.join(host_causes)}].time=0"]
        whole = self.step_s
        most = None if lost is None else max(lost.values(), default=0.0)
        return Finding(
            name=name,
            claim=claim,
            share=None if most is None or not whole else most / whole,
            lost_s=most,
            worst_rank=max(lost, key=lambda rank: lost[rank]) if lost else None,
            of_one_rank=len(lost or ()) > 2 and (most or 0.0) > _MOST * sum((lost or {}).values()),
            whatif=list(whatif),
            surely=None if surely is None else list(surely),
            host_causes=list(host_causes),
            no_gain=no_gain,
            confidence=confidence,
            because=because,
            ranks=list(ranks),
            evidence=list(evidence),
            query=query,
        )
