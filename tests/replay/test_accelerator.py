# SPDX-License-Identifier: Apache-2.0
"""Ranks with an accelerator: what is fitted, what is waited for, what moves when something else does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from replay_rows import DEVICE, Item, end_of, item, rank, replayed

from cclbench.replay import nodes as n
from cclbench.replay.device import device_of
from cclbench.replay.graph import Graph
from cclbench.replay.simulate import simulate
from cclbench.replay.tables import GraphInput

COMM = (0, 20)


def launch(at: float, corr: int) -> Item:
    return item("cudaLaunchKernel", at, at + 2, corr=corr)


def kernel(start: float, end: float, corr: int, **more: object) -> Item:
    return item("gemm", start, end, corr=corr, lane=DEVICE, **more)


def scaled(graph: Graph, kind: int, factor: float, number: int | None = None) -> Graph:
    """The graph with nodes of a kind (of a rank) that take so many times as long."""
    nodes = graph.nodes
    chosen = (nodes.kind == kind) & ((nodes.rank == number) | (number is None))
    dur = np.where(chosen, np.rint(nodes.dur * factor), nodes.dur).astype(np.int64)
    return replace(graph, nodes=replace(nodes, dur=dur))


def pair(skew: float) -> list[GraphInput]:
    """Kernel, all-reduce of 40 µs once both ranks are there, kernel; rank 1's first takes `skew` longer."""
    made = []
    for number, first in ((0, 100.0), (1, 100.0 + skew)):
        met = 105 + 100 + skew
        made.append(
            rank(
                number,
                launches=[launch(100, 1), launch(103, 2), launch(106, 3)],
                work=[
                    kernel(105, 105 + first, 1),
                    item("nccl", 105 + first, met + 40, corr=2, lane=COMM, call=0, category="communication"),
                    kernel(met + 40, met + 90, 3),
                ],
                instances=[0],
                windows=[(0, 105, met + 90)],
            )
        )
    return made


def test_waiting_is_worked_out_anew() -> None:
    graph, times = replayed(*pair(skew=60))
    # 105 + 160 of rank 1, then 40 for both, then 50
    assert [end_of(graph, times, r) for r in (0, 1)] == [355, 355]
    # rank 1's kernels take half: its first ends at 105 + 80, before rank 0's at 205; its last takes 25
    quick = scaled(graph, n.COMPUTE, 0.5, number=1)
    times = simulate(quick.nodes, quick.cut)
    assert [end_of(quick, times, r) for r in (0, 1)] == [295, 270]


def test_a_transfer_that_takes_half_saves_half_of_itself() -> None:
    graph, _ = replayed(*pair(skew=60))
    half = scaled(graph, n.TRANSFER, 0.5)
    assert end_of(half, simulate(half.nodes, half.cut), 0) == 335


def test_a_collective_of_a_rank_that_is_not_there_keeps_its_time() -> None:
    graph, times = replayed(pair(skew=60)[0])
    assert not graph.transfers.known.any()
    assert end_of(graph, times, 0) == 355


def test_a_synchronise_call_returns_when_the_device_has_ended() -> None:
    one = rank(
        0,
        launches=[launch(0, 1), launch(120, 2)],
        syncs=[item("cudaDeviceSynchronize", 5, 110)],
        work=[kernel(5, 105, 1), kernel(125, 130, 2)],
        windows=[(0, 5, 130)],
    )
    graph, times = replayed(one)
    assert end_of(graph, times, 0) == 130
    # the first kernel takes 50 less: so do the call, and the launch behind it
    half = scaled(graph, n.COMPUTE, 0.5)
    assert end_of(half, simulate(half.nodes, half.cut), 0) == pytest.approx(130 - 50 - 2.5)


def test_a_host_that_is_late_stays_late() -> None:
    one = rank(
        0,
        launches=[launch(at, i) for i, at in enumerate((0, 100, 200, 300))],
        work=[kernel(at + 5, at + 55, i) for i, at in enumerate((0, 100, 200, 300))],
        windows=[(0, 5, 355)],
    )
    graph, times = replayed(one)
    assert end_of(graph, times, 0) == 355
    half = scaled(graph, n.COMPUTE, 0.5)
    assert end_of(half, simulate(half.nodes, half.cut), 0) == 330


def test_threads_that_take_turns_hand_over() -> None:
    """The main thread pauses in `backward` while autograd's launches; it goes on 10 µs after that pauses."""
    main, autograd = (-1, 1), (-1, 2)
    one = rank(
        0,
        launches=[
            {**launch(0, 1), "lane": main},
            {**launch(110, 2), "lane": autograd},
            {**launch(300, 3), "lane": autograd},
            {**launch(312, 4), "lane": main},
        ],
        syncs=[item("cudaStreamSynchronize", 112, 299, lane=autograd)],
        notes=[item("backward", 0, 330, lane=main)],
        work=[kernel(5, 295, 1), kernel(295, 296, 2), kernel(305, 306, 3), kernel(317, 327, 4)],
        windows=[(0, 5, 327)],
    )
    graph, times = replayed(one)
    assert end_of(graph, times, 0) == pytest.approx(327, abs=1)
    assert graph.inferred["threads that go on when another pauses"]
    quick = scaled(graph, n.COMPUTE, 0.5)
    # the first kernel is 145 shorter, and with it the synchronise call of the other thread
    assert end_of(quick, simulate(quick.nodes, quick.cut), 0) == pytest.approx(327 - 145 - 5, abs=2)


def test_rows_without_launches_follow_what_ended_last() -> None:
    """Tasks of one program on two threads: the second thread's row follows the first's."""
    one = rank(
        0,
        work=[
            item("a", 0, 100, lane=(0, 1)),
            item("b", 103, 150, lane=(0, 2)),
            item("c", 152, 200, lane=(0, 1)),
        ],
        windows=[(0, 0, 200)],
    )
    graph, times = replayed(one)
    assert end_of(graph, times, 0) == 200
    half = scaled(graph, n.COMPUTE, 0.5)
    assert end_of(half, simulate(half.nodes, half.cut), 0) == pytest.approx(50 + 3 + 23.5 + 2 + 24)


def test_a_stream_beside_another_leaves_gaps_of_its_own() -> None:
    """Six kernels follow one another at once, six more 4 apart while another stream's kernel runs."""
    alone = [kernel(100 + 10 * i, 110 + 10 * i, i) for i in range(6)]
    beside = [kernel(160 + 4 + 14 * i, 170 + 4 + 14 * i, 6 + i) for i in range(6)]
    one = rank(
        0,
        launches=[launch(i, i) for i in range(13)],
        work=[*alone, *beside, item("other", 155, 400, corr=12, lane=COMM)],
        windows=[(0, 100, 400)],
    )
    device = device_of(one)
    own = device.rows.lane == 0
    assert device.gap[own].tolist() == [0] * 6 + [4_000] * 6
    assert device.doubt == 1_000
