# SPDX-License-Identifier: Apache-2.0
"""All findings of a run, ranked by gain."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cclbench.analyzers.metric import METRICS
from cclbench.findings.advice import fitting_actions
from cclbench.findings.case import Case
from cclbench.findings.finding import ANY, DOCS, FINDINGS, Detector, Finding
from cclbench.findings.gains import ReplayGains, join_settings
from cclbench.findings.kept_gains import StepGain
from cclbench.ground.errors import UsageError, near
from cclbench.ground.registry import located_error, stdout_to_stderr
from cclbench.ground.units import humanise
from cclbench.machine import Machine, machine_of
from cclbench.record.manifest import Manifest
from cclbench.record.metric_name import metric_name
from cclbench.record.results import Results
from cclbench.record.run import Run

if TYPE_CHECKING:
    from cclbench.card import Card

_STEP: Final = metric_name("time.step")

LEAST_GAIN: Final = 0.01
"""Least gain to report, as a share of the step."""
_MOST_ACTIONS: Final = 3
_ABOUT_THE_SAME: Final = 0.9
"""A finding of higher precedence goes first if its gain is at least this share of the other's."""
_MUCH_MORE: Final = 2.0
"""A finding of equal precedence goes first if it has this many times the other's idle time."""
_OF_RANKS: Final = 4
"""Added to the precedence of a finding that names ranks or concerns a single rank's time."""
_CAPTURE: Final = {"of a step": "of the capture", "a step": "a capture", "the step": "the capture"}
_PROFILED: Final = frozenset(("launch", "operators", "python", "unrecorded"))
"""Causes of idle time that include the profiler's overhead, since it records calls."""
_ANOTHER: Final = 0.1
"""Relative difference of gains with and without the profiler that a finding states."""
_FEW_STEPS: Final = 3
"""With fewer steps, work before the capture may be the main reason why ranks wait."""


def findings_of_run(run: Run, results: Results) -> list[Finding]:
    """Findings of a run, with gains from its replay; see `ranked_findings`."""
    gains = ReplayGains(run, results.scope)
    findings = ranked_findings(results, run.record, gains, machine_of(run), run.card)
    gains.keep_gains()
    return findings


def ranked_findings(
    results: Results,
    record: Manifest,
    gains: ReplayGains,
    machine: Machine | None = None,
    card: Card | None = None,
) -> list[Finding]:
    """Findings of the results, ordered by the midpoint of their gain; similar gains by precedence.

    Findings that gain less than `LEAST_GAIN` of the step, or whose gain is unknown and whose loss is less,
    are left out. A finding function that fails becomes a warning.
    """
    case = Case(results, record, machine, card)
    findings: list[Finding] = []
    few_steps = len(results.scope.steps) < _FEW_STEPS
    for name in FINDINGS:
        detector = FINDINGS.get(name)
        try:
            with stdout_to_stderr():
                detected = [_require_registered_name(item, name) for item in detector.detect(case)]
        except Exception as error:  # noqa: BLE001 - a stranger's function may raise anything
            what = located_error(error, detector.detect.__module__)
            warnings.warn(f"finding {name!r} failed: {what}", stacklevel=2)
            continue
        with_gains = [_with_gain(item, gains, few_steps=few_steps) for item in detected]
        with_culprits = [_with_culprit(item, gains) for item in with_gains if _is_worth_it(item)]
        findings += [_with_advice(detector, item, case) for item in with_culprits]
    listed = list(_with_stacked_gains(_order_findings(findings), gains))
    step = results.run.get(_STEP)
    return (
        [reword_for_capture(detector) for detector in listed]
        if step is not None and step.window == "trace"
        else listed
    )


def _require_registered_name(finding: Finding, name: str) -> Finding:
    """The finding, which `explain` and `--fail-on` know by its registered name; `UsageError` otherwise."""
    if finding.name != name:
        raise UsageError(f"it yields what it calls {finding.name!r}", hint="Case.finding takes its own name")
    return finding


def reword_for_capture(finding: Finding) -> Finding:
    """The finding for a capture without steps: its claim says "the capture" in place of "a step"."""
    claim, no_gain = finding.claim, finding.no_gain
    for words, replacement in _CAPTURE.items():
        claim = re.sub(rf"\b{words}\b", replacement, claim)
        no_gain = no_gain and re.sub(rf"\b{words}\b", replacement, no_gain)
    return msgspec.structs.replace(finding, claim=claim, no_gain=no_gain, window="capture")


def _with_gain(finding: Finding, gains: ReplayGains, *, few_steps: bool) -> Finding:
    """The finding with its gain from the replay, and that of the recorded steps where it differs."""
    if not finding.whatif:
        return finding
    gain = gains.gain_without(finding.whatif)
    if finding.no_gain is not None and (isinstance(gain, str) or gain.shares[1] < LEAST_GAIN):
        return msgspec.structs.replace(finding, whatif=[], surely=None)
    if isinstance(gain, str):
        return msgspec.structs.replace(finding, no_gain=gain)
    waits = finding.ranks or finding.name == "uneven_ranks"
    if gain.shares[1] < LEAST_GAIN and few_steps and waits and (finding.share or 0.0) >= LEAST_GAIN:
        why = f"the replay gains less than {LEAST_GAIN:.0%} of the step without it"
        cause = "what made ranks late was before the first captured step, or is not in the trace"
        return msgspec.structs.replace(finding, no_gain=f"{why}: {cause}")
    changes: dict[str, Any] = {
        "gain_s": _gain_bounds(finding, gains.gain_without),
        "gain_share": gain.shares[1],
    }
    if gains.overhead_s:
        recorded_s = _gain_bounds(finding, gains.recorded_gain)
        changes["recorded_gain_s"] = recorded_s
        if abs(recorded_s[1] - gain.seconds[1]) >= _ANOTHER * gain.seconds[1]:
            changes["because"] = (
                f"{finding.because}; the gain is of a step without the profiler, which makes it"
                f" {humanise(gains.overhead_s, 's')} longer: recorded steps gain"
                f" {humanise(recorded_s[1], 's')}"
            )
        if not _PROFILED.isdisjoint(finding.host_causes) and gains.overhead_s >= recorded_s[1] / 2:
            changes["confidence"] = "low"
    return msgspec.structs.replace(finding, no_gain=None, **changes)


def _gain_bounds(finding: Finding, gain_of: Callable[[Sequence[str]], StepGain | str]) -> tuple[float, float]:
    """Lower and upper bound of a finding's gain, s; the replay of its settings is possible."""
    gain = gain_of(finding.whatif)
    assert isinstance(gain, StepGain)  # noqa: S101  (a defect in cclbench)
    if finding.surely is None:
        return gain.seconds
    sure = gain_of(finding.surely) if finding.surely else ""
    return min(sure.seconds[0], gain.seconds[0]) if isinstance(sure, StepGain) else 0.0, gain.seconds[1]


def _with_culprit(finding: Finding, gains: ReplayGains) -> Finding:
    """The finding with the calls behind it, which its claim and query name."""
    if finding.worst_rank is None or not finding.host_causes:
        return finding
    culprit = gains.rank_culprit(finding.host_causes, finding.worst_rank)
    if culprit is None:
        return finding
    claim = f"{finding.claim} {culprit.culprit_sentence()}"
    return msgspec.structs.replace(finding, culprit=culprit, claim=claim, query=culprit.calls_query())


def _with_stacked_gains(findings: Sequence[Finding], gains: ReplayGains) -> Iterator[Finding]:
    """The findings with their gain together with all above them."""
    settings: tuple[str, ...] = ()
    for finding in findings:
        if finding.gain_s is None:
            yield finding
            continue
        first, settings = not settings, join_settings(settings, finding.whatif)
        stacked = gains.gain_without(settings)
        stacked_s = finding.gain_s if first else stacked.seconds if isinstance(stacked, StepGain) else None
        yield msgspec.structs.replace(finding, stacked_s=stacked_s)


def _order_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Order by the midpoint of the gain; similar gains by precedence, then by idle time.

    Two findings about the same gap gain the same: the one that `time.idle_host_by` gives the gap goes first.
    """
    placed: list[Finding] = []
    for finding in sorted(
        findings, key=lambda finding: (-_gain_weight(finding), -(finding.lost_s or 0.0), finding.name)
    ):
        place = len(placed)
        while place and _is_before(finding, placed[place - 1]):
            place -= 1
        placed.insert(place, finding)
    return placed


def _is_before(finding: Finding, other: Finding) -> bool:
    """Whether the finding goes before another with a larger gain."""
    if _gain_weight(finding) < _ABOUT_THE_SAME * _gain_weight(other):
        return False
    higher = _naming_precedence(finding) - _naming_precedence(other)
    of_gaps = bool(finding.host_causes and other.host_causes)
    more = (finding.lost_s or 0.0) > _MUCH_MORE * (other.lost_s or 0.0)
    return higher > 0 or (higher == 0 and of_gaps and more)


def _gain_weight(finding: Finding) -> float:
    """Midpoint of the gain's bounds, s; the bounds of an unknown gain are 0 and the lost time."""
    return sum(finding.gain_s or (0.0, 0.0 if finding.confidence == "low" else finding.lost_s or 0.0)) / 2


def _naming_precedence(finding: Finding) -> int:
    """Registered precedence, raised for findings that name ranks."""
    of_ranks = bool(finding.ranks) or finding.of_one_rank
    return FINDINGS.get(finding.name).precedence + _OF_RANKS * of_ranks


def _is_worth_it(finding: Finding) -> bool:
    """Whether to report the finding: what holds a host must lose as much as it must gain.

    Removing any host work hides more of the rest; a gain without a loss is not a cause.
    """
    least = finding.share if finding.gain_share is None else finding.gain_share
    if finding.host_causes and least is not None:
        least = min(least, finding.share or 0.0)
    return least is None or least >= LEAST_GAIN


def _with_advice(detector: Detector, finding: Finding, case: Case) -> Finding:
    """The finding with fitting advice, and how process groups were inferred where its evidence needs them."""
    on_groups = any(
        METRICS.get(row.metric).rests_on_groups for row in finding.evidence if row.metric in METRICS
    )
    because = "; ".join(filter(None, (finding.because, case.record.inference_note if on_groups else None)))
    kinds = {row.collective for row in finding.evidence if row.collective}
    actions = fitting_actions(detector.advice(case.framework(), on_host=case.on_host), case, kinds)
    return msgspec.structs.replace(
        finding, because=because, try_=actions[:_MOST_ACTIONS], docs=f"{DOCS}#{detector.name}"
    )


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings of one run, ranked."""

    run: str
    findings: list[Finding]
    unknown: str | None = None
    """Why the run's step time is unknown; None where it is known."""

    def top_rows(self, top: int | None = None) -> list[dict[str, Any]]:
        """The first `top` findings as built-in types."""
        return [msgspec.to_builtins(finding) for finding in self.findings[:top]]


def diagnose_run(run: Run) -> Diagnosis:
    """The findings of a run whose metrics are computed."""
    return Diagnosis(run.id, findings_of_run(run, run.figures), unknown_step(run.figures))


def unknown_step(results: Results) -> str | None:
    """Why the step time is unknown; None where it is known."""
    step = results.run.get(_STEP)
    if step is not None and step.has_value:
        return None
    return step.reason or step.status if step is not None else "time.step was not computed"


@dataclass(frozen=True, slots=True)
class GainLimit:
    """The largest gain of a finding, or of any, with which a check passes, as a share of the step."""

    name: str
    share: float

    @classmethod
    def from_text(cls, text: str) -> GainLimit:
        """Parse `host_bound>20%`; `UsageError` for anything else."""
        match = re.fullmatch(r"\s*([a-z_0-9]+)\s*>\s*(\d{1,3}(?:\.\d{1,6})?)\s*%\s*", text)
        if match is None:
            raise UsageError(f"{text!r} is not NAME>SHARE", hint="such as 'host_bound>20%' or 'any>5%'")
        if match[1] != ANY and match[1] not in FINDINGS:
            raise UsageError(f"unknown finding {match[1]!r}", hint=near(match[1], [ANY, *FINDINGS]))
        return cls(match[1], float(match[2]) / 100)

    def broken_limits(self, findings: Sequence[Finding]) -> Iterator[str]:
        """Messages of findings above the limit by gain, or by lost time where the gain is unknown."""
        for finding in findings:
            has_gain = finding.gain_share is not None
            share = (finding.gain_share if has_gain else finding.share) or 0.0
            if self.name in (ANY, finding.name) and share > self.share:
                shares = f"{humanise(share, '1')}, above {humanise(self.share, '1')}"
                unknown = "" if has_gain else f"; its gain is unknown: {finding.no_gain}"
                yield f"{finding.name} {'may gain' if has_gain else 'takes'} {shares} of the step{unknown}"
