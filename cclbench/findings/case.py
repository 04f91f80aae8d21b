# SPDX-License-Identifier: Apache-2.0
"""A run as findings see it: its result rows, what its manifest says, and what a step would gain at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cclbench.findings.finding import Confidence, Evidence, Found
from cclbench.machine import Machine, machine_of_entries

if TYPE_CHECKING:
    from cclbench.record.manifest import Manifest
    from cclbench.record.results import Results
    from cclbench.record.rows import Row


class Case:
    """One run's evidence."""

    def __init__(self, results: Results, record: Manifest) -> None:
        self.results, self.record = results, record

    @cached_property
    def windows(self) -> dict[int, float]:
        """Seconds of each rank's step, its mean."""
        return self.results.ranks("time.step")

    @cached_property
    def machine(self) -> Machine:
        """What the traces tell of nodes and devices."""
        return machine_of_entries(None, self.record.ranks)

    @cached_property
    def step_s(self) -> float:
        """Seconds of a step on the rank whose steps are longest; 0 without any."""
        return max(self.windows.values(), default=0.0)

    def ranks(self, metric: str, **keys: str) -> dict[int, float]:
        """Each rank's number of a metric, or of the part that the keys name."""
        return self.results.ranks(metric, **keys)

    def number(self, metric: str, **keys: str) -> float | None:
        """The run's number of it."""
        return self.results.value(metric, **keys)

    def rows_of_groups(self, metric: str) -> list[Row]:
        """The run's rows of the metric by kind of collective and group."""
        rows, _ = self.results.parts(metric, most=1 << 20)
        return [row for row in rows if row.collective and row.group and not row.category and not row.stat]

    def gain(self, lost: Mapping[int, float], *, idle: bool = False) -> tuple[float, float]:
        """What a step gains where each rank is spared `lost` seconds of it: at least, and at most.

        At least: what communication a rank does not hide stays.  At most: it goes, too, as far as others lose
        more than the rank does: waiting for them goes, and transfers find compute to hide behind.  Where the
        device is `idle` in that time, or copies, that goes on beside communication, too: as much again may be
        gained.
        """
        exposed = self.ranks("time.exposed_comm")
        kept, freed = [0.0], [0.0]
        of_ranks = np.array([0.0, *lost.values()])
        for rank, length in self.windows.items():
            own, beside = lost.get(rank, 0.0), exposed.get(rank, 0.0)
            others = float(np.maximum(of_ranks - own, 0.0).cumsum()[-1])  # in the order of ranks
            kept.append(length - own)
            freed.append(length - own - min(beside, others + (own if idle else 0.0)))
        most = max(0.0, self.step_s - max(freed))
        if not idle:
            most = min(most, sum(lost.values()))
        return max(0.0, min(most, self.step_s - max(kept))), most

    def gain_if_even(self, waits: Mapping[int, float]) -> float:
        """What a step gains at most where work is so even that ranks do not wait for those seconds."""
        left = [length - waits.get(rank, 0.0) for rank, length in self.windows.items()]
        return max(0.0, self.step_s - sum(left) / len(left)) if left else 0.0

    def gain_without(self, late: int, waits: Mapping[int, float]) -> float:
        """What a step gains at most where one rank is not late: as much sooner as any other waits."""
        spared = dict(waits) | {late: max(waits.values(), default=0.0)}
        left = [length - spared.get(rank, 0.0) for rank, length in self.windows.items()]
        return max(0.0, self.step_s - max(left, default=0.0))

    def framework(self) -> str | None:
        """The framework whose advice applies, by the traces' producer."""
        names = " ".join((rank.facts.producer or "").lower() for rank in self.record.ranks)
        return "pytorch" if "pytorch" in names else "jax" if "xla" in names or "jax" in names else None

    def row(self, metric: str, **keys: str) -> Row | None:
        """The run's row, where it has a number."""
        row = self.results.row(metric, **keys)
        return row if row is not None and row.has_value else None

    def evidence(self, *asked: str | tuple[str, Mapping[str, str]]) -> list[Evidence]:
        """The run's rows of those metrics, or of the parts that keys name, that have a number."""
        pairs = [(one, {}) if isinstance(one, str) else one for one in asked]
        rows = [row for metric, keys in pairs if (row := self.row(metric, **keys)) is not None]
        return [
            Evidence(
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
        gain_s: tuple[float, float] | None = None,
        confidence: Confidence = "high",
        ranks: Sequence[int] = (),
        evidence: Sequence[Evidence] = (),
        query: str | None = None,
    ) -> Found:
        """What a finding yields: `lost` are the seconds of a step that it takes each rank.

        Without `gain_s` the gain is from 0 to what sparing all ranks those seconds brings.
        """
        whole = self.step_s
        most = None if lost is None else max(lost.values(), default=0.0)
        if gain_s is None and lost is not None:
            gain_s = 0.0, self.gain(lost)[1]
        return Found(
            name=name,
            claim=claim,
            share=None if most is None or not whole else most / whole,
            lost_s=most,
            gain_s=gain_s,
            gain_share=None if gain_s is None or not whole else gain_s[1] / whole,
            confidence=confidence,
            because=because,
            ranks=list(ranks),
            evidence=list(evidence),
            query=query,
        )
