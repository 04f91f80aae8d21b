# SPDX-License-Identifier: Apache-2.0
"""How long collectives wait for one rank alone, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hand_made import a_rank, collective, compute, rows_of, window

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
