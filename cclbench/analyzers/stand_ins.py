# SPDX-License-Identifier: Apache-2.0
"""Values of rank metrics from other sources than traces: a model, or other files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cclbench.analyzers.metric import Computes, PerRank, PerRun
from cclbench.ground.errors import UsageError

STAND_INS: Final[dict[str, PerRank]] = {}
"""Models by metric, for ranks whose trace gives no value."""
FROM_EVIDENCE: Final[dict[str, PerRun]] = {}
"""Functions of the run by metric, for runs in which no trace gives a value."""


def stand_in(name: str) -> Callable[[PerRank], PerRank]:
    """Register the decorated per-rank function as the model of metric `name`, for ranks without a value.

    It returns the modelled `Value` and two more with stat `low` and `high`, the same for each part, or
    nothing where there is nothing to model; it raises `NotApplicable` where it cannot model.
    """
    return _register_stand_in(STAND_INS, name, "has two models")


def from_evidence(name: str) -> Callable[[PerRun], PerRun]:
    """Register the decorated function of the run for metric `name`, used where no trace gives a value.

    Like a `run_metric`, it returns one `Value` or several from files other than traces.
    """
    return _register_stand_in(FROM_EVIDENCE, name, "has two functions from evidence")


def _register_stand_in(
    registered: dict[str, Computes], name: str, duplicate_message: str
) -> Callable[[Computes], Computes]:
    def register(function: Computes) -> Computes:
        if name in registered:
            modules = f"{registered[name].__module__} and {function.__module__}"
            raise UsageError(f"metric {name!r} {duplicate_message}, in {modules}")
        registered[name] = function
        return function

    return register
