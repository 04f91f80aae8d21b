# SPDX-License-Identifier: Apache-2.0
"""Costs of collectives, worked out by hand on groups of two to sixteen ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cclbench.hardware.collectives import Cost, Group, Prediction, Refusal, costs, price_group
from cclbench.hardware.collectives.algorithm import Call
from cclbench.hardware.collectives.cost import BEST, EXPECTED, WORST, Assumed, Pipeline
from cclbench.hardware.collectives.nccl import constants
from cclbench.hardware.collectives.stragglar import stragglar
from cclbench.hardware.collectives.transport import PROTOCOLS, Range
from cclbench.schema import COLLECTIVE_KINDS

# No launch, no factors: only what the formulas say.
PLAIN = Assumed(launch_s=0.0, latency=1.0, rate=1.0, edge=1)
GB = 1e9


def one_node(ranks: int, **changes: object) -> Group:
    """Accelerators with 100 GB/s each on a switch."""
    node = Group(
        ranks,
        1,
        "ampere",
        "intel",
        peers="switch",
        up_bytes_per_s=100 * GB,
        pair_bytes_per_s=100 * GB,
    )
    return replace(node, **changes)  # type: ignore[arg-type]


def nodes(count: int, per_node: int, **changes: object) -> Group:
    """Such nodes with 40 GB/s of interfaces each and 10 µs of transport."""
    group = replace(
        one_node(count * per_node),
        nodes=count,
        out_bytes_per_s=40 * GB,
        nic_bytes_per_s=40 * GB / per_node,
        out_hop=Range(10e-6, 10e-6, 10e-6),
    )
    return replace(group, **changes)  # type: ignore[arg-type]


def per_byte(seconds: float) -> object:
    """Equal to a share of itself: pytest's own least difference, 1e-12, is much of 1 / (100 GB/s)."""
    return pytest.approx(seconds, rel=1e-9, abs=0)


def cost(kind: str, group: Group, algorithm: str, protocol: str = "Simple") -> Cost:
    """The one cost of that algorithm and protocol."""
    (found,) = [
        each
        for each in costs(kind, group, PLAIN, algorithm=algorithm)
        if (each.algorithm, each.protocol) == (algorithm, protocol)
    ]
    return found


@pytest.mark.parametrize(("ranks", "steps"), [(2, 2), (4, 6), (8, 14)])
def test_ring_all_reduce(ranks: int, steps: int) -> None:
    """2(n−1) steps of 3.4 µs after 8.4 µs; 2(n−1)/n of S at 96.5 GB/s."""
    ring = cost("all_reduce", one_node(ranks), "ring")
    assert ring.alpha_s == pytest.approx(8.4e-6 + steps * 3.4e-6)
    assert ring.beta_s_per_byte == per_byte(steps / ranks / 96.5e9)


def test_ring_all_gather_is_half_an_all_reduce() -> None:
    """Three steps on four ranks, 3/4 of S: 18.6 µs and 1 GB in 7.772 ms."""
    ring = cost("all_gather", one_node(4), "ring")
    assert ring.alpha_s == pytest.approx(18.6e-6)
    assert ring.time_s(np.array([1e9]))[0] == pytest.approx(18.6e-6 + 0.75 / 96.5)


def test_ring_over_nodes() -> None:
    """Two nodes of four: 14 steps, two over the network at 14 + 2 × 10 µs; Simple's plateau is × 1.4."""
    ring = cost("all_reduce", nodes(2, 4), "ring")
    assert ring.alpha_s == pytest.approx(1.4 * (8.4e-6 + 12 * 3.4e-6 + 2 * 34e-6))
    assert ring.beta_s_per_byte == per_byte(14 / 8 / 40e9)


def test_ll_rings_are_capped() -> None:
    """Half of 96.5 GB/s in a node; on four nodes of Intel hosts 20.4 GB/s at most, here half of 40 GB/s."""
    assert cost("all_reduce", one_node(4), "ring", "LL").beta_s_per_byte == per_byte(1.5 / 48.25e9)
    wide = nodes(4, 4, out_bytes_per_s=80 * GB)
    assert cost("all_reduce", wide, "ring", "LL").beta_s_per_byte == per_byte(30 / 16 / 20.4e9)


def test_tree_all_reduce() -> None:
    """Four nodes of two: 6.8 + 2 (1 × 0.6 + 2 × (5 + 10)) µs in LL; S twice through 40 GB/s in Simple."""
    assert cost("all_reduce", nodes(4, 2), "tree", "LL").alpha_s == pytest.approx(68e-6)
    simple = cost("all_reduce", nodes(4, 2), "tree")
    assert simple.alpha_s == pytest.approx(8.4e-6 + 2 * (4e-6 + 2 * 34e-6))
    assert simple.beta_s_per_byte == per_byte(2 / 40e9)


def test_ll128_trees_carry_120_of_128_bytes() -> None:
    """Over the network 120/128 of 40 GB/s; in a node 7/9 of the tree's 92 GB/s.  S passes twice."""
    across = cost("all_reduce", nodes(4, 2), "tree", "LL128")
    assert across.beta_s_per_byte == per_byte(2 / (40e9 * 120 / 128))
    inside = cost("all_reduce", one_node(4), "tree", "LL128")
    assert inside.beta_s_per_byte == per_byte(2 / (92e9 * 7 / 9))


def test_a_pipeline_is_filled() -> None:
    """Moving 100 µs over hops of 25 µs: 2 √(100 · 25) µs more; never more than the largest chunks take."""
    pipeline = Pipeline(hops_s=25e-6, largest_s=300e-6)
    assert pipeline.fill_s(np.array([100e-6, 10.0])) == pytest.approx([100e-6, 300e-6])


def test_trees_fill_a_pipeline() -> None:
    """Four nodes of two in Simple: hops of 2 (4 + 2 × 34) µs; 16 chunks of 512 KiB at 100 and 40 GB/s."""
    simple = cost("all_reduce", nodes(4, 2), "tree")
    assert simple.pipeline is not None
    assert simple.pipeline.hops_s == pytest.approx(2 * (4e-6 + 2 * 34e-6))
    assert simple.pipeline.largest_s == pytest.approx(2**23 * (2 / 100e9 + 4 / 40e9))
    moving = 2**20 * 2 / 40e9
    fill = 2 * (moving * 144e-6) ** 0.5
    assert simple.time_s(np.array([2.0**20]))[0] == pytest.approx(simple.alpha_s + moving + fill)


def test_tree_on_two_nodes_uses_the_network_both_ways() -> None:
    """S once through 40 GB/s: each node is root of one tree and leaf of the other."""
    assert cost("all_reduce", nodes(2, 2), "tree").beta_s_per_byte == per_byte(1 / 40e9)


def test_eager_messages_and_rendezvous() -> None:
    """LL trees send S a message on the wire: 2 KiB still is eager, 4 KiB pays 2 × 20 µs more on two nodes."""
    group = nodes(2, 1, out_hop=Range(), eager_bytes=2048.0, rendezvous=Range(0.0, 20e-6, 0.0))
    tree = cost("all_reduce", group, "tree", "LL")
    small, large = tree.time_s(np.array([2048.0, 4096.0]))
    moving = np.array([2048.0, 4096.0]) * tree.beta_s_per_byte
    filled = moving + 2 * np.sqrt(moving * 10e-6)  # two hops of 5 µs
    assert large - small == pytest.approx(40e-6 + filled[1] - filled[0])


def test_nvls_sends_once_and_an_eighth() -> None:
    """Eight Hopper GPUs: 9/8 of S at 85 % of the rate; nothing of it without such switches."""
    group = one_node(8, architecture="hopper", reduces=True)
    nvls = cost("all_reduce", group, "nvls")
    assert nvls.beta_s_per_byte == per_byte(9 / 8 / 85e9)
    assert "nvls" not in {each.algorithm for each in costs("all_reduce", one_node(8), PLAIN)}
    assert "nvls" not in {each.algorithm for each in costs("all_reduce", group, PLAIN, "2.10.3")}


def test_nvls_tree_takes_the_narrower_tier() -> None:
    """Two nodes with 40 GB/s against 85 of the switches: the network; with 400: the switches."""
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


def test_halving_doubling_over_nodes() -> None:
    """Two nodes of four: S/2 crosses at 10 GB/s a rank, 3/8 stays in the node, each twice."""
    halving = cost("all_reduce", nodes(2, 4), "halving_doubling")
    assert halving.beta_s_per_byte == per_byte(2 * (0.5 / 10e9 + 0.375 / 100e9))
    counts = {steps.what: steps.count for steps in halving.steps}
    assert (counts["exchanges in the node"], counts["exchanges over the network"]) == (4, 2)
    refused = price_group("all_reduce", np.array([1e6]), nodes(3, 4), algorithm="halving_doubling")
    assert isinstance(refused, Refusal)


def test_hierarchical_all_reduce() -> None:
    """Four nodes of two: 2 × 1/2 of S inside, 2 × 3/4 × 1/2 of it over each rail of 20 GB/s."""
    found = cost("all_reduce", nodes(4, 2), "hierarchical")
    assert found.beta_s_per_byte == per_byte(1 / 100e9 + 0.75 / 20e9)
    assert found.alpha_s == pytest.approx(8.4e-6 + 2 * 3.4e-6 + 6 * 34e-6)


def test_pat_is_for_one_rank_a_node() -> None:
    """log2 8 / 3.5 steps of 34 µs and 8 × 2.8 µs after 8 µs; 75 % of the interfaces' rate."""
    pat = cost("all_gather", nodes(8, 1), "pat")
    assert pat.alpha_s == pytest.approx(8e-6 + 3 / 3.5 * 34e-6 + 8 * 2.8e-6)
    assert pat.beta_s_per_byte == per_byte(1 / 30e9)
    assert "pat" not in {each.algorithm for each in costs("all_gather", nodes(4, 2), PLAIN)}
    assert "pat" not in {each.algorithm for each in costs("all_gather", nodes(8, 1), PLAIN, "2.10.3")}


def test_all_to_all_passes_the_slower_tier() -> None:
    """Two nodes of eight: half of S over 5 GB/s a rank at 0.9 outweighs 7/16 of it over 100 GB/s."""
    found = cost("all_to_all", nodes(2, 8), "p2p")
    assert found.beta_s_per_byte == per_byte(0.5 / 4.5e9)
    assert cost("all_to_all", one_node(8), "p2p").beta_s_per_byte == per_byte(7 / 8 / 80e9)


def test_send_and_receive() -> None:
    """One step of 3.4 µs; 80 % of the pair's rate in a node, 90 % of the rank's interface across."""
    assert cost("send_recv", one_node(2), "p2p").alpha_s == pytest.approx(8.4e-6 + 3.4e-6)
    assert cost("send_recv", one_node(2), "p2p").beta_s_per_byte == per_byte(1 / 80e9)
    assert cost("send_recv", nodes(2, 1), "p2p").beta_s_per_byte == per_byte(1 / 36e9)


@pytest.mark.parametrize(
    ("corner", "inside", "across"), [(BEST, 1.0, 1.0), (EXPECTED, 0.8, 0.9), (WORST, 0.7, 0.5)]
)
def test_pairs_reach_shares_of_their_links(corner: Assumed, inside: float, across: float) -> None:
    """100 GB/s inside and 40 across: at best all of them, at worst half of an interface (2 x 8 B200)."""
    assumed = replace(PLAIN, edge=corner.edge)
    for group, rate in ((one_node(2), 100e9 * inside), (nodes(2, 1), 40e9 * across)):
        found = costs("send", group, assumed, algorithm="p2p")
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


def test_all_to_all_on_a_ring_is_a_quarter_of_an_all_gather() -> None:
    """16 chips in a ring, array of V: 15/16 V over both directions gathers it, V/4 exchanges it."""
    ring = one_node(16, peers="torus", up_bytes_per_s=100 * GB, dims=(16,), rings=(True,))
    array = 16e9  # S of all-gather; each chip has a sixteenth of it, its S of the all-to-all
    gather = array * cost("all_gather", ring, "torus_bucket", "ici").beta_s_per_byte
    exchange = array / 16 * cost("all_to_all", ring, "torus_all_to_all", "ici").beta_s_per_byte
    assert exchange / (gather * 16 / 15) == pytest.approx(1 / 4)


def test_stragglar_reproduces_the_published_ratios() -> None:
    """arXiv 2505.23523: 22 (v1) to 25 % (v2) less time than ring on 8 GPUs, tending to a half."""
    sizes = np.array([1e15])  # where only rates count

    def saved(ranks: int) -> float:
        group = one_node(ranks)
        parts = stragglar(Call("all_reduce", group, constants(None), PLAIN, PROTOCOLS))
        assert parts is not None
        return 1 - parts.time_s(sizes)[0] / cost("all_reduce", group, "ring").time_s(sizes)[0]

    assert saved(8) == pytest.approx(1 - (9 / 7) / (14 / 8), abs=1e-6)  # 26.5 %
    assert 0.22 <= saved(8) <= 0.27
    assert saved(8) < saved(64) < saved(4096) < 0.5
    assert saved(4096) == pytest.approx(0.5, abs=0.005)


def test_tree_costs_more_than_ring_on_eight_gpus() -> None:
    """Large S: a tree moves S twice where a ring moves it 14/8 times."""
    sizes = np.array([1e12])
    tree, ring = (cost("all_reduce", one_node(8), name).time_s(sizes)[0] for name in ("tree", "ring"))
    assert tree / ring == pytest.approx((2 / 0.92) / (1.75 / 0.965), rel=1e-3)


def test_stragglar_that_is_hardly_late_pays_for_the_reduce_scatter() -> None:
    """Without delay: 6 of 7 chunks more; late by more than that: nothing more."""
    parts = stragglar(Call("all_reduce", one_node(8), constants(None), PLAIN, PROTOCOLS))
    assert parts is not None
    sizes = np.array([7e9])
    late = parts.time_s(sizes)[0]
    early = 8.4e-6 + 6 * 3.4e-6 + 6e9 / 96.5e9
    assert parts.time_s(sizes, 0.0)[0] - late == pytest.approx(early)
    assert parts.time_s(sizes, early + 1e-3)[0] == late


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
    sizes = 2.0 ** np.arange(0, 40)
    found = price_group(kind, sizes, group)
    if isinstance(found, Refusal):
        assert kind in ("barrier", "gather", "scatter", "broadcast", "reduce")
        return
    assert (found.time_s > 0).all()
    assert np.isfinite(found.high_s).all()
    assert (found.low_s <= found.time_s).all()
    assert (found.time_s <= found.high_s).all()


def test_time_grows_with_size_but_for_nccls_own_table() -> None:
    """Ring and torus are monotone in S; four times the size never takes less, whoever wins."""
    sizes = 2.0 ** np.arange(3, 38)
    ring = price_group("all_gather", sizes, nodes(4, 8))
    assert isinstance(ring, Prediction)
    assert (np.diff(ring.time_s) >= 0).all()
    best = price_group("all_reduce", sizes, nodes(4, 8, architecture="hopper", reduces=True))
    assert isinstance(best, Prediction)
    assert (best.time_s[2:] >= best.time_s[:-2]).all()


def test_the_fastest_wins_and_is_named() -> None:
    """Small: a low-latency protocol; large: a ring in Simple; each figure is its winner's own."""
    sizes = np.array([8.0, 8e9])
    found = price_group("all_reduce", sizes, one_node(8))
    assert isinstance(found, Prediction)
    assert found.protocol == ("LL", "Simple")
    assert found.algorithm[1] == "ring"
    every = [each.time_s(sizes) for each in costs("all_reduce", one_node(8), EXPECTED)]
    assert found.formula_s.tolist() == np.min(every, axis=0).tolist()
    assert found.algbw[1] == pytest.approx(8e9 / found.time_s[1])
    assert found.busbw[1] == pytest.approx(1.75 * found.algbw[1])


def test_narrowing_the_choice() -> None:
    """Asked for tree in LL128, that is the price; asked for what does not apply, there is none."""
    sizes = np.array([1e6])
    found = price_group("all_reduce", sizes, one_node(8), algorithm="tree", protocol="LL128")
    assert isinstance(found, Prediction)
    assert (found.algorithm, found.protocol) == (("tree",), ("LL128",))
    refused = price_group("all_gather", sizes, one_node(8), algorithm="tree")
    assert isinstance(refused, Refusal)
    assert "tree" in refused.reason


def test_ll128_stays_in_a_grace_node() -> None:
    """Interfaces behind a Grace CPU are not next to the GPU: LL128 over the network is off before 2.28."""
    group = nodes(2, 4, architecture="hopper", host_cpu="arm")
    used = {each.protocol for each in costs("all_reduce", group, PLAIN, "2.23.4")}
    assert used == {"LL", "Simple"}
    assert "LL128" in {each.protocol for each in costs("all_reduce", group, PLAIN, "2.28.3")}
    assert "LL128" in {each.protocol for each in costs("all_reduce", one_node(4, host_cpu="arm"), PLAIN)}


@pytest.mark.parametrize(
    ("version", "since"),
    [
        (None, (2, 29)),
        ("2.30.1", (2, 29)),
        ("v2.27.3", (2, 23)),
        ("2.22.3", (2, 21)),
        ("2.21.5+cuda12.4", (2, 21)),
        ("2.20.5", (2, 19)),
        ("2.18.1", (2, 18)),
        ("2.10.3", (0, 0)),
        ("main", (2, 29)),
    ],
)
def test_constants_by_version(version: str | None, since: tuple[int, int]) -> None:
    """The newest table that is not newer than the release; the newest of all without one."""
    assert constants(version).since == since


def test_nodes_without_nvlink_take_pcies_steps() -> None:
    """Two ranks over PCIe: 8.4 + 2 × 5.7 µs in Simple; no LL128 there."""
    group = one_node(2, peers="pcie-tree")
    assert cost("all_reduce", group, "ring").alpha_s == pytest.approx(8.4e-6 + 2 * 5.7e-6)
    assert {each.protocol for each in costs("all_reduce", group, PLAIN)} == {"LL", "Simple"}


def test_stragglar_can_be_asked_for() -> None:
    """Priced from the last arrival on; never chosen unasked, as nobody says that a rank is late."""
    found = price_group("all_reduce", np.array([1e9]), one_node(8), algorithm="stragglar")
    assert isinstance(found, Prediction)
    assert found.algorithm == ("stragglar",)
    unasked = price_group("all_reduce", np.array([1e9]), one_node(8))
    assert isinstance(unasked, Prediction)
    assert found.time_s[0] < unasked.time_s[0]
    assert unasked.algorithm == ("ring",)


def test_rings_that_leave_a_mesh_leave_a_link_free() -> None:
    """Four of 90 GB/s in a mesh: three rings of 30 inside, four across, where the network has 200."""
    mesh = {"peers": "mesh", "up_bytes_per_s": 90 * GB, "pair_bytes_per_s": 30 * GB}
    inside = cost("all_gather", one_node(4, **mesh), "ring")
    across = cost("all_gather", nodes(2, 4, **mesh, out_bytes_per_s=200 * GB), "ring")
    assert inside.traffic.bytes_per_s == pytest.approx(90e9 * 0.965)
    assert across.traffic.bytes_per_s == pytest.approx(120e9 * 0.965)


def test_rccl_has_latencies_of_its_own() -> None:
    """A call 12 µs, a step in the node 0.8; exchanges of MSCCL's kind on its mesh; no LL128 ring across."""
    amd = {"architecture": "amd", "peers": "mesh", "pair_bytes_per_s": 100 * GB / 7}
    assert cost("all_reduce", one_node(8, **amd), "ring", "LL").alpha_s == pytest.approx(
        (12 + 14 * 0.8) * 1e-6
    )
    assert "direct" in {each.algorithm for each in costs("all_reduce", one_node(8, **amd), PLAIN)}
    assert "direct" not in {each.algorithm for each in costs("all_reduce", one_node(8), PLAIN)}
    of_two = price_group("all_gather", np.array([2.0**28]), one_node(2, **amd))
    assert isinstance(of_two, Prediction)
    assert of_two.algorithm == ("ring",)  # which is as fast there
    across = costs("all_reduce", nodes(2, 8, **amd), PLAIN)
    assert ("ring", "LL128") not in {(each.algorithm, each.protocol) for each in across}


def test_one_rank_a_node_pays_a_trees_hop() -> None:
    """Two nodes of one, all-gather in LL: 6.6 + 5 + 10 µs; with two ranks a node a ring's hop is 2.7."""
    assert cost("all_gather", nodes(2, 1), "ring", "LL").alpha_s == pytest.approx(21.6e-6)
    two = cost("all_gather", nodes(2, 2), "ring", "LL").alpha_s
    assert two == pytest.approx((6.6 + 2 * 1.0 + 2.7 + 10) * 1e-6)


def test_one_process_may_launch_for_a_whole_host() -> None:
    """Eight calls of 6 µs one after another are at the slow edge: 30 µs more than the 18 of one a process."""
    few, many = (price_group("all_reduce", np.array([8.0]), one_node(8, hosted=n)) for n in (1, 8))
    assert isinstance(few, Prediction)
    assert isinstance(many, Prediction)
    assert many.slowest_s[0] - few.slowest_s[0] == pytest.approx(30e-6)
    assert many.time_s[0] == few.time_s[0]


def test_a_version_that_is_none_is_said_to_be() -> None:
    """Garbage takes the newest release's figures and says so; a version with more behind it is one."""
    odd, known = (
        price_group("all_reduce", np.array([8.0]), one_node(8), library_version=version)
        for version in ("newest\n", "2.21.5+cuda12.4")
    )
    assert isinstance(odd, Prediction)
    assert isinstance(known, Prediction)
    assert odd.reason == "'newest\\n' is no version of NCCL: the newest release's figures are taken"
    assert known.reason is None
