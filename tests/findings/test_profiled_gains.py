# SPDX-License-Identifier: Apache-2.0
"""Of a host's time that may be the profiler's own less is sure to be gained."""

from __future__ import annotations

import pytest

from cclbench.findings.diagnosis import ProfilerOverhead, _with_gain, _with_stacked_gains
from cclbench.findings.finding import Finding
from cclbench.findings.kept_gains import StepGain


class Replayed:
    """A replay that gains 8 to 10 ms of 100 without anything."""

    def gain_without(self, _settings: list[str]) -> StepGain:
        return StepGain((0.008, 0.010), (0.08, 0.10))


@pytest.mark.parametrize(
    ("causes", "longer_s", "gain_s", "confidence"),
    [
        (["operators", "launch"], 0.0, (0.008, 0.010), "high"),
        (["operators", "launch"], 0.003, (0.005, 0.009), "high"),  # 12 ms idle, 3 of them the profiler's
        (["operators", "launch"], 0.001, (0.007, 0.010), "high"),
        (["python"], 0.005, (0.003, 0.007), "low"),
        (["unrecorded"], 0.020, (0.0, 0.0), "low"),
        (["loader"], 0.005, (0.008, 0.010), "high"),
        ([], 0.005, (0.008, 0.010), "high"),
    ],
)
def test_a_gain_of_host_time_excludes_what_the_profiler_adds(
    causes: list[str], longer_s: float, gain_s: tuple[float, float], confidence: str
) -> None:
    found = Finding(
        name="x", claim="", confidence="high", because="so", host_causes=causes, whatif=["host.time=0"]
    )
    overhead = ProfilerOverhead(longer_s, idle_s=0.012)
    valued = _with_gain(found, Replayed(), few_steps=False, overhead=overhead)  # type: ignore[arg-type]
    assert valued.gain_s == pytest.approx(gain_s)
    assert valued.gain_share == pytest.approx(gain_s[1] / 0.1)
    assert valued.confidence == confidence
    assert ("without the profiler" in valued.because) == (gain_s[0] < 0.008)


def test_gains_together_exclude_it_once() -> None:
    """Host time of 8 to 10 ms is 5 to 9 ms without the 3 ms of the profiler; all together are 30 to 40 ms."""

    class Both(Replayed):
        def gain_without(self, settings: list[str]) -> StepGain:
            return super().gain_without(settings) if len(settings) < 2 else StepGain((0.03, 0.04), (0.3, 0.4))

    host, kernels = (
        Finding(
            name=key, claim="", confidence="high", because="so", host_causes=causes, whatif=[f"{key}.time=0"]
        )
        for key, causes in (("host", ["python"]), ("kernels", []))
    )
    gains, overhead = Both(), ProfilerOverhead(0.003, idle_s=0.012)
    valued = [_with_gain(one, gains, few_steps=False, overhead=overhead) for one in (host, kernels)]  # type: ignore[arg-type]
    for order in (valued, valued[::-1]):
        first, both = _with_stacked_gains(order, gains)  # type: ignore[arg-type]
        assert first.stacked_s == first.gain_s
        assert both.stacked_s == pytest.approx((0.027, 0.039))


def test_a_reason_of_no_gain_holds_only_where_the_replay_gains_nothing() -> None:
    class Little(Replayed):
        def gain_without(self, _settings: list[str]) -> StepGain:
            return StepGain((0.0, 0.0009), (0.0, 0.009))

    found = Finding(
        name="x",
        claim="",
        confidence="low",
        because="so",
        no_gain="why",
        whatif=["kernels.time=0"],
        surely=[],
    )
    none = ProfilerOverhead(0.0, idle_s=0.0)
    valued = _with_gain(found, Replayed(), few_steps=False, overhead=none)  # type: ignore[arg-type]
    assert (valued.gain_s, valued.no_gain) == ((0.0, 0.010), None)
    without = _with_gain(found, Little(), few_steps=False, overhead=none)  # type: ignore[arg-type]
    assert (without.gain_s, without.no_gain, without.whatif) == (None, "why", [])
