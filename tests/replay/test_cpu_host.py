# SPDX-License-Identifier: Apache-2.0
"""What holds a CPU-only rank: the time of its threads outside of operators, and the step without it."""

from __future__ import annotations

import pytest
from helpers.replay_rows import end_of, item, rank, replayed
from helpers.replay_subjects import subject

from cclbench.replay import nodes as n
from cclbench.replay.changes.host import host
from cclbench.replay.graph import Graph
from cclbench.replay.selection import read_setting
from cclbench.replay.simulate import simulate_nodes
from cclbench.replay.tables import GraphInput

GLOO = (-1, 9)


def loading(number: int, loads: float) -> GraphInput:
    """Loads, computes for 1 ms with 300 µs of an operator's own within the range, waits for an all-reduce."""
    ms, met = 1000.0, 9000.0
    return rank(
        number,
        on_host=True,
        ops=[
            item("aten::randint", loads - 300, loads),
            item("aten::mm", loads + 20, loads + ms),
            item("MmBackward0", loads + ms, loads + 2 * ms),
            item("c10d::allreduce_", loads + 2 * ms, loads + 2 * ms + 100),
            item("aten::add_", met + ms, met + 2 * ms),
        ],
        notes=[item("enumerate(DataLoader)#x.__next__", 0, loads), item("ProfilerStep#0", 0, met + 2 * ms)],
        work=[item("gloo:all_reduce", loads + 2 * ms + 50, met + ms - 10, lane=GLOO, call=0)],
        instances=[0],
        policy="annotation",
        windows=[(0, 0, met + 2 * ms)],
    )


def test_what_holds_a_cpus_rank_is_divided_as_its_idle_time_is() -> None:
    graph, _ = replayed(loading(0, 2000), loading(1, 6000))
    nodes = graph.nodes
    on_main = (nodes.rank == 1) & (nodes.held.sum(axis=1) > 0)
    assert (nodes.held[on_main].sum(axis=1) + nodes.busy[on_main] == nodes.gap[on_main]).all()
    held = dict(zip(n.HOST_CAUSES, nodes.held[nodes.rank == 1].sum(axis=0).tolist(), strict=True))
    assert {cause: ns for cause, ns in held.items() if ns} == {
        "loader": 5_700_000,
        "sync": 100_000,
        "launch": 20_000,
        "operators": 1_000_000,
    }


@pytest.mark.parametrize(
    ("setting", "saved"),
    [
        ("host[loader].time=0", 5_700),
        ("rank[1].host[loader].time=0", 4_000),
        ("rank[0].host[loader].time=0", 0),
        ("host[operators].time=x0.5", 500),
        ("host[loader+operators].time=0", 6_700),
        ("host[sync].time=0", 60),  # 50 from call to transfer, 10 from transfer to thread
        ("host[sync].time=x0.5", 30),
    ],
)
def test_without_what_holds_a_cpus_rank_it_and_those_that_wait_for_it_go_on_earlier(
    setting: str, saved: int
) -> None:
    """Rank 0 loads for 2 ms, rank 1 for 6 ms: rank 1 is 4 ms late."""
    graph, times = replayed(loading(0, 2000), loading(1, 6000))
    made = host(subject(graph), read_setting(setting, setting.rpartition("=")[2]))
    assert isinstance(made, Graph)
    after = simulate_nodes(made.nodes, made.cut)
    gained = [end_of(graph, times, one) - end_of(made, after, one) for one in (0, 1)]
    assert gained == [saved, saved]


def test_what_no_thread_does_cannot_be_dropped() -> None:
    graph, _ = replayed(loading(0, 2000), loading(1, 6000))
    setting = read_setting("host[python].time=0", "0")
    assert host(subject(graph), setting) == "no host thread does that in the run's windows"
