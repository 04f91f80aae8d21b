# SPDX-License-Identifier: Apache-2.0
"""Search a space of scenarios for a run: replayed and ranked, with the Pareto front of step and cost.

The work is fixed: the global batch and its tokens stay, so tokens per second scale as 1 / step, and per
device as 1 / (step · devices).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from operator import attrgetter
from typing import Any, Final, Literal

from cclbench.ground.errors import CclbenchError, ChangedRunError, InputError, UsageError
from cclbench.ground.units import parse_quantity, with_spaced_unit
from cclbench.record.rows import Row, builtins
from cclbench.replay.answer import Replay
from cclbench.replay.answer_rows import NS_PER_S, modelled_row
from cclbench.replay.gradient_exchange import shards_parameters
from cclbench.replay.layout import changes_layout, target_relayout
from cclbench.replay.memory import MemoryNeed, held_state, memory_of
from cclbench.replay.outcome import Predicted
from cclbench.replay.rescale import cuts_sequences
from cclbench.replay.sampler import EXHAUSTIVE, Point, explore_grid
from cclbench.replay.scenario import Scenario
from cclbench.replay.space import SearchSpace

Goal = Literal["step", "tokens_per_second_per_device"]
_MOST: Final = 2_000
_CONSTRAINT = re.compile(r"\s*(step|cost|devices)\s*<=\s*(.+?)\s*")
_SUCH: Final = "such as cost<=100, devices<=64 or step<=12ms"


@dataclass(frozen=True, slots=True)
class SearchLimit:
    """An upper limit of a scenario: `step`, ns, `cost` or `devices`; `text`: as requested."""

    what: str
    most: float
    text: str


def parse_limit(text: str) -> SearchLimit:
    """Parse a limit such as `cost<=100` or `step<=12ms` (a step without a unit is in seconds)."""
    match = _CONSTRAINT.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not KEY<=VALUE", hint=_SUCH)
    what, value = match[1], match[2]
    try:
        if what == "step" and not re.fullmatch(r"[\d.eE+-]+", value):
            most = parse_quantity(with_spaced_unit(value), "time")
        else:
            most = float(value)
    except (ValueError, CclbenchError):
        raise UsageError(f"{text!r}: {value!r} is not a {what}", hint=_SUCH) from None
    return SearchLimit(what, most * NS_PER_S if what == "step" else most, text)


@dataclass(frozen=True, slots=True)
class SearchTrial:
    """An evaluated point: step, bounds, cost and devices, or why it is infeasible.

    `memory`: need of another layout; `unexamined`: why that is unknown.
    """

    scenario: Scenario
    cost: float | None
    predicted: Predicted | None
    step_ns: float | None
    """Expected step, the unchanged one without an effect, None where only bounds are known."""
    low_ns: float
    high_ns: float
    infeasible: str | None
    devices: int | None = None
    memory: MemoryNeed | None = None
    unexamined: str | None = None

    @property
    def ranked_ns(self) -> float:
        """Ranking value: the step, or its upper bound where only bounds are known."""
        return inf if self.infeasible else self.high_ns if self.step_ns is None else self.step_ns


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Trials. `ranked`: feasible ones, best first; `front`: the Pareto front of step and cost, cheapest
    first; `infeasible`: the others; `points`: number of points of the space."""

    unchanged_ns: float
    ranked: tuple[SearchTrial, ...]
    front: tuple[SearchTrial, ...]
    infeasible: tuple[SearchTrial, ...]
    points: int
    unit: str
    goal: Goal
    tokens: float | None
    """Tokens per second and device of the unchanged run, where known."""
    devices: int | None = None
    """Number of devices of the unchanged run, where scenarios vary it."""

    @property
    def relaid(self) -> bool:
        """Whether the space includes layouts."""
        return self.devices is not None

    @property
    def priced_by(self) -> Literal["cost", "devices"]:
        """Second objective of the front: cost, else number of devices."""
        return "devices" if self.relaid and all(trial.cost is None for trial in self.ranked) else "cost"

    @property
    def best_trial(self) -> SearchTrial:
        """The best trial; `InputError` where no point is feasible."""
        if not self.ranked:
            raise InputError("no point of the space is feasible", hint=self.infeasible[0].infeasible)
        return self.ranked[0]

    def tokens_of(self, trial: SearchTrial) -> float | None:
        """Tokens per second and device of a trial."""
        if self.tokens is None or trial.step_ns is None:
            return None
        more = (trial.devices or 1) / (self.devices or 1) if self.relaid else 1.0
        return self.tokens * self.unchanged_ns / trial.step_ns / more

    @property
    def figures(self) -> tuple[Row, ...]:
        """The result rows, best first, then the infeasible ones."""
        unchanged = modelled_row("search.unchanged_step", self.unchanged_ns / NS_PER_S)
        ranked = [row for n, trial in enumerate(self.ranked, 1) for row in self._trial_rows(trial, n)]
        refused = [
            modelled_row("search.step", None, category=trial.scenario.label, reason=trial.infeasible)
            for trial in self.infeasible
        ]
        return (unchanged, *ranked, *refused)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The result rows as flat dicts with the columns of `schema.RESULTS`."""
        return builtins(self.figures)

    def _trial_rows(self, trial: SearchTrial, place: int) -> Iterator[Row]:
        row = partial(modelled_row, category=trial.scenario.label)
        basis = "; ".join(trial.predicted.basis) if trial.predicted else ""
        reason = basis or None
        if trial.step_ns is None:
            reason = f"only bounds are known, see stats low and high; ranked by the upper one: {basis}"
        step = trial.step_ns
        yield row("search.rank", place, unit="1", better="lower")
        yield row("search.step", step and step / NS_PER_S, reason=reason)
        yield row("search.step", trial.low_ns / NS_PER_S, stat="low")
        yield row("search.step", trial.high_ns / NS_PER_S, stat="high")
        yield row(
            "search.speedup", step and self.unchanged_ns / step, unit="ratio", better="higher", reason=reason
        )
        if (tokens := self.tokens_of(trial)) is not None:
            yield row("search.tokens_per_second_per_device", tokens, unit="1/s", better="higher")
        if trial.cost is not None:
            yield row("search.cost", trial.cost, unit=self.unit, provenance="derived")
        if self.relaid:
            yield row("search.devices", trial.devices, unit="1", provenance="derived")
        if trial.memory is not None:
            yield row("search.memory", trial.memory.total_bytes, unit="B")
        elif trial.unexamined is not None:
            yield row("search.memory", None, unit="B", reason=trial.unexamined)
        if trial in self.front:
            yield row("search.front", self.front.index(trial) + 1, unit="1", better=None)


def search_space(
    replay: Replay,
    space: SearchSpace,
    *,
    goal: Goal = "step",
    limits: Sequence[SearchLimit] = (),
    trials: int | None = None,
    seed: int = 0,
    tokens: float | None = None,
) -> SearchResult:
    """Replay all points of a space, or at most `trials` chosen by the sampler, and rank them.

    By default all of up to EXHAUSTIVE points, else a tenth, at least EXHAUSTIVE and at most 2,000.
    """
    if space.cost is None and any(limit.what == "cost" for limit in limits):
        raise UsageError("a constraint limits the cost, which the space does not state", hint="add `cost:`")
    if any(limit.what == "devices" for limit in limits) and not changes_layout(space.values):
        raise UsageError("a constraint limits devices, but the space has no layouts")
    if trials is None:
        trials = min(max(EXHAUSTIVE, space.point_count // 10), _MOST)
    tried: dict[Point, SearchTrial] = {}
    layouts = _LayoutMemory(replay) if changes_layout(space.values) else None

    def point_objective(point: Point) -> float:
        tried[point] = _try_point(replay, space, point, limits, layouts)
        return _trial_objective(tried[point], goal)

    explore_grid(space.grid_shape, point_objective, trials, seed)
    ranked = sorted(
        (trial for trial in tried.values() if not trial.infeasible),
        key=lambda limit: (_trial_objective(limit, goal), limit.cost or 0.0, len(limit.scenario.changes)),
    )
    by = attrgetter("cost" if space.cost is not None else "devices")
    return SearchResult(
        replay.unchanged.step_ns,
        tuple(ranked),
        tuple(_pareto_front(ranked, by)) if space.cost is not None or layouts is not None else (),
        tuple(trial for trial in tried.values() if trial.infeasible),
        space.point_count,
        space.unit,
        goal,
        tokens,
        None if layouts is None else replay.layout.world_size,
    )


def _trial_objective(trial: SearchTrial, goal: Goal) -> float:
    """The value to minimise: the step, or step times devices."""
    per_device = goal == "tokens_per_second_per_device" and trial.devices is not None
    return trial.ranked_ns * (trial.devices or 1) if per_device else trial.ranked_ns


class _LayoutMemory:
    """Memory need of a run's layouts."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.held = held_state(replay.run, cuts_sequences(replay.graph, replay.dimensions))

    def examine_memory(self, trial: SearchTrial) -> SearchTrial:
        """The trial with devices and memory; infeasible if a device has too little."""
        old = self.replay.layout
        try:
            relayout = target_relayout(old, trial.scenario.changes)
        except ChangedRunError:
            raise
        except (InputError, UsageError) as error:
            return replace(trial, infeasible=str(error))
        trial = replace(trial, devices=relayout.new.world_size)
        try:
            shards = old.degrees["dp"] == 1 and shards_parameters(trial.scenario.changes)
            accelerator = self.replay.machine.accelerator.value
            memory = memory_of(self.replay.run, self.held, relayout, accelerator, shards=shards)
        except ChangedRunError:
            raise
        except InputError as error:
            return replace(trial, unexamined=f"memory not examined: {error}")
        if memory.is_enough:
            return replace(trial, memory=memory)
        needs = f"needs {memory.total_bytes / 1e9:.3g} GB of a device's {memory.device / 1e9:.3g}"
        return replace(
            trial, memory=memory, infeasible=f"{needs}, {memory.activations / 1e9:.3g} of them activations"
        )


def _try_point(
    replay: Replay,
    space: SearchSpace,
    point: Point,
    limits: Sequence[SearchLimit],
    layouts: _LayoutMemory | None,
) -> SearchTrial:
    """Evaluate a point; one that costs too much is not replayed."""
    change, cost = space.scenario_at(point), space.cost_of(point)
    trial = SearchTrial(change, cost, None, None, inf, inf, None)
    for limit in limits:
        if limit.what == "cost" and cost is not None and cost > limit.most:
            return replace(trial, infeasible=f"costs {cost:g} {space.unit}, beyond {limit.text}")
    if layouts is not None:
        trial = layouts.examine_memory(trial)
        for limit in limits:
            if limit.what == "devices" and (trial.devices or 0) > limit.most:
                return replace(trial, infeasible=f"has {trial.devices:,} devices, beyond {limit.text}")
        if trial.infeasible:
            return trial
    unchanged = replay.unchanged.step_ns
    if not change.changes:
        trial = replace(trial, step_ns=unchanged, low_ns=unchanged, high_ns=unchanged)
    else:
        try:
            predicted = replay.predict(change)
        except ChangedRunError:
            raise
        except (InputError, UsageError) as error:
            return replace(trial, infeasible=str(error))
        step = unchanged if predicted.idle is not None else predicted.step_ns
        trial = replace(
            trial, predicted=predicted, step_ns=step, low_ns=predicted.low_ns, high_ns=predicted.high_ns
        )
    for limit in limits:
        if limit.what == "step" and trial.ranked_ns > limit.most:
            return replace(trial, infeasible=f"takes {trial.ranked_ns / NS_PER_S:.6g} s, beyond {limit.text}")
    return trial


def _pareto_front(
    ranked: Sequence[SearchTrial], by: Callable[[SearchTrial], float | None]
) -> list[SearchTrial]:
    """The Pareto front of step and cost (or devices), cheapest first."""
    front: list[SearchTrial] = []
    # by step, then by cost
    for trial in sorted(ranked, key=lambda candidate: (candidate.ranked_ns, by(candidate) or 0.0)):
        if not front or (by(trial) or 0.0) < (by(front[-1]) or 0.0):
            front.append(trial)
    return front[::-1]
