# SPDX-License-Identifier: Apache-2.0
"""Gains by profiles, and those that are kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.launch_trace import write_launches

import cclbench
from cclbench.findings.diagnosis import _with_gain, _with_stacked_gains, findings_of_run
from cclbench.findings.finding import Finding
from cclbench.findings.gains import ReplayGains
from cclbench.findings.kept_gains import GAINS_FILE, StepGain
from cclbench.replay.answer import Replay
from cclbench.replay.contention import replay_contended
from cclbench.replay.graph import Graph
from cclbench.replay.simulate import NodeTimes

CALLS, STEPS = 100, 4


def run_with_overhead(folder: Path, call_us: float, kernel_us: float, unprofiled_us: float) -> cclbench.Run:
    """Steps of 100 launches, each `call_us` after the last, and kernels; a step took so long unprofiled."""
    traces = folder / "traces"
    steps = [[(call_us, kernel_us)] * CALLS] * STEPS
    step_us = write_launches(traces / "rank0_trace.json", steps)[0]
    timed = {
        form: {"steps": STEPS, "seconds": STEPS * us / 1e6, "each": [us / 1e6] * STEPS}
        for form, us in {"unprofiled": unprofiled_us, "profiled": step_us}.items()
    }
    stated = {"schema": "cclbench.step-times.v1", "rank": 0, "profiler": "torch.profiler", "records": []}
    (traces / "rank0_step_times.json").write_text(json.dumps(stated | timed))
    return cclbench.run(traces, store=folder / "store")


@pytest.mark.parametrize(
    ("kernel_us", "unprofiled_us", "recorded", "without"),
    [
        (5, 1_000, 0.75, 0.50),  # 20 us a call become 10: of 1 ms the device needs half
        (15, 1_500, 0.25, 0.0),  # the device needs 1.5 ms: only the profiler made the host too slow
        (15, 1_200, 0.25, 0.0),  # the profiler makes kernels slower as well: no host is fast enough
        (5, 1_995, 0.75, 0.75),  # an overhead of less than 1 % is not told from chance
    ],
)
def test_a_host_is_as_slow_as_without_the_profiler(
    tmp_path: Path, kernel_us: float, unprofiled_us: float, recorded: float, without: float
) -> None:
    run = run_with_overhead(tmp_path, 20, kernel_us, unprofiled_us)
    gains = ReplayGains(run, run.figures.scope)
    settings = ["host[operators+launch+python+unrecorded].time=0"]
    with_profiler, without_profiler = gains.recorded_gain(settings), gains.gain_without(settings)
    assert with_profiler.shares == pytest.approx((recorded, recorded), abs=0.015)
    assert without_profiler.shares == pytest.approx((without, without), abs=0.015)
    step_us = max(unprofiled_us, CALLS * kernel_us) if recorded > without else CALLS * 20
    assert without_profiler.seconds[1] == pytest.approx(without * step_us / 1e6, abs=0.015 * step_us / 1e6)


class Replayed(ReplayGains):
    """A step of 100 ms with the profiler and 97 without: 8 to 10 ms are gained with it, 5 to 7 without."""

    overhead_s = 0.003

    def __init__(self) -> None:
        pass

    def gain_without(self, settings: Sequence[str]) -> StepGain | str:
        one, both = StepGain((0.005, 0.007), (0.052, 0.072)), StepGain((0.03, 0.04), (0.31, 0.41))
        return one if len(settings) < 2 else both

    def recorded_gain(self, settings: Sequence[str]) -> StepGain | str:
        assert len(settings) == 1
        return StepGain((0.008, 0.010), (0.08, 0.10))


def hand_made(key: str, *causes: str, **more: Any) -> Finding:
    stated = {"confidence": "high", "host_causes": [*causes], "whatif": [f"{key}.time=0"], **more}
    return Finding(name=key, claim="", because="so", **stated)


@pytest.mark.parametrize(
    ("causes", "overhead_s", "confidence"),
    [(["operators"], 0.003, "high"), (["python"], 0.005, "low"), (["loader"], 0.005, "high")],
)
def test_a_finding_states_both_gains(
    monkeypatch: pytest.MonkeyPatch, causes: list[str], overhead_s: float, confidence: str
) -> None:
    monkeypatch.setattr(Replayed, "overhead_s", overhead_s)
    valued = _with_gain(hand_made("host", *causes), Replayed(), few_steps=False)
    assert (valued.gain_s, valued.gain_share) == ((0.005, 0.007), 0.072)
    assert valued.recorded_gain_s == (0.008, 0.010)
    assert valued.confidence == confidence
    assert "without the profiler" in valued.because


def test_stacked_gains_are_replayed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    valued = [_with_gain(hand_made(key), Replayed(), few_steps=False) for key in ("host", "kernels")]
    first, both = _with_stacked_gains(valued, Replayed())
    assert (first.stacked_s, both.stacked_s) == (first.gain_s, (0.03, 0.04))
    # without an overhead there is one gain
    monkeypatch.setattr(Replayed, "overhead_s", 0.0)
    valued = _with_gain(hand_made("host", "python"), Replayed(), few_steps=False)
    assert (valued.gain_s, valued.recorded_gain_s, valued.because) == ((0.005, 0.007), None, "so")


def test_a_reason_of_no_gain_holds_only_without_a_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replayed, "overhead_s", 0.0)
    found = hand_made("kernels", confidence="low", no_gain="why", surely=[])
    valued = _with_gain(found, Replayed(), few_steps=False)
    assert (valued.gain_s, valued.no_gain) == ((0.0, 0.007), None)
    monkeypatch.setattr(Replayed, "gain_without", lambda *_: StepGain((0.0, 0.0009), (0.0, 0.009)))
    without = _with_gain(found, Replayed(), few_steps=False)
    assert (without.gain_s, without.no_gain, without.whatif) == (None, "why", [])


def test_no_amount_of_host_time_is_replayed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replay = Replay(run_with_overhead(tmp_path, 20, 5, 1_000))
    replayed = []

    def count(graph: Graph, factor: float) -> NodeTimes:
        replayed.append((graph.nodes.dur.tobytes(), graph.nodes.gap.tobytes()))
        return replay_contended(graph, factor)

    monkeypatch.setattr("cclbench.replay.answer.replay_contended", count)
    assert replay.without_profiler(1e-3).pace.step_ns == pytest.approx(1e6, rel=0.01)
    assert len({*replayed}) == len(replayed) > 1


@pytest.fixture(scope="module")
def store(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("store")
    cclbench.run(repository / "workload_cards" / "tiny-llama-fsdp2-tp2-gloo-cpu.yaml", store=store)
    return store


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is replayed from now on."""
    made: list[Any] = []
    original = Replay.__init__

    def replay(self: Replay, *args: Any, **options: Any) -> None:
        made.append(options)
        original(self, *args, **options)

    monkeypatch.setattr(Replay, "__init__", replay)
    return made


def stored(store: Path, **options: Any) -> cclbench.Run:
    (path,) = (path for path in store.iterdir() if not path.name.startswith("."))
    return cclbench.run(path.name, store=store, **options)


def test_a_gain_is_replayed_once(store: Path, replays: list[Any]) -> None:
    run = stored(store)
    first = findings_of_run(run, run.figures)
    assert len(replays) == 1
    assert any(one.gain_s is not None for one in first)
    assert findings_of_run(run, run.figures) == first
    assert len(replays) == 1


def test_other_steps_are_replayed_anew(store: Path, replays: list[Any]) -> None:
    run = stored(store, steps=(3, 6))
    some = findings_of_run(run, run.figures)
    assert len(replays) == 1
    assert [*ReplayGains(run, run.figures.scope)._rank_view(0).windows.steps] == [3, 4, 5]
    whole = stored(store)
    assert findings_of_run(whole, whole.figures) != some


@pytest.mark.parametrize("change", ["by", "type", "cut"])
def test_a_file_of_other_code_or_damaged_is_replaced(store: Path, replays: list[Any], change: str) -> None:
    run = stored(store)
    right = findings_of_run(run, run.figures)
    path = run.path / GAINS_FILE
    kept = json.loads(path.read_bytes())
    wrong = {settings: [[0, 9], [0, 0.9]] for settings in kept["gains"]}
    if change == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    else:
        path.write_text(
            json.dumps(kept | ({"by": "other", "gains": wrong} if change == "by" else {"gains": [1]}))
        )
    replays.clear()
    assert findings_of_run(run, run.figures) == right
    assert len(replays) == 1
    assert json.loads(path.read_bytes()) == kept
