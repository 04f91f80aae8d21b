# SPDX-License-Identifier: Apache-2.0
"""The same kernels on several ranks and over time, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from helpers.hand_made import a_rank, comm, compute, window
from helpers.hand_values import parts, reason, rows_of, run_parts, values

from cclbench.analyzers.view.rank_view import RankView


def kernel(start: int, ns: int, name: str = "gemm", grid: int = 8) -> dict[str, Any]:
    return compute(start, start + ns, name=name, grid_x=grid, grid_y=1, grid_z=1)


def occurrences(*durations: tuple[int, ...], more: Sequence[dict[str, Any]] = ()) -> list[RankView]:
    """A rank of each tuple: kernels of those durations, 100 ns apart; of the last one more."""
    last = len(durations) - 1
    return [
        a_rank(
            [
                *(kernel(100 * n, ns, name=f"k{n}") for n, ns in enumerate(own)),
                *(more if rank == last else ()),
            ],
            [window(0, 1000)],
            rank=rank,
        )
        for rank, own in enumerate(durations)
    ]


def by_rank(*views: RankView) -> dict[str, float | None]:
    found = run_parts("balance.kernel_speed", *views)
    return {about: speed for about, speed in found.items() if isinstance(about, str)}


def test_a_rank_is_compared_with_the_median_rank() -> None:
    ranks = occurrences((10, 40), (10, 40), (15, 60))
    assert by_rank(*ranks) == pytest.approx({"0": 1, "1": 1, "2": 1.5})
    assert rows_of("balance.kernel_speed", *ranks)[0]["value"] == pytest.approx(1.5)
    # Kernels count by their time and number: medians are 10 and 40, and rank 2 runs the short one twice, in
    # 20 each: (20 + 20 + 40) / (10 + 10 + 40).
    ranks = occurrences((10, 40), (10, 40), (20, 40), more=[kernel(500, 20, "k0")])
    assert by_rank(*ranks)["2"] == pytest.approx(80 / 60)


def test_more_work_is_no_slower_device() -> None:
    more = [kernel(500, 300, "more"), kernel(850, 30, "k0", grid=99), comm(900, 990, name="k1")]
    ranks = occurrences((10, 40), (10, 40), (10, 40), more=more)
    assert by_rank(*ranks)["2"] == 1
    row = rows_of("balance.kernel_speed", *ranks)[0]
    assert (row["status"], row["coverage"]) == ("partial", pytest.approx(6 / 8))
    assert row["coverage_time"] == pytest.approx(150 / (150 + 330))
    # Kernels without duration are not compared.
    ranks = occurrences((10, 40), (10, 40), more=[kernel(500, 0, "none")])
    assert by_rank(*ranks) == {"0": 1, "1": 1}
    assert rows_of("balance.kernel_speed", *ranks)[0]["status"] == "ok"


def test_the_64_kernels_of_most_time_are_compared() -> None:
    """63 take as long on both ranks; of two shorter ones the 64th is compared, the 65th is not."""
    ranks = [
        a_rank(
            [kernel(200 * n, ns, name=f"k{n:02}") for n, ns in enumerate((*own, *[100] * 63))],
            [window(0, 20_000)],
            rank=rank,
        )
        for rank, own in enumerate(((10, 80), (70, 90)))
    ]
    assert by_rank(*ranks) == pytest.approx({"0": 6380 / 6385, "1": 6390 / 6385})


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


def test_one_rank_is_compared_with_nobody() -> None:
    (row,) = rows_of("balance.kernel_speed", *occurrences((10, 40)))
    assert row["status"] == "not_applicable"
    apart = [a_rank([kernel(0, 10, name)], [window(0, 100)], rank=n) for n, name in enumerate("ab")]
    assert rows_of("balance.kernel_speed", *apart)[0]["reason"] == "no kernel runs on all ranks"


def windows_of(*kernels: tuple[int, int, str], count: int = 9, rank: int = 0) -> RankView:
    """So many windows of 100 ns; of each kernel its window, duration and name."""
    place = [0] * count
    rows = []
    for number, ns, name in kernels:
        rows.append(kernel(100 * number + place[number], ns, name))
        place[number] += ns
    return a_rank(rows, [window(100 * n, 100 * n + 100, n) for n in range(count)], rank=rank)


def over_time(*durations: int) -> list[tuple[int, int, str]]:
    """A kernel of each duration in a window of its own."""
    return [(n, ns, "gemm") for n, ns in enumerate(durations)]


ALIKE = over_time(*[10] * 9)
EARLY = [(0, 30, "early"), (1, 30, "early"), (2, 60, "early")]
LATE = [(6, 30, "late"), (7, 30, "late"), (8, 60, "late")]


@pytest.mark.parametrize(
    ("kernels", "drift", "longer"),
    [
        (over_time(10, 11, 12, 20, 20, 20, 13, 14, 15), (13 + 14 + 15) / (10 + 11 + 12), 1),
        # Of nine pairs 11 > 10, 12 > 10, 12 > 11 and three ties, each half a pair.
        (over_time(10, 12, 11, 10, 10, 10, 11, 10, 12), 1, (3 + 3 / 2) / 9),
        # Other kernels later are no drift, nor what runs early alone or late alone.
        ([*ALIKE, *((n, 40, "other") for n in range(6, 9))], 1, 1 / 2),
        ([*ALIKE, *EARLY, *LATE], 1, 1 / 2),
        # A third is rounded down: of eleven windows the first three and the last three.
        (over_time(10, 10, 10, 99, 99, 99, 99, 99, 20, 20, 20), 2, 1),
        # A window without kernels is in no pair: early 10 and 20 ns, a mean of 15; late 12 and 30.
        ([(0, 10, "gemm"), (2, 20, "gemm"), (6, 12, "gemm"), (8, 30, "gemm")], 42 / 30, 3 / 4),
        # Kernels count by how often they run late: early a of 10 and b of 30 ns, late a twice 20, b once 30:
        # 70 for what took 50.  Late windows: 20 for 10 and 50 for 40; all four pairs are longer.
        ([(0, 10, "a"), (1, 30, "b"), (7, 20, "a"), (8, 20, "a"), (8, 30, "b")], 70 / 50, 1),
    ],
)
def test_a_device_slows_down_or_not(kernels: list[tuple[int, int, str]], drift: float, longer: float) -> None:
    rank = windows_of(*kernels, count=11 if len(kernels) == 11 else 9)
    assert parts(rank, "compute.drift") == pytest.approx({None: drift, "later_longer": longer})
    assert values(rank, "compute.drift")[0].status == "ok"


def test_why_there_is_no_drift() -> None:
    assert "fewer than 9 windows" in reason(windows_of(*ALIKE[:8], count=8), "compute.drift")
    assert reason(windows_of(*EARLY, *LATE), "compute.drift") == (
        "no kernel runs in both the first and the last third of the windows"
    )
    talk = [comm(100 * n, 100 * n + 10) for n in range(9)]
    rank = a_rank(talk, [window(100 * n, 100 * n + 100, n) for n in range(9)])
    assert reason(rank, "compute.drift") == "no compute kernel begins in the window"


def test_drifts_of_ranks_count_by_what_their_kernels_would_have_taken() -> None:
    thirds = ((10, 10, 20), (30, 30, 30))
    views = [windows_of(*over_time(*np.repeat(own, 3).tolist()), rank=n) for n, own in enumerate(thirds)]
    assert run_parts("compute.drift", *views)[None] == pytest.approx((60 + 90) / (30 + 90))
