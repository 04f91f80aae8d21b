# SPDX-License-Identifier: Apache-2.0
"""A card begun from a live job: what it can tell of itself, with every gap marked."""

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
    """The variables of the environment whose names begin so and that have a value, by name."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(prefixes) and value}


def on_device(facts: CardFacts, name: str, memory_bytes: int | None = None) -> CardFacts:
    """With the accelerator that a library calls so, and its id where the catalog knows the name."""
    if name.upper() == HOST_DEVICE:
        return replace(facts, accelerator="generic-cpu", accelerator_name=HOST_DEVICE)
    known = catalog.by_device_name(name, memory_bytes)
    return replace(facts, accelerator=None if known is None else known.id, accelerator_name=name)


def check_phase(phase: str | None) -> None:
    """`UsageError` for a phase that cards do not know."""
    if phase is not None and phase not in PHASES:
        raise UsageError(f"phase is {phase!r:.80}", hint=f"one of {', '.join(PHASES)}")


def begin_card(facts: CardFacts, folder: Path) -> None:
    """`<id>.yaml` in the folder, whose name is the id; a card that is there stays as it is.

    A card has to say whether the job trains or serves: without a phase a warning says that, and none is
    written.
    """
    if any(folder.glob("*.yaml")):
        return
    if facts.phase is None:
        warnings.warn(
            f"no card was begun in {folder}, because nothing tells what the job does: say"
            f" phase={' or '.join(map(repr, PHASES))}",
            stacklevel=2,
        )
        return
    identity = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip(".-_")[:80] or "capture"
    write_whole(infer_card(facts, identity), folder / f"{identity}.yaml")
