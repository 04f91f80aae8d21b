# SPDX-License-Identifier: Apache-2.0
"""Schedules given as data: priced step by step, and refused where they are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cclbench.ground.errors import InputError
from cclbench.hardware.collectives import Group, NoPrice, parse_schedule, price_group
from cclbench.hardware.collectives.algorithm import CollectiveCall
from cclbench.hardware.collectives.cost import Assumed, CollectiveCost
from cclbench.hardware.collectives.nccl import nccl_constants
from cclbench.hardware.collectives.schedule import Send, read_schedule, schedule_cost
from cclbench.hardware.collectives.transport import PROTOCOLS, LatencyRange

PLAIN = Assumed(launch_s=0.0, latency=1.0, rate=1.0, edge=1)
MESH = Group(4, 1, "ampere", "intel", peers="mesh", up_bytes_per_s=90e9, pair_bytes_per_s=30e9)
HOP = LatencyRange(0, 5e-6, 0)
NODES = replace(MESH, nodes=2, out_bytes_per_s=20e9, nic_bytes_per_s=10e9, out_hop=HOP)

# All-gather of four: exchange quarters with a neighbour, then halves with the other pair.
STEPS = [[[0, 1, 0.25], [1, 0, 0.25], [2, 3, 0.25], [3, 2, 0.25]]]
STEPS.append([[0, 2, 0.5], [2, 0, 0.5], [1, 3, 0.5], [3, 1, 0.5]])
DOUBLING = {"kind": "all_gather", "ranks": 4, "steps": STEPS}


def call(kind: str, group: Group) -> CollectiveCall:
    return CollectiveCall(kind, group, nccl_constants(None), PLAIN, PROTOCOLS)


def test_steps_on_a_mesh_and_over_nodes() -> None:
    """Two steps of 3.4 µs after 8.4 µs; 1/4 and 1/2 of S, each over the 30 GB/s of a pair."""
    cost = schedule_cost(parse_schedule(DOUBLING, where="x"), call("all_gather", MESH))
    assert cost.alpha_s == pytest.approx(8.4e-6 + 2 * 3.4e-6)
    assert cost.beta_s_per_byte == pytest.approx(0.75 / 30e9)
    # ranks 0, 1 and 2, 3 on two nodes: the second step sends 2 × S/2 through a node's 20 GB/s
    cost = schedule_cost(parse_schedule(DOUBLING, where="x"), call("all_gather", NODES))
    assert cost.alpha_s == pytest.approx(8.4e-6 + 3.4e-6 + 14e-6 + 2 * 5e-6)
    assert cost.beta_s_per_byte == pytest.approx(0.25 / 30e9 + 1.0 / 20e9)
    # A root sends all of S to three others at once: 3 S over its 60 GB/s outweigh S over a pair
    raw = {"kind": "broadcast", "ranks": 4, "steps": [[[0, 1, 1], [0, 2, 1], [0, 3, 1]]]}
    cost = cost_of(raw, replace(MESH, up_bytes_per_s=60e9))
    assert cost.beta_s_per_byte == pytest.approx(3 / 60e9)


def test_a_schedule_is_priced_instead_of_algorithms() -> None:
    """It wins by being the only one; of another kind or size it is refused."""
    plan = parse_schedule(DOUBLING, where="x")
    found = price_group("all_gather", np.array([1e6, 1e9]), MESH, plan=plan)
    assert set(found.algorithm) == {"schedule"}
    assert isinstance(price_group("all_reduce", np.array([1e6]), MESH, plan=plan), NoPrice)
    assert isinstance(price_group("all_gather", np.array([1e6]), replace(MESH, ranks=2), plan=plan), NoPrice)
    # a schedule of other ranks or another collective has no cost
    assert schedule_cost(plan, call("all_reduce", MESH)) is None
    assert schedule_cost(plan, call("all_gather", replace(MESH, ranks=8))) is None


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        *((None, "kind, ranks and steps"), ([], "kind, ranks and steps")),
        ({**DOUBLING, "more": 1}, "nothing else"),
        ({**DOUBLING, "kind": "all_gathers"}, "unknown kind"),
        *(({**DOUBLING, "ranks": True}, "ranks"), ({**DOUBLING, "ranks": 10**9}, "ranks")),
        ({**DOUBLING, "steps": []}, "list of steps"),
        ({**DOUBLING, "steps": [[]]}, "step 1: has no sends"),
        ({**DOUBLING, "steps": [[[0, 1]]]}, "from, to, share"),
        ({**DOUBLING, "steps": [[[0, 0, 0.5]]]}, "two different ranks"),
        ({**DOUBLING, "steps": [[[0, 4, 0.5]]]}, "outside 0 to 3"),
        ({**DOUBLING, "steps": [[[0, 1, 0]]]}, "share of S"),
        ({**DOUBLING, "steps": [[[0, 1, float("nan")]]]}, "share of S"),
        ({**DOUBLING, "steps": [[[0, 1, float("inf")]]]}, "share of S"),
        ({**DOUBLING, "steps": [DOUBLING["steps"][0], "x"]}, "step 2"),
        ({**DOUBLING, "kind": "all_gather " * 9}, "kind: 'all_gather all_gather all_gather all_gat'"),
        ({**DOUBLING, "ranks": 1}, "must have 2 to 65,536 ranks"),
        ({**DOUBLING, "ranks": 65537}, "must have 2 to 65,536 ranks"),
        ({**DOUBLING, "ranks": 4.0}, "must have 2 to 65,536 ranks"),
        ({**DOUBLING, "steps": {}}, "has no list of steps"),
        ({**DOUBLING, "steps": [[[0, 1, 0.5, 1]]]}, "from, to, share"),
        ({**DOUBLING, "steps": [["0 1"]]}, "from, to, share"),
        ({**DOUBLING, "steps": [[[0.0, 1, 0.5]]]}, "two different ranks"),
        ({**DOUBLING, "steps": [[[0, True, 0.5]]]}, "two different ranks"),
        ({**DOUBLING, "steps": [[[4, 0, 0.5]]]}, "outside 0 to 3"),
        ({**DOUBLING, "steps": [[[-1, 0, 0.5]]]}, "outside 0 to 3"),
        ({**DOUBLING, "steps": [[[0, -1, 0.5]]]}, "outside 0 to 3"),
        ({**DOUBLING, "steps": [[[0, 1, 4.1]]]}, r"not in \(0, 4\]"),
        ({**DOUBLING, "steps": [[[0, 1, True]]]}, "share of S"),
        ({**DOUBLING, "steps": [[[0, 1, 1]] * (1 << 20), [[0, 1, 1]]]}, "more than 1,048,576 sends"),
    ],
)
def test_what_is_no_schedule(raw: object, what: str) -> None:
    with pytest.raises(InputError, match=what) as error:
        parse_schedule(raw, where="plan.yaml")
    assert "plan.yaml" in str(error.value)


def test_schedules_at_their_bounds(tmp_path: Path) -> None:
    """Two ranks, the most ranks, a share of all ranks' S; whole numbers are shares too."""
    for ranks in (2, 65536):
        made = parse_schedule(
            {"kind": "all_gather", "ranks": ranks, "steps": [[[0, ranks - 1, ranks]]]}, where="x"
        )
        assert (made.ranks, made.steps) == (ranks, ((Send(0, ranks - 1, float(ranks)),),))
    with pytest.raises(InputError, match="outside 0 to 1"):
        parse_schedule({"kind": "all_gather", "ranks": 2, "steps": [[[0, 2, 1]]]}, where="x")
    # as one that is decoded; what is wrong is said with the file
    path = tmp_path / "plan.yaml"
    path.write_text("kind: all_gather\nranks: 2\nsteps:\n  - [[0, 1, 0.5], [1, 0, 0.5]]\n")
    assert read_schedule(path).steps == ((Send(0, 1, 0.5), Send(1, 0, 0.5)),)
    path.write_text("kind: all_gather\nkind: all_gather\nranks: 2\nsteps: [[[0, 1, 0.5]]]\n")
    with pytest.raises(InputError, match=r"plan\.yaml:2: .*is there twice"):
        read_schedule(path)


def test_a_step_takes_its_busiest_place() -> None:
    """What arrives at one accelerator shares its links; both ways of an interface do not share it."""
    into = {"kind": "gather", "ranks": 4, "steps": [[[1, 0, 1], [2, 0, 1], [3, 0, 1]]]}
    slow = replace(MESH, up_bytes_per_s=60e9)
    assert cost_of(into, slow).beta_s_per_byte == pytest.approx(3 / 60e9)
    # two sends of one pair share its 30 GB/s, one each way does not
    pairs = ([[0, 1, 1], [0, 1, 1]], MESH, 2 / 30e9), ([[0, 1, 1], [1, 0, 1]], MESH, 1 / 30e9)
    # across nodes: two into one node; then one each way
    nodes = ([[0, 2, 1], [1, 3, 1]], NODES, 2 / 20e9), ([[0, 2, 1], [3, 1, 1]], NODES, 1 / 20e9)
    for step, group, beta in (*pairs, *nodes):
        assert cost_of({**into, "steps": [step]}, group).beta_s_per_byte == pytest.approx(beta)
    # a step in the node beside one that leaves it counts as one over the network
    mixed = cost_of({**into, "steps": [[[0, 1, 1], [1, 2, 0.5]], [[0, 1, 1]]]}, NODES)
    assert [step.count for step in mixed.steps] == [1, 1, 1, 1]
    assert mixed.beta_s_per_byte == pytest.approx(2 / 30e9)
    # half of the rates, and late messages for each step over the network
    late = replace(NODES, eager_bytes=2048.0, rendezvous=LatencyRange(0, 20e-6, 0))
    slow = call("all_gather", late)._replace(assumed=replace(PLAIN, rate=0.5))
    found = schedule_cost(parse_schedule(DOUBLING, where="x"), slow)
    assert (found.algorithm, found.traffic.share) == ("schedule", 1.0)
    assert found.traffic.bytes_per_s == pytest.approx(0.5 / (0.25 / 30e9 + 1.0 / 20e9))
    assert (found.rendezvous.count, found.rendezvous.each_s) == (1, pytest.approx(40e-6))


def cost_of(raw: dict[str, object], group: Group) -> CollectiveCost:
    found = schedule_cost(parse_schedule(raw, where="x"), call(str(raw["kind"]), group))
    assert found is not None
    return found
