# SPDX-License-Identifier: Apache-2.0
"""The machine of a run: accelerator, system, node and device of each rank, the tier that a group spans.

Options take precedence over the card, the card over the traces.  Nodes follow from the number of devices
that traces count, if the ranks fill whole nodes; else a file of several ranks is one node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar

from msgspec import structs

from cclbench.hardware import catalog
from cclbench.hardware.accelerator import Accelerator
from cclbench.hardware.system import ScaleOut, ScaleUp, System
from cclbench.record.facts import TraceFacts

if TYPE_CHECKING:
    from cclbench.card import Card
    from cclbench.card.model import Hardware
    from cclbench.record.manifest import RankEntry
    from cclbench.record.run import Run

Origin = Literal["option", "card", "catalog", "trace", "capture", "assumption"]
Tier = Literal["scale_up", "scale_out"]
T = TypeVar("T")

UNKNOWN_NODES: Final = "neither a card nor the traces tell which ranks share a node"


@dataclass(frozen=True, slots=True)
class Learned(Generic[T]):
    """A value and its origin; None if unknown.

    `reason` states why there is no value, or the basis of an assumption; `contradicts` are sentences.
    """

    value: T | None
    learned_from: Origin | None = None
    reason: str | None = None
    contradicts: tuple[str, ...] = ()


def _nothing_stated() -> Hardware:
    from cclbench.card.model import Hardware  # cards are read by few commands

    return Hardware()


@dataclass(frozen=True)
class Machine:
    """The machine of a run; made by `machine_of_ranks` and `machine_of`.

    `devices` are the distinct names and memory sizes (bytes) of devices in the traces, `counts` the distinct
    numbers of devices that they count, `captures` is the index of the file of each rank, if files hold
    several ranks.  `system_option` and `per_node_option` are given by the caller and take precedence.
    """

    hardware: Hardware = field(default_factory=_nothing_stated)
    ranks: Sequence[int] = ()
    """Ranks that have a trace; consecutive ones as a `range`, which is small when sent to a process."""
    stated_world: int | None = None
    devices: tuple[tuple[str, int | None], ...] = ()
    counts: tuple[int, ...] = ()
    captures: Mapping[int, int] = field(default_factory=dict)
    on_host: bool = False
    """Whether the device of all ranks is the CPU."""
    links_leave_nodes: bool = False
    """Whether links may extend beyond the file's node, as those of TPUs do."""
    system_option: str | None = None
    per_node_option: int | None = None

    @property
    def world_size(self) -> int | None:
        """Number of ranks of the job: from the traces, else the card's number of accelerators."""
        return self.stated_world or self.hardware.count

    @property
    def accelerator_count(self) -> Learned[int]:
        """Number of accelerators: from the card, else the world size, else one for each rank with a trace."""
        if self.hardware.count is not None:
            return Learned(self.hardware.count, "card")
        if self.stated_world is not None:
            return Learned(self.stated_world, "trace")
        if self.ranks:
            return Learned(len(self.ranks), "assumption", "one for each rank that has a trace")
        return Learned(None, reason="neither the card (hardware.count) nor a trace tells how many there are")

    @property
    def device_names(self) -> tuple[str, ...]:
        """Names of the devices in the traces; `CPU` if that is the device and has no name."""
        return tuple(dict.fromkeys(name for name, _ in self.devices)) or (("CPU",) if self.on_host else ())

    @cached_property
    def accelerator(self) -> Learned[Accelerator]:
        """The catalog's entry: of the card, else of the named system, else of the device in the traces."""
        named = self.hardware.accelerator
        if named is not None:
            entry = catalog.accelerators().get(named)
            if entry is None:
                return Learned(None, reason=_no_accelerator(named))
            return Learned(entry, "card", contradicts=self._other_devices(entry, f"the card says {named}"))
        system = self.named_system.value
        if system is not None:
            entry = catalog.accelerator(system.accelerator)
            words = f"the system {system.id} has {entry.id}"
            return Learned(entry, "catalog", contradicts=self._other_devices(entry, words))
        traced = self._traced_accelerators
        if len(traced) == 1:
            return Learned(traced[0], "trace")
        if traced:
            return Learned(None, reason=f"the traces name several: {', '.join(each.id for each in traced)}")
        if self.on_host:
            return Learned(catalog.accelerator("generic-cpu"), "trace")
        if self.devices:
            return Learned(None, reason=_no_accelerator(self.devices[0][0]))
        return Learned(
            None, reason="neither the card (hardware.accelerator) nor the trace names the accelerator"
        )

    @cached_property
    def _traced_accelerators(self) -> list[Accelerator]:
        entries = [catalog.by_device_name(name, memory) for name, memory in self.devices]
        return list({each.id: each for each in entries if each is not None}.values())

    def _other_devices(self, stated: Accelerator, words: str) -> tuple[str, ...]:
        """A sentence if the traces name another accelerator."""
        other = [each.id for each in self._traced_accelerators if each.id != stated.id]
        return (f"{words}, the traces name {', '.join(other)}: {stated.id} is used",) if other else ()

    @cached_property
    def named_system(self) -> Learned[System]:
        """The system given as option, else that of the card."""
        if self.system_option is not None:
            return Learned(catalog.system(self.system_option), "option")
        named = self.hardware.system
        if named is None:
            return Learned(None)
        entry = catalog.systems().get(named)
        if entry is None:
            return Learned(None, reason=f"the catalog knows no system {named!r} (card: hardware.system)")
        return Learned(entry, "card")

    @property
    def other_device(self) -> str | None:
        """A sentence if the traces name a device that the system given as option does not have."""
        system = None if self.system_option is None else self.named_system.value
        if system is None:
            return None
        stated = catalog.accelerator(system.accelerator)
        other = [
            name
            for name, memory in self.devices or [(name, None) for name in self.device_names]
            if not (stated.has_name(name) and (memory is None or stated.has_memory(memory)))
        ]
        return f"{system.id} has {stated.id}, the traces name {', '.join(other)}" if other else None

    @cached_property
    def system(self) -> Learned[System]:
        """The named system; else, as an assumption, the links that all of the catalog's such nodes have."""
        named, hardware = self.named_system, self.hardware
        if named.value is not None or named.reason is not None:
            return named
        accelerator, per_node = self.accelerator, self.per_node
        if accelerator.value is None:
            return Learned(None, reason=accelerator.reason)
        if per_node.value is None:
            return Learned(None, reason=per_node.reason)
        node = f"{per_node.value} × {accelerator.value.id}"
        like = (accelerator.value.id, per_node.value)
        alike = [s for s in catalog.systems().values() if (s.accelerator, s.per_node) == like]
        if not alike or any(other.scale_up != alike[0].scale_up for other in alike):
            which = f"differ: {', '.join(s.id for s in alike)}" if alike else "are none"
            why = f"no card names the system (hardware.system), and the catalog's with {node} in a node"
            return Learned(None, reason=f"{why} {which}")
        cpus = {other.host_cpu for other in alike}
        assumed_system = structs.replace(
            alike[0],
            id=f"a node of {node}",
            host_cpu=alike[0].host_cpu if len(cpus) == 1 else None,
            scale_up=_with_stated_rate(alike[0].scale_up, hardware),
            scale_out=_stated_network(hardware),
        )
        basis = f"links as of {', '.join(s.id for s in alike)}, since no card names the system"
        return Learned(assumed_system, "assumption", basis)

    @cached_property
    def per_node(self) -> Learned[int]:
        """Devices per node, over which ranks are numbered."""
        stated, system, counted = self.hardware.per_node, self.named_system.value, self._counted_per_node
        if self.per_node_option is not None:
            return Learned(self.per_node_option, "option")
        if stated is not None:
            words = f"the card says {stated} a node (hardware.per_node)"
            contradicts = self._other_counts(stated, words)
            if system is not None and stated > system.per_node:
                contradicts += (f"{words}, and its system {system.id} has {system.per_node}",)
            return Learned(stated, "card", contradicts=contradicts)
        if system is not None:
            words = f"the card's system {system.id} has {system.per_node} a node"
            return Learned(system.per_node, "catalog", contradicts=self._other_counts(system.per_node, words))
        if counted is not None:
            return Learned(counted, "trace")
        if len(self.counts) > 1:
            counts = " and ".join(map(str, self.counts))
            return Learned(None, reason=f"the traces count {counts} devices in a node")
        fields = "hardware.system, hardware.per_node"
        return Learned(None, reason=f"neither the card ({fields}) nor the trace says what a node holds")

    @property
    def _counted_per_node(self) -> int | None:
        """Devices per node as all traces count them; None if a process sees only one of several."""
        if len(self.counts) != 1:
            return None
        alone = (self.world_size or len(self.ranks)) <= 1
        return self.counts[0] if self.counts[0] > 1 or alone else None

    def _other_counts(self, stated: int, words: str) -> tuple[str, ...]:
        """A sentence if the device count in the traces would put ranks onto other nodes."""
        counted = self._counted_per_node
        if counted in (None, stated) or (self.world_size and self.world_size <= min(stated, counted or 0)):
            return ()
        return (f"{words}, the traces count {counted} devices: the card's number is used",)

    @property
    def _uneven_reason(self) -> str | None:
        """Why nodes cannot be derived from the device count in the traces; None if they can."""
        counted, world = self._counted_per_node, self.world_size
        if counted is None or world is None or world <= counted or world % counted == 0:
            return None
        return f"the traces count {counted} devices, of which {world} ranks fill no whole number of nodes"

    @cached_property
    def _ranks_per_node(self) -> int | None:
        """Number of consecutive ranks per node; None if unknown."""
        per_node = self.per_node
        one_node = self.world_size and per_node.value and self.world_size <= per_node.value
        if per_node.learned_from != "trace" or one_node:
            return per_node.value
        return None if self._uneven_reason or self.captures or self.links_leave_nodes else per_node.value

    def node_of(self, rank: int) -> int | None:
        """Index of the rank's node; None if unknown."""
        return self.captures.get(rank) if self._ranks_per_node is None else rank // self._ranks_per_node

    @cached_property
    def node_by_rank(self) -> dict[int, int]:
        """Index of the node of each rank that has a trace, if known."""
        return {rank: node for rank in self.ranks if (node := self.node_of(rank)) is not None}

    def device_of(self, rank: int) -> tuple[int, int] | None:
        """The rank's node and the index of its device there; None if unknown."""
        if self._ranks_per_node is not None:
            return divmod(rank, self._ranks_per_node)
        node = self.captures.get(rank)
        if node is None:
            return None
        return node, sum(1 for other, there in self.captures.items() if there == node and other < rank)

    def numbered_in(self, system: System, ranks: Sequence[int]) -> Sequence[int] | None:
        """The ranks' devices in the numbering of `system`, node by node; None if nodes are unknown.

        If nodes have more ranks than the system's have devices, ranks are assumed to fill them in order.
        """
        if self._ranks_per_node == system.per_node:
            return ranks
        devices = [self.device_of(rank) for rank in ranks]
        if any(each is None for each in devices):
            return None
        places = [each for each in devices if each is not None]
        if any(local >= system.per_node for _, local in places):
            return ranks
        return [node * system.per_node + local for node, local in places]

    def tier_of(self, ranks: Sequence[int]) -> Learned[Tier]:
        """The tier that a group spans, from the system's links, else from nodes; `scale_up` for one rank."""
        system = self.system
        named = system.learned_from in ("option", "card")
        if self.links_leave_nodes and self._ranks_per_node is None and not named:
            return Learned(None, reason=UNKNOWN_NODES)
        if system.value is not None:
            placed = self.numbered_in(system.value, ranks)
            if placed is not None:
                return Learned(system.value.tier_of(placed) or "scale_up", system.learned_from)
        nodes = {self.node_of(rank) for rank in ranks}
        if None in nodes:
            return Learned(None, reason=self._uneven_reason or UNKNOWN_NODES)
        origin = "capture" if self._ranks_per_node is None else self.per_node.learned_from
        return Learned("scale_up" if len(nodes) == 1 else "scale_out", origin)

    def without_captures(self) -> Machine:
        """The machine without captures, unless nodes are known from these only; to send to processes."""
        return self if self._ranks_per_node is None else replace(self, captures={})

    @property
    def contradictions(self) -> list[str]:
        """Contradictions between traces and card, in sentences."""
        named = self.hardware.accelerator or self.hardware.system
        return [*(self.accelerator.contradicts if named else ()), *self.per_node.contradicts]


def mpi_version(card: Card | None) -> str | None:
    """What a card says of MPI, such as `Open MPI 4.1.4`; no reader finds it in a trace."""
    stated = card.software.communication if card is not None else None
    return stated.version if stated is not None and stated.library == "mpi" else None


def library_version(card: Card | None, facts: TraceFacts) -> str | None:
    """Version of the communication library: of the trace, else what a card says of MPI."""
    return mpi_version(card) if facts.library_version is None else facts.library_version


def machine_of_ranks(
    card: Card | None,
    facts: Mapping[int, TraceFacts],
    files: Mapping[int, str],
    *,
    system: str | None = None,
    per_node: int | None = None,
) -> Machine:
    """The machine from the card, the metadata of each rank's trace, and the file of each rank.

    `system` and `per_node` take precedence; `UsageError` if the catalog has no such system.
    """
    stated = list(facts.values())
    names = sorted(set(files.values()))
    several = len(names) < len(files)
    return Machine(
        hardware=_nothing_stated() if card is None else card.hardware,
        ranks=_as_range(tuple(facts)),
        stated_world=max((f.world_size for f in stated if f.world_size), default=None),
        devices=tuple(dict.fromkeys((f.device_name, f.device_memory_bytes) for f in stated if f.device_name)),
        counts=tuple(sorted({f.device_count for f in stated if f.device_count})),
        captures={rank: names.index(name) for rank, name in files.items()} if several else {},
        on_host=bool(stated) and all(f.works_on == "host" for f in stated),
        links_leave_nodes=len(names) > 1 and any(f.vendor == "google" for f in stated),
        system_option=None if system is None else catalog.system(system).id,
        per_node_option=per_node,
    )


def _as_range(ranks: tuple[int, ...]) -> Sequence[int]:
    """Consecutive ranks as a range, others unchanged."""
    consecutive = range(ranks[0], ranks[-1] + 1) if ranks else ()
    return consecutive if ranks == tuple(consecutive) else ranks


def machine_of(run: Run, *, system: str | None = None, per_node: int | None = None) -> Machine:
    """The machine of a stored run, see `machine_of_ranks`."""
    return machine_of_entries(run.card, run.record.ranks, system=system, per_node=per_node)


def machine_of_entries(
    card: Card | None, entries: Sequence[RankEntry], *, system: str | None = None, per_node: int | None = None
) -> Machine:
    """The machine from the card and the manifest's ranks, see `machine_of_ranks`."""
    files = {entry.rank: entry.files[0].name for entry in entries}
    facts = {entry.rank: entry.facts for entry in entries}
    return machine_of_ranks(card, facts, files, system=system, per_node=per_node)


def _no_accelerator(name: str) -> str:
    return f"the catalog knows no accelerator {name!r} (card: hardware.accelerator)"


def _with_stated_rate(links: ScaleUp | None, hardware: Hardware) -> ScaleUp | None:
    """The links with the rate that the card states, if it does."""
    rate = hardware.scale_up.bytes_per_s
    return structs.replace(links, bytes_per_s=rate) if links and rate else links


def _stated_network(hardware: Hardware) -> ScaleOut | None:
    """The card's network, if it states the number of interfaces and a fabric of the catalog."""
    stated = hardware.scale_out
    if stated.nics is None:
        return None
    fabric = catalog.fabrics().get(stated.fabric or "")
    if fabric is None or fabric.tier != "scale_out":
        return None
    return ScaleOut(fabric, stated.nics, stated.bytes_per_s or fabric.link_bytes_per_s)
