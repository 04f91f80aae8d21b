# SPDX-License-Identifier: Apache-2.0
"""Find the catalog's machine that a sweep was measured on, from the devices, nodes and network it states.

Missing statements fit every machine; a network that the catalog does not know contradicts none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from msgspec import structs

from cclbench.ground.errors import UsageError
from cclbench.ground.text import printable
from cclbench.hardware import catalog
from cclbench.hardware.fabric import Fabric
from cclbench.hardware.sweep import Sweep
from cclbench.hardware.system import System

_WORD: Final = re.compile(r"[a-z0-9]+")
_ASIDE: Final = re.compile(r" *\(.*")
_PROVIDERS: Final = ("aws", "azure", "gcp", "oci")
"""First words of ids of machines that only a provider has; others are designs that anyone can buy."""
_MAKERS: Final = ("", "NVIDIA ", "AMD Instinct ")
_OTHER_WORDS: Final = {"fastrak": "tcpxo", "ib": "infiniband"}
"""Other names of the catalog's networks."""
_BY_TRANSPORT: Final = {"IB": ("ib-verbs",), "AWS Libfabric": ("aws-ofi-nccl", "cxi")}
"""The network that NCCL prints, and the transports it stands for; sockets run on any."""


@dataclass(frozen=True, slots=True)
class StatedMachine:
    """What a sweep states about its machine: device names, most ranks on a node, the network as written.

    `driver` is the network that the library prints (`IB`, `AWS Libfabric`).
    """

    source: str
    devices: tuple[str, ...] = ()
    ranks_a_node: int | None = None
    network: str = ""
    driver: str = ""


def stated_machine(name: str, facts: Mapping[str, object], sweeps: Iterable[Sweep]) -> StatedMachine:
    """The machine that a file's header and its sweeps state."""
    named = facts.get("device_name", [])
    devices = named if isinstance(named, list) else [named]
    counts = [-(-each.ranks // each.nodes) for each in sweeps]
    return StatedMachine(
        name,
        devices=tuple(map(str, devices)),
        ranks_a_node=max(counts, default=None),
        network=str(facts.get("scale_out", "")),
        driver=str(facts.get("network", "")),
    )


def system_contradiction(stated: StatedMachine, system: System) -> str | None:
    """Why the sweep cannot come from the system; None if it can (node size is not checked)."""
    has = catalog.accelerator(system.accelerator)
    for name in stated.devices:
        candidates = _accelerators_named(name)
        if candidates and has.id not in candidates:
            return f"its device is {printable(name)}, but {system.id} has {has.id}"
    out = system.scale_out
    named = _networks_named(stated.network)
    if named and (out is None or out.fabric.id not in named):
        network = "no network" if out is None else out.fabric.id
        return f"its network is {' or '.join(named)}, but {system.id} has {network}"
    drivers = _BY_TRANSPORT.get(stated.driver)
    if drivers and (out is None or out.transport not in drivers):
        driver = None if out is None else out.transport
        return f"its transport is {stated.driver}, but that of {system.id} is {driver or 'unknown'}"
    return None


def must_fit(stated: Iterable[StatedMachine], system: System) -> None:
    """`UsageError` if one of them cannot come from the system, with a hint that lists the ones it fits."""
    for machine in stated:
        if why := system_contradiction(machine, system):
            fits = fitting_systems([machine])
            hint = f"it fits {_listed_ids(fits)}" if fits else "no machine in the catalog fits"
            raise UsageError(f"{machine.source} is not from {system.id}: {why}", hint=hint)


def system_of(stated: Sequence[StatedMachine]) -> System:
    """The one system that fits all statements; `UsageError` if none or several do."""
    fits = fitting_systems(stated)
    names = ", ".join(dict.fromkeys(machine.source for machine in stated))
    if len(fits) == 1:
        return fits[0]
    if not fits:
        raise UsageError(f"{names}: no machine in the catalog fits what is stated", hint="give --system ID")
    if not any(
        machine.devices or _networks_named(machine.network) or machine.driver in _BY_TRANSPORT
        for machine in stated
    ):
        raise UsageError(f"{names}: states neither its devices nor its network", hint="give --system ID")
    raise UsageError(
        f"{names}: {len(fits)} machines in the catalog fit", hint=f"give --system: {_listed_ids(fits)}"
    )


def fitting_systems(stated: Sequence[StatedMachine]) -> list[System]:
    """Systems large enough that no statement contradicts; none if a device is not in the catalog.

    A design stands for machines of providers with the same figures.
    """
    if any(not _accelerators_named(name) for machine in stated for name in machine.devices):
        return []
    most = max((machine.ranks_a_node or 0 for machine in stated), default=0)
    fits = [
        system
        for system in catalog.systems().values()
        if most <= system.per_node and not any(system_contradiction(machine, system) for machine in stated)
    ]
    designs = [_figures_alone(system) for system in fits if not _is_of_provider(system)]
    return [system for system in fits if not _is_of_provider(system) or _figures_alone(system) not in designs]


def _is_of_provider(system: System) -> bool:
    return system.id.partition("-")[0] in _PROVIDERS


def _figures_alone(system: System) -> System:
    return structs.replace(system, id="", sources={}, cited={}, disagreements=(), notes=None)


def _listed_ids(fits: Iterable[System]) -> str:
    return ", ".join(system.id for system in fits)


def _accelerators_named(name: str) -> set[str]:
    """Ids of the accelerators that a device name, as drivers print or people write it, can stand for."""
    bare = _ASIDE.sub("", name)
    written = {maker + text for maker in _MAKERS for text in (name, bare, bare.replace("-", " "))}
    return {device.id for device in catalog.accelerators().values() if any(map(device.has_name, written))}


def _networks_named(text: str) -> list[str]:
    """Networks in the catalog that a text names: one generation, else the whole family."""
    words = [_OTHER_WORDS.get(word, word) for word in _WORD.findall(text.lower())]
    spoken = {*words, *(first + second for first, second in pairwise(words))}
    outside = [fabric for fabric in catalog.fabrics().values() if fabric.tier == "scale_out"]
    exact = [fabric.id for fabric in outside if spoken & _generation_words(fabric)]
    return exact or [fabric.id for fabric in outside if fabric.id.partition("-")[0] in spoken]


def _generation_words(fabric: Fabric) -> set[str]:
    """Words that name this network but no other of its family: `efav2`, `slingshot11`, `ndr`."""
    last = fabric.id.rpartition("-")[2]
    return {fabric.id.replace("-", ""), *([last] if last.isalpha() else [])}
