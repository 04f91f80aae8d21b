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


def test_sends_and_receives_do_not_count() -> None:
    (row,) = rows_of("balance.caused_wait", *ranks_of((0, 9), kind="send"))
    assert "one side waits by design" in row["reason"]
