# SPDX-License-Identifier: Apache-2.0
"""Ranks with an accelerator, in µs: what is waited for, what moves when something else does."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.replay_rows import (
    HOST,
    Item,
    alone,
    end_of,
    item,
    kernel,
    launch,
    lengthened,
    rank,
    replayed,
    scaled,
    with_durations,
)
from helpers.replay_subjects import subject

from cclbench.replay import nodes as n
from cclbench.replay.changes.host import host
from cclbench.replay.device import device_of
from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.selection import read_setting
from cclbench.replay.simulate import simulate_nodes
from cclbench.replay.tables import GraphInput

COMM = BESIDE = (0, 20)
OTHER = (-1, 2)


def nccl(start: float, end: float, corr: int, call: int) -> Item:
    return item("nccl", start, end, corr, COMM, call=call, category="communication")


def pair(skew: float) -> list[GraphInput]:
    """Kernel, all-reduce of 40 µs once both ranks are there, kernel; rank 1's first takes `skew` longer."""
    made, met = [], 205 + skew
    for number, first in ((0, 205), (1, met)):
        work = [kernel(105, first, 1), nccl(first, met + 40, 2, 0), kernel(met + 40, met + 90, 3)]
        launches = [launch(100, 1), launch(103, 2), launch(106, 3)]
        made.append(rank(number, launches=launches, work=work, instances=[0], windows=[(0, 105, met + 90)]))
    return made


def test_waiting_is_worked_out_anew() -> None:
    graph, times = replayed(*pair(skew=60))
    # 105 + 160 of rank 1, then 40 for both, then 50
    assert [end_of(graph, times, r) for r in (0, 1)] == [355, 355]
    # rank 1's kernels take half: its first ends at 105 + 80, before rank 0's at 205; its last takes 25
    times = scaled(graph, n.COMPUTE, 0.5, number=1)
    assert [end_of(graph, times, r) for r in (0, 1)] == [295, 270]
    assert end_of(graph, scaled(graph, n.TRANSFER, 0.5), 0) == 335


def test_a_collective_of_a_rank_that_is_not_there_keeps_its_time() -> None:
    graph, times = replayed(pair(skew=60)[0])
    assert not graph.transfers.is_split.any()
    assert end_of(graph, times, 0) == 355


def test_a_collective_behind_a_wait_follows_what_was_waited_for_without_it_too() -> None:
    """The stream of collectives once begins beside a kernel: that it waits for kernels no row shows."""
    work = [kernel(5, 105, 1), nccl(11, 51, 2, 0), nccl(125, 165, 3, 1)]
    launches, syncs = [launch(0, 1), launch(6, 2), launch(120, 3)], [item("cudaDeviceSynchronize", 10, 110)]
    graph, times = replayed(alone(*work, launches=launches, syncs=syncs, instances=[-1, -1]))
    assert end_of(graph, times, 0) == 165
    made = host(subject(graph), read_setting("host[sync].time=0", "0"))
    assert end_of(made, simulate_nodes(made.nodes, made.cut), 0) == 105 + 40


STARTS = (0, 100, 200, 300)
CALL = {"launches": [launch(0, 1), launch(120, 2)], "syncs": [item("cudaDeviceSynchronize", 5, 110)]}
LATE = [kernel(at + 5, at + 55, i) for i, at in enumerate(STARTS)]
TASKS = item("a", 0, 100, -1, (0, 1)), item("b", 103, 150, -1, (0, 2)), item("c", 152, 200, -1, (0, 1))
HALVED = {
    # the kernel takes 50 less: so do the call, and the launch behind it
    "a call returns when the device has ended": (
        *(alone(kernel(5, 105, 1), kernel(125, 130, 2), **CALL), 130, 130 - 50 - 2.5),
    ),
    "a host that is late stays late": (
        *(alone(*LATE, launches=[launch(at, i) for i, at in enumerate(STARTS)]), 355, 330),
    ),
    # tasks of one program on two threads: the second thread's row follows the first's
    "rows without launches follow what ended last": (alone(*TASKS), 200, 50 + 3 + 23.5 + 2 + 24),
}


@pytest.mark.parametrize(("job", "end", "halved"), HALVED.values(), ids=HALVED)
def test_kernels_of_half_the_time(job: GraphInput, end: float, halved: float) -> None:
    graph, times = replayed(job)
    assert end_of(graph, times, 0) == end
    assert end_of(graph, scaled(graph, n.COMPUTE, 0.5), 0) == pytest.approx(halved)


def test_threads_that_take_turns_hand_over() -> None:
    """The main thread pauses in `backward` while autograd's launches; it goes on 10 µs after that pauses."""
    launches = [launch(0, 1), launch(110, 2, lane=OTHER), launch(300, 3, lane=OTHER), launch(312, 4)]
    work = [kernel(5, 295, 1), kernel(295, 296, 2), kernel(305, 306, 3), kernel(317, 327, 4)]
    syncs = [item("cudaStreamSynchronize", 112, 299, lane=OTHER)]
    notes = [item("backward", 0, 330, lane=HOST)]
    graph, times = replayed(alone(*work, launches=launches, syncs=syncs, notes=notes))
    assert end_of(graph, times, 0) == pytest.approx(327, abs=1)
    assert graph.inferred["threads that resume when another pauses"]
    # the first kernel is 145 shorter, and with it the synchronise call of the other thread
    assert end_of(graph, scaled(graph, n.COMPUTE, 0.5), 0) == pytest.approx(327 - 145 - 5, abs=2)


def test_a_stream_beside_another_leaves_gaps_of_its_own() -> None:
    """Six kernels follow one another at once, six more 4 apart while another stream's kernel runs."""
    first = [kernel(100 + 10 * i, 110 + 10 * i, i) for i in range(6)]
    beside = [kernel(160 + 4 + 14 * i, 170 + 4 + 14 * i, 6 + i) for i in range(6)]
    launches = [launch(i, i) for i in range(13)]
    device = device_of(alone(*first, *beside, item("other", 155, 400, 12, COMM), launches=launches))
    assert device.gap[device.rows.lane == 0].tolist() == [0] * 6 + [4_000] * 6
    assert device.doubt == 1_000


def again(graph: Graph, **longer: float) -> dict[str, float]:
    """When nodes of each name begin, µs, if those of some names take so much longer."""
    nodes = graph.nodes
    names = [graph.names[code] if code >= 0 else "" for code in nodes.name.tolist()]
    more = np.array([round(1_000 * longer.get(name, 0)) for name in names], np.int64)
    times = with_durations(graph, nodes.dur + more * (nodes.dur > 0))
    return {name: at / 1_000 for name, at in zip(names, times.start.tolist(), strict=True) if name}


def behind_call(call: Item, *before: Item) -> Graph:
    """Rows launched 1 µs apart from 0 on, a call, and a kernel launched behind it, at 120."""
    work = [{**row, "corr": i} for i, row in enumerate(before)]
    launches = [*(launch(i, i) for i in range(len(before))), launch(120, 99)]
    return build_graph([alone(*work, item("last", 125, 130, 99, (0, 24)), launches=launches, syncs=[call])])


CALLS = "synchronise calls, by the last row that ended in them"
DEVICE_CALL = item("cudaDeviceSynchronize", 10, 108)


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        *(("cudaDeviceSynchronize", True), ("hipCtxSynchronize", True), ("Context Sync", True)),
        ("cudaStreamSynchronize", False),
    ],
)
def test_a_call_for_the_whole_device_waits_for_all_streams(name: str, waits: bool) -> None:
    """It returns 3 behind the row that ended last; one of another stream takes 100 longer."""
    rows = [item("long", 5, 105), *(item(f"b{i}", 6 + 10 * i, 14 + 10 * i, lane=BESIDE) for i in range(3))]
    graph = behind_call(item(name, 10, 108), *rows)
    assert graph.inferred[CALLS] == 1
    assert again(graph)["last"] == 125
    assert again(graph, long=50)["last"] == 175
    # the third ends at 134: 108 + 29, or not awaited
    assert again(graph, b2=100)["last"] == (125 + 29 if waits else 125)
    assert again(graph, b1=10)["last"] == 125


def test_of_streams_that_end_together_each_is_waited_for() -> None:
    graph = behind_call(DEVICE_CALL, item("a", 5, 105), item("b", 6, 105, lane=BESIDE))
    assert again(graph, a=10)["last"] == again(graph, b=10)["last"] == 135
    running = behind_call(DEVICE_CALL, item("a", 5, 105), item("b", 6, 115, lane=BESIDE))
    assert again(running, b=10)["last"] == 125
    assert again(running, a=10)["last"] == 135


@pytest.mark.parametrize(
    ("call", "awaited"),
    [
        # the row ends at 105, up to 1 µs behind the call, as clocks may err
        *(((10, 104), True), ((10, 103.999), False)),
        # has ended when the call begins
        *(((105, 110), False), ((104.999, 110), True)),
    ],
)
def test_a_call_waits_for_what_ends_in_it(call: tuple[float, float], awaited: bool) -> None:
    graph = behind_call(item("cudaStreamSynchronize", *call), item("a", 5, 105))
    assert graph.inferred[CALLS] == awaited
    # it returns no earlier than what it waited for
    unchanged = 125 + (max(105 - call[1], 0) if awaited else 0)
    assert again(graph)["last"] == unchanged
    assert again(graph, a=50)["last"] == (unchanged + 50 if awaited else 125)


@pytest.mark.parametrize(("at", "awaited"), [(10, True), (10.001, False)])
def test_a_call_does_not_wait_for_what_is_launched_after_it_began(at: float, awaited: bool) -> None:
    launches, syncs = [launch(at, 1), launch(120, 2, lane=OTHER)], [item("s", 10, 110, lane=OTHER)]
    work = [item("a", 15, 105, 1), item("b", 125, 126, 2, (0, 24))]
    graph = build_graph([alone(*work, launches=launches, syncs=syncs)])
    assert graph.inferred[CALLS] == awaited
    assert again(graph, a=50)["b"] - again(graph)["b"] == (50 if awaited else 0)


@pytest.mark.parametrize(
    ("name", "returned", "blocks"),
    [
        *(("copy", 58, True), ("copy", 55, True)),
        # from pageable memory the call feeds the copy, and returns while its last piece is on its way
        *(("copy (Pageable -> Device)", 36, True), ("copy (Pageable -> Device)", 35, False)),
        ("copy (Pinned -> Device)", 58, False),
    ],
)
def test_a_copy_that_its_call_waits_for_holds_its_host(name: str, returned: float, blocks: bool) -> None:
    work = [item(name, 15, 55, 1, copy=True, direction=1), item("k", 105, 110, 2)]
    launches = [item("cudaMemcpyAsync", 10, returned, 1), launch(100, 2)]
    graph = build_graph([alone(*work, launches=launches)])
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
        made.append(item("cudaLaunchKernel", at, max(at + 1, free), number + 1))
        at = max(at + 1, free) + 1
    graph = build_graph(
        [alone(*(kernel(200 * i + 10, 200 * i + 210, i + 1) for i in range(200)), launches=made)]
    )
    assert graph.inferred["launches that wait for a place in a full queue"] == waits
    halved = with_durations(graph, graph.nodes.dur // 2).end.max() / 1_000
    assert halved == pytest.approx(20_010, rel=1e-3) if waits else halved > 20_100


def waits_of_host(graph: Graph) -> list[tuple[int, int, int]]:
    """What points of the host wait for: its end, when they begin, and the lag between, ns."""
    source, target, lag = graph.wait_edges()
    on_host = graph.nodes.kind[target] == n.HOST
    columns = graph.nodes.end[source], graph.nodes.start[target], lag
    return sorted(zip(*(column[on_host].tolist() for column in columns), strict=True))


WAITED = "waits for the device at steps' ends"


@pytest.mark.parametrize(
    ("ends", "waits"),
    [
        *(((105, 230), True), ((120, 245), True)),
        # 20 µs behind the device's last row at most, in all steps
        *(((120.001, 245), False), ((120, 245.001), False)),
        # before it has drained
        *(((99.999, 230), False), ((100, 225), True)),
    ],
)
def test_steps_that_end_promptly_wait_for_the_device(ends: tuple[float, float], waits: bool) -> None:
    """Two kernels of 90 µs on two streams, of which the first ends last at 100 and 225, in steps."""
    work = [item("a", 10, 100, 1), item("b", 10, 90, 2, BESIDE), item("a", 135, 225, 3)]
    work += [item("b", 135, 215, 4, BESIDE)]
    launches = [launch(0, 1), launch(1, 2), launch(130, 3), launch(131, 4)]
    notes = [item("ProfilerStep#0", 0, ends[0]), item("ProfilerStep#1", 126, ends[1])]
    graph = build_graph([alone(*work, launches=launches, notes=notes, windows=[(0, 0, 250)])])
    assert graph.inferred[WAITED] == (2 if waits else 0)
    if waits:
        first, second = (round(1_000 * end) for end in ends)
        assert waits_of_host(graph) == [
            *((90_000, first, first - 100_000), (100_000, first, first - 100_000)),
            *((215_000, second, second - 225_000), (225_000, second, second - 225_000)),
        ]


@pytest.mark.parametrize(("returned", "waits"), [(100, 0), (99.999, 1)])
def test_a_step_that_ends_behind_a_call_has_not_waited_for_the_device(returned: float, waits: int) -> None:
    """A launch returns at 100, when the device has drained; at 99.999 it has not."""
    launches, notes = (
        [launch(0, 1), item("cudaLaunchKernel", 95, returned, 7)],
        [item("ProfilerStep#0", 0, 105)],
    )
    one = alone(item("a", 10, 100, 1), launches=launches, notes=notes, windows=[(0, 0, 105)])
    assert build_graph([one]).inferred[WAITED] == waits


PAUSED = "pauses of the host for a program's end"


@pytest.mark.parametrize(
    ("resumes", "held"), [(215, True), (1_210, True), (1_210.001, False), (209.999, False), (210, True)]
)
def test_a_host_that_pauses_until_a_program_has_ended(resumes: float, held: bool) -> None:
    """Programs of two rows on two streams; the first ends at 210, and the host goes on up to 1 ms later."""
    work = [item("x", 10, 200, 1), item("y", 20, 210, 1, BESIDE), item("x", 2_010, 2_100, 2)]
    work += [item("y", 2_020, 2_110, 2, BESIDE)]
    launches = [launch(0, 1), launch(2_000, 2, "cudaGraphLaunch")]
    ops = [item("aten::a", 0, 5), item("aten::b", resumes, resumes + 100)]
    graph = build_graph([alone(*work, launches=launches, ops=ops)])
    assert graph.inferred[PAUSED] == held
    assert again(graph, y=100)["x"] == (2_110 if held else 2_010)
    if held:
        lags = [lag for _, at, lag in waits_of_host(graph) if at == round(1_000 * resumes)]
        assert lags == [round(1_000 * (resumes - 210))]


def test_a_program_s_last_row_is_that_before_the_next_begins() -> None:
    """Each of three programs is awaited: the host goes on 3, 4 and 5 behind their last rows."""
    work = [item(f"x{i}", 300 * i + 10, 300 * i + 200, i) for i in range(3)]
    work += [item(f"y{i}", 300 * i + 20, 300 * i + 210, i, BESIDE) for i in range(3)]
    launches = [launch(300 * i, i, "cudaGraphLaunch", took=1) for i in range(3)]
    ops = [item("aten::a", 300 * i + 213 + i, 300 * i + 220 + i) for i in range(3)]
    graph = build_graph([alone(*work, launches=launches, ops=ops)])
    assert graph.inferred[PAUSED] == 3
    assert waits_of_host(graph) == [
        *((210_000, 213_000, 3_000), (510_000, 514_000, 4_000), (810_000, 815_000, 5_000))
    ]
    assert {1_000, 301_000, 601_000} <= {*graph.nodes.start[graph.nodes.kind == n.HOST].tolist()}


def test_nodes_of_a_rank_are_its_points_and_its_rows() -> None:
    work = [kernel(5, 7, 1), kernel(15, 17, 2), kernel(30, 31)]
    graph = build_graph([alone(*work, launches=[launch(0, 1), launch(10, 2)])])
    nodes = graph.nodes
    assert nodes.lane.tolist() == [0, 0, 1, 1, 1]
    assert nodes.feeder.tolist() == [-1, -1, 0, 1, -1]
    assert nodes.feed_lag.tolist() == [0, 0, 5_000, 5_000, 0]
    assert nodes.gap.tolist() == [0, 10_000, 0, 0, 13_000]
    assert nodes.kind.tolist() == [n.HOST, n.HOST, n.COMPUTE, n.COMPUTE, n.COMPUTE]
    assert +graph.inferred == {"rows without a launch, which keep their measured gaps": 1}
    assert not +graph.traced


def graph_among_kernels(*of_graph: Item) -> GraphInput:
    """Kernels of 20 at 5, 30, ... 130, the rows of a graph that is launched at 14, kernels from 400 on."""
    before = [kernel(5 + 25 * i, 25 + 25 * i, i) for i in range(6)]
    behind = [kernel(400 + 25 * i, 420 + 25 * i, 20 + i) for i in range(6)]
    launches = [launch(2 * i, i) for i in range(6)] + [launch(20 + 2 * i, 20 + i) for i in range(6)]
    return alone(*before, *of_graph, *behind, launches=[*launches, launch(14, 10, "cudaGraphLaunch")])


def test_kernels_of_one_graph_keep_their_gaps() -> None:
    """Gaps of 40 that no other kernel of the stream has, as where the profiler left kernels out."""
    made = graph_among_kernels(kernel(190, 210, 10), kernel(250, 270, 10), kernel(310, 395, 10))
    graph, times = replayed(made)
    assert end_of(graph, times, 0) == 545
    assert times.start.tolist() == graph.nodes.start.tolist()
    # 6 × 10 + 5 × 5 from 5 on, 40 + 10 + 40 + 10 + 40 + 42.5, 5 + 6 × 10 + 5 × 5
    assert end_of(graph, scaled(graph, n.COMPUTE, 0.5), 0) == 5 + 85 + 182.5 + 90
    # of a graph one row is told
    graph, times = replayed(graph_among_kernels(kernel(300, 395, 10)))
    assert end_of(graph, times, 0) == 545


def test_branches_of_a_graph_wait_for_one_another() -> None:
    """The branch beside begins 3 after the graph's first kernel began, the last kernel 5 after the branch."""
    made = graph_among_kernels(kernel(190, 210, 10), kernel(193, 305, 10, BESIDE), kernel(310, 395, 10))
    graph, times = replayed(made)
    assert times.start.tolist() == graph.nodes.start.tolist()
    (branch,) = np.flatnonzero(graph.nodes.start == 193_000)
    assert end_of(graph, lengthened(graph, {branch: -60}), 0) == 485


@pytest.mark.parametrize(("late", "busy", "end"), [(200, False, 325), (20, False, 125), (200, True, 125)])
def test_a_row_late_on_an_idle_device_stays_late(late: float, busy: bool, end: float) -> None:
    """A kernel of 20 launched at 100 that should begin at 105, and begins `late` more; no row says why. With
    another stream's kernel running all along it may have waited for that one's place: not known."""
    work = [*(kernel(5 + 30 * i, 25 + 30 * i, i) for i in range(3)), kernel(105 + late, 125 + late, 3)]
    launches = [*(launch(30 * i, i) for i in range(3)), launch(100, 3)]
    if busy:
        launches.append(launch(62, 4))
        work.append(kernel(67, 500, 4, BESIDE))
    graph, times = replayed(alone(*work, launches=launches, windows=[(0, 5, 125 + late)]))
    last = int(np.flatnonzero(graph.nodes.start == round((105 + late) * 1000))[-1])
    assert times.end[last] / 1000 == end


def test_what_the_first_launch_finds_idle_waits_for_no_other_lane() -> None:
    """A graph launched at 50, long after a row that nobody launched ended beside it."""
    work = [kernel(5, 20, lane=BESIDE), kernel(55, 60, 0), kernel(60, 65, 0)]
    graph, _ = replayed(alone(*work, launches=[launch(50, 0, "cudaGraphLaunch")]))
    (beside,) = np.flatnonzero(graph.nodes.start == 5_000)
    assert end_of(graph, lengthened(graph, {beside: 15}), 0) == 65
    # rows that nobody launched, on three lanes: the last follows one of the first two, no transfers
    graph, _ = replayed(
        alone(kernel(5, 20, lane=(0, 20)), kernel(5, 20, lane=(0, 21)), kernel(25, 30, lane=(0, 22)))
    )
    start = graph.nodes.start
    longer = [lengthened(graph, {place: 20}) for place in np.flatnonzero(start == 5_000)]
    assert sorted(times.end[start == 25_000].max() / 1000 for times in longer) == [30, 50]


@pytest.mark.parametrize(
    ("later", "lasts", "gone", "begin"),
    [
        # it overlaps a little, and begins earlier by what the receive takes less
        *((5, 400, 0, 515), (5, 400, 300, 215), (0, 400, 0, 510), (0, 400, 300, 210)),
        *((-10, 400, 0, 500), (-10, 400, 300, 200)),
        # more than 30 µs, or a twentieth of the shorter row: it keeps its gap behind its own lane's last
        *((-40, 2000, 100, 2070), (-10, 150, 100, 250)),
    ],
)
def test_a_row_follows_what_it_hardly_overlaps(later: float, lasts: float, gone: float, begin: float) -> None:
    """A kernel that began `later` than a receive ended that began at 110 and may take `gone` less."""
    end = 110 + lasts
    received = item("recv", 110, end, lane=(0, 9), category="communication")
    graph, times = replayed(alone(kernel(0, 100), received, kernel(end + later, end + later + 600)))
    nodes = graph.nodes
    assert times.start.tolist() == nodes.start.tolist()
    last = int(np.flatnonzero(nodes.kind == n.COMPUTE)[nodes.start[nodes.kind == n.COMPUTE].argmax()])
    assert lengthened(graph, {int(np.argmax(nodes.lane)): -gone}).start[last] / 1000 == begin


def test_what_follows_one_call_waits_for_all_of_it() -> None:
    """A send and a receive of 100 with the same times: whichever is shorter, the other is waited for."""
    work = [kernel(0, 100), item("send", 110, 210, lane=(0, 8), call=0)]
    work += [item("recv", 110, 210, lane=(0, 9), call=1), kernel(215, 300)]
    graph, _ = replayed(alone(*work, instances=[-1, -1]))
    last, both = int(graph.nodes.start.argmax()), np.flatnonzero(graph.nodes.kind == n.TRANSFER).tolist()
    for shorter in both:
        assert lengthened(graph, {shorter: -50}).start[last] == 215_000
    assert lengthened(graph, dict.fromkeys(both, -50)).start[last] == 165_000


HELD = "kernels held up by a kernel of another stream that fills the device"


@pytest.mark.parametrize(
    ("start", "known", "ends"),
    [
        # the first ends at 1005, 505 or 55: the second begins 20 before, or at once, with its own launch
        *((985, {}, [995, 495, 115]), (985, {"processors": None}, [995, 495, 115])),
        (985, {"blocks": -1}, [995, 495, 115]),
        # a grid that leaves processors free holds nobody up
        (985, {"blocks": 108}, None),
        # in the middle of the other kernel there was a place: something else held it up
        (600, {}, None),
        # it starts with its launch
        (105, {}, None),
    ],
)
def test_a_kernel_with_last_blocks(start: float, known: dict[str, int], ends: list[float] | None) -> None:
    """A kernel of 1 ms, and one of 10 µs of another stream that is ready at 105 and begins at `start`."""
    first = item("embedding", 5, 1005, 1, blocks=known.get("blocks", 5000))
    second = item("permute", start, start + 10, 2, BESIDE, blocks=200)
    launches = [launch(0, 1), launch(100, 2)]
    graph, _ = replayed(alone(first, second, launches=launches, processors=known.get("processors", 108)))
    one, other = np.flatnonzero(graph.nodes.kind == n.COMPUTE).tolist()
    found = [lengthened(graph, {one: less}).end[other] / 1000 for less in (0, -500, -950)]
    assert graph.inferred[HELD] == (ends is not None)
    assert found == ends if ends else found[1] == 115
