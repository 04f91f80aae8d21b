# SPDX-License-Identifier: Apache-2.0
"""Systems of the catalog, and the rates of their links."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from msgspec import structs

from cclbench.ground.errors import UsageError
from cclbench.hardware.catalog import accelerators, fabric, fabrics, system, systems
from cclbench.hardware.fabric import Fabric, Transport
from cclbench.hardware.rates import Rate, rate_of
from cclbench.hardware.system import ScaleOut, ScaleUp, System

# What the catalog promises by name.
CONTRACT = ["aws-p4de", "aws-p5", "aws-p5en", "aws-p6-b200", "gcp-a3-mega", "gcp-a4", "perlmutter-gpu"]
CONTRACT += ["alps-gh200", "dgx-a100", "dgx-h100", "dgx-b200", "mi300x-8gpu", "mi355x-8gpu"]


def test_the_contract_has_its_systems() -> None:
    assert set(CONTRACT) <= set(systems())
    # an unknown system gets near matches
    with pytest.raises(UsageError, match="aws-p5"):
        system("aws-p55")


@pytest.mark.parametrize(
    ("name", "per_node", "up", "node_out", "generation"),
    [
        # Scale-up of one accelerator; interfaces of a node together (count × Gb/s / 8).
        ("aws-p3dn", 8, 150e9, 1 * 100 / 8 * 1e9, "volta"),
        ("aws-p4d", 8, 300e9, 4 * 100 / 8 * 1e9, "ampere"),
        ("aws-p4de", 8, 300e9, 4 * 100 / 8 * 1e9, "ampere"),
        ("aws-p5", 8, 450e9, 32 * 100 / 8 * 1e9, "hopper"),
        ("aws-p5en", 8, 450e9, 16 * 200 / 8 * 1e9, "hopper"),
        ("aws-p6-b200", 8, 900e9, 8 * 400 / 8 * 1e9, "blackwell"),
        ("aws-p6-b300", 8, 900e9, 16 * 400 / 8 * 1e9, "blackwell"),
        ("aws-trn1", 16, 206e9, 800 / 8 * 1e9, "trainium"),
        ("aws-trn1n", 16, 412e9, 1600 / 8 * 1e9, "trainium"),
        ("aws-trn2", 16, 640e9, 3200 / 8 * 1e9, "trainium"),
        ("gcp-a3-mega", 8, 450e9, 8 * 200 / 8 * 1e9, "hopper"),
        ("gcp-a4", 8, 900e9, 8 * 400 / 8 * 1e9, "blackwell"),
        ("perlmutter-gpu", 4, 300e9, 4 * 200 / 8 * 1e9, "ampere"),
        ("alps-gh200", 4, 450e9, 4 * 200 / 8 * 1e9, "hopper"),
        ("dgx-a100", 8, 300e9, 8 * 200 / 8 * 1e9, "ampere"),
        ("dgx-h100", 8, 450e9, 8 * 400 / 8 * 1e9, "hopper"),
        ("dgx-b200", 8, 900e9, 8 * 400 / 8 * 1e9, "blackwell"),
        ("dgx-b300", 8, 900e9, 8 * 800 / 8 * 1e9, "blackwell"),
        ("mi300x-8gpu", 8, 448e9, 8 * 400 / 8 * 1e9, "amd"),
        ("mi355x-8gpu", 8, 535.5e9, 8 * 400 / 8 * 1e9, "amd"),
    ],
)
def test_nodes(name: str, per_node: int, up: float | None, node_out: float, generation: str) -> None:
    found = system(name)
    assert (found.per_node, found.architecture) == (per_node, generation)
    assert found.scale_up.bytes_per_s == up
    assert found.scale_out.bytes_per_s is not None
    assert found.scale_out.nics * found.scale_out.bytes_per_s == pytest.approx(node_out)


def test_every_system_agrees_with_its_parts() -> None:
    for found in systems().values():
        assert found.accelerator in accelerators()
        if found.scale_up is not None:
            up = found.scale_up
            assert up.fabric.tier == "scale_up"
            if up.bytes_per_s and up.links and up.fabric.link_bytes_per_s:
                assert up.bytes_per_s == pytest.approx(up.links * up.fabric.link_bytes_per_s, rel=0.01)
                own = accelerators()[found.accelerator].scale_up_bytes_per_s
                assert up.bytes_per_s == pytest.approx(own, rel=0.01), found.id
            if up.links_per_pair and up.links:
                assert up.links_per_pair * (up.domain - 1) == up.links
            if up.dims:
                assert math.prod(up.dims) == up.domain
        if found.scale_out is not None and found.scale_out.fabric.link_bytes_per_s:
            assert found.scale_out.bytes_per_s == found.scale_out.fabric.link_bytes_per_s


@pytest.mark.parametrize(
    ("id", "latency_s"),
    [
        *(("aws-p3dn", 150e-6), ("aws-p4de", 75e-6), ("aws-p5", 75e-6), ("aws-p5en", 35e-6)),
        *(("aws-p6-b200", 35e-6), ("aws-trn2", 75e-6), ("dgx-h100", 0.0), ("gcp-a3-mega", None)),
    ],
)
def test_latency_of_the_machines_own_transport(id: str, latency_s: float | None) -> None:  # noqa: A002
    assert system(id).scale_out.latency_s() == latency_s


def node(per_node: int, nics: int, domain: int | None = None) -> System:
    """Nodes of so many accelerators and interfaces, on made-up fabrics."""
    up = Fabric("up", "fabric", "scale_up", "switch", 25e9, 0.8)
    out = Fabric("out", "fabric", "scale_out", "fat-tree", 50e9, 0.9, transports={"fast": Transport(3e-6)})
    links = ScaleUp(up, "switch", domain or per_node, links=12, bytes_per_s=300e9)
    return System("made-up", "system", "chip", per_node, links, ScaleOut(out, nics, 50e9, "fast"), "ampere")


@pytest.mark.parametrize(
    ("ranks", "tier"),
    [
        *(((), None), ((3,), None), ((3, 3), None), ((0, 7), "scale_up")),
        *(((8, 15), "scale_up"), ((7, 8), "scale_out"), (range(16), "scale_out")),
    ],
)
def test_the_tier_a_group_spans(ranks: Sequence[int], tier: str | None) -> None:
    assert node(8, 8).tier_of(ranks) == tier


@pytest.mark.parametrize(
    ("nics", "ranks", "rails"),
    [
        (8, range(16), 8),
        (8, (0, 8), 1),  # one accelerator of each node, one interface each
        (8, (0, 1, 8), 1),  # the node with fewer decides
        (32, (0, 8), 4),  # four interfaces an accelerator
        (4, (0, 1, 8, 9), 1),  # neighbours share one
        *((4, (0, 2, 8, 10), 2), (4, range(16), 4), (1, range(16), 1)),
    ],
)
def test_rails(nics: int, ranks: Sequence[int], rails: int) -> None:
    assert node(8, nics).nearest_interfaces(ranks) == rails


def test_usable_rates() -> None:
    made = node(8, 8)
    assert made.scale_up.usable_bytes_per_s == pytest.approx(240e9)
    assert made.scale_out.usable_bytes_per_s == pytest.approx(45e9)
    assert (made.scale_out.latency_s(), made.scale_out.latency_s("slow")) == (3e-6, None)
    # 3 µs of the fabric's; 9 of this machine, unless another software is asked for
    transports = {"fast": Transport(3e-6), "slow": Transport(5e-6)}
    net = Fabric("net", "fabric", "scale_out", "fat-tree", 50e9, transports=transports)
    own = ScaleOut(net, 8, 50e9, "fast", transport_latency_s=9e-6)
    assert [own.latency_s(name) for name in (None, "fast", "slow", "x")] == [9e-6, 9e-6, 5e-6, None]
    assert ScaleOut(net, 8, 50e9, "slow").latency_s() == 5e-6
    assert ScaleOut(net, 8, 50e9).latency_s() is None
    # a domain of several nodes is one tier
    rack = system("gb200-nvl72")
    assert rack.tier_of(range(72)) == "scale_up"
    assert rack.tier_of((71, 72)) == "scale_out"
    assert rack.ranks_by_node(range(8)) == (4, 4)
    # 32 nodes in racks of 18: 16 in each of two; 36 fill both; 35 cannot be divided equally
    rack = systems()["gb300-nvl72"]
    assert [rank // 4 for rank in rack.group_members(32, 32)] == [*range(16), *range(18, 34)]
    assert rack.group_members(144, 36) == list(range(144))
    assert [rank // 4 for rank in rack.group_members(35, 35)] == list(range(35))


def new_fabric(topology: str, links: int | None, rate: float | None = 50e9) -> Fabric:
    return Fabric("new", "fabric", "scale_up", topology, rate, links=links)  # type: ignore[arg-type]


def test_accelerators_on_other_links_and_networks() -> None:
    """As many links as those come with; a mesh of eight has one rate a pair where seven divide them."""
    up = node(8, 8).scale_up
    switched = up.on_fabric(new_fabric("switch", 18))
    assert (switched.peers, switched.links, switched.bytes_per_s) == ("switch", 18, 900e9)
    assert (switched.fabric.id, switched.links_per_pair) == ("new", None)
    for links, a_pair in ((14, 2), (7, 1), (18, None), (6, None), (0, None)):
        assert up.on_fabric(new_fabric("mesh", links)).links_per_pair == a_pair
    assert up.on_fabric(new_fabric("mesh", None)).bytes_per_s is None
    assert up.on_fabric(new_fabric("mesh", 7, None)).bytes_per_s is None
    assert ScaleUp(up.fabric, "mesh", 1).on_fabric(new_fabric("mesh", 3)).links_per_pair == 3
    # with the interfaces that it has for each accelerator, and with its own software
    out = node(8, 8).scale_out
    software = {"socket": Transport(None), "fast": Transport(1e-6), "b": Transport(None)}
    other = Fabric("new", "fabric", "scale_out", "fat-tree", 100e9, links=2, transports=software)
    assert out.on_fabric(other, 4) == ScaleOut(other, 8, bytes_per_s=100e9, transport="fast")
    assert out.on_fabric(Fabric("x", "fabric", "scale_out", "fat-tree", None), 4).nics == 0
    assert Fabric("x", "fabric", "scale_out", "fat-tree", None).default_transport is None


def test_switches_and_rings() -> None:
    able = Fabric("up", "fabric", "scale_up", "switch", 25e9, in_network_reduction=True)
    assert ScaleUp(able, "switch", 8).in_network_reduction
    assert not ScaleUp(able, "mesh", 8).in_network_reduction
    assert not ScaleUp(new_fabric("switch", 8), "switch", 8).in_network_reduction
    # one host of a torus does not close
    host, pod = system("google-tpu-v6e-8").scale_up, system("google-tpu-v6e-pod").scale_up
    assert (host.closes_rings, pod.closes_rings) == (False, True)
    # switches reduce where there are switches
    ups = {name: system(name).scale_up for name in CONTRACT}
    reduces = {name for name, up in ups.items() if up is not None and up.in_network_reduction}
    assert reduces == {
        *["aws-p5", "aws-p5en", "aws-p6-b200", "gcp-a3-mega", "gcp-a4", "dgx-h100", "dgx-b200"]
    }


def test_members_of_a_group() -> None:
    """The first of each node, or as few nodes as hold them."""
    made = node(4, 4)
    assert made.group_members(6) == range(6)
    assert made.group_members(6, 3) == [0, 1, 4, 5, 8, 9]
    assert made.group_members(8, 2) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert made.group_members(2, 2) == [0, 4]
    for ranks, nodes in ((5, 2), (1, 2), (0, 2)):
        with pytest.raises(UsageError, match=f"{ranks} ranks do not divide equally over {nodes} nodes;"):
            made.group_members(ranks, nodes)
    with pytest.raises(UsageError, match=r"5 ranks per node, but made-up has 4 .*; give --nodes 3"):
        made.group_members(10, 2)
    # ranks by node
    assert node(4, 4).ranks_by_node([5, 0, 4, 4, 3]) == (2, 2)
    assert node(4, 4).ranks_by_node([]) == ()
    unjoined = System("x", "system", "chip", 4, None, None, "ampere")
    assert (unjoined.domain_size, unjoined.tier_of([0, 1])) == (1, "scale_out")
    assert unjoined.nearest_interfaces([0]) == 0
    assert node(4, 4).nearest_interfaces([]) == 0


@pytest.mark.parametrize(
    ("id", "line", "usable"),
    [
        # NVLink: line rate by the generation, usable by NCCL's own constants (20, 20.6 and 40.1 GB/s).
        *(("nvlink2", 25e9, 20e9), ("nvlink3", 25e9, 20e9)),
        *(("nvlink4", 25e9, 20.6e9), ("nvlink5", 50e9, 40.1e9)),
        *(("pcie3", 15.75e9, 12e9), ("pcie5", 63e9, None)),
        *(("xgmi-mi250x", 50e9, None), ("xgmi-mi300x", 64e9, 48e9), ("xgmi-mi355x", 76.5e9, None)),
        *(("ici-v4", 46.9e9, 46.9e9 * 0.96), ("ici-v5e", 50e9, 45e9), ("ici-v5p", 100e9, 90e9)),
        *(("ici-v6e", 100e9, 90e9), ("ici-v7x", 100e9, None)),
        *(("infiniband-hdr", 25e9, None), ("infiniband-ndr", 50e9, 47e9), ("infiniband-xdr", 100e9, None)),
        *(("slingshot-11", 25e9, 92.5e9 / 4), ("efa-v1", 12.5e9, 340e9 / 8 / 4)),
        *(("efa-v2", 12.5e9, None), ("efa-v3", 25e9, None), ("efa-v4", 50e9, None)),
        *(("gcp-tcpxo", 25e9, None), ("neuronlink-v3", None, None)),
    ],
)
def test_rates(id: str, line: float | None, usable: float | None) -> None:  # noqa: A002
    found = fabric(id)
    assert found.link_bytes_per_s == line
    if usable is None:
        assert found.usable_bytes_per_s(found.link_bytes_per_s) is None
    else:
        assert found.usable_bytes_per_s(found.link_bytes_per_s) == pytest.approx(usable, rel=0.001)


def test_usable_shares_and_hops() -> None:
    shares = [found.usable_fraction for found in fabrics().values() if found.usable_fraction is not None]
    assert len(shares) >= 12
    assert all(0.5 <= share < 1 for share in shares)
    # a hop of a torus takes a microsecond
    assert {fabric(f"ici-{name}").hop_latency_s for name in ("v4", "v5e", "v5p", "v6e", "v7x")} == {1e-6}
    assert fabric("ici-v6e").wraps is True
    # an unknown fabric gets near matches
    with pytest.raises(UsageError, match="did you mean nvlink"):
        fabric("nvlink7")


@pytest.mark.parametrize(
    ("id", "reduces"),
    [("nvlink3", False), ("nvlink4", True), ("nvlink5", True), ("infiniband-ndr", True), ("efa-v2", False)],
)
def test_which_switches_reduce(id: str, reduces: bool) -> None:  # noqa: A002
    assert fabric(id).in_network_reduction is reduces


@pytest.mark.parametrize(
    ("id", "transport", "latency_s"),
    [
        ("infiniband-ndr", "ib-verbs", 0.0),  # NCCL's own transport adds nothing to its constants
        *(("infiniband-ndr", "socket", None), ("efa-v2", "aws-ofi-nccl", 75e-6)),
        ("efa-v4", "aws-ofi-nccl", 35e-6),
        ("efa-v1", "aws-ofi-nccl", None),  # by machine: 150 µs on p3dn, 75 µs on p4d
        ("slingshot-11", "cxi", 0.0),
        ("gcp-tcpxo", "tcpxo", None),
    ],
)
def test_latencies_of_transports(id: str, transport: str, latency_s: float | None) -> None:  # noqa: A002
    assert fabric(id).transports[transport].latency_s == latency_s


UP = Fabric("up", "fabric", "scale_up", "switch", 25e9, 0.8)
OUT = Fabric("out", "fabric", "scale_out", "fat-tree", 50e9, 0.9)
LINKS = ScaleUp(UP, "switch", 4, links=12, bytes_per_s=300e9)
NODE = System("node", "system", "chip", 4, LINKS, ScaleOut(OUT, 4, 50e9), "ampere")


def with_links(**changes: object) -> System:
    return structs.replace(NODE, scale_up=structs.replace(NODE.scale_up, **changes))


def rate(system: System, ranks: Sequence[int]) -> float:
    return rate_of(system, ranks).bytes_per_s  # type: ignore[union-attr]


def test_a_rate_names_its_tier_and_its_fabric() -> None:
    assert rate_of(NODE, range(4)) == Rate(240e9, "scale_up", "up", usable=True)
    assert rate_of(NODE, range(8)) == Rate(180e9, "scale_out", "out", usable=True)
    # where nobody states what is usable it is the line rate
    fabric = structs.replace(UP, usable_fraction=None)
    assert rate_of(with_links(fabric=fabric), [0, 1]) == Rate(300e9, "scale_up", "up", usable=False)
    # a tier without a rate is named
    unjoined = structs.replace(NODE, scale_up=None)
    # two meet in a node, of which nobody says what joins them
    assert rate_of(unjoined, [0, 1, 4, 5]) == "node states no rate in its scale-up domain"
    assert rate(unjoined, [0, 4]) == pytest.approx(45e9)
    assert rate_of(with_links(bytes_per_s=None), [0, 1]) == "node states no rate in its scale-up domain"
    alone = structs.replace(NODE, scale_out=None)
    assert rate_of(alone, [0, 4]) == "node states no rate of its network interfaces"


@pytest.mark.parametrize("ranks", [[], [3], [3, 3]])
def test_a_group_of_one_has_none(ranks: list[int]) -> None:
    assert rate_of(NODE, ranks) == "a group of one rank moves no data"


def test_parts_of_a_mesh_and_a_torus() -> None:
    """One of three links to another of the four, two to two others; all in a whole domain."""
    mesh = with_links(peers="mesh", links_per_pair=4)
    assert rate(mesh, [0, 1]) == pytest.approx(80e9)
    assert rate(mesh, [0, 1, 1, 3]) == pytest.approx(160e9)
    assert rate(mesh, range(4)) == pytest.approx(240e9)
    uneven = with_links(peers="mesh")
    assert rate_of(uneven, [0, 1]) == "the number of links between two of its accelerators is not known"
    assert rate(uneven, range(4)) == pytest.approx(240e9)
    # a torus that does not close has half
    line = with_links(peers="torus", wraps=False)
    assert rate(line, range(4)) == pytest.approx(120e9)
    assert rate(with_links(peers="torus", wraps=True), range(4)) == pytest.approx(240e9)
    assert rate_of(line, range(3)) == "which axes of the torus the group fills is not known"


def test_a_domain_has_the_interfaces_of_its_nodes() -> None:
    """Domains of two nodes: all eight of 45 GB/s; the domain with fewest decides."""
    rack = with_links(domain=8)
    assert rate(rack, range(16)) == pytest.approx(8 * 45e9)
    assert rate(rack, [0, 1, 2, 3, 8, 9, 10, 11]) == pytest.approx(4 * 45e9)
    assert rate(rack, [0, 1, 4, 5, 8]) == pytest.approx(45e9)
    assert rate(rack, [0, 8, 4, 12]) == pytest.approx(2 * 45e9)
    # of two pairs in a node a group of all four of each of two nodes has all four interfaces
    assert rate(with_links(domain=2), range(8)) == pytest.approx(180e9)
