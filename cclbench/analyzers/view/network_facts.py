# SPDX-License-Identifier: Apache-2.0
"""What is known of a job's network: from debug logs, else from the card; its fabric from the catalog."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cclbench.machine import Machine

if TYPE_CHECKING:
    from cclbench.card import Card
    from cclbench.record.manifest import EvidenceFile

_READER: Final = "nccl_log"
_ONLY_FROM_OUTPUT: Final = frozenset(("network", "transports", "rings", "coll_channels", "tuning", "nvls"))
"""Facts that only debug output states: a sweep's header has a version, too."""
Stated = Mapping[str, str | int | float | list[str]]


def library_outputs(evidence: Iterable[EvidenceFile]) -> list[Stated]:
    """Facts of the files with debug output of NCCL or RCCL."""
    return [
        file.facts
        for file in evidence
        if file.reader == _READER or not _ONLY_FROM_OUTPUT.isdisjoint(file.facts)
    ]


def distinct_facts(files: Sequence[Stated]) -> dict[str, list[str]]:
    """Values of each fact in all files, as texts."""
    facts: dict[str, dict[str, None]] = {}
    for name, value in (item for stated in files for item in stated.items()):
        facts.setdefault(name, {}).update(
            dict.fromkeys(map(str, value if isinstance(value, list) else [value]))
        )
    return {name: [*values] for name, values in facts.items()}


def network_facts(
    logged: Mapping[str, list[str]], card: Card | None, machine: Machine
) -> dict[str, list[str]]:
    """Facts that conditions of networks are about; the log's go before the card's.

    Empty where neither states any: no condition is about the machine alone.
    """
    stated = {**dict(_card_facts(card)), **logged}
    return {**stated, **dict(_machine_facts(logged, machine))} if stated else {}


def _card_facts(card: Card | None) -> Iterator[tuple[str, list[str]]]:
    if card is not None:
        stack = card.software.communication
        for name, value in stack.environment.items():
            yield name, [value]
        if stack.plugin.name is not None:
            yield "network_plugin", [" ".join(filter(None, (stack.plugin.name, stack.plugin.version)))]


def _machine_facts(logged: Mapping[str, list[str]], machine: Machine) -> Iterator[tuple[str, list[str]]]:
    system = machine.system.value
    if system is not None and system.scale_out is not None:
        yield "fabric", [system.scale_out.fabric.id]
        yield "nics", [str(system.scale_out.nics)]
    nodes, ranks = (max(map(int, logged.get(name, ())), default=None) for name in ("nodes", "ranks"))
    per_node, count = machine.per_node.value, machine.accelerator_count.value
    if nodes is not None:
        yield "several_nodes", [_yes(nodes > 1)]
        if ranks is not None:
            yield "several_per_node", [_yes(ranks > nodes)]
    elif per_node is not None and count is not None:
        yield "several_nodes", [_yes(count > per_node)]
        yield "several_per_node", [_yes(min(count, per_node) > 1)]


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"
