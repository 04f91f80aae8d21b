# SPDX-License-Identifier: Apache-2.0
"""Systems in the catalog: accelerators in a node, the fabric between them, the network between nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, cast

import msgspec
from msgspec import structs

from cclbench.ground.errors import UsageError
from cclbench.hardware.fabric import Fabric
from cclbench.hardware.figure import Disagreement, FigureSource

Architecture = Literal["volta", "ampere", "hopper", "blackwell", "amd", "tpu", "trainium", "gaudi", "xe"]
"""Generation that communication libraries choose their tuning tables by."""


Peers = Literal["switch", "mesh", "torus", "pcie-tree"]
"""How accelerators of a domain are connected."""


class ScaleUp(msgspec.Struct, frozen=True):
    """The links of one accelerator, in one direction; a domain is all accelerators that they connect.

    `bytes_per_s` is the line rate of all its links together, B/s; `links` their number; `peers` the topology,
    with `links_per_pair` of a mesh and `dims` of a torus (their product is `domain`); `wraps`: whether the
    torus closes into rings, None: as its fabric can.  `latency_factor`, set by scenarios, multiplies the
    latency of every step over these links.
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
        """The same accelerators on another generation of links, with its number of links."""
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
        """Whether the axes of the torus close into rings; None if not known."""
        return self.fabric.wraps if self.wraps is None else self.wraps

    @property
    def usable_bytes_per_s(self) -> float | None:
        """Rate that large messages reach on all links of one accelerator, in one direction, B/s."""
        return self.fabric.usable_bytes_per_s(self.bytes_per_s)

    @property
    def in_network_reduction(self) -> bool:
        """Whether switches reduce: the fabric can, and there are switches."""
        return self.fabric.in_network_reduction and self.peers == "switch"


class ScaleOut(msgspec.Struct, frozen=True):
    """The network interfaces of one node, each with a line rate of `bytes_per_s` per direction, B/s.

    `transport` is the default software, a key of the fabric's `transports`; `transport_latency_s` its latency
    on this machine, if published.  `hop_latency_s`, set by scenarios, replaces the software's hop latency.
    `oversubscription`: the rate of the interfaces of a scale-up domain of several nodes (a rack) over that of
    its uplinks to other domains, at least 1; None if not stated.
    """

    fabric: Fabric
    nics: int
    bytes_per_s: float | None = None
    transport: str | None = None
    transport_latency_s: float | None = None
    hop_latency_s: float | None = None
    oversubscription: float | None = None

    def on_fabric(self, fabric: Fabric, accelerators: int) -> ScaleOut:
        """The interfaces of a node of `accelerators` on another network, with its default software."""
        return ScaleOut(
            fabric,
            (fabric.links or 0) * accelerators,
            bytes_per_s=fabric.link_bytes_per_s,
            transport=fabric.default_transport,
        )

    @property
    def usable_bytes_per_s(self) -> float | None:
        """Rate that large messages reach on one interface, in one direction, B/s."""
        return self.fabric.usable_bytes_per_s(self.bytes_per_s)

    def latency_s(self, transport: str | None = None) -> float | None:
        """Software latency of `transport` (default: the machine's own), s; None if not known."""
        if transport in (None, self.transport) and self.transport_latency_s is not None:
            return self.transport_latency_s
        software = self.fabric.transports.get(transport or self.transport or "")
        return software.latency_s if software else None


class System(msgspec.Struct, frozen=True):
    """A kind of node and the network between such nodes; ranks are numbered node by node.

    `announced`: not yet delivered, its figures may change.
    """

    id: str
    kind: Literal["system"]
    accelerator: str
    per_node: int
    scale_up: ScaleUp | None
    scale_out: ScaleOut | None
    architecture: Architecture
    host_cpu: Literal["intel", "amd", "arm"] | None = None
    announced: bool = False
    sources: Mapping[str, FigureSource] = {}
    cited: Mapping[str, str] = {}
    disagreements: tuple[Disagreement, ...] = ()
    notes: str | None = None

    @property
    def domain_size(self) -> int:
        """Accelerators per scale-up domain: one if nothing connects them."""
        return self.scale_up.domain if self.scale_up else 1

    def tier_of(self, ranks: Sequence[int]) -> Literal["scale_up", "scale_out"] | None:
        """The tier that a group spans: within a scale-up domain or across domains; None for one rank."""
        if len(set(ranks)) < 2:
            return None
        return "scale_up" if len({rank // self.domain_size for rank in ranks}) == 1 else "scale_out"

    def ranks_by_node(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """The group's number of ranks on each of its nodes, by node."""
        return tuple(Counter(rank // self.per_node for rank in sorted(set(ranks))).values())

    def group_members(self, ranks: int, nodes: int | None = None) -> Sequence[int]:
        """Global ranks of a group: the first of each of `nodes` nodes, or on as few nodes as possible.

        Nodes that fill no whole number of scale-up domains are divided equally over as few as hold them, as
        jobs on racks are. `UsageError` if the group cannot be split equally over the nodes.
        """
        if nodes is None:
            return range(ranks)
        each, rest = divmod(ranks, nodes)
        if rest or not each:
            raise UsageError(
                f"{ranks:,} ranks do not divide equally over {nodes:,} nodes",
                hint="formulas need the same number on each",
            )
        if each > self.per_node:
            hint = f"give --nodes {-(-ranks // self.per_node)} or more"
            raise UsageError(
                f"{each:,} ranks per node, but {self.id} has {self.per_node} accelerators per node", hint=hint
            )
        of_domain = max(self.domain_size // self.per_node, 1)
        in_each, rest = divmod(nodes, -(-nodes // of_domain))
        used = of_domain if rest else in_each
        first = [(node // used * of_domain + node % used) * self.per_node for node in range(nodes)]
        return [rank + local for rank in first for local in range(each)]

    def nearest_interfaces(self, ranks: Sequence[int]) -> int:
        """Interfaces nearest to the group's accelerators, on the node with the fewest.

        Each accelerator has nics / per_node interfaces; where that is below one, neighbours share one.
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
