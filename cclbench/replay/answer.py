# SPDX-License-Identifier: Apache-2.0
"""A run's replay under scenarios: its unchanged step, predicted ones with bounds, and critical paths."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final

import numpy as np

from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.intervals import Int64
from cclbench.ground.schema import group_id
from cclbench.ground.student import find_root
from cclbench.ground.units import humanise
from cclbench.machine import Machine, library_version, machine_of
from cclbench.record.run import Run
from cclbench.replay import tables
from cclbench.replay.answer_rows import NS_PER_S
from cclbench.replay.change import ChangeSubject, LayoutEffect, TimeBounds, change_named
from cclbench.replay.contention import replay_contended
from cclbench.replay.critical_path import Path, critical_path
from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.kernel_costs import KernelCosts
from cclbench.replay.layout import (
    Dimension,
    Layout,
    changes_layout,
    described_groups,
    layout_of,
    target_relayout,
)
from cclbench.replay.new_transfers import price_new
from cclbench.replay.outcome import Predicted, ReplayedStep
from cclbench.replay.placed import Case
from cclbench.replay.pricing import Float, TimeRatios, time_ratios
from cclbench.replay.regroup import dimension_in
from cclbench.replay.relaid import RelaidGraph, scale_ratios
from cclbench.replay.scenario import Scenario, parse_scenario
from cclbench.replay.simulate import NodeTimes
from cclbench.replay.stragglers import rank_coordinates
from cclbench.replay.windows import StepPace, rank_windows, step_time

_RECORDED_WORK: Final = "host[launch+operators+python+unrecorded].time"
"""Host time that a profiler makes longer, since it records calls."""
_ALMOST: Final = 0.005
"""Share by which a step may exceed the shortest one."""
_PRECISE: Final = 1e-3
"""Precision to which the factor of host time is found."""


class Replay:
    """A run to replay under any number of scenarios.

    `ranks` and `steps` narrow it; `contention`: factor by which kernels are slower while communication runs,
    1 for none.
    """

    def __init__(
        self,
        run: Run,
        *,
        machine: Machine | None = None,
        ranks: Sequence[int] | None = None,
        steps: Collection[int] | None = None,
        contention: float = 1.0,
    ) -> None:
        self.graph: Graph = build_graph(tables.graph_inputs(run, ranks))
        self.windows = [w for w in rank_windows(self.graph) if steps is None or w.open or w.step in steps]
        if not self.windows:
            raise InputError("has no windows to replay", where=run.id)
        self.machine = machine_of(run) if machine is None else machine
        self.precision = run.card.workload.precision if run.card else None
        self.library_version = library_version(run.card, run.rank(run.ranks[0]).facts)
        self.caveat = run.inference_note
        """What its rows say of process groups that no trace states."""
        self.run = run
        self.placed = rank_coordinates(run)
        self.groups = {g["group"]: tuple(g["ranks"]) for g in run.groups().to_pylist()}
        self.contention = contention
        self.costs = KernelCosts(run, self.graph)
        self.measured_ns = step_time(self.windows, np.array([w.measured_ns for w in self.windows], np.int64))
        if not self.measured_ns:
            raise InputError("has only empty steps: there is nothing to replay", where=run.id)
        self._set_times(replay_contended(self.graph, self.contention))

    def _set_times(self, times: NodeTimes) -> None:
        """The times of the unchanged graph's nodes, and their steps."""
        self._times = times
        self.pace = StepPace(self.windows, times.start, times.end)
        self.since = self.pace.time_since_windows(self.graph, times.start)
        self.inside = self.pace.nodes_in_windows(self.graph, self.since)
        self.step = self.pace.steps_of_nodes(self.graph, times.start)

    def _with_graph(self, graph: Graph, times: NodeTimes) -> Replay:
        """The same run with another graph, and its replay."""
        other = copy(self)
        other.graph = graph
        other.__dict__.pop("unchanged", None)
        other._set_times(times)
        return other

    @cached_property
    def unchanged(self) -> ReplayedStep:
        """The unchanged replay."""
        return ReplayedStep(self.pace.step_ns, self._critical_path(self.graph, self._times))

    def without_doubt(self) -> Replay:
        """The same run without assumed dependencies and unexplained launch delays."""
        graph = self.graph.without_doubt()
        return self._with_graph(graph, replay_contended(graph, self.contention))

    def without_profiler(self, longer_s: float) -> Replay:
        """The same run with less host time, so that a step is shorter by what the profiler adds, `longer_s`.

        Recorded calls, and what is between them, take longer by one factor.  Where no factor makes the step
        as short, since the device bounds it, it is the least change with a step almost as short as can be.
        """
        target_ns = self.pace.step_ns * (1 - longer_s * NS_PER_S / self.measured_ns)
        shortest_ns = self._step_ns(*self._with_host_time(0.0))
        enough_ns = max(target_ns, shortest_ns * (1 + _ALMOST))
        graph, times, nearest_ns = self.graph, self._times, self.pace.step_ns - enough_ns
        ends = {0.0: shortest_ns - enough_ns, 1.0: nearest_ns}

        def excess_ns(factor: float) -> float:
            nonlocal graph, times, nearest_ns
            if factor in ends:
                return ends[factor]
            changed = self._with_host_time(factor)
            excess = self._step_ns(*changed) - enough_ns
            if abs(excess) < abs(nearest_ns):
                (graph, times), nearest_ns = changed, excess
            return excess

        if nearest_ns > 0:
            find_root(excess_ns, 0.0, 1.0, _PRECISE)
        other = self._with_graph(graph, times)
        other.measured_ns = self.measured_ns * other.pace.step_ns / self.pace.step_ns
        return other

    def _with_host_time(self, factor: float) -> tuple[Graph, NodeTimes]:
        """The graph with the time of recorded host work multiplied by a factor, and its replay."""
        amount = f"x{factor:.6f}" if factor else "0"
        graph, ratios, untouched, _ = self._price_change(parse_scenario([f"{_RECORDED_WORK}={amount}"]))
        return (self.graph, self._times) if untouched else self._replay_ratios(graph, ratios.high)

    def savings(self, change: Scenario) -> list[float] | str:
        """Shares by which steps get shorter under a change, at its bounds (`StepPace.saved_shares`); or why
        the change does not affect the run."""
        graph, ratios, untouched, relaid = self._price_change(change)
        if relaid is not None:
            raise UsageError("another layout has no gain: the work differs")
        if len(untouched) == len(change.changes):
            return "; ".join(untouched.values())
        saved: list[float] = []
        for bound in [ratios.low] if np.array_equal(ratios.low, ratios.high) else [ratios.low, ratios.high]:
            _, times = self._replay_ratios(graph, bound)
            saved += self.pace.saved_shares(times.start, times.end)
        return saved

    def _price_change(self, change: Scenario) -> tuple[Graph, TimeRatios, dict[str, str], RelaidGraph | None]:
        """The changed graph, new over old times of its nodes, and why settings have no effect, by key."""
        graph, untouched, effects, relaid = self._change_graph(change)
        ratios: TimeRatios = time_ratios(
            self.graph,
            change,
            self.machine,
            self.groups,
            costs=self.costs,
            precision=self.precision,
            library_version=self.library_version,
            regrouped=relaid.regrouped_groups() if relaid else None,
        )
        ratios = scale_ratios(ratios, effects)
        return graph, ratios, untouched, relaid

    def predict(self, change: Scenario) -> Predicted:
        """Predict the step under a change."""
        graph, ratios, untouched, relaid = self._price_change(change)
        no_effect = tuple(f"{key} has no effect: {why}" for key, why in untouched.items())
        nothing = "; ".join(no_effect) if len(no_effect) == len(change.changes) else None
        bounded = bool(np.isnan(ratios.expected).any())
        graphs = self._with_other_hosts(change, graph, ratios.host_factor)
        if relaid is None:
            ratio = ratios.high if bounded else ratios.expected
            shown_graph = graphs["high" if bounded else "expected"]
            shown = self._replay_outcome(shown_graph, ratio)
            others = [
                (changed, bound)
                for changed, bound in ((graphs["low"], ratios.low), (graphs["high"], ratios.high))
                if changed is not shown_graph or not np.array_equal(bound, ratio)
            ]
            steps = [
                shown.step_ns,
                *(self._step_ns(*self._replay_ratios(changed, bound)) for changed, bound in others),
            ]
            notes: tuple[str, ...] = ()
        else:
            bounded = bounded or any(added.time.expected is None for added in relaid.added_communication)
            shown, steps, notes = self._replay_relaid(graphs, ratios, relaid, bounded)
        expected = None if bounded else shown
        acts = tuple(
            f"{key}: {setting.definition}"
            for key, setting in ((key, change_named(key)) for key in change.changes)
            if setting.prices is None and key not in untouched
        )
        host_note = shown.host_notes if "accelerator" in change.changes else ()
        basis = no_effect if nothing else (*notes, *ratios.basis, *host_note, *acts, *no_effect)
        return Predicted(change, expected, min(steps), max(steps), shown.path, basis, nothing)

    def _with_other_hosts(self, change: Scenario, graph: Graph, factor: float) -> dict[Case, Graph]:
        """The changed graph, at the bounds with hosts faster and slower by a factor."""
        graphs: dict[Case, Graph] = dict.fromkeys(("low", "expected", "high"), graph)
        bounds: dict[Case, float] = {"low": 1 / factor, "high": factor} if factor != 1 else {}
        for case, amount in bounds.items():
            hosts = parse_scenario([f"{_RECORDED_WORK}=x{amount:.6f}"])
            graphs[case] = self._change_graph(replace(change, changes={**change.changes, **hosts.changes}))[0]
        return graphs

    def _change_graph(
        self, change: Scenario
    ) -> tuple[Graph, dict[str, str], Sequence[LayoutEffect], RelaidGraph | None]:
        """The graph with the scenario's changes, in order of keys; why some have no effect; their effects on
        the layout; and the new layout, if it changes."""
        graph, untouched, effects = self.graph, dict[str, str](), list[LayoutEffect]()
        relayout = target_relayout(self.layout, change.changes) if changes_layout(change.changes) else None
        settings = {key: change_named(key) for key in change.changes}
        # hardware settings act on the original graph
        for key in sorted(settings, key=lambda key: (settings[key].prices is None, key)):
            subject = ChangeSubject(
                graph=graph,
                since=self.since,
                placed=self.placed,
                run=self.run,
                machine=self.machine,
                groups=self.groups,
                relayout=relayout,
                dimensions=self.dimensions if relayout else {},
                settings=change.changes,
                price=partial(price_new, self.graph, change, self.machine, self.groups, self.library_version),
                window_ns=self.window_ns,
                costs=self.costs,
                step=self.step,
            )
            effect = settings[key].change_graph(subject, change.changes[key])
            if isinstance(effect, str):
                untouched[key] = effect
            elif isinstance(effect, LayoutEffect):
                graph = effect.graph
                effects.append(effect)
            else:
                graph = effect
        relaid = (
            RelaidGraph(relayout, self.groups, self.dimensions, tuple(effects), self.unchanged.is_host_bound)
            if relayout and effects
            else None
        )
        return graph, untouched, effects, relaid

    @cached_property
    def layout(self) -> Layout:
        """Layout of the run's ranks; `InputError` where unknown."""
        return layout_of(self.run)

    @cached_property
    def dimensions(self) -> dict[str, Dimension]:
        """Dimension of each group: as traces describe it, else from the layout."""
        stated = {group_id(ranks): dimension for dimension, ranks in described_groups(self.run)}
        by_group = {
            group: stated.get(group) or dimension_in(self.layout, ranks)
            for group, ranks in self.groups.items()
        }
        return {group: dimension for group, dimension in by_group.items() if dimension is not None}

    @property
    def source(self) -> str:
        """Source of the windows: device (also for modules), annotation, whole_trace."""
        return self.graph.windowed[0].policy

    @property
    def window_ns(self) -> int:
        """Total of all ranks' windows."""
        return sum(window.measured_ns for window in self.windows if not window.open)

    def _replay_relaid(
        self, graphs: dict[Case, Graph], ratios: TimeRatios, relaid: RelaidGraph, bounded: bool
    ) -> tuple[ReplayedStep, list[float], tuple[str, ...]]:
        """Outcome, steps and notes of another layout, replayed without and with longer waits."""
        ratio = ratios.high if bounded else ratios.expected
        graph = graphs["expected"]
        late = relaid.meeting_delays(graph, self._replay_ratios(graph, ratio)[1].start, self.inside)
        cases: dict[Case, Any] = {"low": (ratios.low, None), "high": (ratios.high, late.high)}
        if not bounded:
            cases["expected"] = (ratios.expected, late.expected)
        steps = []
        for case, (bound, delay) in cases.items():
            changed, times = self._replay_ratios(graphs[case], bound, delay)
            if relaid.placed_transfers:
                changed = relaid.place_transfers(changed, case)
                times = replay_contended(changed, self.contention)
            extra = relaid.added_step_ns(case, graph, bound, self.pace, self.since)
            step = max(self._step_ns(changed, times) + extra, 1.0)
            steps.append(step * (1 + getattr(relaid.slowest_rank_shares, case)))
        # the last case, the upper bound or the expected one, is shown
        outcome = ReplayedStep(steps[-1], self._critical_path(changed, times))
        notes = [*relaid.priced_notes(graph, self.since, self.window_ns), *relaid.spread_notes]
        notes += TimeBounds.total(communication.time for communication in relaid.added_communication).marks
        most = int(late.expected.max())
        if most:
            notes.append(
                f"waiting for the last of more ranks: {late.meetings:,} collectives, up to"
                f" {humanise(most / NS_PER_S, 's')} longer, by the spread of arrivals"
            )
        if extra:
            notes.append(f"added to the replayed step: {extra / outcome.step_ns:+.1%} of it")
        return outcome, steps, tuple(notes)

    def _replay_outcome(self, graph: Graph, ratio: Float) -> ReplayedStep:
        """Replay a graph with its nodes' times multiplied by `ratio`, shape (nodes,)."""
        graph, times = self._replay_ratios(graph, ratio)
        return ReplayedStep(self._step_ns(graph, times), self._critical_path(graph, times))

    def _replay_ratios(
        self, graph: Graph, ratio: Float, delay: Int64 | None = None
    ) -> tuple[Graph, NodeTimes]:
        """The graph with times multiplied by `ratio` within windows and extra delays, and its replay."""
        nodes = graph.nodes
        ratio = np.where(self.inside, ratio, 1.0)
        dur = np.rint(nodes.dur * ratio).astype(np.int64)
        gap = nodes.gap + np.rint(nodes.busy * (ratio - 1)).astype(np.int64)
        if delay is not None:
            dur = dur + delay
        graph = replace(graph, nodes=replace(nodes, dur=dur, gap=gap))
        return graph, replay_contended(graph, self.contention)

    def _step_ns(self, graph: Graph, times: NodeTimes) -> float:
        return self.pace.mean_step_ns(times.start, times.end, {rank.rank for rank in graph.windowed})

    def _critical_path(self, graph: Graph, times: NodeTimes) -> Path:
        """The critical path to the latest end of a rank's last window."""
        ranks = {rank.rank for rank in graph.windowed}
        counted = [w for w in self.windows if not w.open and w.rank in ranks]
        final = max(counted, key=lambda w: int(times.end[w.members].max()))
        last = int(final.members[np.argmax(times.end[final.members])])
        begin = min(int(times.start[w.openers].min()) + w.before for w in counted if w.rank == final.rank)
        return critical_path(graph, times, last, begin)
