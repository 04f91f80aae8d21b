# SPDX-License-Identifier: Apache-2.0
"""All findings of a run, ranked by what the step would gain."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from cclbench.analyzers.metric import METRICS
from cclbench.errors import UsageError, near
from cclbench.findings.case import Case
from cclbench.findings.finding import DOCS, FINDINGS, Finding, Found
from cclbench.record.manifest import Manifest
from cclbench.record.results import Results
from cclbench.record.run import Run
from cclbench.registry import told_to_people
from cclbench.units import humanise

LEAST_GAIN: Final = 0.01
"""Share of the step below which a gain is not worth a finding."""
_MOST_ACTIONS: Final = 3


def findings(results: Results, record: Manifest) -> list[Found]:
    """What is found in a run's results, by the middle of what it gains; then what takes no time, by name.

    A finding whose gain is below `LEAST_GAIN` of the step is left out.  One that fails to be looked for
    becomes a warning.
    """
    case = Case(results, record)
    framework = case.framework()
    found: list[Found] = []
    for name in FINDINGS:
        one = FINDINGS.get(name)
        try:
            with told_to_people():
                own = list(one.looks(case))
        except Exception as error:  # noqa: BLE001 - a stranger's function may raise anything
            warnings.warn(f"finding {name!r} failed: {type(error).__name__}: {error}", stacklevel=2)
            continue
        found += [_completed(one, item, framework, record) for item in own if _counts(item)]
    return sorted(found, key=lambda one: (-_middle(one), -(one.lost_s or 0.0), one.name))


def _middle(found: Found) -> float:
    return sum(found.gain_s) / 2 if found.gain_s else 0.0


def _counts(found: Found) -> bool:
    return found.gain_share is None or found.gain_share >= LEAST_GAIN


def _completed(one: Finding, found: Found, framework: str | None, record: Manifest) -> Found:
    """With what to try, where that is told, and what process groups rest on where the claim rests on them."""
    on_groups = any(
        METRICS.get(row.metric).rests_on_groups for row in found.evidence if row.metric in METRICS
    )
    because = "; ".join(filter(None, (found.because, record.inferred if on_groups else None)))
    advice = one.advice(framework)[:_MOST_ACTIONS]
    return msgspec.structs.replace(found, because=because, try_=advice, docs=f"{DOCS}#{one.name}")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings of one run, ranked."""

    run: str
    findings: list[Found]
    unknown: str | None = None
    """Why nothing can be said of the run's step; None where its time is known."""

    def document(self, top: int | None = None) -> dict[str, Any]:
        """The diagnosis.v1 document, of the first `top` findings."""
        told = {"unknown": self.unknown} if self.unknown else {}
        return {"schema": "diagnosis.v1", "run": self.run, **told, "findings": self.rows(top)}

    def rows(self, top: int | None = None) -> list[dict[str, Any]]:
        """The first `top` findings as plain data."""
        return [msgspec.to_builtins(one) for one in self.findings[:top]]


def diagnosis(run: Run) -> Diagnosis:
    """The findings of a run whose metrics are computed."""
    return Diagnosis(run.id, findings(run.figures, run.record), unknown_step(run.figures))


def unknown_step(results: Results) -> str | None:
    """Why the time of a step is not known; None where it is."""
    step = results.run.get("time.step")
    if step is not None and step.has_value:
        return None
    return step.reason or step.status if step is not None else "time.step was not computed"


ANY: Final = "any"


@dataclass(frozen=True, slots=True)
class Limit:
    """The share of the step that a finding, or any, may gain at most for a check to pass."""

    name: str
    share: float

    @classmethod
    def of(cls, text: str) -> Limit:
        """Of `host_bound>20%`; `UsageError` for anything else."""
        match = re.fullmatch(r"\s*([a-z_0-9]+)\s*>\s*(\d{1,3}(?:\.\d{1,6})?)\s*%\s*", text)
        if match is None:
            raise UsageError(f"{text!r} is not NAME>SHARE", hint="such as 'host_bound>20%' or 'any>5%'")
        if match[1] != ANY and match[1] not in FINDINGS:
            raise UsageError(f"unknown finding {match[1]!r}", hint=near(match[1], [ANY, *FINDINGS]))
        return cls(match[1], float(match[2]) / 100)

    def broken(self, found: Sequence[Found]) -> Iterator[str]:
        """What exceeds it."""
        for one in found:
            if self.name in (ANY, one.name) and (one.gain_share or 0.0) > self.share:
                shares = f"{humanise(one.gain_share or 0.0, '1')}, more than {humanise(self.share, '1')}"
                yield f"{one.name} may gain {shares} of the step"
