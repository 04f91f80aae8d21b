# SPDX-License-Identifier: Apache-2.0
"""How long collectives wait for one rank alone, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hand_made import a_rank, collective, compute, rows_of, window

from cclbench.analyzers.view.arrivals import SPENT, UNKNOWN_BEFORE
from cclbench.analyzers.view.lateness import (
    SIGNIFICANT,
    Cause,
    Foremost,
    LastArrivals,
    arrives_last,
    cause,
    chance,
    foremost,
    last_arrivals,
    lateness,
)
from cclbench.analyzers.view.meetings import Instances
from cclbench.analyzers.view.rank_view import RankView

NS = 1e-9


def ranks_of(*steps: tuple[int, ...], kind: str = "all_reduce", residual: float = 0.0) -> list[RankView]:
    """Ranks that meet once a step, each the given ns after the step's 100; steps of 1,000 ns.

    Clocks are told apart to `residual` ns on rank 1, to half of it on the others.
    """
    found = []
    for rank in range(len(steps[0])):
        rows: list[dict[str, Any]] = []
        for step, late in enumerate(steps):
            begin, end = 1000 * step + 100 + late[rank], 1000 * step + 500
            group = {"group": f"0-{len(late) - 1}", "group_size": len(late), "step": step}
            waited = max(late) - late[rank]
            rows.append(
                collective(kind, begin, end, instance=step, arrival_ns=begin, wait_ns=waited, **group)
            )
        windows = [window(1000 * step, 1000 * step + 1000, step) for step in range(len(steps))]
        work = [compute(1000 * step, 1000 * step + 50) for step in range(len(steps))]
        uncertain = residual if rank == 1 else residual / 2
        found.append(a_rank(work, windows, rows, rank=rank, clock_residual_ns=uncertain))
    return found


def told(*ranks: RankView) -> tuple[float, dict[str, float], dict[str, tuple[str, float]]]:
    """All that collectives wait for one rank, ns a step; by rank; the stats of the foremost."""
    whole, *others = rows_of("balance.caused_wait", *ranks)
    by_rank = {row["category"]: row["value"] / NS for row in others if row["stat"] is None}
    stats = {row["stat"]: (row["category"], row["value"]) for row in others if row["stat"]}
    return whole["value"] / NS, by_rank, stats


def test_a_rank_causes_what_comes_after_the_last_but_one() -> None:
    whole, by_rank, stats = told(*ranks_of((0, 10, 30), (0, 5, 25)))
    assert whole == pytest.approx(20)
    assert by_rank == pytest.approx({"0": 0, "1": 0, "2": 20})
    assert stats["steps"] == ("2", 2)
    # Each step is one rank's of three: (1/3)² for one rank, of which there are three.
    assert stats["p_value"] == ("2", pytest.approx(3 / 9))


def test_ranks_that_take_turns_name_nobody() -> None:
    _, by_rank, stats = told(*ranks_of((0, 9), (9, 0), (0, 9), (9, 0)))
    assert by_rank == pytest.approx({"0": 4.5, "1": 4.5})
    assert stats["p_value"][1] == 1


def test_five_steps_of_four_ranks_are_no_chance() -> None:
    _, _, stats = told(*ranks_of(*[(0, 3, 50, 1)] * 5, residual=7.0))
    assert stats["p_value"] == ("2", pytest.approx(4 * 4**-5))
    assert stats["clock_residual"] == ("2", pytest.approx(7 * NS))


def test_ranks_that_are_late_together_cause_no_wait_alone() -> None:
    whole, by_rank, stats = told(*ranks_of((0, 40, 40)))
    assert (whole, set(by_rank.values()), stats) == (0, {0}, {})


def meetings_of(*steps: tuple[tuple[int, ...], ...]) -> list[RankView]:
    """Two or three ranks that meet several times a step, each time so many ns late; 1,000 ns between them."""
    count = len(steps[0][0])
    group = {"group": f"0-{count - 1}", "group_size": count}
    turns = [(step, late) for step, meetings in enumerate(steps) for late in meetings]
    return [
        a_rank(
            [compute(0, 50)],
            [window(0, 1000 * len(turns) + 1000, 0)],
            [
                collective(
                    "all_reduce",
                    1000 * n + late[rank],
                    1000 * n + 900,
                    instance=n,
                    arrival_ns=1000 * n + late[rank],
                    wait_ns=max(late) - late[rank],
                    step=step,
                    **group,
                )
                for n, (step, late) in enumerate(turns)
            ],
            rank=rank,
        )
        for rank in range(count)
    ]


def test_ranks_that_cause_most_together_share_the_step() -> None:
    """In one step ranks 0 and 1 cause 9 ns each, in two more rank 1 alone: 2.5 steps, counted as 2 of 3.

    Of three ranks: P(X ≥ 2) = 3 · 1/9 · 2/3 + 1/27 = 7/27.
    """
    ranks = meetings_of(((9, 0, 0), (0, 9, 0)), ((0, 4, 0),), ((0, 5, 1),))
    whole, by_rank, stats = told(*ranks)
    assert whole == pytest.approx((9 + 9 + 4 + 4) / 3)
    assert by_rank == pytest.approx({"0": 3, "1": 17 / 3, "2": 0})
    assert stats["steps"] == ("1", 2.5)
    assert stats["p_value"] == ("1", pytest.approx(3 * 7 / 27))
    (row, *_) = rows_of("balance.caused_wait", *ranks)
    assert (row["reason"], row["unit"]) == ("4 instances in 3 steps", "s")


@pytest.mark.parametrize(("late", "foremost"), [(((0, 9), (5, 0)), "1"), (((0, 5), (9, 0)), "0")])
def test_of_ranks_with_as_many_steps_the_one_that_causes_more_is_foremost(
    late: tuple[tuple[int, int], ...], foremost: str
) -> None:
    _, _, stats = told(*meetings_of(*((one,) for one in late)))
    assert stats["steps"] == (foremost, 1)


def test_a_step_in_which_nobody_waits_is_nobodys() -> None:
    whole, by_rank, stats = told(*meetings_of(((0, 1),), ((3, 3),), ((0, 1),)))
    assert (whole, by_rank) == (pytest.approx(2 / 3), {"0": 0, "1": pytest.approx(2 / 3)})
    assert stats["steps"] == ("1", 2)
    # Two or all of three steps, each of two ranks' alike: 3/8 + 1/8.
    assert stats["p_value"] == ("1", 1)


def test_what_the_foremost_rank_does_longer_is_told() -> None:
    """It idles 30 and 20 ns more than the others before the first, 25 and 20 before the second."""
    _, _, stats = told(*ranks_of((0, 10, 30), (0, 5, 25)))
    assert stats["excess_idle"] == ("2", pytest.approx((25 + 22.5) / 2 * NS))


def alone(instance: int, at: int, rank: int) -> dict[str, Any]:
    return collective(
        "broadcast",
        at,
        at + 5,
        instance=instance,
        arrival_ns=at,
        wait_ns=0,
        step=0,
        group=str(rank),
        group_size=1,
    )


def test_a_group_of_one_waits_for_nobody() -> None:
    ranks = meetings_of(((0, 9),))
    window_ = [window(0, 2000, 0)]
    with_one = [
        a_rank(
            [compute(0, 50)],
            window_,
            [*rank.tables._collectives, alone(50 + rank.rank, 1500, rank.rank)],
            rank=rank.rank,
        )
        for rank in ranks
    ]
    whole, by_rank, _ = told(*with_one)
    assert (whole, by_rank) == (pytest.approx(9), {"0": 0, "1": pytest.approx(9)})
    only = [a_rank([compute(0, 50)], window_, [alone(n, 1500, n)], rank=n) for n in range(2)]
    (row,) = rows_of("balance.caused_wait", *only)
    assert row["reason"] == "no collective has several ranks"


def test_sends_and_receives_do_not_count() -> None:
    (row,) = rows_of("balance.caused_wait", *ranks_of((0, 9), kind="send"))
    assert "one side waits by design" in row["reason"]


def instances(*parts: tuple[dict[int, int], int | dict[int, int], Sequence[Sequence[int]]]) -> Instances:
    """Each of arrival by rank, in order; what the ranks ran before; what they spent, a row for each."""
    of = [
        (rank, at, before, spent)
        for arrivals, before, spent in parts
        for (rank, at), spent in zip(arrivals.items(), spent, strict=True)
    ]
    count = np.array([len(arrivals) for arrivals, *_ in parts])
    ranks, arrival, before, spent = zip(*of, strict=True)
    rows = [one[rank] if isinstance(one, dict) else one for rank, one in zip(ranks, before, strict=True)]
    return Instances(
        rank=np.array(ranks),
        arrival_ns=np.array(arrival),
        before=np.array(rows),
        spent=np.array(spent).T,
        step=np.zeros(len(ranks), np.int64),
        label=np.zeros(len(ranks), np.int64),
        labels=[],
        first=np.cumsum(count) - count,
        count=count,
        incomplete=0,
    )


def arriving(*arrivals: dict[int, int]) -> Instances:
    """Of which only the arrivals matter."""
    return instances(*((own, 0, [(0, 0, 0, 0)] * len(own)) for own in arrivals))


def test_ranks_that_are_last_together_share_and_ranks_that_all_come_together_are_no_last() -> None:
    found = arriving({0: 1, 1: 2, 5: 3}, {1: 4, 0: 6, 5: 6}, {0: 9, 1: 9}, {5: 7, 1: 8}, {9: 3})
    assert arrives_last(found).tolist() == [0, 0, 1, 0, 1, 1, 0, 0, 0, 1, 0]
    assert last_arrivals([found]) == {
        0: LastArrivals(Fraction(1, 2), 3, {3: 2}),
        1: LastArrivals(Fraction(1), 4, {3: 2, 2: 1}),
        5: LastArrivals(Fraction(3, 2), 3, {3: 2, 2: 1}),
        9: LastArrivals(Fraction(0), 1, {}),
    }


def test_how_much_more_often_than_by_chance_in_standard_deviations() -> None:
    """Variance 4 · 1/4 + 16 · 3/16 = 4, expected 4/2 + 16/4 = 6."""
    own = LastArrivals(Fraction(10), 25, {2: 4, 4: 16})
    assert (own.share, own.excess) == (0.4, pytest.approx(2))
    assert LastArrivals(Fraction(3), 25, {2: 4, 4: 16}).excess == pytest.approx(-1.5)
    assert LastArrivals(Fraction(0), 3, {}).excess == 0


def test_lateness_is_after_the_median_rank_of_the_instance() -> None:
    """Medians 20 of an odd number, 25 of an even one, and of large numbers no overflow."""
    found = arriving({0: 10, 1: 20, 2: 90}, {0: 5, 1: 20, 2: 30, 3: 31}, {0: 7}, {0: 2**62, 1: 2**62 + 2**60})
    half = 2.0**59
    assert lateness(found).tolist() == [-10, 0, 70, -20, -5, 5, 6, 0, -half, half]


@pytest.mark.parametrize(
    ("p", "late_ns", "by_chance", "within_clocks"),
    [
        (SIGNIFICANT, 5.0, True, False),
        (SIGNIFICANT - 1e-9, 5.0, False, False),
        (0.001, 4.0, False, True),
        (0.001, 3.9, False, True),
        (0.5, 4.0, True, True),
    ],
)
def test_a_rank_stands_out_where_neither_chance_nor_clocks_explain_it(
    p: float, late_ns: float, *, by_chance: bool, within_clocks: bool
) -> None:
    one = Foremost(3, LastArrivals(Fraction(1), 1, {2: 1}), p, late_ns, residual_ns=4.0)
    assert (one.by_chance, one.within_clocks) == (by_chance, within_clocks)
    assert one.stands_out is (not by_chance and not within_clocks)
    assert SIGNIFICANT == 0.01


def test_the_foremost_rank_its_p_value_and_how_late_it_is() -> None:
    """Rank 2 is last in 3 of 3 of three ranks, 20, 40 and 90 ns after the median one: 3⁻³ · 3 ranks."""
    found = arriving({0: 0, 1: 10, 2: 30}, {1: 0, 0: 10, 2: 50}, {0: 0, 1: 10, 2: 100}, {0: 0, 1: 1})
    one = foremost([found], last_arrivals([found]), residual_ns=6.0)
    assert (one.rank, one.late_ns, one.residual_ns) == (2, 40, 6)
    assert one.own == LastArrivals(Fraction(3), 3, {3: 3})
    assert one.p == pytest.approx(3**-3 * 3)
    assert foremost([found], last_arrivals([found]), 6.0, tests=4).p == pytest.approx(3**-3 * 3 * 4)
    assert foremost([found], last_arrivals([found]), 6.0, tests=10).p == 1


def test_of_ranks_as_much_above_chance_the_more_often_last_then_the_lower_is_foremost() -> None:
    found = arriving({0: 0, 1: 5}, {1: 0, 0: 5})
    assert foremost([found], last_arrivals([found]), 0.0).rank == 0
    often = {4: LastArrivals(Fraction(2), 4, {2: 4}), 7: LastArrivals(Fraction(4), 8, {2: 8})}
    assert (often[4].excess, often[7].excess) == (0, 0)
    chosen = foremost([found], often, 0.0)
    assert (chosen.rank, chosen.late_ns) == (7, 0)


@pytest.mark.parametrize(
    ("last", "sizes", "expected"),
    [(1, {2: 1}, 1 / 2), (3, {2: 3}, 1 / 8), (2, {3: 3}, 7 / 27), (1, {1: 2}, 1), (2, {2: 2, 3: 1}, 5 / 12)],
)
def test_chance_of_few_trials(last: int, sizes: dict[int, int], expected: float) -> None:
    """Of {2: 2, 3: 1} all three 1/12, two 1/4 · 2/3 + 2 · 1/4 · 1/3 = 4/12."""
    assert chance(Fraction(last), sizes) == pytest.approx(expected, rel=1e-12)


def longer(place: int, *ns: int) -> list[tuple[int, ...]]:
    """Ranks that spent those ns on that of `SPENT`, on all else the same."""
    return [tuple(one if n == place else 5 for n in range(4)) for one in ns]


def of_rank_2(place: int) -> Instances:
    """Rank 2 is last in the first and the third; in the second not, and before the fourth nobody knows."""
    return instances(
        ({0: 10, 1: 20, 2: 40}, 7, longer(place, 1, 3, 10)),
        ({0: 10, 2: 30, 1: 50}, 8, longer(place, 0, 900, 0)),
        (
            {3: 5, 0: 10, 1: 20, 4: 30, 2: 50},
            {0: -1, 1: -1, 2: -1, 3: -1, 4: 6},
            longer(place, 30, 2, 4, 0, 20),
        ),
        ({0: 10, 1: 20, 2: 40}, UNKNOWN_BEFORE, longer(place, 0, 0, 900)),
    )


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (0, "computes longer"),
        (1, "copies longer"),
        (2, "is held up in other communication"),
        (3, "is launched later by its host"),
    ],
)
def test_why_a_rank_is_late_is_the_mean_over_instances_of_the_median_excess(place: int, words: str) -> None:
    """10 − (1, 3) has a median of 8; 20 − (30, 2, 4), of those after the same instance, one of 16."""
    assert cause([of_rank_2(place)], 2, on_host=False) == Cause(SPENT[place], words, 12.0)
    on_host = cause([of_rank_2(place)], 2, on_host=True)
    assert on_host is not None
    assert on_host.words == ("is longer outside its operators" if SPENT[place] == "idle" else words)


@pytest.mark.parametrize("before", [0, 1, 2, 5])
def test_the_instance_before_may_have_any_number(before: int) -> None:
    found = instances(({0: 10, 1: 20}, before, longer(1, 4, 6)))
    assert cause([found], 1, on_host=False) == Cause("copy", "copies longer", 2.0)


def test_without_anything_longer_there_is_no_cause() -> None:
    shorter = instances(({0: 10, 1: 20}, 3, longer(0, 6, 4)))
    assert cause([shorter], 1, on_host=False) is None  # the rest is equal: 0 ns longer
    other_past = instances(({0: 10, 1: 20}, {0: 3, 1: 4}, longer(0, 4, 6)))
    assert cause([other_past], 1, on_host=False) is None
    assert cause([other_past], 0, on_host=False) is None  # it is never last


def test_of_equal_excesses_the_first_is_the_cause() -> None:
    found = instances(({0: 10, 1: 20}, 3, [(1, 1, 1, 1), (2, 2, 2, 2)]))
    assert cause([found], 1, on_host=False) == Cause("compute", "computes longer", 1.0)


@pytest.mark.parametrize("sizes", [{2: 40}, {3: 40}, {4: 40}, {8: 20}, {2: 1, 3: 1}])
def test_a_chance_lies_between_nothing_and_certainty(sizes: dict[int, int]) -> None:
    """Where rounding would leave a sum of densities beyond."""
    trials = sum(sizes.values())
    every = [chance(Fraction(last), sizes) for last in range(trials + 1)]
    assert all(0 <= p <= 1 for p in every)
    assert every[0] == pytest.approx(1)
    assert sorted(every, reverse=True) == pytest.approx(every)
