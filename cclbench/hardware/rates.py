# SPDX-License-Identifier: Apache-2.0
"""A group's share of its machine's links: the upper bound of its bus bandwidth with rings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from cclbench.hardware.system import ScaleOut, ScaleUp, System


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate in one direction, B/s, on the tier that the group spans.

    Within a domain: from one accelerator to the rest of the group.  Across domains: over the interfaces
    nearest to the group's accelerators, in the domain with the fewest.  `usable` is False if it is the line
    rate, because the share that large messages reach on `fabric` is not known.
    """

    bytes_per_s: float
    tier: Literal["scale_up", "scale_out"]
    fabric: str
    usable: bool


def rate_of(system: System, ranks: Sequence[int]) -> Rate | str:
    """The rate of a group of global ranks (numbered node by node), or why there is none."""
    tier = system.tier_of(ranks)
    if tier is None:
        return "a group of one rank moves no data"
    if system.scale_up is None and max(system.ranks_by_node(ranks)) > 1:
        tier = "scale_up"  # several share a node, whose links are not known
    part: ScaleUp | ScaleOut | None = system.scale_up if tier == "scale_up" else system.scale_out
    if part is None or part.bytes_per_s is None:
        words = "in its scale-up domain" if tier == "scale_up" else "of its network interfaces"
        return f"{system.id} states no rate {words}"
    shares = (
        _link_share(part, len(set(ranks))) if isinstance(part, ScaleUp) else _fewest_interfaces(system, ranks)
    )
    if isinstance(shares, str):
        return shares
    rate = part.usable_bytes_per_s
    return Rate(
        (part.bytes_per_s if rate is None else rate) * shares, tier, part.fabric.id, usable=rate is not None
    )


def _link_share(up: ScaleUp, size: int) -> float | str:
    """The share of an accelerator's links that leads to the others of a group of `size`."""
    if up.peers == "mesh" and size < up.domain:
        if up.links_per_pair is None:
            return "the number of links between two of its accelerators is not known"
        return (size - 1) / (up.domain - 1)
    if up.peers == "torus" and size < up.domain:
        return "which axes of the torus the group fills is not known"
    if up.peers == "torus" and not up.closes_rings:
        return 0.5  # a chip at the end of an axis has half of its links
    return 1.0


def _fewest_interfaces(system: System, ranks: Sequence[int]) -> int:
    """Interfaces near the group in the domain with the fewest; a domain may span several nodes."""
    domain = max(system.domain_size, system.per_node)
    inside = [list(members) for _, members in groupby(sorted(set(ranks)), lambda rank: rank // domain)]
    return min(system.nearest_interfaces(members) * len(system.ranks_by_node(members)) for members in inside)
