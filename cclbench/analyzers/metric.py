# SPDX-License-Identifier: Apache-2.0
"""Metrics: a per-rank or per-run function, a combination over ranks, and its documentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from cclbench.analyzers.aliases import ALIASES, SYNONYMS, Alias, refusal_of
from cclbench.analyzers.explained import INFERRED, require_explained
from cclbench.analyzers.pickling import pickled_by_position
from cclbench.ground.errors import UsageError, near
from cclbench.ground.intervals import Int64, Mask
from cclbench.ground.registry import Registry
from cclbench.ground.schema import HAS_VALUE
from cclbench.record.metric_name import MetricName, metric_name

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView
    from cclbench.analyzers.view.run_view import RunView

MATCHED: Final = "collectives matched across ranks"
GROUPS: Final = "process groups"
"""Inputs of metrics whose values all depend on the members of process groups."""
REPLAY: Final = "a replay of the run"
"""Input of metrics that replay the run, which they do only on request."""
GraphHandling = Literal["lacking", "as compute", "counted"]
"""How a metric handles CUDA graphs that were traced as a whole, with unknown kernels: it lacks the kernels;
it counts the graphs as compute, and is partial; or its value is not affected."""
_OF_KERNELS: Final = frozenset(("events", "operators", "collectives", MATCHED, GROUPS))
"""Inputs that such graphs may lack a part of."""

Key = tuple[int | None, str | None, str | None, str | None, str | None]


class NotApplicable(Exception):  # noqa: N818  (an answer, not an error)
    """The metric has no value here; the message is the reason that people read."""


class Unknown(NotApplicable):
    """The metric has a value, but the trace lacks what it needs.

    The run's value is partial if one rank's is unknown. `coverage` counts the rows that the rank has and
    cannot use; None counts the rank itself.
    """

    def __init__(self, reason: str, coverage: Coverage | None = None) -> None:
        super().__init__(reason)
        self.coverage = coverage


class Failed(Exception):  # noqa: N818  (an answer, not an error)
    """The value cannot be true; the message states why."""


@pickled_by_position
@dataclass(frozen=True, slots=True)
class Coverage:
    """What a value is based on: `rows` of `all_rows`, with a total duration of `ns` of `all_ns`.

    Durations are None for rows without any (ranks, requests).
    """

    rows: int
    all_rows: int
    ns: int | None = None
    all_ns: int | None = None

    @classmethod
    def from_rows(cls, used: Mask, durations_ns: Int64) -> Coverage:
        """Coverage of a value that uses the rows of the mask; both arrays of shape (rows,)."""
        return cls(int(used.sum()), len(used), int(durations_ns[used].sum()), int(durations_ns.sum()))

    def __add__(self, other: Coverage) -> Coverage:
        timed = None not in (self.ns, other.ns, self.all_ns, other.all_ns)
        return Coverage(
            self.rows + other.rows,
            self.all_rows + other.all_rows,
            (self.ns or 0) + (other.ns or 0) if timed else None,
            (self.all_ns or 0) + (other.all_ns or 0) if timed else None,
        )

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left out."""
        return self.rows == self.all_rows and self.ns == self.all_ns

    @property
    def by_count(self) -> float:
        """Share of the rows; 1 without rows."""
        return self.rows / self.all_rows if self.all_rows else 1.0

    @property
    def by_time(self) -> float | None:
        """Share of the rows' total duration; None without durations."""
        return self.ns / self.all_ns if self.ns is not None and self.all_ns else None


@pickled_by_position
@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value, of the whole rank or run unless a key narrows it.

    `weight`: weight in the mean over ranks: a ratio's denominator, else 1.
    `reason`: qualifies the value (what it leaves out, what it is based on).
    `left_out`: counts of what the value leaves out, by reason; added up over ranks.
    `coverage`: what it is based on, where rows may be unknown; the value is `partial` if any is.
    `unit`: set where it differs from the metric's (a coefficient of variation).
    `source`: the reader of the file that states it, if not the run's traces.
    `rank`: whose value it is, for rows by rank of a metric of the run.
    `detail`: what a rank passes to its metric's `combine` besides the value; not in any row.
    """

    value: float | None
    step: int | None = None
    group: str | None = None
    collective: str | None = None
    category: str | None = None
    stat: str | None = None
    weight: float = 1.0
    provenance: Literal["measured", "derived", "modelled", "published"] = "measured"
    status: Literal["ok", "partial", "not_applicable", "failed"] = "ok"
    reason: str | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    coverage: Coverage | None = None
    unit: str | None = None
    source: str | None = None
    rank: int | None = None
    detail: object = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.status in HAS_VALUE and self.coverage is not None:
            status = "ok" if self.coverage.is_complete else "partial"
            object.__setattr__(self, "status", status)

    @property
    def has_value(self) -> bool:
        """Whether there is a value, also a partial one."""
        return self.status in HAS_VALUE

    @property
    def words(self) -> str | None:
        """The reason and the counts of what is left out, as people read them."""
        if not self.left_out:
            return self.reason or None
        counted = count_words(self.left_out)
        return "; ".join(filter(None, [self.reason, counted and f"left out: {counted}"])) or None

    @property
    def key(self) -> Key:
        """What the value is about, without the rank."""
        return self.step, self.group, self.collective, self.category, self.stat


def no_value(reason: str, **about: Any) -> Value:
    """A value that does not apply, with its reason; `about` are its other fields."""
    return Value(value=None, status="not_applicable", reason=reason, **about)


def count_words(counts: Mapping[str, int]) -> str:
    """`3 in groups of one, 1 of unknown kind`: the nonzero counts."""
    return ", ".join(f"{number} {why}" for why, number in counts.items() if number)


def total_left_out(values: Iterable[Value]) -> dict[str, int]:
    """Counts of what the values leave out, added up."""
    sums: dict[str, int] = {}
    for value in values:
        for why, number in value.left_out.items():
            sums[why] = sums.get(why, 0) + number
    return sums


def total_coverage(values: Iterable[Value]) -> Coverage | None:
    """The values' coverage, added up; None without any."""
    parts = [value.coverage for value in values if value.coverage is not None]
    return reduce(add, parts) if parts else None


PerRank = Callable[["RankView"], "Value | Iterable[Value]"]
PerRun = Callable[["RunView"], "Value | Iterable[Value]"]
Computes = TypeVar("Computes", PerRank, PerRun)
Combine = Callable[[Mapping[int, Sequence[Value]]], "Iterable[Value]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A registered metric; `cclbench explain` prints its texts."""

    name: MetricName
    definition: str
    formula: str
    unit: str
    better: Literal["higher", "lower"] | None
    inputs: tuple[str, ...]
    not_applicable: str
    version: int
    combine: Combine
    rank_rows: bool
    """Whether the metric has a meaning for a single rank."""
    per_rank: PerRank | None = None
    per_run: PerRun | None = None
    """For a metric of the run, which has no per-rank function."""
    graphs: GraphHandling = "lacking"

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names of the metric or of a part of it."""
        return tuple(sorted(name for name, alias in ALIASES.items() if alias.metric == self.name))

    @property
    def combined(self) -> str:
        """How ranks are combined, in words."""
        if self.per_rank is None:
            return "A metric of the run: ranks are not combined."
        return str(self.combine.__doc__).strip().splitlines()[0]

    @property
    def topic(self) -> str:
        """The part before the dot."""
        return self.name.partition(".")[0]

    @property
    def rests_on_groups(self) -> bool:
        """Whether its values depend on the members of process groups."""
        return MATCHED in self.inputs or GROUPS in self.inputs

    @property
    def whole_graphs(self) -> GraphHandling:
        """How it handles CUDA graphs traced as a whole, which matter only with kernels as input."""
        return self.graphs if _OF_KERNELS.intersection(self.inputs) else "counted"

    @property
    def is_replayed(self) -> bool:
        """Whether it replays the run."""
        return REPLAY in self.inputs

    @property
    def limits(self) -> str | None:
        """What may make its values wrong unnoticed."""
        return INFERRED if self.rests_on_groups else None


METRICS: Registry[Metric] = Registry(
    "metric", home="cclbench.analyzers", group="cclbench.analyzers", validate=require_explained
)
OTHER_NAMES: Final = (*ALIASES, *SYNONYMS)
"""Other names by which metrics can be selected: aliases, and terms of the field."""


def _by_key(ranks: Mapping[int, Sequence[Value]]) -> dict[Key, list[Value]]:
    grouped: dict[Key, list[Value]] = {}
    for rank in sorted(ranks):
        for value in ranks[rank]:
            if value.has_value and value.step is None:
                grouped.setdefault(value.key, []).append(value)
    return grouped


def _merge_values(values: Sequence[Value], number: float) -> Value:
    first = values[0]
    reasons = dict.fromkeys(v.reason for v in values if v.reason)
    return Value(
        value=number,
        group=first.group,
        collective=first.collective,
        category=first.category,
        stat=first.stat,
        provenance=first.provenance,
        reason="; ".join(reasons) or None,
        left_out=total_left_out(values),
        coverage=total_coverage(values),
        unit=first.unit,
    )


def mean_over_ranks(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Mean over ranks by weight: Σ weight·value / Σ weight; for a ratio, the ratio of the sums."""
    for values in _by_key(ranks).values():
        weight = sum(v.weight for v in values)
        if weight:
            yield _merge_values(values, sum(v.weight * (v.value or 0.0) for v in values) / weight)


def max_over_ranks(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Maximum over ranks."""
    for values in _by_key(ranks).values():
        yield _merge_values(values, max(v.value or 0.0 for v in values))


def metric(
    name: str,
    *,
    definition: str,
    formula: str,
    unit: str,
    better: Literal["higher", "lower"] | None = None,
    inputs: Iterable[str] = ("events", "steps"),
    not_applicable: str = "the rank has no work in the window",
    version: int = 1,
    combine: Combine = mean_over_ranks,
    rank_rows: bool = True,
    graphs: GraphHandling = "lacking",
) -> Callable[[PerRank], PerRank]:
    """Register the decorated per-rank function as metric `name`.

        @metric("mine.compute", definition="Compute time.", formula="|C|", unit="s", better="lower")
        def compute(rank: RankView) -> Value:
            return Value(value=float(rank.inside(rank.compute).mean()) / 1e9)

    The function takes a `RankView` and returns one `Value` or several, or raises `NotApplicable` or `Failed`
    with a reason.  `step` is a number of `rank.windows.steps`; values with one are not combined.  `combine`
    makes the run's values of all ranks' by rank; the first line of its docstring explains it.
    """
    return _register_metric(
        "per_rank",
        name=metric_name(name),
        definition=definition,
        formula=formula,
        unit=unit,
        better=better,
        inputs=tuple(inputs),
        not_applicable=not_applicable,
        version=version,
        combine=combine,
        rank_rows=rank_rows,
        graphs=graphs,
    )


def run_metric(
    name: str,
    *,
    definition: str,
    formula: str,
    unit: str,
    inputs: Iterable[str],
    not_applicable: str,
    better: Literal["higher", "lower"] | None = None,
    version: int = 1,
) -> Callable[[PerRun], PerRun]:
    """Register the decorated function as metric `name` of the run, from evidence other than traces.

        @run_metric("mine.requests", ..., inputs=("requests",), not_applicable="no file of requests")
        def requests(run: RunView) -> Value: ...

    The function takes a `RunView` and returns or raises what one of `metric` does.
    """
    return _register_metric(
        "per_run",
        name=metric_name(name),
        definition=definition,
        formula=formula,
        unit=unit,
        better=better,
        inputs=tuple(inputs),
        not_applicable=not_applicable,
        version=version,
        combine=mean_over_ranks,
        rank_rows=False,
    )


def _register_metric(computed: str, **about: Any) -> Callable[[Computes], Computes]:
    """Register a metric of those fields, with the decorated function as what is `computed`."""

    def register(function: Computes) -> Computes:
        new_metric = Metric(**{**about, computed: function})
        METRICS.add(new_metric.name, new_metric, origin=function.__module__)
        return function

    return register


def resolve_metrics(patterns: Iterable[str]) -> list[tuple[Metric, Alias | None]]:
    """The metrics that names, aliases, globs (`comm.*`) or terms of the field select, in order, each once.

    An alias is returned with its metric, since it may select only a part; a metric that is selected as a
    whole is not repeated for its aliases. A term selects all metrics that it may mean. A pattern that matches
    nothing raises `UsageError` with near names.
    """
    selected: set[str] = set()
    parts: dict[str, Alias] = {}
    for pattern in patterns:
        names = [name for name in METRICS if fnmatchcase(name, pattern)]
        aliases = [] if names else [name for name in ALIASES if fnmatchcase(name, pattern)]
        by_term = () if names or aliases else SYNONYMS.get(pattern.lower(), ())
        if not (names or aliases or by_term):
            hint = near(pattern, METRICS, OTHER_NAMES)
            raise refusal_of(pattern) or UsageError(f"unknown metric {pattern!r}", hint=hint)
        selected.update(names, by_term)
        parts |= {name: ALIASES[name] for name in aliases}
    selected.update(alias.metric for alias in parts.values() if not alias.collectives)
    chosen: list[tuple[Metric, Alias | None]] = [(METRICS.get(name), None) for name in sorted(selected)]
    apart = (alias for _, alias in sorted(parts.items()) if alias.metric not in selected)
    return sorted((*chosen, *((METRICS.get(a.metric), a) for a in apart)), key=lambda pair: pair[0].name)
