# SPDX-License-Identifier: Apache-2.0
"""Contention: kernels beside communication and alone, told apart by name, grid and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from helpers.hand_made import a_rank, comm, compute, reason, rows_of, values, window

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
        kernel(0, 30),  # beside: 30 + 24
        kernel(30, 54),
        kernel(200, 220),  # alone: 20 and 16, mean 18
        kernel(220, 236),
        kernel(54, 60, name="copy"),  # never alone
        kernel(300, 309, name="norm"),  # never beside
        kernel(85, 125),  # 15 of 40 inside
        compute(60, 70),  # of unknown grid
        compute(400, 440),
    )
    # they overlap for 30 + 24 + 15, and take 94 - 3 * 18 longer
    assert own.value == pytest.approx(69 / (69 - 40))
    assert own.words == "left out: 1 overlapped kernels that never run alone"
    assert (own.provenance, own.status) == ("derived", "ok")


def test_what_is_beside_for_a_nanosecond_is_not_alone() -> None:
    own = measured(
        kernel(0, 30),
        kernel(90, 110),  # 10 of 20
        kernel(99, 130),  # one of 31
        kernel(100, 120),  # begins as communication ends: alone
    )
    assert own.value == pytest.approx(41 / (41 - (81 - 60)))


def test_kernels_that_are_beside_in_part_are_slowed_in_that_part() -> None:
    """Of 100 of work, 20 beside do 10: the kernel ends after 110, and runs at half its speed beside."""
    own, excess = values(a_talk(kernel(80, 190), kernel(300, 400)), METRIC)
    assert own.value == pytest.approx(2)
    assert (excess.value, excess.stat, excess.unit) == (pytest.approx(10e-9), "excess", "s")


def test_kernels_that_stand_still_beside_communication_have_no_ratio() -> None:
    """They take all of the 20 longer that they are beside, or more: no factor is large enough."""
    for end in (200, 210):
        own, excess = values(a_talk(kernel(80, end), kernel(300, 400)), METRIC)
        assert (own.value, own.status) == (None, "not_applicable")
        assert own.reason == "kernels take longer by as much as they overlap communication, or more"
        assert excess.value == pytest.approx((end - 180) * 1e-9)


def test_the_excess_is_by_step() -> None:
    rank = a_rank([comm(0, 100), kernel(0, 60), kernel(200, 220)], [window(0, 100), window(100, 1000)])
    assert values(rank, METRIC)[1].value == pytest.approx(40e-9 / 2)


def test_kernels_left_out_are_counted_one_by_one() -> None:
    own = measured(kernel(0, 30), kernel(200, 220), *(kernel(n, n + 9, name="only") for n in (30, 40, 50)))
    assert own.left_out == {"overlapped kernels that never run alone": 3}


def test_ranks_count_by_what_their_kernels_would_take() -> None:
    ranks = [
        a_talk(kernel(0, beside), kernel(200, 200 + alone), rank=rank)
        for rank, (beside, alone) in enumerate(((60, 20), (30, 30)))
    ]
    run = whole(rows_of(METRIC, *ranks))[None]
    assert run["value"] == pytest.approx(90 / 50)
    assert (run["reason"], run["provenance"]) == (None, "derived")


def test_a_ratio_of_one_is_not_confounded() -> None:
    assert (
        measured(kernel(0, 30), kernel(200, 230)).value,
        measured(kernel(0, 30), kernel(200, 230)).reason,
    ) == (1, None)


@pytest.mark.parametrize("side", ["grid_x", "grid_y", "grid_z"])
def test_kernels_of_another_side_of_the_grid_are_others(side: str) -> None:
    assert "alone" in reason(a_talk(kernel(0, 30), kernel(200, 220) | {side: 9}), METRIC)


def test_kernels_that_run_one_way_only_tell_nothing() -> None:
    assert "alone" in reason(a_talk(kernel(0, 30), kernel(30, 54)), METRIC)
    assert "alone" in reason(a_talk(kernel(200, 230)), METRIC)
    assert "no duration" in reason(a_talk(kernel(0, 30), kernel(200, 200)), METRIC)


def test_one_number_of_blocks_in_two_grids_is_two_kernels() -> None:
    """64 blocks each: 40 beside and 20 alone of one grid, 12 and 10 of the other.

    Taken together they would be 52 beside over 2 · 15, 1.73.
    """
    flat, tall = (64, 1, 1), (1, 8, 8)
    own = measured(
        kernel(0, 40, *flat), kernel(200, 220, *flat), kernel(40, 52, *tall), kernel(220, 230, *tall)
    )
    assert own.value == pytest.approx(52 / 30)
    crossed = [kernel(0, 40, *flat), kernel(200, 220, *tall), kernel(40, 52, 8, 8, 1)]
    assert "alone" in reason(a_talk(*crossed), METRIC)


def test_one_grid_with_two_shapes_is_two_kernels() -> None:
    """Of one shape 40 beside and 20 alone, twice; of the other 90 alone only: with it the mean were 43."""
    small, large = "[[2,3],[3,4]]", "[[2,300],[300,4]]"
    operators = [operator(1, small), operator(2, large), operator(3, small), operator(4, small)]
    kernels = [
        kernel(0, 40, operator=1),
        kernel(40, 80, operator=3),
        kernel(200, 220, operator=4),
        kernel(300, 390, operator=2),
    ]
    assert measured(*operators, *kernels).value == pytest.approx(80 / 40)
    assert measured(*kernels).value == pytest.approx(80 / (2 * 55))  # nothing records shapes


def test_unknown_shapes_are_not_any_shapes() -> None:
    known, none = operator(1, "[[2]]"), operator(2, None)
    kernels = [kernel(0, 40, operator=1), kernel(200, 220, operator=2)]
    assert "alone" in reason(a_talk(known, none, *kernels), METRIC)
    launched_by_nobody = [kernel(0, 40, operator=1), kernel(200, 220)]
    assert "alone" in reason(a_talk(known, *launched_by_nobody), METRIC)
    unknown = [kernel(0, 40, operator=2), kernel(200, 220, operator=7), kernel(220, 230)]
    assert measured(none, *unknown).value == pytest.approx(40 / 15)


@pytest.mark.parametrize("number", [0, -1, 1])
def test_a_kernel_that_no_operator_launched_has_no_operators_shapes(number: int) -> None:
    """Ids count from 0 on, and calls of unknown id have negative ones."""
    kernels = [kernel(0, 40, operator=number), kernel(200, 220)]
    assert "alone" in reason(a_talk(operator(number, "[[2]]"), *kernels), METRIC)


@pytest.mark.parametrize("blocks", [1 << 31, (1 << 32) + 8, (1 << 40) + 8, 1 << 62])
def test_large_grids_of_two_names_stay_apart(blocks: int) -> None:
    """80 beside over 30 + 2 · 10; as one kernel they would be over 3 · 20."""
    rows = [
        kernel(0, 40, blocks, 1, 1),
        kernel(200, 230, blocks, 1, 1),
        kernel(40, 60, name="norm"),
        kernel(60, 80, name="norm"),
        kernel(230, 240, name="norm"),
    ]
    assert measured(*rows).value == pytest.approx(80 / 50)
    other = rows[1] | {"grid_x": blocks + 1}
    assert measured(rows[0], other, *rows[2:]).value == pytest.approx(40 / 20)


def test_a_ratio_below_one_is_called_confounded() -> None:
    quicker = [kernel(0, 40), kernel(200, 250)]
    own = measured(*quicker)
    assert own.value == pytest.approx(0.8)
    assert (own.reason or "").startswith("confounded: ")
    slower = a_talk(kernel(0, 60), kernel(200, 220), rank=1)
    run = whole(rows_of(METRIC, a_talk(*quicker), slower))[None]
    assert (run["value"], run["reason"], run["better"]) == (pytest.approx(100 / 70), None, None)
    rows = rows_of(METRIC, a_talk(*quicker), a_talk(kernel(0, 30), kernel(200, 230), rank=1))
    said = {rank: row["reason"] for rank, row in whole(rows).items()}
    assert {rank: (reason or "").startswith("confounded: ") for rank, reason in said.items()} == {
        None: True,
        0: True,
        1: False,
    }


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
