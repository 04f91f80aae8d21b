# SPDX-License-Identifier: Apache-2.0
"""Groups of ranks on small systems made here: what joins them, what is refused and by which field."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from cclbench.ground.errors import UsageError
from cclbench.hardware import collectives
from cclbench.hardware.collectives.cost import EXPECTED, WORST, Assumed
from cclbench.hardware.fabric import Fabric, Transport
from cclbench.hardware.prediction import check_transport
from cclbench.hardware.system import ScaleOut, ScaleUp, System

UP = Fabric("up", "fabric", "scale_up", "switch", 25e9, usable_fraction=0.8, in_network_reduction=True)
SOFTWARE = {"ib-verbs": Transport(None), "mine": Transport(7e-6), "socket": Transport(None)}
OUT = Fabric("out", "fabric", "scale_out", "fat-tree", 25e9, usable_fraction=0.9, transports=SOFTWARE)
LINKS = ScaleUp(UP, "switch", 4, links=12, bytes_per_s=300e9)
NETWORK = ScaleOut(OUT, nics=4, bytes_per_s=25e9, transport="ib-verbs")
NODE = System("node", "system", "an-accelerator", 4, LINKS, NETWORK, "hopper", "intel")
PAIRED = ScaleUp(UP, "mesh", 4, links=12, bytes_per_s=300e9, links_per_pair=4)
MESH = msgspec.structs.replace(NODE, scale_up=PAIRED)
ICI = Fabric("ici-v5p", "fabric", "scale_up", "torus", 100e9, usable_fraction=0.9, wraps=True)
AXES = ScaleUp(ICI, "torus", 8, links=4, bytes_per_s=400e9, dims=(2, 4))
TORUS = System("pod", "system", "a-chip", 4, AXES, None, "tpu")


def group(system: System, ranks: range | list[int], transport: str | None = None) -> collectives.Group:
    found = collectives.group_of(system, ranks, transport=transport)
    assert isinstance(found, collectives.Group), found
    return found


def refused(system: System, ranks: range | list[int], transport: str | None = None) -> collectives.NoPrice:
    return collectives.group_of(system, ranks, transport=transport)  # type: ignore[return-value]


def without(system: System, **changes: object) -> System:
    """The system with changed scale-up or scale-out fields, as `up_field` or `out_field`."""
    up = {key[3:]: value for key, value in changes.items() if key.startswith("up_")}
    out = {key[4:]: value for key, value in changes.items() if key.startswith("out_")}
    return msgspec.structs.replace(
        system,
        scale_up=msgspec.structs.replace(system.scale_up, **up),
        scale_out=msgspec.structs.replace(system.scale_out, **out),
    )


def test_a_node_and_two() -> None:
    """240 of 300 GB/s in a node; four interfaces of 22.5 GB/s across."""
    one = group(NODE, range(4))
    assert (one.ranks, one.nodes, one.per_node) == (4, 1, 4)
    assert one.up_bytes_per_s == one.pair_bytes_per_s == pytest.approx(240e9)
    two = group(NODE, range(8))
    assert (two.ranks, two.nodes, two.per_node) == (8, 2, 4)
    assert two.out_bytes_per_s == pytest.approx(90e9)
    assert two.nic_bytes_per_s == pytest.approx(22.5e9)
    # one accelerator of each of two nodes has one of the four
    assert group(NODE, [0, 4]).out_bytes_per_s == pytest.approx(22.5e9)
    # two of four ranks share one pair's links: a third of 240 GB/s
    assert group(MESH, [0, 1]).up_bytes_per_s == pytest.approx(80e9)
    assert group(MESH, range(4)).up_bytes_per_s == pytest.approx(240e9)
    assert not group(MESH, range(4)).reduces
    assert group(NODE, range(4)).reduces


def test_torus_axes() -> None:
    """All of 2 x 4 chips: both axes, of which the one of four closes; one axis of four: half the links."""
    whole = group(TORUS, range(8))
    assert (whole.dims, whole.rings) == ((2, 4), (False, True))
    assert whole.up_bytes_per_s == pytest.approx(360e9)
    axis = group(TORUS, range(4))
    assert (axis.dims, axis.rings) == ((4,), (True,))
    assert axis.up_bytes_per_s == pytest.approx(180e9)
    strided = group(TORUS, [1, 5])
    assert (strided.dims, strided.rings) == ((2,), (False,))
    # two of four chips in a row, or a block of 2 x 2, do not close; a gap or an L is no block
    line = group(TORUS, [1, 2])
    assert (line.dims, line.rings) == ((2,), (False,))
    assert (group(TORUS, range(3)).dims, group(TORUS, range(3)).rings) == ((3,), (False,))
    block = group(TORUS, [0, 1, 4, 5])
    assert (block.dims, block.rings) == ((2, 2), (False, False))
    for ranks in ([0, 2], [0, 1, 4]):
        assert refused(TORUS, ranks).field == "scale_up.dims"
    # 360 GB/s of a chip in four links, two along each axis; of an axis of four alone half are in use
    for ranks, used in ((range(8), 360e9), (range(4), 180e9)):
        found = group(TORUS, ranks)
        assert found.up_bytes_per_s == pytest.approx(used)
        assert found.pair_bytes_per_s == pytest.approx(90e9)
        assert found.egress_bytes_per_s == pytest.approx(360e9)


def test_a_system_says_itself_whether_its_axes_close() -> None:
    """What a system states goes before what its fabric can."""
    long = {"dims": (16, 16), "wraps": False}
    mesh = msgspec.structs.replace(TORUS, scale_up=ScaleUp(ICI, "torus", 256, 4, 400e9, **long))
    assert group(mesh, range(256)).rings == (False, False)
    cannot = msgspec.structs.replace(ICI, wraps=False)
    closed = ScaleUp(cannot, "torus", 256, 4, 400e9, **{**long, "wraps": True})
    assert group(msgspec.structs.replace(TORUS, scale_up=closed), range(256)).rings == (True, True)
    # a torus of other links has its shape and a mesh has none
    newer = msgspec.structs.replace(ICI, id="ici-v7x", links=6, link_bytes_per_s=200e9)
    assert TORUS.scale_up.on_fabric(newer).dims == (2, 4)
    wrapped = msgspec.structs.replace(TORUS.scale_up, wraps=True)
    assert wrapped.on_fabric(newer).wraps is True
    mesh = msgspec.structs.replace(newer, topology="mesh")
    assert (wrapped.on_fabric(mesh).dims, wrapped.on_fabric(mesh).wraps) == (None, None)


@pytest.mark.parametrize(
    ("system", "ranks", "field"),
    [
        (without(NODE, up_bytes_per_s=None), range(4), "scale_up.bytes_per_s"),
        (without(NODE, out_bytes_per_s=None), range(8), "scale_out.bytes_per_s"),
        (without(NODE, out_transport=None), range(8), "scale_out.transport_latency_s"),
        (without(NODE, out_transport="socket"), range(8), "scale_out.transport_latency_s"),
        (msgspec.structs.replace(NODE, scale_out=None), range(8), "scale_out"),
        *((NODE, range(1), None), (NODE, [0, 1, 2, 3, 4], None), (NODE, [-1, 0], None)),
    ],
)
def test_unknowns_are_refused_by_field(system: System, ranks: range | list[int], field: str | None) -> None:
    """Neither a rate nor a latency is ever guessed without saying so."""
    found = refused(system, ranks)
    assert found.field == field
    if field is not None:
        assert field.split(".")[-1].split("_")[0] in found.reason
    assert collectives.price_collective("all_reduce", 1e6, ranks, system) == found


def test_a_transport_is_one_of_the_machine_s_network() -> None:
    for name in (None, "mine", "ib-verbs"):
        check_transport(NODE, name)
    with pytest.raises(UsageError, match="node has no transport 'mind'") as raised:
        check_transport(NODE, "mind")
    assert "mine" in (raised.value.hint or "")
    with pytest.raises(UsageError, match="pod has no transport 'mine'"):
        check_transport(TORUS, "mine")
    # the one asked for, not the network's own
    assert "transport socket is not known" in refused(NODE, range(8), "socket").reason
    assert "transport (none named) is not" in refused(without(NODE, out_transport=None), range(8)).reason


def test_what_software_adds_to_a_hop_is_the_documented_range(repository: Path) -> None:
    """The table of docs/hardware-model.md, µs; software that the page does not list adds no such range."""
    page = (repository / "docs" / "hardware-model.md").read_text().partition("| software | least, µs |")[2]
    rows = [line.strip("|").split("|") for line in page.split("\n\n")[0].splitlines()[2:]]
    documented = {
        name.strip(): tuple(float(cell) * 1e-6 for cell in cells)
        for names, *cells, _ in rows
        for name in names.split(",")
    }
    assert len(documented) == 5
    for name, hop in documented.items():
        assert group(without(NODE, out_transport=name), range(8)).out_hop == pytest.approx(hop, rel=1e-9)
    slingshot = group(without(NODE, out_transport="cxi"), range(8))
    assert slingshot.rendezvous == pytest.approx((5e-6, 20e-6, 40e-6), rel=1e-9)
    assert slingshot.eager_bytes == 2048


def test_unknown_usable_share_is_assumed_aloud() -> None:
    """80 % of links and 92 % of interfaces, and the prediction says so."""
    fabric = msgspec.structs.replace(OUT, usable_fraction=None)
    system = without(NODE, out_fabric=fabric, up_fabric=msgspec.structs.replace(UP, usable_fraction=None))
    assert group(system, range(8)).out_bytes_per_s == pytest.approx(92e9)
    found = collectives.price_collective("all_reduce", 1e6, range(8), system)
    assumed = (
        "80% of the links' line rate is assumed usable; 92% of the network's line rate is assumed usable"
    )
    assert found.reason.startswith(assumed)
    assert group(system, range(8)).up_bytes_per_s == pytest.approx(240e9)
    # A transport of the fabric with 7 µs: half to twice of it; verbs add nothing
    assert group(NODE, range(8), "mine").out_hop == (3.5e-6, 7e-6, 14e-6)
    assert group(NODE, range(8)).out_hop.expected == 0.0
    # RCCL over the network is priced with NCCL's latencies
    words = "RCCL is priced with NCCL's network latencies"
    assert words in group(msgspec.structs.replace(NODE, architecture="amd"), range(8)).assumptions
    assert group(NODE, range(8)).assumptions == ()


def test_efa_allows_only_simple_before_p5() -> None:
    """aws-ofi-nccl forces Simple on A100, lets all through on H100, where old releases forced it too."""
    efa = without(NODE, out_transport="aws-ofi-nccl")

    def protocols(system: System, ranks: int, assumed: Assumed) -> set[str]:
        costs = collectives.algorithm_costs("all_gather", group(system, range(ranks)), assumed)
        return {each.protocol for each in costs}

    assert protocols(efa, 8, EXPECTED) == {"LL", "LL128", "Simple"}
    assert protocols(efa, 8, WORST) == {"Simple"}
    assert protocols(msgspec.structs.replace(efa, architecture="ampere"), 8, EXPECTED) == {"Simple"}
    # Within a node no network is in the way.
    assert protocols(efa, 4, WORST) > {"Simple"}
    # P5 and later let all protocols through EFA
    for architecture, protocols in (("hopper", 3), ("blackwell", 3), ("ampere", 1), ("volta", 1)):
        found = group(msgspec.structs.replace(efa, architecture=architecture), range(8))
        assert len(found.protocols) == protocols
        assert found.surely == ("Simple",)


def test_small_messages_on_p5_and_p4d_as_published() -> None:
    """8 B on two nodes of eight: 69 µs with LL, 175 with a tree in Simple, 164 on p4de: within 10 %."""
    efa = without(NODE, out_transport="aws-ofi-nccl", up_domain=8, out_nics=32)
    p5, p4d = (msgspec.structs.replace(efa, per_node=8, architecture=one) for one in ("hopper", "ampere"))
    tree = {"algorithm": "tree", "protocol": "Simple"}
    for system, asked, measured in ((p5, {}, 69.1e-6), (p5, tree, 175.5e-6), (p4d, {}, 164e-6)):
        found = collectives.price_collective("all_reduce", 8, range(16), system, **asked)
        assert found.time_s[0] == pytest.approx(measured, rel=0.1)


def test_one_size_and_many() -> None:
    """A number is a list of one; a barrier is an all-reduce of a byte; zero bytes cost the latency."""
    found = collectives.price_collective("barrier", 0, range(4), NODE)
    one = collectives.price_collective("all_reduce", [1], range(4), NODE)
    assert found.time_s.tolist() == one.time_s.tolist()
    assert np.isfinite(collectives.price_collective("all_reduce", 0, range(4), NODE).time_s).all()
    # sizes from 0 to 1 EiB, those included
    for size in (0, 2.0**60):
        assert isinstance(
            collectives.price_collective("all_reduce", size, range(4), NODE), collectives.Prediction
        )
    with pytest.raises(UsageError, match="sizes must be between 0 B and 1 EiB"):
        collectives.price_collective("all_reduce", [8, 2.0**60 + 2**12], range(4), NODE)


@pytest.mark.parametrize(
    ("kind", "size", "algorithm", "told"),
    [
        ("all_reduces", 8, None, "did you mean all_reduce or "),
        ("all_reduce", -1, None, "sizes must be between 0 B and 1 EiB"),
        ("all_reduce", float("nan"), None, "sizes must be between 0 B and 1 EiB"),
        ("all_reduce", 2.0**61, None, "sizes must be between 0 B and 1 EiB"),
        ("all_reduce", 8, "rings", r"did you mean ring\?"),
    ],
)
def test_wrong_questions(kind: str, size: float, algorithm: str | None, told: str) -> None:
    """Unknown words and impossible sizes are usage errors; a word's is told with the words near to it."""
    with pytest.raises(UsageError, match=told):
        collectives.price_collective(kind, size, range(4), NODE, algorithm=algorithm)


def test_a_group_has_only_the_tiers_that_it_spans() -> None:
    """One rank a node has no links, one node no network; nothing in them is slower than the library says."""
    across = group(NODE, [0, 4])
    assert (across.up_bytes_per_s, across.pair_bytes_per_s, across.egress_bytes_per_s) == (0, 0, 0)
    assert (across.up_hop_s, across.up_latency, across.reduces, across.hosted) == (None, 1, False, 1)
    assert (across.machine, across.network) == ("node out ib-verbs", "ib-verbs")
    inside = group(NODE, range(4))
    assert (inside.out_bytes_per_s, inside.nic_bytes_per_s, inside.eager_bytes) == (0, 0, None)
    assert (inside.out_hop, inside.rendezvous) == ((0, 0, 0), (0, 0, 0))
    assert (inside.egress_bytes_per_s, inside.up_latency, inside.hosted) == (0, 1, 4)
    assert (inside.machine, inside.network) == ("node up", "switch")
    assert group(without(NODE, up_latency_factor=0.5), range(4)).up_latency == 0.5
    assert group(without(NODE, out_transport="mine"), range(8), "ib-verbs").network == "ib-verbs"
    # two ranks of a node meet somewhere; one of each node need not
    unknown = msgspec.structs.replace(NODE, scale_up=None)
    assert refused(unknown, range(2)).field == "scale_up"
    assert group(unknown, [0, 4]).nodes == 2


def test_ranks_of_a_group_are_counted_once() -> None:
    assert refused(NODE, [2, 2]).reason == "a group of one rank moves no data"
    assert group(NODE, [0, 0, 1]).ranks == 2
    assert refused(NODE, [3, -2]).reason == "rank -2 is negative"
    # two questions about the same ranks, in any order, are one group
    assert group(NODE, [3, 2, 1, 0]) == group(NODE, range(4))
    assert replace(group(NODE, range(4)), ranks=3) != group(NODE, range(4))
    # five ranks on two nodes of four: one to four a node
    assert "1 to 4 ranks per node" in refused(NODE, range(5)).reason


def test_uplinks_of_a_domain_are_shared_by_its_interfaces() -> None:
    """Two nodes of four a domain: 4 × 22.5 GB/s of each, 22.5 where one rank of each domain takes part."""
    rack = without(NODE, up_domain=8)
    whole = group(rack, range(16))
    assert (whole.nodes, whole.per_node, whole.hosted) == (2, 8, 4)
    assert (whole.out_bytes_per_s, whole.nic_bytes_per_s) == pytest.approx((180e9, 22.5e9))
    assert group(rack, [0, 8]).out_bytes_per_s == pytest.approx(22.5e9)
    uneven = group(rack, [0, 1, 2, 3, 4, 5])
    assert (uneven.nodes, uneven.hosted) == (1, 4)
    # ranks 5 and 6 are on the second node of four, in domains of six
    assert group(without(NODE, up_domain=6), [5, 6]).out_bytes_per_s == pytest.approx(2 * 22.5e9)
    # half as many uplinks: 90 of 180 GB/s, 11.25 for a rank; in a node or a domain nothing changes. Where
    # none is stated they are assumed not to block, aloud; so is nothing in nodes that are domains
    halved = without(NODE, up_domain=8, out_oversubscription=2.0)
    whole = group(halved, range(16))
    assert (whole.out_bytes_per_s, whole.nic_bytes_per_s) == pytest.approx((90e9, 11.25e9))
    assert group(halved, [0, 8]).out_bytes_per_s == pytest.approx(11.25e9)
    assert group(halved, range(8)) == group(rack, range(8))
    single = without(NODE, out_oversubscription=2.0)
    assert group(single, range(8)).out_bytes_per_s == group(NODE, range(8)).out_bytes_per_s
    unstated = [note for note in group(rack, range(16)).assumptions if "not to block" in note]
    assert unstated == ["uplinks between scale-up domains of node are assumed not to block"]
    for other in (group(halved, range(16)), group(NODE, range(8)), group(rack, range(8))):
        assert not [note for note in other.assumptions if "not to block" in note]
    groups = ((rack, range(16)), (rack, [0, 8]), (rack, range(8)), (NODE, range(8)))
    between = [group(machine, ranks).between_domains for machine, ranks in groups]
    assert between == [True, True, False, False]


@pytest.mark.parametrize(
    ("fabric", "shortest"),
    [("ici-v4", 4), ("ici-v5p", 4), ("ici-v7x", 4), ("ici-v5e", 16), ("ici-v6e", 16), ("another", 3)],
)
def test_the_shortest_axis_that_closes(fabric: str, shortest: int) -> None:
    """One chip fewer is a line."""
    ici = msgspec.structs.replace(ICI, id=fabric)
    for length in (shortest - 1, shortest):
        axis = ScaleUp(ici, "torus", length, 4, 400e9, dims=(length,))
        found = group(msgspec.structs.replace(TORUS, scale_up=axis), range(length))
        assert (found.dims, found.rings) == ((length,), (length == shortest,))


def test_a_torus_of_which_no_dims_are_known_has_no_blocks() -> None:
    for dims, shape in ((None, "on a torus of unknown dims"), ((2, 4), "not a block of its torus 2 x 4")):
        torus = msgspec.structs.replace(TORUS.scale_up, dims=dims)
        found = refused(msgspec.structs.replace(TORUS, scale_up=torus), [0, 2])
        assert found == collectives.NoPrice(f"pod: these 2 ranks are {shape}", "scale_up.dims")


def test_software_of_a_network() -> None:
    """Geometric mean of 20 and 75 µs for tcpxo, aloud; a latency that is stated needs no such words."""
    for name, protocols in (("tcpxo", ("LL128", "Simple")), ("tcpx", ("Simple",))):
        taken = group(without(NODE, out_transport=name), range(8))
        assert taken.assumptions == (
            f"the latency of {name} is assumed to be 39 us a hop, as for another cloud's plug-in",
        )
        assert (taken.protocols, taken.surely) == (protocols, ("Simple",))
        stated = group(without(NODE, out_transport=name, out_transport_latency_s=8e-6), range(8))
        assert (stated.out_hop, stated.assumptions) == (pytest.approx((4e-6, 8e-6, 16e-6)), ())
        assert stated.protocols == protocols
    verbs = group(NODE, range(8))
    assert (verbs.protocols, verbs.surely) == (("LL", "LL128", "Simple"), ("LL", "Simple"))
    assert group(without(NODE, out_transport="cxi"), range(8)).surely == ("LL", "LL128", "Simple")
    # as a fabric's own, of which nothing else is known
    mine = group(NODE, range(8), "mine")
    assert (mine.protocols, mine.rendezvous, mine.eager_bytes) == (("LL", "LL128", "Simple"), (0, 0, 0), None)


@pytest.mark.parametrize(
    ("transport", "hop"), [("aws-ofi-nccl", (4e-6, 10e-6, 20e-6)), ("cxi", (10e-6, 10e-6, 13e-6))]
)
def test_a_scenario_sets_the_latency_of_a_hop(transport: str, hop: tuple[float, ...]) -> None:
    """10 µs: half of what the plug-in for EFA counts on, so half of its range; of an expected 0 a shift."""
    found = group(without(NODE, out_transport=transport, out_hop_latency_s=10e-6), range(8))
    assert found.out_hop == pytest.approx(hop)
