# SPDX-License-Identifier: Apache-2.0
"""Fabrics of the catalog: what one link or one network interface carries, and how late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from cclbench.hardware.figure import Disagreement, FigureSource

Topology = Literal["switch", "mesh", "torus", "fat-tree", "dragonfly", "pcie-tree"]
"""How peers are joined."""
_ANY_NETWORK: Final = "socket"
"""The transport over TCP, which works on any network and is nobody's first choice."""


class Transport(msgspec.Struct, frozen=True):
    """Software that drives a fabric: the latency of a hop it adds to the library's own constants, s."""

    latency_s: float | None


class Fabric(msgspec.Struct, frozen=True):
    """One generation of links.  Rates are of one link (scale-up) or one interface (scale-out), one direction.

    `link_bytes_per_s` is the line rate, B/s; `links` how many an accelerator has in machines built with them;
    `usable_fraction` the share of it that large messages attain,
    0..1; `hop_latency_s` the hardware's, software apart, s.  `wraps` says of a torus whether whole rings
    close; `in_network_reduction` whether its switches can reduce (NVLS, SHARP).  What is not known is None.
    `cited` names the source of each figure by its dotted field (a key of `sources`, or `unverified`).
    """

    id: str
    kind: Literal["fabric"]
    tier: Literal["scale_up", "scale_out"]
    topology: Topology
    link_bytes_per_s: float | None
    usable_fraction: float | None = None
    hop_latency_s: float | None = None
    wraps: bool | None = None
    in_network_reduction: bool = False
    transports: Mapping[str, Transport] = {}
    links: int | None = None
    sources: Mapping[str, FigureSource] = {}
    cited: Mapping[str, str] = {}
    disagreements: tuple[Disagreement, ...] = ()
    notes: str | None = None

    @property
    def default_transport(self) -> str | None:
        """The software that comes with it: the first that is not for any network; None of none."""
        return next((name for name in self.transports if name != _ANY_NETWORK), None)

    def usable_bytes_per_s(self, bytes_per_s: float | None) -> float | None:
        """What large messages attain of a line rate, B/s; None where that or the share is not known."""
        if bytes_per_s is None or self.usable_fraction is None:
            return None
        return bytes_per_s * self.usable_fraction
