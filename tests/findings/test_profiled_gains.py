# SPDX-License-Identifier: Apache-2.0
"""Of a host's time that may be the profiler's own less is sure to be gained."""

from __future__ import annotations

import pytest

from cclbench.findings.diagnosis import _with_gain
from cclbench.findings.finding import Finding
from cclbench.findings.kept_gains import StepGain


class Replayed:
    """A replay that gains 8 to 10 ms of 100 without anything."""

    def gain_without(self, _settings: list[str]) -> StepGain:
        return StepGain((0.008, 0.010), (0.08, 0.10))


@pytest.mark.parametrize(
    ("causes", "longer_s", "least_s", "confidence"),
    [
        (["operators", "launch"], 0.0, 0.008, "high"),
        (["operators", "launch"], 0.003, 0.005, "high"),
        (["python"], 0.005, 0.003, "low"),
        (["unrecorded"], 0.020, 0.0, "low"),
        (["loader"], 0.005, 0.008, "high"),
        ([], 0.005, 0.008, "high"),
    ],
)
def test_the_profilers_own_time_is_not_sure_to_be_gained(
    causes: list[str], longer_s: float, least_s: float, confidence: str
) -> None:
    found = Finding(
        name="x", claim="", confidence="high", because="so", host_causes=causes, whatif=["host.time=0"]
    )
    valued = _with_gain(found, Replayed(), few_steps=False, longer_s=longer_s)  # type: ignore[arg-type]
    assert valued.gain_s == pytest.approx((least_s, 0.010))
    assert valued.confidence == confidence
    assert ("profiler overhead" in valued.because) == (least_s < 0.008)
