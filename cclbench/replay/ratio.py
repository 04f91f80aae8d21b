# SPDX-License-Identifier: Apache-2.0
"""A scenario's step as a share of the step as it is: what a metric says of it."""

from __future__ import annotations

from typing import Final, NamedTuple

from cclbench.errors import InputError
from cclbench.record.run import Run
from cclbench.replay import nodes as n
from cclbench.replay.answer import Replay
from cclbench.replay.place import place_of
from cclbench.replay.scenario import scenario

PASSING_ROWS: Final = 2_000_000
"""Rows of a run up to which it is replayed in passing, with all other metrics: some 4 s."""


class Ratio(NamedTuple):
    """New step over the unchanged one, both replayed: expected (None where only its bounds are known), low,
    high, and what they rest on."""

    ratio: float | None
    low: float
    high: float
    basis: tuple[str, ...]


def ratio(run: Run, setting: str, most_rows: int | None = None) -> Ratio:
    """The run's ratio under one setting.

    `InputError` where it cannot be replayed, has no collectives, or more than `most_rows` rows.
    """
    rows = sum(sum(entry.rows.values()) for entry in run.record.ranks)
    if most_rows is not None and rows > most_rows:
        raise InputError(
            f"one of {rows:,} rows is replayed only where that is asked for, as by --metric 'whatif.*'",
            where=run.id,
        )
    replay = Replay(run, place=place_of(run))
    if not (replay.graph.nodes.kind == n.TRANSFER).any():
        raise InputError("no collective is part of the replay", where=run.id)
    found, unchanged = replay.predict(scenario([setting])), replay.unchanged.step_ns
    step = found.step_ns
    return Ratio(
        None if step is None else step / unchanged,
        found.low_ns / unchanged,
        found.high_ns / unchanged,
        found.basis,
    )
