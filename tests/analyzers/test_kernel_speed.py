# SPDX-License-Identifier: Apache-2.0
"""The same kernels on several ranks and over time, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hand_made import a_rank, comm, compute, main, reason, rows_of, values, window

from cclbench.analyzers.view.rank_view import RankView


def kernel(start: int, ns: int, name: str = "gemm", grid: int = 8) -> dict[str, Any]:
    return compute(start, start + ns, name=name, grid_x=grid, grid_y=1, grid_z=1)


def ranks_of(
    *durations: tuple[int, ...], more: dict[int, list[dict[str, Any]]] | None = None
) -> list[RankView]:
    """A rank of each tuple: kernels of those durations, 100 ns apart."""
    return [
        a_rank(
            [*(kernel(100 * n, ns, name=f"k{n}") for n, ns in enumerate(own)), *(more or {}).get(rank, [])],
            [window(0, 1000)],
            rank=rank,
        )
        for rank, own in enumerate(durations)
    ]


def by_rank(*views: RankView) -> dict[str, float]:
    rows = rows_of("balance.kernel_speed", *views)
    return {row["category"]: row["value"] for row in rows if row["category"] is not None}


def test_a_rank_is_compared_with_the_median_rank() -> None:
    ranks = ranks_of((10, 40), (10, 40), (15, 60))
    assert by_rank(*ranks) == pytest.approx({"0": 1, "1": 1, "2": 1.5})
    assert rows_of("balance.kernel_speed", *ranks)[0]["value"] == pytest.approx(1.5)


def test_kernels_count_by_their_time_and_number() -> None:
    # Medians are 10 and 40: rank 2 runs the short one twice, in 20 each: (20 + 20 + 40) / (10 + 10 + 40).
    ranks = ranks_of((10, 40), (10, 40), (20, 40), more={2: [kernel(500, 20, "k0")]})
    assert by_rank(*ranks)["2"] == pytest.approx(80 / 60)


def test_more_work_is_no_slower_device() -> None:
    more = [kernel(500, 300, "more"), kernel(850, 30, "k0", grid=99), comm(900, 990, name="k1")]
    ranks = ranks_of((10, 40), (10, 40), (10, 40), more={2: more})
    assert by_rank(*ranks)["2"] == 1
    row = rows_of("balance.kernel_speed", *ranks)[0]
    assert (row["status"], row["coverage"]) == ("partial", pytest.approx(6 / 8))


def test_one_rank_is_compared_with_nobody() -> None:
    (row,) = rows_of("balance.kernel_speed", *ranks_of((10, 40)))
    assert row["status"] == "not_applicable"
    apart = [a_rank([kernel(0, 10, name)], [window(0, 100)], rank=n) for n, name in enumerate("ab")]
    assert rows_of("balance.kernel_speed", *apart)[0]["reason"] == "no kernel runs on all ranks"


def over_time(*durations: int) -> RankView:
    """A window of 100 ns for each duration, with one kernel of it."""
    rows = [kernel(100 * n, ns) for n, ns in enumerate(durations)]
    return a_rank(rows, [window(100 * n, 100 * n + 100, n) for n in range(len(durations))])


def longer(rank: RankView) -> float | None:
    (found,) = [value for value in values(rank, "compute.drift") if value.stat == "later_longer"]
    return found.value


def test_a_device_that_slows_down() -> None:
    rank = over_time(10, 11, 12, 20, 20, 20, 13, 14, 15)
    assert main(rank, "compute.drift") == pytest.approx((13 + 14 + 15) / (10 + 11 + 12))
    assert longer(rank) == 1


def test_a_device_that_does_not() -> None:
    rank = over_time(10, 12, 11, 10, 10, 10, 11, 10, 12)
    assert main(rank, "compute.drift") == 1
    # Of nine pairs 11 > 10, 12 > 10, 12 > 11 and three ties, each half a pair.
    assert longer(rank) == pytest.approx((3 + 3 / 2) / 9)


def test_other_kernels_later_are_no_drift() -> None:
    durations = [10] * 9
    rows = [kernel(100 * n, ns) for n, ns in enumerate(durations)]
    rows += [kernel(100 * n + 50, 40, "other") for n in range(6, 9)]
    rank = a_rank(rows, [window(100 * n, 100 * n + 100, n) for n in range(9)])
    assert main(rank, "compute.drift") == 1


def test_few_windows_show_no_drift() -> None:
    assert "fewer than 9 windows" in reason(over_time(*[10] * 8), "compute.drift")
