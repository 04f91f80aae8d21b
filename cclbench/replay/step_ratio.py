# SPDX-License-Identifier: Apache-2.0
"""A run's step under one setting, as a share of the step as it is."""

from __future__ import annotations

from typing import NamedTuple

from cclbench.ground.errors import InputError
from cclbench.record.run import Run
from cclbench.replay import nodes as n
from cclbench.replay.answer import Replay
from cclbench.replay.scenario import parse_scenario


class StepRatio(NamedTuple):
    """New step over the unchanged one, both replayed: expected (None where only its bounds are known), low,
    high, and what they rest on."""

    ratio: float | None
    low: float
    high: float
    basis: tuple[str, ...]


def step_ratio(run: Run, setting: str) -> StepRatio:
    """The run's ratio under one setting; `InputError` where it cannot be replayed, or has no collectives."""
    replay = Replay(run)
    if not (replay.graph.nodes.kind == n.TRANSFER).any():
        raise InputError("no collective is part of the replay", where=run.id)
    outcome, unchanged = replay.predict(parse_scenario([setting])), replay.unchanged.step_ns
    if outcome.idle is not None:
        raise InputError(outcome.idle, where=run.id)
    step = outcome.step_ns
    return StepRatio(
        None if step is None else step / unchanged,
        outcome.low_ns / unchanged,
        outcome.high_ns / unchanged,
        outcome.basis,
    )
