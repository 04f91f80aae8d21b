# SPDX-License-Identifier: Apache-2.0
"""The machine of a run as ASTRA-sim inputs: network, system, logical topology, remote memory.

Facts of the formats: github.com/astra-sim/astra-sim at 518bd513ae110428cd62eb60efc0f3993fd53c70, and of the
analytical network github.com/astra-sim/astra-network-analytical at 599a0473a9a74f5383f73b3cea5a12b9bc5ebaef.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cclbench.ground.errors import InputError
from cclbench.ground.schema import group_id
from cclbench.hardware.collectives import Group, NoPrice, group_of
from cclbench.hardware.collectives.nccl import NcclConstants, nccl_constants
from cclbench.hardware.collectives.transport import SIMPLE
from cclbench.hardware.fabric import Fabric
from cclbench.hardware.system import System
from cclbench.machine import Machine
from cclbench.record.run import Run

SIMULATED: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "recv")
"""Kinds that ASTRA-sim simulates; a broadcast has its recorded duration there."""
_GB: Final = 1 << 30
"""Bytes per GB in the analytical network."""
_NCCL: Final = "NCCL, src/graph/tuning.cc: a step of a ring, protocol Simple"
_RCCL: Final = "RCCL, src/graph/tuning.cc: a step of a ring, protocol Simple"
_COLLECTIVES: Final = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
_SETTINGS: Final = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 4,
    "collective-optimization": "localBWAware",
    "boost-mode": 0,
    "roofline-enabled": 0,
}
"""Settings of the simulator, not of the machine, from ASTRA-sim's example Ring_4chunks.json."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of the network: number of NPUs, bandwidth of a link in one direction, latency.

    `sources` state the origin of each figure.
    """

    topology: str
    npus: int
    bytes_per_s: float
    latency_s: float
    sources: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MachineFiles:
    """Contents by file name, and lines for the README."""

    texts: Mapping[str, str]
    words: tuple[str, ...]


def machine_files(machine: Machine, run: Run, ranks: Sequence[int] | None) -> MachineFiles:
    """The machine of the run, to simulate `ranks`; `InputError` for unknown properties."""
    world = max(machine.world_size or 0, max(run.ranks, default=-1) + 1)
    if missing := sorted(set(range(world)) - set(run.ranks if ranks is None else ranks)):
        raise InputError(
            f"no trace of ranks {group_id(tuple(missing))}: each of ASTRA-sim's {world:,} NPUs needs its own",
            hint="--to chakra takes any ranks",
        )
    if world < 2:
        raise InputError("ASTRA-sim requires at least two NPUs, and the run has one rank")
    answer = machine.system
    system = answer.value
    if system is None:
        raise InputError(f"the machine is unknown: {answer.reason}", hint="give --system ID")
    placed = machine.numbered_in(system, range(world))
    if placed is None or list(placed) != sorted(placed):
        raise InputError("unknown which ranks share a node", hint="give --per-node N")
    group = group_of(system, placed)
    if isinstance(group, NoPrice):
        raise InputError(f"{system.id}: {group.reason}", hint="name another machine: --system ID")
    dimensions = _network_dimensions(system, group, run.rank(run.ranks[0]).facts.library_version)
    sizes = [each.npus for each in dimensions]
    settings = {
        f"{kind}-implementation": [_dimension_algorithm(each) for each in dimensions] for kind in _COLLECTIVES
    }
    texts = {
        "network.yml": _network_yaml(system, dimensions),
        "system.json": json.dumps(_SETTINGS | settings, indent=1) + "\n",
        "logical_topology.json": json.dumps({"logical-dims": [str(size) for size in sizes]}) + "\n",
        "remote_memory.json": json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}) + "\n",
    }
    basis = f" ({answer.reason})" if answer.reason else ""
    words = (
        f"Machine: {system.id}{basis}; its figures and their sources are in network.yml.",
        *(f"Assumed: {text}." for text in group.assumptions),
        "system.json holds settings of the simulator, those of its example Ring_4chunks.json, and no figure",
        "of the machine. Which algorithm a collective takes is chosen there, and was not measured.",
        "",
        "An NPU of ASTRA-sim runs one CPU node, one compute node and one communication at a time. Threads",
        "share the CPU and streams the accelerator: a node that ran while another of its resource did has",
        "the duration that it ran on alone (duration_micros; duration_ns is the measured one), and ctrl_deps",
        "order it behind those that began and ended during it. Latencies that delayed nothing are left out.",
        "A rank's transfers follow one another in the order that all ranks have, and are waited for until",
        "their end.",
        "",
        "AstraSim_Analytical_Congestion_Unaware --workload-configuration=workload"
        " --comm-group-configuration=comm_groups.json --system-configuration=system.json"
        " --network-configuration=network.yml --remote-memory-configuration=remote_memory.json",
    )
    return MachineFiles(texts, words)


def _dimension_algorithm(dimension: Dimension) -> str:
    return "direct" if dimension.topology == "FullyConnected" else "ring"


def _network_dimensions(system: System, group: Group, library_version: str | None) -> list[Dimension]:
    """The network's dimensions, that of neighbouring ranks first."""
    table, library = nccl_constants(library_version), _NCCL
    if system.architecture == "amd":
        table, library = table.rccl_constants(), _RCCL
    if group.peers == "pcie-tree":
        table = table.over_pci()
    dimensions = _dimensions_in_node(system, group, table, library) if group.per_node > 1 else []
    return dimensions + ([_dimension_across_nodes(system, group, table)] if group.nodes > 1 else [])


def _dimensions_in_node(system: System, group: Group, table: NcclConstants, library: str) -> list[Dimension]:
    up = system.scale_up
    assert up is not None  # noqa: S101  (else `group_of` refuses)
    sources = (
        f"bandwidth: {_cited_source(system, 'scale_up.bytes_per_s')}",
        f"share usable: {_cited_source(up.fabric, 'usable_fraction')}",
    )
    hop = up.fabric.hop_latency_s
    if group.peers == "torus":
        if hop is None:
            raise InputError(f"{up.fabric.id}: hop_latency_s is not known")
        if not all(group.rings):
            raise InputError(f"{system.id}: its torus does not close into rings, and ASTRA-sim has no lines")
        latency = f"latency: {_cited_source(up.fabric, 'hop_latency_s')}"
        lengths = reversed(group.dims)  # ranks count along the last axis first
        return [Dimension("Ring", size, group.pair_bytes_per_s, hop, (*sources, latency)) for size in lengths]
    switched = group.peers != "mesh"
    step = table.up_s("ring", SIMPLE)
    if hop is None:
        hop = step / 2 if switched else step
        latency = f"latency: {library}, {step * 1e6:g} us" + (", half of it for each of two hops" * switched)
    else:
        latency = f"latency: {_cited_source(up.fabric, 'hop_latency_s')}"
    rate = group.up_bytes_per_s if switched else group.pair_bytes_per_s
    kind = "Switch" if switched else "FullyConnected"
    return [Dimension(kind, group.per_node, rate, hop, (*sources, latency))]


def _dimension_across_nodes(system: System, group: Group, table: NcclConstants) -> Dimension:
    out = system.scale_out
    assert out is not None  # noqa: S101  (else `group_of` refuses)
    software = 2 * group.out_hop[1]
    step = table.net_s("ring", SIMPLE) + software
    sources = (
        f"bandwidth: {_cited_source(system, 'scale_out.bytes_per_s')}",
        f"interfaces: {_cited_source(system, 'scale_out.nics')}",
        f"share usable: {_cited_source(out.fabric, 'usable_fraction')}",
        f"latency: {_NCCL} over the network, and {software * 1e6:g} us of {out.transport},"
        f" {step * 1e6:g} us, half of it for each of two hops",
    )
    return Dimension("Switch", group.nodes, group.nic_bytes_per_s, step / 2, sources)


def _cited_source(entry: System | Fabric, name: str) -> str:
    """The source of a figure, in words."""
    key = entry.cited.get(name)
    source = entry.sources.get(key or "")
    return f"{entry.id}, {name}: {source.title if source else key or 'not cited'}"


def _network_yaml(system: System, dimensions: list[Dimension]) -> str:
    """YAML of the analytical network, where 1 GB is 2^30 bytes."""

    def yaml_row(name: str, values: list[str], comment: str) -> str:
        return f"{name}: [ {', '.join(values)} ]  # {comment}"

    lines = [
        f"# {system.id}",
        *(f"# dimension {at}, {text}" for at, each in enumerate(dimensions) for text in each.sources),
        yaml_row("topology", [each.topology for each in dimensions], "neighbours in rank first"),
        yaml_row("npus_count", [str(each.npus) for each in dimensions], "NPUs"),
        yaml_row(
            "bandwidth", [f"{each.bytes_per_s / _GB:.6g}" for each in dimensions], "2^30 B/s, one direction"
        ),
        yaml_row("latency", [f"{each.latency_s * 1e9:.6g}" for each in dimensions], "ns, of a link"),
    ]
    return "\n".join(lines) + "\n"
