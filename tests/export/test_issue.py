# SPDX-License-Identifier: Apache-2.0
"""Tasks on the resources of an NPU, and the order in which ASTRA-sim issues nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cclbench
from cclbench.api import export
from cclbench.export import chakra
from cclbench.export.check import Schedule, Workload, read_folder, step_ns
from cclbench.export.issue import issue_workload
from cclbench.export.resources import share_resources
from cclbench.export.tasks import GAP, HOST, Task
from cclbench.ground.errors import InputError

US = 1000


def workload(
    *nodes: tuple[int, bool, int, list[int], list[int]], instance: dict[int, int] | None = None
) -> Workload:
    """One rank's nodes: kind, whether by the CPU, duration in µs, data and control dependencies."""
    kind, by_cpu, us, after, behind = (list(column) for column in zip(*nodes, strict=True))
    told = {"kind": kind, "by_cpu": by_cpu, "after": after, "behind": behind, "metadata": [{}], "first": [0]}
    instances = [(instance or {}).get(at) for at in range(len(nodes))]
    return Workload(duration=[each * US for each in us], instance=instances, **told)


def test_a_node_waits_for_its_resource_in_order_of_ids() -> None:
    """A kernel of 10 µs; a host node of 3 runs beside it; the kernel that it launches, and one that was ready
    at the beginning, follow in order of their ids."""
    kernel, host = (chakra.COMPUTE, False), (chakra.COMPUTE, True)
    nodes = (*kernel, 10, [], []), (*host, 3, [], []), (*kernel, 4, [1], []), (*kernel, 5, [], [])
    # a node of zero takes one nanosecond
    found = issue_workload(workload(*nodes, (*host, 0, [], [3])))
    assert found.start == [0, 0, 10 * US, 14 * US, 19 * US]
    assert found.end == [10 * US, 3 * US, 14 * US, 19 * US, 19 * US + 1]
    assert found.met == [0, 0, 3 * US, 0, 0]


def test_a_receive_occupies_nothing_and_a_send_waits_for_no_receive() -> None:
    """The receive stands before the collective, and ends with its send, which follows the collective."""
    took = ((chakra.RECV, 9), (chakra.COLLECTIVE, 20), (chakra.SEND, 6))
    nodes = [(kind, False, us, [], []) for kind, us in took]
    found = issue_workload(workload(*nodes, instance={0: 7, 1: 8, 2: 7}))
    assert found.start == [0, 0, 20 * US]
    assert found.end == [26 * US, 20 * US, 26 * US]


def test_ranks_that_wait_for_one_another_are_an_error() -> None:
    two = workload(*[(chakra.COLLECTIVE, False, 1, [], [])] * 4, instance={0: 1, 1: 2, 2: 2, 3: 1})
    two.first.append(2)
    with pytest.raises(InputError, match="4 nodes never begin"):
        issue_workload(two)


Nodes = list[tuple[int, bool, int, list[int], list[int]]]


@st.composite
def graphs(draw: st.DrawFn) -> Nodes:
    """Up to 14 nodes whose dependencies precede them."""
    nodes: Nodes = []
    for at in range(draw(st.integers(1, 14))):
        earlier = st.lists(st.integers(0, at - 1), max_size=2, unique=True) if at else st.just([])
        kind = draw(st.sampled_from((chakra.COMPUTE, chakra.COMPUTE, chakra.COLLECTIVE, chakra.RECV)))
        by_cpu = kind == chakra.COMPUTE and draw(st.booleans())
        nodes.append((kind, by_cpu, draw(st.integers(0, 5)), draw(earlier), draw(earlier)))
    return nodes


@given(graphs())
def test_the_schedule_is_that_of_the_rules_read_literally(nodes: Nodes) -> None:
    """At each end: release, then go through all free nodes by id and begin those whose resource is idle."""
    found = issue_workload(workload(*nodes))
    begun: dict[int, int] = {}
    ends: dict[int, int] = {}
    now = 0
    while True:
        for at, (kind, by_cpu, _, after, behind) in enumerate(nodes):
            if at in begun or not {*after, *behind} <= ends.keys():
                continue
            running = [each for each in begun if each not in ends and nodes[each][0] != chakra.RECV]
            needed = (kind == chakra.COMPUTE, by_cpu)
            if kind == chakra.RECV or needed not in [
                (nodes[each][0] == chakra.COMPUTE, nodes[each][1]) for each in running
            ]:
                begun[at] = now
        left = {at: begun[at] + max(nodes[at][2] * US, 1) for at in begun if at not in ends}
        if not left:
            break
        ended = min(left, key=lambda at: left[at])  # the first begun of those that end together
        now = ends[ended] = left[ended]
    assert found.start == [begun[at] for at in range(len(nodes))]
    assert found.end == [ends[at] for at in range(len(nodes))]


def issued(tasks: list[Task]) -> list[tuple[int, int]]:
    """Start and end in µs of tasks, given as their resources share them, under the rules of ASTRA-sim."""
    for at, task in enumerate(tasks):
        task.id = at
    share_resources(tasks, {})
    nodes: Nodes = []
    for task in tasks:
        began = task.start if task.alone is None else task.alone
        needs = [each.id for each in task.after], [each.id for each in task.behind]
        nodes.append((chakra.COMPUTE, task.role == HOST, (task.end - began) // US, *needs))
    found = issue_workload(workload(*nodes))
    return [(start // US, end // US) for start, end in zip(found.start, found.end, strict=True)]


def task(role: str, start: int, end: int, *after: Task) -> Task:
    return Task(-1, role, start * US, end * US, list(after))


def test_streams_and_threads_end_when_they_did() -> None:
    """Two kernels that overlap, one during another, and a thread beside them: all as recorded."""
    begin = task(HOST, 0, 10)
    long, second = task("compute", 10, 100, begin), task("compute", 10, 15, begin)
    later = task("compute", 15, 40, second)
    thread = task(HOST, 10, 90, begin)
    last = task("compute", 40, 120, later)
    tasks = [begin, second, later, thread, long, last, task(GAP, 120, 125, last, long)]
    assert [end for _, end in issued(tasks)] == [each.end // US for each in tasks]
    assert long.behind == [later]  # which began and ended during it
    assert thread.behind == []  # the other resource is its own


def test_what_began_before_holds_the_resource() -> None:
    """A kernel from 0 to 30, another from 20 to 50: the second occupies 20 µs, and needs no dependency."""
    first, second = task("compute", 0, 30), task("compute", 20, 50)
    begin = task(HOST, 0, 20)
    second.after.append(begin)
    assert issued([begin, first, second]) == [(0, 20), (0, 30), (30, 50)]
    assert (second.alone, second.behind) == (30 * US, [])


@pytest.mark.parametrize(
    ("name", "nodes", "step_ms"),
    [("tiny-jax-dp2-tp4-cpu", 22_183, 20.554613), ("tiny-llama-ddp4-gloo-cpu", 1_410, 512.185422)],
)
def test_step_of_astra_sim(
    name: str, nodes: int, step_ms: float, repository: Path, tmp_path: Path, evidence_store: Path
) -> None:
    """The steps of ASTRA-sim itself (commit 518bd51, setting "replay-only": no rank waits for another)."""
    run = cclbench.ingest(repository / "traces" / name, store=evidence_store)
    export(run, tmp_path / "sim", "astra-sim", system="dgx-h100")
    read = read_folder(tmp_path / "sim", micros=True)
    read.instance[:] = [None] * len(read.instance)
    found: Schedule = issue_workload(read)
    assert len(found.end) == nodes
    assert step_ns(read, found) / 1e6 == pytest.approx(step_ms, abs=1e-6)
