# SPDX-License-Identifier: Apache-2.0
"""Names of the metrics that a module reads: declared at module level, checked when plug-ins register."""

from __future__ import annotations

import sys
from typing import Final, NewType

MetricName = NewType("MetricName", str)
"""The name of a metric, from the registry, a result row or a module's declaration."""
DECLARED: Final[dict[MetricName, set[str]]] = {}
"""The modules that read each metric."""


def metric_name(name: str) -> MetricName:
    """Declare that the calling module reads the metric of that name.

        _STEP: Final = metric_name("time.step")
        ...
        results.value(_STEP)

    A plug-in whose module declares a metric that does not exist is not registered.
    """
    return _declared_name(name, sys._getframe(1).f_globals["__name__"])


def metric_names(*names: str) -> tuple[MetricName, ...]:
    """`metric_name` of each."""
    module = sys._getframe(1).f_globals["__name__"]
    return tuple(_declared_name(name, module) for name in names)


def _declared_name(name: str, module: str) -> MetricName:
    declared = MetricName(name)
    DECLARED.setdefault(declared, set()).add(module)
    return declared
