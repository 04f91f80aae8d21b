# SPDX-License-Identifier: Apache-2.0
"""Events, the graph, nodes and contention of a replay, and real runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.replay_rows import Item, alone, end_of, item, launch, rank, replayed, scaled, syncs
from helpers.replay_subjects import subject
from hypothesis import given
from hypothesis import strategies as st

import cclbench
from cclbench.card.model import Hardware
from cclbench.ground.codes import combination_codes, value_codes
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import begins
from cclbench.hardware import catalog
from cclbench.hardware.collectives import price_collective
from cclbench.machine import Machine
from cclbench.replay import nodes as n
from cclbench.replay.answer import Replay
from cclbench.replay.contention import replay_contended
from cclbench.replay.device import device_of
from cclbench.replay.events import stated_waits
from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.modelled import modelled_group, modelled_s
from cclbench.replay.result import replay_scenarios
from cclbench.replay.simulate import simulate_nodes
from cclbench.replay.tables import CONTEXT_SYNC, EVENT_SYNC, STREAM_SYNC, STREAM_WAIT, GraphInput

ONE, TWO, THREE = (0, 7), (0, 20), (0, 24)
Stated = tuple[int, float, int, int, int, float | None]


def ends(graph: Graph) -> tuple[float, float]:
    """When the kernel measured last ends, replayed unchanged, and if all take three times as long."""
    nodes = graph.nodes
    kernels = nodes.kind == n.COMPUTE
    last = int(np.flatnonzero(kernels)[np.argmax(nodes.start[kernels])])
    unchanged = simulate_nodes(nodes, graph.cut)
    return unchanged.end[last] / 1000, scaled(graph, n.COMPUTE, 3).end[last] / 1000


def waiting(launches: list[float], work: list[tuple[float, float, tuple[int, int]]], *told: Stated) -> Graph:
    """Kernels of streams, launched then, with what is stated of their waits."""
    rows = [item("gemm", begin, end, i, lane) for i, (begin, end, lane) in enumerate(work)]
    made = [launch(at, i) for i, at in enumerate(launches)]
    return replayed(alone(*rows, launches=made, begin=5, stated=syncs(*told) if told else None))[0]


@pytest.mark.parametrize(
    ("told", "end"),
    [
        # nothing stated, nothing seen: the second starts with its launch at 205 and takes 30
        ((), 235),
        # the first ends at 305 now, and the second waits for it
        (((STREAM_WAIT, 150, 20, 90, 7, 140),), 335),
        # recorded before the first kernel was launched: nothing to wait for
        (((STREAM_WAIT, 150, 20, 90, 7, -1),), 235),
        # told to wait only after its last kernel was launched
        (((STREAM_WAIT, 250, 20, 90, 7, 140),), 235),
        # of a stream that is none of this device's
        (((STREAM_WAIT, 150, 20, 90, 99, 140),), 235),
    ],
)
def test_a_stated_wait_holds_whether_or_not_it_shows(told: tuple[Stated, ...], end: float) -> None:
    """A kernel of 100 on one stream; on the other one of 10, launched at 200 and in nobody's way."""
    assert ends(waiting([0, 200], [(5, 105, ONE), (205, 215, TWO)], *told)) == (215, end)


def test_an_event_marks_what_its_stream_was_told_to_wait_for() -> None:
    """Stream 20 has had no kernel, but waits for 7, when 24 is told to wait for it."""
    told = (STREAM_WAIT, 150, 20, 90, 7, 140), (STREAM_WAIT, 160, 24, 91, 20, 155)
    graph = waiting([0, 200, 190], [(5, 105, ONE), (205, 215, THREE), (195, 196, TWO)], *told)
    assert ends(graph) == (215, 335)
    assert graph.traced["waits of a stream for an event"] == 2
    # A kernel waits for two, which ended 2 and 27 before it: only the later one shows what a wait takes.
    # Three times as long, the other of the two ends last, at 5 + 225 = 230: 2 behind it the kernel takes 30
    told = (STREAM_WAIT, 91, 24, 90, 20, 91), (STREAM_WAIT, 91.5, 24, 91, 7, 91.5)
    graph = waiting([0, 90, 92], [(5, 80, TWO), (95, 105, ONE), (107, 117, THREE)], *told)
    assert ends(graph) == (117, 262)
    assert graph.traced["waits of a stream for an event"] == 2
    # an event that was recorded nobody knows where is inferred where it shows
    told = (STREAM_WAIT, 2.5, 20, 90, -1, None), (STREAM_WAIT, 108, 24, 91, 20, 107)
    graph = waiting([0, 3, 110], [(5, 105, ONE), (106, 116, TWO), (117, 120, THREE)], *told)
    assert end_of(graph, simulate_nodes(graph.nodes, graph.cut), 0) == 120
    assert graph.inferred["waits of a stream for an event whose record is not in the trace"] == 1
    assert graph.traced["waits of a stream for an event"] == 1


@pytest.mark.parametrize(
    ("what", "returns", "of", "recorded", "end"),
    [
        # the device's last kernel ends at 305, the call returns 5 later; launch, 5, then 9
        (CONTEXT_SYNC, 110, -1, None, 324),
        # stream 20's ends at 67, the call returns 1 later
        *((STREAM_SYNC, 28, -1, None, 82), (EVENT_SYNC, 28, 20, 3, 82)),
    ],
)
def test_a_call_waits(what: int, returns: float, of: int, recorded: float | None, end: float) -> None:
    """Kernels of 100 on stream 7, of 20 on stream 20; behind the call one of 3 is launched on stream 24."""
    work = [item("a", 5, 105, 1, ONE), item("b", 7, 27, 2, TWO)]
    work += [item("c", returns + 5, returns + 8, 3, THREE)]
    call: Item = item("cudaSynchronize", 6, returns, 80)
    stated = syncs((what, 6, 20 if what == STREAM_SYNC else -1, 80, of, recorded))
    launches = [launch(0, 1), launch(2, 2), launch(returns, 3)]
    graph, _ = replayed(alone(*work, launches=launches, syncs=[call], stated=stated))
    assert ends(graph) == (returns + 8, end)
    assert graph.traced == {"synchronise calls": 1}


def test_the_fixture_with_traced_events(test_data: Path, evidence_store: Path) -> None:
    """Stream 24 waits for what stream 20 ended 18 ms before, which only the traced event tells. With kernels
    of 300 times their 123 µs stream 20 ends at 36.9 ms, and then come stream 24's memset, which lies 16 µs
    before its kernel, and that: 73.8 ms, instead of 56 where it need not wait."""
    run = cclbench.ingest(test_data / "kineto" / "cuda_sync_a100", store=evidence_store)
    found = replay_scenarios(run, ["kernels.time=x300"])
    assert found.unchanged.step_ns == pytest.approx(found.measured_ns, rel=0.01)
    assert found.predicted[0].step_ns == pytest.approx(2 * 300 * 123_000, rel=0.01)
    assert found.notes == ("traced: 1 synchronise calls", "traced: 1 waits of a stream for an event")


def awaited(*told: Stated) -> dict[float, float]:
    """What a call with the number 80 waits for: begins of rows, by their streams. Stream 7 has rows at 30 and
    40, launched at 10 and 20; stream 20 one at 50, launched at 20."""
    work = [item("a", 30, 31, 1, ONE), item("b", 40, 41, 2, ONE), item("c", 50, 51, 3, TWO)]
    device = device_of(alone(*work, launches=[launch(10, 1), launch(20, 2), launch(20, 3)]))
    found = stated_waits(syncs(*told), device).of_call[80]
    rows = device.rows
    return {rows.lanes[lane][1]: rows.start[row] / 1_000 for lane, row in found.items()}


@pytest.mark.parametrize(
    ("time", "found"), [(10, {}), (10.001, {7: 30}), (20, {7: 30}), (20.001, {7: 40}), (99, {7: 40})]
)
def test_a_stream_s_call_waits_for_earlier_launches(time: float, found: dict[float, float]) -> None:
    assert awaited((STREAM_SYNC, time, 7, 80, -1, None)) == found
    assert awaited((EVENT_SYNC, 99, -1, 80, 7, time)) == found


def test_a_call_for_the_device_waits_for_all_streams() -> None:
    assert awaited((CONTEXT_SYNC, 99, -1, 80, -1, None)) == {7: 40, 20: 50}
    assert awaited((CONTEXT_SYNC, 15, -1, 80, -1, None)) == {7: 30}
    assert awaited((STREAM_SYNC, 99, 33, 80, -1, None)) == {}
    # of two waits for a stream the later row is awaited
    for first, second in ((12, 99), (99, 12)):
        waits = [(STREAM_WAIT, 30, 20, 90, 7, first), (STREAM_WAIT, 31, 20, 91, 7, second)]
        assert awaited(*waits, (STREAM_SYNC, 40, 20, 80, -1, None)) == {20: 50, 7: 40}


@pytest.mark.parametrize(
    ("told", "asked", "found"),
    [
        # told to wait before its row was launched: that row is over later
        (15, 25, {20: 50}),
        # in the same instant as, and after that row was launched
        *((20, 25, {20: 50, 7: 30}), (22, 25, {20: 50, 7: 30}), (22, 22, {20: 50, 7: 30}),
          (22, 21, {20: 50})),
        # with nothing launched what it was told is all
        (15, 18, {7: 30}),
    ],
)  # fmt: skip
def test_a_stream_is_over_when_its_waits_are(told: float, asked: float, found: dict[float, float]) -> None:
    """Stream 20 is told to wait for what 7 had been given at 12."""
    both = (STREAM_WAIT, told, 20, 90, 7, 12), (STREAM_SYNC, asked, 20, 80, -1, None)
    assert awaited(*sorted(both, key=lambda one: (one[1], one[0]))) == found


def ranks(*arrivals: float) -> list[GraphInput]:
    """A kernel up to its arrival on each, an all-reduce of 20 µs; on the first rank one alone before."""
    done, made = max(arrivals) + 20, []
    for r, at in enumerate(arrivals):
        alone = [item("x", 2, 4, lane=(0, 9), call=0)] if r == 0 else []
        work = [item(f"k{r}", 5, at, 1, category="gemm")]
        work += [item("nccl", at, done, call=len(alone), lane=(0, 7))]
        more = {"instances": [3, 5] if r == 0 else [5], "size": len(arrivals), "windows": [(0, 0, done)]}
        made.append(rank(r, launches=[launch(0, 1)], work=[*work, *alone], **more))
    object.__setattr__(made[0].calls, "complete", np.array([False, True]))
    return made


def test_ranks_keep_their_own_numbers_one_behind_the_other() -> None:
    graph = build_graph(ranks(60, 100, 80))
    nodes, calls = graph.nodes, graph.transfers
    assert calls.instance.tolist() == [3, 5, 5, 5]
    assert calls.is_split.tolist() == [False, True, True, True]
    assert calls.size.tolist() == [3] * 4
    own = [nodes.call[(nodes.rank == r) & (nodes.kind == n.TRANSFER)].tolist() for r in range(3)]
    assert own == [[1, 0], [2], [3]]
    assert (nodes.call[nodes.kind == n.HOST] == -1).all()
    fed = np.flatnonzero(nodes.feeder >= 0)
    assert nodes.rank[fed].tolist() == nodes.rank[nodes.feeder[fed]].tolist() == [0, 1, 2]
    assert (nodes.kind[nodes.feeder[fed]] == n.HOST).all()
    assert [graph.names[code] for code in nodes.name[fed].tolist()] == ["k0", "k1", "k2"]
    assert {graph.categories[code] for code in nodes.category[fed].tolist()} == {"gemm"}
    assert [one.rank for one in graph.windowed] == [0, 1, 2]
    lanes = [{*nodes.lane[nodes.rank == r].tolist()} for r in range(3)]
    assert [len(own) for own in lanes] == [3, 2, 2]
    assert len(set.union(*lanes)) == 7


def test_a_meeting_is_when_the_last_rank_arrives() -> None:
    graph = build_graph(ranks(60, 100, 80))
    nodes = graph.nodes
    meet = np.flatnonzero(nodes.kind == n.RENDEZVOUS)
    columns = (nodes.start, nodes.end, nodes.rank)
    assert [column[meet].tolist() for column in columns] == [[100_000], [100_000], [-1]]
    together = np.flatnonzero((nodes.kind == n.TRANSFER) & (nodes.start >= 50_000))
    assert nodes.start[together].tolist() == [100_000] * 3
    assert nodes.dur[together].tolist() == [20_000] * 3
    source, target, lag = graph.wait_edges()
    met = (source == meet[0]) | (target == meet[0])
    found = sorted(zip(source[met].tolist(), target[met].tolist(), lag[met].tolist(), strict=True))
    assert found == sorted(
        [(int(at) - 1, int(meet[0]), 0) for at in together] + [(int(meet[0]), int(at), 0) for at in together]
    )
    gates = graph.transfer_gates()
    alone = np.flatnonzero((nodes.kind == n.TRANSFER) & (nodes.start < 50_000))
    assert gates[together].tolist() == [int(meet[0])] * 3
    assert gates[alone].tolist() == alone.tolist()
    assert (gates[nodes.kind != n.TRANSFER] == -1).all()
    assert simulate_nodes(nodes, graph.cut).end.tolist() == nodes.end.tolist()


def test_a_meeting_of_which_a_rank_is_not_replayed_is_none() -> None:
    graph = build_graph(ranks(60, 100, 80)[1:])
    assert not graph.transfers.is_split.any()
    assert not (graph.nodes.kind == n.RENDEZVOUS).any()
    # sends and receives meet in pairs
    made = ranks(60, 100)
    object.__setattr__(made[0].calls, "kind", ("all_reduce", "send"))
    object.__setattr__(made[1].calls, "kind", ("recv",))
    object.__setattr__(made[1].calls, "size", np.array([8]))
    assert build_graph(made).transfers.size.tolist() == [2, 2, 2]
    # a graph of no ranks
    empty = build_graph([])
    assert (len(empty.nodes), empty.names, empty.windowed) == (0, (), ())


def test_further_waits() -> None:
    graph = build_graph(ranks(60, 100))
    nodes = graph.nodes
    first, second = (int(np.flatnonzero((nodes.kind == n.COMPUTE) & (nodes.rank == r))[0]) for r in (0, 1))
    more = graph.with_waits(np.array([first]), np.array([second]), np.array([7_000]))
    assert simulate_nodes(nodes, more.cut).start[second] == 67_000
    assert len(more.wait_edges()[0]) == len(graph.wait_edges()[0]) + 1
    with pytest.raises(InputError, match="wait for one another in a circle"):
        more.with_waits(np.array([second]), np.array([first]), np.array([0]))


def test_a_graph_in_no_doubt_is_the_same_without_it() -> None:
    graph = build_graph(ranks(60, 100, 80))
    assert not graph.has_doubt
    certain, plain = (simulate_nodes(one.nodes, one.cut) for one in (graph.without_doubt(), graph))
    assert certain.start.tolist() == plain.start.tolist()
    assert certain.end.tolist() == plain.end.tolist()
    assert replace(graph, nodes=replace(graph.nodes, doubt=np.arange(len(graph.nodes)))).has_doubt
    assert replace(graph, assumed=graph.wait_edges()[:2]).has_doubt


def test_modelled_times_are_the_formula_s_of_the_named_machine() -> None:
    empty = build_graph([])
    one = subject(empty, machine=Machine(Hardware(system="dgx-h100")))
    known = price_collective("send_recv", [1 << 20], (0, 1), catalog.system("dgx-h100"))
    for kind in ("send", "recv", "send_recv"):
        assert modelled_s(one, "it", kind, (0, 1), [1 << 20]).tolist() == known.formula_s.tolist()
    assert modelled_group(one, "it", (0, 1)).ranks == 2
    with pytest.raises(InputError, match="dgx-h100: it: "):
        modelled_s(one, "it", "broadcast", (0, 1), [1], algorithm="halving_doubling")
    with pytest.raises(InputError, match="it: needs a named machine; give --system ID"):
        modelled_s(subject(empty), "it", "all_reduce", (0, 1), [1])


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (([],), []),
        (([-1],), [True]),
        (([-1, -1, 0, 0, -1],), [True, False, True, False, True]),
        (([2, 2, 2, 3], [5, 6, 6, 6]), [True, True, False, True]),
        (([2, 2, 2], [5, 6, 6], [7, 7, 9]), [True, True, True]),
    ],
)
def test_a_stretch_begins_where_a_column_changes(columns: tuple[list[int], ...], found: list[bool]) -> None:
    assert begins(*(np.array(column, np.int64) for column in columns)).tolist() == found


def test_nodes_without_columns_are_unknown_and_take_no_time() -> None:
    blank = n.blank_nodes(2, rank=[3, 4], dur=7)
    assert blank.rank.tolist() == [3, 4]
    assert blank.dur.tolist() == [7, 7]
    for name in ("lane", "kind", "feeder", "call", "step", "category", "name", "direction"):
        assert getattr(blank, name).tolist() == [-1, -1], name
    for name in ("start", "end", "gap", "slack", "busy", "doubt", "feed_lag"):
        assert getattr(blank, name).tolist() == [0, 0], name
    assert (blank.rank.dtype, blank.kind.dtype, blank.direction.dtype) == (np.int32, np.int8, np.int8)
    assert blank.held.tolist() == [[0] * len(n.HOST_CAUSES)] * 2
    whole = n.join_nodes([blank, n.blank_nodes(1, lane=9)])
    assert (whole.lane.tolist(), whole.first_of_lane.tolist()) == ([-1, -1, 9], [True, False, True])


def test_edges_are_numbered_on() -> None:
    edges = n.Edges()
    assert [column.tolist() for column in edges.as_arrays(5)] == [[], [], []]
    edges.add_edges(np.array([1, 2]), np.array([3, 4]), 9)
    edges.add_edges(0, 1, -2)
    assert [column.tolist() for column in edges.as_arrays()] == [[1, 2, 0], [3, 4, 1], [9, 9, -2]]
    assert [column.tolist() for column in edges.as_arrays(5)] == [[6, 7, 5], [8, 9, 6], [9, 9, -2]]


_LIMITS = np.iinfo(np.int64)
NARROW = st.integers(-40, 40)
WIDE = st.integers(int(_LIMITS.min), int(_LIMITS.max))


@given(st.lists(NARROW) | st.lists(WIDE) | st.lists(st.one_of(NARROW, WIDE)))
def test_a_code_is_the_place_of_a_value_among_the_distinct_ones(values: list[int]) -> None:
    column = np.array(values, np.int64)
    assert value_codes(column).tolist() == [sorted({*values}).index(value) for value in values]
    small = column.astype(np.int8)
    assert value_codes(small).tolist() == np.unique(small, return_inverse=True)[1].tolist()


@given(st.lists(st.tuples(NARROW, WIDE, NARROW), min_size=1))
def test_combinations_have_codes_in_their_order(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    assert combination_codes(*columns).tolist() == [sorted({*rows}).index(row) for row in rows]


ON, OFF, KERNELS, CHANCE, LATENCY = 400.0, 300.0, 400, 0.03, 5.0
FACTORS = (1.0, 1.1, 1.3, 2.0)


def slowed(factor: float, seed: int) -> tuple[Graph, float]:
    """Kernels of three lengths in a row, µs, and collectives that are on and off; the work in all. A kernel
    does 1 µs of work in a µs, and 1 / factor where a collective runs."""
    random = np.random.default_rng(seed)
    time, work = LATENCY, 0.0
    kernels: list[Item] = []
    for i in range(KERNELS):
        name, base = (("gemm", 20.0), ("norm", 35.0), ("attention", 50.0))[i % 3]
        left = base * float(random.uniform(1 - CHANCE, 1 + CHANCE))
        work, begin = work + left, time
        while left > 1e-9:
            place = time % (ON + OFF)
            beside = place < ON
            taken = min((ON if beside else ON + OFF) - place, left * factor if beside else left)
            left -= taken / factor if beside else taken
            time += taken
        kernels.append(item(name, begin, time, corr=i))
    periods = int(time // (ON + OFF)) + 1
    calls = [
        item("nccl", k * (ON + OFF), k * (ON + OFF) + ON, corr=1000 + k, lane=(0, 20), call=k)
        for k in range(periods)
    ]
    ahead = [item("cudaLaunchKernel", i / 1e3, i / 1e3, corr=i) for i in range(KERNELS)]
    timely = [
        item("cudaLaunchKernel", call["start"] - LATENCY, call["start"] - 4, corr=call["corr"])
        for call in calls
    ]
    run, launches = [*kernels, *calls], [*ahead, *timely]
    one = rank(0, work=run, launches=launches, instances=[-1] * periods, windows=[(0, 0, time)])
    return build_graph([one]), work


@pytest.mark.parametrize("factor", FACTORS)
def test_without_communication_kernels_take_the_time_of_their_work(factor: float) -> None:
    graph, work = slowed(factor, seed=7)
    nodes = graph.nodes
    kernels = nodes.kind == n.COMPUTE
    assert abs(replay_contended(graph, factor).end - nodes.end)[kernels].max() <= 5_000
    free = replace(graph, nodes=replace(nodes, dur=np.where(nodes.kind == n.TRANSFER, 0, nodes.dur)))
    times = replay_contended(free, factor)
    # to rounding; a kernel of 20 to 50 µs that begins or ends beside is off by its jitter at most
    assert times.end[kernels].max() / 1000 - LATENCY == pytest.approx(work, rel=1e-3)


OURS = "llama-ddp4-gloo llama-fsdp4-gloo llama-fsdp2-tp2-gloo jax-dp2-tp4"


@pytest.mark.parametrize("name", OURS.split())
def test_our_data_points(name: str, repository: Path, evidence_store: Path) -> None:
    replay = Replay(cclbench.ingest(repository / "traces" / f"tiny-{name}-cpu", store=evidence_store))
    assert replay.unchanged.step_ns == pytest.approx(replay.measured_ns, rel=0.01)
    nodes = replay.graph.nodes
    assert replay.graph.transfers.is_split.all()
    none = replay._replay_outcome(replay.graph, np.where(nodes.kind == n.TRANSFER, 0.0, 1.0))
    assert none.step_ns < 0.99 * replay.measured_ns


def test_eight_gpus(test_data: Path, evidence_store: Path) -> None:
    replay = Replay(cclbench.ingest(test_data / "kineto" / "dlrm_8xv100", store=evidence_store))
    assert replay.unchanged.step_ns == pytest.approx(replay.measured_ns, rel=0.01)
    assert int((replay.graph.nodes.kind == n.RENDEZVOUS).sum()) == 8


@pytest.mark.parametrize(
    "path",
    [
        *("kineto/nccl_meta_a100", "kineto/h100_qwen", "kineto/sampled_2of128", "kineto/cuda_sync_a100"),
        *("kineto/gpu_only_mi210", "kineto/ddp_a100", "kineto/resnet_mi300x"),
        *("graph_replay/sglang_decode_mi300x", "graph_replay/vllm_decode_mi300x"),
        *("nsys/nsysai_mfu_2gpu_before_c8f71e.sqlite", "xprof/mi300x_8gpu_jax_conv.xplane.pb"),
    ],
)
def test_fixtures_with_launches(path: str, test_data: Path, evidence_store: Path) -> None:
    replay = Replay(cclbench.ingest(test_data / path, store=evidence_store))
    assert replay.unchanged.step_ns == pytest.approx(replay.measured_ns, rel=0.01)
