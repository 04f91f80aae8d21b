# SPDX-License-Identifier: Apache-2.0
"""What if: metrics that replay a run under other hardware."""

from __future__ import annotations

from cclbench.analyzers.metric import unanswered

unanswered(
    "whatif.scale_up_bandwidth_x2",
    definition="Step time with twice the bandwidth inside a node, over the step time as measured.",
    formula="time.step at scale_up.bandwidth × 2 / time.step",
    unit="1",
    better="lower",
    needs="a replay under other hardware",
    reason="a trace tells what was; what would be takes a replay under other hardware",
)
