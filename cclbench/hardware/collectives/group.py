# SPDX-License-Identifier: Apache-2.0
"""A group of ranks as the cost model sees it: how many per node, and what connects them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import numpy as np

from cclbench.hardware.collectives.transport import NOTHING, PROTOCOLS, LatencyRange, network_software
from cclbench.hardware.system import Architecture, ScaleOut, ScaleUp, System

# Share of the line rate that large messages reach if the fabric states none: NVIDIA expects 46 to 48 of the
# 50 GB/s of an NDR interface (nccl-tests#290), Slingshot-11 is published at 92.5 of 100 GB/s.
NETWORK_SHARE: Final = 0.92
# The same for scale-up links: NCCL assumes 0.80, 0.824 and 0.802 for NVLink 3, 4 and 5.
SCALE_UP_SHARE: Final = 0.8

# Shortest axis of a TPU slice that closes into a ring (scaling-book, TPUs).
_CLOSES: Final = {"ici-v4": 4, "ici-v5p": 4, "ici-v7x": 4, "ici-v5e": 16, "ici-v6e": 16}


# Architectures that NCCL and RCCL do not drive: without a torus, nothing is known of their collectives.
_OTHER_LIBRARIES: Final = ("tpu", "trainium", "gaudi", "xe")


@dataclass(frozen=True, slots=True)
class NoPrice:
    """Why there is no price: the reason, and the missing catalog field, if that is why."""

    reason: str
    field: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """`ranks` ranks, the same number in each of `nodes` islands (scale-up domains, mostly nodes).

    Rates are usable ones, per direction, B/s: `up_bytes_per_s` from one accelerator to the group's others in
    its island, `pair_bytes_per_s` to one of them, `out_bytes_per_s` from an island to the others,
    `nic_bytes_per_s` one accelerator's part of that; `egress_bytes_per_s` on a torus: all links of a chip,
    including axes that the group does not span.  Latencies are in s; within an island they are the library's
    or the hop's times `up_latency`.  `dims` are the lengths of the group's block of a torus, `rings` whether
    each closes.  `hosted` is the number of ranks on one host.  The network software sets `out_hop` and
    `rendezvous` (latency ranges) and the protocols it permits: `protocols`, or only `surely` at worst.
    `machine` names the system, the tier's fabric and the network software; `network` is that software, or
    the topology of an island.  `between_domains`: the islands are domains of several nodes, such as racks.
    """

    ranks: int
    nodes: int
    architecture: Architecture
    host_cpu: str | None
    peers: str
    up_bytes_per_s: float = 0.0
    egress_bytes_per_s: float = 0.0
    pair_bytes_per_s: float = 0.0
    up_hop_s: float | None = None
    up_latency: float = 1.0
    reduces: bool = False
    dims: tuple[int, ...] = ()
    rings: tuple[bool, ...] = ()
    out_bytes_per_s: float = 0.0
    nic_bytes_per_s: float = 0.0
    out_hop: LatencyRange = NOTHING
    rendezvous: LatencyRange = NOTHING
    eager_bytes: float | None = None
    hosted: int = 1
    protocols: tuple[str, ...] = PROTOCOLS
    surely: tuple[str, ...] = PROTOCOLS
    assumptions: tuple[str, ...] = ()
    machine: str = ""
    network: str = ""
    between_domains: bool = False

    @property
    def per_node(self) -> int:
        """Ranks per island."""
        return self.ranks // self.nodes


def group_of(system: System, ranks: Sequence[int], *, transport: str | None = None) -> Group | NoPrice:
    """The group formed by these global ranks (numbered node by node), or why it cannot be priced."""
    members = sorted(set(ranks))
    if len(members) < 2:
        return NoPrice("a group of one rank moves no data")
    if members[0] < 0:
        return NoPrice(f"rank {members[0]} is negative")
    hosted = max(system.ranks_by_node(members))
    peers = system.scale_up.peers if system.scale_up else "no links"
    if system.architecture in _OTHER_LIBRARIES and peers != "torus":
        return NoPrice(f"{system.id}: no formulas of its library's collectives are known (peers: {peers})")
    if system.scale_up is None and hosted > 1:
        return NoPrice(f"{system.id}: the links within a node are not known", "scale_up")
    islands = [list(island) for _, island in groupby(members, lambda rank: rank // system.domain_size)]
    sizes = sorted(map(len, islands))
    if sizes[0] != sizes[-1]:
        return NoPrice(
            f"the group has {sizes[0]} to {sizes[-1]} ranks per node, and formulas need equal numbers;"
            " give its schedule as a step list"
        )
    group = Group(
        len(members),
        len(islands),
        system.architecture,
        system.host_cpu,
        peers="switch",
        hosted=hosted,
        assumptions=(
            *(["RCCL is priced with NCCL's network latencies"] if system.architecture == "amd" else []),
            *([f"{system.id} is announced: its figures may change"] if system.announced else []),
        ),
    )
    if system.scale_up is not None and sizes[0] > 1:
        inside = _group_in_island(group, system.id, system.scale_up, islands[0])
        if isinstance(inside, NoPrice):
            return inside
        group = inside
    return group if len(islands) == 1 else _group_across_nodes(group, system, members, transport)


def _group_in_island(group: Group, system: str, up: ScaleUp, island: list[int]) -> Group | NoPrice:
    rate, assumptions = _usable_rate(up, SCALE_UP_SHARE, "links'")
    if rate is None:
        return NoPrice(f"{system}: scale_up.bytes_per_s is not known", "scale_up.bytes_per_s")
    pair, egress = rate, 0.0
    block: tuple[tuple[int, bool], ...] = ()
    if up.peers == "mesh":
        pair = rate / (up.domain - 1)
        rate = pair * (len(island) - 1)
    elif up.peers == "torus":
        block = _torus_block(up.dims or (), island)
        if not block:
            dims = " x ".join(map(str, up.dims or ()))
            shape = f"not a block of its torus {dims}" if dims else "on a torus of unknown dims"
            return NoPrice(f"{system}: these {len(island)} ranks are {shape}", "scale_up.dims")
        egress = rate
        rate *= len(block) / len(up.dims or ())
        pair = rate / len(block) / 2
    closes = _CLOSES.get(up.fabric.id, 3)
    return replace(
        group,
        machine=f"{system} {up.fabric.id}",
        network=up.peers,
        peers=up.peers,
        up_bytes_per_s=rate,
        pair_bytes_per_s=pair,
        egress_bytes_per_s=egress,
        up_hop_s=up.fabric.hop_latency_s,
        up_latency=1.0 if up.latency_factor is None else up.latency_factor,
        reduces=up.in_network_reduction,
        dims=tuple(length for length, _ in block),
        rings=tuple(bool(up.closes_rings) and is_full and length >= closes for length, is_full in block),
        assumptions=group.assumptions + assumptions,
    )


def _group_across_nodes(
    group: Group, system: System, members: list[int], transport: str | None
) -> Group | NoPrice:
    out = system.scale_out
    if out is None:
        return NoPrice(f"{system.id}: the group spans nodes, but the system has no scale_out", "scale_out")
    rate, assumptions = _usable_rate(out, NETWORK_SHARE, "network's")
    if rate is None:
        return NoPrice(f"{system.id}: scale_out.bytes_per_s is not known", "scale_out.bytes_per_s")
    driver = network_software(system, transport)
    if driver is None:
        name = transport or out.transport
        return NoPrice(
            f"{system.id}: the latency of transport {name or '(none named)'} is not known",
            "scale_out.transport_latency_s",
        )
    island = rate * system.nearest_interfaces(members)
    # Islands of several nodes (NVL72) have the interfaces of all their nodes, behind uplinks that they share.
    if system.domain_size > system.per_node:
        island *= max(len(system.ranks_by_node(members)) // group.nodes, 1)
        island /= out.oversubscription or 1.0
        if out.oversubscription is None:
            assumptions += (f"uplinks between scale-up domains of {system.id} are assumed not to block",)
    name = transport or out.transport or ""
    return replace(
        group,
        machine=f"{system.id} {out.fabric.id} {name}",
        network=name,
        between_domains=system.domain_size > system.per_node,
        out_bytes_per_s=island,
        nic_bytes_per_s=island / group.per_node,
        out_hop=driver.hop,
        rendezvous=driver.rendezvous,
        eager_bytes=driver.eager_bytes,
        protocols=driver.protocols,
        surely=driver.surely,
        assumptions=(*group.assumptions, *assumptions, *filter(None, [driver.assumed])),
    )


def _usable_rate(tier: ScaleUp | ScaleOut, share: float, whose: str) -> tuple[float | None, tuple[str, ...]]:
    """A tier's usable rate; if its fabric states none, `share` of the line rate, with a note saying so."""
    rate = tier.usable_bytes_per_s
    if rate is not None or tier.bytes_per_s is None:
        return rate, ()
    return tier.bytes_per_s * share, (f"{share:.0%} of the {whose} line rate is assumed usable",)


def _torus_block(dims: tuple[int, ...], island: list[int]) -> tuple[tuple[int, bool], ...]:
    """Length of the ranks' block along each axis it spans, and whether it fills the axis; () if not a block.

    Ranks are numbered along the last axis first.
    """
    if math.prod(dims) < 2:
        return ()
    places = np.unravel_index(np.array(island) % math.prod(dims), dims)
    lengths = [int(place.max() - place.min()) + 1 for place in places]
    if math.prod(lengths) != len(island):
        return ()
    return tuple((length, length == axis) for length, axis in zip(lengths, dims, strict=True) if length > 1)
