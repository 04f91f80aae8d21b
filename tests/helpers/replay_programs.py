# SPDX-License-Identifier: Apache-2.0
"""Programs simulated, and replayed under scenarios."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import cclbench
from cclbench.card.model import Hardware
from cclbench.machine import Machine
from cclbench.replay.answer import Replay
from cclbench.replay.scenario import parse_scenario
from helpers.synthetic import Distortion, Layout, Link, Network, Program, Truth, simulate, write
from helpers.synthetic.program import Op


def replayed(truth: Truth) -> Replay:
    """The replay of its traces."""
    with TemporaryDirectory() as folder:
        write(truth, Path(folder) / "traces", Distortion(events=True))
        run = cclbench.ingest(Path(folder) / "traces", store=Path(folder) / "store")
        return Replay(run, machine=Machine(Hardware(per_node=truth.layout.gpus_per_host)))


def step(replay: Replay, *texts: str) -> float:
    found = replay.predict(parse_scenario(texts))
    assert found.idle is None, found.idle
    assert found.step_ns is not None
    return found.step_ns


def program(*ops: Op, steps: int = 4, **more: object) -> Program:
    return Program(ops, steps=steps, closing=True, **more)  # type: ignore[arg-type]


def simulated(ops: Program, layout: Layout | None = None) -> Truth:
    return simulate(layout or Layout(dp=2), ops, Network(Link(5_000, 100)))
