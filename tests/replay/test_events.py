# SPDX-License-Identifier: Apache-2.0
"""Waits that the trace states, in µs: kernels of a second stream wait whether or not it shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.replay_rows import Item, alone, end_of, item, launch, replayed, scaled, syncs

import cclbench
from cclbench.replay import nodes as n
from cclbench.replay.device import device_of
from cclbench.replay.events import stated_waits
from cclbench.replay.graph import Graph
from cclbench.replay.result import replay_scenarios
from cclbench.replay.simulate import simulate_nodes
from cclbench.replay.tables import CONTEXT_SYNC, EVENT_SYNC, STREAM_SYNC, STREAM_WAIT

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
def test_a_synchronise_call_waits_for_what_is_stated(
    what: int, returns: float, of: int, recorded: float | None, end: float
) -> None:
    """Kernels of 100 on stream 7, of 20 on stream 20; behind the call one of 3 is launched on stream 24."""
    work = [
        *(item("a", 5, 105, 1, ONE), item("b", 7, 27, 2, TWO)),
        item("c", returns + 5, returns + 8, 3, THREE),
    ]
    call: Item = item("cudaSynchronize", 6, returns, 80)
    stated = syncs((what, 6, 20 if what == STREAM_SYNC else -1, 80, of, recorded))
    launches = [launch(0, 1), launch(2, 2), launch(returns, 3)]
    graph, _ = replayed(alone(*work, launches=launches, syncs=[call], stated=stated))
    assert ends(graph) == (returns + 8, end)
    assert graph.traced == {"synchronise calls": 1}


def test_the_fixture_with_traced_events(test_data: Path, evidence_store: Path) -> None:
    """Stream 24 waits for what stream 20 ended 18 ms before, which only the traced event tells.

    With kernels of 300 times their 123 µs stream 20 ends at 36.9 ms, and then come stream 24's memset, which
    lies 16 µs before its kernel, and that: 73.8 ms, instead of 56 where it need not wait.
    """
    run = cclbench.ingest(test_data / "kineto" / "cuda_sync_a100", store=evidence_store)
    found = replay_scenarios(run, ["kernels.time=x300"])
    assert found.unchanged.step_ns == pytest.approx(found.measured_ns, rel=0.01)
    assert found.predicted[0].step_ns == pytest.approx(2 * 300 * 123_000, rel=0.01)
    assert found.notes == ("traced: 1 synchronise calls", "traced: 1 waits of a stream for an event")


def awaited(*told: Stated) -> dict[float, float]:
    """What a call with the number 80 waits for: begins of rows, by their streams.

    Stream 7 has rows at 30 and 40, launched at 10 and 20; stream 20 one at 50, launched at 20.
    """
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
        *(
            (20, 25, {20: 50, 7: 30}),
            (22, 25, {20: 50, 7: 30}),
            (22, 22, {20: 50, 7: 30}),
            (22, 21, {20: 50}),
        ),
        # with nothing launched what it was told is all
        (15, 18, {7: 30}),
    ],
)
def test_a_stream_is_over_when_its_waits_are(told: float, asked: float, found: dict[float, float]) -> None:
    """Stream 20 is told to wait for what 7 had been given at 12."""
    both = (STREAM_WAIT, told, 20, 90, 7, 12), (STREAM_SYNC, asked, 20, 80, -1, None)
    assert awaited(*sorted(both, key=lambda one: (one[1], one[0]))) == found
