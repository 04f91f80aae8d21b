# SPDX-License-Identifier: Apache-2.0
"""Fabrics in the catalog: rate and latency of one link or one network interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from cclbench.hardware.figure import Disagreement, FigureSource

Topology = Literal["switch", "mesh", "torus", "fat-tree", "dragonfly", "pcie-tree"]
"""How peers are connected."""
_ANY_NETWORK: Final = "socket"
"""The transport over TCP: works on any network, but is never the default."""


class Transport(msgspec.Struct, frozen=True):
    """Software of a fabric: the latency per hop it adds to the library's own constants, s."""

    latency_s: float | None


class Fabric(msgspec.Struct, frozen=True):
    """One generation of links; rates are per link (scale-up) or interface (scale-out), in one direction.

    `link_bytes_per_s` is the line rate, B/s; `links` the number per accelerator in machines built with it;
    `usable_fraction` the share of the line rate that large messages reach, 0..1; `hop_latency_s` the
    hardware's latency without software, s.  `wraps`: whether a torus' full axes close into rings;
    `in_network_reduction`: whether its switches can reduce (NVLS, SHARP).  `announced`: not yet
    delivered.  Unknown fields are None.  `cited` maps each figure's dotted field to its source (a key of
    `sources`, or `unverified`).
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
    announced: bool = False
    sources: Mapping[str, FigureSource] = {}
    cited: Mapping[str, str] = {}
    disagreements: tuple[Disagreement, ...] = ()
    notes: str | None = None

    @property
    def default_transport(self) -> str | None:
        """The fabric's own software: the first transport other than TCP; None if there is none."""
        return next((name for name in self.transports if name != _ANY_NETWORK), None)

    def usable_bytes_per_s(self, bytes_per_s: float | None) -> float | None:
        """Rate that large messages reach at a line rate, B/s; None if the rate or the share is not known."""
        if bytes_per_s is None or self.usable_fraction is None:
            return None
        return bytes_per_s * self.usable_fraction
