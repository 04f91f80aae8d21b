# SPDX-License-Identifier: Apache-2.0
"""What a metric says of itself, and has to say before it is registered."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from cclbench.ground.errors import UsageError
from cclbench.ground.units import BASE_UNITS

if TYPE_CHECKING:
    from cclbench.analyzers.metric import Metric

INFERRED: Final = (
    "where no trace states a process group, that of all ranks is inferred if they are seen to wait for one"
    " another, and the reason says so; a few collectives of balanced subgroups in lockstep among many of all"
    " ranks look like those"
)
"""What metrics that rest on process groups may be wrong by."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")
_BETTER: Final = ("higher", "lower", None)


def require_explained(metric: Metric) -> None:
    """`UsageError` where `cclbench explain` could not show the metric."""
    if not _NAME.fullmatch(metric.name):
        raise UsageError(f"{metric.name!r} is no name for a metric", hint="such as kernels.short_share")
    if metric.better not in _BETTER:
        wrong = f"metric {metric.name!r}: better={metric.better!r} is none of 'higher', 'lower' and None"
        raise UsageError(wrong)
    if metric.unit in BASE_UNITS:
        hint = f"values are in {BASE_UNITS[metric.unit]!r}, and get a prefix or % where they are shown"
        raise UsageError(f"metric {metric.name!r}: unit={metric.unit!r} is none of values", hint=hint)
    if not (metric.combine.__doc__ or "").strip():
        name = getattr(metric.combine, "__name__", "the function")
        hint = "explain prints its first line: how ranks are combined"
        raise UsageError(f"metric {metric.name!r}: combine={name} has no docstring", hint=hint)
