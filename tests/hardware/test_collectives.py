# SPDX-License-Identifier: Apache-2.0
"""Costs of collectives, worked out by hand on groups of two to sixteen ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cclbench.ground.schema import COLLECTIVE_KINDS
from cclbench.hardware.collectives import CollectiveCost as Cost
from cclbench.hardware.collectives import (
    Group,
    NoPrice,
    Prediction,
    algorithm_costs,
    parse_schedule,
    price_group,
)
from cclbench.hardware.collectives.cost import BEST, EXPECTED, WORST, Assumed, Pipeline
from cclbench.hardware.collectives.nccl import nccl_constants
from cclbench.hardware.collectives.price import setting_of
from cclbench.hardware.collectives.transport import LatencyRange
from cclbench.hardware.residuals import KeptShares, Residuals, ResidualSetting, replaced_residuals

# No launch, no factors: only what the formulas say.
PLAIN = Assumed(launch_s=0.0, latency=1.0, rate=1.0, edge=1)
GB = 1e9


def one_node(ranks: int, **changes: object) -> Group:
    """Accelerators with 100 GB/s each on a switch."""
    node = Group(
        ranks, 1, "ampere", "intel", peers="switch", up_bytes_per_s=100 * GB, pair_bytes_per_s=100 * GB
    )
    return replace(node, **changes)  # type: ignore[arg-type]


def nodes(count: int, per_node: int, **changes: object) -> Group:
    """Such nodes with 40 GB/s of interfaces each and 10 µs of transport."""
    given = {"nodes": count, "out_bytes_per_s": 40 * GB, "nic_bytes_per_s": 40 * GB / per_node}
    given["out_hop"] = LatencyRange(10e-6, 10e-6, 10e-6)
    return replace(one_node(count * per_node), **given | changes)  # type: ignore[arg-type]


def per_byte(seconds: float) -> object:
    """Equal to a share of itself: pytest's own least difference, 1e-12, is much of 1 / (100 GB/s)."""
    return pytest.approx(seconds, rel=1e-9, abs=0)


def cost(kind: str, group: Group, algorithm: str, protocol: str = "Simple", assumed: Assumed = PLAIN) -> Cost:
    costs = algorithm_costs(kind, group, assumed, algorithm=algorithm)
    (found,) = [each for each in costs if (each.algorithm, each.protocol) == (algorithm, protocol)]
    return found


@pytest.mark.parametrize(("ranks", "steps"), [(2, 2), (4, 6), (8, 14)])
def test_ring_all_reduce(ranks: int, steps: int) -> None:
    """2(n−1) steps of 3.4 µs after 8.4 µs; 2(n−1)/n of S at 96.5 GB/s."""
    ring = cost("all_reduce", one_node(ranks), "ring")
    assert ring.alpha_s == pytest.approx(8.4e-6 + steps * 3.4e-6)
    assert ring.beta_s_per_byte == per_byte(steps / ranks / 96.5e9)


def test_ring_and_tree_rates() -> None:
    """Three steps on four ranks, 3/4 of S: 18.6 µs and 1 GB in 7.772 ms."""
    ring = cost("all_gather", one_node(4), "ring")
    assert ring.alpha_s == pytest.approx(18.6e-6)
    assert ring.time_s(np.array([1e9]))[0] == pytest.approx(18.6e-6 + 0.75 / 96.5)
    # over the network 120/128 of 40 GB/s; in a node 7/9 of the tree's 92 GB/s. S passes twice
    across = cost("all_reduce", nodes(4, 2), "tree", "LL128")
    assert across.beta_s_per_byte == per_byte(2 / (40e9 * 120 / 128))
    inside = cost("all_reduce", one_node(4), "tree", "LL128")
    assert inside.beta_s_per_byte == per_byte(2 / (92e9 * 7 / 9))
    # moving 100 µs over hops of 25 µs: 2 √(100 · 25) µs more; never more than the largest chunks take
    pipeline = Pipeline(hops_s=25e-6, largest_s=300e-6)
    assert pipeline.fill_s(np.array([100e-6, 10.0])) == pytest.approx([100e-6, 300e-6])


def test_nvls_sends_once_and_an_eighth() -> None:
    """Eight Hopper GPUs: 9/8 of S at 85 % of the rate; nothing of it without such switches."""
    group = one_node(8, architecture="hopper", reduces=True)
    assert cost("all_reduce", group, "nvls").beta_s_per_byte == per_byte(9 / 8 / 85e9)
    assert "nvls" not in {each.algorithm for each in algorithm_costs("all_reduce", one_node(8), PLAIN)}
    assert "nvls" not in {each.algorithm for each in algorithm_costs("all_reduce", group, PLAIN, "2.10.3")}
    # two nodes with 40 GB/s against 85 of the switches: the network; with 400: the switches
    narrow = nodes(2, 8, architecture="hopper", reduces=True)
    assert cost("all_reduce", narrow, "nvls_tree").beta_s_per_byte == per_byte(1 / 40e9)
    wide = replace(narrow, out_bytes_per_s=400 * GB)
    assert cost("all_reduce", wide, "nvls_tree").beta_s_per_byte == per_byte(9 / 8 / 85e9)


def test_direct_and_halving_doubling() -> None:
    """Eight ranks: two exchanges of 7/8 of S; six of halving and doubling move 14/8 in all."""
    direct = cost("all_reduce", one_node(8), "direct")
    assert direct.alpha_s == pytest.approx(8.4e-6 + 2 * 3.4e-6)
    assert direct.beta_s_per_byte == per_byte(14 / 8 / 96.5e9)
    halving = cost("all_reduce", one_node(8), "halving_doubling")
    assert halving.alpha_s == pytest.approx(8.4e-6 + 6 * 3.4e-6)
    assert halving.beta_s_per_byte == per_byte(14 / 8 / 100e9)
    # of a mesh each exchange has one pair's links: 3/4 of S twice at 30 GB/s; alone on a node none
    mesh = one_node(4, peers="mesh", pair_bytes_per_s=30 * GB)
    assert cost("all_reduce", mesh, "halving_doubling").beta_s_per_byte == per_byte(1.5 / 30e9)
    assert cost("all_reduce", nodes(4, 1), "halving_doubling").beta_s_per_byte == per_byte(1.5 / 40e9)


def test_steps_of_whole_messages() -> None:
    """Four nodes of two: a step in the node and two between nodes move all of S, Bruck's three 7/8 of it."""
    for kind, name in (("all_reduce", "recursive_doubling"), ("broadcast", "binomial")):
        whole = cost(kind, FOUR_OF_TWO, name)
        assert whole.beta_s_per_byte == per_byte(1 / 100e9 + 2 / 20e9)
        assert [(step.count, step.what) for step in whole.steps[-2:]] == [
            (1, "steps in the node"),
            (2, "steps over the network"),
        ]
    assert cost("reduce", one_node(8), "binomial").alpha_s == pytest.approx(8.4e-6 + 3 * 3.4e-6)
    assert cost("all_gather", FOUR_OF_TWO, "bruck").beta_s_per_byte == per_byte(7 / 8 / 20e9)
    six = cost("all_gather", one_node(6), "bruck")
    assert (six.alpha_s, six.beta_s_per_byte) == (pytest.approx(8.4e-6 + 3 * 3.4e-6), per_byte(5 / 6 / 100e9))


@pytest.mark.parametrize(
    ("corner", "inside", "across"), [(BEST, 1.0, 1.0), (EXPECTED, 0.8, 0.9), (WORST, 0.7, 0.5)]
)
def test_pairs_reach_shares_of_their_links(corner: Assumed, inside: float, across: float) -> None:
    """100 GB/s inside and 40 across: at best all of them, at worst half of an interface (2 x 8 B200)."""
    assumed = replace(PLAIN, edge=corner.edge)
    for group, rate in ((one_node(2), 100e9 * inside), (nodes(2, 1), 40e9 * across)):
        found = algorithm_costs("send", group, assumed, algorithm="p2p")
        assert [one.beta_s_per_byte for one in found if one.protocol == "Simple"] == [per_byte(1 / rate)]


def test_torus_with_and_without_wrap_around() -> None:
    """4 x 4 chips, 50 GB/s a link: 4 hops and all 200 GB/s where axes close, 6 and half where not."""
    torus = one_node(16, peers="torus", up_bytes_per_s=200 * GB, dims=(4, 4), rings=(True, True))
    ring = cost("all_gather", torus, "torus_bucket", "ici")
    assert ring.alpha_s == pytest.approx(4e-6)
    assert ring.beta_s_per_byte == per_byte(15 / 16 / 200e9)
    line = cost("all_gather", replace(torus, rings=(False, False)), "torus_bucket", "ici")
    assert line.alpha_s == pytest.approx(6e-6)
    assert line.beta_s_per_byte == per_byte(15 / 16 / 100e9)
    assert cost("all_reduce", torus, "torus_bucket", "ici").beta_s_per_byte == per_byte(15 / 8 / 200e9)
    # 3 µs a hop in place of one, half of it in a scenario, twice by what is assumed
    torus = one_node(8, peers="torus", up_bytes_per_s=200 * GB, dims=(2, 4), rings=(False, True))
    found = {
        kind: algorithm_costs(kind, replace(torus, up_hop_s=3e-6, up_latency=0.5), SLOW)
        for kind in ("all_reduce", "all_to_all", "send")
    }
    terms = {
        kind: [(step.count, step.each_s, step.what) for step in own.steps] for kind, (own,) in found.items()
    }
    each = pytest.approx(3e-6)
    assert terms == {
        "all_reduce": [LAUNCH, (2 * (1 + 2), each, "hops along the axes")],
        "all_to_all": [LAUNCH, (1 + 2, each, "hops along the axes")],
        "send": [LAUNCH, (1, each, "hop to a neighbour")],
    }
    rates = {
        kind: (own.traffic.share, own.traffic.bytes_per_s, own.traffic.what) for kind, (own,) in found.items()
    }
    # along each axis 100 GB/s, of which the open one has half; 4/4 of S past two links of the ring of four
    assert rates == {
        "all_reduce": (14 / 8, pytest.approx(75e9), "links of a chip"),
        "all_to_all": (4 / 4 / 2, pytest.approx(25e9), "cut through the longest axis"),
        "send": (1.0, pytest.approx(25e9), "link to a neighbour"),
    }
    line = replace(torus, rings=(False, False))
    assert cost("all_to_all", line, "torus_all_to_all", "ici").traffic.share == 1.0
    assert cost("all_to_all", torus, "torus_all_to_all", "ici").steps[1].each_s == pytest.approx(1e-6)
    assert algorithm_costs("all_gather", replace(torus, nodes=2), PLAIN) == []
    assert algorithm_costs("broadcast", torus, PLAIN) == []


@pytest.mark.parametrize("kind", COLLECTIVE_KINDS)
@pytest.mark.parametrize(
    "group",
    [
        one_node(8),
        one_node(8, architecture="hopper", reduces=True),
        nodes(4, 8, architecture="hopper", reduces=True),
        nodes(8, 1),
        one_node(16, peers="torus", dims=(4, 4), rings=(True, True)),
    ],
    ids=["switch", "nvls", "nodes", "one-a-node", "torus"],
)
def test_bandwidth_cost_is_positive_and_bands_hold_the_middle(kind: str, group: Group) -> None:
    """Everything that has a price has a finite one, between its own edges."""
    found = price_group(kind, 2.0 ** np.arange(0, 40), group)
    if isinstance(found, NoPrice):
        assert kind in ("barrier", "gather", "scatter", "broadcast", "reduce")
        return
    assert (found.time_s > 0).all()
    assert np.isfinite(found.high_s).all()
    assert (found.low_s <= found.time_s).all()
    assert (found.time_s <= found.high_s).all()


def test_the_fastest_wins_and_is_named() -> None:
    """Small: a low-latency protocol; large: a ring in Simple; each figure is its winner's own."""
    sizes = np.array([8.0, 8e9])
    found = price_group("all_reduce", sizes, one_node(8))
    assert found.protocol == ("LL", "Simple")
    assert found.algorithm[1] == "ring"
    every = [each.time_s(sizes) for each in algorithm_costs("all_reduce", one_node(8), EXPECTED)]
    assert found.formula_s.tolist() == np.min(every, axis=0).tolist()
    assert found.algbw[1] == pytest.approx(8e9 / found.time_s[1])
    assert found.busbw[1] == pytest.approx(1.75 * found.algbw[1])
    # asked for tree in LL128, that is the price; asked for what does not apply, there is none
    sizes = np.array([1e6])
    found = price_group("all_reduce", sizes, one_node(8), algorithm="tree", protocol="LL128")
    assert (found.algorithm, found.protocol) == (("tree",), ("LL128",))
    refused = price_group("all_gather", sizes, one_node(8), algorithm="tree")
    assert isinstance(refused, NoPrice)
    assert "tree" in refused.reason
    # ring and torus are monotone in S; four times the size never takes less, whoever wins
    sizes = 2.0 ** np.arange(3, 38)
    assert (np.diff(price_group("all_gather", sizes, nodes(4, 8)).time_s) >= 0).all()
    best = price_group("all_reduce", sizes, nodes(4, 8, architecture="hopper", reduces=True))
    assert (best.time_s[2:] >= best.time_s[:-2]).all()


@pytest.mark.parametrize(
    ("version", "since"),
    [
        *((None, (2, 29)), ("2.30.1", (2, 29)), ("main", (2, 29)), ("v2.27.3", (2, 23))),
        *(("2.22.3", (2, 21)), ("2.21.5+cuda12.4", (2, 21)), ("2.20.5", (2, 19))),
        *(("2.18.1", (2, 18)), ("2.10.3", (0, 0))),
    ],
)
def test_constants_by_version(version: str | None, since: tuple[int, int]) -> None:
    """The newest table that is not newer than the release; the newest of all without one."""
    assert nccl_constants(version).since == since


def test_nodes_without_nvlink_take_pcies_steps() -> None:
    """Two ranks over PCIe: 8.4 + 2 × 5.7 µs in Simple; no LL128 there."""
    group = one_node(2, peers="pcie-tree")
    assert cost("all_reduce", group, "ring").alpha_s == pytest.approx(8.4e-6 + 2 * 5.7e-6)
    assert {each.protocol for each in algorithm_costs("all_reduce", group, PLAIN)} == {"LL", "Simple"}
    # four of 90 GB/s in a mesh: three rings of 30 inside, four across, where the network has 200
    mesh = {"peers": "mesh", "up_bytes_per_s": 90 * GB, "pair_bytes_per_s": 30 * GB}
    inside = cost("all_gather", one_node(4, **mesh), "ring")
    across = cost("all_gather", nodes(2, 4, **mesh, out_bytes_per_s=200 * GB), "ring")
    assert inside.traffic.bytes_per_s == pytest.approx(90e9 * 0.965)
    assert across.traffic.bytes_per_s == pytest.approx(120e9 * 0.965)
    # two nodes of one, all-gather in LL: 6.6 + 5 + 10 µs; with two ranks a node a ring's hop is 2.7
    assert cost("all_gather", nodes(2, 1), "ring", "LL").alpha_s == pytest.approx(21.6e-6)
    two = cost("all_gather", nodes(2, 2), "ring", "LL").alpha_s
    assert two == pytest.approx((6.6 + 2 * 1.0 + 2.7 + 10) * 1e-6)


def test_rccl_has_latencies_of_its_own() -> None:
    """A call 12 µs, a step in the node 0.8; exchanges of MSCCL's kind on its mesh; no LL128 ring across."""
    amd = {"architecture": "amd", "peers": "mesh", "pair_bytes_per_s": 100 * GB / 7}
    ring = cost("all_reduce", one_node(8, **amd), "ring", "LL")
    assert ring.alpha_s == pytest.approx((12 + 14 * 0.8) * 1e-6)
    assert "direct" in {each.algorithm for each in algorithm_costs("all_reduce", one_node(8, **amd), PLAIN)}
    assert "direct" not in {each.algorithm for each in algorithm_costs("all_reduce", one_node(8), PLAIN)}
    of_two = price_group("all_gather", np.array([2.0**28]), one_node(2, **amd))
    assert of_two.algorithm == ("ring",)  # which is as fast there
    across = algorithm_costs("all_reduce", nodes(2, 8, **amd), PLAIN)
    assert ("ring", "LL128") not in {(each.algorithm, each.protocol) for each in across}
    # 2 µs a message in LL, 6 in Simple, both more than a step in the node; nothing of it in one node
    amd = nodes(2, 2, host_cpu="amd")
    for protocol, late in (("LL", 2e-6), ("LL128", 2e-6), ("Simple", 6e-6)):
        assert cost("all_gather", amd, "ring", protocol).steps[2].each_s == pytest.approx(late)
    within = cost("all_gather", one_node(4, host_cpu="amd"), "ring", "LL")
    assert within.steps[2].each_s == pytest.approx(0.6e-6)
    assert cost("all_gather", nodes(2, 2), "ring").steps[2].each_s == pytest.approx(3.4e-6)


def test_one_process_may_launch_for_a_whole_host() -> None:
    """Eight calls of 6 µs one after another are at the slow edge: 30 µs more than the 18 of one a process."""
    few, many = (price_group("all_reduce", np.array([8.0]), one_node(8, hosted=n)) for n in (1, 8))
    assert many.slowest_s[0] - few.slowest_s[0] == pytest.approx(30e-6)
    assert many.time_s[0] == few.time_s[0]
    # 18 µs of one process, or 6 for each accelerator of its host, be they three or four
    found = [
        price_group("all_gather", np.array([0.0]), one_node(8, hosted=n), algorithm="ring", protocol="LL")
        for n in (1, 3, 4)
    ]
    slow = [each.slowest_s[0] for each in found if isinstance(each, Prediction)]
    assert slow == pytest.approx([18e-6 + 9.9e-6 + 7 * 0.9e-6] * 2 + [24e-6 + 9.9e-6 + 7 * 0.9e-6])


SLOW = Assumed(launch_s=6e-6, latency=2.0, rate=0.5, edge=1)
"""Twice the latencies, half the rates."""
EAGER = {"eager_bytes": 2048.0, "rendezvous": LatencyRange(1e-6, 20e-6, 40e-6)}
FOUR_OF_TWO = nodes(4, 2, **EAGER)
EIGHT_OF_ONE = nodes(8, 1, **EAGER)
SWITCHES = {"architecture": "hopper", "reduces": True}
LATE = "rendezvous over the network"
RING_ACROSS = "narrowest place of the ring"


def us(*steps: tuple[float, float, str]) -> tuple[tuple[float, object, str], ...]:
    """Steps whose times are µs."""
    return tuple((count, pytest.approx(each * 1e-6), what) for count, each, what in steps)


LAUNCH = (1, pytest.approx(6e-6), "launch")


@pytest.mark.parametrize(
    ("name", "group", "steps", "traffic", "late", "eager"),
    [
        (
            *("all_reduce ring Simple", FOUR_OF_TWO),
            # a plateau of 1.4 for all steps; 14 steps, six of them over the network
            us(
                (1, 8.4 * 2 * 1.4, "base"),
                (8, 3.4 * 2 * 1.4, "steps in the node"),
                (6, (14 * 2 + 2 * 10) * 1.4, "steps over the network"),
            ),
            *((14 / 8, 20e9, RING_ACROSS), us((6, 2 * 20, LATE)), 8 * 2048),
        ),
        (
            *("all_reduce ring LL", FOUR_OF_TWO),
            # the proxy's 1 µs is more than the 0.6 of a step in the node
            us(
                (1, 13.2, "base"),
                (8, 2 * 1.0, "steps in the node"),
                (6, 2.7 * 2 + 10, "steps over the network"),
            ),
            *((14 / 8, 10e9, RING_ACROSS), us((6, 20, LATE)), 8 * 1024),
        ),
        (*("reduce_scatter ring LL128", FOUR_OF_TWO),
         us((1, 28, "base"), (4, 2 * 1.9, "steps in the node"), (3, 4 * 2 + 10, "steps over the network")),
         *((7 / 8, 0.92 * 20e9, RING_ACROSS), us((3, 20, LATE)), 8 * 2048)),
        (*("broadcast ring Simple", FOUR_OF_TWO),
         us((1, 16.8, "base"), (4, 6.8, "steps in the node"), (3, 48, "steps over the network")),
         *((1, 20e9, RING_ACROSS), us((3, 40, LATE)), 8 * 2048)),
        (*("all_reduce tree Simple", FOUR_OF_TWO),
         us((1, 16.8, "base"), (2, 8, "steps in the node"), (4, 48, "steps over the network")),
         *((2, 20e9, "narrowest place of the tree"), us((4, 40, LATE)), 2 * 2048)),
        (*("all_reduce tree LL", FOUR_OF_TWO),
         us((1, 13.6, "base"), (2, 1.2, "steps in the node"), (4, 20, "steps over the network")),
         *((2, 20e9 / 3.8, "narrowest place of the tree"), us((4, 20, LATE)), 2048)),
        (
            *("all_reduce hierarchical Simple", FOUR_OF_TWO),
            us((1, 16.8, "base"), (2, 6.8, "steps in the node"), (6, 48, "steps over the network")),
            *(
                (1.75, 1.75 / (1 / 100e9 + 0.75 / 20e9) / 2, "both tiers, one after the other"),
                us((6, 40, LATE)),
                0,
            ),
        ),
        (
            *("all_reduce halving_doubling Simple", FOUR_OF_TWO),
            us((1, 16.8, "base"), (2, 6.8, "exchanges in the node"), (4, 48, "exchanges over the network")),
            *(
                (1.75, 1.75 / (1.5 / 20e9 + 0.25 / 100e9) / 2, "both tiers, one after the other"),
                us((4, 40, LATE)),
                0,
            ),
        ),
        (*("all_to_all p2p LL", FOUR_OF_TWO),
         us((1, 13.2, "base"), (1, 15.4, "step over the network"), (6, 0.8, "further peers")),
         *((6 / 8, 0.9 * 20e9 / 2 / 2, "interface of a rank"), us((1, 20, LATE)), 8 * 2048)),
        (*("send p2p Simple", FOUR_OF_TWO),
         us((1, 16.8, "base"), (1, 48, "step over the network"), (0, 0.8, "further peers")),
         *((1, 0.9 * 20e9 / 2, "interface of a rank"), us((1, 40, LATE)), 2048)),
        (*("gather p2p Simple", FOUR_OF_TWO),
         us((1, 16.8, "base"), (1, 48, "step over the network"), (6, 0.8, "further peers")),
         *((6 / 8, 0.9 * 20e9 / 2, "interface of the root"), us((1, 40, LATE)), 8 * 2048)),
        (*("scatter p2p Simple", one_node(4)),
         us((1, 16.8, "base"), (1, 6.8, "step in the node"), (2, 0.8, "further peers")),
         *((3 / 4, 0.8 * 100e9 / 2, "links of the root"), (), 0)),
        (*("all_to_all p2p Simple", one_node(4)),
         us((1, 16.8, "base"), (1, 6.8, "step in the node"), (2, 0.8, "further peers")),
         *((3 / 4, 0.8 * 100e9 / 2, "links of an accelerator"), (), 0)),
        (*("recv p2p Simple", one_node(4, pair_bytes_per_s=30e9)),
         us((1, 16.8, "base"), (1, 6.8, "step in the node"), (0, 0.8, "further peers")),
         *((1, 0.8 * 30e9 / 2, "links of a pair"), (), 0)),
        (*("reduce_scatter pat Simple", EIGHT_OF_ONE),
         us((1, 16, "base"), (3 / 3.5, 48, "aggregated steps over the network"), (8, 5.6, "linear part")),
         *((1, 40e9 * 0.75 / 2, "interfaces of a rank"), us((3 / 3.5, 40, LATE)), 0)),
        (*("all_reduce nvls Simple", one_node(8, **SWITCHES, up_latency=0.5)),
         us((1, 25 * 0.5 * 2, "the node's switches")), *((9 / 8, 85e9 / 2, "links to the switches"), (), 0)),
        (*("all_gather nvls Simple", one_node(8, **SWITCHES)), us((1, 50, "the node's switches")),
         *((1, 85e9 / 2, "links to the switches"), (), 0)),
        (*("all_reduce nvls_tree Simple", replace(FOUR_OF_TWO, **SWITCHES)),
         us((1, 50, "the node's switches"), (4, 61.8, "steps over the network")),
         *((1, 40e9 / 2 / 2, "interfaces of a node"), us((4, 40, LATE)), 2 * 2048)),
        (*("reduce_scatter direct LL", one_node(8, up_latency=0.5)),
         us((1, 13.2, "base"), (1, 0.6, "exchanges in the node")),
         *((7 / 8, 96.5e9 / 2 / 2, "links of an accelerator"), (), 0)),
    ],
)  # fmt: skip
def test_terms_of_a_cost(name: str, group: Group, steps: Any, traffic: Any, late: Any, eager: float) -> None:
    """Steps after the launch, µs each; the share of S and its narrowest rate; what late messages add."""
    kind, algorithm, protocol = name.split()
    found = cost(kind, group, algorithm, protocol, SLOW)
    assert [(step.count, step.each_s, step.what) for step in found.steps] == [LAUNCH, *steps]
    assert (found.traffic.share, found.traffic.what) == (traffic[0], traffic[2])
    assert found.traffic.bytes_per_s == pytest.approx(traffic[1])
    rendezvous = () if found.rendezvous is None else (found.rendezvous,)
    assert tuple((step.count, step.each_s, step.what) for step in rendezvous) == late
    assert found.eager_bytes == eager


@pytest.mark.parametrize(
    ("group", "name", "hops_s", "largest_s"),
    [
        (FOUR_OF_TWO, "tree", 2 * 8e-6 + 4 * 48e-6, 2**23 * (2 / 50e9 + 4 / 20e9)),
        (one_node(8), "tree", 14 * 8e-6, 2**23 * 14 / 50e9),
        (EIGHT_OF_ONE, "tree", 6 * 48e-6, 2**23 * 6 / 20e9),
        (one_node(8, **SWITCHES), "nvls", 50e-6, 2**23 * 2 / 42.5e9),
        (replace(FOUR_OF_TWO, **SWITCHES), "nvls_tree", 50e-6 + 4 * 61.8e-6, 2**23 * (2 / 42.5e9 + 4 / 20e9)),
    ],
)
def test_what_fills_the_pipeline(group: Group, name: str, hops_s: float, largest_s: float) -> None:
    """All hops, and all of them by chunks of 8 MiB, at half of the rates."""
    found = cost("all_reduce", group, name, assumed=SLOW)
    assert found.pipeline == Pipeline(pytest.approx(hops_s), pytest.approx(largest_s))


def test_the_root_of_two_nodes_trees_sends_once() -> None:
    """On two nodes all of the network's 40 GB/s go up as down: S twice through 80, less than 92 inside."""
    assert cost("all_reduce", nodes(2, 2), "tree").traffic.bytes_per_s == pytest.approx(80e9)
    assert cost("all_reduce", nodes(2, 1), "tree").traffic.bytes_per_s == pytest.approx(80e9)
    assert cost("all_reduce", nodes(3, 1), "tree").traffic.bytes_per_s == pytest.approx(40e9)
    fast = nodes(3, 2, out_bytes_per_s=100 * GB)
    assert cost("all_reduce", fast, "tree").traffic.bytes_per_s == pytest.approx(92e9)
    assert cost("all_reduce", nodes(3, 1), "tree", "LL").steps[3].count == 2 * 2
    narrow = nodes(2, 8, architecture="blackwell", reduces=True)
    assert cost("all_reduce", narrow, "nvls_tree").traffic.bytes_per_s == pytest.approx(40e9)
    switched = one_node(8, architecture="blackwell", reduces=True)
    assert cost("all_reduce", switched, "nvls").traffic.bytes_per_s == pytest.approx(74e9)
    # two nodes of two: 1/4 of S through 2 GB/s at 0.8, against 2/4 through 20 GB/s at 0.9
    found = cost("all_to_all", nodes(2, 2, up_bytes_per_s=2 * GB), "p2p")
    assert (found.traffic.share, found.traffic.what) == (1 / 4, "links of an accelerator")
    alone = cost("all_to_all", nodes(4, 1), "p2p")
    assert (alone.traffic.share, alone.traffic.what) == (3 / 4, "interface of a rank")
    # pairs go without LL where the network does
    found = algorithm_costs("send", nodes(2, 1, protocols=("Simple",)), PLAIN)
    assert [each.protocol for each in found] == ["Simple"]
    # A message of the limit is eager still
    group = nodes(2, 1, out_hop=LatencyRange(), eager_bytes=2048.0, rendezvous=LatencyRange(0.0, 20e-6, 0.0))
    send = cost("send", group, "p2p")
    plain = cost("send", replace(group, eager_bytes=None), "p2p")
    sizes = np.array([0.0, 2048.0, 2049.0])
    assert send.time_s(sizes) - plain.time_s(sizes) == pytest.approx([0.0, 0.0, 40e-6])
    assert plain.rendezvous is None


@pytest.mark.parametrize(
    ("group", "rate"),
    [
        (one_node(4, up_bytes_per_s=1000 * GB), 87.7),  # ampere's
        (one_node(4, up_bytes_per_s=1000 * GB, architecture="hopper"), 141),
        (one_node(4, up_bytes_per_s=1000 * GB, architecture="amd"), 87.7),
        (nodes(2, 4, out_bytes_per_s=400 * GB, up_bytes_per_s=1000 * GB), 39),
        (nodes(3, 4, out_bytes_per_s=400 * GB, up_bytes_per_s=1000 * GB), 20.4),
        (nodes(2, 4, out_bytes_per_s=400 * GB, up_bytes_per_s=1000 * GB, host_cpu="amd"), 22.5),
        (nodes(9, 4, out_bytes_per_s=400 * GB, up_bytes_per_s=1000 * GB, host_cpu="amd"), 19),
    ],
)
def test_ll_moves_so_much_at_most(group: Group, rate: float) -> None:
    """By generation in a node, by the hosts' CPU across nodes."""
    assert cost("all_gather", group, "ring", "LL").traffic.bytes_per_s == pytest.approx(rate * 1e9)
    if group.architecture == "ampere":
        assert nccl_constants(None).ll_bytes_per_s(group) == pytest.approx(rate * 1e9)


DOES = """
hierarchical       all_reduce 4x2 | all_reduce 4x1, all_reduce 4, broadcast 4x2
halving_doubling   all_gather 8 | all_gather 6, broadcast 8
recursive_doubling all_reduce 4x2 | all_reduce 3x2, broadcast 4x2
binomial           reduce 3x2 | reduce 4x3, all_reduce 4x2
bruck              all_gather 3x3 | all_reduce 4x2
direct             all_gather 8, all_gather 8 mesh | all_gather 8 pcie-tree, all_gather 2x4, broadcast 8
pat                all_gather 8x1 | all_reduce 8x1, broadcast 8x1, all_gather 4x2
tree               | all_gather 8
nvls               all_gather 2 switches | broadcast 2 switches, all_reduce 2 reduces, all_reduce 2x2 switches
nvls_tree all_reduce 2x2 switches | all_gather 2x2 switches, all_reduce 2x1 switches, all_reduce 2 switches
ring               reduce 2 | gather 2
p2p                | all_reduce 2
"""
"""By algorithm the collectives that it does, and those that it does not: kind, accelerators, or nodes x
accelerators, and what is special of them."""
SPECIAL: dict[str, dict[str, object]] = {"switches": SWITCHES, "reduces": {"reduces": True}}
SPECIAL |= {name: {"peers": name} for name in ("mesh", "pcie-tree")}


@pytest.mark.parametrize("line", DOES.strip().splitlines(), ids=lambda line: line.partition(" ")[0])
def test_what_an_algorithm_does(line: str) -> None:
    name, _, rest = line.partition(" ")
    for calls, there in zip(rest.split("|"), (True, False), strict=True):
        for kind, size, *special in filter(None, (call.split() for call in calls.split(","))):
            count, _, each = size.partition("x")
            group = nodes(int(count), int(each)) if each else one_node(int(count))
            group = replace(group, **{key: value for of in special for key, value in SPECIAL[of].items()})
            found = {each.algorithm for each in algorithm_costs(kind, group, PLAIN, algorithm=name)}
            assert (name in found) is there, (kind, group)


@pytest.mark.parametrize(("version", "there"), [("2.22.3", False), ("2.23.4", True), (None, True)])
def test_trees_are_aggregated_since_2_23(version: str | None, there: bool) -> None:
    found = {each.algorithm for each in algorithm_costs("all_gather", nodes(8, 1), PLAIN, version)}
    assert ("pat" in found) is there


@pytest.mark.parametrize(("version", "there"), [("2.27.7", False), ("2.28", True), ("2.29.1", True)])
def test_the_release_that_counts_a_grace_cpu_s_link(version: str, there: bool) -> None:
    """Its interfaces are not next to the GPU: LL128 over the network is off before, in a node never."""
    for group, used in (
        (nodes(2, 4, architecture="hopper", host_cpu="arm"), there),
        (one_node(4, host_cpu="arm"), True),
    ):
        found = {each.protocol for each in algorithm_costs("all_gather", group, PLAIN, version)}
        assert ("LL128" in found) is used


def test_edges_of_a_price() -> None:
    """Launch, s; factors of latencies and rates; which edge of the network's range."""
    assert (EXPECTED.launch_s, EXPECTED.latency, EXPECTED.rate, EXPECTED.edge) == (6e-6, 1.0, 1.0, 1)
    assert (BEST.launch_s, BEST.latency, BEST.rate, BEST.edge) == (0.0, 0.75, 1.07, 0)
    assert (WORST.launch_s, WORST.latency, WORST.rate, WORST.edge) == (18e-6, 1.5, 0.75, 2)
    # of 1 TB to a peer at 100 GB/s: 0.8 of it in Simple, half of that in LL, from 1.07 to 0.7 × 0.75 of it.
    # At the slow edge is the runner-up, where it is slower than the fastest at its worst
    size = np.array([1e12])
    both = price_group("send", size, one_node(2))
    alone = price_group("send", size, one_node(2), protocol="Simple")
    for found, slowest in ((both, 1 / 0.04), (alone, 1 / 0.07 / 0.75)):
        assert found.formula_s[0] == pytest.approx(1 / 0.08, rel=1e-4)
        assert found.fastest_s[0] == pytest.approx(1 / 0.107, rel=1e-4)
        assert found.slowest_s[0] == pytest.approx(slowest, rel=1e-4)
        assert found.busbw[0] == found.algbw[0] == pytest.approx(1e12 / found.time_s[0])


def test_a_price_s_words() -> None:
    """What does not apply is said by its names, or that nothing does; what nobody swept, once."""
    one = np.array([1e6])
    asked = price_group("broadcast", one, nodes(2, 4), algorithm="tree", protocol="LL")
    assert asked == NoPrice("broadcast of 8 ranks on 2 node(s): tree LL does not apply")
    torus = one_node(16, peers="torus", dims=(4, 4), rings=(True, True), architecture="tpu")
    nothing = price_group("broadcast", one, torus)
    assert nothing == NoPrice("broadcast of 16 ranks on 1 node(s): no known algorithm applies")
    tpu = price_group("all_gather", one, replace(torus, assumptions=("x is taken",)))
    assert (tpu.basis, tpu.setting.swept) == ("spec", False)
    unswept = "no sweep of such a machine is published: the band is that of other machines"
    assert tpu.reason == f"x is taken; {unswept}"
    assert tpu.time_s.tolist() == tpu.formula_s.tolist()
    # A barrier is an all-reduce; of trainium and tpu nothing is published
    group = nodes(2, 4, machine="here", network="ib-verbs")
    barrier = ResidualSetting("here", True, "ib-verbs", "all_reduce", 8, architecture="ampere")
    assert setting_of("barrier", group) == barrier
    send = ResidualSetting("", False, "", "send", 4, architecture="ampere")
    assert setting_of("send", one_node(4)) == send
    assert not setting_of("send", one_node(4, architecture="trainium")).swept
    # garbage takes the newest release's figures and says so; a version with more behind it is one
    odd, known = (
        price_group("all_reduce", np.array([8.0]), one_node(8), library_version=version)
        for version in ("newest\n", "2.21.5+cuda12.4")
    )
    assert odd.reason == "'newest\\n' is not an NCCL version: the newest release's figures are used"
    assert known.reason is None


def test_a_choice_of_libraries_is_corrected_and_what_is_asked_for_is_not() -> None:
    """Of an algorithm, a protocol or a schedule that is asked for the formula alone is known."""
    group, size = nodes(2, 4, network="ib-verbs"), np.array([2.0**20])
    all_gather = {"kind": "all_gather", "ranks": 8, "steps": [[[0, 1, 1]]]}
    with replaced_residuals(
        Residuals({"all_gather": (0.5, 0.5, 0.5)}, (0.1,) * 3, (0.2,) * 3, KeptShares((), 0.0, 0.0))
    ):
        chosen = price_group("all_gather", size, group)
        asked = [
            price_group("all_gather", size, group, algorithm="ring"),
            price_group("all_gather", size, group, protocol="Simple"),
            price_group("all_gather", size, group, plan=parse_schedule(all_gather, where="x")),
        ]
    assert chosen.time_s == pytest.approx(chosen.formula_s * np.exp(0.5))
    for found in asked:
        assert found.time_s == pytest.approx(found.formula_s)
        assert found.low_s == pytest.approx(found.formula_s * np.exp(-0.1))
        assert found.high_s == pytest.approx(found.formula_s * np.exp(0.2))
