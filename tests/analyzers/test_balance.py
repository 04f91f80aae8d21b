# SPDX-License-Identifier: Apache-2.0
"""Balance over ranks: the busiest, the delay by the last, and the job without stragglers; by hand."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import Evidence, a_rank, collective, comm, compute, of_run, rows_of, window

from cclbench.analyzers.metric import Coverage, Value
from cclbench.analyzers.view.rank_view import RankView
from cclbench.replay.stragglers import StragglerSlowdown

LOAD, DELAY, SLOWDOWN = (
    f"balance.{name}" for name in ("load_imbalance", "straggler_delay", "straggler_slowdown")
)


def test_the_busiest_rank_is_compared_with_the_mean_over_steps() -> None:
    """80 ns of compute in four steps, 20 of them beside communication; 60 in two: 20 and 30 a step."""
    first = a_rank([compute(0, 80), comm(60, 90)], [window(25 * n, 25 * n + 25, n) for n in range(4)], rank=0)
    second = a_rank([compute(0, 60)], [window(0, 50, 0), window(50, 100, 1)], rank=1)
    (row,) = rows_of(LOAD, first, second)
    assert row["value"] == pytest.approx(30 / 25)
    assert (row["reason"], row["status"]) == ("over 2 ranks", "ok")


def test_balance_takes_two_ranks_that_compute_and_is_partial_without_the_worlds_others() -> None:
    one, idle = a_rank([compute(0, 10)], [window(0, 50)]), a_rank([comm(0, 10)], [window(0, 50)], rank=1)
    assert rows_of(LOAD, one)[0]["reason"] == "needs at least two ranks"
    idle_too = a_rank([comm(0, 10)], [window(0, 50)], rank=2)
    assert rows_of(LOAD, idle, idle_too)[0]["reason"] == "no rank computes in the window"
    assert rows_of(LOAD, one, idle)[0]["value"] == 2
    # Ranks of the world without a trace leave the balance partial.
    ranks = [
        a_rank([compute(0, 10)], [window(0, 50)], rank=n, world_size=size) for n, size in enumerate((None, 8))
    ]
    (row,) = rows_of(LOAD, *ranks)
    assert (row["value"], row["status"], row["coverage"]) == (1, "partial", 2 / 8)


def late(*instances: tuple[int, ...], windows: tuple[int, ...]) -> list[RankView]:
    """Ranks that arrive at each instance so late, in windows of those lengths."""

    def met(rank: int, instance: int, own: tuple[int, ...]) -> dict[str, Any]:
        at, last = 100 * instance + own[rank], 100 * instance + max(own)
        group = {"group": f"0-{len(own) - 1}", "group_size": len(own), "rank": rank, "instance": instance}
        return collective("all_reduce", at, last + 10, arrival_ns=at, wait_ns=last - at, **group)

    return [
        a_rank(
            [compute(0, 5)],
            [window(0, length)],
            [met(rank, n, own) for n, own in enumerate(instances)],
            rank=rank,
        )
        for rank, length in enumerate(windows)
    ]


def test_the_delay_is_what_ranks_wait_after_the_median_one() -> None:
    """Medians 15 and 0: the ranks wait 0 + 9, 35 + 0, 35 + 9 and 30 + 9, each of its own window."""
    rows = rows_of(DELAY, *late((50, 0, 10, 20), (0, 9, 0, 0), windows=(400, 400, 400, 800)))
    assert rows[0]["value"] == pytest.approx((9 / 400 + 35 / 400 + 44 / 400 + 39 / 800) / 4)
    assert rows[0]["reason"] == "over 4 ranks"
    three = rows_of(DELAY, *late((50, 0, 10), windows=(200, 200, 200)))
    assert three[0]["value"] == pytest.approx((0 + 40 + 40) / 200 / 3)


def slowed(found: StragglerSlowdown | None, ranks: int = 2) -> list[Value]:
    told = None if found is None else lambda: found
    return of_run(SLOWDOWN, Evidence(), ranks=range(ranks), slowdown=told)


FOUND = StragglerSlowdown(
    job=1.25, bounds=(1.25, 1.5), step_ns=5e6, ideal_ns=4e6, causes={"compute": 1.2, "copy": 1.0},
    operators={"gemm": 1.15}, ranks={0: 1.0, 1: 1.25}, places={("pp", 1): 1.1}, roles=3, transfers=6,
    all_transfers=8,
)  # fmt: skip


def test_a_job_without_stragglers_by_cause_place_and_rank() -> None:
    found = slowed(FOUND)
    bounds = [(1.25, None, None), (1.25, None, None), (1.5, None, None)]
    causes = [(1.2, "compute"), (1.0, "copy"), (1.15, "operator gemm"), (1.1, "pp 1")]
    expected = [*bounds, *((value, cause, None) for value, cause in causes), (1.0, None, 0), (1.25, None, 1)]
    assert [(v.value, v.category, v.rank) for v in found] == expected
    assert {v.provenance for v in found} == {"modelled"}
    assert [v.stat for v in found[:4]] == [None, "low", "high", None]
    assert (found[0].coverage, found[0].status) == (Coverage(6, 8), "partial")
    assert found[0].reason == "5.00 ms a step, and 4.00 ms without stragglers, both replayed"
    (only,) = slowed(None)
    assert only.reason == "a step without stragglers is modelled, and models are disabled"


def test_launch_delays_that_decide_make_it_partial() -> None:
    whole = FOUND._replace(transfers=8)
    assert slowed(whole)[0].status == "ok"
    row = slowed(whole._replace(bounds=(1.0, 1.25)))[0]
    assert (row.status, row.value) == ("ok", 1.25)
    row = slowed(whole._replace(bounds=(0.9, 1.25)))[0]
    assert row.status == "partial"
    assert (row.reason or "").endswith("; without launch delays it is 0.9×")
    # A job of which some ranks are shown says which.
    reason = slowed(FOUND, ranks=5)[0].reason or ""
    assert reason.endswith("; by rank only for the 2 of 5 with the most excess time")
