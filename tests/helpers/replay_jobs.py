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
        distortion = Distortion(events=True, described=described)
        write(truth, Path(folder) / "traces", distortion)
        run = cclbench.ingest(Path(folder) / "traces", store=Path(folder) / "store")
        degrees = {"dp_replicate": layout.dp, "tp": layout.tp, "pp": layout.pp, "ep": layout.ep}
        stated = {
            "version": 2,
            "id": run.id,
            "description": "A simulated job",
            "workload": {
                "phase": "training",
                "model": model or {},
                "batch": batch or {},
                "precision": "bf16",
            },
            "parallelism": {**degrees, **parallelism},
        }
        if card:
            run.card = card_of(stated, run.path)
        known = Hardware(system=system, per_node=layout.gpus_per_host)
        yield Replay(run, machine=Machine(known))
