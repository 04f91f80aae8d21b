# SPDX-License-Identifier: Apache-2.0
"""What only several ranks' traces tell: waiting and transfer, stragglers, fits; worked out on paper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from helpers.hand_made import a_rank, card, collective, comm, compute, main, reason, rows_of, values, window

from cclbench.analyzers.hockney import t_quantile
from cclbench.analyzers.metric import Coverage
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.waiting import AT_ONCE

NS = 1e-9
PAIR = {"group": "0-1", "group_size": 2, "dimension": "dp"}
TRIO = {"group": "0-2", "group_size": 3, "dimension": "tp"}


def met(
    kind: str,
    instance: int,
    start: int,
    end: int,
    wait: int | None,
    nbytes: int = 1000,
    least: int | None = None,
    **columns: Any,
) -> dict[str, Any]:
    """A matched row on true clocks; without `wait` one of an instance that lacks a rank."""
    lacking = {} if least is None else {"least_wait_ns": least}
    split = lacking if wait is None else {"wait_ns": wait, "transfer_ns": end - start - wait}
    sides = {"in_bytes": nbytes, "out_bytes": nbytes}
    known = {"instance": instance, "arrival_ns": start, **PAIR, **sides, **split}
    return collective(kind, start, end, **known | columns)


def occurrences(
    *calls: Sequence[dict[str, Any]], work: Sequence[Sequence[dict[str, Any]]] = ((), (), ()), end: int = 1000
) -> list[Any]:
    """Ranks 0, 1, ... with those collectives, a kernel for each of them, and other work."""
    return [
        a_rank([*more, *(comm(c["start_ns"], c["end_ns"]) for c in own)], [window(0, end, 1)], own, rank=n)
        for n, (own, more) in enumerate(zip(calls, work, strict=False))
    ]


def by(rows: Sequence[dict[str, Any]]) -> dict[tuple[str | None, ...], float]:
    """(collective, group, category, stat) → value of the run's rows that span all steps."""
    return {
        (row["collective"], row["group"], row["category"], row["stat"]): row["value"]
        for row in rows
        if row["rank"] is None and row["step"] is None
    }


def two_ranks() -> list[Any]:
    """Rank 0 waits 40 of 60 ns, then 0 of 30; rank 1 waits 0 of 20, then 10 of 40."""
    early = [
        met("all_reduce", 1, 100, 160, 40),
        met("all_gather", 2, 310, 340, 0),
        met("all_reduce", 9, 500, 510, None),
        collective("all_reduce", 600, 610, **PAIR),
        collective("broadcast", 700, 705, group="0", group_size=1),
    ]
    return occurrences(early, [met("all_reduce", 1, 140, 160, 0), met("all_gather", 2, 300, 340, 10)])


def test_wait_and_transfer_are_sums_per_step_by_kind_group_and_dimension() -> None:
    wait, transfer = (rows_of(f"comm.{name}", *two_ranks()) for name in ("wait", "transfer"))
    assert by(wait) == {
        (None, None, None, None): pytest.approx(25 * NS),
        ("all_gather", None, None, None): pytest.approx(5 * NS),
        ("all_gather", "0-1", None, None): pytest.approx(5 * NS),
        ("all_reduce", None, None, None): pytest.approx(20 * NS),
        ("all_reduce", "0-1", None, None): pytest.approx(20 * NS),
        (None, None, "dp", None): pytest.approx(25 * NS),
    }
    own = {row["rank"]: row["value"] for row in transfer if row["category"] is row["collective"] is None}
    assert own == {None: pytest.approx(50 * NS), 0: pytest.approx(50 * NS), 1: pytest.approx(50 * NS)}


def test_collectives_at_once_wait_once() -> None:
    """Waiting 0-40 and 20-60 at once; transfer 40-50 and 60-80: unions of 60 and of 30 ns."""
    calls = [met("all_reduce", 1, 0, 50, 40), met("all_gather", 2, 20, 80, 40, **TRIO)]
    (rank,) = occurrences(calls)
    wait, transfer = (
        {(v.collective, v.group): v for v in values(rank, f"comm.{n}") if v.step is v.category is None}
        for n in ("wait", "transfer")
    )
    assert wait[None, None].value == pytest.approx(60 * NS)
    assert transfer[None, None].value == pytest.approx(30 * NS)
    assert wait["all_reduce", "0-1"].value == wait["all_gather", "0-2"].value == pytest.approx(40 * NS)
    assert wait["all_reduce", "0-1"].reason == AT_ONCE
    assert {v.reason for v in transfer.values()} == {None}
    assert main(rank, "comm.time") == pytest.approx(80 * NS)


def test_waiting_across_a_windows_edge_counts_in_each() -> None:
    call = met("all_reduce", 1, 80, 150, 50)
    rank = a_rank([comm(80, 150)], [window(0, 100, 1), window(100, 200, 2)], [call])
    found = {v.step: v.value for v in values(rank, "comm.wait") if v.key[1:] == (None,) * 4}
    assert found == pytest.approx({None: 25 * NS, 1: 20 * NS, 2: 30 * NS})


def test_a_rank_without_a_trace_leaves_a_lower_bound_of_waiting() -> None:
    """Of three ranks one has no trace: the later of the two others comes at 60, the end is at 100."""
    early, late = (met("all_reduce", 1, at, 100, None, least=60 - at, **TRIO) for at in (20, 60))
    whole = met("all_reduce", 2, 200, 260, 10, **TRIO)
    (rank, other) = occurrences([early, whole], [late, met("all_reduce", 2, 210, 260, 0, **TRIO)])
    first = values(rank, "comm.wait")[0]
    assert first.value == pytest.approx((40 + 10) * NS)
    assert (first.status, first.coverage) == ("partial", Coverage(1, 2, 60, 140))
    assert first.reason == "a lower bound: 1 collectives lack a rank's trace"
    assert values(other, "comm.wait")[0].value == pytest.approx(0)
    assert main(rank, "comm.transfer", "partial") == pytest.approx(50 * NS)
    # Exposed alike: 40 + 10 ns wait, 50 transfer, and of 60-100 nobody knows.
    exposed = [values(rank, f"time.exposed_{part}")[0] for part in ("wait", "transfer", "unmatched")]
    assert [v.value for v in exposed] == pytest.approx([50 * NS, 50 * NS, 40 * NS])
    assert [v.status for v in exposed] == ["partial", "partial", "ok"]
    assert exposed[0].coverage == Coverage(1, 2, 100, 140)
    alone = occurrences([early])[0]
    assert main(alone, "comm.wait", "partial") == pytest.approx(40 * NS)
    assert reason(alone, "comm.transfer").startswith("no collective is matched across its ranks")


def test_a_run_of_which_a_rank_is_unknown_is_partial() -> None:
    told = met("all_reduce", 1, 0, 60, 20)
    silent = collective("all_reduce", 0, 40, **PAIR)
    rows = rows_of("comm.wait", *occurrences([told], [silent]))
    own = next(row for row in rows if row["rank"] is None)
    assert (own["status"], own["value"]) == ("partial", pytest.approx(20 * NS))
    assert (own["coverage"], own["coverage_time"]) == (1 / 2, 60 / 100)
    # A rank without any collective has nothing to be left out.
    rows = rows_of("comm.wait", *occurrences([told], []))
    assert next(row for row in rows if row["rank"] is None)["status"] == "ok"


def test_what_is_not_matched_is_counted_by_why() -> None:
    assert rows_of("comm.wait", *two_ranks())[0]["reason"] == (
        "left out: 1 in groups of one, 1 in instances that lack a rank, 1 not matched with another rank's"
    )
    alone = a_rank([comm(0, 9)], [window(0, 9)], [met("all_reduce", 0, 0, 9, None)])
    assert reason(alone, "comm.transfer") == (
        "no collective is matched across its ranks: 1 in instances that lack a rank"
    )
    assert reason(a_rank([compute(0, 9)], [window(0, 9)]), "comm.wait") == (
        "there are no collectives in the window"
    )


def test_skew_is_a_mean_over_instances_with_quantiles() -> None:
    rows = rows_of("comm.skew", *two_ranks())
    found = by(rows)
    assert found[None, None, None, None] == pytest.approx(25 * NS)
    assert found[None, None, None, "p50"] == pytest.approx(25 * NS)
    assert found[None, None, None, "max"] == pytest.approx(40 * NS)
    assert found["all_gather", "0-1", None, None] == pytest.approx(10 * NS)
    assert {row["rank"] for row in rows} == {None}


def test_an_instance_without_all_its_ranks_in_view_has_no_skew() -> None:
    (row,) = rows_of("comm.skew", two_ranks()[0])
    assert row["reason"] == "no collective has all its ranks among the selected ones"


def test_a_kind_whose_instances_all_lack_a_rank_in_view_has_no_mean() -> None:
    """Rank 1's broadcast lies behind its window: of that kind there is no figure, rather than 0 / 0."""
    first = [met("all_reduce", 1, 100, 160, 40), met("broadcast", 2, 310, 340, 0)]
    second = [met("all_reduce", 1, 140, 160, 0), met("broadcast", 2, 2000, 2010, 0)]
    found = by(rows_of("comm.skew", *occurrences(first, second)))
    assert found[None, None, None, None] == found["all_reduce", "0-1", None, None] == pytest.approx(40 * NS)
    assert not any(collective == "broadcast" for collective, *_ in found)


def test_skew_by_kind_group_and_dimension() -> None:
    """Skews of 10, 30 and 80 ns: of two all-reduces in one group, and of an all-gather in another."""
    first = [
        met("all_reduce", 1, 100, 160, 10),
        met("all_reduce", 2, 200, 260, 30),
        met("all_gather", 3, 300, 400, 80, group="0,1", dimension=None),
    ]
    second = [
        met("all_reduce", 1, 110, 160, 0),
        met("all_reduce", 2, 230, 260, 0),
        met("all_gather", 3, 380, 400, 0, group="0,1", dimension=None),
    ]
    rows = rows_of("comm.skew", *occurrences(first, second))
    assert {key: value for key, value in by(rows).items() if key[3] is None} == pytest.approx(
        {
            (None,) * 4: 40 * NS,
            ("all_reduce", None, None, None): 20 * NS,
            ("all_reduce", "0-1", None, None): 20 * NS,
            (None, None, "dp", None): 20 * NS,
            ("all_gather", None, None, None): 80 * NS,
            ("all_gather", "0,1", None, None): 80 * NS,
        }
    )
    assert rows[0]["reason"] == "3 instances"


def test_groups_that_follow_one_another_do_not_overlap() -> None:
    calls = [met("all_reduce", 1, 0, 50, 40), met("all_gather", 2, 40, 80, 30, **TRIO)]
    (rank,) = occurrences(calls)
    found = values(rank, "comm.wait")
    assert found[0].value == pytest.approx(70 * NS)
    assert {v.reason for v in found} == {None}


def test_a_send_and_its_receive_are_one_instance_of_two_ranks() -> None:
    of_four = {"group": "0-3", "group_size": 4, "dimension": "pp"}
    send, recv = met("send", 5, 100, 130, 0, **of_four), met("recv", 5, 70, 130, 30, **of_four)
    found = by(rows_of("comm.skew", *occurrences([send], [recv])))
    whole = (None, None, None, None)
    assert found[whole] == found["send", None, None, None] == found["recv", None, None, None]
    assert found[whole] == pytest.approx(30 * NS)


def test_a_run_takes_the_ranks_that_have_transfers() -> None:
    unmatched = [collective("all_reduce", 0, 500, in_bytes=1000, **PAIR)]
    run = rows_of("comm.busbw", *occurrences([met("all_reduce", 1, 100, 160, 40)], unmatched))[0]
    assert run["value"] == pytest.approx(1000 / 20e-9)
    assert run["reason"] == "left out: 1 not matched across their ranks"


def test_hockneys_line_through_points_of_last_ranks() -> None:
    """t = 100 ns + S / 10 B per ns, told by whoever is last; the other's waiting is no point."""
    sizes = (1000, 1000, 2000, 4000, 8000)
    early, late = [], []
    for n, size in enumerate(sizes):
        start, took = n * 2000, 100 + size // 10
        early.append(met("all_reduce", n, start, start + 50 + took, 50, size))
        late.append(met("all_reduce", n, start + 50, start + 50 + took, 0, size))
    ranks = occurrences(early, late, end=10_000)
    place = ("all_reduce", "0-1", None)
    alpha, beta = by(rows_of("comm.alpha", *ranks)), by(rows_of("comm.beta", *ranks))
    assert alpha[*place, None] == pytest.approx(100 * NS)
    assert beta[*place, None] == pytest.approx(0.1 * NS)
    assert alpha[*place, "r2"] == pytest.approx(1)
    assert alpha[*place, "low"] == pytest.approx(100 * NS) == alpha[*place, "high"]
    assert rows_of("comm.alpha", *ranks)[0]["reason"] == "5 collectives of 4 sizes"
    short = occurrences(early[:4], late[:4], end=10_000)
    assert "5 matched instances of 2 sizes" in rows_of("comm.beta", *short)[0]["reason"]


def test_an_unknown_size_is_no_point_beside_known_ones() -> None:
    """t = 100 ns + S / 10 B per ns in five all-gathers; a sixth states one side of 9 B, and takes 5 µs."""
    late = []
    for n, size in enumerate((1000, 1000, 2000, 4000, 8000)):
        late.append(met("all_gather", n, n * 2000, n * 2000 + 100 + size // 10, 0, size))
    late.append(met("all_gather", 5, 10_000, 15_000, 0, 9, out_bytes=None))
    early = [call | {"arrival_ns": call["arrival_ns"] - 1, "wait_ns": 1} for call in late]
    rows = rows_of("comm.alpha", *occurrences(early, late, end=20_000))
    assert by(rows)["all_gather", "0-1", None, None] == pytest.approx(100 * NS)
    assert rows[0]["reason"] == "5 collectives of 4 sizes"


def test_hockneys_interval_by_hand() -> None:
    """S = 1, 1, 1, 2, 2, 2 B with times around 10 and 20 ns by a share of −10 %, 0, +10 %, weights 1/t².

    Each size's weighted mean is Σ(1/t) / Σ(1/t²), and β is their difference: there are two sizes.
    """
    points = [(1, 9), (1, 10), (1, 11), (2, 18), (2, 20), (2, 22)]
    late = [met("all_reduce", n, n * 100, n * 100 + t, 0, s) for n, (s, t) in enumerate(points)]
    early = [met("all_reduce", n, n * 100 - 1, n * 100 + t, 1, s) for n, (s, t) in enumerate(points)]
    alpha, beta = (by(rows_of(f"comm.{name}", *occurrences(early, late))) for name in ("alpha", "beta"))
    place = ("all_reduce", "0-1", None)
    mean = (1 / 9 + 1 / 10 + 1 / 11) / (1 / 81 + 1 / 100 + 1 / 121)
    assert beta[*place, None] == pytest.approx(mean * NS)
    mass = 1 / 81 + 1 / 100 + 1 / 121
    variance = 2 * sum((t - mean) ** 2 / t**2 for t in (9, 10, 11)) / 4
    error = (variance * (1 / mass + 4 / mass)) ** 0.5
    assert beta[*place, "high"] - beta[*place, None] == pytest.approx(2.776445 * error * NS, rel=1e-3)
    # α is twice the first size's mean less the second's: variance 4/m of the first, 1/(m/4) of the second.
    error = (variance * (4 / mass + 4 / mass)) ** 0.5
    assert alpha[*place, None] == 0
    assert alpha[*place, "high"] == pytest.approx(2.776445 * error * NS, rel=1e-3)
    assert alpha[*place, "low"] == -alpha[*place, "high"]


def line_of(*points: tuple[int, int], kind: str = "all_reduce", **columns: Any) -> list[dict[str, Any]]:
    """Collectives of those bytes and ns, of which this rank is the last."""
    return [
        met(kind, columns.get("instance", n), 10_000 * n, 10_000 * n + ns, 0, size, **columns)
        for n, (size, ns) in enumerate(points)
    ]


def fitted(name: str, *calls: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return rows_of(f"comm.{name}", *occurrences(*calls, end=100_000))


LINE = [(1000, 200), (1000, 200), (2000, 300), (4000, 500), (8000, 900)]  # 100 ns + S / 10 B per ns


@pytest.mark.parametrize("ns", [7, 100, 1234, 2997])
def test_times_that_are_all_alike_are_latency_alone(ns: int) -> None:
    found = {name: by(fitted(name, line_of(*((size, ns) for size, _ in LINE)))) for name in ("alpha", "beta")}
    place = ("all_reduce", "0-1", None)
    assert found["alpha"][*place, None] == pytest.approx(ns * NS)
    assert found["beta"][*place, None] == 0
    assert {stat for *_, stat in found["beta"]} == {None, "low", "high"}


@pytest.mark.parametrize(
    "other",
    [
        met("all_reduce", 9, 90_000, 90_700, 0, 0),
        met("all_reduce", 9, 90_000, 90_000, 0, 4000),
        met("all_reduce", 9, 90_000, 90_700, 1, 4000),
        met("all_reduce", 9, 90_000, 90_700, 0, 4000, group=None),
    ],
    ids=["no bytes", "no time", "a wait", "no group"],
)
def test_what_is_no_point_of_the_line(other: dict[str, Any]) -> None:
    rows = fitted("alpha", [*line_of(*LINE), other])
    assert by(rows)["all_reduce", "0-1", None, None] == pytest.approx(100 * NS)
    assert rows[0]["reason"] == "5 collectives of 4 sizes"
    assert "no kind and group has at least 5" in fitted("alpha", [*line_of(*LINE[:4]), other])[0]["reason"]


def test_the_smallest_payload_and_the_shortest_time_are_points() -> None:
    """t = 1 ns in 1 B, 2 ns in 2 B, ...: no latency, and 1 ns a byte."""
    rows = fitted("beta", line_of(*((n, n) for n in range(1, 6))))
    assert by(rows)["all_reduce", "0-1", None, None] == pytest.approx(NS)
    assert rows[0]["reason"] == "5 collectives of 5 sizes"


def test_all_of_a_ranks_sends_are_points_though_it_waited_in_them() -> None:
    sends = [met("send", n, 10_000 * n, 10_000 * n + 30 + ns, 30, size) for n, (size, ns) in enumerate(LINE)]
    assert by(fitted("alpha", sends))["send", "0-1", None, None] == pytest.approx(100 * NS)


def test_an_instance_of_which_two_ranks_are_last_is_one_point() -> None:
    calls = line_of(*LINE[:4])
    assert "at least 5 matched instances" in fitted("alpha", calls, calls)[0]["reason"]
    five = line_of(*LINE)
    assert fitted("alpha", five, five)[0]["reason"] == "5 collectives of 4 sizes"


def test_kinds_and_groups_have_lines_of_their_own_and_one_size_makes_none() -> None:
    """Of three in one run, told by turns by two ranks: 100 ns + S / 10 B per ns, and half of both."""
    reduces = line_of(*LINE)
    gathers = [row | {"instance": 20 - n} for n, row in enumerate(line_of(*LINE, kind="all_gather"))]
    halves = [
        row | {"instance": 40 + n}
        for n, row in enumerate(line_of(*((size, ns // 2) for size, ns in LINE), **TRIO))
    ]
    alike = [row | {"instance": 60 + n} for n, row in enumerate(line_of(*[(50, 9)] * 5, kind="broadcast"))]
    calls = [*gathers, *reduces, *alike, *halves]
    found = by(fitted("beta", calls[::2], calls[1::2]))
    assert {key[:2]: value for key, value in found.items() if key[3] is None} == {
        ("all_reduce", "0-1"): pytest.approx(0.1 * NS),
        ("all_gather", "0-1"): pytest.approx(0.1 * NS),
        ("all_reduce", "0-2"): pytest.approx(0.05 * NS),
    }
    (row,) = fitted("alpha", alike)
    assert row["reason"] == "no kind and group has at least 5 matched instances of 2 sizes"


def test_times_that_do_not_grow_along_a_line_have_no_fit() -> None:
    """Doubled bytes take three times as long, from 10 ns on: below none at no bytes; or they take less."""
    steep = line_of(*((2**n, 10 * 3**n) for n in range(5)))
    falling = line_of(*((2**n, 500 - 10 * n) for n in range(5)), kind="all_gather")
    falling = [row | {"instance": row["instance"] + 10} for row in falling]
    for name in ("alpha", "beta"):
        (row,) = fitted(name, [*steep, *falling])
        assert row["reason"] == (
            "the fits of 2 kinds and groups have a negative latency or inverse bandwidth: their times do not"
            " grow linearly with size"
        )
        good = [row | {"instance": row["instance"] + 20} for row in line_of(*LINE, kind="broadcast")]
        found = by(fitted(name, [*steep, *falling, *good]))
        assert {kind for kind, *_ in found} == {"broadcast"}


def test_the_share_of_the_spread_that_the_line_explains() -> None:
    """As in the interval by hand: 1 B takes 9, 10 and 11 ns, 2 B twice as long, weights 1/t²."""
    times = [9, 10, 11, 18, 20, 22]
    calls = line_of(*zip([1, 1, 1, 2, 2, 2], times, strict=True))
    mean = sum(1 / t for t in times[:3]) / sum(1 / t**2 for t in times[:3])
    of_all = sum(1 / t for t in times) / sum(1 / t**2 for t in times)
    unexplained = 2 * sum((t - mean) ** 2 / t**2 for t in times[:3])
    whole = sum((t - of_all) ** 2 / t**2 for t in times)
    (row,) = [row for row in fitted("beta", calls) if row["stat"] == "r2"]
    assert (row["value"], row["unit"]) == (pytest.approx(1 - unexplained / whole), "1")


def test_the_expansion_of_students_quantile_to_its_fourth_term() -> None:
    """1.959964 + 2.372271 / 3 + 2.822499 / 3² + 2.555850 / 3³ + 1.589534 / 3⁴: its exact sum."""
    assert t_quantile(3) == pytest.approx(3.178616995054, rel=1e-9)


@pytest.mark.parametrize(("freedom", "quantile"), [(3, 3.182446), (10, 2.228139), (60, 2.000298)])
def test_quantiles_of_student(freedom: int, quantile: float) -> None:
    assert t_quantile(freedom) == pytest.approx(quantile, rel=1.5e-3)


def test_exposed_time_is_waiting_until_the_last_arrival_and_transfer_from_then_on() -> None:
    """20-80 waits to 60; 50-80 waits to 70; compute hides 0-30; in 50-80 each has half of an instant."""
    calls = [met("all_reduce", 1, 20, 80, 40), met("all_gather", 2, 50, 80, 20)]
    rank = a_rank([compute(0, 30), comm(20, 80), comm(90, 93)], [window(0, 100, 1)], calls)
    wait, transfer = (main(rank, f"time.exposed_{part}", "partial") for part in ("wait", "transfer"))
    unmatched = main(rank, "time.exposed_unmatched")
    assert wait == pytest.approx((20 + 5 + 10) * NS)
    assert transfer == pytest.approx((10 + 5) * NS)
    assert unmatched == pytest.approx(3 * NS)
    by_kind = {v.collective: v.value for v in values(rank, "time.exposed_wait") if v.group is None}
    assert by_kind["all_reduce"] == pytest.approx(25 * NS)
    assert by_kind["all_gather"] == pytest.approx(10 * NS)


def test_exposed_time_of_unmatched_collectives_is_neither() -> None:
    rank = a_rank([comm(0, 30)], [window(0, 30)], [collective("all_reduce", 0, 30, **PAIR)])
    assert main(rank, "time.exposed_unmatched") == pytest.approx(30 * NS)
    assert reason(rank, "time.exposed_wait") == (
        "none of the rank's exposed communication is matched across ranks"
    )
    hidden = a_rank([comm(0, 30), compute(0, 30)], [window(0, 30)], [collective("all_reduce", 0, 30)])
    assert main(hidden, "time.exposed_wait") == 0


def test_a_pipelines_bubble_is_idling_and_waiting_for_its_neighbour() -> None:
    calls = [met("recv", 1, 0, 50, 30, **STAGES), met("all_reduce", 2, 60, 90, 20, **TRIO)]
    rank = a_rank([comm(0, 50), comm(60, 90)], [window(0, 100, 1)], calls)
    assert main(rank, "overlap.pipeline_bubble") == pytest.approx((20 + 30) / 100)
    flat = a_rank([comm(60, 90)], [window(0, 100, 1)], calls[1:])
    assert "states a pipeline" in reason(flat, "overlap.pipeline_bubble")
    told = a_rank([comm(60, 90)], [window(0, 100)], calls[1:], card=card(parallelism={"pp": 2}))
    assert main(told, "overlap.pipeline_bubble") == pytest.approx(0.7)
    blind = a_rank([comm(0, 50)], [window(0, 50)], [collective("recv", 0, 50, **STAGES)])
    assert "1 not matched with another rank's" in reason(blind, "overlap.pipeline_bubble")


STAGES = {"group": "0-1", "group_size": 2, "dimension": "pp"}


def test_a_bubble_by_step_and_over_ranks_is_of_the_windows() -> None:
    """Idle 50-100 and 130-200, waiting 0-30: 80 of 100 and 70 of 100; on the other rank 20 of 50."""
    call = met("recv", 1, 0, 50, 30, **STAGES)
    rank = a_rank([comm(0, 50), compute(100, 130)], [window(0, 100, 1), window(100, 200, 2)], [call])
    assert {v.step: v.value for v in values(rank, "overlap.pipeline_bubble")} == pytest.approx(
        {None: 150 / 200, 1: 80 / 100, 2: 70 / 100}
    )
    empty = a_rank([comm(0, 50)], [window(0, 100, 1), window(100, 100, 2)], [call])
    assert [v.step for v in values(empty, "overlap.pipeline_bubble")] == [None, 1]
    other = a_rank([compute(0, 30)], [window(0, 50)], [met("send", 1, 0, 10, 0, **STAGES)], rank=1)
    assert rows_of("overlap.pipeline_bubble", rank, other)[0]["value"] == pytest.approx(170 / 250)


def test_transfers_of_no_stated_dimension_are_the_pipelines_and_those_of_another_are_not() -> None:
    nobodys = met("recv", 1, 0, 50, 30, dimension=None)
    tensors = met("recv", 2, 60, 90, 20)
    rank = a_rank(
        [comm(0, 50), comm(60, 90)], [window(0, 100, 1)], [nobodys, tensors], card=card(parallelism={"pp": 2})
    )
    own = values(rank, "overlap.pipeline_bubble")[0]
    assert (own.value, own.coverage) == (pytest.approx((20 + 30) / 100), Coverage(1, 1, 50, 50))
    flat = a_rank([comm(0, 50)], [window(0, 100, 1)], [nobodys], card=card(parallelism={"pp": 1}))
    assert "states a pipeline" in reason(flat, "overlap.pipeline_bubble")


def test_unmatched_transfers_beside_matched_ones_leave_the_bubble_partial() -> None:
    calls = [met("recv", 1, 0, 50, 30, **STAGES), collective("send", 60, 70, **STAGES)]
    (own,) = values(a_rank([comm(0, 50), comm(60, 70)], [window(0, 100)], calls), "overlap.pipeline_bubble")
    assert (own.value, own.coverage) == (pytest.approx((10 + 30 + 30) / 100), Coverage(1, 2, 50, 60))
    assert own.words == "left out: 1 not matched with another rank's"


def test_a_stage_of_one_rank_is_no_pipeline_and_no_time_has_no_bubble() -> None:
    alone = met("send", 1, 0, 50, 0, group="0", group_size=1, dimension="pp")
    assert "states a pipeline" in reason(
        a_rank([comm(0, 50)], [window(0, 100)], [alone]), "overlap.pipeline_bubble"
    )
    empty = a_rank([compute(0, 9)], [window(50, 50, 1)], card=card(parallelism={"pp": 2}))
    assert reason(empty, "overlap.pipeline_bubble") == "there is no time in the window"


def test_what_is_hidden_need_not_be_matched() -> None:
    calls = [met("all_reduce", 1, 20, 80, 40), collective("all_reduce", 85, 95, **PAIR)]
    rank = a_rank([comm(20, 80), comm(85, 95), compute(85, 95)], [window(0, 100, 1)], calls)
    own = values(rank, "time.exposed_wait")[0]
    assert (own.value, own.status, own.coverage) == (pytest.approx(40 * NS), "ok", Coverage(2, 2, 60, 60))
    blind = values(a_rank([comm(85, 95)], [window(0, 100, 1)], calls[1:]), "time.exposed_transfer")[0]
    assert blind.coverage == Coverage(0, 1, 0, 10)


def test_exposed_parts_are_means_over_steps_by_kind_group_and_dimension() -> None:
    call = met("all_reduce", 1, 20, 80, 40)
    rank = a_rank([comm(20, 80)], [window(0, 50, 1), window(50, 100, 2)], [call])
    for part, (whole, first, second) in {"wait": (40, 30, 10), "transfer": (20, 0, 20)}.items():
        found = values(rank, f"time.exposed_{part}")
        assert {v.step: v.value for v in found if v.key[1:] == (None,) * 4} == pytest.approx(
            {None: whole / 2 * NS, 1: first * NS, 2: second * NS}
        )
        assert {v.key[1:4]: v.value for v in found if v.key[1:] != (None,) * 4} == pytest.approx(
            {
                (None, "all_reduce", None): whole / 2 * NS,
                ("0-1", "all_reduce", None): whole / 2 * NS,
                (None, None, "dp"): whole / 2 * NS,
            }
        )


@pytest.mark.parametrize("kind", ["send", "recv", "send_recv"])
def test_a_pipelines_transfers_of_each_kind_alone_make_a_bubble(kind: str) -> None:
    """Idle 50-100, waiting 0-30; the wait of another kind in the same group is none of the pipeline's."""
    rank = a_rank([comm(0, 50)], [window(0, 100, 1)], [met(kind, 1, 0, 50, 30, **STAGES)])
    assert main(rank, "overlap.pipeline_bubble") == pytest.approx((50 + 30) / 100)
    other = met("all_reduce", 2, 50, 80, 20, **STAGES)
    both = [met(kind, 1, 0, 50, 30, **STAGES), other]
    rank = a_rank([comm(0, 50), comm(50, 80)], [window(0, 100, 1)], both)
    assert main(rank, "overlap.pipeline_bubble") == pytest.approx((20 + 30) / 100)


def test_phases_and_the_gaps_between_them() -> None:
    calls = [
        met("all_reduce", 1, 0, 20, 0),
        met("all_reduce", 2, 30, 50, 0),
        met("all_gather", 3, 60, 90, 0, **TRIO),
        met("all_reduce", 4, 80, 100, 0),
    ]
    (rank,) = occurrences(calls)
    found = {(v.category, v.stat): v.value for v in values(rank, "comm.windows")}
    assert (found[None, None], found["dp", None], found["tp", None]) == (3, 2, 1)
    assert found["dp", "phase"] == pytest.approx((50 + 20) / 2 * NS)
    assert found["tp", "gap"] == pytest.approx(10 * NS)
    assert found["dp", "gap"] == 0
    assert found[None, "gap"] == pytest.approx(5 * NS)
    stats = {stat: value for (category, stat), value in found.items() if category is None and stat}
    assert stats == {
        "phase": pytest.approx((50 + 30 + 20) / 3 * NS),
        "gap": pytest.approx(5 * NS),
        "gap_p50": pytest.approx(5 * NS),
        "gap_max": pytest.approx(10 * NS),
    }
    nowhere = occurrences([collective("all_reduce", 0, 20)])[0]
    assert "dimension" in reason(nowhere, "comm.windows")


def test_phases_of_calls_that_begin_at_once_do_not_depend_on_the_order_of_rows() -> None:
    """dp, tp and dp at 0, then tp: by their ends tp, dp, dp and tp make three phases."""
    calls = [
        met("all_reduce", 1, 0, 20, 0),
        met("all_gather", 2, 0, 10, 0, **TRIO),
        met("all_reduce", 3, 0, 30, 0),
        met("all_gather", 4, 40, 50, 0, **TRIO),
    ]
    told = [
        {(v.category, v.stat): v.value for v in values(occurrences(order)[0], "comm.windows")}
        for order in (calls, calls[::-1])
    ]
    assert told[0] == told[1]
    assert told[0][None, None] == 3


def phases(*ranks: Any) -> dict[tuple[str | None, str | None], float]:
    """(category, stat) → the run's value of comm.windows, of times in ns."""
    rows = rows_of("comm.windows", *ranks)
    own = [row for row in rows if row["rank"] is None]
    return {(row["category"], row["stat"]): row["value"] / (NS if row["stat"] else 1) for row in own}


def test_phases_count_by_step_groups_of_one_and_unknown_dimensions_apart() -> None:
    """In two steps: dp 0-10, unknown 15-30 with a group of one within, tp 22-40, dp 90-95."""
    calls = [
        met("all_reduce", 4, 90, 95, 0),
        met("all_reduce", 1, 0, 10, 0),
        collective("all_reduce", 15, 30),
        met("broadcast", 9, 17, 21, 0, group="0", group_size=1, dimension="ep"),
        met("all_gather", 3, 22, 40, 0, **TRIO),
    ]
    rank = a_rank([comm(0, 95)], [window(0, 50, 1), window(50, 100, 2)], calls)
    assert phases(rank) == pytest.approx(
        {
            (None, None): 4 / 2,
            (None, "phase"): (10 + 15 + 18 + 5) / 4,
            (None, "gap"): (5 + 0 + 50) / 3,
            (None, "gap_p50"): 5,
            (None, "gap_max"): 50,
            ("dp", None): 2 / 2,
            ("dp", "phase"): (10 + 5) / 2,
            ("dp", "gap"): 50,
            ("dp", "gap_p50"): 50,
            ("dp", "gap_max"): 50,
            ("tp", None): 1 / 2,
            ("tp", "phase"): 18,
            ("tp", "gap"): 0,
            ("tp", "gap_p50"): 0,
            ("tp", "gap_max"): 0,
            ("unknown", None): 1 / 2,
            ("unknown", "phase"): 15,
            ("unknown", "gap"): 5,
            ("unknown", "gap_p50"): 5,
            ("unknown", "gap_max"): 5,
        }
    )


def test_a_gap_begins_where_all_before_has_ended() -> None:
    """dp 0 - 60 outlasts tp 10 - 20: from its end on to dp's next phase are 5 ns."""
    calls = [
        met("all_gather", 2, 10, 20, 0, **TRIO),
        met("all_reduce", 1, 0, 60, 0),
        met("send", 3, 65, 70, 0),
    ]
    (rank,) = occurrences(calls)
    assert (phases(rank)["dp", "gap"], phases(rank)["tp", "gap"]) == (pytest.approx(5), 0)


def test_ranks_count_as_many_times_as_they_have_phases_and_gaps() -> None:
    """Phases of 10, 20 and 40 ns with gaps of 10 and 30 on one rank, of 100 ns and none on the other."""
    first = [
        met("all_reduce", 1, 0, 10, 0),
        met("all_gather", 2, 20, 40, 0, **TRIO),
        met("all_reduce", 3, 70, 110, 0),
    ]
    second = [met("all_reduce", 1, 0, 100, 0)]
    found = phases(*occurrences(first, second))
    assert found[None, None] == pytest.approx((3 + 1) / 2)
    assert found[None, "phase"] == pytest.approx((10 + 20 + 40 + 100) / 4)
    assert found[None, "gap"] == pytest.approx((10 + 30) / 2)


def test_a_pipelines_ideal_bubble_is_that_of_its_card() -> None:
    """3 of the 11 turns that 8 micro-batches take on 4 stages."""

    def rank(**parallelism: int) -> RankView:
        return a_rank([compute(0, 1)], [window(0, 9)], card=card(parallelism=parallelism))

    assert main(rank(pp=4, microbatches=8), "overlap.bubble_ideal") == pytest.approx(3 / 11)
    assert "lacks parallelism.microbatches" in reason(rank(pp=4), "overlap.bubble_ideal")
    assert "no pipeline of several stages" in reason(rank(pp=1, microbatches=8), "overlap.bubble_ideal")
