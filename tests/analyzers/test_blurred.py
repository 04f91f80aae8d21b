# SPDX-License-Identifier: Apache-2.0
"""Kernels of unknown or of mixed purpose: figures that rest on telling compute from communication say so."""

from __future__ import annotations

import pytest
from helpers.hand_made import a_rank, comm, compute, event, main, reason, values, window

from cclbench.analyzers.metric import Coverage
from cclbench.analyzers.view.blurred import INVISIBLE

NS = 1e-9
RESTING = ("overlap.ratio", "overlap.efficiency", "overlap.exposed_by", "comm.time", "comm.fraction")


def strange(start: int, end: int, category: str | None = "other") -> dict:
    return event("kernel", start, end, category=category, name="who knows", track=9)


def test_more_than_a_tenth_of_unknown_kernels_makes_overlap_partial() -> None:
    rank = a_rank([compute(0, 60), comm(40, 70), strange(70, 90)], [window(0, 100, 1)])
    for metric in RESTING:
        first = values(rank, metric)[0]
        assert (first.status, first.coverage) == ("partial", Coverage(2, 3, 90, 110)), metric
        assert first.reason == "18.2 % of the kernels' time is of unknown category and counts as compute"
    assert main(rank, "overlap.ratio", "partial") == pytest.approx(20 / 30)
    assert main(rank, "time.exposed_comm", "partial") == pytest.approx(10 * NS)
    assert main(rank, "time.step") == pytest.approx(100 * NS)
    # Up to a tenth is no matter.
    rank = a_rank([compute(0, 60), comm(40, 70), strange(70, 80)], [window(0, 100, 1)])
    assert {values(rank, metric)[0].status for metric in RESTING} == {"ok"}


def test_without_known_communication_there_may_be_some() -> None:
    rank = a_rank([compute(0, 60), strange(60, 90)], [window(0, 100, 1)])
    unknown = "33.3 % of the kernels' time is of unknown category and counts as compute"
    assert reason(rank, "overlap.ratio") == f"no communication is known in the window: {unknown}"
    assert reason(rank, "overlap.exposed_by") == f"no communication is known: {unknown}"
    assert main(rank, "comm.time", "partial") == 0
    # A cpu has operators.
    rank = a_rank([event("op", 0, 10, name="aten::mm", category="other")], [window(0, 20)], works_on="host")
    assert main(rank, "comm.time") == 0


def test_a_fused_kernel_is_in_neither_exactly() -> None:
    rank = a_rank([compute(0, 60), comm(40, 70), strange(70, 71, "fused")], [window(0, 100, 1)])
    first = values(rank, "overlap.ratio")[0]
    assert (first.status, first.coverage) == ("partial", Coverage(2, 3, 90, 91))
    assert (
        first.reason
        == f"1.00 ns of kernels that compute and communicate at once count as compute: {INVISIBLE}"
    )
    assert main(rank, "time.compute_only", "partial") == pytest.approx(41 * NS)


def test_of_a_window_only_the_kernels_that_begin_in_it_count() -> None:
    """Of 100 ns of kernels 12 are of no category, 7 fused; what begins before or after does not count."""
    rows = [
        *(compute(0, 8), strange(90, 500), strange(110, 115), compute(120, 190), strange(130, 137, None)),
        *(strange(140, 147, "fused"), comm(150, 161), strange(205, 999)),
    ]
    one = a_rank(rows, [window(100, 200, 1)]).blurred
    fused = f"7.00 ns of kernels that compute and communicate at once count as compute: {INVISIBLE}"
    unknown = "12.0 % of the kernels' time is of unknown category and counts as compute"
    assert (one.coverage, one.reason) == (Coverage(2, 5, 81, 100), f"{fused}; {unknown}")
    # Unknown kernels that do not matter are known beside fused ones.
    rows = [compute(0, 90), strange(90, 95), strange(95, 99, "fused"), strange(95, 98, "fused")]
    one = a_rank(rows, [window(0, 100, 1)]).blurred
    assert (one.coverage, one.reason) == (Coverage(2, 4, 95, 102), fused)


def test_a_share_of_a_tenth_of_unknown_kernels_is_still_exact() -> None:
    exact = [compute(0, 900), strange(900, 1000)]
    for rows in (exact, [strange(5, 5)], []):
        assert a_rank(rows, [window(0, 2000, 1)]).blurred is None
    above = a_rank([compute(0, 899), strange(900, 1000)], [window(0, 2000, 1)]).blurred
    assert above.coverage == Coverage(1, 2, 899, 999)
