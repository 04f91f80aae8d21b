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
from cclbench.findings.advice import fitting_actions
from cclbench.findings.case import Case
from cclbench.findings.finding import ANY, DOCS, FINDINGS, Detector, Finding
from cclbench.findings.gains import ReplayGains, join_settings
from cclbench.findings.kept_gains import StepGain
from cclbench.findings.step_means import profiler_s
from cclbench.ground.errors import UsageError, near
from cclbench.ground.registry import stdout_to_stderr
from cclbench.ground.units import humanise
from cclbench.machine import Machine, machine_of
from cclbench.record.manifest import Manifest
from cclbench.record.metric_name import metric_name
from cclbench.record.results import Results
from cclbench.record.run import Run

_STEP: Final = metric_name("time.step")

LEAST_GAIN: Final = 0.01
"""Share of the step below which a gain is not worth a finding."""
_MOST_ACTIONS: Final = 3
_ABOUT_THE_SAME: Final = 0.9
"""How much of another's gain a finding of higher precedence gains at least to stand before it."""
_MUCH_MORE: Final = 2.0
"""How many times another's idle time one of equal precedence takes to stand before it."""
_OF_RANKS: Final = 4
"""What a finding's precedence is higher that names ranks, or is about one rank's time."""
_CAPTURE: Final = {"of a step": "of the capture", "a step": "a capture", "the step": "the capture"}
_PROFILED: Final = frozenset(("launch", "operators", "python", "unrecorded"))
"""Causes of idle time of which the profiler's own time is part, since it records calls."""
_FEW_STEPS: Final = 3
"""Steps below which what came before the capture may be most of why ranks wait."""


def findings_of_run(run: Run, results: Results) -> list[Finding]:
    """What is found in a run's results, with gains by its replay; see `ranked_findings`."""
    gains = ReplayGains(run, results.scope)
    found = ranked_findings(results, run.record, gains, machine_of(run))
    gains.keep_gains()
    return found


def ranked_findings(
    results: Results, record: Manifest, gains: ReplayGains, machine: Machine | None = None
) -> list[Finding]:
    """What is found in results, by the middle of what it gains; of what gains about the same by precedence.

    A finding that gains less than `LEAST_GAIN` of the step is left out, and so is one of unknown gain that
    takes less.  One that fails to be looked for becomes a warning.
    """
    case = Case(results, record, machine)
    found: list[Finding] = []
    few = len(results.scope.steps) < _FEW_STEPS
    longer_s = 0.0 if case.on_host else profiler_s(record)
    for name in FINDINGS:
        one = FINDINGS.get(name)
        try:
            with stdout_to_stderr():
                own = [_require_own_name(item, name) for item in one.detect(case)]
        except Exception as error:  # noqa: BLE001 - a stranger's function may raise anything
            warnings.warn(f"finding {name!r} failed: {type(error).__name__}: {error}", stacklevel=2)
            continue
        valued = [_with_gain(item, gains, few_steps=few, longer_s=longer_s) for item in own]
        named = [_with_culprit(item, gains) for item in valued if _is_worth_it(item)]
        found += [_with_advice(one, item, case) for item in named]
    listed = list(_with_stacked_gains(_order_findings(found), gains))
    step = results.run.get(_STEP)
    return (
        [reword_for_capture(one) for one in listed] if step is not None and step.window == "trace" else listed
    )


def _require_own_name(found: Finding, name: str) -> Finding:
    """What a finding found, which `explain` and `--fail-on` know by the name that it is registered by."""
    if found.name != name:
        raise UsageError(f"it yields what it calls {found.name!r}", hint="Case.found takes its own name")
    return found


def reword_for_capture(found: Finding) -> Finding:
    """A finding in a capture without steps, in whose words a step is the capture."""
    claim, no_gain = found.claim, found.no_gain
    for words, instead in _CAPTURE.items():
        claim = re.sub(rf"\b{words}\b", instead, claim)
        no_gain = no_gain and re.sub(rf"\b{words}\b", instead, no_gain)
    return msgspec.structs.replace(found, claim=claim, no_gain=no_gain, window="capture")


def _with_gain(found: Finding, gains: ReplayGains, *, few_steps: bool, longer_s: float) -> Finding:
    """With what the replay says that the step would gain without it.

    Of what threads take to call and launch, the profiler has its part: where steps are known to be so much
    longer under it, that much less is sure to be gained without it.
    """
    if not found.whatif:
        return found
    gain = gains.gain_without(found.whatif)
    if isinstance(gain, str):
        return msgspec.structs.replace(found, no_gain=gain)
    waits = found.ranks or found.name == "uneven_ranks"
    if gain.shares[1] < LEAST_GAIN and few_steps and waits and (found.share or 0.0) >= LEAST_GAIN:
        why = f"the replay gains less than {LEAST_GAIN:.0%} of the step without it"
        before = "what made ranks late came before the capture's first step, or is not in the trace"
        return msgspec.structs.replace(found, no_gain=f"{why}: {before}")
    least = gain.seconds[0] if found.surely is None else 0.0
    if found.surely and isinstance(sure := gains.gain_without(found.surely), StepGain):
        least = min(sure.seconds[0], gain.seconds[0])
    changes: dict[str, Any] = {}
    if longer_s and _PROFILED.intersection(found.host_causes):
        least = max(least - longer_s, 0.0)
        own = humanise(min(longer_s, gain.seconds[1]), "s")
        changes["because"] = f"{found.because}; up to {own} of a step may be the profiler's own"
        if longer_s >= gain.seconds[1] / 2:
            changes["confidence"] = "low"
    gains_s = (least, gain.seconds[1])
    return msgspec.structs.replace(found, gain_s=gains_s, gain_share=gain.shares[1], **changes)


def _with_culprit(found: Finding, gains: ReplayGains) -> Finding:
    """With the calls that it is about, which its claim and its query then name."""
    if found.worst_rank is None or not found.host_causes:
        return found
    calls = gains.rank_culprit(found.host_causes, found.worst_rank)
    if calls is None:
        return found
    claim = f"{found.claim} {calls.culprit_sentence()}"
    return msgspec.structs.replace(found, culprit=calls, claim=claim, query=calls.calls_query())


def _with_stacked_gains(found: Sequence[Finding], gains: ReplayGains) -> Iterator[Finding]:
    """Each with what it gains together with all above it."""
    settings: tuple[str, ...] = ()
    for one in found:
        if one.gain_s is None:
            yield one
            continue
        first, settings = not settings, join_settings(settings, one.whatif)
        gain = None if first else gains.gain_without(settings)
        stacked = one.gain_s if first else gain.seconds if isinstance(gain, StepGain) else None
        yield msgspec.structs.replace(one, stacked_s=stacked)


def _order_findings(found: Sequence[Finding]) -> list[Finding]:
    """By the middle of their gains; of those that gain about the same by precedence, then by what they take.

    Two findings of one gap gain the same: the one to which `time.idle_host_by` gives the gap takes more.
    """
    placed: list[Finding] = []
    for one in sorted(found, key=lambda one: (-_gain_weight(one), -(one.lost_s or 0.0), one.name)):
        place = len(placed)
        while place and _is_before(one, placed[place - 1]):
            place -= 1
        placed.insert(place, one)
    return placed


def _is_before(found: Finding, other: Finding) -> bool:
    """Whether it stands before another that gains more."""
    if _gain_weight(found) < _ABOUT_THE_SAME * _gain_weight(other):
        return False
    higher = _naming_precedence(found) - _naming_precedence(other)
    of_gaps = bool(found.host_causes and other.host_causes)
    more = (found.lost_s or 0.0) > _MUCH_MORE * (other.lost_s or 0.0)
    return higher > 0 or (higher == 0 and of_gaps and more)


def _gain_weight(found: Finding) -> float:
    """The middle of its gain's bounds, s; of an unknown gain these are nothing and what is lost."""
    return sum(found.gain_s or (0.0, 0.0 if found.confidence == "low" else found.lost_s or 0.0)) / 2


def _naming_precedence(found: Finding) -> int:
    """What names a cause, or ranks, has a higher one than what says of both less."""
    of_ranks = bool(found.ranks) or found.of_one_rank
    return FINDINGS.get(found.name).precedence + _OF_RANKS * of_ranks


def _is_worth_it(found: Finding) -> bool:
    """Whether it is worth a finding: what holds a host has to take as much as it has to gain.

    A host that does anything less hides more of all else that it does; that is no cause.
    """
    least = found.share if found.gain_share is None else found.gain_share
    if found.host_causes and least is not None:
        least = min(least, found.share or 0.0)
    return least is None or least >= LEAST_GAIN


def _with_advice(one: Detector, found: Finding, case: Case) -> Finding:
    """With what to try, where that is told, and what process groups rest on where the claim rests on them."""
    on_groups = any(
        METRICS.get(row.metric).rests_on_groups for row in found.evidence if row.metric in METRICS
    )
    because = "; ".join(filter(None, (found.because, case.record.inference_note if on_groups else None)))
    advice = fitting_actions(one.advice(case.framework(), on_host=case.on_host), case)[:_MOST_ACTIONS]
    return msgspec.structs.replace(found, because=because, try_=advice, docs=f"{DOCS}#{one.name}")


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings of one run, ranked."""

    run: str
    findings: list[Finding]
    unknown: str | None = None
    """Why nothing can be said of the run's step; None where its time is known."""

    def top_rows(self, top: int | None = None) -> list[dict[str, Any]]:
        """The first `top` findings as plain data."""
        return [msgspec.to_builtins(one) for one in self.findings[:top]]


def diagnose_run(run: Run) -> Diagnosis:
    """The findings of a run whose metrics are computed."""
    return Diagnosis(run.id, findings_of_run(run, run.figures), unknown_step(run.figures))


def unknown_step(results: Results) -> str | None:
    """Why the time of a step is not known; None where it is."""
    step = results.run.get(_STEP)
    if step is not None and step.has_value:
        return None
    return step.reason or step.status if step is not None else "time.step was not computed"


@dataclass(frozen=True, slots=True)
class GainLimit:
    """The share of the step that a finding, or any, may gain at most for a check to pass."""

    name: str
    share: float

    @classmethod
    def from_text(cls, text: str) -> GainLimit:
        """Of `host_bound>20%`; `UsageError` for anything else."""
        match = re.fullmatch(r"\s*([a-z_0-9]+)\s*>\s*(\d{1,3}(?:\.\d{1,6})?)\s*%\s*", text)
        if match is None:
            raise UsageError(f"{text!r} is not NAME>SHARE", hint="such as 'host_bound>20%' or 'any>5%'")
        if match[1] != ANY and match[1] not in FINDINGS:
            raise UsageError(f"unknown finding {match[1]!r}", hint=near(match[1], [ANY, *FINDINGS]))
        return cls(match[1], float(match[2]) / 100)

    def broken_limits(self, found: Sequence[Finding]) -> Iterator[str]:
        """What exceeds it: a gain, or where that is not known the time that a finding takes."""
        for one in found:
            known = one.gain_share is not None
            share = (one.gain_share if known else one.share) or 0.0
            if self.name in (ANY, one.name) and share > self.share:
                shares = f"{humanise(share, '1')}, more than {humanise(self.share, '1')}"
                unknown = "" if known else f"; what it would gain is not known: {one.no_gain}"
                yield f"{one.name} {'may gain' if known else 'takes'} {shares} of the step{unknown}"
