# SPDX-License-Identifier: Apache-2.0
"""A collective algorithm is one file: each registered one is sound, one from outside is chosen and priced."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.packages import cclbench_with, with_module

from cclbench.ground.schema import COLLECTIVE_KINDS
from cclbench.hardware.catalog import systems
from cclbench.hardware.collectives import ALGORITHMS, NoPrice, group_of
from cclbench.hardware.collectives.algorithm import CollectiveCall
from cclbench.hardware.collectives.cost import BEST, EXPECTED, WORST
from cclbench.hardware.collectives.nccl import nccl_constants
from cclbench.hardware.collectives.transport import PROTOCOLS
from cclbench.hardware.residuals import ResidualSetting, current_residuals

SIZES = np.array([1.0, 1e3, 1e6, 1e9, 1e12])
GROUPS = [
    found
    for system in systems().values()
    for ranks in (2, system.per_node, 2 * system.per_node)
    if not isinstance(found := group_of(system, range(ranks)), NoPrice)
]

NODE = ResidualSetting("dgx-h100 nvlink4", False, "switch", "broadcast", 8)

STAR = '''
"""Broadcast in one step from the root to everyone."""

from cclbench.hardware.collectives.algorithm import algorithm
from cclbench.hardware.collectives.cost import CollectiveCost, CollectiveSteps, Traffic


@algorithm("star")
def star(call):
    if call.kind == "broadcast":
        steps = (CollectiveSteps(1, 1e-6, "launch"),)
        yield CollectiveCost("star", "Simple", steps, Traffic(1.0, 1e12, "links of the root"))
'''


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_what_an_algorithm_costs_is_under_its_name_and_rises_with_size(name: str) -> None:
    algorithm = ALGORITHMS.get(name)
    applied = 0
    for group in GROUPS:
        for kind in COLLECTIVE_KINDS:
            for assumed in (BEST, EXPECTED, WORST):
                if not algorithm.applies_to(group, by_name=True):
                    continue
                for cost in algorithm.costs(
                    CollectiveCall(kind, group, nccl_constants(None), assumed, PROTOCOLS)
                ):
                    times = cost.time_s(SIZES)
                    assert cost.algorithm == name
                    assert np.isfinite(times).all()
                    assert (times > 0).all()
                    assert (np.diff(times) > 0).all()
                    applied += 1
    assert applied


@pytest.fixture
def outside(tmp_path: Path) -> Mapping[str, str]:
    """The environment with a package installed that holds an algorithm."""
    return with_module(tmp_path, "star_broadcast", STAR, "cclbench.collectives")


def predicted(environment: Mapping[str, str], *options: str) -> dict[str, Any]:
    """The row that `hardware predict` prints of a broadcast of 1 MB."""
    asked = ("--system", "dgx-h100", "--collective", "broadcast", "--ranks", 8, "--size", "1MB")
    done = cclbench_with(environment, "hardware", "predict", *asked, *options, "--json", check=True)
    (row,) = json.loads(done.stdout)["rows"]
    return dict(row)


@pytest.mark.parametrize("options", [(), ("--algorithm", "star")], ids=["chosen", "asked for"])
def test_an_algorithm_from_outside_is_priced(outside: Mapping[str, str], options: tuple[str, ...]) -> None:
    row = predicted(outside, *options)
    assert (row["algorithm"], row["protocol"]) == ("star", "Simple")
    learned = 1.0 if options else np.exp(current_residuals().log_correction(NODE, np.array([1e6]))[0])
    assert row["time_s"] == pytest.approx(learned * (1e-6 + 1e6 / 1e12))
    assert row["low_s"] <= row["time_s"] <= row["high_s"]


def test_without_it_another_is_chosen() -> None:
    assert predicted(os.environ)["algorithm"] == "ring"
