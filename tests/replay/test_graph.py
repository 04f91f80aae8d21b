# SPDX-License-Identifier: Apache-2.0
"""Ranks put together into one graph: their numbers, rendezvous, and with what transfers begin."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.replay_rows import item, launch, rank
from helpers.replay_subjects import subject

from cclbench.card.model import Hardware
from cclbench.ground.errors import InputError
from cclbench.hardware import catalog
from cclbench.hardware.collectives import price_collective
from cclbench.machine import Machine
from cclbench.replay import nodes as n
from cclbench.replay.graph import build_graph
from cclbench.replay.modelled import modelled_group, modelled_s
from cclbench.replay.simulate import simulate_nodes
from cclbench.replay.tables import GraphInput


def ranks(*arrivals: float) -> list[GraphInput]:
    """A kernel up to its arrival on each, an all-reduce of 20 µs; on the first rank one alone before."""
    done, made = max(arrivals) + 20, []
    for r, at in enumerate(arrivals):
        alone = [item("x", 2, 4, lane=(0, 9), call=0)] if r == 0 else []
        work = [
            item(f"k{r}", 5, at, 1, category="gemm"),
            item("nccl", at, done, call=len(alone), lane=(0, 7)),
        ]
        more = {"instances": [3, 5] if r == 0 else [5], "size": len(arrivals), "windows": [(0, 0, done)]}
        made.append(rank(r, launches=[launch(0, 1)], work=[*work, *alone], **more))
    object.__setattr__(made[0].calls, "complete", np.array([False, True]))
    return made


def test_ranks_keep_their_own_numbers_one_behind_the_other() -> None:
    graph = build_graph(ranks(60, 100, 80))
    nodes, calls = graph.nodes, graph.transfers
    assert calls.instance.tolist() == [3, 5, 5, 5]
    assert calls.known.tolist() == [False, True, True, True]
    assert calls.size.tolist() == [3] * 4
    own = [nodes.call[(nodes.rank == r) & (nodes.kind == n.TRANSFER)].tolist() for r in range(3)]
    assert own == [[1, 0], [2], [3]]
    assert (nodes.call[nodes.kind == n.HOST] == -1).all()
    fed = np.flatnonzero(nodes.feeder >= 0)
    assert nodes.rank[fed].tolist() == nodes.rank[nodes.feeder[fed]].tolist() == [0, 1, 2]
    assert (nodes.kind[nodes.feeder[fed]] == n.HOST).all()
    assert [graph.names[code] for code in nodes.name[fed].tolist()] == ["k0", "k1", "k2"]
    assert {graph.categories[code] for code in nodes.category[fed].tolist()} == {"gemm"}
    assert [one.rank for one in graph.windowed] == [0, 1, 2]
    lanes = [{*nodes.lane[nodes.rank == r].tolist()} for r in range(3)]
    assert [len(own) for own in lanes] == [3, 2, 2]
    assert len(set.union(*lanes)) == 7


def test_a_meeting_is_when_the_last_rank_arrives() -> None:
    graph = build_graph(ranks(60, 100, 80))
    nodes = graph.nodes
    meet = np.flatnonzero(nodes.kind == n.RENDEZVOUS)
    columns = (nodes.start, nodes.end, nodes.rank)
    assert [column[meet].tolist() for column in columns] == [[100_000], [100_000], [-1]]
    together = np.flatnonzero((nodes.kind == n.TRANSFER) & (nodes.start >= 50_000))
    assert nodes.start[together].tolist() == [100_000] * 3
    assert nodes.dur[together].tolist() == [20_000] * 3
    source, target, lag = graph.wait_edges()
    met = (source == meet[0]) | (target == meet[0])
    found = sorted(zip(source[met].tolist(), target[met].tolist(), lag[met].tolist(), strict=True))
    assert found == sorted(
        [(int(at) - 1, int(meet[0]), 0) for at in together] + [(int(meet[0]), int(at), 0) for at in together]
    )
    gates = graph.transfer_gates()
    alone = np.flatnonzero((nodes.kind == n.TRANSFER) & (nodes.start < 50_000))
    assert gates[together].tolist() == [int(meet[0])] * 3
    assert gates[alone].tolist() == alone.tolist()
    assert (gates[nodes.kind != n.TRANSFER] == -1).all()
    assert simulate_nodes(nodes, graph.cut).end.tolist() == nodes.end.tolist()


def test_a_meeting_of_which_a_rank_is_not_replayed_is_none() -> None:
    graph = build_graph(ranks(60, 100, 80)[1:])
    assert not graph.transfers.known.any()
    assert not (graph.nodes.kind == n.RENDEZVOUS).any()
    # sends and receives meet in pairs
    made = ranks(60, 100)
    object.__setattr__(made[0].calls, "kind", ("all_reduce", "send"))
    object.__setattr__(made[1].calls, "kind", ("recv",))
    object.__setattr__(made[1].calls, "size", np.array([8]))
    assert build_graph(made).transfers.size.tolist() == [2, 2, 2]
    # a graph of no ranks
    empty = build_graph([])
    assert (len(empty.nodes), empty.names, empty.windowed) == (0, (), ())


def test_further_waits() -> None:
    graph = build_graph(ranks(60, 100))
    nodes = graph.nodes
    first, second = (int(np.flatnonzero((nodes.kind == n.COMPUTE) & (nodes.rank == r))[0]) for r in (0, 1))
    more = graph.with_waits(np.array([first]), np.array([second]), np.array([7_000]))
    assert simulate_nodes(nodes, more.cut).start[second] == 67_000
    assert len(more.wait_edges()[0]) == len(graph.wait_edges()[0]) + 1
    with pytest.raises(InputError, match="wait for one another in a circle"):
        more.with_waits(np.array([second]), np.array([first]), np.array([0]))


def test_a_graph_in_no_doubt_is_the_same_without_it() -> None:
    graph = build_graph(ranks(60, 100, 80))
    assert not graph.has_doubt
    certain, plain = (simulate_nodes(one.nodes, one.cut) for one in (graph.without_doubt(), graph))
    assert certain.start.tolist() == plain.start.tolist()
    assert certain.end.tolist() == plain.end.tolist()
    late = replace(graph, nodes=replace(graph.nodes, doubt=np.arange(len(graph.nodes))))
    assert late.has_doubt
    assert replace(graph, assumed=graph.wait_edges()[:2]).has_doubt


def test_modelled_times_are_the_formula_s_of_the_named_machine() -> None:
    empty = build_graph([])
    one = subject(empty, machine=Machine(Hardware(system="dgx-h100")))
    known = price_collective("send_recv", [1 << 20], (0, 1), catalog.system("dgx-h100"))
    for kind in ("send", "recv", "send_recv"):
        assert modelled_s(one, "it", kind, (0, 1), [1 << 20]).tolist() == known.formula_s.tolist()
    assert modelled_group(one, "it", (0, 1)).ranks == 2
    with pytest.raises(InputError, match="dgx-h100: it: "):
        modelled_s(one, "it", "broadcast", (0, 1), [1], algorithm="halving_doubling")
    with pytest.raises(InputError, match="it: needs a named machine; give --system ID"):
        modelled_s(subject(empty), "it", "all_reduce", (0, 1), [1])
