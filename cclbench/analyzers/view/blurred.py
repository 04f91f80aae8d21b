# SPDX-License-Identifier: Apache-2.0
"""Kernels that may compute, communicate, or do both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cclbench.analyzers.metric import Coverage
from cclbench.analyzers.view.columns import word_codes
from cclbench.ground.units import humanise

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

NS_PER_S: Final = 10**9
INVISIBLE: Final = "overlap inside one kernel is not visible in this trace, it needs sampled counters"
MOST_UNKNOWN: Final = 0.1
"""Overlap is not exact where kernels of unknown category have more than this share of the kernel time."""


@dataclass(frozen=True, slots=True)
class AmbiguousKernels:
    """Kernels in a rank's windows that count as compute and may communicate."""

    coverage: Coverage
    """Coverage of the kernels whose role is known."""
    reason: str


def ambiguous_kernels(rank: RankView) -> AmbiguousKernels | None:
    """Fused kernels, and those of unknown category if they take more than `MOST_UNKNOWN` of the time."""
    ns, rows = {"fused": 0, "other": 0}, {"fused": 0, "other": 0}
    all_ns = all_rows = 0
    for batch, _ in rank.begun(("kernel",), "category"):
        durations = batch["dur_ns"].to_numpy()
        all_rows, all_ns = all_rows + len(batch), all_ns + int(durations.sum())
        numbers, words = word_codes(batch, "category")
        for number in np.unique(numbers).tolist():
            if (category := words[number] or "other") in ns:
                in_category = numbers == number
                ns[category] += int(durations[in_category].sum())
                rows[category] += int(in_category.sum())
    reasons = []
    if rows["fused"]:
        fused = humanise(ns["fused"] / NS_PER_S, "s")
        reasons.append(
            f"{fused} of kernels that compute and communicate at once count as compute: {INVISIBLE}"
        )
    if all_ns and ns["other"] / all_ns > MOST_UNKNOWN:
        share = humanise(ns["other"] / all_ns, "1")
        reasons.append(f"{share} of the kernels' time is of unknown category and counts as compute")
    else:
        ns["other"] = rows["other"] = 0
    if not reasons:
        return None
    coverage = Coverage(all_rows - sum(rows.values()), all_rows, all_ns - sum(ns.values()), all_ns)
    return AmbiguousKernels(coverage, "; ".join(reasons))
