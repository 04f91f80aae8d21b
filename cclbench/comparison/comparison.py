# SPDX-License-Identifier: Apache-2.0
"""What a comparison says, as data; every rendering of it (terminal, Markdown, JSON, HTML) comes from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from cclbench.analyzers.step_parts import PARTS as STEP_PARTS
from cclbench.comparison.fingerprint import Equality
from cclbench.comparison.interval import CaptureSpread
from cclbench.comparison.subject import ComparisonSubject
from cclbench.ground.text import html_of
from cclbench.record.metric_name import MetricName

BUSY: Final = "busy"
IDLE: Final = ("idle_host", "idle_other")
PARTS: Final = STEP_PARTS | {BUSY: "device busy"}
"""What a difference is attributed to: parts of a step, or all but idle time as one."""
Dimension = Literal["category", "collective", "group", "dimension"]
Outcome = Literal["faster", "slower", "no difference", "undecided", "not comparable"]
"""Of `undecided` there are too few steps to tell; `no difference` is one that could be chance."""


@dataclass(frozen=True, slots=True)
class PartMover:
    """Something within a part whose time differs: a kernel category, a kind of collective, a group."""

    dimension: Dimension
    name: str
    before_s: float
    after_s: float

    @property
    def change_s(self) -> float:
        """How much longer it takes in the other, s."""
        return self.after_s - self.before_s


@dataclass(frozen=True, slots=True)
class PartChange:
    """One part's share of the difference in step time."""

    part: str
    """A key of `PARTS`."""
    before_s: float
    after_s: float
    change_ns: int
    """Whole ns; those of all parts sum to `Versus.change_ns`."""
    movers: tuple[PartMover, ...] = ()
    """Largest change first."""
    untold: tuple[str, ...] = ()
    """Letters of those of the two that cannot tell this part; it has no time there."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """What a device does of many, over what it does of fewer."""

    kind: Literal["strong", "weak"]
    """strong: the same global batch; weak: the same batch per device."""
    fewer: str
    more: str
    """Letters of subjects."""
    devices: tuple[int, int]
    """How many they have."""
    efficiency: float
    """Tokens per second and device on more devices / on fewer."""
    low: float | None
    high: float | None
    """95 % interval of it, as of `Versus.ratio`."""


@dataclass(frozen=True, slots=True)
class Versus:
    """One subject against the first."""

    base: str
    other: str
    """Letters of subjects."""
    measure: MetricName
    """What the two are ranked by: step time for equal work, else tokens per second and device; of servers
    output tokens per second."""
    ratio: float | None
    """The other's measure / the base's; None where either lacks it."""
    low: float | None
    high: float | None
    """95 % interval of the ratio (`interval`); None where either has less than 3 closed steps."""
    spread: CaptureSpread | None
    """By how much captures of one job differ, and what says so; None where `ratio` is."""
    captures_needed: int | None
    """Captures of each from which on a difference of this size is told; None where nothing tells how many."""
    outcome: Outcome
    """What the other is."""
    work: Equality
    """Whether their work is equal, as the traces tell."""
    words: str
    """The verdict in a sentence or two."""
    change_ns: int | None
    """Step time of the other less that of the base, ns; None without a step time or a partition."""
    changes: tuple[PartChange, ...] = ()
    """By part, in the order of `PARTS`; empty where a subject has no partition."""
    scaling: Scaling | None = None
    """Where they do the same on different numbers of devices."""


@dataclass(frozen=True, slots=True)
class WorkTime:
    """What works of one name take in one subject, per step and rank."""

    time_s: float
    """Σ of the union of each one's device rows."""
    calls: float
    roofline_s: float | None
    """Least time on the subject's accelerator, of the works of which it is known; None of none."""
    reached: float | None
    """That over the time of these works."""


@dataclass(frozen=True, slots=True)
class WorkChange:
    """An operator's or a module's share of the difference in device time."""

    name: str
    """As the base calls it; as the other does where the base has none."""
    also: str | None
    """How the other calls it, where the two are matched by family of cost model and FLOPs."""
    before: WorkTime | None
    after: WorkTime | None
    change_ns: int
    """Whole ns; those of all operators, and of all modules, sum to `WorkDifference.change_ns`."""
    shapes: tuple[WorkChange, ...] = ()
    """By shapes, where both call the operator with the same ones: they sum to its `change_ns`."""


@dataclass(frozen=True, slots=True)
class WorkDifference:
    """How much longer the device works in one subject than in the first, per step and rank."""

    base: str
    other: str
    """Letters of subjects."""
    before_s: float
    after_s: float
    """Σ device time of all works; on several streams it may exceed the step."""
    change_ns: int
    operators: tuple[WorkChange, ...]
    """Largest change first."""
    modules: tuple[WorkChange, ...] = ()
    """By path of classes: modules that differ in their numbers alone are one. Empty where a subject names
    none."""


@dataclass(frozen=True, slots=True)
class CardDifference:
    """A field of the workload card in which the subjects differ."""

    field: str
    """Dotted path, such as `parallelism.tp`."""
    values: Mapping[str, Any]
    """By subject's letter; None where its card lacks the field."""


@dataclass(frozen=True, slots=True)
class MetricFigure:
    """One subject's value of a metric."""

    value: float | None
    status: str
    provenance: str | None
    reason: str | None
    low: float | None = None
    high: float | None = None
    """Of a modelled value, its band; of a scaling efficiency, its 95 % interval."""
    coverage: float | None = None
    """Of a partial value, the share of the rows it uses."""


@dataclass(frozen=True, slots=True)
class Line:
    """A metric across the subjects: the whole run's value."""

    metric: str
    unit: str
    better: str | None
    figures: Mapping[str, MetricFigure]
    """By subject's letter."""


@dataclass(frozen=True, slots=True)
class GateCheck:
    """What an expression of `--fail-on` says of one subject against the first."""

    expression: str
    other: str
    """Letter of the subject."""
    outcome: Literal["passed", "failed", "refused"]
    """`refused`: the two figures cannot be set against each other, so that the gate says nothing of them."""
    reason: str
    """The figures, or which one is missing or refused and why."""

    @property
    def is_passed(self) -> bool:
        """Whether the gate looked and found nothing: neither a failure nor a refusal."""
        return self.outcome == "passed"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answer of `cclbench compare`."""

    subjects: tuple[ComparisonSubject, ...]
    warnings: tuple[str, ...]
    """What stands at the top: unequal work, differing phases or windows, modelled beside measured."""
    versus: tuple[Versus, ...]
    """Each further subject against the first."""
    cards: tuple[CardDifference, ...]
    lines: tuple[Line, ...]
    operators: tuple[WorkDifference, ...] = ()
    """Each further subject against the first, of those that both have operators."""
    checks: tuple[GateCheck, ...] = ()
    """The regression gate: each expression for each further subject."""

    @property
    def is_passed(self) -> bool:
        """Whether every check passed."""
        return all(check.is_passed for check in self.checks)

    def _repr_html_(self) -> str:
        return html_of(self)

    def __repr__(self) -> str:
        ids = ", ".join(run.id for run in self.subjects)
        return f"<Comparison of {ids}: {' '.join(one.words for one in self.versus)}>"
