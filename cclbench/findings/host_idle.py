# SPDX-License-Identifier: Apache-2.0
"""How long devices wait for their hosts, by what these do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cclbench.findings.case import Case, sum_by_rank
from cclbench.ground.units import humanise
from cclbench.record.metric_name import MetricName, metric_name

BY: Final = metric_name("time.idle_host_by")
LAUNCH_DELAY: Final = metric_name("launch.delay")
QUEUE_LENGTH: Final = metric_name("launch.queue_length")
EXACT: Final = "each device gap is attributed by the launch that ends it and by what its thread did"
MOSTLY: Final = 0.5
TRACK_GAPS: Final = """SELECT rank, track, name AS launched, gap_ns, start_ns FROM track_gaps
WHERE side = 'device' ORDER BY gap_ns DESC LIMIT 20"""
"""The longest gaps of the device's streams."""


def held_seconds(case: Case, *causes: str) -> dict[int, float]:
    """Device wait by rank with the host in these causes, s a step."""
    return sum_by_rank(case.ranks(BY, category=cause) for cause in causes)


def held_after_waits(case: Case, *causes: str) -> dict[int, float]:
    """The same, including what followed a wait for the device in gaps that this wait began."""
    behind = [case.ranks(BY, category="sync", stat=f"then_{cause}") for cause in causes]
    return sum_by_rank([held_seconds(case, *causes), *behind])


def step_words(case: Case, lost: Mapping[int, float]) -> str:
    """`1.2 ms of a step of 10 ms`, on the rank that loses most."""
    most = max(lost, key=lambda rank: lost[rank])
    step_s = case.windows.get(most, case.step_s)
    where = f" on rank {most}" if len(lost) > 1 else ""
    return f"{humanise(lost[most], 's')} of a step of {humanise(step_s, 's')}{where}"


def evidence_keys(*names: str) -> list[tuple[MetricName, Mapping[str, str]]]:
    """Keys of the parts of `time.idle_host_by`, for a finding's evidence."""
    return [(BY, {"category": name}) for name in names]
