# SPDX-License-Identifier: Apache-2.0
"""The same kernels on several ranks and over time, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import a_rank, comm, compute, main, reason, rows_of, values, window

from cclbench.analyzers.view.rank_view import RankView


def kernel(start: int, ns: int, name: str = "gemm", grid: int = 8) -> dict[str, Any]:
    return compute(start, start + ns, name=name, grid_x=grid, grid_y=1, grid_z=1)


def occurrences(
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
    ranks = occurrences((10, 40), (10, 40), (15, 60))
    assert by_rank(*ranks) == pytest.approx({"0": 1, "1": 1, "2": 1.5})
    assert rows_of("balance.kernel_speed", *ranks)[0]["value"] == pytest.approx(1.5)


def test_kernels_count_by_their_time_and_number() -> None:
    # Medians are 10 and 40: rank 2 runs the short one twice, in 20 each: (20 + 20 + 40) / (10 + 10 + 40).
    ranks = occurrences((10, 40), (10, 40), (20, 40), more={2: [kernel(500, 20, "k0")]})
    assert by_rank(*ranks)["2"] == pytest.approx(80 / 60)


def test_more_work_is_no_slower_device() -> None:
    more = [kernel(500, 300, "more"), kernel(850, 30, "k0", grid=99), comm(900, 990, name="k1")]
    ranks = occurrences((10, 40), (10, 40), (10, 40), more={2: more})
    assert by_rank(*ranks)["2"] == 1
    row = rows_of("balance.kernel_speed", *ranks)[0]
    assert (row["status"], row["coverage"]) == ("partial", pytest.approx(6 / 8))
    assert row["coverage_time"] == pytest.approx(150 / (150 + 330))


def test_the_64_kernels_of_most_time_are_compared() -> None:
    """63 take as long on both ranks; of two shorter ones the 64th is compared, the 65th is not."""
    alike = [100] * 63
    ranks = [
        a_rank(
            [kernel(200 * n, ns, name=f"k{n:02}") for n, ns in enumerate(own)], [window(0, 20_000)], rank=rank
        )
        for rank, own in enumerate(((10, 80, *alike), (70, 90, *alike)))
    ]
    assert by_rank(*ranks) == pytest.approx({"0": 6380 / 6385, "1": 6390 / 6385})


def test_kernels_without_duration_are_not_compared() -> None:
    ranks = occurrences((10, 40), (10, 40), more={1: [kernel(500, 0, "none")]})
    assert by_rank(*ranks) == {"0": 1, "1": 1}
    assert rows_of("balance.kernel_speed", *ranks)[0]["status"] == "ok"


def test_a_kernel_of_unknown_grid_is_not_one_of_a_known_grid() -> None:
    none = {"grid_y": 0, "grid_z": 0}
    rows = [compute(0, 10, name="k"), kernel(0, 30, "k", grid=0) | none, kernel(0, 30, "k", grid=1)]
    first, *others = (a_rank([row], [window(0, 100)], rank=n) for n, row in enumerate(rows))
    for other in others:
        assert rows_of("balance.kernel_speed", first, other)[0]["reason"] == "no kernel runs on all ranks"
    same = a_rank([compute(0, 30, name="k")], [window(0, 100)], rank=1)
    assert by_rank(first, same) == pytest.approx({"0": 10 / 20, "1": 30 / 20})


@pytest.mark.parametrize("axis", ["grid_x", "grid_y", "grid_z"])
def test_each_side_of_the_grid_tells_kernels_apart(axis: str) -> None:
    one, other = (a_rank([kernel(0, 10) | {axis: size}], [window(0, 100)], rank=size) for size in (2, 3))
    assert rows_of("balance.kernel_speed", one, other)[0]["reason"] == "no kernel runs on all ranks"


def test_communication_alone_is_no_compute_kernel() -> None:
    rows = [comm(100 * n, 100 * n + 10) for n in range(9)]
    rank = a_rank(rows, [window(100 * n, 100 * n + 100, n) for n in range(9)])
    assert reason(rank, "compute.drift") == "no compute kernel begins in the window"


def test_one_rank_is_compared_with_nobody() -> None:
    (row,) = rows_of("balance.kernel_speed", *occurrences((10, 40)))
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


def test_a_third_is_rounded_down() -> None:
    """Of eleven windows the first three and the last three."""
    rank = over_time(10, 10, 10, 99, 99, 99, 99, 99, 20, 20, 20)
    assert main(rank, "compute.drift") == 2


def nine_windows(*kernels: tuple[int, int, str]) -> RankView:
    """Nine windows of 100 ns; of each kernel its window, duration and name."""
    place = [0] * 9
    rows = []
    for number, ns, name in kernels:
        rows.append(kernel(100 * number + place[number], ns, name))
        place[number] += ns
    return a_rank(rows, [window(100 * n, 100 * n + 100, n) for n in range(9)])


def test_what_runs_early_alone_or_late_alone_is_in_no_window_compared() -> None:
    common = [(n, 10, "gemm") for n in range(9)]
    early = [(0, 30, "early"), (1, 30, "early"), (2, 60, "early")]
    late = [(6, 30, "late"), (7, 30, "late"), (8, 60, "late")]
    rank = nine_windows(*common, *early, *late)
    assert (main(rank, "compute.drift"), longer(rank)) == (1, 0.5)
    assert reason(nine_windows(*early, *late), "compute.drift") == (
        "no kernel runs in both the first and the last third of the windows"
    )


def test_a_window_without_kernels_is_in_no_pair() -> None:
    """Early 10 and 20 ns, a mean of 15; late 12 and 30: of four pairs three are longer."""
    rank = nine_windows(*((n, ns, "gemm") for n, ns in ((0, 10), (2, 20), (6, 12), (8, 30))))
    assert main(rank, "compute.drift") == pytest.approx(42 / 30)
    assert longer(rank) == 3 / 4


def test_kernels_count_by_how_often_they_run_late() -> None:
    """Early a of 10 and b of 30 ns; late a twice 20, b once 30: 70 for what took 50."""
    rank = nine_windows((0, 10, "a"), (1, 30, "b"), (7, 20, "a"), (8, 20, "a"), (8, 30, "b"))
    assert main(rank, "compute.drift") == pytest.approx(70 / 50)
    # Late windows: 20 for 10 and 50 for 40; early ones as their own mean: all four pairs are longer.
    assert longer(rank) == 1


def test_drifts_of_ranks_count_by_what_their_kernels_would_have_taken() -> None:
    views = [
        nine_windows(*((n, own[n // 3], "gemm") for n in range(9))) for own in ((10, 10, 20), (30, 30, 30))
    ]
    for rank, view in enumerate(views):
        view.rank = rank
    run, *_ = (row for row in rows_of("compute.drift", *views) if row["rank"] is None)
    assert run["value"] == pytest.approx((60 + 90) / (30 + 90))


def test_few_windows_show_no_drift() -> None:
    assert "fewer than 9 windows" in reason(over_time(*[10] * 8), "compute.drift")
