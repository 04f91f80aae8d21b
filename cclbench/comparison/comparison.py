# SPDX-License-Identifier: Apache-2.0
"""The result of a comparison as data, from which terminal, Markdown, JSON and HTML output are rendered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from cclbench.analyzers.step_parts import PARTS as STEP_PARTS
from cclbench.comparison.fingerprint import Equality
from cclbench.comparison.interval import CaptureSpread
from cclbench.comparison.subject import ComparisonSubject
from cclbench.comparison.summaries import TableComparison
from cclbench.ground.text import html_of
from cclbench.record.metric_name import MetricName

BUSY: Final = "busy"
IDLE: Final = ("idle_host", "idle_other")
PARTS: Final = STEP_PARTS | {BUSY: "device busy"}
"""What a difference is attributed to: the parts of a step, with all busy time possibly as one."""
Dimension = Literal["category", "collective", "group", "dimension"]
Outcome = Literal["faster", "slower", "no difference", "undecided", "not comparable"]
"""`undecided`: too few steps; `no difference`: the difference may be chance."""


@dataclass(frozen=True, slots=True)
class PartMover:
    """A component of a part: a kernel category, collective, process group or parallel dimension."""

    dimension: Dimension
    name: str
    before_s: float
    after_s: float

    @property
    def change_s(self) -> float:
        """`after_s` - `before_s`."""
        return self.after_s - self.before_s


@dataclass(frozen=True, slots=True)
class PartChange:
    """One part's share of the difference in step time."""

    part: str
    """A key of `PARTS`."""
    before_s: float
    after_s: float
    change_ns: int
    """Whole ns; all parts sum to `Versus.change_ns`."""
    movers: tuple[PartMover, ...] = ()
    """Largest change first."""
    unknown_for: tuple[str, ...] = ()
    """Letters of the subjects that cannot distinguish this part; its time there is 0."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Scaling efficiency: throughput per device on more devices / on fewer."""

    kind: Literal["strong", "weak"]
    """strong: the same global batch; weak: the same batch per device."""
    fewer: str
    more: str
    """Letters of subjects."""
    devices: tuple[int, int]
    """Device counts of `fewer` and `more`."""
    efficiency: float
    """Tokens per second and device on more devices / on fewer."""
    low: float | None
    high: float | None
    """95 % interval of `efficiency`, as of `Versus.ratio`."""


@dataclass(frozen=True, slots=True)
class Versus:
    """The verdict on one subject against the first."""

    base: str
    other: str
    """Letters of subjects."""
    measure: MetricName
    """Metric that ranks the two: step time for equal work, else tokens per second and device; for servers,
    output tokens per second."""
    ratio: float | None
    """The other's measure / the base's; None where either lacks it."""
    low: float | None
    high: float | None
    """95 % interval of the ratio (`interval`); None where either has fewer than 3 complete steps."""
    spread: CaptureSpread | None
    """Spread between captures of one job, and its basis; None where `ratio` is."""
    captures_needed: int | None
    """Captures of each needed to resolve a difference of this size; None where there is no estimate."""
    outcome: Outcome
    """How `other` compares with `base`."""
    work: Equality
    """Whether their work is equal, according to the traces."""
    words: str
    """The verdict in a sentence or two."""
    change_ns: int | None
    """Step time of `other` minus that of `base`, ns; None where either has none."""
    changes: tuple[PartChange, ...] = ()
    """By part, in the order of `PARTS`; empty where a subject has no step parts."""
    scaling: Scaling | None = None
    """Scaling efficiency, where both run the same job on different numbers of devices."""


@dataclass(frozen=True, slots=True)
class WorkTime:
    """Device time of one operator or module in one subject, per step and rank."""

    time_s: float
    """Σ over calls of the union of each call's device rows."""
    calls: float
    roofline_s: float | None
    """Roofline time on the subject's accelerator, of the calls that have one; None where none has."""
    reached: float | None
    """`roofline_s` / device time of those calls."""


@dataclass(frozen=True, slots=True)
class WorkChange:
    """An operator's or a module's share of the difference in device time."""

    name: str
    """Name in the base, or in the other where the base has no such operator or module."""
    other_name: str | None
    """Name in the other, where the two are matched by cost-model family and FLOPs."""
    before: WorkTime | None
    after: WorkTime | None
    change_ns: int
    """Whole ns; all operators, and all modules, sum to `WorkDifference.change_ns`."""
    shapes: tuple[WorkChange, ...] = ()
    """By shapes, where both call the operator with the same ones; they sum to `change_ns`."""


@dataclass(frozen=True, slots=True)
class KernelChange:
    """An operator's calls with the same shapes that run other kernels in the other subject."""

    name: str
    """Operator and shapes."""
    before: tuple[str, ...]
    after: tuple[str, ...]
    """Kernels that only the one or the other runs."""
    before_s: float
    after_s: float
    """Device time of these calls, all kernels together."""
    change_ns: int


@dataclass(frozen=True, slots=True, order=True)
class CallCount:
    """Calls of an operator per step and rank."""

    name: str
    calls: float


@dataclass(frozen=True, slots=True)
class ReplacedCalls:
    """Consecutive calls of the base, and those that the other subject makes in their place."""

    phase: str | None
    """None where the calls are of several phases."""
    module: str | None
    """Innermost path of module classes around all those that a module makes; None where there is none."""
    before: tuple[CallCount, ...]
    after: tuple[CallCount, ...]
    """By operator, most time first; empty where the subject makes no calls there."""
    before_s: float
    after_s: float
    change_ns: int
    """Whole ns; all, with those of equal calls, sum to `WorkDifference.change_ns`."""

    @property
    def is_equal(self) -> bool:
        """Whether both make the same calls."""
        return sorted(self.before) == sorted(self.after)


@dataclass(frozen=True, slots=True)
class FamilyChange:
    """Device time of one family of work that both subjects do, per step and rank, in whole ns."""

    family: str
    """`GEMM`, `attention`, `memory-bound kernels`, ...: of the operator, whichever kernels run it."""
    before_ns: int
    after_ns: int
    change_ns: int
    ratio: float | None
    """Mean over captures of the other's time per step / of the base's; None where either takes none."""
    low: float | None
    high: float | None
    """95 % interval of `ratio`, widened for the number of families that are compared (`kernel_groups`); None
    with too few steps, and of a family that takes less than 5 % of both."""
    outcome: Outcome
    """`undecided` without an interval."""
    before_reached: float | None
    after_reached: float | None
    """Roofline time on the subject's accelerator / device time, of the calls that are compared with it."""


@dataclass(frozen=True, slots=True)
class UnmatchedWork:
    """Work of one subject that the other does not do, or that cannot be compared, per step and rank."""

    subject: str
    """Letter."""
    name: str
    family: str
    calls: float
    time_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class MatchedWork:
    """Work of two subjects, matched by what it computes; matched and unmatched sum to all device time."""

    before_ns: int
    after_ns: int
    """Device time of all work, per step and rank, whole ns: that of all families and of what is unmatched."""
    families: tuple[FamilyChange, ...]
    """Largest change first."""
    unmatched: tuple[UnmatchedWork, ...]
    """Most time first."""
    words: str
    """In what the other wins and loses; empty where less than half of either's time is matched."""

    def unmatched_ns(self, letter: str) -> int:
        """Device time of a subject's unmatched work, per step and rank."""
        return sum(work.time_ns for work in self.unmatched if work.subject == letter)

    @property
    def is_nearly_all(self) -> bool:
        """Whether at least 90 % of the time of both is matched."""
        matched = [
            sum(getattr(family, name) for family in self.families) for name in ("before_ns", "after_ns")
        ]
        return all(
            part >= 0.9 * total for part, total in zip(matched, (self.before_ns, self.after_ns), strict=True)
        )


@dataclass(frozen=True, slots=True)
class WorkDifference:
    """Difference in device time between one subject and the first, per step and rank."""

    base: str
    other: str
    """Letters of subjects."""
    before_s: float
    after_s: float
    """Σ device time of all operators; with several streams it may exceed the step time."""
    change_ns: int
    operators: tuple[WorkChange, ...]
    """Largest change first."""
    modules: tuple[WorkChange, ...] = ()
    """By class path; modules that differ only in their numbers are merged.  Empty where a subject names
    none."""
    kernels: tuple[KernelChange, ...] = ()
    """Calls with the same shapes and other kernels, largest change first."""
    replaced: tuple[ReplacedCalls, ...] = ()
    """All calls of the base against those of the other in their place, largest change first."""
    matched: MatchedWork | None = None
    """By what is computed, whichever operators and kernels do it; None where nothing is counted that way."""


@dataclass(frozen=True, slots=True)
class CardDifference:
    """A field of the workload card in which the subjects differ."""

    field: str
    """Dotted path, such as `parallelism.tp`."""
    values: Mapping[str, Any]
    """By subject letter; None where the card lacks the field."""


@dataclass(frozen=True, slots=True)
class MetricFigure:
    """One subject's value of a metric."""

    value: float | None
    status: str
    provenance: str | None
    reason: str | None
    low: float | None = None
    high: float | None = None
    """Band of a modelled value, or 95 % interval of a scaling efficiency."""
    coverage: float | None = None
    """Share of the rows that a partial value uses."""


@dataclass(frozen=True, slots=True)
class Line:
    """A metric's whole-run value in each subject."""

    metric: str
    unit: str
    better: str | None
    figures: Mapping[str, MetricFigure]
    """By subject letter."""


@dataclass(frozen=True, slots=True)
class GateCheck:
    """Result of a `--fail-on` expression for one subject against the first."""

    expression: str
    other: str
    """Letter of the subject."""
    outcome: Literal["passed", "failed", "refused"]
    """`refused`: the two figures cannot be compared, so the gate does not decide."""
    reason: str
    """The figures, or which one is missing or refused and why."""

    @property
    def is_passed(self) -> bool:
        """Whether the check neither failed nor was refused."""
        return self.outcome == "passed"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of `cclbench compare`."""

    subjects: tuple[ComparisonSubject, ...]
    warnings: tuple[str, ...]
    """Shown at the top: unequal work, differing phases or windows, modelled next to measured figures."""
    versus: tuple[Versus, ...]
    """Each further subject against the first."""
    cards: tuple[CardDifference, ...]
    lines: tuple[Line, ...]
    operators: tuple[WorkDifference, ...] = ()
    """Each further subject against the first, where both have operators."""
    tables: tuple[TableComparison, ...] = ()
    """Figures of sources without device steps, each further subject against the first."""
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
        return f"<Comparison of {ids}: {' '.join(verdict.words for verdict in self.versus)}>"
