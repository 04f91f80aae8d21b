# SPDX-License-Identifier: Apache-2.0
"""A run as findings see it: its result rows and manifest."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, get_args

from cclbench.analyzers.view.network_facts import distinct_facts, library_outputs, network_facts
from cclbench.findings.finding import FRAMEWORKS, Confidence, EvidenceRow, Finding
from cclbench.ground.errors import UsageError, near
from cclbench.machine import Machine, machine_of_entries
from cclbench.record.metric_name import MetricName, metric_name

if TYPE_CHECKING:
    from cclbench.card import Card
    from cclbench.record.manifest import Manifest
    from cclbench.record.results import Results
    from cclbench.record.rows import Row

_STEP: Final = metric_name("time.step")


_MOST: Final = 0.6
"""A loss is one rank's where it has more than this share of all ranks' loss."""


def sum_by_rank(parts: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """Sum over the parts by rank; a part may lack ranks."""
    sums: dict[int, float] = {}
    for part in parts:
        for rank, seconds in part.items():
            sums[rank] = sums.get(rank, 0.0) + seconds
    return sums


class Case:
    """One run's evidence."""

    def __init__(
        self,
        results: Results,
        record: Manifest,
        machine: Machine | None = None,
        card: Card | None = None,
    ) -> None:
        self.results, self.record, self._machine, self._card = results, record, machine, card

    @cached_property
    def machine(self) -> Machine:
        """The run's machine; without one given, what the traces state."""
        return self._machine or machine_of_entries(None, self.record.ranks)

    @cached_property
    def windows(self) -> dict[int, float]:
        """Mean step time by rank, s."""
        return self.results.ranks(_STEP)

    @cached_property
    def network_facts(self) -> dict[str, list[str]]:
        """What logs, the card and the catalog state of the network, by fact."""
        logged = distinct_facts(library_outputs(self.record.evidence))
        return network_facts(logged, self._card, self.machine)

    @cached_property
    def step_s(self) -> float:
        """Step time of the rank with the longest steps, s; 0 without steps."""
        return max(self.windows.values(), default=0.0)

    @property
    def on_host(self) -> bool:
        """Whether the CPU is the device of all ranks."""
        return self.record.is_on_host

    def ranks(self, metric: MetricName, **keys: str) -> dict[int, float]:
        """A metric's value by rank, or that of the part that the keys name."""
        return self.results.ranks(metric, **keys)

    def number(self, metric: MetricName, **keys: str) -> float | None:
        """The run's value of the metric; None where it has none."""
        return self.results.value(metric, **keys)

    def parts(self, metric: MetricName) -> list[Row]:
        """The run's rows of the metric by group, collective, category and stat that have a value."""
        return self.results.parts(metric, most=sys.maxsize)[0]

    def rows_of_groups(self, metric: MetricName) -> list[Row]:
        """The run's rows of the metric by kind of collective and group."""
        rows = self.parts(metric)
        return [row for row in rows if row.collective and row.group and not row.category and not row.stat]

    def framework(self) -> str | None:
        """The framework whose advice applies, by the traces' producer; XLA's profiler serves several."""
        names = " ".join((rank.facts.producer or "").lower() for rank in self.record.ranks)
        return next((word for word in FRAMEWORKS if word in names), None)

    def row(self, metric: MetricName, **keys: str) -> Row | None:
        """The run's row, if it has a value."""
        row = self.results.row(metric, **keys)
        return row if row is not None and row.has_value else None

    def evidence(self, *metrics: MetricName | tuple[MetricName, Mapping[str, str]]) -> list[EvidenceRow]:
        """The run's rows of these metrics, or of the parts that the keys name, that have a value."""
        pairs = [(query, {}) if isinstance(query, str) else query for query in metrics]
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

    def finding(
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
        """Build the `Finding` that a finding function yields.

        `lost`: lost time by rank, s a step. `whatif`: settings whose replay gives the gain; without them
        `no_gain` says why there is none. `surely`: the settings whose gain is the lower bound, where not all
        can certainly be had. `host_causes`: the causes of `time.idle_host_by` behind it, replayed as 0 unless
        `whatif` says otherwise.
        """
        if host_causes and no_gain is None and not whatif:
            whatif = [f"host[{'+'.join(host_causes)}].time=0"]
        if confidence not in get_args(Confidence):
            raise UsageError(f"confidence={confidence!r}", hint=near(confidence, get_args(Confidence)))
        step_s = self.step_s
        most = None if lost is None else max(lost.values(), default=0.0)
        return Finding(
            name=name,
            claim=claim,
            share=None if most is None or not step_s else most / step_s,
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
