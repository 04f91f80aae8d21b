# SPDX-License-Identifier: Apache-2.0
"""Systems of the catalog: accelerators in a node, the fabric among them, the network between nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, cast

import msgspec
from msgspec import structs

from cclbench.ground.errors import UsageError
from cclbench.hardware.fabric import Fabric
from cclbench.hardware.figure import Disagreement, FigureSource

Architecture = Literal["volta", "ampere", "hopper", "blackwell", "amd", "tpu", "trainium"]
"""Generation by which communication libraries choose their tuning tables."""


Peers = Literal["switch", "mesh", "torus", "pcie-tree"]
"""How accelerators of a domain are joined."""


class ScaleUp(msgspec.Struct, frozen=True):
    """The links of one accelerator, one direction; a domain is all accelerators that they join.

    `bytes_per_s` is the line rate of all its links together, B/s; `links` how many; `peers` how the domain is
    joined, with `links_per_pair` of a mesh and `dims` of a torus (their product is `domain`); `wraps` says
    whether that torus closes into rings, None: as its fabric can.  `latency_factor` is what a scenario
    multiplies the latency of every step over these links by.
    """

    fabric: Fabric
    peers: Peers
    domain: int
    links: int | None = None
    bytes_per_s: float | None = None
    links_per_pair: int | None = None
    dims: tuple[int, ...] | None = None
    wraps: bool | None = None
    latency_factor: float | None = None

    def on_fabric(self, fabric: Fabric) -> ScaleUp:
        """The same accelerators joined by another generation of links: as many as those come with."""
        links, peers = fabric.links, cast(Peers, fabric.topology)
        rate = None if links is None or fabric.link_bytes_per_s is None else links * fabric.link_bytes_per_s
        each, rest = divmod(links or 0, max(self.domain - 1, 1))
        torus = peers == self.peers == "torus"
        return structs.replace(
            self,
            fabric=fabric,
            peers=peers,
            links=links,
            bytes_per_s=rate,
            links_per_pair=each if peers == "mesh" and each and not rest else None,
            dims=self.dims if torus else None,
            wraps=self.wraps if torus else None,
        )

    @property
    def closes_rings(self) -> bool | None:
        """Whether the axes of the torus close into rings; None where nobody says."""
        return self.fabric.wraps if self.wraps is None else self.wraps

    @property
    def usable_bytes_per_s(self) -> float | None:
        """What large messages attain on all links of one accelerator, one direction, B/s."""
        return self.fabric.usable_bytes_per_s(self.bytes_per_s)

    @property
    def in_network_reduction(self) -> bool:
        """Whether switches reduce: the generation can, and there are switches."""
        return self.fabric.in_network_reduction and self.peers == "switch"


class ScaleOut(msgspec.Struct, frozen=True):
    """The network interfaces of one node, each `bytes_per_s` line rate per direction, B/s.

    `transport` is the software used by default, a key of the fabric's `transports`; its latency on this
    machine, where one is published, is `transport_latency_s`.  `hop_latency_s` is what a scenario sets the
    software's latency of a hop to, in place of all that is known of it.
    """

    fabric: Fabric
    nics: int
    bytes_per_s: float | None = None
    transport: str | None = None
    transport_latency_s: float | None = None
    hop_latency_s: float | None = None

    def on_fabric(self, fabric: Fabric, accelerators: int) -> ScaleOut:
        """A node of so many accelerators on another network, with its interfaces and its software."""
        return ScaleOut(
            fabric,
            (fabric.links or 0) * accelerators,
            bytes_per_s=fabric.link_bytes_per_s,
            transport=fabric.default_transport,
        )

    @property
    def usable_bytes_per_s(self) -> float | None:
        """What large messages attain on one interface, one direction, B/s."""
        return self.fabric.usable_bytes_per_s(self.bytes_per_s)

    def latency_s(self, transport: str | None = None) -> float | None:
        """Software latency of `transport` (default: the machine's own), s; None where nobody states it."""
        if transport in (None, self.transport) and self.transport_latency_s is not None:
            return self.transport_latency_s
        known = self.fabric.transports.get(transport or self.transport or "")
        return known.latency_s if known else None


class System(msgspec.Struct, frozen=True):
    """One kind of node and what joins it to its likes; ranks are numbered node by node."""

    id: str
    kind: Literal["system"]
    accelerator: str
    per_node: int
    scale_up: ScaleUp | None
    scale_out: ScaleOut | None
    architecture: Architecture
    host_cpu: Literal["intel", "amd", "arm"] | None = None
    sources: Mapping[str, FigureSource] = {}
    cited: Mapping[str, str] = {}
    disagreements: tuple[Disagreement, ...] = ()
    notes: str | None = None

    @property
    def domain_size(self) -> int:
        """How many accelerators a scale-up domain holds: one where nothing joins them."""
        return self.scale_up.domain if self.scale_up else 1

    def tier_of(self, ranks: Sequence[int]) -> Literal["scale_up", "scale_out"] | None:
        """The tier that a group spans: within one scale-up domain or across; None for a group of one."""
        if len(set(ranks)) < 2:
            return None
        return "scale_up" if len({rank // self.domain_size for rank in ranks}) == 1 else "scale_out"

    def ranks_by_node(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """How many of the group's ranks each of its nodes holds, by node."""
        return tuple(Counter(rank // self.per_node for rank in sorted(set(ranks))).values())

    def group_members(self, ranks: int, nodes: int | None = None) -> Sequence[int]:
        """Global ranks of a group: the first of each of `nodes` nodes, or on as few nodes as hold them.

        `UsageError` where the nodes cannot hold equal parts of it.
        """
        if nodes is None:
            return range(ranks)
        each, rest = divmod(ranks, nodes)
        if rest or not each:
            raise UsageError(
                f"{ranks:,} ranks are not {nodes:,} equal parts", hint="formulas are for equal parts"
            )
        if each > self.per_node:
            hint = f"--nodes {-(-ranks // self.per_node)} at least"
            raise UsageError(f"{each:,} ranks a node: {self.id} has {self.per_node}", hint=hint)
        return [node * self.per_node + local for node in range(nodes) for local in range(each)]

    def nearest_interfaces(self, ranks: Sequence[int]) -> int:
        """Interfaces of a node that the group's accelerators are nearest to, fewest over its nodes.

        Accelerators have nics / per_node interfaces each; where there are fewer, neighbours share one.
        """
        if self.scale_out is None:
            return 0
        nics = self.scale_out.nics
        near: dict[int, set[int]] = {}
        for rank in set(ranks):
            node, local = divmod(rank, self.per_node)
            first, last = local * nics // self.per_node, (local + 1) * nics // self.per_node
            near.setdefault(node, set()).update(range(first, max(last, first + 1)))
        return min((len(rails) for rails in near.values()), default=0)
