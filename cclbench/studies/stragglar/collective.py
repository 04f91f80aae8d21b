# SPDX-License-Identifier: Apache-2.0
"""StragglAR: an all-reduce that works while waiting for the last rank (Devraj et al., arXiv 2505.23523).

While the straggler is late, the n − 1 others reduce-scatter among themselves.  Then in every round the
straggler exchanges one reduced chunk of S/(n − 1), while chunks it has completed spread; all ranks are done
after n + log2 n − 2 rounds: n − 1 for the straggler's chunks, log2 n − 1 more for the last to spread.
T = (n + log2 n − 2)(α + S/(n − 1)/B) after its arrival, plus what remains of the reduce-scatter by then.
A ring needs 2 (n − 1)/n · S/B, so the ratio tends to 2; on 8 GPUs it is 1.36, a reduction by 26 % where the
paper measures 22 (v1) and 25 % (v2).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from cclbench.hardware.collectives.algorithm import CollectiveCall, algorithm, chosen_never
from cclbench.hardware.collectives.cost import CollectiveCost, CollectiveSteps, Floats, Traffic
from cclbench.hardware.collectives.ring import ring_bytes_per_s
from cclbench.hardware.collectives.transport import SIMPLE


@dataclass(frozen=True, slots=True)
class StragglarCost:
    """The reduce-scatter of the early ranks, and the rounds after the last one's arrival."""

    early: CollectiveCost
    late: CollectiveCost

    def time_s(self, size: Floats, delay_s: float | None = None) -> Floats:
        """Time after the last arrival, s, if that is `delay_s` after the others' (None: late enough)."""
        left = 0.0 if delay_s is None else np.maximum(self.early.time_s(size) - delay_s, 0.0)
        return np.asarray(self.late.time_s(size) + left, np.float64)


def stragglar_cost(call: CollectiveCall) -> StragglarCost | None:
    """Costs of both parts; None unless four or more ranks are on one node."""
    group, n = call.group, call.group.ranks
    if n < 4 or group.nodes > 1:
        return None
    rate = ring_bytes_per_s(group) * call.assumed.rate

    def part_cost(rounds: int, what: str, *before: CollectiveSteps) -> CollectiveCost:
        return CollectiveCost(
            "stragglar",
            SIMPLE,
            (*before, CollectiveSteps(rounds, call.up_s(SIMPLE), what)),
            Traffic(rounds / (n - 1), rate, "links of an accelerator"),
        )

    return StragglarCost(
        early=part_cost(n - 2, "reduce-scatter of the early", *call.start_steps(SIMPLE)),
        late=part_cost(n + ceil(log2(n)) - 2, "rounds after the last arrival"),
    )


@algorithm("stragglar", chosen=chosen_never)
def stragglar_tail(call: CollectiveCall) -> Iterator[CollectiveCost]:
    """The rounds after the last arrival, if that is late enough for the others' part to be done."""
    parts = stragglar_cost(call) if call.kind == "all_reduce" else None
    if parts is not None:
        yield parts.late
