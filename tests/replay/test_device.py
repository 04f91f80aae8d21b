# SPDX-License-Identifier: Apache-2.0
"""A rank's device rows with their launches; what is fitted from them: latencies and gaps, in µs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from helpers.replay_rows import DEVICE, Item, item, kernel, launch, rank, rows

from cclbench.replay.device import Device, clock_grain_ns, device_of, launch_pairs, previous_end
from cclbench.replay.tables import GraphInput

BESIDE = (0, 20)


def device(launches: Sequence[Item], *work: Item) -> Device:
    return device_of(rank(0, launches=launches, work=work))


def test_a_row_s_launch_is_the_first_of_its_number_and_no_later_than_the_row() -> None:
    """Launches at 0, 1 (twice the same number), 50, and one without a number."""
    launches = [launch(0, 7), launch(1, 7), launch(2, -1), launch(50, 8), launch(60, 9)]
    found = device(launches, kernel(5, 6, 7), kernel(10, 11, -1), kernel(49, 50, 8), kernel(60, 70, 9))
    assert found.launch.tolist() == [0, -1, -1, 4]
    assert found.issue.tolist() == [0, 10_000, 49_000, 60_000]
    assert found.fitted.tolist() == [True, False, False, True]
    assert found.batch.tolist() == [-1] * 4
    assert found.first.tolist() == [True, False, False, False]
    # of two launches the shorter latency is the usual one; rows without a launch keep their gaps
    assert found.latency.tolist() == [0, 0, 0, 0]
    assert found.gap.tolist() == [0, 4_000, 38_000, 0]


@pytest.mark.parametrize(
    ("late", "usual", "doubt"),
    [
        # two are too few to tell a usual one: the least
        ((5.0, 5.2), 5_000, 1_000),
        # of three the median, and what nine in ten stay within: 0, 0.1 and 0.2 off
        ((5.3, 5.0, 5.1), 5_100, 180),
        ((5.0, 5.1, 25.1), 5_100, 1_000),
    ],
)
def test_the_usual_latency_is_that_on_an_idle_device(late: Sequence[float], usual: int, doubt: int) -> None:
    """Kernels of 10 µs, each launched when the one before has ended; one more is launched 1 ns too early."""
    launches, work, at = [], [], 0.0
    for number, latency in enumerate(late):
        launches.append(launch(at, number))
        work.append(kernel(at + latency, at + latency + 10, number))
        at += latency + 10
    launches.append(launch(at - 0.001, 99))
    work.append(kernel(at + 50, at + 60, 99))
    found = device(launches, *work)
    assert found.latency.tolist() == [usual] * len(work)
    assert found.doubt == doubt


def test_a_device_is_idle_when_what_was_launched_before_has_ended_on_any_stream() -> None:
    """The second kernel is launched beside a long one of another stream, which ends first."""
    launches = [launch(0, 0), launch(10, 1), launch(300, 2), launch(400, 3)]
    work = [kernel(4, 200, 0, lane=BESIDE), kernel(90, 100, 1), kernel(306, 310, 2), kernel(409, 420, 3)]
    assert set(device(launches, *work).latency.tolist()) == {6_000}


def queue(
    gaps: Sequence[float], names: str = "", lane: tuple[int, int] = DEVICE, begin: float = 100
) -> list[Item]:
    """Kernels of 10 µs, one behind the other on a stream with those gaps; the first at `begin`."""
    made, at = [], begin
    for number, gap in enumerate((0, *gaps)):
        at += gap
        name = names[number] if names else "gemm"
        made.append(kernel(at, at + 10, int(begin) * 100 + number, lane=lane, name=name))
        at += 10
    return made


def ahead(*queues: Sequence[Item]) -> list[Item]:
    """Their launches, 100 µs before the first of each, 1 ns apart."""
    return [
        launch(own[0]["start"] - 100 + i / 1_000, one["corr"]) for own in queues for i, one in enumerate(own)
    ]


def gaps_of(*queues: Sequence[Item], beside: Sequence[Item] = ()) -> list[list[int]]:
    """The gaps that are fitted, ns, of each queue behind its first kernel."""
    work = [one for own in queues for one in own]
    found = device([*ahead(*queues), *(launch(b["start"], b["corr"]) for b in beside)], *work, *beside)
    lanes = [found.rows.lanes[code] for code in found.rows.lane.tolist()]
    by_place = dict(zip(zip(lanes, found.rows.start.tolist(), strict=True), found.gap.tolist(), strict=True))
    return [[by_place[one["lane"], round(one["start"] * 1_000)] for one in own[1:]] for own in queues]


@pytest.mark.parametrize(
    ("gaps", "fitted"),
    [
        *(([1, 2, 3, 4, 10, 10.001], [4_000] * 6), ([1, 2, 3, 4, 9.999, 50], [4_000] * 6)),
        *(([0, 4], [2_000] * 2), ([20, 40], [0] * 2)),
        # rows that overlap keep by how much
        ([3, -2, 5], [4_000, -2_000, 4_000]),
    ],
)
def test_a_stream_s_gap_is_the_mean_of_those_up_to_10_us(gaps: list[float], fitted: list[int]) -> None:
    assert gaps_of(queue(gaps)) == [fitted]


@pytest.mark.parametrize(("count", "of_kernel", "of_stream"), [(5, 3_000, 4_000), (4, 1_889, 2_889)])
def test_kernels_and_streams_have_gaps_that_five_show(count: int, of_kernel: int, of_stream: int) -> None:
    """Five of 1 µs before one kernel, and `count` of 3 µs before another: else the mean of all.  Five of 2 µs
    in one stream, `count` of 4 in another one later: else the mean of the device's."""
    names = "a" + "a" * 5 + "b" * count
    assert gaps_of(queue([1] * 5 + [3] * count, names)) == [[1_000] * 5 + [of_kernel] * count]
    first, second = queue([2] * 5), queue([4] * count, lane=BESIDE, begin=1000)
    assert gaps_of(first, second) == [[2_000] * 5, [of_stream] * count]


def test_a_stream_beside_another_one_s_row_leaves_other_gaps() -> None:
    """Six gaps alone, six while a kernel of another stream runs: by that, and by no kernel's name."""
    own = queue([1] * 6 + [5] * 6, "a" * 7 + "bcdefg")
    long = kernel(own[6]["end"] - 1, own[-1]["end"] + 9, 7, lane=BESIDE)
    assert gaps_of(own, beside=[long]) == [[1_000] * 6 + [5_000] * 6]
    # the last kernel begins 9 µs behind its stream's, and 2 behind another stream's
    own = queue([1, 1, 9])
    assert gaps_of(own) == [[3_667] * 3]
    other = kernel(own[2]["start"], own[3]["start"] - 2, 7, lane=BESIDE)
    assert gaps_of(own, beside=[other]) == [[1_000] * 3]
    # as the stream's own last, and no later
    beside = kernel(own[2]["start"], own[2]["end"], 7, lane=BESIDE)
    assert gaps_of(own, beside=[beside]) == [[3_667] * 3]


@pytest.mark.parametrize(("late", "gaps"), [(0.001, [1_000] * 3), (0, [4_000] * 3)])
def test_what_is_launched_too_late_tells_nothing_of_the_stream(late: float, gaps: list[int]) -> None:
    """By 1 ns: with the usual latency it may have waited for its launch."""
    own = queue([1, 1, 10])
    launches = ahead(own)
    usual = own[0]["start"] - launches[0]["start"]
    launches[-1] = launch(own[2]["end"] - usual + late, own[3]["corr"])
    assert device(launches, *own).gap[1:].tolist() == gaps


@pytest.mark.parametrize(
    ("gaps", "doubt"),
    [
        *(([2, 2, 2, 2, 2.5], 280), ([2, 2, 2, 2, 2.1], 170), ([1, 1, 1, 1, 9], 1_000)),
        ([2, 2, 2, 2, 2.5, 90], 280),
    ],
)
def test_the_doubt_is_the_larger_spread_up_to_1_us(gaps: Sequence[float], doubt: int) -> None:
    """Latencies are off by 0, 0, 0.1 and 0.2; gaps of 2.1 in the mean by 0.1, four times, and 0.4."""
    idle = [(0, 5.0), (1000, 5.1), (2000, 5.3)]
    alone = [kernel(at + late, at + late + 1, number) for number, (at, late) in enumerate(idle)]
    own = queue(gaps, begin=3005.1)
    launches = [launch(at, number) for number, (at, _) in enumerate(idle)]
    launches += [launch(3000 + i / 1_000, one["corr"]) for i, one in enumerate(own)]
    assert device(launches, *alone, *own).doubt == doubt


def test_a_launch_of_several_rows_belongs_to_the_first_of_them() -> None:
    """Two of one launch, whichever lane; of a graph's launch one row may be all that was kept."""
    launches = [launch(0, 0), launch(1, 1), launch(2, 2, "cudaGraphLaunch"), launch(3, 3)]
    work = [
        *(kernel(30, 40, 0), kernel(20, 25, 0, lane=BESIDE), kernel(50, 60, 1)),
        *(kernel(70, 80, 2), kernel(90, 95, 3), kernel(97, 98, -1)),
    ]
    found = device(launches, *work)
    assert found.rows.start.tolist() == [30_000, 50_000, 70_000, 90_000, 97_000, 20_000]
    assert found.batch.tolist() == [0, -1, 2, -1, -1, 0]
    assert found.launch.tolist() == [-1, 1, 2, 3, -1, 0]
    assert found.fitted.tolist() == [False, True, False, True, False, False]


@pytest.mark.parametrize(("launched", "each"), [(2, True), (1, False)])
def test_rows_of_which_few_have_a_launch_are_whole_programs(launched: int, each: bool) -> None:
    """Of four rows; those of graphs do not count."""
    launches = [launch(0, 0), launch(1, 1), launch(2, 2, "cudaGraphLaunch")]
    alone = [kernel(10 * i, 10 * i + 5, i - 1 if i <= launched else -1) for i in range(1, 5)]
    found = device(launches, *alone, kernel(60, 61, 2), kernel(70, 71, 2))
    own = found.batch.tolist()
    assert own == [*([-1] * 4 if each else [0, -1, -1, -1]), 2, 2]
    assert found.fitted.any() == each


def programs(*starts: float, first: float = 5) -> Device:
    """Programs of two rows of 10 µs, 2 apart, launched at 0, 100, 200, ..."""
    launches = [launch(100 * i, i, "cudaGraphLaunch") for i in range(1 + len(starts))]
    work = [kernel(at + 12 * j, at + 12 * j + 10, i) for i, at in enumerate((first, *starts)) for j in (0, 1)]
    return device(launches, *work)


def test_a_program_that_queued_has_the_least_latency_seen_and_others_their_own() -> None:
    """The second one is launched at 100, before the first ends at 127; the third finds the device idle."""
    found = programs(130, 207, first=105)
    assert found.latency[[0, 2, 4]].tolist() == [105_000, 7_000, 7_000]
    assert found.gap.tolist() == [0, 2_000, 3_000, 2_000, 0, 2_000]
    # where the first has ended when the second is launched, that has not queued
    assert programs(130, 207, first=78).latency[2] == 30_000
    assert programs(130, 207, first=78.001).latency[2] == 7_000
    # a program's latency is at most the usual one of launches
    launches = [launch(0, 0), launch(100, 1), launch(200, 2), launch(205, 3, "cudaGraphLaunch")]
    alone = [kernel(at + 4, at + 90, i) for i, at in enumerate((0, 100, 200))]
    found = device(launches, *alone, kernel(300, 310, 3), kernel(312, 320, 3))
    assert found.latency.tolist() == [4_000] * 4 + [0]
    assert found.gap.tolist() == [0, 0, 0, 10_000, 2_000]


def test_what_ended_last_before_a_row() -> None:
    own = rows([kernel(5, 10), kernel(10, 20), kernel(15, 30), kernel(25, 26)])
    assert previous_end(own).tolist() == [-(1 << 60), 10_000, 10_000, 20_000]


@pytest.mark.parametrize(
    ("times", "exact"),
    [
        *(([(0.5, 2.5), (7.5, 9.5)], 1_000), ([(0.5, 2.5), (7.5, 9.501)], 1)),
        *(([(0.5, 2.5), (7.499, 9.5)], 1), ([(0, 2.999), (7, 9)], 1)),
    ],
)
def test_times_of_whole_us_are_exact_to_1_us(times: list[tuple[float, float]], exact: int) -> None:
    assert clock_grain_ns(rows([kernel(*one) for one in times])) == exact


def pair(
    number: int, begin: float, end: float, *, wait: float = 1, lane: tuple[int, int] = BESIDE
) -> tuple[Item, Item, Item]:
    """A transfer, and the core's rows that issue and await it."""
    name = f"copy-start.{number}"
    moved, issue = item(name, begin, end, lane=lane, copy=True), item(name, begin, begin + 0.5, lane=DEVICE)
    return moved, issue, item(f"copy-done.{number}", end - wait, end, lane=DEVICE)


def found_pairs(
    *pairs: tuple[Item, Item, Item], work: Sequence[Item] = ()
) -> tuple[GraphInput, list[list[int]]]:
    own = rank(0, work=[*work, *(p[0] for p in pairs)], marks=[mark for p in pairs for mark in p[1:]])
    found = launch_pairs(own).in_lane_order()
    rows_of = (found.issue, found.transfer, found.wait)
    return own, [found.rows.start[at].tolist() for at in rows_of] + [found.waited.tolist()]


def test_transfers_are_issued_where_they_begin_and_awaited_where_they_end() -> None:
    """A wait is the instant at which it is over; each transfer has a lane of its own."""
    first, second = pair(1, 10, 50, wait=5), pair(2, 12, 40, wait=3)
    own, found = found_pairs(first, second, work=[kernel(0, 10), kernel(20, 30)])
    assert sorted(zip(*found, strict=True)) == [
        *((10_000, 10_000, 50_000, 5_000), (12_000, 12_000, 40_000, 3_000))
    ]
    beside = [kernel(0, 10), kernel(20, 30), kernel(3, 50, lane=(0, 30))]
    assert found_pairs(first, second, work=beside)[1] == found
    both = launch_pairs(own).in_lane_order()
    lanes = both.rows.lane[both.transfer]
    assert len({*lanes.tolist()} - {*both.rows.lane[both.issue].tolist()}) == 2
    assert {both.rows.lanes[lane] for lane in lanes.tolist()} == {BESIDE}
    assert len(both.rows) == len(own.work) + 4
    # the only row of the core that ends with the second one is the one that began it
    assert found_pairs(pair(1, 10, 50, lane=DEVICE))[1] == [[], [], [], []]
    moved, issue, _ = pair(1, 10, 10.5)
    assert not len(launch_pairs(rank(0, work=[moved], marks=[issue])).transfer)
    # it is over at 50, 38 behind the kernel before it, of which it has waited for 5
    own, _ = found_pairs(pair(1, 10, 50, wait=5), work=[kernel(0, 10), kernel(11, 12)])
    found = device_of(own)
    wait = int(found.pairs.wait[0])
    assert found.gap[wait] == 33_000
