# SPDX-License-Identifier: Apache-2.0
"""Findings: registered functions over a run's results that state what makes it slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from cclbench.analyzers.declared_names import check_declared_names
from cclbench.findings.culprits import Culprit
from cclbench.ground.errors import UsageError, near
from cclbench.ground.registry import Registry

if TYPE_CHECKING:
    from cclbench.findings.case import Case

Confidence = Literal["high", "medium", "low"]
FRAMEWORKS: Final = ("pytorch", "jax")
"""Frameworks with advice of their own."""
ANY: Final = "any"
ON_HOST: Final = "cpu"
"""What else actions are for: all runs; instead of all others, those whose device is the CPU."""


class EvidenceRow(msgspec.Struct, frozen=True, kw_only=True):
    """A result row of the run that supports a claim."""

    metric: str
    value: float
    unit: str
    group: str | None = None
    collective: str | None = None
    category: str | None = None
    stat: str | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One cause of lost time in a run.

    `lost_s`: lost time of a step, the largest of any rank; `share`: of the step. `whatif`: settings of a
    replay that remove it (`cclbench whatif`); `gain_s`: bounds of the step's gain in that replay, None where
    the replay cannot remove it, for the reason `no_gain`. `stacked_s`: gain of this and all findings above.
    """

    name: str
    claim: str
    share: float | None = None
    lost_s: float | None = None
    gain_s: tuple[float, float] | None = None
    gain_share: float | None = None
    """Upper bound of the gain, as a share of the step."""
    recorded_gain_s: tuple[float, float] | None = None
    """The gain in the recorded steps, where `gain_s` is that without the profiler."""
    window: Literal["step", "capture"] = "step"
    """What times refer to: a step, or the whole capture where no steps are marked."""
    stacked_s: tuple[float, float] | None = None
    whatif: list[str] = []
    surely: list[str] | None = None
    """The settings whose gain is the lower bound; None for all of `whatif`."""
    no_gain: str | None = None
    confidence: Confidence
    because: str
    """What the confidence rests on."""
    worst_rank: int | None = None
    """The rank that loses most; None where the loss is not by rank."""
    of_one_rank: bool = False
    """Whether one of at least three ranks has most of the loss of all."""
    host_causes: list[str] = []
    """The causes of `time.idle_host_by` behind it."""
    culprit: Culprit | None = None
    """The calls behind most of that time on the worst rank."""
    ranks: list[int] = []
    """The ranks that cause it; empty where none stands out."""
    evidence: list[EvidenceRow] = []
    query: str | None = None
    """SQL that lists the events behind it (`cclbench sql RUN ...`)."""
    try_: list[str] = msgspec.field(default_factory=list, name="try")
    docs: str = ""


Detect = Callable[["Case"], "Iterator[Finding]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """A registered finding; every text is shown by `cclbench explain`."""

    name: str
    title: str
    """The problem, in a few words."""
    rule: str
    """When it is reported."""
    gain: str
    """What the replay changes to compute the gain, or why there is none."""
    actions: Mapping[str, Sequence[str]]
    """What to try, by one of `FRAMEWORKS`, `ANY` or `ON_HOST`."""
    detect: Detect
    precedence: int = 0
    """Orders findings of similar gain, higher first; naming ranks adds 4."""

    def advice(self, framework: str | None, *, on_host: bool = False) -> list[str]:
        """What to try with that framework first, then with any; `on_host`: the CPU is the device."""
        if on_host and ON_HOST in self.actions:
            return [*self.actions[ON_HOST]]
        return [*self.actions.get(framework or "", ()), *self.actions.get(ANY, ())]


def require_shown_actions(detector: Detector) -> None:
    """`UsageError` for actions that no run would show."""
    frameworks = (*FRAMEWORKS, ANY, ON_HOST)
    for word in detector.actions:
        if word not in frameworks:
            raise UsageError(f"finding {detector.name!r}: actions for {word!r}", hint=near(word, frameworks))


FINDINGS: Registry[Detector] = Registry(
    "finding",
    home="cclbench.findings.causes",
    group="cclbench.findings",
    validate=require_shown_actions,
    check=check_declared_names,
)
DOCS: Final = "reference/findings.md"
"""The site's page that explains each finding."""


def finding(
    name: str,
    *,
    title: str,
    rule: str,
    gain: str,
    actions: Mapping[str, Sequence[str]],
    precedence: int = 0,
) -> Callable[[Detect], Detect]:
    """Register the decorated function as finding `name`; see `Detector`.

        @finding("slow_copies", title="copies are slow", rule="...", gain="...", actions={"any": ("...",)})
        def slow_copies(case: Case) -> Iterator[Finding]:
            if case.ranks(COPY_TIME):
                yield case.finding("slow_copies", "...", because="...", whatif=["copies.time=0"])

    The function takes a `Case` and yields what it found, `Case.finding(...)` of its own name, or nothing.
    """

    def register(function: Detect) -> Detect:
        detector = Detector(
            name=name,
            title=title,
            rule=rule,
            gain=gain,
            actions=actions,
            precedence=precedence,
            detect=function,
        )
        FINDINGS.add(name, detector, origin=function.__module__)
        return function

    return register
