# SPDX-License-Identifier: Apache-2.0
"""Ranks with an accelerator: what is fitted, what is waited for, what moves when something else does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.replay_rows import DEVICE, Item, end_of, item, rank, replayed
from helpers.replay_subjects import subject

from cclbench.replay import nodes as n
from cclbench.replay.changes.host import host
from cclbench.replay.device import device_of
from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.selection import read_setting
from cclbench.replay.simulate import simulate_nodes
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
    times = simulate_nodes(quick.nodes, quick.cut)
    assert [end_of(quick, times, r) for r in (0, 1)] == [295, 270]


def test_a_transfer_that_takes_half_saves_half_of_itself() -> None:
    graph, _ = replayed(*pair(skew=60))
    half = scaled(graph, n.TRANSFER, 0.5)
    assert end_of(half, simulate_nodes(half.nodes, half.cut), 0) == 335


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
    assert end_of(half, simulate_nodes(half.nodes, half.cut), 0) == pytest.approx(130 - 50 - 2.5)


def test_a_collective_behind_a_wait_follows_what_was_waited_for_without_it_too() -> None:
    """The stream of collectives once begins beside a kernel: that it waits for kernels no row shows."""
    one = rank(
        0,
        launches=[launch(0, 1), launch(6, 2), launch(120, 3)],
        syncs=[item("cudaDeviceSynchronize", 10, 110)],
        work=[
            kernel(5, 105, 1),
            item("nccl", 11, 51, corr=2, lane=COMM, call=0, category="communication"),
            item("nccl", 125, 165, corr=3, lane=COMM, call=1, category="communication"),
        ],
        instances=[-1, -1],
        windows=[(0, 5, 165)],
    )
    graph, times = replayed(one)
    assert end_of(graph, times, 0) == 165
    made = host(subject(graph), read_setting("host[sync].time=0", "0"))
    assert isinstance(made, Graph)
    after = simulate_nodes(made.nodes, made.cut)
    assert end_of(made, after, 0) == 105 + 40


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
    assert end_of(half, simulate_nodes(half.nodes, half.cut), 0) == 330


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
    assert graph.inferred["threads that resume when another pauses"]
    quick = scaled(graph, n.COMPUTE, 0.5)
    # the first kernel is 145 shorter, and with it the synchronise call of the other thread
    assert end_of(quick, simulate_nodes(quick.nodes, quick.cut), 0) == pytest.approx(327 - 145 - 5, abs=2)


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
    assert end_of(half, simulate_nodes(half.nodes, half.cut), 0) == pytest.approx(50 + 3 + 23.5 + 2 + 24)


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


def again(graph: Graph, **longer: float) -> dict[str, float]:
    """When nodes of each name begin, µs, if those of some names take so much longer."""
    nodes = graph.nodes
    names = [graph.names[code] if code >= 0 else "" for code in nodes.name.tolist()]
    more = np.array([round(1_000 * longer.get(name, 0)) for name in names], np.int64)
    times = simulate_nodes(replace(nodes, dur=nodes.dur + more * (nodes.dur > 0)), graph.cut)
    return {name: at / 1_000 for name, at in zip(names, times.start.tolist(), strict=True) if name}


def named(
    name: str, start: float, end: float, corr: int = -1, lane: tuple[int, int] = DEVICE, **more: object
) -> Item:
    return item(name, start, end, corr=corr, lane=lane, **more)


def behind_call(call: Item, *before: Item, launched: float = 120) -> Graph:
    """Rows launched 1 µs apart from 0 on, a call, and a kernel that is launched behind it."""
    work = [{**row, "corr": i} for i, row in enumerate(before)]
    one = rank(
        0,
        launches=[*(launch(i, i) for i in range(len(before))), launch(launched, 99)],
        syncs=[call],
        work=[*work, named("last", launched + 5, launched + 10, 99, (0, 24))],
        windows=[(0, 0, launched + 10)],
    )
    return build_graph([one])


CALLS = "synchronise calls, by the last row that ended in them"


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("cudaDeviceSynchronize", True),
        ("hipCtxSynchronize", True),
        ("Context Sync", True),
        ("cudaStreamSynchronize", False),
    ],
)
def test_a_call_for_the_whole_device_waits_for_all_streams(name: str, waits: bool) -> None:
    """It returns 3 behind the row that ended last; one of another stream takes 100 longer."""
    rows = [named("long", 5, 105), *(named(f"b{i}", 6 + 10 * i, 14 + 10 * i, lane=(0, 20)) for i in range(3))]
    graph = behind_call(item(name, 10, 108), *rows)
    assert graph.inferred[CALLS] == 1
    assert again(graph)["last"] == 125
    assert again(graph, long=50)["last"] == 175
    # the third ends at 134: 108 + 29, or not awaited
    assert again(graph, b2=100)["last"] == (125 + 29 if waits else 125)
    assert again(graph, b1=10)["last"] == 125


def test_of_streams_that_end_together_each_is_waited_for() -> None:
    graph = behind_call(
        item("cudaDeviceSynchronize", 10, 108), named("a", 5, 105), named("b", 6, 105, lane=(0, 20))
    )
    assert again(graph, a=10)["last"] == again(graph, b=10)["last"] == 135
    running = behind_call(
        item("cudaDeviceSynchronize", 10, 108), named("a", 5, 105), named("b", 6, 115, lane=(0, 20))
    )
    assert again(running, b=10)["last"] == 125
    assert again(running, a=10)["last"] == 135


@pytest.mark.parametrize(
    ("call", "end", "awaited"),
    [
        # ends up to 1 µs behind the call, as clocks may err
        ((10, 104), 105, True),
        ((10, 103.999), 105, False),
        # has ended when the call begins
        ((105, 110), 105, False),
        ((104.999, 110), 105, True),
    ],
)
def test_a_call_waits_for_what_ends_in_it(call: tuple[float, float], end: float, awaited: bool) -> None:
    graph = behind_call(item("cudaStreamSynchronize", *call), named("a", 5, end))
    assert graph.inferred[CALLS] == awaited
    # it returns no earlier than what it waited for
    unchanged = 125 + (max(end - call[1], 0) if awaited else 0)
    assert again(graph)["last"] == unchanged
    assert again(graph, a=50)["last"] == (unchanged + 50 if awaited else 125)


@pytest.mark.parametrize(("at", "awaited"), [(10, True), (10.001, False)])
def test_a_call_does_not_wait_for_what_is_launched_after_it_began(at: float, awaited: bool) -> None:
    other = (-1, 2)
    one = rank(
        0,
        launches=[launch(at, 1), item("cudaLaunchKernel", 120, 122, corr=2, lane=other)],
        syncs=[item("cudaStreamSynchronize", 10, 110, lane=other)],
        work=[named("a", 15, 105, 1), named("b", 125, 126, 2, (0, 24))],
        windows=[(0, 0, 126)],
    )
    graph = build_graph([one])
    assert graph.inferred[CALLS] == awaited
    assert again(graph, a=50)["b"] - again(graph)["b"] == (50 if awaited else 0)


@pytest.mark.parametrize(
    ("name", "returned", "blocks"),
    [
        ("copy", 58, True),
        ("copy", 55, True),
        # from pageable memory the call feeds the copy, and returns while its last piece is on its way
        ("copy (Pageable -> Device)", 36, True),
        ("copy (Pageable -> Device)", 35, False),
        ("copy (Pinned -> Device)", 58, False),
    ],
)
def test_a_copy_that_its_call_waits_for_holds_its_host(name: str, returned: float, blocks: bool) -> None:
    one = rank(
        0,
        launches=[item("cudaMemcpyAsync", 10, returned, corr=1), launch(100, 2)],
        work=[named(name, 15, 55, 1, copy=True, direction=1), named("k", 105, 110, 2)],
        windows=[(0, 0, 110)],
    )
    graph = build_graph([one])
    assert graph.inferred["blocking copies"] == blocks
    assert again(graph)["k"] == 105
    # the stream itself is busy until 15 + 40 + 60
    assert again(graph, **{name: 60})["k"] == (165 if blocks else 115)


@pytest.mark.parametrize(("depth", "late", "waits"), [(100, 5, 99), (100, 101, 0), (60, 5, 0)])
def test_a_launch_waits_for_a_place_in_a_full_queue(depth: int, late: float, waits: int) -> None:
    """200 kernels of 200 µs; the queue has so many places, of 64 at least, and a launch returns so long
    behind the end of the row that had its place.  With kernels of half the time all takes half the time."""
    made, at = [], 0.0
    for number in range(200):
        free = 200.0 * (number - depth + 1) + 10 + late
        made.append(item("cudaLaunchKernel", at, max(at + 1, free), corr=number + 1))
        at = max(at + 1, free) + 1
    work = [named("k", 200 * i + 10, 200 * i + 210, i + 1) for i in range(200)]
    graph = build_graph([rank(0, launches=made, work=work, windows=[(0, 0, 40_010)])])
    assert graph.inferred["launches that wait for a place in a full queue"] == waits
    nodes = graph.nodes
    halved = simulate_nodes(replace(nodes, dur=nodes.dur // 2), graph.cut).end.max() / 1_000
    assert halved == pytest.approx(20_010, rel=1e-3) if waits else halved > 20_100


WAITED = "waits for the device at steps' ends"


@pytest.mark.parametrize(
    ("ends", "waits"),
    [
        ((105, 230), True),
        ((120, 245), True),
        # 20 µs behind the device's last row at most, in all steps
        ((120.001, 245), False),
        ((120, 245.001), False),
        # before it has drained
        ((99.999, 230), False),
        ((100, 225), True),
    ],
)
def test_steps_that_end_promptly_behind_the_device_wait_for_it(
    ends: tuple[float, float], waits: bool
) -> None:
    """Two kernels of 90 µs on two streams, of which the first ends last at 100 and 225, in steps."""
    one = rank(
        0,
        launches=[launch(0, 1), launch(1, 2), launch(130, 3), launch(131, 4)],
        work=[
            *(named("a", 10, 100, 1), named("b", 10, 90, 2, (0, 20))),
            *(named("a", 135, 225, 3), named("b", 135, 215, 4, (0, 20))),
        ],
        notes=[item("ProfilerStep#0", 0, ends[0]), item("ProfilerStep#1", 126, ends[1])],
        windows=[(0, 0, 250)],
    )
    graph = build_graph([one])
    assert graph.inferred[WAITED] == (2 if waits else 0)
    if waits:
        source, target, lag = graph.wait_edges()
        host = graph.nodes.kind[target] == n.HOST
        found = sorted(
            (graph.nodes.end[s], graph.nodes.start[t], g)
            for s, t, g in zip(source[host].tolist(), target[host].tolist(), lag[host].tolist(), strict=True)
        )
        first, second = (round(1_000 * end) for end in ends)
        assert found == [
            *((90_000, first, first - 100_000), (100_000, first, first - 100_000)),
            *((215_000, second, second - 225_000), (225_000, second, second - 225_000)),
        ]


def test_a_step_that_ends_behind_a_call_has_not_waited_for_the_device() -> None:
    """A launch returns at 100, when the device has drained; at 99.999 it has not."""
    for returned, waits in ((100, 0), (99.999, 1)):
        one = rank(
            0,
            launches=[launch(0, 1), item("cudaLaunchKernel", 95, returned, corr=7)],
            work=[named("a", 10, 100, 1)],
            notes=[item("ProfilerStep#0", 0, 105)],
            windows=[(0, 0, 105)],
        )
        assert build_graph([one]).inferred[WAITED] == waits


PAUSED = "pauses of the host for a program's end"


@pytest.mark.parametrize(
    ("resumes", "held"), [(215, True), (1_210, True), (1_210.001, False), (209.999, False), (210, True)]
)
def test_a_host_that_pauses_until_a_program_has_ended(resumes: float, held: bool) -> None:
    """Programs of two rows on two streams; the first ends at 210, and the host goes on up to 1 ms later."""
    one = rank(
        0,
        launches=[launch(0, 1), item("cudaGraphLaunch", 2_000, 2_001, corr=2)],
        ops=[item("aten::a", 0, 5), item("aten::b", resumes, resumes + 100)],
        work=[
            *(named("x", 10, 200, 1), named("y", 20, 210, 1, (0, 20))),
            *(named("x", 2_010, 2_100, 2), named("y", 2_020, 2_110, 2, (0, 20))),
        ],
        windows=[(0, 0, 3_000)],
    )
    graph = build_graph([one])
    assert graph.inferred[PAUSED] == held
    assert again(graph, y=100)["x"] == (2_110 if held else 2_010)
    if held:
        _, target, lag = graph.wait_edges()
        at = graph.nodes.start[target] == round(1_000 * resumes)
        assert lag[at & (graph.nodes.kind[target] == n.HOST)].tolist() == [round(1_000 * (resumes - 210))]


def test_nodes_of_a_rank_are_its_points_and_its_rows() -> None:
    one = rank(
        0,
        launches=[launch(0, 1), launch(10, 2)],
        work=[named("a", 5, 7, 1), named("b", 15, 17, 2), named("c", 30, 31)],
        windows=[(0, 0, 31)],
    )
    graph = build_graph([one])
    nodes = graph.nodes
    assert nodes.lane.tolist() == [0, 0, 1, 1, 1]
    assert nodes.feeder.tolist() == [-1, -1, 0, 1, -1]
    assert nodes.feed_lag.tolist() == [0, 0, 5_000, 5_000, 0]
    assert nodes.gap.tolist() == [0, 10_000, 0, 0, 13_000]
    assert nodes.kind.tolist() == [n.HOST, n.HOST, n.COMPUTE, n.COMPUTE, n.COMPUTE]
    assert +graph.inferred == {"rows without a launch, which keep their measured gaps": 1}
    assert not +graph.traced


def test_a_program_s_last_row_is_that_before_the_next_begins() -> None:
    """Each of three programs is awaited: the host goes on 3, 4 and 5 behind their last rows."""
    one = rank(
        0,
        launches=[item("cudaGraphLaunch", 300 * i, 300 * i + 1, corr=i) for i in range(3)],
        ops=[item("aten::a", 300 * i + 213 + i, 300 * i + 220 + i) for i in range(3)],
        work=[
            row
            for i in range(3)
            for row in (
                named(f"x{i}", 300 * i + 10, 300 * i + 200, i),
                named(f"y{i}", 300 * i + 20, 300 * i + 210, i, (0, 20)),
            )
        ],
        windows=[(0, 0, 900)],
    )
    graph = build_graph([one])
    assert graph.inferred[PAUSED] == 3
    source, target, lag = graph.wait_edges()
    host = graph.nodes.kind[target] == n.HOST
    found = zip(
        graph.nodes.end[source[host]].tolist(),
        graph.nodes.start[target[host]].tolist(),
        lag[host].tolist(),
        strict=True,
    )
    assert sorted(found) == [(210_000, 213_000, 3_000), (510_000, 514_000, 4_000), (810_000, 815_000, 5_000)]
    pauses = graph.nodes.start[graph.nodes.kind == n.HOST].tolist()
    assert {1_000, 301_000, 601_000} <= set(pauses)
