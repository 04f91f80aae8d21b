# SPDX-License-Identifier: Apache-2.0
"""Results written down by hand, and what is found in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cclbench.findings.case import Case
from cclbench.findings.culprits import Culprit
from cclbench.findings.diagnosis import ranked_findings
from cclbench.findings.finding import Finding
from cclbench.findings.gains import ReplayGains, StepGain
from cclbench.record.results import Results
from helpers.typed import figures, record

Row = Mapping[str, Any]


def row(metric: str, value: float, **keys: Any) -> Row:
    return {"metric": metric, "value": value, "provenance": "measured", **keys}


def by_rank(metric: str, *values: float, **keys: Any) -> list[Row]:
    """A row of each rank, from 0 on, and the run's, their mean."""
    ranks = [row(metric, value, rank=rank, **keys) for rank, value in enumerate(values)]
    return [row(metric, sum(values) / len(values), **keys), *ranks]


def results(rows: Iterable[Row]) -> Results:
    return Results.from_rows(figures(rows))


def case(*rows: Row, **manifest: Any) -> Case:
    return Case(results(rows), record(manifest))


class WithoutReplay(ReplayGains):
    """Rows written by hand have no trace to replay."""

    def __init__(self) -> None:
        pass

    def gain_without(self, settings: Sequence[str]) -> StepGain | str:
        assert settings
        return "written by hand"

    def rank_culprit(self, causes: Sequence[str], rank: int) -> Culprit | None:
        assert (causes, rank >= 0) != ([], False)
        return None


def listed(*rows: Row, **manifest: Any) -> list[Finding]:
    """What is found in a run with those rows, in order."""
    return ranked_findings(results(rows), record(manifest), WithoutReplay())


def found(*rows: Row, **manifest: Any) -> dict[str, Finding]:
    """The same by name; of several of a name the last."""
    return {one.name: one for one in listed(*rows, **manifest)}


def a_rank(rank: int = 0, **other: Any) -> dict[str, Any]:
    facts = {"works_on": "device", **other.pop("facts", {})}
    file = {"name": f"rank{rank}.json", "bytes": 1, "sha256": "0", "reader": "kineto"}
    return {"rank": rank, "facts": facts, "files": [file], **other}
