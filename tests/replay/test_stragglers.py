# SPDX-License-Identifier: Apache-2.0
"""Stragglers, crowds and pauses in a replay, by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import synthetic as sim
from helpers.launch_trace import write_launches
from helpers.replay_rows import Item, item, kernel, rank
from helpers.replay_subjects import degrees

import cclbench
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import occurrence
from cclbench.replay import nodes as n
from cclbench.replay import stragglers
from cclbench.replay.crowd import Delays, crowd_delays, expected_maximum
from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.regroup import RegroupedGroup
from cclbench.replay.stragglers import StragglerSlowdown, graph_slowdown, rank_coordinates, straggler_slowdown
from cclbench.replay.tables import GraphInput
from cclbench.replay.typical_work import _behind_others, _launch_needs, _medians_by_code, rank_roles
from cclbench.selftest.exam import ExamItem, simulate_item
from cclbench.selftest.traces import write_traces


def reduce(begin: float, end: float, lane: tuple[int, int] = (0, 7)) -> Item:
    return item("nccl", begin, end, lane=lane, call=0)


STAGES = {"pp": {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1}, "dp": {r: r % 3 for r in range(6)}}
PIPELINE = """\
version: 1
files: job.csv
columns: {rank: rank, step: step, operator: op, start: start, duration: took}
time: {unit: us, from: step}
place: {dp: replica, pp: stage}
operators: {fwd: {does: compute}, send: {does: send, peer: {pp: 1}}, recv: {does: recv, peer: {pp: -1}}}
"""


def job_of(*work: Sequence[Item], size: int | None = None) -> list[GraphInput]:
    """Ranks with those rows, the last of which is an all-reduce of all of them."""
    return [
        rank(r, work=own, instances=[0], size=size or len(work), windows=[(0, 0, own[-1]["end"])])
        for r, own in enumerate(work)
    ]


def three(late: float) -> list[GraphInput]:
    """Kernels of 100 µs, on rank 2 of `late`, then an all-reduce of 20 µs from the last arrival."""
    done = max(100, late) + 20
    return job_of(*([kernel(0, took), reduce(took, done, (0, 9))] for took in (100, 100, late)))


def test_one_rank_that_computes_longer() -> None:
    """150 µs a step; with 100 on all ranks 120."""
    found = graph_slowdown(build_graph(three(130)), {})
    assert (found.step_ns, found.ideal_ns) == (150_000, 120_000)
    assert found.job == found.causes["compute"] == found.ranks[2] == 150 / 120
    assert (found.ranks[0], found.ranks[1]) == (1, 1)
    assert list(found.causes) == ["compute"]
    # no straggler is no slowdown
    found = graph_slowdown(build_graph(three(100)), {})
    assert (found.job, found.causes, set(found.ranks.values())) == (1, {}, {1})
    # a rank that computes less speeds nothing up
    assert graph_slowdown(build_graph(three(60)), {}).job == 1


def pipeline(tmp_path: Path, first: float) -> StragglerSlowdown:
    """Two forwards: of 10 µs on stage 0, replica 1's first of `first`, of 30 on stage 1; transfers of 1."""
    lines = ["rank,step,op,start,took,replica,stage"]
    for replica in range(3):
        one = first if replica == 1 else 10
        sent, computed = one + 1, one + 31  # stage 0 has sent, stage 1 has computed, the first
        rows = [
            (0, "fwd", 0, one), (0, "send", one, 1), (0, "fwd", sent, 10), (0, "send", sent + 10, 21),
            (1, "recv", 0, sent), (1, "fwd", sent, 30),
            (1, "recv", computed, 1), (1, "fwd", computed + 1, 30),
        ]  # fmt: skip
        lines += [
            f"{3 * stage + replica},0,{op},{at},{took},{replica},{stage}" for stage, op, at, took in rows
        ]
    (tmp_path / "timeline.yaml").write_text(PIPELINE)
    (tmp_path / "job.csv").write_text("\n".join(lines) + "\n")
    run = cclbench.ingest(tmp_path, store=tmp_path / "store", jobs=1)
    assert rank_coordinates(run) == STAGES
    return straggler_slowdown(run)


def test_uneven_stages(tmp_path: Path) -> None:
    """10 + 1 + 30 + 1 + 30 = 72 µs; with 20 on both stages 20 + 1 + 20 + 1 + 20 = 62."""
    found = pipeline(tmp_path, 10)
    assert (found.step_ns, found.ideal_ns, found.roles) == (72_000, 62_000, 2)
    assert found.job == found.causes["uneven stages"] == 72 / 62
    assert list(found.causes) == ["uneven stages"]
    # stage 1 alone as measured takes 82, more than the job; stage 0 alone 52, less than the ideal
    assert (found.places["pp", 1], found.places["pp", 0]) == (72 / 62, 1.0)


def test_a_straggler_in_a_pipeline_holds_up_the_stages_behind_it(tmp_path: Path) -> None:
    """Replica 1's first forward takes 22 µs: 22 + 1 + 30 + 1 + 30 = 84."""
    found = pipeline(tmp_path, 22)
    assert (found.step_ns, found.ideal_ns) == (84_000, 62_000)
    assert found.job == 84 / 62
    # where stages are even, its forward is twice as long as measured: 44 + 1 + 20 + 1 + 20, beyond the job
    assert found.causes["compute"] == 84 / 62
    assert found.causes["uneven stages"] == 72 / 62
    # rank 1 alone: 22 + 1 + 20 + 1 + 20; the second forward of stage 0 ends at 33, before it is awaited
    assert found.ranks[1] == found.places["pp", 0] == 64 / 62
    # replica 1 alone as measured takes what the job takes
    assert found.places["dp", 1] == 84 / 62


def simulated(
    tmp_path: Path, layout: sim.Layout, ops: tuple[object, ...], **program: object
) -> tuple[float, StragglerSlowdown]:
    """The true slowdown of the job, and the one that is found."""
    ns = []
    for name in ("with", "without"):
        own = program if name == "with" else {}
        made = sim.Program(ops, steps=4, closing=True, **own)  # type: ignore[arg-type]
        sim.write(sim.simulate(layout, made, sim.Network(sim.Link(10_000, 10)), seed=1), tmp_path / name)
        run = cclbench.run(tmp_path / name, store=tmp_path / "store", metrics=["time.step"])
        ns.append(next(row["value"] for row in run.rows if row["rank"] is None and row["stat"] is None))
    run = cclbench.ingest(tmp_path / "with", store=tmp_path / "store")
    return ns[0] / ns[1], straggler_slowdown(run)


STEP = (
    *(sim.Compute(400_000), sim.Compute(600_000), sim.Collective("all_reduce", "dp", 1 << 20)) * 2,
    sim.Compute(300_000),
)


@pytest.mark.parametrize(
    ("stragglers", "cause"),
    [
        ({"slow": {3: 1_300}}, "compute"),
        ({"stragglers": (sim.Straggler(2, "compute", 500_000, op=1),)}, "compute"),
        ({"stragglers": (sim.Straggler(2, "launch", 3_000_000, op=1),)}, "launch"),
        ({"stragglers": (sim.Straggler(5, "copy", 400_000, op=2),)}, "copy"),
    ],
)
def test_simulated_stragglers(stragglers: dict[str, object], cause: str, tmp_path: Path) -> None:
    true, found = simulated(tmp_path, sim.Layout(dp=8), STEP, **stragglers)
    assert true > 1.05
    assert found.job == pytest.approx(true, rel=0.01)
    assert max(found.causes, key=lambda one: found.causes[one]) == cause
    late = 3 if "slow" in stragglers else stragglers["stragglers"][0].rank  # type: ignore[index]
    assert max(found.ranks, key=lambda one: found.ranks[one]) == late
    assert found.ranks[late] == pytest.approx(true, rel=0.01)


def test_a_simulated_straggler_in_a_pipeline(tmp_path: Path) -> None:
    micro = (sim.Transfer("recv", 1 << 20), sim.Compute(400_000), sim.Transfer("send", 1 << 20))
    true, found = simulated(tmp_path, sim.Layout(dp=4, pp=2), micro * 4, slow={1: 1_400})
    assert found.job == pytest.approx(true, rel=0.01)
    assert found.ranks[1] == pytest.approx(true, rel=0.01)


def test_a_simulated_job_without_stragglers(tmp_path: Path) -> None:
    true, found = simulated(tmp_path, sim.Layout(dp=4), STEP)
    assert (true, found.job) == (1, pytest.approx(1, rel=1e-3))


def test_ranks_that_do_other_work_are_not_compared() -> None:
    other = job_of([kernel(0, 100, name="other"), reduce(100, 150, (0, 9))], size=3)
    with pytest.raises(InputError, match="ranks do different work: 30% of its time"):
        graph_slowdown(build_graph([*other, *three(130)[1:]]), {})


def test_there_is_nothing_to_compare() -> None:
    with pytest.raises(InputError, match="there is one"):
        graph_slowdown(build_graph(three(100)[:1]), {})
    unmatched = [rank(r, work=[kernel(0, 100)], windows=[(0, 0, 100)]) for r in (0, 1)]
    with pytest.raises(InputError, match="no collective is matched"):
        graph_slowdown(build_graph(unmatched), {})
    # a cpu's kernels are not compared
    graph = build_graph(three(130))
    object.__setattr__(graph.windowed[1], "on_host", True)
    with pytest.raises(InputError, match="the kernels of a CPU are its operators"):
        graph_slowdown(graph, {})


@pytest.mark.parametrize(
    ("of", "values", "count", "medians"),
    [
        ([0, 0, 0, 1], [5, 1, 9, 4], [3, 1], [5, 5, 5, 4]),
        # the median of four lies between two
        ([0, 0, 0, 0], [9, 0, 5, 2], [4], [3.5] * 4),
        # ranks without such a row count as 0
        ([0, 1, 1], [8, 6, 4], [2, 3], [4, 4, 4]),
        ([0], [8], [3], [0]),
        # more rows than ranks
        ([0, 0, 0], [8, 1, 2], [1], [2, 2, 2]),
    ],
)
def test_medians_by_code(of: list[int], values: list[int], count: list[int], medians: list[float]) -> None:
    found = _medians_by_code(*(np.array(column, np.int64) for column in (of, values, count)))
    assert found.tolist() == medians


def test_rows_of_a_code_are_numbered_in_an_order() -> None:
    of, order = np.array([7, 3, 7, 7, 3]), np.array([3, 4, 0, 1, 2])
    assert occurrence(of, order).tolist() == [1, 1, 2, 0, 0]


def job(groups: list[tuple[str, list[int]]]) -> object:
    told = [{"descriptions": [text], "ranks": ranks} for text, ranks in groups]
    return SimpleNamespace(groups=lambda: SimpleNamespace(to_pylist=lambda: told))


def test_a_rank_s_place_is_that_in_its_largest_group() -> None:
    groups = [("mesh_dp", [4, 0, 2]), ("mesh_dp", [2, 4]), ("mesh_tp", [1]), ("other", [0, 1])]
    found = rank_coordinates(job(groups))  # type: ignore[arg-type]
    assert found == {"dp": {0: 0, 2: 1, 4: 2}}
    # of groups as large the later place
    both = rank_coordinates(job([("mesh_pp", [0, 1]), ("mesh_pp", [1, 2])]))  # type: ignore[arg-type]
    assert both == {"pp": {0: 0, 1: 1, 2: 1}}
    # ranks of no stage are compared among themselves
    graph = SimpleNamespace(nodes=SimpleNamespace(rank=np.array([-1, 0, 1, 3])), windowed=[])
    ranks, role = rank_roles(graph, {"pp": {0: 0, 1: 1}})  # type: ignore[arg-type]
    assert (ranks, role.tolist()) == ([0, 1, 3], [0, 1, -1, -1])


def copying(*took: tuple[float, float]) -> list[GraphInput]:
    """A kernel and a copy of those lengths one behind the other on each rank, and an all-reduce of 20 µs."""
    done = max(k + c for k, c in took) + 20
    return job_of(
        *([kernel(0, k), kernel(k, k + c, name="c", copy=True), reduce(k + c, done)] for k, c in took)
    )


def test_causes_are_told_apart() -> None:
    """100 and 30 on most ranks: one copies for 50, another computes for 110."""
    found = graph_slowdown(build_graph(copying((100, 30), (100, 50), (110, 30))), {})
    assert (found.step_ns, found.ideal_ns) == (170_000, 150_000)
    assert found.causes == {"compute": 160 / 150, "copy": 170 / 150}
    assert found.ranks == {0: 1.0, 1: 170 / 150, 2: 160 / 150}
    assert (found.roles, found.transfers, found.all_transfers) == (1, 3, 3)


def test_places_of_dimensions_and_of_too_many_places(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = build_graph(copying((100, 30), (100, 50), (110, 30)))
    placed = {"dp": {0: 0, 1: 0, 2: 1}, "tp": {0: 0, 1: 0, 2: 0}, "cp": {0: 0, 2: 5}}
    dp, cp = {("dp", 0): 170 / 150, ("dp", 1): 160 / 150}, {("cp", 0): 1.0, ("cp", 5): 160 / 150}
    assert graph_slowdown(graph, placed).places == dp | cp
    monkeypatch.setattr(stragglers, "_MOST_PLACES", 1)
    assert graph_slowdown(graph, placed).places == {}


def test_there_is_time_for_so_many_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job's bounds, its causes, then places; ranks have what remains, those of most excess first."""
    graph = build_graph(copying((100, 30), (100, 50), (110, 30)))
    pieces = len(graph.cut.head)
    placed = {"dp": {0: 0, 1: 0, 2: 1}}
    # 2 for the job, and 2 causes that differ; then 2 places, 2 for the job without launch delays, 1 operator
    for runs, places, ranks in ((5, 0, set()), (6, 2, set()), (10, 2, {1}), (12, 2, {0, 1, 2})):
        monkeypatch.setattr(stragglers, "MOST_PIECE_RUNS", runs * pieces)
        found = graph_slowdown(graph, placed)
        assert (len(found.places), set(found.ranks)) == (places, ranks)


def meeting(computed: tuple[float, ...], met: tuple[float, ...]) -> list[GraphInput]:
    """Kernels that end then, in one stream all-reduces of 20 µs that begin then; times in µs."""
    done, pairs = max(met) + 20, zip(computed, met, strict=True)
    return job_of(*([kernel(0, end), reduce(begin, done)] for end, begin in pairs))


def test_a_wait_that_no_row_records_is_no_launch_delay() -> None:
    """Rank 3 computes 3,000 µs longer, and the others begin their all-reduce with it, 1 µs after its kernel.
    Without stragglers 100 + 1 + 20; had the median delay been a launch's, 100 + 3,001 + 20."""
    found = graph_slowdown(build_graph(meeting((100, 100, 100, 3_100), (3_101,) * 4)), {})
    assert (found.step_ns, found.ideal_ns) == (3_121_000, 121_000)
    assert "launch" not in found.causes
    assert found.ranks == {0: 1.0, 1: 1.0, 2: 1.0, 3: 3_121 / 121}
    # rank 3's all-reduce comes 3,001 µs after its kernel, the others' 1 µs; without any delay 120 each
    found = graph_slowdown(build_graph(meeting((100,) * 4, (101, 101, 101, 3_101))), {})
    assert (found.step_ns, found.ideal_ns) == (3_121_000, 121_000)
    assert found.causes == {"launch": 3_121 / 121}
    assert found.bounds == (1.0, 3_121 / 121)


def test_what_the_median_rank_takes() -> None:
    """Two kernels a step, 100 and 100, 140 and 60, 60 and 140: all have the same work, none is late."""
    work = ([kernel(0, first), kernel(first, 200), reduce(200, 220, (0, 9))] for first in (100, 140, 60))
    assert graph_slowdown(build_graph(job_of(*work)), {}).job == 1.0
    # A rank that is faster than the median, 60, 100 and 100 µs, all-reduces after a kernel of its own
    assert graph_slowdown(build_graph(meeting((100, 100, 60), (101, 101, 61))), {}).job == 1.0


@pytest.mark.parametrize(
    ("code", "begin", "behind"),
    [
        # the median of the others: of the first 20, of the last 10
        ([0, 0, 0, 0], [0, 10, 20, 90], [-20, -10, 10, 80]),
        ([0, 1, 0], [5, 7, 9], [-4, 0, 4]),
        ([3], [8], [0]),
    ],
)
def test_how_far_rows_begin_behind_the_others(code: list[int], begin: list[int], behind: list[int]) -> None:
    assert _behind_others(np.array(code), np.array(begin)).tolist() == behind


def test_what_a_call_needs_to_be_launched() -> None:
    """Of a role the least of each step, the median of the steps'; of roles the least."""
    site = np.array([0] * 6 + [1] * 2)
    role = np.array([0] * 4 + [1] * 2 + [0, 1])
    step = np.array([0, 0, 1, 1, 0, 0, 0, 0])
    taken = np.array([9, 30, 5, 40, 50, 8, 6, 4])
    # role 0: 9 and 5, in the median 7; role 1: 8
    assert _launch_needs(site, role, step, taken).tolist() == [7] * 6 + [4] * 2


@pytest.mark.parametrize(("other", "refused"), [(25, False), (26, True)])
def test_up_to_a_tenth_of_the_work_may_be_of_one_rank(other: float, refused: bool) -> None:
    """Of 225 µs and one rank's own kernel, of which most ranks have none."""
    shared = [kernel(0, 75), reduce(110, 120, (0, 9))]
    made = job_of([shared[0], kernel(75, 75 + other, name="own"), shared[1]], shared, shared)
    if not refused:
        graph_slowdown(build_graph(made), {})
        return
    with pytest.raises(InputError, match="ranks do different work: 10% of its time has no counterpart"):
        graph_slowdown(build_graph(made), {})


GROWN = {"0-1": RegroupedGroup((0, 1, 2, 3), dimension="dp")}
LAYOUTS = degrees(dp=2), degrees(dp=4)
MORE = expected_maximum(4) - expected_maximum(2)
"""d(4) − d(2), 1.0294 − 0.5642."""


def meetings(arrivals: Sequence[Sequence[float]], steps: Sequence[int], size: int = 2) -> Graph:
    """All-reduces of 5 µs, one behind the other, that ranks reach at those times."""
    made = []
    for r in range(len(arrivals[0])):
        work = [
            item("nccl", own[r], max(own) + 5, lane=(0, 9), call=i, step=step)
            for i, (own, step) in enumerate(zip(arrivals, steps, strict=True))
        ]
        count = len(arrivals)
        made.append(rank(r, work=work, instances=[*range(count)], size=size, windows=[(0, 0, 1000)]))
    return build_graph(made)


def later(
    graph: Graph, regrouped: Any = GROWN, groups: Any = None, layouts: object = LAYOUTS, inside: Any = None
) -> tuple[Delays, list[int], list[int]]:
    here = np.ones(len(graph.nodes), np.bool_) if inside is None else inside
    found = crowd_delays(graph, graph.nodes.start, here, regrouped, groups or {"0-1": (0, 1)}, layouts)  # type: ignore[arg-type]
    meet = graph.nodes.kind == n.RENDEZVOUS
    assert not found.expected[~meet].any()
    assert not found.high[~meet].any()
    return found, found.expected[meet].tolist(), found.high[meet].tolist()


@pytest.mark.parametrize(
    ("count", "known"), [(1, 0), (2, 0.56419), (3, 0.84628), (4, 1.02938), (8, 1.42360), (1000, 3.24144)]
)
def test_expected_maxima_of_normal_variables(count: int, known: float) -> None:
    """Harter 1961, table 1."""
    assert expected_maximum(count) == pytest.approx(known, abs=2e-5)


def test_the_spread_is_that_of_the_same_place_in_all_steps() -> None:
    """Arrivals 10 and 30 µs apart at the first place of two steps, s² = (50 + 450) / 2; 4 at the second,
    s² = 8, of two steps too.  The upper bound has as many degrees of freedom as meetings."""
    graph = meetings([(100, 110), (200, 204), (330, 300), (400, 404)], [0, 0, 1, 1])
    found, expected, high = later(graph)
    first, second = (1_000 * math.sqrt(s2) * MORE for s2 in (250, 8))
    assert expected == [round(first), round(second)] * 2
    upper = 1 + 1.2816 / math.sqrt(2 * 2)
    assert high == [round(first * upper), round(second * upper)] * 2
    assert found.meetings == 4
    # of one step only: each place has its own spread, of one degree of freedom
    graph = meetings([(100, 110), (200, 230)], [0, 0])
    _, expected, high = later(graph)
    assert expected == [round(1_000 * math.sqrt(50) * MORE), round(1_000 * math.sqrt(450) * MORE)]
    assert high == [round(1_000 * math.sqrt(s2) * MORE * (1 + 1.2816 / math.sqrt(2))) for s2 in (50, 450)]
    # collectives of other kinds have spreads of their own
    graph = meetings([(100, 110), (300, 330)], [0, 1])
    object.__setattr__(graph.transfers, "kind", ("all_reduce", "all_gather") * 2)
    assert later(graph)[1] == [round(1_000 * math.sqrt(s2) * MORE) for s2 in (50, 450)]


def test_what_does_not_grow_waits_no_longer() -> None:
    graph = meetings([(100, 110)], [0])
    nothing = ([0], [0])
    assert later(graph, {})[1:] == nothing
    assert later(graph, {"0-1": RegroupedGroup((), 0.5, 1.0, "dp")})[1:] == nothing
    assert later(graph, {"0-1": RegroupedGroup((0, 5), dimension="dp")})[1:] == nothing
    assert later(graph, groups={"0-1": (0,)})[1:] == nothing
    assert later(graph, inside=np.zeros(len(graph.nodes), np.bool_))[1:] == nothing
    assert later(graph, {})[0].meetings == 0
    # sends wait for no more ranks
    for kind in ("send", "recv"):
        object.__setattr__(graph.transfers, "kind", (kind, kind))
        assert later(graph)[1:] == ([0], [0])
    # a run without collectives waits for nobody
    graph = build_graph([rank(0, work=[item("gemm", 0, 10, step=0)], windows=[(0, 0, 10)])])
    found, expected, high = later(graph, {}, {})
    assert (found.meetings, expected, high) == (0, [], [])


def test_of_a_group_of_all_ranks_replicas_are_what_arrives() -> None:
    """Four ranks, two of each replica: the last of each arrive at 110 and 140, s² = 450; d(dp) grows."""
    graph = meetings([(100, 110, 140, 90)], [0], size=4)
    old, new = degrees(tp=2, dp=2), degrees(tp=2, dp=4)
    whole = {"0-3": RegroupedGroup(tuple(range(8)))}
    _, expected, _ = later(graph, whole, {"0-3": (0, 1, 2, 3)}, (old, new))
    assert expected == [round(1_000 * math.sqrt(450) * MORE)]
    # of a dimension all ranks are: 100, 110, 140, 90 have a variance of 1400 / 3
    _, expected, _ = later(
        graph, {"0-3": RegroupedGroup(tuple(range(8)), dimension="dp")}, {"0-3": (0, 1, 2, 3)}, (old, new)
    )
    more = expected_maximum(8) - expected_maximum(4)
    assert expected == [round(1_000 * math.sqrt(1400 / 3) * more)]


USUAL = "host[python+unrecorded].time=usual"


def saved(cause: str, seed: int, folder: Path, setting: str = USUAL) -> tuple[float, float]:
    """The shares of the step that the setting saves, and that the cause costs."""
    made = simulate_item(ExamItem("planted", cause, seed))
    write_traces(made.planted.with_cause, made.truth.histories, folder / "traces")
    answer = cclbench.whatif(cclbench.run(folder / "traces", store=folder / "store"), setting)
    assert made.gain is not None
    return 1 - answer.single_outcome.high_ns / answer.unchanged.step_ns, made.gain


def test_a_pause_in_some_steps_is_not_usual(tmp_path: Path) -> None:
    share, cost = saved("stall_every_third_step_of_one_rank", 108, tmp_path)
    assert share == pytest.approx(cost, abs=0.01)


def test_a_host_that_is_slow_in_each_step_is_usual(tmp_path: Path) -> None:
    share, cost = saved("oversubscribed_cores", 119, tmp_path)
    assert cost > 0.1
    assert share < 0.01


def test_work_of_a_few_steps_has_no_usual_time(tmp_path: Path) -> None:
    """20 launches 500 µs apart in the fourth of eight steps of 1 ms, as of a checkpoint: 10 ms of 18."""
    step, more = [(10.0, 5.0)] * 100, [(500.0, 2.0)] * 20
    write_launches(tmp_path / "traces/rank0.json", [step, step, step, [*step, *more], step, step, step, step])
    answer = cclbench.whatif(cclbench.run(tmp_path / "traces", store=tmp_path / "store"), USUAL)
    steps, cut_us = 7, 10  # the first step is not counted; the first of the 20 follows a usual launch
    unchanged_us = answer.unchanged.step_ns / 1e3
    assert unchanged_us == pytest.approx((steps * 1_000 + 10_000) / steps, rel=0.01)
    assert answer.single_outcome.high_ns / 1e3 == pytest.approx(1_000 + cut_us, rel=0.02)


@pytest.mark.parametrize("seed", [1, 2])
def test_recomputed_kernels_go_with_their_calls(seed: int, tmp_path: Path) -> None:
    share, cost = saved("recomputed_layers", seed, tmp_path, "kernels[recomputed].time=0")
    assert cost > 0.01
    assert share == pytest.approx(cost, abs=0.01)
