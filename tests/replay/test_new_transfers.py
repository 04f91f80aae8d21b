# SPDX-License-Identifier: Apache-2.0
"""What collectives take that no trace has, by the run's own transfers; and what a new layout adds up to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.replay_rows import item, rank
from helpers.replay_subjects import degrees

from cclbench.card.model import Hardware
from cclbench.ground.errors import InputError
from cclbench.hardware import catalog
from cclbench.hardware.collectives import price_collective
from cclbench.machine import Machine
from cclbench.replay import nodes as n
from cclbench.replay.change import AddedCommunication, LayoutEffect, Scale, TimeBounds
from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.layout import asked_relayout
from cclbench.replay.new_transfers import price_new
from cclbench.replay.pricing import TimeRatios
from cclbench.replay.regroup import RegroupedGroup
from cclbench.replay.relaid import RelaidGraph, scale_ratios
from cclbench.replay.scenario import parse_scenario
from cclbench.replay.windows import StepPace, rank_windows

FOUR = Machine(Hardware(per_node=4))
GROUPS = {"0-1": (0, 1)}
LINE = [1_000, 10_000, 20_000, 50_000, 90_000]


def moved(*calls: tuple[str, int, float], group: str = "0-1", known: bool = True) -> Graph:
    """Transfers of two ranks: kind, bytes, µs."""
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


def of_line(kind: str = "all_reduce") -> Graph:
    """t = 10 µs + S / 1 GB/s."""
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
def test_the_run_s_own_line_prices_others(
    kind: str, ranks: tuple[int, ...], steps: float, rate: float
) -> None:
    found = priced(of_line(), kind, ranks, 40_000)
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
        (of_line(), Machine(Hardware(per_node=2)), GROUPS),
        *((of_line(), Machine(), GROUPS), (of_line(), FOUR, {}), (of_line(), FOUR, {"0-1": (0,)})),
        *((of_line("broadcast"), FOUR, GROUPS), (moved(("all_reduce", 0, 20)), FOUR, GROUPS)),
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
    found = priced(of_line(), "all_reduce", (0, 8), 1 << 20, machine)
    bounds = tuple(1e9 * float(s[0]) for s in (known.low_s, known.time_s, known.high_s))
    assert found[:3] == pytest.approx(bounds, rel=1e-12)
    assert found.marks == known.all_marks == ()
    alps = Machine(Hardware(system="alps-gh200"))
    (mark,) = priced(of_line(), "all_reduce", (0, 4), 1 << 20, alps).marks
    assert mark.startswith("weak class: NVIDIA, Slingshot")
    # nine ranks of two nodes, one of them with one: as of one each, times what a rank moves
    uneven = priced(of_line(), "all_reduce", (*range(8), 8), 1 << 20, machine)
    assert uneven.expected == pytest.approx(1e9 * float(known.time_s[0]) * 16 / 9)
    assert uneven.high == pytest.approx(1e9 * float(known.high_s[0]) * 16 / 9)
    assert uneven.low == pytest.approx(1e9 * float(known.low_s[0]) * 2 / 9)


def relaid(*effects: LayoutEffect, dimension: Any = "dp") -> RelaidGraph:
    change = asked_relayout(degrees(dp=2), {"parallelism.dp": 4})
    return RelaidGraph(change, GROUPS, {"0-1": dimension} if dimension else {}, effects)


def test_factors_and_scales_of_several_settings() -> None:
    graph = of_line()
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
        work = [
            item("k", 0, 10 * (1 + r), category="gemm"),
            item("o", 20, 24, category="optimizer"),
            item("t", 30, 36, call=0, category="communication", step=1),
            item("u", 40, 48, call=1, category="communication", step=1),
        ]
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
