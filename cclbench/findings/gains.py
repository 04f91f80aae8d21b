# SPDX-License-Identifier: Apache-2.0
"""Gain of a step without a cause: a replay of the settings that remove it from the run's graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from cclbench.analyzers.metric import NotApplicable
from cclbench.analyzers.view.rank_view import RankView
from cclbench.findings.culprits import Culprit, HostCalls
from cclbench.findings.kept_gains import KeptGains, StepGain
from cclbench.ground.errors import CclbenchError, ChangedRunError, InputError
from cclbench.normalize.steps import SOURCES
from cclbench.record.results import Scope
from cclbench.record.run import Run
from cclbench.record.step_means import profiler_s
from cclbench.replay import PASSING_ROWS
from cclbench.replay.scenario import key_and_value, parse_scenario

if TYPE_CHECKING:
    from cclbench.replay.answer import Replay

_NS_PER_S = 10**9


class ReplayGains:
    """Replays of one run, each compared with the unchanged replay.

    Where the capture timed steps without the profiler, the gain is that of the job without it: of a graph
    with so much less host time (`Replay.without_profiler`).

    A gain's bounds cover two graphs, with and without what only times suggest (dependencies that no event
    shows, unexplained launch delays; without any, one graph), the replay's bounds in each, and three sets of
    steps: all complete ones; all but the first, which may be late because of work before the capture; and all
    with the incomplete last one, up to which a host that runs ahead may hide its loss.
    """

    overhead_s: float = 0.0
    """What the profiler adds to a step, s; 0 where unknown."""

    def __init__(self, run: Run, scope: Scope) -> None:
        self._run, self._scope = run, scope
        self._kept = KeptGains(run, scope)
        self.overhead_s = profiler_s(run.record)
        self._host_calls: dict[int, HostCalls] = {}

    @cached_property
    def _unreplayable_reason(self) -> str | None:
        """Why the run's events are not read again for a replay; None where they are."""
        if self._run.record.published is not None:
            return "published figures have no trace to replay"
        rows = sum(sum(entry.rows.values()) for entry in self._run.record.ranks)
        if rows > PASSING_ROWS:
            return f"the run has {rows:,} events, above the limit of an automatic replay ({PASSING_ROWS:,})"
        return None

    @cached_property
    def _run_replays(self) -> Sequence[Replay] | str:
        """The run's graphs, or why there are none."""
        if self._unreplayable_reason:
            return self._unreplayable_reason
        # imported late: stored gains are shown without the replay, which takes longer to load than they do
        from cclbench.replay.answer import Replay
        from cclbench.replay.answer_rows import FAITHFUL

        try:
            replay = Replay(self._run, ranks=self._scope.ranks, steps=self._scope.steps or None)
            if any(replay.source not in SOURCES[policy] for policy in self._scope.windows):
                return "the figures and the replay use different windows"
            error = replay.pace.step_ns / replay.measured_ns - 1
            if abs(error) > FAITHFUL:
                return f"the unchanged replay is {error:+.1%} off the measured step"
            return [replay, replay.without_doubt()] if replay.graph.has_doubt else [replay]
        except ChangedRunError:
            raise
        except InputError as error:
            return str(error)

    @cached_property
    def _unprofiled_replays(self) -> Sequence[Replay] | str:
        """The run's graphs without the profiler's overhead, or why there are none."""
        replays = self._run_replays
        if isinstance(replays, str) or not self.overhead_s:
            return replays
        return [replay.without_profiler(self.overhead_s) for replay in replays]

    def gain_without(self, settings: Sequence[str]) -> StepGain | str:
        """The gain of the settings together, or why it is unknown."""
        return self._stored_gain(settings, lambda: self._replay_settings(settings, self._unprofiled_replays))

    def recorded_gain(self, settings: Sequence[str]) -> StepGain | str:
        """The same in the recorded steps, which include the profiler's overhead."""
        if not self.overhead_s:
            return self.gain_without(settings)
        key = ("recorded", *settings)
        return self._stored_gain(key, lambda: self._replay_settings(settings, self._run_replays))

    def _stored_gain(self, key: Sequence[str], replay: Callable[[], StepGain | str]) -> StepGain | str:
        gain = self._kept.kept_gain(key)
        if gain is None:
            gain = replay()
            self._kept.add_gain(key, gain)
        return gain

    def rank_culprit(self, causes: Sequence[str], rank: int) -> Culprit | None:
        """The calls behind most of a rank's time in these causes of `time.idle_host_by`; None without any."""
        if self._unreplayable_reason:
            return None
        return self._kept.kept_culprit([str(rank), *causes], lambda: self._find_culprit(causes, rank))

    def _find_culprit(self, causes: Sequence[str], rank: int) -> Culprit | None:
        try:
            if rank not in self._host_calls:
                self._host_calls[rank] = HostCalls(self._rank_view(rank))
            return self._host_calls[rank].main_culprit(causes)
        except NotApplicable:
            return None

    def _rank_view(self, rank: int) -> RankView:
        """The rank in the windows of the figures."""
        scope, tables = self._scope, self._run.rank(rank).with_column_cache()
        view = RankView(tables, rank=rank, window=scope.windows[0])
        if scope.steps and not {*view.windows.steps} <= {*scope.steps}:
            steps = (scope.steps[0], scope.steps[-1] + 1)
            view = RankView(tables, rank=rank, window=scope.windows[0], steps=steps)
        return view

    def keep_gains(self) -> None:
        """Store the replayed gains with the run."""
        self._kept.save_gains()

    def _replay_settings(self, settings: Sequence[str], replays: Sequence[Replay] | str) -> StepGain | str:
        if isinstance(replays, str):
            return replays
        saved: list[float] = []
        for replay in replays:
            try:
                shares = replay.savings(parse_scenario(settings))
            except ChangedRunError:
                raise
            except CclbenchError as error:
                return str(error)
            saved += [0.0] if isinstance(shares, str) else shares
        least, most = max(min(saved), 0.0), max(*saved, 0.0)
        step_s = replays[0].measured_ns / _NS_PER_S
        return StepGain((least * step_s, most * step_s), (least, most))


def join_settings(settings: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    """The settings and `more` without keys that are already set."""
    keys = {key_and_value(text)[0] for text in settings}
    return (*settings, *(text for text in more if key_and_value(text)[0] not in keys))
