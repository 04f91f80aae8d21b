# SPDX-License-Identifier: Apache-2.0
"""Tasks of the replay's graph in formats of simulators, also of real runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cclbench
from cclbench.api import export
from cclbench.export import chakra
from cclbench.export.check import read_folder, schedule_workload, step_ns
from cclbench.export.issue import issue_workload
from cclbench.export.resources import share_resources
from cclbench.export.tasks import behind_transfers, graph_dependencies, rank_tasks
from cclbench.ground.errors import InputError
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph, Transfers
from cclbench.replay.simulate import NodeTimes, cut_pieces, simulate_nodes
from cclbench.replay.tables import Windowed

H0, H1, H2, K0, K1, ARRIVAL, TRANSFER, C, ARRIVAL_1, TRANSFER_1, MEETING = range(11)


NOTHING_ELSE: dict[str, Any] = {"categories": (), "names": (), "inferred": Counter(), "traced": Counter()}
NOTHING_ELSE |= {"windowed": tuple(Windowed(rank, False, "device", (), ()) for rank in (0, 1))}
NOTHING_ELSE |= {"assumed": (np.empty(0, np.int64), np.empty(0, np.int64))}
"""Of a graph of two ranks: no names, nothing inferred."""


def transfers(nbytes: int, *instances: int) -> Transfers:
    """All-reduces of two ranks, of those instances."""
    count = len(instances)
    sizes = np.full(count, 2), np.full(count, nbytes), np.ones(count, np.bool_)
    return Transfers(("all_reduce",) * count, ("0-1",) * count, *sizes, np.array(instances))


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Two ranks, times in ns. Rank 0: a thread H0, 10 later H1, 20 of its own later H2, which also waits for
    K1 and returns 5 behind it.  A stream: K0 of 30, launched by H0, K1 of 5, launched by H1, both with 3 of
    latency and 2 between them, then a collective, 1 behind.  Another stream: C of 4 begins 10 before K0's
    end.  Rank 1 has its part of the collective alone, from 100 on; the transfer takes 50."""
    nodes = n.blank_nodes(
        11,
        rank=[0] * 8 + [1, 1, -1],
        lane=[0, 0, 0, 1, 1, 1, 1, 2, 3, 3, 4],
        kind=[n.HOST] * 3
        + [n.COMPUTE] * 2
        + [n.ARRIVAL, n.TRANSFER, n.COMPUTE, n.ARRIVAL, n.TRANSFER, n.RENDEZVOUS],
        start=[0, 10, 45, 3, 35, 41, 100, 23, 100, 100, 100],
        gap=[0, 10, 20, 0, 2, 1, 0, 0, 0, 0, 0],
        dur=[0, 0, 0, 30, 5, 0, 50, 4, 0, 50, 0],
        feeder=[-1, -1, -1, H0, H1, -1, -1, -1, -1, -1, -1],
        feed_lag=[0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0],
        call=[-1, -1, -1, -1, -1, 0, 0, -1, 1, 1, -1],
    )
    edges = [
        (K1, H2, 5), (K0, C, -10), (ARRIVAL, MEETING, 0), (ARRIVAL_1, MEETING, 0), (MEETING, TRANSFER, 0),
        (MEETING, TRANSFER_1, 0),
    ]  # fmt: skip
    source, target, lag = (np.array(column, np.int64) for column in zip(*edges, strict=True))
    cut = cut_pieces(nodes, source, target, lag)
    return Graph(nodes=nodes, cut=cut, transfers=transfers(1_024, 0, 0), **NOTHING_ELSE)


@pytest.fixture(scope="module")
def times(graph: Graph) -> NodeTimes:
    found = simulate_nodes(graph.nodes, graph.cut)
    assert found.end.tolist() == [0, 10, 45, 33, 40, 41, 150, 27, 100, 150, 100]
    return found


def made(graph: Graph, times: NodeTimes, place: int, *, simulated: bool = False) -> list[tuple[object, ...]]:
    """Role, begin, end and what each task waits for."""
    found = rank_tasks(graph, times, graph_dependencies(graph), place, (), simulated=simulated)
    assert [task.id for task in found.tasks] == list(range(len(found.tasks)))
    assert not found.clipped
    return [(t.role, t.start, t.end, sorted(each.id for each in t.after)) for t in found.tasks]


def test_lags_are_tasks_and_what_is_overtaken_is_cut(graph: Graph, times: NodeTimes) -> None:
    assert made(graph, times, 0) == [
        ("host", 0, 0, []),
        ("host", 0, 10, [0]),  # H1 and the thread's time before it
        ("launch", 0, 3, [0]),
        ("compute", 3, 23, [2]),  # K0 up to where C goes on
        ("host", 10, 30, [1]),  # the thread's own time before H2
        ("launch", 10, 13, [1]),
        ("rest", 23, 33, [3]),
        ("compute", 23, 27, [3]),  # C
        ("gap", 33, 35, [6]),
        ("compute", 35, 40, [5, 8]),  # K1
        ("wait", 40, 45, [9]),
        ("gap", 40, 41, [9]),
        ("host", 45, 45, [4, 10]),  # H2
        ("transfer", 100, 150, [11]),
    ]


def test_a_rank_that_begins_later_waits_for_its_begin(graph: Graph, times: NodeTimes) -> None:
    assert made(graph, times, 1) == [("begin", 0, 100, []), ("transfer", 100, 150, [0])]


def test_latencies_that_delay_nothing_are_no_tasks(graph: Graph, times: NodeTimes) -> None:
    """K0 waits for its launch alone; K1, launched before K0 ended, waits for the gap behind K0."""
    found = made(graph, times, 0, simulated=True)
    assert [task for task in found if task[0] == "launch"] == [("launch", 0, 3, [0])]
    k1 = next(task for task in found if task[1:3] == (35, 40))
    assert [found[each][:3] for each in k1[3]] == [("host", 0, 10), ("gap", 33, 35)]  # type: ignore[attr-defined]


def test_a_wait_ends_behind_its_transfer(graph: Graph) -> None:
    """H2 returned 20 before the recorded end of the transfer: for a simulator it waits for all of it."""
    source, target, lag = graph.wait_edges()
    waiting = replace(
        graph,
        cut=cut_pieces(graph.nodes, np.append(source, TRANSFER), np.append(target, H2), np.append(lag, -20)),
    )
    early, whole = (simulate_nodes(each.nodes, each.cut) for each in (waiting, behind_transfers(waiting)))
    expected = ([150, 130], [150, 150])
    assert (early.end[[TRANSFER, H2]].tolist(), whole.end[[TRANSFER, H2]].tolist()) == expected


def test_transfers_follow_one_another_in_the_same_order_on_all_ranks() -> None:
    """Rank 0 comes to A at 0 and to B at 5, rank 1 to B at 0 and to A at 10; A takes 20, B takes 3."""
    arrivals = [0, 5, 10, 0]  # rank 0: A, B; rank 1: A, B
    nodes = n.blank_nodes(
        10,
        rank=[0] * 4 + [1] * 4 + [-1] * 2,
        lane=[0, 0, 1, 1, 2, 2, 3, 3, 4, 5],
        kind=[n.ARRIVAL, n.TRANSFER] * 4 + [n.RENDEZVOUS] * 2,
        start=[t for at, begun in zip(arrivals, (10, 5) * 2, strict=True) for t in (at, begun)] + [10, 5],
        dur=[0, 20, 0, 3] * 2 + [0, 0],
        call=[0, 0, 1, 1, 2, 2, 3, 3, -1, -1],
    )
    a, b = 8, 9
    source = np.array([0, 4, a, a, 2, 6, b, b])
    target = np.array([a, a, 1, 5, b, b, 3, 7])
    cut = cut_pieces(nodes, source, target, np.zeros(8, np.int64))
    graph = Graph(nodes=nodes, cut=cut, transfers=transfers(64, 0, 1, 0, 1), **NOTHING_ELSE)
    times = simulate_nodes(nodes, graph.cut)
    needed = graph_dependencies(graph)
    for place in (0, 1):
        found = rank_tasks(graph, times, needed, place, (), simulated=True)
        first, second = (task for task in found.tasks if task.role == "transfer")
        assert [(task.start, task.end) for task in (first, second)] == [(5, 8), (10, 30)]
        share_resources(found.tasks, {first.node: True, second.node: True})
        assert (first.behind, second.behind) == ([], [first])


# Facts of schema/protobuf/et_def.proto, github.com/mlcommons/chakra at
# 21585d8f2d65603d791d2121e3d4632351120262: number, type, whether it repeats.
OFFICIAL = {
    "AttributeProto": {
        "name": (1, "string", False), "double_val": (3, "double", False), "int32_val": (7, "int32", False),
        "int64_val": (9, "int64", False), "uint64_val": (13, "uint64", False),
        "bool_val": (27, "bool", False), "string_val": (29, "string", False),
    },
    "GlobalMetadata": {"version": (1, "string", False), "attr": (2, "AttributeProto", True)},
    "Node": {
        "id": (1, "uint64", False), "name": (2, "string", False), "type": (3, "enum", False),
        "ctrl_deps": (4, "uint64", True), "data_deps": (5, "uint64", True),
        "start_time_micros": (6, "uint64", False), "duration_micros": (7, "uint64", False),
        "attr": (10, "AttributeProto", True),
    },
}  # fmt: skip
NODE_TYPES = {"COMP_NODE": 4, "COMM_SEND_NODE": 5, "COMM_RECV_NODE": 6, "COMM_COLL_NODE": 7}
COLLECTIVES = {
    "ALL_REDUCE": 0, "REDUCE": 1, "ALL_GATHER": 2, "GATHER": 3, "SCATTER": 4, "BROADCAST": 5, "ALL_TO_ALL": 6,
    "REDUCE_SCATTER": 7, "BARRIER": 9,
}  # fmt: skip


def test_fields_are_those_of_the_official_schema() -> None:
    for message, fields in OFFICIAL.items():
        found = chakra.message_class(message).DESCRIPTOR
        told = {}
        for field in found.fields:
            kind = field.message_type.name if field.message_type else field.type
            told[field.name] = (field.number, kind, field.is_repeated)
        # an enum is an int32 on the wire
        official = {
            name: (number, TYPES.get(kind, kind), repeats) for name, (number, kind, repeats) in fields.items()
        }
        assert told == official
    assert tuple(NODE_TYPES.values()) == (chakra.COMPUTE, chakra.SEND, chakra.RECV, chakra.COLLECTIVE)
    assert {kind.upper(): number for kind, number in chakra.COLLECTIVES.items()} == COLLECTIVES
    alternatives = chakra.message_class("AttributeProto").DESCRIPTOR.oneofs_by_name["value"]
    assert {field.name for field in alternatives.fields} == OFFICIAL["AttributeProto"].keys() - {"name"}


TYPES = {"double": 1, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "enum": 5}


def test_bytes_of_a_node() -> None:
    file = BytesIO()
    chakra.write_node(file, 3, "k", chakra.COMPUTE, [1, 2], [], (1_999, 1_999, 300_000), {"is_cpu_op": False})
    node = bytes.fromhex("0803 1201 6b 1804 2a02 0102 3001 38ab02")  # 1 us; 300 us - 1 us = 299 us
    attributes = [b"\x0a\x08start_ns" + b"\x48\xcf\x0f", b"\x0a\x0bduration_ns" + b"\x48\x91\x98\x12"]
    attributes += [b"\x0a\x09is_cpu_op" + b"\xd8\x01\x00"]
    expected = node + b"".join(b"\x52" + bytes([len(each)]) + each for each in attributes)
    assert file.getvalue() == bytes([len(expected)]) + expected


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "workload.0.et"
    says = {"text": "x" * 300, "whole": -5, "real": 0.5, "yes": True, "comm_src": 7}
    with path.open("wb") as file:
        chakra.write_metadata(file, says)
        chakra.write_node(file, 0, "n" * 20_000, chakra.RECV, [], [], (0, 0, 1), {})
    header, node = chakra.read_messages(path)
    assert chakra.message_attributes(header) == says
    assert header.version == "0.0.4"
    assert (len(node.name), node.type, node.duration_micros) == (20_000, 6, 0)
    assert chakra.message_attributes(node) == {"start_ns": 0, "duration_ns": 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"\x05abc", "ends within a message"),
        (b"\x80", "ends within a length"),
        (b"\xff\xff\xff\xff\xff\xff", "no length of a message"),
        (b"\x02\xff\xff", "no GlobalMetadata of Chakra"),
    ],
)
def test_damage_is_told(text: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "workload.0.et"
    path.write_bytes(text)
    with pytest.raises(InputError, match=says):
        list(chakra.read_messages(path))


RUNS = ("tiny-llama-fsdp2-tp2-gloo-cpu", "tiny-llama-ddp4-gloo-cpu", "tiny-jax-dp2-tp4-cpu", "dlrm_8xv100")


@pytest.mark.parametrize("name", RUNS)
def test_the_step_read_back_is_the_replayed_one(
    name: str, repository: Path, test_data: Path, tmp_path: Path, evidence_store: Path
) -> None:
    source = test_data / "kineto" / name if name.startswith("dlrm") else repository / "traces" / name
    run = cclbench.ingest(source, store=evidence_store)
    made = export(run, tmp_path / "chakra", check=True)
    steps = made.steps_ns
    assert steps["read back"] == steps["replayed"]
    assert steps["replayed"] == pytest.approx(steps["measured"], rel=0.01)
    # a reader of whole microseconds comes to each node at its time, rounded down
    exact, rounded = (read_folder(tmp_path / "chakra", micros=micros) for micros in (False, True))
    assert max(schedule_workload(exact).end) < 60e9  # as long as the traces
    ends, whole = schedule_workload(exact).end, schedule_workload(rounded).end
    off = sum(us // 1000 != ns // 1000 for ns, us in zip(ends, whole, strict=True))
    assert off <= sum("by the ranks' clocks" in note for note in made.notes) * 0.001 * len(ends)
    assert len(list((tmp_path / "chakra").glob("*.et"))) == len(run.ranks)


@pytest.mark.parametrize(
    ("name", "off"),
    [("tiny-jax-dp2-tp4-cpu", 1e-4), ("tiny-llama-ddp4-gloo-cpu", 0.01), ("dlrm_8xv100", 1e-4)],
)
def test_what_astra_sim_gets_is_near(
    name: str, off: float, repository: Path, test_data: Path, tmp_path: Path, evidence_store: Path
) -> None:
    source = test_data / "kineto" / name if name.startswith("dlrm") else repository / "traces" / name
    system = None if name.startswith("dlrm") else "dgx-h100"
    run = cclbench.ingest(source, store=evidence_store)
    made = export(run, tmp_path / "sim", "astra-sim", system=system, check=True)
    assert made.steps_ns["read back"] == pytest.approx(made.steps_ns["replayed"], rel=off)
    workload = read_folder(tmp_path / "sim", micros=True)
    assert step_ns(workload, issue_workload(workload)) == made.steps_ns["read back"]
