# SPDX-License-Identifier: Apache-2.0
"""What-if metrics, which replay a run under other hardware."""

from __future__ import annotations

from collections.abc import Iterator

from cclbench.analyzers.metric import MATCHED, REPLAY, NotApplicable, Value, no_value, run_metric
from cclbench.analyzers.view.run_view import RunView
from cclbench.ground.units import humanise


@run_metric(
    "whatif.scale_up_bandwidth_x2",
    definition="Step time with twice the bandwidth within a node over the unchanged step time, both"
    " replayed.",
    formula="time.step at scale_up.bandwidth × 2 / time.step, by replay of the run; with bounds",
    unit="1",
    better="lower",
    inputs=("events", "steps", MATCHED, REPLAY, "card: hardware.system, else what the traces state"),
    not_applicable="the run has no collectives, or which ranks share a node is unknown; computed on request"
    " by name, and for reports and comparisons of smaller runs",
)
def scale_up_bandwidth_x2(run: RunView) -> Iterator[Value]:
    """CCL-Bench's scale_up_bw_utility, without serialising compute and communication."""
    if run.replayed is None:
        raise NotApplicable("the value is modelled, and models are disabled")
    replay = run.replayed("scale_up.bandwidth=x2")
    reason = "; ".join(replay.basis) or None
    if replay.ratio is None:
        low, high = humanise(replay.low, "1"), humanise(replay.high, "1")
        yield no_value(f"only bounds are known: {low} to {high}; {reason}")
    else:
        yield Value(value=replay.ratio, provenance="modelled", reason=reason)
    yield Value(value=replay.low, stat="low", provenance="modelled")
    yield Value(value=replay.high, stat="high", provenance="modelled")
