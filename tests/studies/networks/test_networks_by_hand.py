# SPDX-License-Identifier: Apache-2.0
"""What networks of papers do to graphs made by hand: durations and waits, in ns."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.replay_rows import item, rank
from helpers.replay_subjects import PAIR, changed, reduced, subject, transfers_of

from cclbench.card.model import Hardware
from cclbench.machine import Machine
from cclbench.replay.graph import build_graph
from cclbench.replay.simulate import simulate_nodes
from cclbench.studies.networks.failed_links import failed_links
from cclbench.studies.networks.fence import fence
from cclbench.studies.networks.oversubscription import oversubscription
from cclbench.studies.networks.rails import rails
from cclbench.studies.networks.reconfiguration import reconfiguration

COMM = (0, 9)
APART, TOGETHER = Machine(Hardware(per_node=1)), Machine(Hardware(per_node=2))


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
    nothing = "no transfer within the run's windows leaves a node"
    assert fence(subject(graph, groups=PAIR, machine=TOGETHER), 1) == nothing
    assert fence(subject(graph, groups=PAIR, machine=APART, since=[-1] * len(since)), 1) == nothing


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
        nothing = "no transfer within the run's windows leaves a node"
        assert oversubscription(one, 2.0) == rails(one, 2.0) == nothing
        assert failed_links(one, (0, 0.5)) == (
            "no transfer within the run's windows leaves or reaches node 0"
        )
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
