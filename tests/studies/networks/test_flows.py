# SPDX-License-Identifier: Apache-2.0
"""What networks of papers do, by hand: flows, shares of links, fairness, fences, circuits, idle links."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from helpers.replay_rows import item, rank
from helpers.replay_subjects import PAIR, changed, reduced, subject, transfers_of
from hypothesis import given
from hypothesis import strategies as st

from cclbench.card.model import Hardware
from cclbench.ground.errors import InputError
from cclbench.hardware import catalog
from cclbench.hardware.collectives import NoPrice, algorithm_costs, group_of, price_collective
from cclbench.hardware.collectives.cost import EXPECTED, CollectiveCost
from cclbench.machine import Machine
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject
from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.simulate import simulate_nodes
from cclbench.replay.transfers import transfers_by_group
from cclbench.studies.networks.failed_links import failed_links
from cclbench.studies.networks.fairness import max_min
from cclbench.studies.networks.fence import fence
from cclbench.studies.networks.oversubscription import oversubscription
from cclbench.studies.networks.rails import rails
from cclbench.studies.networks.reconfiguration import reconfiguration
from cclbench.studies.networks.sharing import Flows, flows_of, share_links
from cclbench.studies.networks.transfers import between_nodes, group_ranks

COMM = (0, 9)
Call = tuple[str, str, tuple[int, ...], float, float]
"""Kind, group, ranks, begin and end of a transfer."""


def traced(world: int, *calls: Call, nbytes: Sequence[int] = (), known: Sequence[bool] = ()) -> Graph:
    """Ranks that take part in those transfers, each on a stream of its own; one behind the other or not."""
    made = []
    for r in range(world):
        mine = [i for i, call in enumerate(calls) if r in call[2]]
        work = [item("k", 500, 510, lane=(0, 7))]
        for place, i in enumerate(mine):
            work.append(item(f"t{i}", *calls[i][3:], lane=(0, 9 + i), call=place))
        instances = [i if not known or known[i] else -1 for i in mine]
        sizes = [nbytes[i] if nbytes else 1_000 for i in mine]
        members = [len(calls[i][2]) for i in mine]
        most = max(members, default=2)
        made.append(rank(r, work=work, instances=instances, nbytes=sizes, size=most, windows=[(0, 0, 510)]))
        told = {"size": np.array(members, np.int64), "kind": tuple(calls[i][0] for i in mine)}
        for name, value in (told | {"group": tuple(calls[i][1] for i in mine)}).items():
            object.__setattr__(made[-1].calls, name, value)
    return build_graph(made)


def on(graph: Graph, groups: Mapping[str, tuple[int, ...]], **hardware: Any) -> ChangeSubject:
    return subject(graph, groups=groups, machine=Machine(Hardware(**hardware)))


def flows(one: ChangeSubject) -> Flows:
    found = flows_of(one)
    assert found is not None
    return found


ALL = {"near": (0, 1), "far": (0, 2), "all": (0, 1, 2, 3), "pair": (1, 2)}
CALLS: tuple[Call, ...] = (
    ("all_reduce", "near", (0, 1), 0, 10),
    ("all_reduce", "far", (0, 2), 20, 50),
    ("all_gather", "all", (0, 1, 2, 3), 60, 100),
    ("send", "pair", (1,), 110, 130),
)


def test_flows_are_the_transfers_that_leave_a_node() -> None:
    """Of two nodes of two; a send whose receive is not traced goes elsewhere. Flows load what they move."""
    graph = traced(4, *CALLS, known=(True, True, True, False))
    found = flows(on(graph, ALL, per_node=2))
    rank_of = graph.nodes.rank[found.nodes].tolist()
    by_begin = np.argsort([float(graph.nodes.start[gate]) for gate in found.gate])
    assert found.measured_ns[by_begin].tolist() == [30_000, 40_000, 20_000]
    order = {int(flow): place for place, flow in enumerate(by_begin.tolist())}
    at = [order[flow] for flow in found.flow.tolist()]
    expected = [(0, 0, 0, 0), (0, 2, 1, 0), (1, 0, 0, 0), (1, 1, 0, 1), (1, 2, 1, 0), (1, 3, 1, 1)]
    expected += [(2, 1, 0, 1)]
    assert sorted(zip(at, rank_of, found.place.tolist(), found.local.tolist(), strict=True)) == expected
    sender = np.array(at) == 2
    assert (found.sends[sender].tolist(), found.receives[sender].tolist()) == ([True], [False])
    assert found.sends[~sender].all()
    assert found.receives[~sender].all()
    assert found.demand.tolist() == [1.0] * 3
    assert found.per_node == 2
    use = found.link_loads(found.place, 2)
    assert sorted(use.tolist()) == [[1, 0, 0, 0], [1, 1, 1, 1], [2, 2, 2, 2]]
    assert found.link_loads(np.where(found.place == 1, 0, -1), 1).sum(axis=1).tolist().count(0) == 1


def test_only_flows_within_windows_count_in_all_their_parts() -> None:
    graph = traced(4, *CALLS[:3])
    one = on(graph, ALL, per_node=2)
    since = np.where((graph.nodes.rank == 0) & (graph.nodes.start >= 60_000), 0, -1)
    found = flows(subject(graph, groups=ALL, machine=one.machine, since=since.tolist()))
    assert found.measured_ns.tolist() == [40_000]
    assert len(found.nodes) == 4
    assert flows_of(subject(graph, groups=ALL, machine=one.machine, since=[-1] * len(since))) is None
    assert flows_of(on(graph, ALL, per_node=4)) is None


def test_a_pair_within_a_node_is_no_flow_though_its_group_leaves_it() -> None:
    made = []
    for r, kind in enumerate(("send", "recv")):
        one = rank(r, work=[item("t", 0, 10, lane=COMM, call=0)], instances=[0], windows=[(0, 0, 10)])
        object.__setattr__(one.calls, "kind", (kind,))
        object.__setattr__(one.calls, "group", ("all",))
        made.append(one)
    graph = build_graph(made)
    assert flows_of(on(graph, ALL, per_node=2)) is None
    found = flows(on(graph, ALL, per_node=1))
    ends = zip(found.place.tolist(), found.sends.tolist(), found.receives.tolist(), strict=True)
    assert sorted(ends) == [(0, True, False), (1, False, True)]


@pytest.mark.parametrize(
    ("kind", "moved"),
    [
        # of a MB: a ring of four on two nodes of two passes 2 · 3/4, over two interfaces
        ("all_reduce", 1.5 / 2),
        ("all_gather", 0.75 / 2),
        # to the two ranks of four that are elsewhere
        ("all_to_all", 0.5),
        ("send", 1.0),
    ],
)
def test_a_flow_wants_the_rate_that_it_had(kind: str, moved: float) -> None:
    """A MB in 100 µs on interfaces of 50 GB/s, of which 8/8 are one accelerator's."""
    system = catalog.system("dgx-h100")
    out = system.scale_out
    assert out is not None
    assert out.bytes_per_s is not None
    graph = traced(10, (kind, "all", FAR, 0, 100), nbytes=[1_000_000], known=(kind != "send",))
    found = flows(on(graph, {"all": FAR}, system="dgx-h100"))
    rate = (out.usable_bytes_per_s or out.bytes_per_s * 0.92) * out.nics / system.per_node
    assert found.demand == pytest.approx(moved * 1e6 / 100e-6 / rate)
    assert found.per_node == 8
    assert sorted({*found.place.tolist()}) == [0, 1]


FAR, ENDS = (0, 1, 8, 9), (0, 8)


def pair_demand(lasts: float, nbytes: int, *, kind: bool = True) -> float:
    """What an all-reduce of two nodes wants of an interface."""
    graph = traced(9, ("all_reduce", "all", ENDS, 10, 10 + lasts), nbytes=[nbytes])
    if not kind:
        object.__setattr__(graph.transfers, "kind", (None, None))
    (demand,) = flows(on(graph, {"all": ENDS}, system="dgx-h100")).demand.tolist()
    assert np.isfinite(demand)
    return float(demand)


def test_a_rate_that_is_not_known_is_all_of_the_interface() -> None:
    """A transfer of no length tells no rate."""
    assert pair_demand(100, -1) == pair_demand(100, 0) == pair_demand(100, 1_000, kind=False) == 1.0
    assert pair_demand(0, 1_000) <= 1 < pair_demand(0.001, 1_000)


def test_what_is_usable_of_an_interface_is_known_of_some_machines() -> None:
    """A MB between two nodes of one of them in 100 µs, over what an accelerator can use of its interfaces."""
    known = [s for s in catalog.systems().values() if s.scale_out and s.scale_out.usable_bytes_per_s]
    assert known
    for system in known:
        far = max(system.domain_size, system.per_node)
        calls: tuple[Call, ...] = (("all_reduce", "all", (0, far), 0, 100),)
        graph = traced(far + 1, *calls, nbytes=[1_000_000])
        found = flows(on(graph, {"all": (0, far)}, system=system.id))
        out = system.scale_out
        assert out.usable_bytes_per_s is not None
        rate = out.usable_bytes_per_s * out.nics / system.per_node
        assert found.demand == pytest.approx(1e6 / 100e-6 / rate), system.id
        assert found.per_node == far


def test_transfers_of_a_group_are_told_by_kind() -> None:
    graph = traced(4, *CALLS, nbytes=[5, 5, 0, 5], known=(True, True, True, False))
    found = transfers_by_group(on(graph, ALL), "all_reduce", "all_gather", "send")
    expected = {("all_reduce", "near"): [0, 0], ("all_reduce", "far"): [20_000, 20_000]}
    assert {word: graph.nodes.start[at].tolist() for word, at in found.items()} == expected
    assert set(transfers_by_group(on(graph, {**ALL, "near": (0,)}), "all_reduce")) == {("all_reduce", "far")}
    assert not transfers_by_group(on(graph, ALL), "broadcast")
    since = np.where(graph.nodes.start == 20_000, 0, -1).tolist()
    inside = transfers_by_group(subject(graph, groups=ALL, since=since), "all_reduce")
    assert set(inside) == {("all_reduce", "far")}


def test_peers_of_a_group_that_nobody_states_are_those_that_met() -> None:
    graph = traced(4, *CALLS[:3])
    at = np.flatnonzero((graph.nodes.kind == n.TRANSFER) & (graph.nodes.rank == 0))
    assert group_ranks(on(graph, ALL), at) == [(0, 1), (0, 2), (0, 1, 2, 3)]
    assert group_ranks(on(graph, {"far": (0, 2)}), at[1:2]) == [(0, 2)]
    every = np.flatnonzero(graph.nodes.kind == n.TRANSFER)
    assert set(group_ranks(on(graph, {}), every)) == {(0, 1), (0, 2), (0, 1, 2, 3)}
    unmatched = traced(4, *CALLS[:1], known=(False,))
    with pytest.raises(InputError, match="collectives whose process group is unknown may or may not"):
        group_ranks(on(unmatched, {}), np.flatnonzero(unmatched.nodes.kind == n.TRANSFER))


def test_transfers_between_nodes_are_in_the_order_of_their_data() -> None:
    graph = traced(4, *CALLS[:3])
    at = between_nodes(on(graph, ALL, per_node=2))
    ranks, starts = graph.nodes.rank[at].tolist(), graph.nodes.start[at].tolist()
    assert ranks == [0, 0, 1, 2, 2, 3]
    assert starts == [20_000, 60_000, 60_000] * 2
    with pytest.raises(InputError, match="which ranks share a node; give --per-node N, or --system ID"):
        between_nodes(on(graph, ALL))
    assert not len(between_nodes(on(graph, dict.fromkeys(ALL, (2,)), per_node=2)))


def sharing(*spans: tuple[float, float], demand: Sequence[float] = (), after: float = 1.0) -> list[float]:
    """When flows over one link that carried all of them end, µs, where it carries `after`."""
    calls: tuple[Call, ...] = tuple(
        ("all_reduce", f"g{i}", (2 * i, 2 * i + 1), begin, end) for i, (begin, end) in enumerate(spans)
    )
    graph = traced(2 * len(spans), *calls)
    found = flows(on(graph, {f"g{i}": (2 * i, 2 * i + 1) for i in range(len(spans))}, per_node=1))
    wanted = np.array(demand or [1.0] * len(spans))[np.argsort(np.argsort(found.gate))]
    object.__setattr__(found, "demand", wanted)
    made = share_links(graph, found, np.ones((len(spans), 1)), np.array([100.0]), np.array([after]))
    times = simulate_nodes(made.nodes, made.cut)
    ends = [0.0] * len(spans)
    for i, end in zip(found.nodes.tolist(), times.end[found.nodes].tolist(), strict=True):
        ends[int(graph.nodes.rank[i]) // 2] = end / 1_000
    return ends


@pytest.mark.parametrize(
    ("spans", "after", "demand", "ends"),
    [
        # alone, and one behind the other
        ([(0, 100)], 1.0, (), [100]),
        ([(0, 100)], 0.5, (), [200]),
        ([(0, 100), (100, 150)], 1.0, (), [100, 150]),
        # together: a half each
        ([(0, 100), (0, 100)], 1.0, (), [200, 200]),
        ([(0, 100), (0, 100)], 2.0, (), [100, 100]),
        # the shorter one has a half until 100; then the longer one all of what is left, 50
        ([(0, 50), (0, 100)], 1.0, (), [100, 150]),
        # one comes at 60: 60 are moved, then 40 at a half until 140; of the other's 100 60 are left then
        ([(0, 100), (60, 160)], 1.0, (), [140, 200]),
        # a quarter and a whole of one link: 1/4 and 3/4; the second has moved 75 of 100 when the first ends
        ([(0, 100), (0, 100)], 1.0, (0.25, 1.0), [100, 125]),
    ],
)
def test_flows_share_a_link(
    spans: list[tuple[float, float]], after: float, demand: tuple[float, ...], ends: list[float]
) -> None:
    assert sharing(*spans, demand=demand, after=after) == pytest.approx(ends, abs=0.01)


def test_where_only_files_tell_nodes_a_node_has_as_many_interfaces_as_take_part() -> None:
    calls: tuple[Call, ...] = (("all_reduce", "all", (0, 1, 2), 0, 10),)
    machine = Machine(ranks=(0, 1, 2), captures={0: 0, 1: 0, 2: 1})
    found = flows(subject(traced(3, *calls), groups={"all": (0, 1, 2)}, machine=machine))
    assert sorted(zip(found.place.tolist(), found.local.tolist(), strict=True)) == [(0, 0), (0, 1), (1, 0)]
    assert found.per_node == 2


def test_of_two_transfers_at_once_the_one_launched_first_by_any_rank_comes_first() -> None:
    """Both move from 20 on; rank 0 launches the second stream's at 0, the first's at 1; rank 1 at 6, 5."""
    made = []
    for r, launched in enumerate(((1, 0), (5, 6))):
        launches = [item("cudaLaunchKernel", at, at + 0.1, corr=i) for i, at in enumerate(launched)]
        work = [item(f"t{i}", 20, 30, lane=(0, 9 + i), call=i, corr=i) for i in (0, 1)]
        made.append(rank(r, launches=launches, work=work, instances=[0, 1], windows=[(0, 0, 30)]))
    graph = build_graph(made)
    at = between_nodes(on(graph, {"0-1": (0, 1)}, per_node=1))
    assert [graph.names[code] for code in graph.nodes.name[at]] == ["t1", "t0", "t1", "t0"]


BOTH = [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
INF = np.inf


@pytest.mark.parametrize(
    ("use", "capacity", "demand", "rates"),
    [
        # links of 10 and 4: A uses both, B the first, C the second; C and A share 4, B has the rest of 10
        (BOTH, [10.0, 4.0], [INF] * 3, [2.0, 8.0, 2.0]),
        # C wants 1 alone: A has 3, B 7
        (BOTH, [10.0, 4.0], [INF, INF, 1.0], [3.0, 7.0, 1.0]),
        # who loads a link twice fills it at half the rate: x + 2 x = 9
        ([[1.0], [2.0]], [9.0], [INF] * 2, [3.0, 3.0]),
        # without links in the way demands are met
        ([[0.0], [0.0]], [1.0], [5.0, 0.0], [5.0, 0.0]),
    ],
)
def test_rates_by_hand(use: Any, capacity: Any, demand: Any, rates: list[float]) -> None:
    assert max_min(np.array(use), np.array(capacity), np.array(demand)).tolist() == rates


@st.composite
def networks(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    flows, links = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    use = [[draw(st.sampled_from((0, 0, 1, 1, 2, 8))) for _ in range(links)] for _ in range(flows)]
    capacity = [draw(st.floats(0.1, 100)) for _ in range(links)]
    demand = [draw(st.floats(0.01, 200)) for _ in range(flows)]
    return np.array(use, float), np.array(capacity), np.array(demand)


@given(networks())
def test_rates_are_max_min_fair(network: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """Feasible, and each flow is at its demand or crosses a full link on which no flow is faster."""
    use, capacity, demand = network
    rate = max_min(use, capacity, demand)
    load = rate @ use
    assert (load <= capacity * (1 + 1e-9)).all()
    assert (rate <= demand * (1 + 1e-9)).all()
    full = load >= capacity * (1 - 1e-9)
    for flow, own in enumerate(rate):
        fastest = [rate[use[:, link] > 0].max() for link in np.flatnonzero(full & (use[flow] > 0))]
        assert own >= demand[flow] * (1 - 1e-9) or any(own >= other * (1 - 1e-9) for other in fastest)


APART, TOGETHER = Machine(Hardware(per_node=1)), Machine(Hardware(per_node=2))
NOTHING = "no transfer within the run's windows leaves a node"


def test_a_proxy_drains_the_interface_behind_each_message() -> None:
    graph = reduced((0, 20, 1_000, 0), (100, 130, 1_000, 0))
    made = changed(fence(subject(graph, groups=PAIR, machine=APART), 7_000))
    # a ring of two has two steps
    assert made.nodes.dur[transfers_of(made)].tolist() == [34_000, 44_000]
    since = np.where(graph.nodes.start < 50_000, -1, 0)
    part = changed(fence(subject(graph, groups=PAIR, machine=APART, since=since.tolist()), 7_000))
    assert part.nodes.dur[transfers_of(part)].tolist() == [20_000, 44_000]
    for kind, messages in {"send": 1, "recv": 1, "all_to_all": 1, "all_gather": 1, "broadcast": 1}.items():
        object.__setattr__(graph.transfers, "kind", (kind,) * 4)
        again = changed(fence(subject(graph, groups=PAIR, machine=APART), 1_000))
        expected = [20_000 + messages * 1_000, 30_000 + messages * 1_000]
        assert again.nodes.dur[transfers_of(again)].tolist() == expected
    assert fence(subject(graph, groups=PAIR, machine=TOGETHER), 1) == NOTHING
    assert fence(subject(graph, groups=PAIR, machine=APART, since=[-1] * len(since)), 1) == NOTHING


def test_an_all_to_all_sends_a_message_to_each_peer_on_another_node() -> None:
    """Of three ranks two share a node: the third sends two, and the others wait for it."""
    made = [
        rank(r, work=[item("nccl", 0, 20, lane=COMM, call=0)], instances=[0], size=3, windows=[(0, 0, 20)])
        for r in range(3)
    ]
    graph = build_graph(made)
    object.__setattr__(graph.transfers, "kind", ("all_to_all",) * 3)
    found = changed(fence(subject(graph, groups={"0-2": (0, 1, 2)}, machine=TOGETHER), 1_000))
    assert [found.nodes.dur[transfers_of(found, r)].tolist() for r in range(3)] == [[22_000]] * 3


@pytest.mark.parametrize(("machine", "leaves"), [(APART, True), (TOGETHER, False)])
def test_a_group_alone_on_its_nodes_fills_their_interfaces(machine: Machine, leaves: bool) -> None:
    """Two transfers, one behind the other: each has all of its node's one interface, of which 1/2 is left."""
    one = subject(reduced((0, 20, 1_000, 0), (100, 130, 1_000, 0)), groups=PAIR, machine=machine)
    if not leaves:
        assert oversubscription(one, 2.0) == rails(one, 2.0) == NOTHING
        assert failed_links(one, (0, 0.5)) == NOTHING.replace("leaves a node", "leaves or reaches node 0")
        return
    for made in (changed(oversubscription(one, 2.0)), changed(failed_links(one, (1, 0.5)))):
        assert made.nodes.dur[transfers_of(made)].tolist() == [40_000, 60_000]
    assert "leaves or reaches node 2" in str(failed_links(one, (2, 0.5)))
    quarter = changed(failed_links(one, (0, 0.75)))
    assert quarter.nodes.dur[transfers_of(quarter)].tolist() == [80_000, 120_000]
    assert rails(one, 2.0) == "all transfers between nodes stay on their rails"


def test_circuits_are_set_anew_for_each_process_group() -> None:
    """Two groups in turn, each rank a node: from the end of one's transfer 30 µs to the other's."""
    graph = reduced((0, 20, 1_000, 0), (25, 45, 1_000, 0), (60, 80, 1_000, 0))
    object.__setattr__(graph.transfers, "group", ("0-1", "x", "0-1") * 2)
    groups = {"0-1": (0, 1), "x": (1, 0)}
    made = changed(reconfiguration(subject(graph, groups=groups, machine=APART), 30_000))
    times = simulate_nodes(made.nodes, made.cut)
    assert times.end[transfers_of(made)].tolist() == [20_000, 70_000, 120_000]
    since = np.where(graph.nodes.start < 50_000, -1, 0)
    late = changed(
        reconfiguration(subject(graph, groups=groups, machine=APART, since=since.tolist()), 30_000)
    )
    assert simulate_nodes(late.nodes, late.cut).end[transfers_of(late)].tolist() == [20_000, 45_000, 95_000]
    same = {"0-1": (0, 1), "x": (0, 1)}
    alone = "no rank communicates with more than one process group between nodes"
    assert reconfiguration(subject(graph, groups=same, machine=APART), 30_000) == alone


POD = catalog.system("google-tpu-v4-pod")
"""16 x 16 x 16 chips, numbered along the last axis first; axes that are whole close into rings."""


def costs_of(ranks: int, kind: str = "all_gather") -> tuple[CollectiveCost, CollectiveCost]:
    """Of a slice of the first so many chips: along its own axes, and with all links."""
    group = group_of(POD, range(ranks))
    assert not isinstance(group, NoPrice)
    found = {
        cost.algorithm: cost for cost in algorithm_costs(kind, group, EXPECTED, algorithm="torus_egress")
    }
    return found["torus_bucket"], found["torus_egress"]


@pytest.mark.parametrize(
    ("ranks", "idle"),
    [
        (16, 2 / 3),  # one ring: four of a chip's six links lie idle
        (256, 1 / 3),  # rings along two axes
        (4, 5 / 6),  # a line of four: of the axis' two links an end chip uses one
        (64, 1 - 1.5 / 3),  # a ring of 16 by a line of four
        (4096, 0.0),  # the whole pod has no idle link
    ],
)
def test_idle_links_are_a_matter_of_the_slice_s_shape(ranks: int, idle: float) -> None:
    own, all_links = costs_of(ranks)
    assert 1 - (all_links.beta_s_per_byte / own.beta_s_per_byte) == pytest.approx(idle, abs=1e-9)


def test_an_all_reduce_is_both_halves() -> None:
    own, all_links = costs_of(16, "all_reduce")
    assert own.beta_s_per_byte / all_links.beta_s_per_byte == pytest.approx(3)
    assert all_links.beta_s_per_byte == pytest.approx(2 * costs_of(16)[1].beta_s_per_byte)
    # half of 16 hops, there and back, at 1 µs each
    assert all_links.steps[1].count == 16


def test_it_is_asked_for_by_name_and_never_slower() -> None:
    sizes = np.array([1024.0, 1 << 20, 1 << 30])
    for ranks in (4, 16, 64, 256, 4096):
        own, given, chosen = (
            price_collective("all_reduce", sizes, range(ranks), POD, algorithm=name)
            for name in ("torus_bucket", "torus_egress", None)
        )
        assert not isinstance(own, NoPrice)
        assert not isinstance(given, NoPrice)
        assert not isinstance(chosen, NoPrice)
        assert (given.formula_s <= own.formula_s * (1 + 1e-12)).all()
        assert "torus_egress" not in chosen.algorithm
    refused = price_collective("all_to_all", 1 << 20, range(16), POD, algorithm="torus_egress")
    assert isinstance(refused, NoPrice)
