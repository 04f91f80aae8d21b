# SPDX-License-Identifier: Apache-2.0
"""Why a replay leaves a calibration out: its parameters give the specification's ratios, within the band."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cclbench.formats.nccl_tests import NcclTests
from cclbench.hardware import catalog
from cclbench.hardware.calibration import Calibration, calibrate
from cclbench.hardware.collectives import Group, Prediction, group_of, price
from cclbench.hardware.collectives.price import costs
from cclbench.hardware.sweep import sweeps_of
from cclbench.replay.pricing import changed
from cclbench.replay.scenario import scenario

SWEPT = {
    "a100_nvswitch_1n8_allreduce": "dgx-a100",
    "alps_gh200_ss11_2n8_allreduce_ofi1_9_2": "alps-gh200",
    "alps_gh200_ss11_64n256_allreduce_ofi1_9_2": "alps-gh200",
    "aws_p5_2n16_allreduce": "aws-p5",
    "gcp_a3mega_2n16_allreduce": "gcp-a3-mega",
    "vultr_b200_1n8_allreduce": "dgx-b200",
}


@pytest.mark.parametrize("name", SWEPT)
def test_calibrated_parameters_give_the_specifications_ratios(test_data: Path, name: str) -> None:
    """For twice the bandwidth: the same at half of the sizes, 14 % off at most."""
    timed = NcclTests().read(test_data / "nccl_tests" / f"{name}.csv").timings
    (swept,), _ = sweeps_of(timed)
    old = catalog.system(SWEPT[name])
    found = calibrate([swept], old)
    assert isinstance(found, Calibration)
    tier = "scale_up" if swept.nodes == 1 else "scale_out"
    new = changed(old, scenario([f"{tier}.bandwidth=x2"]))
    members = old.members(swept.ranks, swept.nodes)
    by_spec, by_parameters = [], []
    for machine in (new, old):
        spec, group = price(swept.kind, swept.sizes, members, machine), group_of(machine, members)
        assert isinstance(spec, Prediction)
        assert isinstance(group, Group)
        by_spec.append([spec.time_s, spec.low_s, spec.high_s])
        every = [cost.time_s(swept.sizes) for cost in costs(swept.kind, group, found.assumed)]
        by_parameters.append(np.min(every, axis=0))
    ratios, own = np.divide(*by_spec), np.divide(*by_parameters)
    off = np.abs(own / ratios[0] - 1)
    assert np.median(off) < 0.005
    assert off.max() < 0.14
    within = (own > ratios.min(axis=0) - 1e-9) & (own < ratios.max(axis=0) + 1e-9)
    assert within.mean() > 0.95
