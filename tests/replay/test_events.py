# SPDX-License-Identifier: Apache-2.0
"""Waits that the trace states, in µs: kernels of a second stream wait whether or not it shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.replay_rows import end_of, item, rank, replayed, syncs

import cclbench
from cclbench.replay import nodes as n
from cclbench.replay.device import device_of
from cclbench.replay.events import stated_waits
from cclbench.replay.graph import Graph
from cclbench.replay.result import replay_scenarios
from cclbench.replay.simulate import simulate_nodes
from cclbench.replay.tables import CONTEXT_SYNC, EVENT_SYNC, STREAM_SYNC, STREAM_WAIT, GraphInput, StatedSyncs

ONE, TWO, THREE = (0, 7), (0, 20), (0, 24)


def launch(at: float, corr: int) -> dict[str, object]:
    return item("cudaLaunchKernel", at, at + 2, corr=corr)


def two_streams(stated: StatedSyncs | None) -> GraphInput:
    """A kernel of 100 on one stream; on the other one of 10, launched at 200 and in nobody's way."""
    return rank(
        0,
        launches=[launch(0, 1), launch(200, 2)],
        work=[item("gemm", 5, 105, corr=1, lane=ONE), item("norm", 205, 215, corr=2, lane=TWO)],
        windows=[(0, 5, 215)],
        stated=stated,
    )


def ends(graph: Graph) -> tuple[float, float]:
    """When the kernel measured last ends, replayed unchanged, and if all take three times as long."""
    nodes = graph.nodes
    kernels = nodes.kind == n.COMPUTE
    last = int(np.flatnonzero(kernels)[np.argmax(nodes.start[kernels])])
    slow = replace(nodes, dur=np.where(kernels, nodes.dur * 3, nodes.dur))
    found = (simulate_nodes(of, graph.cut).end[last] / 1000 for of in (nodes, slow))
    return next(found), next(found)


@pytest.mark.parametrize(
    ("stated", "end"),
    [
        # nothing stated, nothing seen: the second starts with its launch at 205 and takes 30
        (None, 235),
        # the first ends at 305 now, and the second waits for it
        (syncs((STREAM_WAIT, 150, 20, 90, 7, 140)), 335),
        # recorded before the first kernel was launched: nothing to wait for
        (syncs((STREAM_WAIT, 150, 20, 90, 7, -1)), 235),
        # told to wait only after its last kernel was launched
        (syncs((STREAM_WAIT, 250, 20, 90, 7, 140)), 235),
        # of a stream that is none of this device's
        (syncs((STREAM_WAIT, 150, 20, 90, 99, 140)), 235),
    ],
)
def test_a_stated_wait_holds_whether_or_not_it_shows(stated: StatedSyncs | None, end: float) -> None:
    graph, _ = replayed(two_streams(stated))
    assert ends(graph) == (215, end)


def test_an_event_marks_what_its_stream_was_told_to_wait_for() -> None:
    """Stream 20 has had no kernel, but waits for 7, when 24 is told to wait for it."""
    one = rank(
        0,
        launches=[launch(0, 1), launch(200, 2), launch(190, 3)],
        work=[
            item("gemm", 5, 105, corr=1, lane=ONE),
            item("norm", 205, 215, corr=2, lane=THREE),
            item("norm", 195, 196, corr=3, lane=TWO),
        ],
        windows=[(0, 5, 215)],
        stated=syncs((STREAM_WAIT, 150, 20, 90, 7, 140), (STREAM_WAIT, 160, 24, 91, 20, 155)),
    )
    graph, _ = replayed(one)
    assert ends(graph) == (215, 335)
    assert graph.traced["waits of a stream for an event"] == 2


def test_the_usual_lag_is_behind_what_ended_last() -> None:
    """A kernel waits for two, which ended 2 and 27 before it: only the later one shows what a wait takes.

    Three times as long, the other of the two ends last, at 5 + 225 = 230: 2 behind it the kernel takes 30.
    """
    one = rank(
        0,
        launches=[launch(0, 1), launch(90, 2), launch(92, 3)],
        work=[
            item("gemm", 5, 80, corr=1, lane=TWO),
            item("gemm", 95, 105, corr=2, lane=ONE),
            item("norm", 107, 117, corr=3, lane=THREE),
        ],
        windows=[(0, 5, 117)],
        stated=syncs((STREAM_WAIT, 91, 24, 90, 20, 91), (STREAM_WAIT, 91.5, 24, 91, 7, 91.5)),
    )
    graph, _ = replayed(one)
    assert ends(graph) == (117, 262)
    assert graph.traced["waits of a stream for an event"] == 2


def test_an_event_that_was_recorded_nobody_knows_where_is_inferred_where_it_shows() -> None:
    held = rank(
        0,
        launches=[launch(0, 1), launch(3, 2), launch(110, 3)],
        work=[
            item("gemm", 5, 105, corr=1, lane=ONE),
            item("norm", 106, 116, corr=2, lane=TWO),
            item("norm", 117, 120, corr=3, lane=THREE),
        ],
        windows=[(0, 5, 120)],
        stated=syncs((STREAM_WAIT, 2.5, 20, 90, -1, None), (STREAM_WAIT, 108, 24, 91, 20, 107)),
    )
    graph, times = replayed(held)
    assert end_of(graph, times, 0) == 120
    assert graph.inferred["waits of a stream for an event whose record is not in the trace"] == 1
    assert graph.traced["waits of a stream for an event"] == 1


@pytest.mark.parametrize(
    ("what", "returns", "of", "recorded", "end"),
    [
        # the device's last kernel ends at 305, the call returns 5 later; launch, 5, then 9
        (CONTEXT_SYNC, 110, -1, None, 324),
        # stream 20's ends at 67, the call returns 1 later
        (STREAM_SYNC, 28, -1, None, 82),
        (EVENT_SYNC, 28, 20, 3, 82),
    ],
)
def test_a_synchronise_call_waits_for_what_is_stated(
    what: int, returns: float, of: int, recorded: float | None, end: float
) -> None:
    """Kernels of 100 on stream 7, of 20 on stream 20; behind the call one of 3 is launched on stream 24."""
    one = rank(
        0,
        launches=[launch(0, 1), launch(2, 2), launch(returns, 3)],
        syncs=[item("cudaSynchronize", 6, returns, corr=80)],
        work=[
            item("gemm", 5, 105, corr=1, lane=ONE),
            item("gemm", 7, 27, corr=2, lane=TWO),
            item("norm", returns + 5, returns + 8, corr=3, lane=THREE),
        ],
        windows=[(0, 5, 118)],
        stated=syncs((what, 6, 20 if what == STREAM_SYNC else -1, 80, of, recorded)),
    )
    graph, _ = replayed(one)
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


def awaited(*told: tuple[int, float, int, int, int, float | None]) -> dict[float, float]:
    """What a call with the number 80 waits for: begins of rows, by their streams.

    Stream 7 has rows at 30 and 40, launched at 10 and 20; stream 20 one at 50, launched at 20.
    """
    one = rank(
        0,
        launches=[launch(10, 1), launch(20, 2), launch(20, 3)],
        work=[
            item("a", 30, 31, corr=1, lane=ONE),
            item("b", 40, 41, corr=2, lane=ONE),
            item("c", 50, 51, corr=3, lane=TWO),
        ],
    )
    device = device_of(one)
    found = stated_waits(syncs(*told), device).of_call[80]
    rows = device.rows
    return {rows.lanes[lane][1]: rows.start[row] / 1_000 for lane, row in found.items()}


@pytest.mark.parametrize(
    ("time", "found"), [(10, {}), (10.001, {7: 30}), (20, {7: 30}), (20.001, {7: 40}), (99, {7: 40})]
)
def test_a_stream_s_call_waits_for_what_was_launched_before_it(
    time: float, found: dict[float, float]
) -> None:
    assert awaited((STREAM_SYNC, time, 7, 80, -1, None)) == found
    assert awaited((EVENT_SYNC, 99, -1, 80, 7, time)) == found


def test_a_call_for_the_device_waits_for_all_streams() -> None:
    assert awaited((CONTEXT_SYNC, 99, -1, 80, -1, None)) == {7: 40, 20: 50}
    assert awaited((CONTEXT_SYNC, 15, -1, 80, -1, None)) == {7: 30}
    assert awaited((STREAM_SYNC, 99, 33, 80, -1, None)) == {}


@pytest.mark.parametrize(
    ("told", "asked", "found"),
    [
        # told to wait before its row was launched: that row is over later
        (15, 25, {20: 50}),
        # in the same instant as, and after that row was launched
        (20, 25, {20: 50, 7: 30}),
        (22, 25, {20: 50, 7: 30}),
        (22, 22, {20: 50, 7: 30}),
        (22, 21, {20: 50}),
        # with nothing launched what it was told is all
        (15, 18, {7: 30}),
    ],
)
def test_a_stream_is_over_when_what_it_was_told_to_wait_for_is(
    told: float, asked: float, found: dict[float, float]
) -> None:
    """Stream 20 is told to wait for what 7 had been given at 12."""
    wait = (STREAM_WAIT, told, 20, 90, 7, 12)
    call = (STREAM_SYNC, asked, 20, 80, -1, None)
    assert awaited(*sorted([wait, call], key=lambda one: (one[1], one[0]))) == found


def test_of_two_waits_for_a_stream_the_later_row_is_awaited() -> None:
    for first, second in ((12, 99), (99, 12)):
        waits = [(STREAM_WAIT, 30, 20, 90, 7, first), (STREAM_WAIT, 31, 20, 91, 7, second)]
        assert awaited(*waits, (STREAM_SYNC, 40, 20, 80, -1, None)) == {20: 50, 7: 40}
