# SPDX-License-Identifier: Apache-2.0
"""Gains that findings state, against what `cclbench whatif` says of their settings."""

from __future__ import annotations

from collections.abc import Sequence

import cclbench
from cclbench.findings.finding import Found

_DEVICE = ("time.compute_only", "time.overlapped", "time.exposed_copy")


def gains_are_those_of_the_replay(run: cclbench.Run, found: Sequence[Found]) -> None:
    """What `whatif` says of a finding's settings lies within its bounds; together they gain no whole step.

    Without what holds the host a step still takes what the busiest device computes and copies; a gain may be
    that of all steps but the first, which has none of it.
    """
    step_s = run.figures.value("time.step") or 0.0
    parts = [run.figures.ranks(part) for part in _DEVICE]
    busiest_s = max((sum(part.get(rank, 0.0) for part in parts) for rank in parts[0]), default=0.0)
    for one in found:
        assert (one.gain_s is None) == (one.gain_share is None) == (one.stacked_s is None)
        if one.gain_s is None:
            assert one.no_gain or one.lost_s is None, one.name
            continue
        answer = cclbench.whatif(run, *one.whatif)
        slack = 1e-6 * step_s
        for ns in (answer.only.low_ns, answer.only.high_ns):
            saved_s = (answer.unchanged.step_ns - ns) / answer.unchanged.step_ns * step_s
            assert one.gain_s[0] - slack <= saved_s <= one.gain_s[1] + slack, one.name
        assert 0 <= one.gain_s[0] <= one.gain_s[1] <= step_s
        if all(text.startswith("host") for text in one.whatif):
            steps = max(len(run.figures.scope.steps), 2)
            assert one.gain_s[1] <= (step_s - busiest_s) * steps / (steps - 1) + 0.01 * step_s, one.name
        assert one.stacked_s is not None
        assert one.stacked_s[1] <= step_s
