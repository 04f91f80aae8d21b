# SPDX-License-Identifier: Apache-2.0
"""Simulated jobs with a card and a machine of the catalog, for changes of the layout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cclbench
from cclbench.card.model import Hardware, card_of
from cclbench.machine import Machine
from cclbench.replay.answer import Replay
from helpers.synthetic import Distortion, Truth, write

SYSTEM = "dgx-h100"


@contextmanager
def traced(
    truth: Truth,
    *,
    model: dict[str, Any] | None = None,
    batch: dict[str, Any] | None = None,
    system: str | None = SYSTEM,
    card: bool = True,
    described: bool = True,
    **parallelism: int,
) -> Iterator[Replay]:
    """The replay of its traces, with a card that states its layout, unless it shall have none."""
    layout = truth.layout
    with TemporaryDirectory() as folder:
        write(truth, Path(folder) / "traces", Distortion(events=True, described=described))
        run = cclbench.ingest(Path(folder) / "traces", store=Path(folder) / "store")
        degrees = {"dp_replicate": layout.dp, "tp": layout.tp, "pp": layout.pp, "ep": layout.ep}
        workload = {"phase": "training", "model": model or {}, "batch": batch or {}, "precision": "bf16"}
        stated = {"version": 2, "id": run.id, "description": "A simulated job", "workload": workload}
        if card:
            run.card = card_of(stated | {"parallelism": {**degrees, **parallelism}}, run.path)
        yield Replay(run, machine=Machine(Hardware(system=system, per_node=layout.gpus_per_host)))
