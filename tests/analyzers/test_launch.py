# SPDX-License-Identifier: Apache-2.0
"""Launches: hand-made ranks whose answers can be worked out on paper."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import a_rank, comm, compute, event, window
from helpers.hand_values import in_ns, main, parts, reason, rows_of, run_parts, told, values

from cclbench.analyzers.metric import Coverage
from cclbench.analyzers.view.rank_view import RankView

NS = 1e-9


def call(start: int, end: int, correlation: int) -> dict[str, object]:
    """A call that launches what has that correlation."""
    return event("launch", start, end, correlation=correlation)


def work(*told: tuple[int, int, int, int]) -> list[dict[str, object]]:
    """A call from the first instant to the second, and its kernel from the third to the fourth, of each."""
    return [
        row
        for n, (begin, end, start, stop) in enumerate(told)
        for row in (call(begin, end, n), compute(start, stop, correlation=n))
    ]


def rank_of_100_ns(*told: tuple[int, int, int, int], rank: int = 0) -> RankView:
    return a_rank(work(*told), [window(0, 100)], rank=rank)


# A call each: a gemm of 30 ns, a kernel of 6 ns, a graph of two kernels with 9 ns together, communication of
# 1 ns, a copy; a kernel of unknown launch, and a call whose work nobody saw.
ROWS = [
    *(call(0, 4, 1), call(5, 15, 2), call(20, 30, 3), call(50, 52, 4), call(62, 64, 5), call(70, 99, 6)),
    compute(10, 40, correlation=1),
    compute(40, 46, correlation=2, category="elementwise"),
    compute(46, 50, correlation=3, category="elementwise"),
    compute(50, 55, correlation=3, category="elementwise"),
    comm(60, 61, correlation=4),
    event("copy", 70, 80, track=3, correlation=5),
    compute(85, 90),
]


def a_step() -> RankView:
    return a_rank(ROWS, [window(0, 100, 4)])


def whole(metric: str, view: RankView | None = None) -> dict[Any, Any]:
    """The values of a rank by category and statistic, those of steps aside."""
    return told(v for v in values(view or a_step(), metric) if v.step is None)


def test_a_call_takes_its_own_duration_and_a_graph_is_one() -> None:
    """Four calls launched kernels: 4, 10, 10 and 2 ns; each delay is from its begin to its first kernel.

    Delays of 10, 35, 26 and 10 ns; from the calls' ends on 6, 25, 16 and 8.
    """
    durations = {None: 6.5, "p50": 7, "max": 10, "p95": None}
    assert in_ns(whole("launch.call_time")) == pytest.approx(durations)
    assert parts(a_step(), "launch.call_time")[4] == pytest.approx(6.5 * NS)
    delays = {None: 20.25, "p50": 18, "max": 35, "after_call": 13.75, "p95": None}
    assert in_ns(whole("launch.delay")) == pytest.approx(delays)


def test_a_kernel_that_begins_before_its_call_is_left_out_of_the_delay_and_counted() -> None:
    rank = rank_of_100_ns((0, 1, 5, 8), (30, 31, 29, 32))
    first = values(rank, "launch.delay")[0]
    assert first.value == pytest.approx(5 * NS)
    assert first.words == "left out: 1 calls that begin after their kernel"
    assert main(rank, "launch.call_time") == pytest.approx(1 * NS)
    queue = values(rank, "launch.queue_length")[0]
    assert (queue.value, queue.status) == (pytest.approx(8 / 100), "partial")
    assert queue.words == "left out: 1 that begin before their call"
    assert "no launch in the window is usable" in reason(rank_of_100_ns((30, 31, 29, 32)), "launch.delay")


def test_a_kernel_that_begins_with_its_call_waited_for_nothing() -> None:
    rows = [*work((10, 14, 10, 12), (20, 22, 28, 30)), compute(40, 50)]
    rank = a_rank(rows, [window(0, 25, 1), window(25, 100, 2)])
    found = in_ns(parts(rank, "launch.delay"))
    assert {about: found[about] for about in (None, 1, 2, "after_call")} == pytest.approx(
        {None: 4, 1: 0, 2: 8, "after_call": (-4 + 6) / 2}
    )
    own = values(rank, "launch.delay")[0]
    assert (own.coverage, own.words) == (Coverage(2, 3, 4, 14), "left out: 1 kernels without a launch")


def test_ranks_delays_count_call_by_call() -> None:
    other = rank_of_100_ns((0, 2, 4, 5), (9, 11, 13, 14), (18, 20, 22, 23), rank=1)
    run = in_ns(run_parts("launch.delay", rank_of_100_ns((0, 1, 10, 11)), other))
    assert run[None] == pytest.approx((10 + 3 * 4) / 4)
    assert run["after_call"] == pytest.approx((9 + 3 * 2) / 4)
    # A rank whose launches are unusable makes the run's delay partial.
    row = rows_of("launch.delay", rank_of_100_ns((30, 31, 29, 32)), rank_of_100_ns((0, 1, 10, 13), rank=1))[0]
    assert (row["value"], row["status"]) == (pytest.approx(10 * NS), "partial")
    assert (row["coverage"], row["coverage_time"]) == (1 / 2, 3 / 6)


def test_what_begins_outside_the_windows_is_no_kernel_of_them() -> None:
    rank = a_rank(work((0, 8, 10, 12), (20, 28, 30, 32), (40, 48, 50, 70)), [window(25, 60, 1)])
    assert main(rank, "launch.short_kernels") == 1 / 2
    assert main(rank, "launch.call_time") == pytest.approx(8 * NS)
    assert main(rank, "compute.launch_bound_share") == pytest.approx(2 / 12)


def test_ranks_shares_of_launch_bound_work_count_by_kernels_and_by_time() -> None:
    """On one rank 2 of 2 ns are short; on the other of four kernels three of 1 ns, beside 27."""
    one = rank_of_100_ns((0, 5, 10, 12))
    other = rank_of_100_ns((0, 5, 6, 7), (9, 14, 15, 16), (18, 23, 24, 25), (40, 45, 50, 77), rank=1)
    assert run_parts("launch.short_kernels", one, other)[None] == pytest.approx(4 / 5)
    assert run_parts("compute.launch_bound_share", one, other)[None] == pytest.approx(5 / 32)


def test_a_graphs_kernels_are_short_where_together_they_take_less_than_its_launch() -> None:
    """Of five kernels with a launch record four are: 6 < 10, 4 + 5 < 10, 1 < 2."""
    first = values(a_step(), "launch.short_kernels")[0]
    assert (first.value, first.status) == (pytest.approx(0.8), "partial")
    assert (first.coverage.rows, first.coverage.all_rows) == (5, 6)
    assert first.words == "left out: 1 kernels without a launch"
    longer = [*ROWS[:5], *ROWS[6:9], compute(50, 57, correlation=3)]
    assert main(a_rank(longer, [window(0, 100)]), "launch.short_kernels") == pytest.approx(1 / 4)
    # A kernel as long as its call is not.
    assert main(rank_of_100_ns((0, 10, 20, 30)), "launch.short_kernels") == 0


def test_the_launch_bound_share_is_of_compute_time() -> None:
    """Of C, 10-55 and 85-90, the stretch 40-55; compute beside communication is compute time."""
    share = "compute.launch_bound_share"
    assert main(a_step(), share, "partial") == pytest.approx(15 / 50)
    beside = [*work((0, 20, 30, 40)), compute(40, 70), comm(40, 80)]
    assert main(a_rank(beside, [window(0, 100)]), share, "partial") == pytest.approx(10 / 40)
    # What a window's edge cuts counts with what lies inside.
    rank = a_rank(ROWS, [window(0, 43, 1), window(43, 100, 2)])
    assert parts(rank, share) == pytest.approx({None: 15 / 50, 1: 3 / 33, 2: 12 / 17})
    assert parts(rank, "launch.short_kernels") == pytest.approx({None: 4 / 5, 1: 1 / 2, 2: 1})
    calls = in_ns(parts(rank, "launch.call_time"))
    assert [calls[about] for about in (None, 1, 2)] == pytest.approx([6.5, 7, 6])


def test_a_queue_holds_what_is_launched_until_it_ends() -> None:
    """Stream 7: [0,40), [5,46), [20,50) and [20,55); stream 20: [50,61); the copy's: [62,80)."""
    queues = {None: (1.75, 4, 0.21), "stream 7": (1.46, 4, 0.45), "stream 20": (0.11, 1, 0.89)}
    queues["stream 3"] = (0.18, 1, 0.82)
    expected = {
        (of, stat) if of and stat else of or stat: value
        for of, own in queues.items()
        for stat, value in zip((None, "max", "empty", "blocked"), (*own, 0), strict=True)
    }
    assert whole("launch.queue_length") == pytest.approx(expected)
    units = {v.stat: v.unit for v in values(a_step(), "launch.queue_length")}
    assert units == {None: None, "max": None, "empty": "1", "blocked": "1"}


def test_what_was_launched_before_a_window_waits_in_it_and_what_lies_between_windows_does_not_count() -> None:
    rank = a_rank(work((0, 1, 15, 60)), [window(10, 20, 1), window(30, 40, 2), window(50, 80, 3)])
    found = told(v for v in values(rank, "launch.queue_length") if v.category is None)
    assert found == pytest.approx(
        {None: 30 / 50, 1: 1, 2: 1, 3: 10 / 30, "max": 1, "empty": 20 / 50, "blocked": 0}
    )


def test_only_what_waits_or_runs_in_the_windows_is_left_out_of_the_queue() -> None:
    """Windows from 10 to 20: of five kernels without a call two touch them only."""
    rows = [
        *(call(12, 13, 1), compute(12, 14, correlation=1)),
        *(compute(5, 10, track=3), compute(20, 25, track=3), compute(8, 11, track=4),
          compute(19, 22, track=4)),
        *(compute(15, 16, track=5), call(16, 17, 2), compute(15, 19, correlation=2, track=6)),
    ]  # fmt: skip
    own = values(a_rank(rows, [window(10, 15, 1), window(15, 20, 2)]), "launch.queue_length")[0]
    assert own.value == pytest.approx(2 / 10)
    assert own.coverage == Coverage(1, 5, 2, 2 + 3 + 3 + 1 + 4)
    assert own.left_out == {"device events without a launch": 3, "that begin before their call": 1}


def test_a_queue_is_no_longer_than_what_is_in_it_at_once() -> None:
    """One ends as the next begins; what takes no time, and what lies between windows, is never in it."""
    rows = [*work((0, 1, 2, 5), (5, 6, 6, 9), (7, 8, 7, 7), (11, 12, 13, 18)), call(12, 13, 5)]
    rows += [compute(13, 18, correlation=5, track=8)]
    found = whole("launch.queue_length", a_rank(rows, [window(0, 10, 1), window(20, 30, 2)]))
    assert (found[None], found["max"], found["empty"]) == pytest.approx((9 / 20, 1, 11 / 20))
    assert (found["stream 8", "max"], found["stream 8", "empty"]) == (0, 1)


def test_ranks_queues_count_by_their_windows() -> None:
    ranks = [a_rank(work((0, 1, 2, 10)), [window(0, end)], rank=rank) for rank, end in enumerate((10, 40))]
    shares = {None: 20 / 50, "empty": 30 / 50, "blocked": 0, "max": 1}
    of_stream = {("stream 7", stat) if stat else "stream 7": value for stat, value in shares.items()}
    assert run_parts("launch.queue_length", *ranks) == pytest.approx(shares | of_stream)


def test_a_stream_is_blocked_from_1024_launches_on() -> None:
    """Launched at 0, 1, ... 1,023, run one after another from 2,000: full from 1,023 to 2,001.

    Two streams of half that length each do not block, though together they hold as many.
    """

    def queue(first: int = 0, streams: int = 1) -> dict[Any, Any]:
        rows = [call(n, n + 1, n) for n in range(first, 1024)]
        rows += [
            compute(2000 + n, 2001 + n, correlation=n, track=7 + n % streams) for n in range(first, 1024)
        ]
        return whole("launch.queue_length", a_rank(rows, [window(0, 4000)], rows_a_batch=1000))

    found = queue()
    assert found["max"] == 1024
    assert found["blocked"] == found["stream 7", "blocked"] == pytest.approx(978 / 4000)
    assert queue(first=1)["blocked"] == 0
    two = queue(streams=2)
    assert (two["max"], two["blocked"]) == (1024, 0)


def test_streams_of_several_devices_are_named_with_theirs() -> None:
    rows = work((0, 1, 5, 6), (1, 2, 5, 9))
    rows[3]["device"] = 1
    found = whole("launch.queue_length", a_rank(rows, [window(0, 10)]))
    assert (found["device 0 stream 7"], found["device 1 stream 7"]) == pytest.approx((0.6, 0.8))


def test_ranks_count_as_many_times_as_they_launch() -> None:
    """A call of 10 ns on one rank, three of 2, 2 and 5 ns on the other."""
    one = rank_of_100_ns((0, 10, 20, 21))
    other = rank_of_100_ns((0, 2, 9, 12), (20, 22, 29, 32), (40, 45, 49, 52), rank=1)
    run = {row["stat"]: row for row in rows_of("launch.call_time", one, other) if row["rank"] is None}
    assert run[None]["value"] == pytest.approx(19 / 4 * NS)
    assert run["p50"]["value"] == pytest.approx((10 + 3 * 2) / 4 * NS)
    assert run["max"]["value"] == pytest.approx(10 * NS)
    assert run["p95"]["status"] == "not_applicable"
    assert run["p95"]["reason"].startswith("a 95th percentile needs 20 values")
    assert run_parts("launch.short_kernels", one, other)[None] == pytest.approx(2 / 4)


def test_kernel_times_by_category() -> None:
    """Of 30, 6, 4, 5, 1 and 5 ns."""
    times = in_ns(whole("compute.kernel_time"))
    own = {about: ns for about, ns in times.items() if "p95" not in (about or ())}
    assert own == pytest.approx(
        {None: 5, "max": 30, "gemm": 17.5, ("gemm", "max"): 30, "elementwise": 5, ("elementwise", "max"): 6}
        | {"communication": 1, ("communication", "max"): 1}
    )
    twenty = a_rank([compute(100 * n, 100 * n + 10 + n) for n in range(20)], [window(0, 3000)])
    assert whole("compute.kernel_time", twenty)["p95"] == pytest.approx(28.05 * NS)


METRICS = ("call_time", "delay", "short_kernels", "queue_length")


@pytest.mark.parametrize("metric", [*(f"launch.{name}" for name in METRICS), "compute.launch_bound_share"])
def test_without_launches_or_without_a_device_there_is_a_reason(metric: str) -> None:
    unlinked = a_rank([compute(0, 4), call(0, 1, 3)], [window(0, 10)])
    assert reason(unlinked, metric).startswith("no launch in the trace is linked to")
    on_cpu = a_rank([event("op", 0, 4, name="aten::mm")], [window(0, 10)], works_on="host")
    assert reason(on_cpu, metric) == "the CPU is the device: it has no launches"
    host_alone = a_rank([call(0, 1, 3)], [window(0, 10)], works_on=None)
    assert reason(host_alone, metric) == "the trace has only host events, none of the accelerator"
