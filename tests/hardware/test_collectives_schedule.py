# SPDX-License-Identifier: Apache-2.0
"""Schedules given as data: priced step by step, and refused where they are none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cclbench.errors import InputError
from cclbench.hardware.collectives import Group, Prediction, Refusal, price_group, schedule
from cclbench.hardware.collectives.algorithm import Call
from cclbench.hardware.collectives.cost import Assumed
from cclbench.hardware.collectives.nccl import constants
from cclbench.hardware.collectives.schedule import scheduled
from cclbench.hardware.collectives.transport import PROTOCOLS, Range

PLAIN = Assumed(launch_s=0.0, latency=1.0, rate=1.0, edge=1)
MESH = Group(4, 1, "ampere", "intel", peers="mesh", up_bytes_per_s=90e9, pair_bytes_per_s=30e9)
NODES = replace(
    MESH, nodes=2, up_bytes_per_s=90e9, out_bytes_per_s=20e9, nic_bytes_per_s=10e9, out_hop=Range(0, 5e-6, 0)
)

# All-gather of four: exchange quarters with a neighbour, then halves with the other pair.
DOUBLING = {
    "kind": "all_gather",
    "ranks": 4,
    "steps": [
        [[0, 1, 0.25], [1, 0, 0.25], [2, 3, 0.25], [3, 2, 0.25]],
        [[0, 2, 0.5], [2, 0, 0.5], [1, 3, 0.5], [3, 1, 0.5]],
    ],
}


def call(kind: str, group: Group) -> Call:
    return Call(kind, group, constants(None), PLAIN, PROTOCOLS)


def test_steps_on_a_mesh() -> None:
    """Two steps of 3.4 µs after 8.4 µs; 1/4 and 1/2 of S, each over the 30 GB/s of a pair."""
    cost = scheduled(schedule(DOUBLING, where="x"), call("all_gather", MESH))
    assert cost is not None
    assert cost.alpha_s == pytest.approx(8.4e-6 + 2 * 3.4e-6)
    assert cost.beta_s_per_byte == pytest.approx(0.75 / 30e9)


def test_steps_over_nodes() -> None:
    """Ranks 0, 1 and 2, 3 on two nodes: the second step sends 2 × S/2 through a node's 20 GB/s."""
    cost = scheduled(schedule(DOUBLING, where="x"), call("all_gather", NODES))
    assert cost is not None
    assert cost.alpha_s == pytest.approx(8.4e-6 + 3.4e-6 + 14e-6 + 2 * 5e-6)
    assert cost.beta_s_per_byte == pytest.approx(0.25 / 30e9 + 1.0 / 20e9)


def test_one_accelerators_links_are_shared() -> None:
    """A root sends all of S to three others at once: 3 S over its 60 GB/s outweigh S over a pair."""
    raw = {"kind": "broadcast", "ranks": 4, "steps": [[[0, 1, 1], [0, 2, 1], [0, 3, 1]]]}
    cost = scheduled(schedule(raw, where="x"), call("broadcast", replace(MESH, up_bytes_per_s=60e9)))
    assert cost is not None
    assert cost.beta_s_per_byte == pytest.approx(3 / 60e9)


def test_a_schedule_is_priced_instead_of_algorithms() -> None:
    """It wins by being the only one; of another kind or size it is refused."""
    plan = schedule(DOUBLING, where="x")
    found = price_group("all_gather", np.array([1e6, 1e9]), MESH, plan=plan)
    assert isinstance(found, Prediction)
    assert set(found.algorithm) == {"schedule"}
    assert isinstance(price_group("all_reduce", np.array([1e6]), MESH, plan=plan), Refusal)
    assert isinstance(price_group("all_gather", np.array([1e6]), replace(MESH, ranks=2), plan=plan), Refusal)


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (None, "kind, ranks and steps"),
        ([], "kind, ranks and steps"),
        ({**DOUBLING, "more": 1}, "nothing else"),
        ({**DOUBLING, "kind": "all_gathers"}, "known kind"),
        ({**DOUBLING, "ranks": True}, "ranks"),
        ({**DOUBLING, "ranks": 10**9}, "ranks"),
        ({**DOUBLING, "steps": []}, "list of steps"),
        ({**DOUBLING, "steps": [[]]}, "step 1: has no sends"),
        ({**DOUBLING, "steps": [[[0, 1]]]}, "from, to, share"),
        ({**DOUBLING, "steps": [[[0, 0, 0.5]]]}, "two ranks"),
        ({**DOUBLING, "steps": [[[0, 4, 0.5]]]}, "outside 0 to 3"),
        ({**DOUBLING, "steps": [[[0, 1, 0]]]}, "share of S"),
        ({**DOUBLING, "steps": [[[0, 1, float("nan")]]]}, "share of S"),
        ({**DOUBLING, "steps": [[[0, 1, float("inf")]]]}, "share of S"),
        ({**DOUBLING, "steps": [DOUBLING["steps"][0], "x"]}, "step 2"),
    ],
)
def test_what_is_no_schedule(raw: object, what: str) -> None:
    """One line that says where and why."""
    with pytest.raises(InputError, match=what) as error:
        schedule(raw, where="plan.yaml")
    assert "plan.yaml" in str(error.value)
