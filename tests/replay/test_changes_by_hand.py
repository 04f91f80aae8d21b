# SPDX-License-Identifier: Apache-2.0
"""Changes of a graph and the settings that ask for them, worked out by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.replay_rows import Item, alone, item, kernel, launch, rank
from helpers.replay_subjects import PAIR, changed, reduced, subject, transfers_of
from jsonschema import Draft7Validator

from cclbench.card.model import Hardware
from cclbench.ground.errors import CclbenchError, InputError, UsageError
from cclbench.ground.json_schema import packaged_schema
from cclbench.machine import Machine
from cclbench.replay import nodes as n
from cclbench.replay.change import CHANGES, Quantity
from cclbench.replay.changes.buckets import buckets
from cclbench.replay.changes.copies import copies_time as copies
from cclbench.replay.changes.graphs import launches
from cclbench.replay.changes.host import host
from cclbench.replay.changes.kernels import kernels, kernels_gap
from cclbench.replay.changes.overlap import _waits, overlap
from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.scenario import parse_scenario, parse_sweep
from cclbench.replay.scenario_file import is_scenario_file, read_scenario, write_scenario
from cclbench.replay.selection import NodeSelection, TimeAmount, read_setting
from cclbench.replay.simulate import simulate_nodes
from cclbench.replay.tables import DIRECTIONS

COMPUTE, COMM = (0, 7), (0, 9)
APART, TOGETHER = Machine(Hardware(per_node=1)), Machine(Hardware(per_node=2))


def copied() -> Graph:
    """A copy from the host of 10 µs, one within the device of 6, a kernel of 4."""
    to_device, within = (DIRECTIONS.index(way) for way in ("h2d", "d2d"))
    first, second = item("h2d", 0, 10, copy=True, direction=to_device), item("d2d", 10, 16, copy=True)
    return build_graph([alone(first, second | {"direction": within}, item("k", 16, 20))])


def test_copies_of_a_direction_within_windows_take_their_time_over_the_factor() -> None:
    graph = copied()
    quarter = asked("copies[h2d].bandwidth=x4")
    assert changed(copies(subject(graph), quarter)).nodes.dur.tolist() == [2_500, 6_000, 4_000]
    inside = changed(copies(subject(graph, since=[0, 0, 0]), quarter))
    assert inside.nodes.dur.tolist() == [2_500, 6_000, 4_000]
    assert copies(subject(graph, since=[-1, 0, 0]), quarter) == "the run's steps have no such copy"
    both = changed(copies(subject(graph), asked("copies.time=x0.5")))
    assert both.nodes.dur.tolist() == [5_000, 3_000, 4_000]
    # a time of 2 is longer and a bandwidth of 2 shorter
    assert changed(copies(subject(graph), asked("copies.time=x2"))).nodes.dur[0] == 20_000
    assert changed(copies(subject(graph), asked("copies.bandwidth=x2"))).nodes.dur[0] == 5_000
    longer = changed(kernels(subject(graph), asked("kernels.time=x2")))
    assert longer.nodes.dur.tolist() == [10_000, 6_000, 8_000]
    assert changed(kernels(subject(graph), asked("kernels[name~^k$].time=0"))).nodes.dur[2] == 0
    none = kernels(subject(graph), asked("kernels[gemm].time=0"))
    assert none == "no such kernel runs in the run's windows"
    with pytest.raises(UsageError, match="no rank 3"):
        kernels(subject(graph), asked("rank[3].kernels.time=0"))


def launched(*at: float, on_host: bool = False) -> Graph:
    """Kernels of 2 µs, each launched when the device is idle, which begin 5 later."""
    launches = [launch(time, i, took=1) for i, time in enumerate(at)]
    work = [kernel(time + 5, time + 7, i) for i, time in enumerate(at)]
    graph = build_graph([rank(0, launches=launches, work=work, windows=[(0, 0, at[-1] + 10)])])
    if on_host:
        object.__setattr__(graph.windowed[0], "on_host", True)
    return graph


def asked(text: str) -> tuple[NodeSelection, TimeAmount]:
    return read_setting(text, text.rpartition("=")[2])


def host_of(graph: Graph) -> np.ndarray:
    return np.flatnonzero(graph.nodes.kind == n.HOST)


LOADING = n.HOST_CAUSES.index("loader")
NOTHING = "no host thread does that in the run's windows"


def loads(graph: Graph, *ns: int) -> Graph:
    """The graph in which the loader holds the host for so long before each launch."""
    held = graph.nodes.held
    held[host_of(graph)] = 0
    held[host_of(graph), LOADING] = ns
    held[host_of(graph), -1] = graph.nodes.gap[host_of(graph)] - ns
    return graph


def test_a_loader_s_share_of_the_time_between_launches_goes() -> None:
    graph = loads(launched(0, 100, 300), 0, 50_000, 150_000)
    since = [0, 100_000, 100_000, *[0] * 3]
    made = changed(host(subject(graph, since=since), asked("host[loader].time=x0.25")))
    # of the last loader's time 100 µs lie within windows
    assert made.nodes.gap[:3].tolist() == [0, 100_000 - 37_500, 200_000 - 75_000]
    assert made.nodes.held[:3, LOADING].tolist() == [0, 12_500, 75_000]
    gone = asked("host[loader].time=0")
    assert host(subject(graph, since=[0] * 6), gone) == host(subject(graph, since=[-1] * 6), gone) == NOTHING
    cpu = changed(host(subject(loads(launched(0, 100, on_host=True), 0, 50_000)), gone))
    assert cpu.nodes.gap[:2].tolist() == [0, 50_000]
    before = changed(host(subject(graph, since=[-1, -1, 10, -1, -1, -1]), gone))
    assert before.nodes.gap[:3].tolist() == [0, 100_000, 200_000 - 10]


def test_a_host_s_own_time_is_scaled_as_far_as_it_lies_within_windows() -> None:
    graph = loads(launched(0, 100, 300), 0, 40_000, 0)
    graph.nodes.feed_lag[3:] = [5_000, 5_000, 9_000]
    since = [-1, 100_000, 50_000, 5_000, 2_000, 100_000]
    made = changed(host(subject(graph, since=since), asked("host.time=x0.25")))
    assert made.nodes.gap[:3].tolist() == [0, 25_000, 200_000 - 37_500]
    assert made.nodes.held[:3, LOADING].tolist() == [0, 10_000, 0]
    # latencies count up to the rank's median, 5 µs
    assert made.nodes.feed_lag[4:].tolist() == [3_500, 9_000 - 3_750]
    gone = changed(host(subject(graph, since=since), asked("host.time=0")))
    assert gone.nodes.gap[:3].tolist() == [0, 0, 150_000]
    slow = changed(host(subject(graph, since=since), asked("host.time=x2")))
    assert slow.nodes.gap[:3].tolist() == [0, 200_000, 250_000]
    # a host outside of windows stays
    half = asked("host.time=x0.5")
    assert host(subject(launched(0, 100), since=[0] * 4), half) == NOTHING
    early = changed(host(subject(launched(0, 100), since=[-1, 1, -1, -1]), asked("host.time=0")))
    assert early.nodes.gap[:2].tolist() == [0, 99_999]


def test_a_host_goes_on_sooner_behind_what_it_waited_for() -> None:
    """A kernel from 5 to 105, for which a call waits that returns at 108; then a launch at 120."""
    launches, syncs = [launch(0, 1), launch(120, 2)], [item("cudaDeviceSynchronize", 6, 108)]
    graph = build_graph([alone(kernel(5, 105, 1), kernel(125, 130, 2), launches=launches, syncs=syncs)])
    made = changed(host(subject(graph), asked("host.time=x0.5")))
    assert (graph.wait_edges()[2].tolist(), made.wait_edges()[2].tolist()) == ([3_000], [1_500])
    times = simulate_nodes(made.nodes, made.cut)
    # launch, 2.5, the kernel of 100, half of 3 and of 12, again 2.5, and 5
    assert times.end.max() == 2_500 + 100_000 + 1_500 + 6_000 + 2_500 + 5_000
    inside = np.where(graph.nodes.kind == n.HOST, 1_000, 1 << 40)
    gone = changed(host(subject(graph, since=inside.tolist()), asked("host.time=0")))
    assert gone.wait_edges()[2].tolist() == [2_000]
    # without the wait alone launches are at 0 and at 6 + 12 µs, where the kernel of 100 µs still runs
    made = changed(host(subject(graph), asked("host[sync].time=0")))
    assert len(made.wait_edges()[0]) == 0
    assert simulate_nodes(made.nodes, made.cut).end.max() == 105_000 + 5_000


def test_launches_of_a_graph_follow_at_once_unless_their_host_waits_between() -> None:
    """Launches at 0, 10 and 30, a wait, launches at 120 and 125; another thread's at 7 and 9."""
    calls = [launch(at, i, took=1) for i, at in enumerate((0, 10, 30, 120, 125), 1)]
    calls += [launch(at, i, lane=(-1, 2), took=1) for i, at in ((6, 7), (7, 9))]
    work = [kernel(at, at + 5, i) for i, at in enumerate((40, 50, 60, 200, 210, 220, 230), 1)]
    graph = build_graph([alone(*work, launches=calls, syncs=[item("cudaDeviceSynchronize", 32, 108)])])
    first = host_of(graph)
    starts = [0, 10_000, 30_000, 32_000, 108_000, 120_000, 125_000, 7_000, 9_000]
    assert graph.nodes.start[first].tolist() == starts
    graph.nodes.held[first[1], n.HOST_CAUSES.index("loader")] = 4_000
    saved = (graph.nodes.gap - changed(launches(subject(graph), 0.0)).nodes.gap)[first]
    assert saved.tolist() == [0, 6_000, 20_000, 0, 0, 0, 5_000, 0, 2_000]
    since = np.full(len(graph.nodes), -1)
    since[first[2]] = 7_000
    part = changed(launches(subject(graph, since=since.tolist()), 0.0))
    assert (graph.nodes.gap - part.nodes.gap)[first].tolist() == [0, 0, 7_000, *[0] * 6]
    nothing = "no host takes time between two launches in the run's windows"
    assert launches(subject(graph, since=[-1] * len(since)), 0.0) == nothing
    assert launches(subject(launched(0, 10, on_host=True)), 0.0) == nothing
    assert launches(subject(launched(0)), 0.0) == nothing


def two_lanes(*rows: Item) -> Graph:
    """Rows that are launched in the order given, 1 µs apart."""
    work = [{**row, "corr": i} for i, row in enumerate(rows)]
    calls = [-1 for row in work if "call" in row]
    ahead = [launch(-100 + i, i, took=1) for i in range(len(work))]
    return build_graph([alone(*work, launches=ahead, instances=calls)])


def test_without_overlap_rows_wait_for_the_other_sort_launched_before_them() -> None:
    """Two kernels on two streams, three transfers on two, a kernel: each sort waits for all of the other."""
    rows = [item("a", 0, 50, lane=(0, 7)), item("b", 0, 80, lane=(0, 8))]
    rows += [item("x", 10, 60, lane=(0, 9), call=0), item("y", 10, 90, lane=(0, 10), call=1)]
    rows += [item("z", 60, 70, lane=(0, 9), call=2), item("c", 80, 100, lane=(0, 8))]
    graph = two_lanes(*rows)
    made = changed(overlap(subject(graph), 0.0))
    start = simulate_nodes(made.nodes, made.cut).start
    shown = np.flatnonzero(np.isin(graph.nodes.kind, (n.COMPUTE, n.ARRIVAL))).tolist()
    begun = {graph.names[graph.nodes.name[i]]: int(start[i]) for i in shown}
    later = {name: at - begun["b"] for name, at in begun.items()}
    assert (later["x"], later["y"], later["z"], later["c"]) == (80_000, 80_000, 130_000, 160_000)


def test_waits_against_the_order_of_launches_are_gone_and_others_stay() -> None:
    """A transfer launched first had waited for a kernel launched last, that for another one, 40 µs."""
    graph = two_lanes(
        item("x", 60, 90, lane=(0, 9), call=0), item("a", 0, 50, lane=(0, 7)), item("b", 10, 58, lane=(0, 8))
    )
    names = [graph.names[code] if code >= 0 else "" for code in graph.nodes.name.tolist()]
    x, a, b = (names.index(name) for name in "xab")
    waiting = graph.with_waits(np.array([b, a, a]), np.array([x, b, b]), np.array([2_000, 40_000, 7_000]))
    made = changed(overlap(subject(waiting), 0.0))
    times = simulate_nodes(made.nodes, made.cut)
    assert times.start[a] == times.end[x + 1]
    assert times.start[b] == times.end[a] + 40_000
    assert times.start[x] < 0


def test_overlap_of_nothing() -> None:
    alone = two_lanes(item("a", 0, 50, lane=(0, 7)), item("b", 0, 80, lane=(0, 8)))
    nothing = "no rank both computes and communicates in the run's windows"
    assert overlap(subject(alone), 0.0) == nothing
    both = two_lanes(item("a", 0, 50, lane=(0, 7)), item("x", 10, 60, lane=(0, 9), call=0))
    assert overlap(subject(both, since=[-1] * len(both.nodes)), 0.0) == nothing
    assert isinstance(overlap(subject(both, since=[0] * len(both.nodes)), 0.0), Graph)
    object.__setattr__(both.windowed[0], "on_host", True)
    with pytest.raises(InputError, match="a CPU's operators, its kernels"):
        overlap(subject(both), 0.0)


def test_buckets_are_of_successive_collectives_of_a_step() -> None:
    """t = 10 + S µs of S KB: five of 1, 2, 3, 1, 2 KB in a step, three of 3, 4, 1 in the next, in threes. A
    bucket takes 10 + the sum of its sizes, on its last collective."""
    sizes = [1, 2, 3, 1, 2, 3, 4, 1]
    calls = ((100 * i, 100 * i + 10 + size, size * 1_000, int(i >= 5)) for i, size in enumerate(sizes))
    graph = reduced(*calls)
    made = changed(buckets(subject(graph, groups=PAIR), 3))
    for number in (0, 1):
        dur = made.nodes.dur[transfers_of(made, number)]
        assert dur.tolist() == [0, 0, 16_000, 0, 13_000, 0, 0, 18_000]
    one = "no group has two collectives of a kind in a step to merge"
    assert buckets(subject(graph, groups=PAIR), 1) == one
    assert buckets(subject(graph, groups=PAIR, since=[-1] * len(graph.nodes)), 3) == one
    few = reduced((0, 11, 1_000, 0), (100, 112, 2_000, 0))
    with pytest.raises(InputError, match="buckets: all_reduce of 0-1 has no fit to predict") as refused:
        buckets(subject(few, groups=PAIR), 2)
    assert refused.value.hint == "give --system ID"


@pytest.mark.parametrize(("text", "count"), [("1", 1), ("9999", 9_999)])
def test_numbers_of_buckets(text: str, count: int) -> None:
    assert parse_scenario([f"buckets={text}"]).changes == {"buckets": count}
    with pytest.raises(UsageError, match="not a number of collectives, 1 to 9,999; such as 2"):
        parse_scenario([f"buckets={text}0000"])


def test_gaps_between_kernels_go_where_nothing_else_holds_them_up() -> None:
    """Kernels of 2 µs, 3 and 20 behind one another, launched long before: gaps of 3, and 17 of waiting."""
    launches = [launch(at, i, took=1) for i, at in enumerate((0, 0.5, 1))]
    work = [kernel(begin, begin + 2, i) for i, begin in enumerate((5, 10, 32))]
    graph = build_graph([rank(0, launches=launches, work=work, windows=[(0, 0, 40)])])
    works = np.flatnonzero(graph.nodes.kind == n.COMPUTE)
    made = kernels_gap(subject(graph, since=[0] * len(graph.nodes)), asked("kernels.gap=0"))
    assert (graph.nodes.gap - made.nodes.gap)[works].tolist() == [0, 3_000, 3_000]
    one = build_graph([rank(0, launches=launches[:1], work=work[:1], windows=[(0, 0, 40)])])
    nothing = kernels_gap(subject(one, since=[0] * len(one.nodes)), asked("kernels.gap=0"))
    assert nothing == "no such kernel follows another within 10 us"


@pytest.mark.parametrize(
    ("rows", "waits"),
    [
        # (kind, lane) in order of launch; communication on lane 1 that does not need the kernels before it
        ([(n.COMPUTE, 0), (n.COMPUTE, 0), (n.TRANSFER, 1)], [(1, 2)]),
        ([(n.TRANSFER, 1), (n.TRANSFER, 1), (n.COMPUTE, 0), (n.COMPUTE, 0)], [(1, 2)]),
        # every lane's first row waits for the last of every lane before
        ([(n.COMPUTE, 0), (n.COMPUTE, 2), (n.COMPUTE, 0), (n.TRANSFER, 1)], [(2, 3), (1, 3)]),
        ([(n.COMPUTE, 0), (n.TRANSFER, 1), (n.COMPUTE, 0), (n.COMPUTE, 2)], [(0, 1), (1, 2), (1, 3)]),
        ([(n.COMPUTE, 0), (n.COMPUTE, 2)], []),
    ],
)
def test_stretches_wait_for_the_one_before(rows: list[tuple[int, int]], waits: list[tuple[int, int]]) -> None:
    kind, lane = np.array(rows).T
    nodes = SimpleNamespace(rank=np.zeros(len(rows), np.int64), kind=kind, lane=lane)
    assert list(_waits(nodes, np.arange(len(rows)), 0)) == waits  # type: ignore[arg-type]


def test_all_keys() -> None:
    network = (
        "scale_up.bandwidth=x2 scale_out.bandwidth=400Gb/s scale_out.latency=5us scale_out=infiniband-ndr"
    )
    others = "collective.all_reduce=tree rank[3].kernels.time=x0.9 kernels.time=x0.5"
    found = parse_scenario([*network.split(), "system=dgx-h200", "accelerator=h200", *others.split()])
    third = NodeSelection("kernels", "time", ranks=(range(3, 4),))
    assert found.changes == {
        "scale_up.bandwidth": Quantity(factor=2.0),
        "scale_out.bandwidth": Quantity(absolute=5e10),
        "scale_out.latency": Quantity(absolute=5e-6),
        "scale_out": "infiniband-ndr",
        "system": "dgx-h200",
        "accelerator": "nvidia-h200-sxm",
        "collective.all_reduce": ("all_reduce", "tree"),
        "rank[3].kernels.time": (third, TimeAmount(factor=0.9)),
        "kernels.time": (NodeSelection("kernels", "time"), TimeAmount(factor=0.5)),
    }
    assert found.needs_system == "scale_out.bandwidth"
    assert not parse_scenario(["kernels.time=x2"]).moves_communication


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("scale_up.bandwidth", "is not KEY=VALUE"),
        ("scale_up.bandwidth=", "is not KEY=VALUE"),
        ("scale_up.bandwidth=x0", "not a factor above 0 and up to 1,000,000 with at most 6 decimals"),
        ("scale_up.bandwidth=x1000001", "up to 1,000,000"),
        ("scale_up.bandwidth=x0.0000001", "with at most 6 decimals"),
        ("scale_up.bandwidth=0GB/s", "is zero"),
        ("scale_up.bandwidth=101TB/s", "is more than 100 TB/s"),
        ("scale_out.latency=1001ms", "is more than 1 s"),
        ("scale_up=infiniband-ndr", "infiniband-ndr is a scale_out fabric"),
        ("scale_out=nvlink4", "nvlink4 is a scale_up fabric"),
        ("scale_up.bandwidth=x-1", "not a factor above 0"),
        ("scale_up.bandwidth=xnan", "not a factor above 0"),
        ("scale_up.bandwidth=x9999999", "not a factor above 0"),
        ("scale_up.bandwidth=2", "'2' has no unit, like"),
        ("scale_up.bandwidth=5us", "no known unit of bandwidth"),
        ("scale_out.latency=400Gb/s", "no known unit of time"),
        ("scale_out=ethernet-9000", "no fabric 'ethernet-9000'"),
        ("scale_upp.bandwidth=x2", "there is no setting 'scale_upp.bandwidth'"),
        ("accelerator=quantum", "no accelerator 'quantum'"),
        ("collective.all_reduced=tree", "no collective 'all_reduced'"),
        ("collective.all_reduce=trea", "there is no algorithm 'trea'; did you mean tree"),
        ("rank[x].kernels.time=x2", "'x' is not a rank"),
        ("rank[5-3].kernels.time=x2", "'5-3' is not a rank"),
        ("step[4:4].kernels.time=x2", "'4:4' is not a range of steps"),
        ("kernels.bandwidth=x2", "there is no setting 'kernels.bandwidth'"),
        ("kernels[gem].time=x2", "did you mean gemm"),
        ("kernels[name~(].time=x2", "is not a regular expression"),
        ("kernels[gemm&attention].time=x2", "'attention' is not a condition of kernels"),
        ("copies.bandwidth=median", "not a factor above 0"),
        ("host[sync].time=early", "is not a time"),
        ("rank[1].kernels.time=0.9", "is not a time"),
        ("copies.bandwidth=x0", "not a factor above 0"),
        ("host[loader].time=off", "is not a time"),
        ("overlap=on", "overlap cannot be 'on'; use off"),
        ("hosts=x0", "did you mean host"),
        ("buckets=0", "not a number of collectives, 1 to 9,999"),
        ("buckets=x2", "not a number of collectives, 1 to 9,999"),
        ("launches=none", "use graph"),
    ],
)
def test_what_means_nothing_is_a_clear_error(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_scenario([text])


def test_limits_are_those_stated() -> None:
    assert parse_scenario(["kernels.time=x1000000"]).changes["kernels.time"][1] == TimeAmount(factor=1e6)
    assert parse_scenario(["kernels.time=x0.000001"]).changes["kernels.time"][1] == TimeAmount(factor=1e-6)
    most = parse_scenario(["scale_up.bandwidth=100TB/s"]).quantity("scale_up", "bandwidth")
    assert most == Quantity(absolute=1e14)
    assert parse_scenario(["scale_out.latency=1s"]).quantity("scale_out", "latency") == Quantity(absolute=1.0)
    assert len(list(parse_sweep("kernels.time=x1..x65536"))) == 17
    with pytest.raises(UsageError, match="at most 65,536 times xA"):
        list(parse_sweep("kernels.time=x1..x65537"))


@pytest.mark.parametrize(
    "texts",
    [
        ("kernels.time=x2", "kernels.time=x2"),
        ("scale_up.bandwidth=x2", "rank[1].kernels.time=x2", "scale_up.bandwidth=900GB/s"),
        ("system=dgx-h100", "system = dgx-h200"),
        ("kernels[name~a=b].time=x2", "kernels[name~a=b].time=x3"),
    ],
)
def test_a_key_given_twice_is_refused(texts: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="is set twice"):
        parse_scenario(texts)


def test_a_sweep_doubles() -> None:
    assert [factor for factor, _ in parse_sweep("scale_out.bandwidth=x0.25..x8")] == [0.25, 0.5, 1, 2, 4, 8]
    assert list(parse_sweep("kernels.time=x1..x3")) == [(n, f"kernels.time=x{n}") for n in (1, 2, 3)]


@pytest.mark.parametrize(
    "text",
    ["compute", "kernels.time=x1", "kernels.time=x2..x1", "kernels.time=1..2", "kernels.time=x1..x999999"],
)
def test_a_sweep_needs_two_factors_in_order(text: str) -> None:
    with pytest.raises(UsageError):
        list(parse_sweep(text))


def test_each_key_names_one_setting() -> None:
    keys = [key for key in CHANGES if "<" not in key]
    keys += ["collective.all_reduce", "rank[3].kernels[gemm].time"]
    for key in keys:
        assert sum(CHANGES.get(name).is_named(key) for name in CHANGES) == 1


def test_a_file_says_what_settings_say(tmp_path: Path) -> None:
    path = tmp_path / "doubled.yaml"
    path.write_text("description: why\nset:\n  scale_out.bandwidth: 400Gb/s\n  rank[1].kernels.time: x0.5\n")
    name, texts = read_scenario(path)
    assert name == "doubled"
    assert tuple(parse_scenario(texts).changes) == ("scale_out.bandwidth", "rank[1].kernels.time")
    path.write_text("name: two times\nset: {kernels.time: x2}\n")
    assert read_scenario(path) == ("two times", ("kernels.time=x2",))
    # the schema is one
    Draft7Validator.check_schema(dict(packaged_schema("scenario")))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("set: {}\n", "bad.yaml:1: set"),
        ("name: x\n", "set: is missing"),
        ("sets:\n  compute: x2\n", "bad.yaml:1: sets: unknown key; did you mean set?"),
        ("set:\n  compute: 2\n", "bad.yaml:2: set.compute: is 2 but must be text"),
        ("set:\n  compute: x2\n  compute: x3\n", "bad.yaml:3: set.compute: is there twice, first in line 2"),
        (
            "set:\n  kernels.time: x2\n  kernel.time: x3\n",
            "bad.yaml:3: there is no setting 'kernel.time'; did you mean kernels.time",
        ),
        ("set:\n  kernels.time: 1us\n", "bad.yaml:2: kernels.time=1us: '1us' is not a time"),
        ("set: &a {compute: x2}\n", "bad.yaml:1: uses a YAML anchor"),
        ("- compute\n", "is a list"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as failed:
        read_scenario(path)
    assert says in str(failed.value)


def test_scenarios_are_written_and_told_from_settings(tmp_path: Path) -> None:
    path = tmp_path / "kept.yaml"
    texts = ("scale_up.bandwidth=900GB/s", "kernels.time=x0.5", "collective.all_reduce=tree")
    for label in ("plain", '1e5: "quoted" \\ # no', "x2"):
        write_scenario(parse_scenario(texts, label), path, "because\nit is so")
        assert read_scenario(path) == (label, texts)
    # what sets nothing is not written
    with pytest.raises(InputError, match="there are no settings to write"):
        write_scenario(parse_scenario([], "unchanged"), tmp_path / "none.yaml")
    # a file is told from settings
    assert is_scenario_file("a/b.yaml")
    assert is_scenario_file(Path("anything"))
    assert not is_scenario_file("kernels.time=x2")
    assert not is_scenario_file("system=my.yaml")
    # no file is told
    with pytest.raises(CclbenchError, match=r"none\.yaml"):
        read_scenario(tmp_path / "none.yaml")
