# SPDX-License-Identifier: Apache-2.0
"""XLA's asynchronous transfers, in µs: issued and awaited by the core, beside what it computes between."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.replay_rows import Item, alone, end_of, item, rank, replayed, scaled

import cclbench
from cclbench.card.model import Hardware
from cclbench.machine import Machine
from cclbench.replay import nodes as n
from cclbench.replay.answer import Replay
from cclbench.replay.device import launch_pairs
from cclbench.replay.graph import Graph
from cclbench.replay.pricing import time_ratios
from cclbench.replay.scenario import parse_scenario
from cclbench.replay.tables import GraphInput

CORE, BESIDE = (0, 3), (0, 4)
START, DONE = "all-reduce-start.1", "all-reduce-done.1"


def op(name: str, start: float, end: float) -> Item:
    return item(name, start, end, lane=CORE)


def core(number: int, done: float = 141, late: float = 0, held: float = 0) -> GraphInput:
    """A kernel of 100 (and `late`), an all-reduce issued behind it, a kernel of 40 beside it, its wait from
    `done` on, which ends at 160 (and `late`, and `held` up by others); 2 later a kernel of 10."""
    end = 160 + late + held
    moved = item(START, 100 + late, end, lane=BESIDE, call=0, category="communication")
    work = [op("a", 0, 100 + late), moved, op("b", 101 + late, done + late), op("c", end + 2, end + 12)]
    marks = [op(START, 100 + late, 101 + late), op(DONE, done + late, end)]
    return rank(number, work=work, marks=marks, instances=[0], windows=[(0, 0, end + 12)])


def end_with(graph: Graph, kind: int, factor: float) -> float:
    return end_of(graph, scaled(graph, kind, factor), 0)


def test_what_awaits_a_transfer_is_over_when_that_is_and_the_core_computes_beside_it() -> None:
    graph, times = replayed(core(0), core(1))
    assert graph.transfers.known.all()
    assert [end_of(graph, times, r) for r in (0, 1)] == [172, 172]
    # 30 instead of 60: it ends at 130, behind the issue at 100; kernel b at 141, then 2 and 10
    assert end_with(graph, n.TRANSFER, 0.5) == 153
    # 120: it ends at 220
    assert end_with(graph, n.TRANSFER, 2) == 232
    # a ends at 300, the issue at 303, b at 423, by when the transfer of 300 to 360 has ended; 2, and 30
    assert end_with(graph, n.COMPUTE, 3) == 455
    assert graph.traced["asynchronous transfers, from issue to wait"] == 2
    # rank 1 issues 50 later; rank 0's transfer begins then, and its wait is 50 longer
    graph, times = replayed(core(0, held=50), core(1, late=50))
    assert [end_of(graph, times, r) for r in (0, 1)] == [222, 222]


def test_transfers_in_flight_together_do_not_wait_for_one_another() -> None:
    """The one issued first is awaited last; either may take longer."""
    first = item("copy-start.1", 10, 200, lane=BESIDE, copy=True)
    second = item("copy-start.2", 12, 100, lane=BESIDE, copy=True)
    issues = [op("copy-start.1", 10, 11), op("copy-start.2", 12, 13)]
    waits = [op("copy-done.2", 14, 100), op("copy-done.1", 111, 200)]
    graph, times = replayed(alone(op("a", 0, 10), first, second, op("b", 100, 110), marks=issues + waits))
    assert end_of(graph, times, 0) == 200
    # 88 and 190 halved: b from 12 + 44 = 56 to 66, the last from 10 to 105
    assert end_with(graph, n.COPY, 0.5) == 105
    # twelvefold: a to 120, issues to 132 and 145; the second transfer from 144 to 232, b to 352, and 1 later
    # the other wait, whose transfer has ended at 131 + 190
    assert end_with(graph, n.COMPUTE, 12) == 353


def test_a_transfer_that_had_ended_when_it_was_awaited_may_have_taken_less() -> None:
    """The wait takes half a µs: that it is over at 160 tells only that the transfer took no more than 60."""
    graph, times = replayed(core(0, done=159.5), core(1, done=159.5))
    assert end_of(graph, times, 0) == 172
    assert (graph.nodes.slack > 0).sum() == 2
    found = time_ratios(graph, parse_scenario(["kernels.time=x0.1"]), Machine(Hardware(per_node=2)), {})
    transfers = graph.nodes.kind == n.TRANSFER
    assert np.isnan(found.expected[transfers]).all()
    assert (found.low[transfers] == 0).all()
    assert (found.high[transfers] == 1).all()
    assert "transfers that ended before their wait have bounds only" in found.basis


@pytest.mark.parametrize(
    "marks",
    [
        [],
        [op(START, 100, 101)],
        [op(START, 99, 101), op(DONE, 141, 160)],
        [op("other-start", 100, 101), op(DONE, 141, 160)],
        [op(START, 100, 101), item(DONE, 141, 160, lane=BESIDE)],
    ],
)
def test_what_is_no_pair_stays_as_it_is(marks: list[Item]) -> None:
    one = core(0)
    found = launch_pairs(replace(one, marks=rank(0, marks=marks).marks))
    assert not len(found.transfer)
    assert sorted(found.rows.names) == sorted({*one.work.names, *(m["name"] for m in marks)})
    assert len(found.rows) == len(one.work)


def test_a_tpus_copies_from_the_host(test_data: Path, tmp_path: Path) -> None:
    """Six copies from the host in each of 100 steps on four chips, awaited in another order."""
    path = test_data / "xprof" / "tpu_v6e_4plane_host_offload_psum.xplane.pb"
    replay = Replay(cclbench.ingest(path, store=tmp_path))
    assert replay.graph.traced["asynchronous transfers, from issue to wait"] == 6 * 100 * 4
    assert replay.unchanged.step_ns == pytest.approx(replay.measured_ns, rel=1e-6)
    slow = replay.predict(parse_scenario(["kernels.time=x2"]))
    # of three kernels of 8 ms two run beside copies that are awaited later anyway
    assert slow.high_ns - replay.measured_ns == pytest.approx(7_976_000, rel=0.01)
