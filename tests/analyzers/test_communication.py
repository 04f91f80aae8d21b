# SPDX-License-Identifier: Apache-2.0
"""Communication and overlap: hand-made ranks whose answers can be worked out on paper."""

from __future__ import annotations

from fractions import Fraction

import pytest
from helpers.hand_made import a_rank, collective, comm, compute, event, main, reason, rows_of, values, window
from hypothesis import given
from hypothesis import strategies as st

from cclbench.analyzers.metric import Coverage

NS = 1e-9


def by(rank: object, metric: str) -> dict:
    """(collective, group, category) → value of the rank's rows that span all steps."""
    found = values(rank, metric)
    assert all(v.has_value for v in found)
    return {(v.collective, v.group, v.category): v.value for v in found if v.step is None}


def test_communication_time_is_a_union_and_its_fraction_is_of_kernel_time() -> None:
    rows = [comm(0, 30), comm(10, 40, track=21), comm(10, 40, track=22, device=1), compute(30, 60)]
    rank = a_rank(rows, [window(0, 50, 1), window(50, 100, 2)])
    assert [v.value for v in values(rank, "comm.time")] == pytest.approx([20 * NS, 40 * NS, 0])
    assert main(rank, "comm.fraction") == pytest.approx(40 / 60)


def test_no_communication_is_a_time_of_zero_and_no_overlap() -> None:
    rank = a_rank([compute(0, 10)], [window(0, 20)])
    assert main(rank, "comm.time") == 0
    assert main(rank, "comm.count") == 0
    assert main(rank, "comm.volume") == 0
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


def a_talk() -> object:
    return a_rank(
        [comm(c["start_ns"], c["end_ns"]) for c in CALLS], [window(0, 500, 1), window(500, 900, 2)], CALLS
    )


def test_count_by_kind_group_and_dimension() -> None:
    assert by(a_talk(), "comm.count") == {
        (None, None, None): 4,
        ("all_gather", None, None): 0.5,
        ("all_gather", "0-3", None): 0.5,
        ("all_reduce", None, None): 2,
        ("all_reduce", "0", None): 0.5,
        ("all_reduce", "0-3", None): 1.5,
        ("barrier", None, None): 0.5,
        ("barrier", "0-3", None): 0.5,
        ("reduce_scatter", None, None): 0.5,
        ("reduce_scatter", "0,2", None): 0.5,
        ("send", None, None): 0.5,
        ("send", "0,2", None): 0.5,
        (None, None, "dp"): 2.5,
        (None, None, "tp"): 1,
    }
    assert values(a_talk(), "comm.count")[0].reason == "1 are in groups of one rank, which move nothing"


def test_volume_takes_the_large_side() -> None:
    found = by(a_talk(), "comm.volume")
    assert found[None, None, None] == (1000 + 5000 + 4000 + 3000 + 2000 + 64) / 2
    assert found["all_gather", None, None] == 4000 / 2
    assert found["reduce_scatter", "0,2", None] == 3000 / 2
    assert found[None, None, "tp"] == (3000 + 2000) / 2
    whole = values(a_talk(), "comm.volume")
    # The all_reduce at 710 states no bytes; it takes 10 of the 670 ns of all but the barrier.
    assert (whole[0].status, whole[0].words) == ("partial", "left out: 1 of unknown bytes")
    assert whole[0].coverage == Coverage(6, 7, 660, 670)
    assert {v.step: v.value for v in whole if v.key[1:] == (None,) * 4} == {None: 7532, 1: 10000, 2: 5064}


def test_one_side_of_an_uneven_collective_is_not_its_payload() -> None:
    calls = [collective("all_gather", 0, 10, in_bytes=1000, **OF_FOUR)]
    rank = a_rank([comm(0, 10)], [window(0, 10)], calls)
    assert reason(rank, "comm.volume") == "none of the 1 collectives in the window states its payload"


def test_one_side_adds_nothing_beside_two() -> None:
    """Of two all_gathers in one group one states both sides, 1000 and 4000 B."""
    both = collective("all_gather", 0, 10, in_bytes=1000, out_bytes=4000, **OF_FOUR)
    calls = [both, collective("all_gather", 20, 30, in_bytes=7000, **OF_FOUR)]
    rank = a_rank([comm(0, 10), comm(20, 30)], [window(0, 40)], calls)
    found = by(rank, "comm.volume")
    assert {found[None, None, None], found["all_gather", "0-3", None]} == {4000}
    assert values(rank, "comm.volume")[0].coverage == Coverage(1, 2, 10, 20)


def test_bandwidth_is_payload_over_duration_in_bytes_per_second() -> None:
    algorithm, bus = by(a_talk(), "comm.algbw"), by(a_talk(), "comm.busbw")
    assert algorithm["all_reduce", None, None] == pytest.approx(6000 / 400e-9)
    assert bus["all_reduce", None, None] == pytest.approx(6000 * 1.5 / 400e-9)
    assert bus["all_gather", "0-3", None] == pytest.approx(4000 * 0.75 / 100e-9)
    assert bus["reduce_scatter", "0,2", None] == pytest.approx(3000 * 0.5 / 100e-9)
    assert bus["send", None, None] == pytest.approx(2000 / 50e-9)
    assert algorithm[None, None, None] == pytest.approx(15000 / 650e-9)
    assert bus[None, None, None] == pytest.approx((9000 + 3000 + 1500 + 2000) / 650e-9)


def test_bandwidth_says_what_its_time_is_and_what_it_leaves_out() -> None:
    why = values(a_talk(), "comm.busbw")[0].words
    assert "includes waiting for other ranks" in why
    assert why.endswith("left out: 1 of unknown kind, payload or duration, 1 in groups of one")
    alone = [collective("all_reduce", 0, 9, in_bytes=9, group_size=1)]
    assert "1 in groups of one" in reason(a_rank([comm(0, 9)], [window(0, 9)], alone), "comm.busbw")


def test_ranks_bandwidths_merge_as_bytes_over_time() -> None:
    slow = [collective("all_reduce", 0, 300, in_bytes=1000, **OF_TWO)]
    fast = [collective("all_reduce", 0, 100, in_bytes=1000, **OF_TWO)]
    ranks = [a_rank([comm(0, 1)], [window(0, 400)], calls, rank=n) for n, calls in enumerate((slow, fast))]
    run = rows_of("comm.busbw", *ranks)[0]
    assert run["value"] == pytest.approx(2000 / 400e-9)


def test_overlap_merges_neither_devices_nor_host_threads_into_the_ratio() -> None:
    rows = [
        compute(0, 50),
        comm(40, 80),
        event("op", 0, 100, track=1),
        event("annotation", 0, 100, side="device"),
    ]
    rank = a_rank(rows, [window(0, 100)])
    assert main(rank, "overlap.ratio") == pytest.approx(0.25)
    assert main(rank, "overlap.efficiency") == pytest.approx(10 / 40)
    shorter_compute = a_rank([compute(0, 20), comm(10, 80)], [window(0, 100)])
    assert main(shorter_compute, "overlap.efficiency") == pytest.approx(10 / 20)


def test_exposed_time_goes_to_what_runs_in_equal_parts() -> None:
    calls = [
        collective("all_reduce", 0, 30, **OF_FOUR),
        collective("all_gather", 20, 50, **OF_TWO),
        collective("all_gather", 20, 26, **OF_FOUR),
        collective(None, 60, 70),
    ]
    kernels = [comm(c["start_ns"], c["end_ns"], track=20 + n) for n, c in enumerate(calls)]
    rank = a_rank([*kernels, compute(0, 10), comm(80, 85)], [window(0, 100)], calls)
    # Exposed: 10-20 one; 20-26 three; 26-30 two; 30-50 one; 60-70 and 80-85 unknown.
    found = by(rank, "overlap.exposed_by")
    assert found == pytest.approx(
        {
            (None, None, None): 55 * NS,
            ("all_reduce", None, None): 14 * NS,
            ("all_reduce", "0-3", None): 14 * NS,
            ("all_gather", None, None): 26 * NS,
            ("all_gather", "0,2", None): 24 * NS,
            ("all_gather", "0-3", None): 2 * NS,
            ("unknown", None, None): 15 * NS,
            (None, None, "dp"): 16 * NS,
            (None, None, "tp"): 24 * NS,
        }
    )
    assert found[None, None, None] == main(rank, "time.exposed_comm")


def test_exposed_time_within_collectives_has_no_unknown_part() -> None:
    calls = [collective("all_reduce", 0, 30, **OF_FOUR), collective("all_gather", 30, 50, **OF_TWO)]
    rank = a_rank([comm(0, 30), comm(30, 50)], [window(0, 40, 1), window(40, 80, 2)], calls)
    kinds = {
        key[0]: value for key, value in by(rank, "overlap.exposed_by").items() if key[1:] == (None, None)
    }
    assert kinds == pytest.approx({None: 25 * NS, "all_reduce": 15 * NS, "all_gather": 10 * NS})


def test_ranks_shares_of_communication_count_by_their_time() -> None:
    """10 of 20 ns hidden on one rank, 10 of 60 on the other; kernels run for 50 and for 100 ns."""
    ranks = [
        a_rank([compute(0, busy), comm(busy - 10, end)], [window(0, 200)], rank=n)
        for n, (busy, end) in enumerate(((40, 50), (50, 100)))
    ]
    found = {
        name: rows_of(name, *ranks)[0]["value"]
        for name in ("overlap.ratio", "overlap.efficiency", "comm.fraction")
    }
    assert found == pytest.approx(
        {"overlap.ratio": 20 / 80, "overlap.efficiency": 20 / (20 + 50), "comm.fraction": 80 / 150}
    )


def test_efficiency_is_of_what_each_step_could_hide() -> None:
    """Step 1 hides 10 of at most 20, step 2 none of 5: 10 / 25, though all of it is 10 of 35."""
    rows = [compute(0, 40), comm(30, 50), compute(60, 65), comm(70, 85)]
    rank = a_rank(rows, [window(0, 60, 1), window(60, 100, 2)])
    assert {v.step: v.value for v in values(rank, "overlap.efficiency")} == pytest.approx(
        {None: 10 / 25, 1: 0.5, 2: 0}
    )
    assert {v.step: v.value for v in values(rank, "overlap.ratio")} == pytest.approx(
        {None: 10 / 35, 1: 0.5, 2: 0}
    )
    assert {v.step: v.value for v in values(rank, "comm.fraction")} == pytest.approx(
        {None: 35 / 70, 1: 20 / 50, 2: 15 / 20}
    )


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
        assert found[kind, None, None] == float(expected.get(kind, Fraction(0)) / 10**9)
    assert ("unknown", None, None) not in found


@pytest.mark.parametrize("metric", ["comm.wait", "comm.transfer", "comm.skew", "balance.straggler_delay"])
def test_waiting_is_not_told_from_one_ranks_trace(metric: str) -> None:
    why = "no collective is matched across its ranks: 1 in groups of one, 7 not matched with another rank's"
    assert reason(a_talk(), metric) == why


def test_load_imbalance_leaves_waiting_out() -> None:
    ranks = [
        a_rank([compute(0, 60), comm(60, 100)], [window(0, 100)], rank=0),
        a_rank([compute(0, 20), comm(20, 100)], [window(0, 100)], rank=1),
    ]
    (run,) = rows_of("balance.load_imbalance", *ranks)
    assert run["value"] == pytest.approx(1.5)
    assert run["rank"] is None
    (alone,) = rows_of("balance.load_imbalance", ranks[0])
    assert (alone["status"], alone["value"]) == ("not_applicable", None)


def test_every_rank_counts() -> None:
    ranks = [a_rank([compute(0, 10 + n)], [window(0, 100)], rank=n) for n in range(20)]
    (run,) = rows_of("balance.load_imbalance", *ranks)
    assert run["value"] == pytest.approx(29 / 19.5)
    assert run["reason"] == "over 20 ranks"
