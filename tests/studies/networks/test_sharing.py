# SPDX-License-Identifier: Apache-2.0
"""Networks that carry less, fail, or wait behind each message: transfers, by hand and simulated again."""

from __future__ import annotations

import pytest
from helpers.replay_programs import program, replayed, simulated, step
from helpers.synthetic import Collective, Compute, Layout, Link, Network, Transfer, simulate
from helpers.true_steps import _true_step

from cclbench.card.model import Hardware
from cclbench.ground.errors import UsageError
from cclbench.machine import Machine
from cclbench.replay.scenario import parse_scenario

MIB_NS = 5_000 + 100 * 1024
"""What a MiB takes in `simulated`."""
NODES = Layout(dp=2, tp=2, gpus_per_host=2)
"""Two nodes of two: groups of tp are nodes, those of dp cross."""


def reduced(*dimensions: str, together: bool = False) -> object:
    """A kernel, then an all-reduce in each dimension, one after the other or all at once."""
    labels = [f"{number}" if together else None for number in range(len(dimensions))]
    calls = (Collective("all_reduce", d, 1 << 20, label) for d, label in zip(dimensions, labels, strict=True))
    return program(Compute(200_000), *calls)


@pytest.mark.parametrize(
    ("setting", "longer"),
    [
        # both dp groups reduce at once and fill a node's two interfaces: half of the uplink, twice the time
        ("oversubscription=x1", 0),
        ("oversubscription=x2", MIB_NS),
        ("oversubscription=x4", 3 * MIB_NS),
        # two flows of demand 1 share 1.5 interfaces: 4/3 of the time
        ("failed_links=1:0.25", MIB_NS / 3),
        ("failed_links=1:0", 0),
    ],
)
def test_groups_that_send_at_once_share_the_uplink_of_their_node(setting: str, longer: float) -> None:
    replay = replayed(simulated(reduced("dp"), NODES))
    unchanged = replay.unchanged.step_ns
    assert step(replay, f"scale_out.{setting}") == pytest.approx(unchanged + longer, abs=20 if longer else 0)


def test_a_flow_wants_no_more_than_its_measured_rate_where_the_catalog_tells_the_interface_s() -> None:
    """A MiB in 107 µs are 9.8 GB/s of an interface of 46: with a half of the uplink it takes as long. Groups
    on rails lose nothing where rails are thinly joined."""
    replay = replayed(simulated(reduced("dp"), NODES))
    found = replay.predict(parse_scenario(["scale_out.rail_oversubscription=x8"]))
    assert "stay on their rails" in str(found.idle)
    replay.machine = Machine(Hardware(per_node=2, system="dgx-h100"))
    assert step(replay, "scale_out.oversubscription=x2") == replay.unchanged.step_ns
    assert step(replay, "scale_out.oversubscription=x64") > replay.unchanged.step_ns


def test_a_group_alone_has_the_uplink_to_itself() -> None:
    """One of four ranks of a node crosses: a quarter of the uplink carries it whole, an eighth half of it."""
    layout = Layout(pp=2, tp=4, gpus_per_host=4)
    ops = (Transfer("recv", 1 << 20), Compute(200_000), Transfer("send", 1 << 20))
    late = {rank: 1_000 + 2_000 * (rank % 4) for rank in range(8)}
    replay = replayed(simulated(program(*ops, slow=late, steps=1), layout))
    assert step(replay, "scale_out.oversubscription=x4") == replay.unchanged.step_ns
    assert step(replay, "scale_out.oversubscription=x8") > replay.unchanged.step_ns


def test_a_group_off_its_rails_shares_what_leads_off_them() -> None:
    """Rank 1 of node 0 sends to rank 0 of node 1: a rail of two nodes has 2/4 of an interface upward."""
    layout = Layout(pp=4, gpus_per_host=2)
    ops = (Transfer("recv", 1 << 20), Compute(200_000), Transfer("send", 1 << 20))
    replay = replayed(simulated(program(*ops, steps=3), layout))
    assert step(replay, "scale_out.rail_oversubscription=x2") == replay.unchanged.step_ns
    found = step(replay, "scale_out.rail_oversubscription=x4") - replay.unchanged.step_ns
    assert found == pytest.approx(MIB_NS, rel=0.35)


def test_the_step_is_that_simulated_again_where_all_groups_are_slowed_alike() -> None:
    """Four groups of one dimension, always at the same time, half of the uplink: links of half the rate."""
    layout = Layout(dp=4, tp=4, gpus_per_host=4)
    ops = program(
        *(Compute(150_000), Collective("all_gather", "dp", 1 << 20, "early"), Compute(60_000)),
        *(Collective("all_reduce", "tp", 1 << 18), Compute(40_000)),
        *(Collective("reduce_scatter", "dp", 1 << 20), Compute(30_000)),
    )
    before, after = Link(0, 100), Link(0, 200)
    truth = simulate(layout, ops, Network(before))
    own = {(kind, "dp"): after for kind in ("all_gather", "reduce_scatter")}
    other = simulate(layout, ops, Network(before, own))
    found = step(replayed(truth), "scale_out.oversubscription=x2")
    assert found == pytest.approx(_true_step(other), rel=1e-4)


def test_a_transfer_speeds_up_once_the_one_beside_it_has_ended() -> None:
    """Two groups' flows of 1 and 3 MiB begin together, half of the uplink: 2 t, then the rest at full rate.
    The short one has 1/2 of an interface for 2 MIB times; of the long one 2 are left then, at 1: 4 in all,
    where it took 3 alone."""
    layout = Layout(dp=2, tp=2, gpus_per_host=2)
    network = Network(Link(0, 100), {("all_reduce", (0, 2)): Link(0, 300)})
    replay = replayed(simulate(layout, reduced("tp", "dp"), network))
    found = step(replay, "scale_out.oversubscription=x2") - replay.unchanged.step_ns
    assert found == pytest.approx(100 * 1024, abs=20)


def test_more_oversubscription_shortens_no_step() -> None:
    replay = replayed(simulated(reduced("dp", "world", together=True), NODES))
    steps = [step(replay, f"scale_out.oversubscription=x{factor}") for factor in (1, 2, 4, 8, 16)]
    assert [replay.unchanged.step_ns, *steps] == sorted([replay.unchanged.step_ns, *steps])


@pytest.mark.parametrize("value", ["0", "0:1", "0:1.5", "x2", "-1:0.5"])
def test_links_fail_on_a_node_in_part(value: str) -> None:
    with pytest.raises(UsageError, match="is not NODE:SHARE"):
        parse_scenario([f"scale_out.failed_links={value}"])


MIB = 1 << 20


def test_a_fence_is_paid_for_each_message_to_another_node() -> None:
    """An all-to-all of four ranks on two nodes sends two messages off each node's rank: 2 x 7 µs."""
    ops = (Compute(200_000), Collective("all_to_all", "ep", MIB))
    replay = replayed(simulated(program(*ops), Layout(ep=4, gpus_per_host=2)))
    more = step(replay, "scale_out.fence=7us") - replay.unchanged.step_ns
    assert more == pytest.approx(14_000, abs=20)
    # a ring of four ranks has 2 x 3 steps
    ops = (Compute(200_000), Collective("all_reduce", "dp", MIB))
    ring = replayed(simulated(program(*ops), Layout(dp=4, gpus_per_host=2)))
    assert step(ring, "scale_out.fence=1us") - ring.unchanged.step_ns == pytest.approx(6_000, abs=20)
    near = replayed(simulated(program(*ops), Layout(dp=4)))
    assert "leaves a node" in str(near.predict(parse_scenario(["scale_out.fence=1us"])).idle)
