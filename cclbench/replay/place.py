# SPDX-License-Identifier: Apache-2.0
"""Where a run ran, as its card and its traces tell."""

from __future__ import annotations

from cclbench.hardware import catalog
from cclbench.record.run import Run
from cclbench.replay.pricing import Place


def place_of(run: Run, *, system: str | None = None, per_node: int | None = None) -> Place:
    """The machine `system`, else the card's; ranks a node, accelerator and dtype by card, else by the traces.

    One node has all ranks where the traces count a device for each of the world; else a capture is of one
    node, where one holds several ranks.
    """
    card = run.card
    facts = [entry.facts for entry in run.record.ranks]
    first = facts[0] if facts else None
    named = system or (card.hardware.system if card else None)
    known = catalog.system(named) if named else None
    if per_node is None and card is not None:
        per_node = card.hardware.per_node
    world = max([f.world_size for f in facts if f.world_size], default=len(run.ranks))
    if per_node is None and first is not None and first.device_count and first.device_count >= world:
        per_node = first.device_count
    accelerator = card.hardware.accelerator if card else None
    if accelerator is None and known is not None:
        accelerator = known.accelerator
    if accelerator is None and first is not None and first.device_name:
        found = catalog.by_device_name(first.device_name, first.device_memory_bytes)
        accelerator = found.id if found else None
    return Place(
        system=known,
        per_node=per_node,
        hosts=_hosts(run),
        accelerator=accelerator,
        dtype=card.workload.precision if card else None,
        library_version=first.library_version if first else None,
    )


def _hosts(run: Run) -> dict[int, int]:
    """Number of each rank's node, by the file that holds it; none where no file holds two.

    Nor of TPUs of several files: their links do not end with the node.
    """
    entries = run.record.ranks
    files = {entry.rank: entry.files[0].name for entry in entries}
    names = sorted(set(files.values()))
    beyond = len(names) > 1 and any(entry.facts.vendor == "google" for entry in entries)
    if beyond or len(names) == len(files):
        return {}
    return {rank: names.index(name) for rank, name in files.items()}
