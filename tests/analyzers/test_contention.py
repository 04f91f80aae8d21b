# SPDX-License-Identifier: Apache-2.0
"""Kernels beside communication and communication inside kernels, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from helpers.hand_made import Evidence, a_rank, comm, compute, event, job_values, window
from helpers.hand_values import reason, rows_of, told, values

from cclbench.analyzers.inside_kernels import NO_FUSED, NO_SAMPLES
from cclbench.analyzers.metric import Value
from cclbench.analyzers.view.rank_view import RankView
from cclbench.classify import kernel_category

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


FLASH_MOE = "void flashmoe::moe::forward<flashmoe::moe::MoEConfig<float>, 1>(int)"


def rank_with(*kernels: tuple[int, int], rank: int = 0) -> RankView:
    """A rank with those kernels of FlashMoE, and a product before and after them."""
    category = kernel_category(FLASH_MOE)
    fused = [event("kernel", *each, name=FLASH_MOE, category=category) for each in kernels]
    return a_rank([compute(0, 100), *fused, compute(900, 1000)], [window(0, 1000, 1)], rank=rank)


def samples(counter: str, *values: float, begin: int = 100, rank: int | None = 0) -> list[dict[str, Any]]:
    """Samples of 100 ns each, one after the other."""
    times = ((begin + 100 * place, begin + 100 * (place + 1)) for place in range(len(values)))
    own = {"counter": counter, "source": "nsys", "file": "a.sqlite", "rank": rank}
    return [
        own | {"start_ns": start, "end_ns": end, "value": value}
        for (start, end), value in zip(times, values, strict=True)
    ]


def test_both_sides_of_a_kernel_are_seen_by_samples_within_it() -> None:
    """A kernel of 400 ns from 150: three samples lie within it, one each with both, links alone, neither."""
    links = samples("nvlink_tx_utilization", 0.9, 0, 0.5, 0, 1, 1)
    received = samples("nvlink_rx_bytes", 0, 64, 0, 0, 0, 0)
    tensor = samples("tensor_active", 1, 0.3, 0, 0, 0.2, 1)
    counters = Evidence(counters=links + received + tensor)
    found = told(job_values("overlap.inside_kernels", counters, rank_with((150, 550))))
    assert found == pytest.approx(
        {None: 1 / 3, "covered": 0.75, "communicating": 1 / 3, "computing": 0, "neither": 1 / 3}
    )


def test_counters_of_other_ranks_and_outside_kernels_do_not_count() -> None:
    ranks = rank_with((100, 300)), rank_with((500, 700), rank=1)
    links = samples("pcie_rx_bytes", 1, 1, rank=0) + samples("pcie_rx_bytes", 0, 0, begin=500, rank=1)
    tensor = samples("tensor_active", 1, 1, rank=0) + samples("tensor_active", 1, 0, begin=500, rank=1)
    tensor += samples("tensor_active", 1, 1, begin=500, rank=0)
    found = told(job_values("overlap.inside_kernels", Evidence(counters=links + tensor), *ranks))
    assert found == pytest.approx(
        {None: 0.5, "covered": 1, "communicating": 0, "computing": 0.25, "neither": 0.25}
    )


@pytest.mark.parametrize(
    ("counters", "kernels", "reason"),
    [
        ([], [(100, 200)], NO_SAMPLES),
        (samples("nvlink_tx_bytes", 1), [(100, 200)], NO_SAMPLES),
        (samples("nvlink_tx_bytes", 1) + samples("tensor_active", 1), [], NO_FUSED),
        # Samples that begin before the kernel or end after it show its neighbours as well.
        (samples("nvlink_tx_bytes", 1) + samples("tensor_active", 1), [(110, 800)], "no sample lies within"),
    ],
)
def test_without_samples_within_kernels_there_is_no_share(
    counters: list[dict[str, Any]], kernels: list[tuple[int, int]], reason: str
) -> None:
    (none,) = job_values("overlap.inside_kernels", Evidence(counters=counters), rank_with(*kernels))
    assert (none.value, none.status) == (None, "not_applicable")
    assert (none.reason or "").startswith(reason)
