# SPDX-License-Identifier: Apache-2.0
"""How long devices wait for their hosts, by what these do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cclbench.findings.case import Case, sum_by_rank
from cclbench.record.metric_name import MetricName, metric_name

BY: Final = metric_name("time.idle_host_by")
LAUNCH_DELAY: Final = metric_name("launch.delay")
QUEUE_LENGTH: Final = metric_name("launch.queue_length")
EXACT: Final = "each device gap is attributed by the launch that ends it and by what its thread did"
MOSTLY: Final = 0.5
TRACK_GAPS: Final = """SELECT rank, track, name AS launched, gap_ns, start_ns FROM track_gaps
WHERE side = 'device' ORDER BY gap_ns DESC LIMIT 20"""
"""The longest gaps of the device's streams."""


def host_wait_seconds(case: Case, *causes: str) -> dict[int, float]:
    """Device wait by rank with the host in these causes, s a step."""
    return sum_by_rank(case.ranks(BY, category=cause) for cause in causes)


def host_wait_seconds_with_sync(case: Case, *causes: str) -> dict[int, float]:
    """The same, including what followed a wait for the device in gaps that this wait began."""
    behind = [case.ranks(BY, category="sync", stat=f"then_{cause}") for cause in causes]
    return sum_by_rank([host_wait_seconds(case, *causes), *behind])


def evidence_keys(*names: str) -> list[tuple[MetricName, Mapping[str, str]]]:
    """Keys of the parts of `time.idle_host_by`, for a finding's evidence."""
    return [(BY, {"category": name}) for name in names]
