# SPDX-License-Identifier: Apache-2.0
"""Overlap inside fused kernels by sampled counters: worked out by hand, and nothing without them."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import Evidence, a_rank, compute, event, of_run, window
from helpers.hand_values import told

from cclbench.analyzers.inside_kernels import NO_FUSED, NO_SAMPLES
from cclbench.analyzers.view.rank_view import RankView
from cclbench.classify import kernel_category

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
    found = told(of_run("overlap.inside_kernels", counters, rank_with((150, 550))))
    assert found == pytest.approx(
        {None: 1 / 3, "covered": 0.75, "communicating": 1 / 3, "computing": 0, "neither": 1 / 3}
    )


def test_counters_of_other_ranks_and_outside_kernels_do_not_count() -> None:
    ranks = rank_with((100, 300)), rank_with((500, 700), rank=1)
    links = samples("pcie_rx_bytes", 1, 1, rank=0) + samples("pcie_rx_bytes", 0, 0, begin=500, rank=1)
    tensor = samples("tensor_active", 1, 1, rank=0) + samples("tensor_active", 1, 0, begin=500, rank=1)
    tensor += samples("tensor_active", 1, 1, begin=500, rank=0)
    found = told(of_run("overlap.inside_kernels", Evidence(counters=links + tensor), *ranks))
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
    (none,) = of_run("overlap.inside_kernels", Evidence(counters=counters), rank_with(*kernels))
    assert (none.value, none.status) == (None, "not_applicable")
    assert (none.reason or "").startswith(reason)
