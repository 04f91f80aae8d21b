# SPDX-License-Identifier: Apache-2.0
"""The columns of CCL-Bench's leaderboard as our metrics, in base SI units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cclbench.analyzers.aliases import ALIASES
from cclbench.ground.units import GIB
from cclbench.studies.published.leaderboard import PublishedRow


@dataclass(frozen=True, slots=True)
class ColumnConversion:
    """Conversion of a published number: value = offset + factor × number."""

    factor: float = 1.0
    offset: float = 0.0
    by_step: bool = True
    """Whether its tool uses step annotations if the trace has them; else it uses the whole trace."""

    def convert_number(self, number: float) -> float:
        """The value in our unit."""
        return self.offset + self.factor * number

    def window_policy(self, row: PublishedRow) -> str:
        """The window policy closest to what the column's tool does."""
        return "annotations" if self.by_step and not row.traced_by("nsys") else "trace"


_PERCENT: Final = ColumnConversion(0.01, by_step=False)
_STEP_PERCENT: Final = ColumnConversion(0.01)
_GIB_PER_S: Final = ColumnConversion(float(GIB), by_step=False)
_GB: Final = ColumnConversion(1e9, by_step=False)

COLUMNS: Final[Mapping[str, ColumnConversion]] = {
    "avg_step_time": ColumnConversion(),
    "ttft": ColumnConversion(),
    "tpot": ColumnConversion(),
    "mfu": _STEP_PERCENT,
    "mean_sm_coverage": _PERCENT,
    "dominant_kernel_concentration": _PERCENT,
    "moe_fraction": _PERCENT,
    "average_memory_bandwidth": _GB,
    "memory_transfer_overhead": _PERCENT,
    "communication_fraction": _STEP_PERCENT,
    "total_communication_time": ColumnConversion(),
    **{name: _GIB_PER_S for name in ALIASES if name.startswith("bandwidth_utilization_")},
    "bandwidth_utilization_peertopeer_group_6": _PERCENT,
    "compute_comm_overlap": _STEP_PERCENT,
    "load_imbalance_ratio": ColumnConversion(by_step=False),
    "straggler": ColumnConversion(by_step=False),
    "scale_up_bw_utility": ColumnConversion(-0.01, 1.0, by_step=False),
    **{name: _GB for name in ALIASES if name.startswith("collective_vol_")},
}
"""Conversions by the leaderboard's column name.

Bandwidths of collectives labelled GB/s are in units of 2**30 bytes, volumes and memory bandwidth in 1e9.
`scale_up_bw_utility` is the percentage saved; ours is new step / old step.  Sources: the file's own
`metric_info`, CCL-Bench's metric tools (github.com/cornell-sysphotonics/ccl-bench, tools/)."""
