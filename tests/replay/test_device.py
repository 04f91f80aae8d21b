# SPDX-License-Identifier: Apache-2.0
"""The device of a replay, and another accelerator, by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from helpers.machine_trace import BF16, Op, product, write_trace
from helpers.replay_rows import DEVICE, Item, Lane, item, kernel, launch, rank, rows

import cclbench
from cclbench.ground.errors import InputError
from cclbench.hardware import catalog
from cclbench.hardware.kernel_rates import FamilyRate, FamilySpread, KernelRates, kernel_rates, pair_rates
from cclbench.replay import nodes as n
from cclbench.replay import other_accelerator
from cclbench.replay.answer import Replay
from cclbench.replay.device import Device, clock_grain_ns, device_of, launch_pairs, previous_end
from cclbench.replay.other_accelerator import KernelRatios, kernel_ratios
from cclbench.replay.scenario import parse_scenario
from cclbench.replay.tables import GraphInput

BESIDE = (0, 20)
Trio = tuple[Item, Item, Item]


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


def queue(gaps: Sequence[float], names: str = "", lane: Lane = DEVICE, begin: float = 100) -> list[Item]:
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
    work = [kernel(30, 40, 0), kernel(20, 25, 0, lane=BESIDE), kernel(50, 60, 1), kernel(70, 80, 2)]
    work += [kernel(90, 95, 3), kernel(97, 98, -1)]
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
    assert found.batch.tolist() == [*([-1] * 4 if each else [0, -1, -1, -1]), 2, 2]
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


def pair(number: int, begin: float, end: float, *, wait: float = 1, lane: Lane = BESIDE) -> Trio:
    """A transfer, and the core's rows that issue and await it."""
    name = f"copy-start.{number}"
    moved, issue = item(name, begin, end, lane=lane, copy=True), item(name, begin, begin + 0.5, lane=DEVICE)
    return moved, issue, item(f"copy-done.{number}", end - wait, end, lane=DEVICE)


def found_pairs(*pairs: Trio, work: Sequence[Item] = ()) -> tuple[GraphInput, list[list[int]]]:
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
    assert found.gap[int(found.pairs.wait[0])] == 33_000


A100, H100 = "nvidia-a100-sxm-80gb", "nvidia-h100-sxm"
ANY = {"any": FamilyRate(4, 5_000.0, 0.5), "nvidia": FamilyRate(2, 4_000.0, 0.5)}
PRODUCTS = {A100: FamilyRate(2, 10_000.0, 0.8), H100: FamilyRate(1, 2_000.0, 0.9)}
RATES = {"any": ANY, "gemm": PRODUCTS | {"any": FamilyRate(3, 6_000.0, 0.85)}}
SPREADS = {"any": FamilySpread(4, 0.5, 0.7), "gemm": FamilySpread(3, 0.3, 0.4)}
TABLE = KernelRates("2026-11-27", "0", RATES, SPREADS, 0.25, ())
GEMM = product(4096, "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", 1_000, BF16)
ADD = Op(
    "aten::add", "void at::native::vectorized_elementwise_kernel<4, add>()", 400, [[4096, 4096], [4096, 4096]]
)
GEMM_NS = (2 * 4096**3 / 271e12 * 1e9, 2 * 4096**3 / 794.5e12 * 1e9)
ADD_NS = (3 * 4096**2 * 4 / 2.039e12 * 1e9, 3 * 4096**2 * 4 / 3.35e12 * 1e9)
WIDTH = 1.2816 * math.sqrt(2)


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_accelerator, "kernel_rates", lambda: TABLE)


def replay_of(folder: Path, ops: list[Op], device: str = "a100") -> Replay:
    write_trace(folder / "traces", ops, device=device)
    return Replay(cclbench.ingest(folder / "traces", store=folder / "store"))


def ratios_of(replay: Replay, target: str, precision: str | None = None) -> tuple[KernelRatios, list[int]]:
    """Ratios of all nodes, and which are kernels."""
    device = replay.machine.accelerator.value
    assert device is not None
    found = kernel_ratios(replay.graph, replay.costs, device, catalog.accelerator(target), precision)
    return found, np.flatnonzero(replay.graph.nodes.kind == n.COMPUTE).tolist()


@pytest.mark.usefixtures("by_hand")
def test_a_family_that_both_have(tmp_path: Path) -> None:
    """Small kernels 10 and 2 µs, 80 and 90 % of the roofline; four captures in five within e^(1.81 · 0.3)."""
    found, [kernel, *_] = ratios_of(replay_of(tmp_path, [GEMM]), H100)
    ratio = (2_000 + GEMM_NS[1] / 0.9) / (10_000 + GEMM_NS[0] / 0.8)
    assert found.expected[kernel] == pytest.approx(ratio, rel=1e-3)
    assert found.low[kernel] == pytest.approx(ratio / math.exp(0.3 * WIDTH), rel=1e-3)
    assert found.high[kernel] == pytest.approx(ratio * math.exp(0.3 * WIDTH), rel=1e-3)
    assert found.host_factor == pytest.approx(math.exp(0.25 * WIDTH), rel=1e-3)


@pytest.mark.usefixtures("by_hand")
def test_a_family_that_no_capture_on_the_target_has(tmp_path: Path) -> None:
    """The figures of all accelerators on both, the vendor's small kernels, and a wider spread."""
    found, [kernel, *_] = ratios_of(replay_of(tmp_path, [ADD]), H100)
    ratio = (4_000 + ADD_NS[1] / 0.5) / (4_000 + ADD_NS[0] / 0.5)
    assert found.expected[kernel] == pytest.approx(ratio, rel=1e-3)
    assert found.high[kernel] == pytest.approx(ratio * math.exp(0.7 * WIDTH), rel=1e-3)
    assert any(f"not known of {H100}" in note and "elementwise" in note for note in found.basis)


@pytest.mark.usefixtures("by_hand")
def test_families_deviate_independently(tmp_path: Path) -> None:
    """Widths of all kernels together add as squares, each weighted with its family's new time."""
    found, [gemm, add, *_] = ratios_of(replay_of(tmp_path, [GEMM, ADD]), H100)
    widths = [found.expected[gemm] * 1_000 * 0.3, found.expected[add] * 400 * 0.7]
    kept = math.hypot(*widths) / sum(widths)
    assert found.high[gemm] / found.expected[gemm] == pytest.approx(math.exp(0.3 * WIDTH * kept), rel=1e-3)
    assert found.high[add] / found.expected[add] == pytest.approx(math.exp(0.7 * WIDTH * kept), rel=1e-3)


@pytest.mark.usefixtures("by_hand")
def test_a_product_without_shapes_is_of_arithmetic_or_memory(tmp_path: Path) -> None:
    """80 % of what a kernel takes beyond a small one is its roofline time."""
    unshaped = Op("aten::mm", GEMM.kernel, 1_000, [])
    found, [kernel, *_] = ratios_of(replay_of(tmp_path, [unshaped]), H100, "bf16")
    assumed = (1_000_000 - 10_000) * 0.8
    ratio = (2_000 + assumed * 271 / 794.5 / 0.9) / 1_000_000
    assert found.expected[kernel] == pytest.approx(ratio, rel=1e-3)
    found, [kernel, *_] = ratios_of(replay_of(tmp_path, [unshaped]), H100)
    assert np.isnan(found.expected[kernel])  # of which precision, or memory, is unknown
    most = (2_000 + assumed * 2.039 / 3.35 / 0.9) / 1_000_000
    assert found.high[kernel] == pytest.approx(most * math.exp(0.3 * WIDTH), rel=1e-3)


def test_a_precision_that_the_target_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nvidia-v100-sxm2-16gb has no bf16 rate"):
        ratios_of(replay_of(tmp_path, [GEMM]), "nvidia-v100-sxm2-16gb")


def test_the_same_processors_run_the_same_kernels(tmp_path: Path) -> None:
    """H100 and H200 differ in memory: no spread of captures, and the host stays."""
    found, [kernel, *_] = ratios_of(replay_of(tmp_path, [GEMM], "h100"), "nvidia-h200-sxm")
    assert (found.expected[kernel], found.high[kernel], found.host_factor) == (1.0, 1.0, 1.0)
    assert found.low[kernel] == pytest.approx(3.35 / 4.8, rel=1e-2)


def test_the_scopes_of_a_pair() -> None:
    """Both have products; of an A100 and an MI300X both figures are those of all."""
    a100, h100, amd = (catalog.accelerator(name) for name in (A100, H100, "amd-mi300x"))
    assert pair_rates(TABLE, "gemm", a100, h100)[:2] == ((10_000, 2_000), (0.8, 0.9))
    assert pair_rates(TABLE, "gemm", a100, amd)[:2] == ((6_000, 6_000), (0.85, 0.85))
    assert pair_rates(TABLE, "attention", a100, h100)[:2] == ((4_000, 4_000), (0.5, 0.5))


def test_the_shipped_table() -> None:
    """Every figure is a share or a time, and every spread has its captures."""
    table = kernel_rates()
    assert len(table.captures) >= 15
    assert len({capture.accelerator for capture in table.captures}) >= 4
    for family, scopes in table.rates.items():
        assert scopes["any"].captures == table.spread[family].captures
        assert all(rate.share is None or 0 < rate.share <= 1 for rate in scopes.values())
        assert all(rate.small_ns is None or 500 < rate.small_ns < 50_000 for rate in scopes.values())
    assert all((spread.seen or 0) <= spread.unseen for spread in table.spread.values())


def test_a_workload_that_was_traced_on_both(test_data: Path, evidence_store: Path) -> None:
    """Qwen1.5-0.5B on an H100; on an MI300X a step took 33.1 ms, its kernels 29.7 ms (TraceLens,
    tests/traces/mi300, the trace of the same name)."""
    replay = Replay(cclbench.ingest(test_data / "kineto" / "h100_qwen", store=evidence_store))
    outcome = replay.predict(parse_scenario(["accelerator=amd-mi300x"]))
    assert outcome.low_ns < 33.13e6 < outcome.high_ns
    found, kernels = ratios_of(replay, "amd-mi300x")
    low, high = ((replay.graph.nodes.dur * bound)[kernels].sum() for bound in (found.low, found.high))
    assert low < 29.74e6 < high < 2.5 * low


def test_a_host_bound_step_says_so(tmp_path: Path) -> None:
    """Ops of 1 µs, launched one after the other."""
    small = [Op("aten::add", ADD.kernel, 1, [[16], [16]])] * 20
    outcome = replay_of(tmp_path, small).predict(parse_scenario([f"accelerator={H100}"]))
    assert any("the host bounds the step" in note for note in outcome.basis)
    assert outcome.low_ns < outcome.high_ns


GFLOP = 2 * 4096**3 / 1e9
MB = 3 * 4096**2 * 4 / 1e6
SGEMM = product(4096, "ampere_sgemm_128x128_tn", 8_000)


def gains_us(folder: Path, ops: list[Op], *settings: str, device: str = "a100") -> tuple[float, float]:
    """What a step is shorter, at least and at most, µs."""
    write_trace(folder / "traces", ops, device=device)
    found = cclbench.whatif(cclbench.ingest(folder / "traces", store=folder / "store"), *settings)
    only = found.single_outcome
    return tuple((found.unchanged.step_ns - ns) / 1e3 for ns in (only.high_ns, only.low_ns))  # type: ignore[return-value]


def test_a_product_of_fp32_on_tensor_cores(tmp_path: Path) -> None:
    """At most 271 TFLOP/s; at least what lies beyond its arithmetic, 7,048 µs, and that at 124.8 TFLOP/s."""
    least, most = gains_us(tmp_path, [SGEMM], "kernels.time=tensor_cores")
    assert most == pytest.approx(8_000 - GFLOP / 271e3 * 1e6, rel=1e-3)
    assert least == pytest.approx(GFLOP / 19.5e3 * 1e6 - GFLOP / (0.8 * 156e3) * 1e6, rel=1e-3)


def test_a_v100_has_fp16_alone(tmp_path: Path) -> None:
    """125 TFLOP/s instead of 15.7: 1,099 to 1,374 µs instead of 8,754 and what lies beyond."""
    ops = [product(4096, "volta_sgemm_128x128_tn", 9_000)]
    least, most = gains_us(tmp_path, ops, "kernels.time=tensor_cores", device="v100")
    assert most == pytest.approx(9_000 - GFLOP / 125e3 * 1e6, rel=1e-3)
    assert least == pytest.approx(GFLOP * 1e6 * (1 / 15.7e3 - 1 / 100e3), rel=1e-3)


def test_what_is_at_the_roofline(tmp_path: Path) -> None:
    """A product of bf16 of 1,000 µs takes 507 at 271 TFLOP/s, 564 at 0.9 of that; a copy-like one of 201 MB
    99 µs, 123 at 80 % of the bandwidth."""
    ops = [GEMM, ADD]
    least, most = gains_us(tmp_path, ops, "kernels[gemm].time=roofline")
    assert most == pytest.approx(1_000 - GFLOP / 271e3 * 1e6, rel=1e-3)
    assert least == pytest.approx(1_000 - GFLOP / (0.9 * 271e3) * 1e6, rel=1e-3)
    least, most = gains_us(tmp_path / "2", ops, "kernels[elementwise].time=roofline")
    assert most == pytest.approx(400 - MB / 2.039, rel=1e-3)
    assert least == pytest.approx(400 - MB / 2.039 / 0.8, rel=1e-3)


def test_no_kernel_is_bounded_twice(tmp_path: Path) -> None:
    """What a product without tensor cores takes on them counts, not its roofline in fp32 as well."""
    settings = ("kernels[gemm].time=roofline", "kernels.time=tensor_cores")
    least, most = gains_us(tmp_path, [SGEMM], *settings)
    assert (least, most) == gains_us(tmp_path / "2", [SGEMM], settings[1])


def test_a_kernel_gains_no_less_than_an_empty_one_takes(tmp_path: Path) -> None:
    """64³ take 0.02 µs at the roofline; that 3 µs become less than 2 is not counted on."""
    small = product(64, "ampere_bf16_s16816gemm_bf16_64x64_tn", 3, BF16)
    least, most = gains_us(tmp_path, [SGEMM] + [small] * 20, "kernels[name~bf16].time=roofline")
    assert least == pytest.approx(20 * 1, rel=0.01)
    assert most == pytest.approx(20 * (3 - 3 * 64 * 64 * 2 / 2.039e6), rel=0.01)


def test_without_shapes_no_roofline_is_known_and_peaks_bound_what_tensor_cores_gain(tmp_path: Path) -> None:
    op = Op("aten::mm", "ampere_sgemm_128x128_tn", 8_000)
    with pytest.raises(InputError, match="are unknown"):
        gains_us(tmp_path, [op], "kernels.time=roofline")
    least, most = gains_us(tmp_path / "2", [op], "kernels.time=tensor_cores")
    assert (least, most) == pytest.approx((8_000 * (1 - 19.5 / 124.8), 8_000 * (1 - 19.5 / 271)), rel=1e-3)


def test_what_is_on_tensor_cores_already_stays(tmp_path: Path) -> None:
    op = product(4096, "ampere_bf16_s16816gemm_bf16_128x64_tn", 800, BF16)
    assert gains_us(tmp_path, [op], "kernels.time=tensor_cores") == (0, 0)
