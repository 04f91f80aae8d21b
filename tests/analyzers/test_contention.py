# SPDX-License-Identifier: Apache-2.0
"""Contention: kernels beside communication and alone, told apart by name, grid and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from helpers.hand_made import a_rank, comm, compute, window
from helpers.hand_values import reason, rows_of, values

from cclbench.analyzers.metric import Value
from cclbench.analyzers.view.rank_view import RankView

METRIC = "compute.contention"
Row = dict[str, Any]


def kernel(start: int, end: int, *grid: int, **columns: Any) -> Row:
    """A kernel of that grid, 8 blocks in a row unless told otherwise."""
    sides = dict(zip(("grid_x", "grid_y", "grid_z"), grid or (8, 1, 1), strict=True))
    return compute(start, end, **{**sides, **columns})


def operator(number: int, shapes: str | None) -> Row:
    """A call of an operator, which has no kind of event."""
    return {"name": "aten::mm", "operator": number, "shapes": shapes}


def a_talk(*rows: Row, **options: Any) -> RankView:
    """A rank that communicates for 100 ns, then not."""
    events = [row for row in rows if "kind" in row]
    calls = [row for row in rows if "kind" not in row]
    return a_rank([comm(0, 100), *events], [window(0, 1000)], operators=calls, **options)


def measured(*rows: Row) -> Value:
    """The ratio."""
    own, _ = values(a_talk(*rows), METRIC)
    return own


def whole(rows: Sequence[Row]) -> dict[int | None, Row]:
    """The rows of ratios, by rank."""
    return {row["rank"]: row for row in rows if row["stat"] is None}


def test_kernels_beside_communication_are_compared_with_the_mean_alone() -> None:
    own = measured(
        *(kernel(0, 30), kernel(30, 54)),  # beside: 30 + 24
        *(kernel(200, 220), kernel(220, 236)),  # alone: 20 and 16, mean 18
        kernel(54, 60, name="copy"),  # never alone
        kernel(300, 309, name="norm"),  # never beside
        kernel(85, 125),  # 15 of 40 inside
        *(compute(60, 70), compute(400, 440)),  # of unknown grid
    )
    # they overlap for 30 + 24 + 15, and take 94 - 3 * 18 longer
    assert own.value == pytest.approx(69 / (69 - 40))
    assert own.words == "left out: 1 overlapped kernels that never run alone"
    assert (own.provenance, own.status) == ("derived", "ok")
    own = measured(kernel(0, 30), kernel(200, 220), *(kernel(n, n + 9, name="only") for n in (30, 40, 50)))
    assert own.left_out == {"overlapped kernels that never run alone": 3}
    # Beside for 10 of 20 and for one of 31 ns is not alone; what begins as communication ends is.
    own = measured(kernel(0, 30), kernel(90, 110), kernel(99, 130), kernel(100, 120))
    assert own.value == pytest.approx(41 / (41 - (81 - 60)))


def test_kernels_that_are_beside_in_part_are_slowed_in_that_part() -> None:
    """Of 100 of work, 20 beside do 10: the kernel ends after 110, and runs at half its speed beside.

    Those that take all of the 20 longer that they are beside, or more, stand still: no factor is enough.
    """
    own, excess = values(a_talk(kernel(80, 190), kernel(300, 400)), METRIC)
    assert own.value == pytest.approx(2)
    assert (excess.value, excess.stat, excess.unit) == (pytest.approx(10e-9), "excess", "s")
    for end in (200, 210):
        own, excess = values(a_talk(kernel(80, end), kernel(300, 400)), METRIC)
        assert (own.value, own.status) == (None, "not_applicable")
        assert own.reason == "kernels take longer by as much as they overlap communication, or more"
        assert excess.value == pytest.approx((end - 180) * 1e-9)
    # The excess is by step.
    rank = a_rank([comm(0, 100), kernel(0, 60), kernel(200, 220)], [window(0, 100), window(100, 1000)])
    assert values(rank, METRIC)[1].value == pytest.approx(40e-9 / 2)


def test_ranks_count_by_what_their_kernels_would_take() -> None:
    ranks = [
        a_talk(kernel(0, beside), kernel(200, 200 + alone), rank=rank)
        for rank, (beside, alone) in enumerate(((60, 20), (30, 30)))
    ]
    run = whole(rows_of(METRIC, *ranks))[None]
    assert run["value"] == pytest.approx(90 / 50)
    assert (run["reason"], run["provenance"]) == (None, "derived")


FIRST, KNOWN, UNKNOWN = kernel(0, 30), operator(1, "[[2]]"), operator(2, None)
BESIDE, ALONE = kernel(0, 40, operator=1), kernel(200, 220)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        *(([FIRST, ALONE | {side: 9}], "alone") for side in ("grid_x", "grid_y", "grid_z")),
        # Kernels that run one way only tell nothing.
        *(([FIRST, kernel(30, 54)], "alone"), ([kernel(200, 230)], "alone")),
        ([FIRST, kernel(200, 200)], "no duration"),
        ([kernel(0, 40, 64, 1, 1), kernel(200, 220, 1, 8, 8), kernel(40, 52, 8, 8, 1)], "alone"),
        # Unknown shapes are not any shapes.
        *(([KNOWN, UNKNOWN, BESIDE, ALONE | {"operator": 2}], "alone"), ([KNOWN, BESIDE, ALONE], "alone")),
        # Ids count from 0 on, and calls of unknown id have negative ones.
        *(([operator(n, "[[2]]"), BESIDE | {"operator": n}, ALONE], "alone") for n in (0, -1)),
    ],
)
def test_kernels_that_are_not_the_same_are_not_compared(rows: list[Row], why: str) -> None:
    assert why in reason(a_talk(*rows), METRIC)


def test_one_grid_with_two_shapes_is_two_kernels() -> None:
    """Of one shape 40 beside and 20 alone, twice; of the other 90 alone only: with it the mean were 43."""
    small, large = "[[2,3],[3,4]]", "[[2,300],[300,4]]"
    operators = [operator(1, small), operator(2, large), operator(3, small), operator(4, small)]
    spans = ((0, 40, 1), (40, 80, 3), (200, 220, 4), (300, 390, 2))
    kernels = [kernel(start, end, operator=number) for start, end, number in spans]
    assert measured(*operators, *kernels).value == pytest.approx(80 / 40)
    assert measured(*kernels).value == pytest.approx(80 / (2 * 55))  # nothing records shapes
    unknown = [kernel(0, 40, operator=2), kernel(200, 220, operator=7), kernel(220, 230)]
    assert measured(UNKNOWN, *unknown).value == pytest.approx(40 / 15)


def test_a_ratio_below_one_is_called_confounded() -> None:
    quicker, same = [kernel(0, 40), kernel(200, 250)], [kernel(0, 30), kernel(200, 230)]
    own = measured(*quicker)
    assert own.value == pytest.approx(0.8)
    assert (own.reason or "").startswith("confounded: ")
    assert (measured(*same).value, measured(*same).reason) == (1, None)
    slower = a_talk(kernel(0, 60), kernel(200, 220), rank=1)
    run = whole(rows_of(METRIC, a_talk(*quicker), slower))[None]
    assert (run["value"], run["reason"], run["better"]) == (pytest.approx(100 / 70), None, None)
    rows = whole(rows_of(METRIC, a_talk(*quicker), a_talk(*same, rank=1)))
    confounded = {rank: (row["reason"] or "").startswith("confounded: ") for rank, row in rows.items()}
    assert confounded == {None: True, 0: True, 1: False}


def slowed(factor: float, seed: int) -> Sequence[Row]:
    """Kernels of three lengths in a row, µs, and collectives that are on for 400 and off for 300.

    A kernel does 1 µs of work in a µs, and 1 / factor where a collective runs.
    """
    on, off, chance = 400.0, 300.0, 0.03
    random = np.random.default_rng(seed)
    time, kernels = 0.0, []
    for i in range(400):
        name, base = (("gemm", 20.0), ("norm", 35.0), ("attention", 50.0))[i % 3]
        left, begin = base * float(random.uniform(1 - chance, 1 + chance)), time
        while left > 1e-9:
            place = time % (on + off)
            beside = place < on
            taken = min((on if beside else on + off) - place, left * factor if beside else left)
            left -= taken / factor if beside else taken
            time += taken
        kernels.append(kernel(round(begin * 1000), round(time * 1000), name=name))
    begins = [round(k * (on + off) * 1000) for k in range(int(time // (on + off)) + 1)]
    return [*(comm(at, at + round(on * 1000)) for at in begins), *kernels]


@pytest.mark.parametrize("factor", [1.0, 1.1, 1.3, 2.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_factor_is_found_again(factor: float, seed: int) -> None:
    """Within what chance does.

    A mean of m lengths within ±3 % of a name's own has a standard deviation of 1.7 % / √m; of each name at
    least 40 ran either way: three times √2 · 1.7 % / √40 is 1.2 %.  Few are beside in part, which adds their
    work that is not: a tenth.
    """
    rank = a_rank(slowed(factor, seed), [window(0, 1 << 40)], rows_a_batch=64)
    own, _ = values(rank, METRIC)
    assert own.value == pytest.approx(factor, rel=0.013)
