# SPDX-License-Identifier: Apache-2.0
"""A card from a running job: the known facts, with every gap marked."""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Final

from cclbench.card import CardFacts, infer_card
from cclbench.ground.destination import write_whole
from cclbench.ground.errors import UsageError
from cclbench.hardware import catalog
from cclbench.record.facts import HOST_DEVICE

PHASES: Final = ("training", "inference", "serving")


def environment_variables(*prefixes: str) -> dict[str, str]:
    """Non-empty environment variables whose names have one of the prefixes, sorted by name."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(prefixes) and value}


def on_device(facts: CardFacts, name: str, memory_bytes: int | None = None) -> CardFacts:
    """The facts with the accelerator of that name, and its id if the catalog has the name."""
    if name.upper() == HOST_DEVICE:
        return replace(facts, accelerator="generic-cpu", accelerator_name=HOST_DEVICE)
    accelerator = catalog.by_device_name(name, memory_bytes)
    return replace(facts, accelerator=None if accelerator is None else accelerator.id, accelerator_name=name)


def check_phase(phase: str | None) -> None:
    """`UsageError` for a phase that cards do not support."""
    if phase is not None and phase not in PHASES:
        raise UsageError(f"phase is {phase!r:.80}", hint=f"one of {', '.join(PHASES)}")


def begin_card(facts: CardFacts, folder: Path) -> None:
    """Write `<id>.yaml` into the folder, whose name is the id, unless the folder has a card.

    A card requires the phase: without one, there is a warning, and no card is written.
    """
    if any(folder.glob("*.yaml")):
        return
    if facts.phase is None:
        warnings.warn(
            f"no card was written to {folder}, because the phase of the job is unknown: pass"
            f" phase={' or '.join(map(repr, PHASES))}",
            stacklevel=2,
        )
        return
    identity = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip(".-_")[:80] or "capture"
    write_whole(infer_card(facts, identity), folder / f"{identity}.yaml")
