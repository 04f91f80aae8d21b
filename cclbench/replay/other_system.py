# SPDX-License-Identifier: Apache-2.0
"""The machine of a scenario: another system, other links, or their bandwidth or latency."""

from __future__ import annotations

from msgspec import structs

from cclbench.ground.errors import InputError, UsageError
from cclbench.hardware import catalog
from cclbench.hardware.collectives.transport import network_software
from cclbench.hardware.fabric import Fabric
from cclbench.hardware.system import ScaleOut, ScaleUp, System
from cclbench.replay.change import Quantity
from cclbench.replay.scenario import TIERS, Scenario


def changed_system(system: System, change: Scenario) -> System:
    """The machine with the scenario's changes."""
    other = change.changes.get("system")
    changed = catalog.system(other) if other else system
    if domain := change.changes.get("scale_up.domain"):
        changed = structs.replace(changed, scale_up=_links_of_domain(changed, domain))
    for tier in TIERS:
        links: ScaleUp | ScaleOut | None = getattr(changed, tier)
        fabric = change.changes.get(tier)
        bandwidth, latency = change.quantity(tier, "bandwidth"), change.quantity(tier, "latency")
        if not (fabric or bandwidth or latency):
            continue
        if links is None:
            raise InputError(f"has no {tier}", where=changed.id)
        if fabric:
            links = _links_on_fabric(changed, links, catalog.fabric(fabric))
        if bandwidth:
            rate = _new_value(bandwidth, links.bytes_per_s, f"{changed.id}: {tier}.bandwidth")
            links = structs.replace(links, bytes_per_s=rate)
        if latency:
            links = _links_with_latency(changed, links, latency)
        changed = structs.replace(changed, **{tier: links})
    return changed


def _links_of_domain(system: System, domain: int) -> ScaleUp:
    """The links with switches that connect `domain` accelerators, each at the same rate.

    `InputError` without switches, whose number of accelerators is free, and unless nodes remain whole.
    """
    if system.scale_up is None or system.scale_up.peers != "switch":
        peers = system.scale_up.peers if system.scale_up else "no links"
        raise InputError(f"{system.id}: scale_up.domain needs accelerators behind switches, not {peers}")
    if domain % system.per_node:
        raise InputError(
            f"{system.id}: scale_up.domain={domain} is not a multiple of the {system.per_node} in a node"
        )
    return structs.replace(system.scale_up, domain=domain)


def _links_on_fabric(system: System, links: ScaleUp | ScaleOut, fabric: Fabric) -> ScaleUp | ScaleOut:
    """The links on another fabric; `UsageError` where their number is unknown."""
    if fabric.id == links.fabric.id:
        return links
    if fabric.links is None:
        used = [s.id for s in catalog.systems().values() if fabric in _fabrics_of(s)]
        instead = f"system={used[0]}, a machine that has it, or " if used else ""
        raise UsageError(
            f"{fabric.tier}={fabric.id}: the catalog does not state the number of its links per accelerator",
            hint=f"{instead}a hardware file that states links",
        )
    return links.on_fabric(fabric) if isinstance(links, ScaleUp) else links.on_fabric(fabric, system.per_node)


def _fabrics_of(system: System) -> list[Fabric]:
    return [part.fabric for part in (system.scale_up, system.scale_out) if part is not None]


def _links_with_latency(system: System, links: ScaleUp | ScaleOut, quantity: Quantity) -> ScaleUp | ScaleOut:
    """The links with another latency: of every hop within a node; of the software's part of a hop between
    nodes.

    Within a node only a torus has a single latency, that of its hop, which may be set as a time. Between
    nodes NCCL's own figure stays; `InputError` where the software is unknown, or a factor has nothing to act
    on.
    """
    if isinstance(links, ScaleUp):
        if quantity.factor is not None:
            return structs.replace(links, latency_factor=quantity.factor)
        if links.peers != "torus":
            why = "is not a single time: hops differ by algorithm, protocol and release"
            raise InputError(f"{system.id}: scale_up.latency {why}", hint="give a factor, such as x0.5")
        fabric = structs.replace(links.fabric, hop_latency_s=quantity.absolute)
        return structs.replace(links, fabric=fabric)
    what, software = (
        f"{system.id}: scale_out.latency",
        network_software(structs.replace(system, scale_out=links), None),
    )
    if software is None:
        raise InputError(f"{what} cannot be set: the network's software is unknown")
    if software.hop.expected == 0 and quantity.factor not in (None, 1.0):
        why = "is 0 beyond NCCL's own figure, so a factor cannot act on it"
        raise InputError(f"{what} {why}", hint="give a value with its unit")
    return structs.replace(links, hop_latency_s=_new_value(quantity, software.hop.expected, what))


def _new_value(quantity: Quantity, old: float | None, what: str) -> float:
    if quantity.absolute is not None:
        return quantity.absolute
    if old is None:
        raise InputError(
            f"{what} is unknown, so a factor cannot act on it", hint="give a value with its unit"
        )
    return old * (quantity.factor or 1.0)
