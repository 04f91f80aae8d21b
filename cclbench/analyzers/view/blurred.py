# SPDX-License-Identifier: Apache-2.0
"""Kernels of which nobody knows whether they compute or communicate, or that do both at once."""

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
MOST_UNKNOWN: Final = 0.1
"""Share of the kernels' summed time of no known category from which on overlap is no exact figure."""


@dataclass(frozen=True, slots=True)
class AmbiguousKernels:
    """Kernels that count as compute and may communicate, of those that begin in a rank's windows."""

    coverage: Coverage
    """Of the kernels whose part is known."""
    reason: str


def ambiguous_kernels(rank: RankView) -> AmbiguousKernels | None:
    """Fused kernels, and those of no known category where they take more than `MOST_UNKNOWN` of the time."""
    ns, rows = {"fused": 0, "other": 0}, {"fused": 0, "other": 0}
    all_ns = all_rows = 0
    for batch, _ in rank.begun(("kernel",), "category"):
        durations = batch["dur_ns"].to_numpy()
        all_rows, all_ns = all_rows + len(batch), all_ns + int(durations.sum())
        numbers, words = word_codes(batch, "category")
        for number in np.unique(numbers).tolist():
            if (category := words[number] or "other") in ns:
                here = numbers == number
                ns[category] += int(durations[here].sum())
                rows[category] += int(here.sum())
    said = []
    if rows["fused"]:
        fused = humanise(ns["fused"] / NS_PER_S, "s")
        said.append(f"{fused} of kernels that compute and communicate at once count as compute")
    if all_ns and ns["other"] / all_ns > MOST_UNKNOWN:
        share = humanise(ns["other"] / all_ns, "1")
        said.append(f"{share} of the kernels' time is of no known category and counts as compute")
    else:
        ns["other"] = rows["other"] = 0
    if not said:
        return None
    known = Coverage(all_rows - sum(rows.values()), all_rows, all_ns - sum(ns.values()), all_ns)
    return AmbiguousKernels(known, "; ".join(said))
