# SPDX-License-Identifier: Apache-2.0
"""Transfers between nodes as flows that share links: their times when links are slower or shared differently.

A flow demands the rate it had as measured, in units of one accelerator's part of its node's interfaces: bytes
over time and the interface's rate if the catalog states one, else one interface.  Flows that load a link at
the same time share it max-min fairly (`max_min`); a flow's work is what it moved at those rates as measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cclbench.classify import bus_factor
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.hardware.collectives.cost import Floats
from cclbench.hardware.collectives.group import NETWORK_SHARE
from cclbench.hardware.collectives.p2p import PAIRS
from cclbench.hardware.system import System
from cclbench.replay.change import ChangeSubject
from cclbench.replay.graph import Graph
from cclbench.replay.simulate import simulate_nodes
from cclbench.studies.networks.fairness import max_min
from cclbench.studies.networks.transfers import between_nodes, group_ranks

_SETTLED_NS, _SETTLED_SHARE = 2, 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Flows:
    """Transfers between nodes, one flow per instance, shape (flows,).

    Arrays of shape (parts,): `nodes` of the graph; `flow`, the flow of each; `place` and `local`, its node
    of the machine and its device there; `sends` and `receives`, the directions in which it uses its
    interface.  Arrays of shape (flows,): `gate`, `measured_ns` and `demand`, in interfaces.
    """

    nodes: Int64
    flow: Int64
    place: Int64
    local: Int64
    sends: npt.NDArray[np.bool_]
    receives: npt.NDArray[np.bool_]
    gate: Int64
    measured_ns: Int64
    demand: Floats
    per_node: int
    """Accelerators per node; each has one interface, or its share of the node's."""

    def link_loads(self, link: Int64, links: int) -> Floats:
        """Interfaces of each link used by each flow, out and in, shape (flows, 2 · links).

        `link` is each part's link, −1 for none.
        """
        use = np.zeros((len(self.gate), 2 * links))
        for direction, chosen in enumerate((self.sends, self.receives)):
            linked = chosen & (link >= 0)
            np.add.at(use, (self.flow[linked], 2 * link[linked] + direction), 1.0)
        return use


def flows_of(subject: ChangeSubject) -> Flows | None:
    """The flows within windows; None if no transfer leaves a node."""
    graph, nodes, calls = subject.graph, subject.graph.nodes, subject.graph.transfers
    transfers = between_nodes(subject)
    gates = graph.transfer_gates()
    gates_in_windows = np.unique(gates[transfers[subject.since[transfers] >= 0]])
    transfers = transfers[np.isin(gates[transfers], gates_in_windows)]
    if not len(transfers):
        return None
    system = subject.machine.system.value
    ranks = nodes.rank[transfers].tolist()
    places = dict(zip(ranks, _node_places(subject, system, ranks), strict=True))
    per_node = _accelerators_held(system) if system else subject.machine.per_node.value
    place, local = (np.array([places[rank][i] for rank in ranks], np.int64) for i in (0, 1))
    gate, flow = np.unique(gates[transfers], return_inverse=True)
    lowest_place = np.full(len(gate), np.iinfo(np.int64).max)
    np.minimum.at(lowest_place, flow, place)
    kinds = np.array([calls.kind[call] or "" for call in nodes.call[transfers].tolist()], np.str_)
    alone = (np.bincount(flow) == 1)[flow]
    # a pair in a pipeline's group may share a node; half a pair has its other half on another node
    crosses = (np.bincount(flow, place != lowest_place[flow]) > 0)[flow] | alone
    transfers, place, local, kinds = (column[crosses] for column in (transfers, place, local, kinds))
    if not len(transfers):
        return None
    gate, flow = np.unique(gates[transfers], return_inverse=True)
    measured_ns = np.zeros(len(gate), np.int64)
    np.maximum.at(measured_ns, flow, nodes.dur[transfers])
    demand = np.ones(len(gate))
    rate = _interface_bytes_per_s(system)
    if rate is not None:
        members = zip(nodes.call[transfers].tolist(), group_ranks(subject, transfers), strict=True)
        size = np.array([_bytes_sent(subject, call, group) for call, group in members], np.float64)
        moved = np.zeros(len(gate))
        np.maximum.at(moved, flow, size)
        has_rate = (moved > 0) & (measured_ns > 0)
        demand[has_rate] = moved[has_rate] / (measured_ns[has_rate] / 1e9) / rate
    held = int(np.bincount(place).max()) if per_node is None else per_node
    return Flows(
        transfers, flow, place, local, kinds != "recv", kinds != "send", gate, measured_ns, demand, held
    )


def _accelerators_held(system: System) -> int:
    """Accelerators of a node, or of a scale-up domain of several nodes."""
    return max(system.domain_size, system.per_node)


def _node_places(
    subject: ChangeSubject, system: System | None, ranks: Sequence[int]
) -> list[tuple[int, int]]:
    """Node, or scale-up domain of several, of each rank, and its position there."""
    placed = None if system is None else subject.machine.numbered_in(system, ranks)
    if system is not None and placed is not None:
        return [divmod(position, _accelerators_held(system)) for position in placed]
    devices = [subject.machine.device_of(rank) for rank in ranks]
    assert None not in devices  # noqa: S101 - the groups' tiers are known
    return [device for device in devices if device is not None]


def _interface_bytes_per_s(system: System | None) -> float | None:
    """One accelerator's part of its node's interfaces, B/s."""
    if system is None or system.scale_out is None or system.scale_out.bytes_per_s is None:
        return None
    out = system.scale_out
    line = out.usable_bytes_per_s or out.bytes_per_s * NETWORK_SHARE  # type: ignore[operator]
    return line * out.nics / system.per_node


def _bytes_sent(subject: ChangeSubject, call: int, members: tuple[int, ...]) -> float:
    """Bytes that pass the interface of one of the call's ranks; 0 if not known."""
    calls = subject.graph.transfers
    kind, size = calls.kind[call], int(calls.bytes[call])
    if size <= 0 or kind is None:
        return 0.0
    if kind in PAIRS:
        return float(size)
    places = [place for place, _ in _node_places(subject, subject.machine.system.value, members)]
    together = len(members) / len(set(places))
    if kind == "all_to_all":
        return size * (len(members) - together) / len(members)
    return size * bus_factor(kind, len(members)) / together


def share_links(graph: Graph, flows: Flows, use: Floats, before: Floats, after: Floats) -> Graph:
    """The graph whose flows share links of capacity `after`, shape (links,), instead of `before`.

    Durations depend on when flows begin, and that on durations: replays are repeated, each exact for at least
    one more begin or end, until no duration changes by more than a millionth of the time of all flows.
    """
    starts = simulate_nodes(graph.nodes, graph.cut).start[flows.gate]
    work = _moved_by_flows(starts, starts + flows.measured_ns, use, before, flows.demand)
    durations = flows.measured_ns
    settled = max(_SETTLED_NS, int((starts + durations).max() - starts.min()) // _SETTLED_SHARE)
    for _ in range(2 * len(durations) + 1):
        new = np.rint(_flow_ends(starts, work, use, after, flows.demand) - starts).astype(np.int64)
        if abs(new - durations).max() <= settled:
            return _set_durations(graph, flows, new)
        durations = new
        starts = simulate_nodes(_set_durations(graph, flows, durations).nodes, graph.cut).start[flows.gate]
    raise InputError("the replay of transfers that share links does not converge")


def _set_durations(graph: Graph, flows: Flows, durations: Int64) -> Graph:
    """The graph with these durations of flows, their parts scaled in proportion."""
    dur = graph.nodes.dur.copy()
    factor = durations / np.maximum(flows.measured_ns, 1)
    dur[flows.nodes] = np.rint(dur[flows.nodes] * factor[flows.flow]).astype(np.int64)
    return replace(graph, nodes=replace(graph.nodes, dur=dur))


class _Rates:
    """Rates of sets of concurrent flows, cached."""

    def __init__(self, use: Floats, capacity: Floats, demand: Floats) -> None:
        self.use, self.capacity, self.demand = use, capacity, demand
        self.known: dict[tuple[int, ...], Floats] = {}

    def rates_of(self, running: Sequence[int]) -> Floats:
        key = tuple(running)
        if key not in self.known:
            chosen = list(key)
            self.known[key] = max_min(self.use[chosen], self.capacity, self.demand[chosen])
        return self.known[key]


def _moved_by_flows(start: Int64, end: Int64, use: Floats, capacity: Floats, demand: Floats) -> Floats:
    """Work each flow does from start to end at its fair rates, interfaces × ns."""
    rates, work = _Rates(use, capacity, demand), np.zeros(len(start))
    running: set[int] = set()
    edges = sorted(
        [(at, 1, flow) for flow, at in enumerate(start.tolist())]
        + [(at, 0, flow) for flow, at in enumerate(end.tolist())]
    )
    last = 0
    for at, begins, flow in edges:
        if running and at > last:
            chosen = sorted(running)
            work[chosen] += rates.rates_of(chosen) * (at - last)
        last = at
        if begins and end[flow] > start[flow]:
            running.add(flow)
        else:
            running.discard(flow)
    return work


def _flow_ends(start: Int64, work: Floats, use: Floats, capacity: Floats, demand: Floats) -> Floats:
    """Ends of flows with the given starts and work, ns."""
    rates, remaining = _Rates(use, capacity, demand), work.copy()
    end = start.astype(np.float64)
    waiting = [flow for flow in np.argsort(start, kind="stable")[::-1].tolist() if work[flow] > 0]
    running: list[int] = []
    now = 0.0
    while waiting or running:
        if not running:
            now = float(start[waiting[-1]])
        while waiting and start[waiting[-1]] <= now:
            running.append(waiting.pop())
        running.sort()
        rate = rates.rates_of(running)
        lasts = remaining[running] / rate
        step = float(lasts.min())
        if waiting:
            step = min(step, float(start[waiting[-1]]) - now)
        remaining[running] -= rate * step
        now += step
        over = lasts <= step * (1 + 1e-12)
        end[np.array(running)[over]] = now
        running = [flow for flow, done in zip(running, over.tolist(), strict=True) if not done]
    return end
