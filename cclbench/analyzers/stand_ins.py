# SPDX-License-Identifier: Apache-2.0
"""Who answers for a metric of ranks where no trace does: a model, or files other than traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cclbench.analyzers.metric import Computes, PerRank, PerRun
from cclbench.ground.errors import UsageError

STAND_INS: Final[dict[str, PerRank]] = {}
"""By metric, the model that answers for a rank whose trace cannot."""
FROM_EVIDENCE: Final[dict[str, PerRun]] = {}
"""By metric, what answers for the run where no rank's trace does."""


def stand_in(name: str) -> Callable[[PerRank], PerRank]:
    """Register the decorated per-rank function as the model of metric `name`, for ranks without a number.

    It returns the modelled `Value` with two more of its key and stat `low` and `high`, the same for any part
    it can tell of, and nothing where there is nothing to model; it raises `NotApplicable` where it cannot.
    """
    return _register_stand_in(STAND_INS, name, "has two models")


def from_evidence(name: str) -> Callable[[PerRun], PerRun]:
    """Register the decorated function of the run as the answer of metric `name` where no trace has one.

    It is as a `run_metric`'s: from files other than traces, one `Value` or several.
    """
    return _register_stand_in(FROM_EVIDENCE, name, "has two answers from evidence")


def _register_stand_in(
    answers: dict[str, Computes], name: str, otherwise: str
) -> Callable[[Computes], Computes]:
    def register(function: Computes) -> Computes:
        if name in answers:
            both = f"{answers[name].__module__} and {function.__module__}"
            raise UsageError(f"metric {name!r} {otherwise}, in {both}")
        answers[name] = function
        return function

    return register
