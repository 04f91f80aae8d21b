# SPDX-License-Identifier: Apache-2.0
"""What if: metrics that replay a run under other hardware."""

from __future__ import annotations

from collections.abc import Iterator

from cclbench.analyzers.metric import MATCHED, REPLAY, NotApplicable, Value, no_value, run_metric
from cclbench.analyzers.view.run_view import RunView
from cclbench.ground.units import humanise


@run_metric(
    "whatif.scale_up_bandwidth_x2",
    definition="Step time with twice the bandwidth inside a node, over that as it is, both replayed.",
    formula="time.step at scale_up.bandwidth × 2 / time.step, by replay of the run's rows; with bounds",
    unit="1",
    better="lower",
    inputs=("events", "steps", MATCHED, REPLAY, "card: hardware.system, else what the traces tell"),
    not_applicable="the run has no collectives, or nothing tells which of its ranks share a node; unless"
    " asked for by name, or shown in a report or a comparison of runs that are not large",
)
def scale_up_bandwidth_x2(run: RunView) -> Iterator[Value]:
    """CCL-Bench's scale_up_bw_utility, without serialising compute and communication."""
    if run.replayed is None:
        raise NotApplicable("what would be is modelled, and models are switched off")
    found = run.replayed("scale_up.bandwidth=x2")
    reason = "; ".join(found.basis) or None
    if found.ratio is None:
        low, high = humanise(found.low, "1"), humanise(found.high, "1")
        yield no_value(f"only known to be {low} to {high}; {reason}")
    else:
        yield Value(value=found.ratio, provenance="modelled", reason=reason)
    yield Value(value=found.low, stat="low", provenance="modelled")
    yield Value(value=found.high, stat="high", provenance="modelled")
