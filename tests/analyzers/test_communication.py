# SPDX-License-Identifier: Apache-2.0
"""Communication, overlap and balance: hand-made ranks whose answers can be worked out on paper."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
from helpers.hand_made import Evidence, a_rank, collective, comm, compute, event, job_values, window
from helpers.hand_values import in_ns, main, parts, reason, rows_of, run_parts, told, values
from hypothesis import given
from hypothesis import strategies as st

from cclbench.analyzers.metric import Coverage, Value
from cclbench.analyzers.view.blurred import INVISIBLE
from cclbench.analyzers.view.rank_view import RankView
from cclbench.replay.stragglers import StragglerSlowdown

NS = 1e-9


def by(rank: RankView, metric: str) -> dict[Any, float]:
    """The rank's values that span all steps, by kind, group and dimension."""
    found = values(rank, metric)
    assert all(v.has_value for v in found)
    return told(v for v in found if v.step is None)


def test_communication_time_is_a_union_and_its_fraction_is_of_kernel_time() -> None:
    rows = [comm(0, 30), comm(10, 40, track=21), comm(10, 40, track=22, device=1), compute(30, 60)]
    rank = a_rank(rows, [window(0, 50, 1), window(50, 100, 2)])
    assert in_ns(parts(rank, "comm.time")) == pytest.approx({None: 20, 1: 40, 2: 0})
    assert main(rank, "comm.fraction") == pytest.approx(40 / 60)


def test_no_communication_is_a_time_of_zero_and_no_overlap() -> None:
    rank = a_rank([compute(0, 10)], [window(0, 20)])
    assert [main(rank, f"comm.{name}") for name in ("time", "count", "volume")] == [0, 0, 0]
    assert reason(rank, "overlap.ratio") == "there is no communication in the window"
    assert "no communication" in reason(rank, "overlap.exposed_by")
    assert reason(rank, "comm.busbw") == "there are no collectives in the window"


OF_FOUR = {"group": "0-3", "group_size": 4, "dimension": "dp"}
OF_TWO = {"group": "0,2", "group_size": 2, "dimension": "tp"}

CALLS = [
    collective("all_reduce", 0, 100, in_bytes=1000, out_bytes=1000, **OF_FOUR),
    collective("all_reduce", 100, 400, in_bytes=5000, out_bytes=5000, **OF_FOUR),
    collective("all_gather", 400, 500, in_bytes=1000, out_bytes=4000, **OF_FOUR),
    collective("reduce_scatter", 500, 600, in_bytes=3000, out_bytes=1500, **OF_TWO),
    collective("send", 600, 650, in_bytes=2000, **OF_TWO),
    collective("all_reduce", 700, 710, in_bytes=64, out_bytes=64, group="0", group_size=1),
    collective("all_reduce", 710, 720, **OF_FOUR),
    collective("barrier", 720, 730, **OF_FOUR),
    collective("all_reduce", 1000, 1100, in_bytes=1000, out_bytes=1000, **OF_FOUR),
]


def talk(*calls: dict[str, Any], windows: Sequence[Any] = (window(0, 400),), rank: int = 0) -> RankView:
    """A rank that communicates for its calls alone."""
    return a_rank([comm(c["start_ns"], c["end_ns"]) for c in calls], windows, calls, rank=rank)


def a_talk() -> RankView:
    return talk(*CALLS, windows=[window(0, 500, 1), window(500, 900, 2)])


def test_count_by_kind_group_and_dimension() -> None:
    of_kinds = {"all_gather": 0.5, "all_reduce": 2, "barrier": 0.5, "reduce_scatter": 0.5, "send": 0.5}
    of_groups = dict.fromkeys([("all_gather", "0-3"), ("all_reduce", "0"), ("barrier", "0-3")], 0.5)
    of_groups |= {("all_reduce", "0-3"): 1.5, ("reduce_scatter", "0,2"): 0.5, ("send", "0,2"): 0.5}
    assert by(a_talk(), "comm.count") == {None: 4, **of_kinds, **of_groups, "dp": 2.5, "tp": 1}
    assert values(a_talk(), "comm.count")[0].reason == "1 are in groups of one rank, which move nothing"


def test_volume_takes_the_large_side() -> None:
    found = by(a_talk(), "comm.volume")
    assert found[None] == (1000 + 5000 + 4000 + 3000 + 2000 + 64) / 2
    assert (found["all_gather"], found["reduce_scatter", "0,2"]) == (4000 / 2, 3000 / 2)
    assert found["tp"] == (3000 + 2000) / 2
    whole = values(a_talk(), "comm.volume")
    # The all_reduce at 710 states no bytes; it takes 10 of the 670 ns of all but the barrier.
    assert (whole[0].status, whole[0].words) == ("partial", "left out: 1 of unknown bytes")
    assert whole[0].coverage == Coverage(6, 7, 660, 670)
    assert {v.step: v.value for v in whole if v.key[1:] == (None,) * 4} == {None: 7532, 1: 10000, 2: 5064}


def test_one_side_of_an_uneven_collective_is_not_its_payload() -> None:
    """And adds nothing beside two."""
    rank = talk(collective("all_gather", 0, 10, in_bytes=1000, **OF_FOUR))
    assert reason(rank, "comm.volume") == "none of the 1 collectives in the window states its payload"
    both = collective("all_gather", 0, 10, in_bytes=1000, out_bytes=4000, **OF_FOUR)
    rank = talk(both, collective("all_gather", 20, 30, in_bytes=7000, **OF_FOUR))
    found = by(rank, "comm.volume")
    assert {found[None], found["all_gather", "0-3"]} == {4000}
    assert values(rank, "comm.volume")[0].coverage == Coverage(1, 2, 10, 20)


def test_bandwidth_is_payload_over_duration_in_bytes_per_second() -> None:
    algorithm, bus = by(a_talk(), "comm.algbw"), by(a_talk(), "comm.busbw")
    assert (algorithm["all_reduce"], algorithm[None]) == pytest.approx((6000 / 400e-9, 15000 / 650e-9))
    expected = {"all_reduce": 6000 * 1.5 / 400e-9, ("all_gather", "0-3"): 4000 * 0.75 / 100e-9}
    expected |= {("reduce_scatter", "0,2"): 3000 * 0.5 / 100e-9, "send": 2000 / 50e-9}
    expected |= {None: (9000 + 3000 + 1500 + 2000) / 650e-9}
    assert {about: bus[about] for about in expected} == pytest.approx(expected)
    # Ranks' bandwidths merge as bytes over time.
    ranks = [talk(collective("all_reduce", 0, ns, in_bytes=1000, **OF_TWO), rank=ns) for ns in (300, 100)]
    assert rows_of("comm.busbw", *ranks)[0]["value"] == pytest.approx(2000 / 400e-9)


def test_bandwidth_says_what_its_time_is_and_what_it_leaves_out() -> None:
    why = values(a_talk(), "comm.busbw")[0].words
    assert "includes waiting for other ranks" in why
    assert why.endswith("left out: 1 of unknown kind, payload or duration, 1 in groups of one")
    alone = talk(collective("all_reduce", 0, 9, in_bytes=9, group_size=1))
    assert "1 in groups of one" in reason(alone, "comm.busbw")


def test_overlap_merges_neither_devices_nor_host_threads_into_the_ratio() -> None:
    rows = [compute(0, 50), comm(40, 80), event("op", 0, 100, track=1)]
    rank = a_rank([*rows, event("annotation", 0, 100, side="device")], [window(0, 100)])
    assert main(rank, "overlap.ratio") == pytest.approx(0.25)
    assert main(rank, "overlap.efficiency") == pytest.approx(10 / 40)
    shorter_compute = a_rank([compute(0, 20), comm(10, 80)], [window(0, 100)])
    assert main(shorter_compute, "overlap.efficiency") == pytest.approx(10 / 20)
    # Of what each step could hide: step 1 hides 10 of at most 20, step 2 none of 5, though all is 10 of 35.
    rows = [compute(0, 40), comm(30, 50), compute(60, 65), comm(70, 85)]
    rank = a_rank(rows, [window(0, 60, 1), window(60, 100, 2)])
    assert parts(rank, "overlap.efficiency") == pytest.approx({None: 10 / 25, 1: 0.5, 2: 0})
    assert parts(rank, "overlap.ratio") == pytest.approx({None: 10 / 35, 1: 0.5, 2: 0})
    assert parts(rank, "comm.fraction") == pytest.approx({None: 35 / 70, 1: 20 / 50, 2: 15 / 20})


def test_exposed_time_goes_to_what_runs_in_equal_parts() -> None:
    """Exposed: 10-20 one; 20-26 three; 26-30 two; 30-50 one; 60-70 and 80-85 unknown."""
    calls = [collective("all_reduce", 0, 30, **OF_FOUR), collective("all_gather", 20, 50, **OF_TWO)]
    calls += [collective("all_gather", 20, 26, **OF_FOUR), collective(None, 60, 70)]
    kernels = [comm(c["start_ns"], c["end_ns"], track=20 + n) for n, c in enumerate(calls)]
    rank = a_rank([*kernels, compute(0, 10), comm(80, 85)], [window(0, 100)], calls)
    found = by(rank, "overlap.exposed_by")
    groups = {("all_reduce", "0-3"): 14, ("all_gather", "0,2"): 24, ("all_gather", "0-3"): 2}
    kinds = {"all_reduce": 14, "all_gather": 26, "unknown": 15}
    assert in_ns(found) == pytest.approx({None: 55, **kinds, **groups, "dp": 16, "tp": 24})
    assert found[None] == main(rank, "time.exposed_comm")
    # Within collectives no part is unknown.
    calls = [collective("all_reduce", 0, 30, **OF_FOUR), collective("all_gather", 30, 50, **OF_TWO)]
    found = in_ns(by(talk(*calls, windows=[window(0, 40, 1), window(40, 80, 2)]), "overlap.exposed_by"))
    assert (found[None], found["all_reduce"], found["all_gather"]) == pytest.approx((25, 15, 10))
    assert "unknown" not in found


def test_ranks_shares_of_communication_count_by_their_time() -> None:
    """10 of 20 ns hidden on one rank, 10 of 60 on the other; kernels run for 50 and for 100 ns."""
    ranks = [
        a_rank([compute(0, busy), comm(busy - 10, end)], [window(0, 200)], rank=n)
        for n, (busy, end) in enumerate(((40, 50), (50, 100)))
    ]
    expected = {"overlap.ratio": 20 / 80, "overlap.efficiency": 20 / (20 + 50), "comm.fraction": 80 / 150}
    assert {name: run_parts(name, *ranks)[None] for name in expected} == pytest.approx(expected)


spans = st.tuples(
    st.integers(0, 20), st.integers(1, 9), st.sampled_from(["all_reduce", "all_gather", "send"])
)


@given(st.lists(spans, min_size=1, max_size=6), st.lists(spans, max_size=3))
def test_exposed_time_equals_a_count_of_nanoseconds(talks: list, works: list) -> None:
    calls = [collective(kind, start, start + length) for start, length, kind in talks]
    rows = [comm(c["start_ns"], c["end_ns"], track=20 + n) for n, c in enumerate(calls)]
    rows += [compute(start, start + length) for start, length, _ in works]
    expected: dict[str, Fraction] = {}
    for t in range(3, 25):
        running = [kind for start, length, kind in talks if start <= t < start + length]
        if not any(start <= t < start + length for start, length, _ in works):
            for kind in running:
                expected[kind] = expected.get(kind, Fraction(0)) + Fraction(1, len(running))
    found = by(a_rank(rows, [window(3, 25)], calls), "overlap.exposed_by")
    for kind in {kind for _, _, kind in talks}:
        assert found[kind] == float(expected.get(kind, Fraction(0)) / 10**9)
    assert "unknown" not in found


RESTING = ("overlap.ratio", "overlap.efficiency", "overlap.exposed_by", "comm.time", "comm.fraction")


def strange(start: int, end: int, category: str | None = "other") -> dict:
    return event("kernel", start, end, category=category, name="who knows", track=9)


def test_more_than_a_tenth_of_unknown_kernels_makes_overlap_partial() -> None:
    rank = a_rank([compute(0, 60), comm(40, 70), strange(70, 90)], [window(0, 100, 1)])
    for metric in RESTING:
        first = values(rank, metric)[0]
        assert (first.status, first.coverage) == ("partial", Coverage(2, 3, 90, 110)), metric
        assert first.reason == "18.2 % of the kernels' time is of unknown category and counts as compute"
    assert main(rank, "overlap.ratio", "partial") == pytest.approx(20 / 30)
    assert main(rank, "time.exposed_comm", "partial") == pytest.approx(10 * NS)
    assert main(rank, "time.step") == pytest.approx(100 * NS)
    # Up to a tenth is no matter.
    rank = a_rank([compute(0, 60), comm(40, 70), strange(70, 80)], [window(0, 100, 1)])
    assert {values(rank, metric)[0].status for metric in RESTING} == {"ok"}


def test_without_known_communication_there_may_be_some() -> None:
    rank = a_rank([compute(0, 60), strange(60, 90)], [window(0, 100, 1)])
    unknown = "33.3 % of the kernels' time is of unknown category and counts as compute"
    assert reason(rank, "overlap.ratio") == f"no communication is known in the window: {unknown}"
    assert reason(rank, "overlap.exposed_by") == f"no communication is known: {unknown}"
    assert main(rank, "comm.time", "partial") == 0
    # A cpu has operators.
    rank = a_rank([event("op", 0, 10, name="aten::mm", category="other")], [window(0, 20)], works_on="host")
    assert main(rank, "comm.time") == 0


def test_a_fused_kernel_is_in_neither_exactly() -> None:
    rank = a_rank([compute(0, 60), comm(40, 70), strange(70, 71, "fused")], [window(0, 100, 1)])
    first = values(rank, "overlap.ratio")[0]
    assert (first.status, first.coverage) == ("partial", Coverage(2, 3, 90, 91))
    assert first.reason.startswith("1.00 ns of kernels that compute and communicate at once")
    assert main(rank, "time.compute_only", "partial") == pytest.approx(41 * NS)


def test_of_a_window_only_the_kernels_that_begin_in_it_count() -> None:
    """Of 100 ns of kernels 12 are of no category, 7 fused; what begins before or after does not count."""
    rows = [compute(0, 8), strange(90, 500), strange(110, 115), compute(120, 190), strange(130, 137, None)]
    rows += [strange(140, 147, "fused"), comm(150, 161), strange(205, 999)]
    one = a_rank(rows, [window(100, 200, 1)]).blurred
    fused = f"7.00 ns of kernels that compute and communicate at once count as compute: {INVISIBLE}"
    unknown = "12.0 % of the kernels' time is of unknown category and counts as compute"
    assert (one.coverage, one.reason) == (Coverage(2, 5, 81, 100), f"{fused}; {unknown}")
    # Unknown kernels that do not matter are known beside fused ones.
    rows = [compute(0, 90), strange(90, 95), strange(95, 99, "fused"), strange(95, 98, "fused")]
    one = a_rank(rows, [window(0, 100, 1)]).blurred
    assert (one.coverage, one.reason) == (Coverage(2, 4, 95, 102), fused)


LOAD, DELAY, SLOWDOWN = (
    f"balance.{name}" for name in ("load_imbalance", "straggler_delay", "straggler_slowdown")
)


def test_the_busiest_rank_is_compared_with_the_mean_over_steps() -> None:
    """80 ns of compute in four steps, 20 of them beside communication; 60 in two: 20 and 30 a step."""
    first = a_rank([compute(0, 80), comm(60, 90)], [window(25 * n, 25 * n + 25, n) for n in range(4)], rank=0)
    second = a_rank([compute(0, 60)], [window(0, 50, 0), window(50, 100, 1)], rank=1)
    (row,) = rows_of(LOAD, first, second)
    assert row["value"] == pytest.approx(30 / 25)
    assert (row["reason"], row["status"]) == ("over 2 ranks", "ok")


def test_balance_takes_two_ranks_that_compute_and_is_partial_without_the_worlds_others() -> None:
    one, idle = a_rank([compute(0, 10)], [window(0, 50)]), a_rank([comm(0, 10)], [window(0, 50)], rank=1)
    assert rows_of(LOAD, one)[0]["reason"] == "needs at least two ranks"
    idle_too = a_rank([comm(0, 10)], [window(0, 50)], rank=2)
    assert rows_of(LOAD, idle, idle_too)[0]["reason"] == "no rank computes in the window"
    assert rows_of(LOAD, one, idle)[0]["value"] == 2
    # Ranks of the world without a trace leave the balance partial.
    ranks = [
        a_rank([compute(0, 10)], [window(0, 50)], rank=n, world_size=size) for n, size in enumerate((None, 8))
    ]
    (row,) = rows_of(LOAD, *ranks)
    assert (row["value"], row["status"], row["coverage"]) == (1, "partial", 2 / 8)


def late(*instances: tuple[int, ...], windows: tuple[int, ...]) -> list[RankView]:
    """Ranks that arrive at each instance so late, in windows of those lengths."""

    def met(rank: int, instance: int, own: tuple[int, ...]) -> dict[str, Any]:
        at, last = 100 * instance + own[rank], 100 * instance + max(own)
        group = {"group": f"0-{len(own) - 1}", "group_size": len(own), "rank": rank, "instance": instance}
        return collective("all_reduce", at, last + 10, arrival_ns=at, wait_ns=last - at, **group)

    return [
        a_rank(
            [compute(0, 5)],
            [window(0, length)],
            [met(rank, n, own) for n, own in enumerate(instances)],
            rank=rank,
        )
        for rank, length in enumerate(windows)
    ]


def test_the_delay_is_what_ranks_wait_after_the_median_one() -> None:
    """Medians 15 and 0: the ranks wait 0 + 9, 35 + 0, 35 + 9 and 30 + 9, each of its own window."""
    rows = rows_of(DELAY, *late((50, 0, 10, 20), (0, 9, 0, 0), windows=(400, 400, 400, 800)))
    assert rows[0]["value"] == pytest.approx((9 / 400 + 35 / 400 + 44 / 400 + 39 / 800) / 4)
    assert rows[0]["reason"] == "over 4 ranks"
    three = rows_of(DELAY, *late((50, 0, 10), windows=(200, 200, 200)))
    assert three[0]["value"] == pytest.approx((0 + 40 + 40) / 200 / 3)


def slowed(found: StragglerSlowdown | None, ranks: int = 2) -> list[Value]:
    told = None if found is None else lambda: found
    return job_values(SLOWDOWN, Evidence(), ranks=range(ranks), slowdown=told)


FOUND = StragglerSlowdown(
    job=1.25, bounds=(1.25, 1.5), step_ns=5e6, ideal_ns=4e6, causes={"compute": 1.2, "copy": 1.0},
    operators={"gemm": 1.15}, ranks={0: 1.0, 1: 1.25}, places={("pp", 1): 1.1}, roles=3, transfers=6,
    all_transfers=8,
)  # fmt: skip


def test_a_job_without_stragglers_by_cause_place_and_rank() -> None:
    found = slowed(FOUND)
    bounds = [(1.25, None, None), (1.25, None, None), (1.5, None, None)]
    causes = [(1.2, "compute"), (1.0, "copy"), (1.15, "operator gemm"), (1.1, "pp 1")]
    expected = [*bounds, *((value, cause, None) for value, cause in causes), (1.0, None, 0), (1.25, None, 1)]
    assert [(v.value, v.category, v.rank) for v in found] == expected
    assert {v.provenance for v in found} == {"modelled"}
    assert [v.stat for v in found[:4]] == [None, "low", "high", None]
    assert (found[0].coverage, found[0].status) == (Coverage(6, 8), "partial")
    assert found[0].reason == "5.00 ms a step, and 4.00 ms without stragglers, both replayed"
    (only,) = slowed(None)
    assert only.reason == "a step without stragglers is modelled, and models are disabled"


def test_launch_delays_that_decide_make_it_partial() -> None:
    whole = FOUND._replace(transfers=8)
    assert slowed(whole)[0].status == "ok"
    row = slowed(whole._replace(bounds=(1.0, 1.25)))[0]
    assert (row.status, row.value) == ("ok", 1.25)
    row = slowed(whole._replace(bounds=(0.9, 1.25)))[0]
    assert row.status == "partial"
    assert (row.reason or "").endswith("; without launch delays it is 0.9×")
    # A job of which some ranks are shown says which.
    reason = slowed(FOUND, ranks=5)[0].reason or ""
    assert reason.endswith("; by rank only for the 2 of 5 with the most excess time")
