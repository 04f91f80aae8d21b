# SPDX-License-Identifier: Apache-2.0
"""Checks that the metrics that a module declares to read exist."""

from __future__ import annotations

from cclbench.analyzers.metric import METRICS
from cclbench.ground.errors import UsageError, near
from cclbench.record.metric_name import DECLARED


def check_declared_names(module: str) -> None:
    """`UsageError` with near names where a module declares (`metric_name`) a metric that does not exist."""
    for name in DECLARED.keys() - set(METRICS):
        if module in DECLARED[name]:
            raise UsageError(f"{module} reads an unknown metric {name!r}", hint=near(name, METRICS))
