# SPDX-License-Identifier: Apache-2.0
"""Transfers that only another layout has, and their pairs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.replay_rows import Item, alone, end_of, item, rank, replayed, scaled
from helpers.replay_subjects import degrees

import cclbench
from cclbench.card.model import Hardware
from cclbench.ground.errors import InputError
from cclbench.hardware import catalog
from cclbench.hardware.collectives import price_collective
from cclbench.machine import Machine
from cclbench.replay import nodes as n
from cclbench.replay.answer import Replay
from cclbench.replay.change import AddedCommunication, LayoutEffect, Scale, TimeBounds
from cclbench.replay.device import launch_pairs
from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.layout import target_relayout
from cclbench.replay.new_transfers import price_new
from cclbench.replay.pricing import TimeRatios, time_ratios
from cclbench.replay.regroup import RegroupedGroup
from cclbench.replay.relaid import RelaidGraph, scale_ratios
from cclbench.replay.scenario import parse_scenario
from cclbench.replay.tables import GraphInput
from cclbench.replay.windows import StepPace, rank_windows

FOUR = Machine(Hardware(per_node=4))
GROUPS = {"0-1": (0, 1)}
LINE = [1_000, 10_000, 20_000, 50_000, 90_000]


def moved(*calls: tuple[str, int, float], group: str = "0-1", known: bool = True) -> Graph:
    made = []
    for r in (0, 1):
        work, at = [], 0.0
        for i, (_, _, took) in enumerate(calls):
            work.append(item("nccl", at, at + took, lane=(0, 9), call=i))
            at += took + 10
        instances = [*range(len(calls))] if known else [-1] * len(calls)
        one = rank(r, work=work, instances=instances, nbytes=[c[1] for c in calls], windows=[(0, 0, at)])
        object.__setattr__(one.calls, "kind", tuple(c[0] for c in calls))
        object.__setattr__(one.calls, "group", (group,) * len(calls))
        made.append(one)
    return build_graph(made)


def linear(kind: str = "all_reduce") -> Graph:
    return moved(*((kind, size, 10 + size / 1_000) for size in LINE))


def priced(
    graph: Graph,
    kind: str,
    ranks: tuple[int, ...],
    nbytes: float,
    machine: Machine = FOUR,
    groups: Any = GROUPS,
) -> TimeBounds:
    return price_new(graph, parse_scenario(["kernels.time=x2"]), machine, groups, None, kind, ranks, nbytes)


@pytest.mark.parametrize(
    ("kind", "ranks", "steps", "rate"),
    [
        ("all_reduce", (0, 1), 1, 1),
        # a ring of four has 6 steps for 2, and moves 6/4 of the payload for 1
        *(("all_reduce", (0, 1, 2, 3), 3, 1.5), ("all_gather", (0, 1, 2, 3), 1.5, 0.75)),
        ("send_recv", (0, 1), 0.5, 1),
    ],
)
def test_the_run_s_line_prices_others(kind: str, ranks: tuple[int, ...], steps: float, rate: float) -> None:
    found = priced(linear(), kind, ranks, 40_000)
    assert found.expected == pytest.approx(10_000 * steps + 40_000 * rate, abs=2)
    assert found.low == pytest.approx(found.expected, abs=2)
    assert found.high == pytest.approx(found.expected, abs=2)
    assert found.low <= found.expected <= found.high


def test_bounds_are_the_line_s_and_no_less_than_0() -> None:
    """Times that scatter about the line: the interval of α, so many times as there are more steps."""
    taken = (10 + size / 1_000 + (5 if i % 2 else -5) for i, size in enumerate(LINE))
    noisy = moved(*(("all_reduce", size, took) for size, took in zip(LINE, taken, strict=True)))
    two, four = (priced(noisy, "all_reduce", ranks, 1_000.0) for ranks in ((0, 1), (0, 1, 2, 3)))
    assert four.high - four.expected == pytest.approx(3 * (two.high - two.expected))
    assert four.high > four.expected
    assert four.low == max(2 * four.expected - four.high, 0.0)


def test_without_a_line_the_transfer_nearest_in_size_is_latency_or_bandwidth() -> None:
    """Of 1 and 100 KB, in 20 and 120 µs (the median of three): 8 KB is nearer to 1, 20 KB to 100."""
    graph = moved(("all_reduce", 1_000, 20), *(("all_reduce", 100_000, took) for took in (120, 500, 90)))
    assert priced(graph, "all_reduce", (0, 1), 8_000) == TimeBounds(20_000, None, 160_000)
    assert priced(graph, "all_reduce", (0, 1), 20_000) == TimeBounds(24_000, None, 120_000)
    assert priced(graph, "all_reduce", (0, 1, 2, 3), 20_000) == TimeBounds(36_000, None, 360_000)


def test_the_kind_s_own_transfers_come_first_then_those_of_a_ring() -> None:
    graph = moved(("all_gather", 1_000, 20), ("all_to_all", 1_000, 30), ("all_reduce", 1_000, 40))
    assert priced(graph, "all_to_all", (0, 1), 1_000) == TimeBounds(30_000, None, 30_000)
    assert priced(graph, "all_gather", (0, 1), 1_000) == TimeBounds(20_000, None, 20_000)
    # of a broadcast nothing is traced: a ring's all-reduce of two, of as many bytes
    assert priced(graph, "reduce_scatter", (0, 1), 1_000) == TimeBounds(20_000, None, 20_000)


@pytest.mark.parametrize(
    ("graph", "machine", "groups"),
    [
        (linear(), Machine(Hardware(per_node=2)), GROUPS),
        *((linear(), Machine(), GROUPS), (linear(), FOUR, {}), (linear(), FOUR, {"0-1": (0,)})),
        *((linear("broadcast"), FOUR, GROUPS), (moved(("all_reduce", 0, 20)), FOUR, GROUPS)),
        (moved(("all_reduce", 1_000, 20), known=False), FOUR, GROUPS),
        (moved(("all_reduce", 1_000, 0)), FOUR, GROUPS),
    ],
)
def test_what_nothing_of_the_run_tells_is_refused(graph: Graph, machine: Machine, groups: Any) -> None:
    """Another tier, unknown nodes, groups, bytes or waits, a group of one, another kind."""
    with pytest.raises(InputError, match=r"all_reduce of 4 ranks is not in the run, and no machine is known"):
        priced(graph, "all_reduce", (0, 1, 2, 3), 1_000, machine, groups)


def test_a_named_machine_prices_by_its_model() -> None:
    machine = Machine(Hardware(system="dgx-h100"))
    known = price_collective("all_reduce", [1 << 20], (0, 8), catalog.system("dgx-h100"))
    found = priced(linear(), "all_reduce", (0, 8), 1 << 20, machine)
    bounds = tuple(1e9 * float(s[0]) for s in (known.low_s, known.time_s, known.high_s))
    assert found[:3] == pytest.approx(bounds, rel=1e-12)
    assert found.marks == known.all_marks == ()
    alps = Machine(Hardware(system="alps-gh200"))
    (mark,) = priced(linear(), "all_reduce", (0, 4), 1 << 20, alps).marks
    assert mark.startswith("weak class: NVIDIA, Slingshot")
    # nine ranks of two nodes, one of them with one: as of one each, times what a rank moves
    uneven = priced(linear(), "all_reduce", (*range(8), 8), 1 << 20, machine)
    assert uneven.expected == pytest.approx(1e9 * float(known.time_s[0]) * 16 / 9)
    assert uneven.high == pytest.approx(1e9 * float(known.high_s[0]) * 16 / 9)
    assert uneven.low == pytest.approx(1e9 * float(known.low_s[0]) * 2 / 9)


def relaid(*effects: LayoutEffect, dimension: Any = "dp") -> RelaidGraph:
    change = target_relayout(degrees(dp=2), {"parallelism.dp": 4})
    return RelaidGraph(change, GROUPS, {"0-1": dimension} if dimension else {}, effects)


def test_factors_and_scales_of_several_settings() -> None:
    graph = linear()
    one = LayoutEffect(graph, payload={"dp": 0.5, "tp": 3.0}, repeats={"dp": 2.0})
    two = LayoutEffect(graph, payload={"dp": 0.5}, repeats={"dp": 3.0})
    assert relaid(one, two).regrouped_groups() == {"0-1": RegroupedGroup((0, 1, 2, 3), 0.25, 6.0, "dp")}
    # scales and notes of several settings add up
    count = len(graph.nodes)
    whole = TimeRatios(np.full(count, 2.0), np.full(count, 3.0), np.full(count, 5.0), ("base",))
    half = Scale(np.full(count, 0.5), np.full(count, 0.25), np.full(count, 4.0))
    noted = LayoutEffect(graph, half, notes=("a",)), LayoutEffect(graph, notes=("b",))
    made = scale_ratios(whole, (*noted, LayoutEffect(graph, half)))
    assert (made.expected[0], made.low[0], made.high[0]) == (2.0 * 0.25, 3.0 / 16, 5.0 * 16)
    assert made.basis == ("a", "b", "base")


def stages() -> Graph:
    """A kernel of 10 µs, of 20 on rank 1, an optimizer's of 4, transfers of 6 and 8 of two groups."""
    made = []
    for r in (0, 1):
        work = [item("k", 0, 10 * (1 + r), category="gemm"), item("o", 20, 24, category="optimizer")]
        work += [item("t", 30, 36, call=0, category="communication", step=1)]
        work += [item("u", 40, 48, call=1, category="communication", step=1)]
        one = rank(r, work=work, instances=[0, 1], windows=[(0, 0, 30), (1, 30, 50)])
        object.__setattr__(one.calls, "group", ("0-1", "other"))
        made.append(one)
    graph = build_graph(made)
    graph.nodes.busy[graph.nodes.kind == n.ARRIVAL] = 500
    return graph


def test_what_is_added_to_a_step() -> None:
    """0.5 of the busiest stage's work in a step, and 3 hops; what is added besides, at each bound."""
    graph = stages()
    start = graph.nodes.start
    pace = StepPace(rank_windows(graph), start, graph.nodes.end)
    ones, since = np.ones(len(graph.nodes)), np.zeros(len(graph.nodes), np.int64)
    added = AddedCommunication("a", TimeBounds(1, 2, 4)), AddedCommunication("b", TimeBounds(10, None, 40))
    plain = relaid(LayoutEffect(graph, added=added))
    cases = ("low", "expected", "high")
    assert [plain.added_step_ns(case, graph, ones, pace, since) for case in cases] == [11, 2, 44]
    assert (len(plain.added_communication), plain.pipeline_fill_share) == (2, 0)
    # rank 1: a kernel of 20, of transfers within a stage none; 2 · 0.5 on the host; two steps
    filled = relaid(LayoutEffect(graph, fill=0.25), LayoutEffect(graph, fill=0.25))
    assert filled.added_step_ns("low", graph, ones, pace, since) == 0.5 * (20_000 + 1_000) / 2
    # what a stage does for each micro-batch fills the pipeline as well
    inside = AddedCommunication("a", TimeBounds(1_000, 2_000, 4_000), in_stage=True)
    beside = AddedCommunication("b", TimeBounds(100, 200, 400))
    both = relaid(LayoutEffect(graph, fill=0.5, added=(inside, beside)))
    assert both.added_step_ns("low", graph, ones, pace, since) == 1_500 + 100 + 0.5 * 21_000 / 2
    tensors = relaid(LayoutEffect(graph, fill=0.5), dimension="tp")
    assert tensors.added_step_ns("low", graph, ones, pace, since) == 0.5 * (20_000 + 6_000 + 1_000) / 2
    assert tensors.added_step_ns("low", graph, 2 * ones, pace, since) == 27_000 / 2
    outside = np.where(graph.nodes.kind == n.TRANSFER, -1, 0)
    assert tensors.added_step_ns("low", graph, ones, pace, outside) == 0.5 * 21_000 / 2
    hops = relaid(LayoutEffect(graph, hops=2), LayoutEffect(graph, hops=1), dimension="pp")
    assert hops.added_step_ns("high", graph, 2 * ones, pace, since) == 3 * 12_000
    assert hops.added_step_ns("high", graph, ones, pace, outside) == 0
    assert relaid(LayoutEffect(graph, hops=3)).added_step_ns("high", graph, ones, pace, since) == 0


def test_what_is_said_of_groups_in_another_layout() -> None:
    graph = stages()
    since = np.zeros(len(graph.nodes), np.int64)
    assert relaid().priced_notes(graph, since, 100_000) == (
        "collectives of groups of unknown dimension, 16.0% of the step: as measured",
        "all_reduce of dp, 12.0% of the step: modelled among 4 ranks in place of 2",
    )
    outside = np.full(len(since), -1)
    assert relaid().priced_notes(graph, outside, 100_000) == ()
    object.__setattr__(graph.transfers, "kind", (None, "all_reduce") * 2)
    assert relaid(dimension=None).priced_notes(graph, since, 0)[1:] == (
        "collective of dp, 1200000.0% of the step: modelled among 4 ranks in place of 2",
    )


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
    assert graph.transfers.is_split.all()
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
