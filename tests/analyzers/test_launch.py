# SPDX-License-Identifier: Apache-2.0
"""Launches: hand-made ranks whose answers can be worked out on paper."""

from __future__ import annotations

import pytest
from helpers.hand_made import a_rank, comm, compute, event, main, reason, rows_of, values, window

from cclbench.analyzers.metric import Coverage
from cclbench.analyzers.view.rank_view import RankView

NS = 1e-9


def call(start: int, end: int, correlation: int) -> dict[str, object]:
    """A call that launches what has that correlation."""
    return event("launch", start, end, correlation=correlation)


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


def whole(metric: str, view: RankView | None = None) -> dict[tuple[str | None, str | None], float | None]:
    """The values of a rank by category and statistic, those of steps aside."""
    found = values(view or a_step(), metric)
    return {(v.category, v.stat): v.value for v in found if v.step is None}


def test_a_call_takes_its_own_duration_and_a_graph_is_one() -> None:
    """Four calls launched kernels: 4, 10, 10 and 2 ns."""
    stats = {(None, None): 6.5, (None, "p50"): 7, (None, "max"): 10}
    found = whole("launch.call_time")
    assert found.pop((None, "p95")) is None
    assert found == pytest.approx({key: ns * NS for key, ns in stats.items()})
    (of_step,) = (v for v in values(a_step(), "launch.call_time") if v.step is not None)
    assert (of_step.step, of_step.value) == (4, pytest.approx(6.5 * NS))


def test_the_delay_is_from_the_calls_begin_to_its_first_kernel() -> None:
    """10, 35, 26 and 10 ns; from the calls' ends on 6, 25, 16 and 8."""
    stats = {(None, None): 20.25, (None, "p50"): 18, (None, "max"): 35, (None, "after_call"): 13.75}
    found = whole("launch.delay")
    assert found.pop((None, "p95")) is None
    assert found == pytest.approx({key: ns * NS for key, ns in stats.items()})


def test_a_kernel_that_begins_before_its_call_is_left_out_of_the_delay_and_counted() -> None:
    rows = [call(0, 1, 1), call(30, 31, 2), compute(5, 8, correlation=1), compute(29, 32, correlation=2)]
    rank = a_rank(rows, [window(0, 100)])
    first = values(rank, "launch.delay")[0]
    assert first.value == pytest.approx(5 * NS)
    assert first.words == "left out: 1 calls that begin after their kernel"
    assert main(rank, "launch.call_time") == pytest.approx(1 * NS)
    queue = values(rank, "launch.queue_length")[0]
    assert (queue.value, queue.status) == (pytest.approx(8 / 100), "partial")
    assert queue.words == "left out: 1 that begin before their call"
    only = a_rank([call(30, 31, 2), compute(29, 32, correlation=2)], [window(0, 100)])
    assert "no launch in the window is usable" in reason(only, "launch.delay")


def test_a_kernel_that_begins_with_its_call_waited_for_nothing() -> None:
    rows = [call(10, 14, 1), call(20, 22, 2), compute(10, 12, correlation=1), compute(28, 30, correlation=2)]
    rank = a_rank([*rows, compute(40, 50)], [window(0, 25, 1), window(25, 100, 2)])
    own = values(rank, "launch.delay")
    assert {v.step: v.value for v in own if v.stat is None} == pytest.approx({None: 4 * NS, 1: 0, 2: 8 * NS})
    assert (own[0].coverage, own[0].words) == (Coverage(2, 3, 4, 14), "left out: 1 kernels without a launch")
    assert whole("launch.delay", rank)[None, "after_call"] == pytest.approx((-4 + 6) / 2 * NS)


def test_ranks_delays_count_call_by_call() -> None:
    one = a_rank([call(0, 1, 1), compute(10, 11, correlation=1)], [window(0, 100)])
    rows = [
        row
        for n in range(3)
        for row in (call(9 * n, 9 * n + 2, n), compute(9 * n + 4, 9 * n + 5, correlation=n))
    ]
    other = a_rank(rows, [window(0, 100)], rank=1)
    run = {row["stat"]: row["value"] for row in rows_of("launch.delay", one, other) if row["rank"] is None}
    assert run[None] == pytest.approx((10 + 3 * 4) / 4 * NS)
    assert run["after_call"] == pytest.approx((9 + 3 * 2) / 4 * NS)


def test_a_rank_whose_launches_are_unusable_makes_the_runs_delay_partial() -> None:
    late = a_rank([call(30, 31, 2), compute(29, 32, correlation=2)], [window(0, 100)])
    good = a_rank([call(0, 1, 1), compute(10, 13, correlation=1)], [window(0, 100)], rank=1)
    run = rows_of("launch.delay", late, good)[0]
    assert (run["value"], run["status"]) == (pytest.approx(10 * NS), "partial")
    assert (run["coverage"], run["coverage_time"]) == (1 / 2, 3 / 6)


def test_what_begins_outside_the_windows_is_no_kernel_of_them() -> None:
    rows = [
        *(call(0, 8, 1), call(20, 28, 2), call(40, 48, 3)),
        compute(10, 12, correlation=1),
        compute(30, 32, correlation=2),
        compute(50, 70, correlation=3),
    ]
    rank = a_rank(rows, [window(25, 60, 1)])
    assert main(rank, "launch.short_kernels") == 1 / 2
    assert main(rank, "launch.call_time") == pytest.approx(8 * NS)
    assert main(rank, "compute.launch_bound_share") == pytest.approx(2 / 12)


def test_ranks_shares_of_launch_bound_work_count_by_kernels_and_by_time() -> None:
    """On one rank 2 of 2 ns are short; on the other of four kernels three of 1 ns, beside 27."""
    one = a_rank([call(0, 5, 1), compute(10, 12, correlation=1)], [window(0, 100)])
    rows = [
        row
        for n in range(3)
        for row in (call(9 * n, 9 * n + 5, n), compute(9 * n + 6, 9 * n + 7, correlation=n))
    ]
    other = a_rank([*rows, call(40, 45, 9), compute(50, 77, correlation=9)], [window(0, 100)], rank=1)
    runs = {
        name: rows_of(name, one, other)[0]["value"]
        for name in ("launch.short_kernels", "compute.launch_bound_share")
    }
    assert runs == pytest.approx({"launch.short_kernels": 4 / 5, "compute.launch_bound_share": 5 / 32})


def test_a_graphs_kernels_are_short_where_together_they_take_less_than_its_launch() -> None:
    """Of five kernels with a launch record four are: 6 < 10, 4 + 5 < 10, 1 < 2."""
    first = values(a_step(), "launch.short_kernels")[0]
    assert (first.value, first.status) == (pytest.approx(0.8), "partial")
    assert (first.coverage.rows, first.coverage.all_rows) == (5, 6)
    assert first.words == "left out: 1 kernels without a launch"
    longer = [*ROWS[:5], *ROWS[6:9], compute(50, 57, correlation=3)]
    assert main(a_rank(longer, [window(0, 100)]), "launch.short_kernels") == pytest.approx(1 / 4)


def test_a_kernel_as_long_as_its_call_is_not_short() -> None:
    rows = [call(0, 10, 1), compute(20, 30, correlation=1)]
    assert main(a_rank(rows, [window(0, 100)]), "launch.short_kernels") == 0


def test_the_launch_bound_share_is_of_compute_time_without_communication() -> None:
    """Of C, 10-55 and 85-90, the stretch 40-55."""
    assert main(a_step(), "compute.launch_bound_share", "partial") == pytest.approx(15 / 50)


def test_compute_beside_communication_is_compute_time() -> None:
    """Of 40 ns, 30 of them beside communication, 10 are of a kernel shorter than its call."""
    rows = [call(0, 20, 1), compute(30, 40, correlation=1), compute(40, 70), comm(40, 80)]
    assert main(a_rank(rows, [window(0, 100)]), "compute.launch_bound_share", "partial") == pytest.approx(
        10 / 40
    )


def test_kernels_that_a_windows_edge_cuts_count_with_what_lies_inside() -> None:
    rank = a_rank(ROWS, [window(0, 43, 1), window(43, 100, 2)])
    of_steps = {v.step: v.value for v in values(rank, "compute.launch_bound_share")}
    assert of_steps == pytest.approx({None: 15 / 50, 1: 3 / 33, 2: 12 / 17})
    short = {v.step: v.value for v in values(rank, "launch.short_kernels")}
    assert short == pytest.approx({None: 4 / 5, 1: 1 / 2, 2: 1})
    calls = {v.step: v.value for v in values(rank, "launch.call_time") if v.stat is None}
    assert calls == pytest.approx({None: 6.5 * NS, 1: 7 * NS, 2: 6 * NS})


def test_a_queue_holds_what_is_launched_until_it_ends() -> None:
    """Stream 7: [0,40), [5,46), [20,50) and [20,55); stream 20: [50,61); the copy's: [62,80)."""
    rank = a_step()
    assert whole("launch.queue_length", rank) == pytest.approx(
        {
            (None, None): 1.75,
            (None, "max"): 4,
            (None, "empty"): 0.21,
            (None, "blocked"): 0,
            ("stream 7", None): 1.46,
            ("stream 7", "max"): 4,
            ("stream 7", "empty"): 0.45,
            ("stream 7", "blocked"): 0,
            ("stream 20", None): 0.11,
            ("stream 20", "max"): 1,
            ("stream 20", "empty"): 0.89,
            ("stream 20", "blocked"): 0,
            ("stream 3", None): 0.18,
            ("stream 3", "max"): 1,
            ("stream 3", "empty"): 0.82,
            ("stream 3", "blocked"): 0,
        }
    )
    units = {v.stat: v.unit for v in values(rank, "launch.queue_length")}
    assert units == {None: None, "max": None, "empty": "1", "blocked": "1"}


def test_what_was_launched_before_a_window_waits_in_it_and_what_lies_between_windows_does_not_count() -> None:
    rows = [call(0, 1, 1), compute(15, 60, correlation=1)]
    rank = a_rank(rows, [window(10, 20, 1), window(30, 40, 2), window(50, 80, 3)])
    found = {(v.step, v.stat): v.value for v in values(rank, "launch.queue_length") if v.category is None}
    assert found == pytest.approx(
        {
            (None, None): 30 / 50,
            (1, None): 1,
            (2, None): 1,
            (3, None): 10 / 30,
            (None, "max"): 1,
            (None, "empty"): 20 / 50,
            (None, "blocked"): 0,
        }
    )


def test_only_what_waits_or_runs_in_the_windows_is_left_out_of_the_queue() -> None:
    """Windows from 10 to 20: of five kernels without a call two touch them only."""
    rows = [
        call(12, 13, 1),
        compute(12, 14, correlation=1),
        compute(5, 10, track=3),
        compute(20, 25, track=3),
        compute(8, 11, track=4),
        compute(19, 22, track=4),
        compute(15, 16, track=5),
        call(16, 17, 2),
        compute(15, 19, correlation=2, track=6),
    ]
    own = values(a_rank(rows, [window(10, 15, 1), window(15, 20, 2)]), "launch.queue_length")[0]
    assert own.value == pytest.approx(2 / 10)
    assert own.coverage == Coverage(1, 5, 2, 2 + 3 + 3 + 1 + 4)
    assert own.left_out == {"device events without a launch": 3, "that begin before their call": 1}


def test_a_queue_is_no_longer_than_what_is_in_it_at_once() -> None:
    """One ends as the next begins; what takes no time, and what lies between windows, is never in it."""
    rows = [
        *(call(0, 1, 1), call(5, 6, 2), call(7, 8, 3), call(11, 12, 4), call(12, 13, 5)),
        compute(2, 5, correlation=1),
        compute(6, 9, correlation=2),
        compute(7, 7, correlation=3),
        compute(13, 18, correlation=4),
        compute(13, 18, correlation=5, track=8),
    ]
    rank = a_rank(rows, [window(0, 10, 1), window(20, 30, 2)])
    found = whole("launch.queue_length", rank)
    assert (found[None, None], found[None, "max"]) == (pytest.approx(9 / 20), 1)
    assert found[None, "empty"] == pytest.approx(11 / 20)
    assert (found["stream 8", "max"], found["stream 8", "empty"]) == (0, 1)


def test_ranks_queues_count_by_their_windows() -> None:
    ranks = [
        a_rank([call(0, 1, 1), compute(2, 10, correlation=1)], [window(0, length)], rank=rank)
        for rank, length in enumerate((10, 40))
    ]
    run = {
        (row["category"], row["stat"]): row["value"]
        for row in rows_of("launch.queue_length", *ranks)
        if row["rank"] is None
    }
    shares = {None: 20 / 50, "empty": 30 / 50, "blocked": 0, "max": 1}
    assert run == pytest.approx(
        {(of, stat): value for of in (None, "stream 7") for stat, value in shares.items()}
    )


def test_a_stream_is_blocked_from_1024_launches_on() -> None:
    """Launched at 0, 1, ... 1,023, run one after another from 2,000: full from 1,023 to 2,001."""
    calls = [call(n, n + 1, n) for n in range(1024)]
    kernels = [compute(2000 + n, 2001 + n, correlation=n) for n in range(1024)]
    rank = a_rank([*calls, *kernels], [window(0, 4000)], rows_a_batch=1000)
    found = whole("launch.queue_length", rank)
    assert found[None, "max"] == 1024
    assert found[None, "blocked"] == found["stream 7", "blocked"] == pytest.approx(978 / 4000)
    rank = a_rank([*calls[1:], *kernels[1:]], [window(0, 4000)], rows_a_batch=1000)
    assert whole("launch.queue_length", rank)[None, "blocked"] == 0


def test_two_streams_that_are_full_together_block_no_longer_than_one() -> None:
    """Two of half that length each do not block, though together they hold as many."""
    calls = [call(n, n + 1, n) for n in range(1024)]
    kernels = [compute(2000 + n, 2001 + n, correlation=n, track=7 + n % 2) for n in range(1024)]
    rank = a_rank([*calls, *kernels], [window(0, 4000)], rows_a_batch=1000)
    found = whole("launch.queue_length", rank)
    assert (found[None, "max"], found[None, "blocked"]) == (1024, 0)


def test_streams_of_several_devices_are_named_with_theirs() -> None:
    rows = [
        call(0, 1, 1),
        call(1, 2, 2),
        compute(5, 6, correlation=1),
        compute(5, 9, correlation=2, device=1),
    ]
    found = whole("launch.queue_length", a_rank(rows, [window(0, 10)]))
    assert found["device 0 stream 7", None] == pytest.approx(0.6)
    assert found["device 1 stream 7", None] == pytest.approx(0.8)


def test_ranks_count_as_many_times_as_they_launch() -> None:
    """A call of 10 ns on one rank, three of 2, 2 and 5 ns on the other."""
    one = a_rank([call(0, 10, 1), compute(20, 21, correlation=1)], [window(0, 100)])
    durations = enumerate((2, 2, 5))
    rows = [
        row
        for n, ns in durations
        for row in (call(20 * n, 20 * n + ns, n), compute(20 * n + 9, 20 * n + 12, correlation=n))
    ]
    other = a_rank(rows, [window(0, 100)], rank=1)
    run = {row["stat"]: row for row in rows_of("launch.call_time", one, other) if row["rank"] is None}
    assert run[None]["value"] == pytest.approx(19 / 4 * NS)
    assert run["p50"]["value"] == pytest.approx((10 + 3 * 2) / 4 * NS)
    assert run["max"]["value"] == pytest.approx(10 * NS)
    assert run["p95"]["status"] == "not_applicable"
    assert run["p95"]["reason"].startswith("a 95th percentile needs 20 values")
    short = [row["value"] for row in rows_of("launch.short_kernels", one, other) if row["rank"] is None]
    assert short == [pytest.approx(2 / 4)]


def test_kernel_times_by_category() -> None:
    times = whole("compute.kernel_time")
    own = {key: value for key, value in times.items() if key[1] != "p95"}
    assert own == pytest.approx(
        {
            (None, None): 5 * NS,  # 30, 6, 4, 5, 1, 5
            (None, "max"): 30 * NS,
            ("gemm", None): 17.5 * NS,
            ("gemm", "max"): 30 * NS,
            ("elementwise", None): 5 * NS,
            ("elementwise", "max"): 6 * NS,
            ("communication", None): 1 * NS,
            ("communication", "max"): 1 * NS,
        }
    )
    twenty = a_rank([compute(100 * n, 100 * n + 10 + n) for n in range(20)], [window(0, 3000)])
    assert whole("compute.kernel_time", twenty)[None, "p95"] == pytest.approx(28.05 * NS)


METRICS = ("call_time", "delay", "short_kernels", "queue_length")


@pytest.mark.parametrize("metric", [*(f"launch.{name}" for name in METRICS), "compute.launch_bound_share"])
def test_without_launches_or_without_a_device_there_is_a_reason(metric: str) -> None:
    unlinked = a_rank([compute(0, 4), call(0, 1, 3)], [window(0, 10)])
    assert reason(unlinked, metric).startswith("no launch in the trace is linked to")
    on_cpu = a_rank([event("op", 0, 4, name="aten::mm")], [window(0, 10)], works_on="host")
    assert reason(on_cpu, metric) == "the CPU is the device: it has no launches"
    host_alone = a_rank([call(0, 1, 3)], [window(0, 10)], works_on=None)
    assert reason(host_alone, metric) == "the trace has only host events, none of the accelerator"


def test_a_rank_of_unknown_launches_makes_the_runs_figure_partial() -> None:
    linked = a_rank([call(0, 2, 1), compute(5, 9, correlation=1)], [window(0, 10)])
    unlinked = a_rank([compute(5, 9)], [window(0, 10)], rank=1)
    run = rows_of("launch.short_kernels", linked, unlinked)[0]
    assert (run["value"], run["status"], run["coverage"]) == (0, "partial", 0.5)
