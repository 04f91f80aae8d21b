# SPDX-License-Identifier: Apache-2.0
"""A group of ranks as the cost of a collective sees it: how many where, and what joins them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cclbench.hardware.system import Architecture, ScaleOut, ScaleUp, System

# Share of the line rate that large messages reach where the fabric does not say: NVIDIA expects 46 to 48
# of the 50 GB/s of an NDR interface (nccl-tests#290), Slingshot-11 is published at 92.5 of 100 GB/s.
NETWORK_SHARE: Final = 0.92


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no price: the reason, and the field of the catalog that is missing, where one is."""

    reason: str
    field: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """`ranks` ranks, the same number in each of `nodes` islands (a scale-up domain, mostly a node).

    Rates are usable ones, per direction, B/s: `up_bytes_per_s` of one accelerator to its island's others in
    the group, `pair_bytes_per_s` of it to one of them, `out_bytes_per_s` of an island to the others,
    `nic_bytes_per_s` what one accelerator has of that.  Latencies are s.  `dims` are the torus axes
    that the group fills, `wraps` whether they are rings.
    """

    ranks: int
    nodes: int
    architecture: Architecture
    host_cpu: str | None
    peers: str
    up_bytes_per_s: float = 0.0
    pair_bytes_per_s: float = 0.0
    up_hop_s: float | None = None
    reduces: bool = False
    dims: tuple[int, ...] = ()
    wraps: bool = False
    out_bytes_per_s: float = 0.0
    nic_bytes_per_s: float = 0.0
    out_hop_s: float = 0.0
    eager_bytes: float | None = None
    rendezvous_s: float = 0.0
    assumptions: tuple[str, ...] = ()

    @property
    def per_node(self) -> int:
        """Ranks of the group in each island."""
        return self.ranks // self.nodes


def group_of(system: System, ranks: Sequence[int], *, transport: str | None = None) -> Group | Refusal:
    """The group that these global ranks (numbered node by node) are, or why it cannot be priced."""
    members = sorted(set(ranks))
    if len(members) < 2:
        return Refusal("a group of one moves nothing")
    if members[0] < 0:
        return Refusal(f"rank {members[0]} is negative")
    domain = system.scale_up.domain if system.scale_up else 1
    islands: dict[int, list[int]] = {}
    for rank in members:
        islands.setdefault(rank // domain, []).append(rank)
    sizes = sorted({len(island) for island in islands.values()})
    if len(sizes) > 1:
        return Refusal(
            f"the group has {sizes[0]} to {sizes[-1]} ranks a node: formulas are for equal parts;"
            " price its schedule as a step list"
        )
    group = Group(len(members), len(islands), system.architecture, system.host_cpu, peers="switch")
    if system.scale_up is not None and sizes[0] > 1:
        inside = _inside(group, system.id, system.scale_up, sizes[0])
        if isinstance(inside, Refusal):
            return inside
        group = inside
    return group if len(islands) == 1 else _across(group, system, members, transport)


def _inside(group: Group, system: str, up: ScaleUp, size: int) -> Group | Refusal:
    rate = up.usable_bytes_per_s
    if rate is None:
        field = "bytes_per_s" if up.bytes_per_s is None else "fabric.usable_fraction"
        return Refusal(f"{system}: scale_up.{field} is not known", f"scale_up.{field}")
    pair = rate
    dims: tuple[int, ...] = ()
    if up.peers == "mesh":
        if up.domain < 2:
            return Refusal(f"{system}: a mesh needs a domain of two or more", "scale_up.domain")
        pair = rate / (up.domain - 1)
        rate = pair * (size - 1)
    elif up.peers == "torus":
        dims = _axes(up.dims or (), size)
        if not dims:
            return Refusal(
                f"{system}: {size} ranks are not whole axes of its torus {_times(up.dims or ())}",
                "scale_up.dims",
            )
        rate *= len(dims) / len(up.dims or ())
        pair = rate / len(dims) / 2
    return replace(
        group,
        peers=up.peers,
        up_bytes_per_s=rate,
        pair_bytes_per_s=pair,
        up_hop_s=up.fabric.hop_latency_s,
        reduces=up.in_network_reduction,
        dims=dims,
        wraps=bool(up.fabric.wraps),
    )


def _across(group: Group, system: System, members: list[int], transport: str | None) -> Group | Refusal:
    out = system.scale_out
    if out is None:
        return Refusal(f"{system.id}: the group spans nodes and there is no scale_out", "scale_out")
    rate, assumptions = out.usable_bytes_per_s, group.assumptions
    if rate is None and out.bytes_per_s is not None:
        rate = out.bytes_per_s * NETWORK_SHARE
        assumptions += (f"{NETWORK_SHARE:.0%} of the network's line rate is taken for usable",)
    if rate is None:
        return Refusal(f"{system.id}: scale_out.bytes_per_s is not known", "scale_out.bytes_per_s")
    latency, eager, rendezvous = _software(out, transport)
    if latency is None:
        name = transport or out.transport
        return Refusal(
            f"{system.id}: the latency of transport {name or '(none named)'} is not known",
            "scale_out.transport_latency_s",
        )
    island = rate * max(system.rails(members), 1)
    # Islands of several nodes (NVL72) have the interfaces of all of them: rails counts one node's.
    if system.scale_up is not None and system.scale_up.domain > system.per_node:
        island *= max(len(system.nodes(members)) // group.nodes, 1)
    return replace(
        group,
        out_bytes_per_s=island,
        nic_bytes_per_s=island / group.per_node,
        out_hop_s=latency,
        eager_bytes=eager,
        rendezvous_s=rendezvous,
        assumptions=assumptions,
    )


def _software(out: ScaleOut, transport: str | None) -> tuple[float | None, float | None, float]:
    """Latency of a hop on top of InfiniBand's, of eager messages; their limit; what larger ones pay."""
    name = transport or out.transport
    stated = out.latency_s(transport)
    if name in _EAGER:
        limit, rendezvous = _EAGER[name]
        return (0.0 if stated is None else stated), limit, rendezvous
    return stated, None, 0.0


# Largest eager message, B, and the latency that a larger one adds, s.  CXI: fi_cxi(7), rendezvous from
# 2,049 B on; what a message through aws-ofi-nccl then costs is the figure of that plugin's own model.
_EAGER: Final = {"cxi": (2048.0, 20e-6)}


def _axes(dims: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The fewest whole axes that hold exactly `size` ranks, innermost (last) first; () where none do."""
    if math.prod(dims) == size:
        return tuple(axis for axis in dims if axis > 1)
    for first in range(len(dims)):
        for last in range(first + 1, len(dims) + 1):
            if math.prod(dims[first:last]) == size:
                return tuple(axis for axis in dims[first:last] if axis > 1)
    return ()


def _times(dims: tuple[int, ...]) -> str:
    return "x".join(map(str, dims)) or "(dims not known)"
