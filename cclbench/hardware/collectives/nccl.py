# SPDX-License-Identifier: Apache-2.0
"""NCCL's own cost constants by version: latencies, protocol rates, the correction of trees.

Source: NVIDIA/nccl `src/graph/tuning.cc` at the releases named below.  Latencies there are in µs and rates
in GB/s; methods return s and B/s.  RCCL has its own latencies for calls and for steps within a node
(ROCm/rccl `src/graph/tuning.cc`, revision 9e22c79); for the rest it is priced with NCCL's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from cclbench.ground.units import KIB
from cclbench.hardware.collectives.cost import WORST, Assumed
from cclbench.hardware.collectives.group import Group
from cclbench.hardware.collectives.transport import LL128, PROTOCOLS, SIMPLE

_US: Final = 1e-6
_GB: Final = 1e9
_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})", re.ASCII)

_Three = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class NcclConstants:
    """One release's constants; triples are (LL, LL128, Simple), µs."""

    since: tuple[int, int]
    base: Mapping[str, _Three]
    nvlink: Mapping[str, _Three]
    pci: Mapping[str, _Three]
    net: Mapping[str, _Three]
    ll_most: Mapping[str, _Three]
    """LL's peak rate on one, two and more nodes, GB/s, by generation (across nodes: by host CPU)."""
    nvls_us: float | None
    nvls_tree_net_us: float
    ring_ll: float
    """LL's share of a ring's rate."""
    plateau: float
    """Factor on the latency of Simple rings over several nodes."""

    def base_s(self, algorithm: str, protocol: str) -> float:
        """Base latency of a call, s."""
        return self.base[algorithm][PROTOCOLS.index(protocol)] * _US

    def rccl_constants(self) -> NcclConstants:
        """The table with RCCL's latencies of calls and of steps within nodes (its tuning model of gfx942).

        RCCL's network figures (320 µs a step) only steer its choice of algorithm: NCCL's are kept.
        """
        return replace(
            self,
            base={"tree": (12.0, 12.0, 17.0), "ring": (12.0, 12.0, 17.0)},
            nvlink={"tree": (0.9, 0.9, 2.3), "ring": (0.8, 0.8, 2.1)},
        )

    def over_pci(self) -> NcclConstants:
        """The table for nodes without NVLink: steps within the node go over PCIe."""
        return replace(self, nvlink=self.pci)

    def up_s(self, algorithm: str, protocol: str) -> float:
        """Latency of a step within the node, s."""
        return self.nvlink[algorithm][PROTOCOLS.index(protocol)] * _US

    def net_s(self, algorithm: str, protocol: str) -> float:
        """Latency of a step over an InfiniBand-like network, s, without what other transports add."""
        return self.net[algorithm][PROTOCOLS.index(protocol)] * _US

    def ll_bytes_per_s(self, group: Group) -> float:
        """LL's peak rate: by generation within a node, by the hosts' CPU across nodes, B/s."""
        row = group.architecture if group.nodes == 1 else ("ampere" if group.host_cpu == "amd" else "volta")
        return self.ll_most.get(row, self.ll_most["ampere"])[min(group.nodes, 3) - 1] * _GB


_LL_MOST: Final = {"volta": (39.0, 39.0, 20.4), "ampere": (87.7, 22.5, 19.0)}
_HOPPER_LL: Final = (141.0, 45.0, 35.0)

_SINCE_2_29: Final = NcclConstants(
    since=(2, 29),
    base={"tree": (6.8, 14.0, 8.4), "ring": (6.6, 14.0, 8.4)},
    nvlink={"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)},
    pci={"tree": (1.0, 1.9, 4.0), "ring": (1.0, 2.5, 5.7)},
    net={"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)},
    ll_most={**_LL_MOST, "hopper": _HOPPER_LL, "blackwell": (282.0, 90.0, 70.0)},
    nvls_us=25.0,
    nvls_tree_net_us=20.9,
    ring_ll=0.5,
    plateau=1.4,
)
_SINCE_2_21: Final = replace(
    _SINCE_2_29,
    since=(2, 21),
    base={"tree": (6.8, 14.0, 0.0), "ring": (6.6, 14.0, 8.4)},
    nvlink={"tree": (0.6, 1.25, 28.0), "ring": (0.6, 1.9, 3.4)},
    pci={"tree": (1.0, 1.9, 28.0), "ring": (1.0, 2.5, 5.7)},
    net={"tree": (5.0, 8.5, 28.0), "ring": (2.7, 4.0, 14.0)},
    ll_most={**_LL_MOST, "hopper": _HOPPER_LL, "blackwell": _HOPPER_LL},
    nvls_tree_net_us=14.0,
)
_SINCE_2_19: Final = replace(
    _SINCE_2_21,
    since=(2, 19),
    ll_most={**_LL_MOST, "hopper": _LL_MOST["ampere"], "blackwell": _LL_MOST["ampere"]},
    nvls_us=23.0,
    ring_ll=0.25,
)
VERSIONS: Final = (
    _SINCE_2_29,
    replace(_SINCE_2_29, since=(2, 23), nvls_tree_net_us=14.0),  # Blackwell's row: from 2.27.3 on
    _SINCE_2_21,
    _SINCE_2_19,
    replace(
        _SINCE_2_19,
        since=(2, 18),
        nvlink={"tree": (0.6, 1.25, 4.0), "ring": (0.6, 1.9, 3.4)},
        pci={"tree": (1.0, 1.9, 6.0), "ring": (1.0, 2.5, 5.7)},
        net={"tree": (5.0, 8.5, 14.0), "ring": (2.7, 4.0, 14.0)},
        nvls_tree_net_us=19.0,
    ),
    # 2.8.4 to 2.17.1; but 2.12 has 28 µs for a Simple ring's step over the network, and 2.17 a plateau of 1.5
    # on Hopper and the first NVLS, at 40 µs.
    replace(
        _SINCE_2_19,
        since=(0, 0),
        base={"tree": (4.4, 4.4, 0.0), "ring": (3.6, 10.0, 8.4)},
        nvlink={"tree": (0.52, 1.25, 28.0), "ring": (0.47, 1.9, 3.4)},
        net={"tree": (5.0, 8.5, 28.0), "ring": (2.7, 4.0, 9.6)},
        nvls_us=None,
        plateau=1.9,
    ),
)

RING_LL128: Final = 0.92
TREE_LL: Final = 1 / 3.8
TREE_LL128_ONE_NODE: Final = 7 / 9
TREE_LL128: Final = 120 / 128
TREE_RATE: Final = 0.92

NVLS_EFFICIENCY: Final = {"hopper": 0.85, "blackwell": 0.74}

CHUNKS_BYTES: Final = 16 * 512 * KIB
"""Most bytes in flight at a hop: a step's 512 KiB (NCCL_BUFFSIZE / NCCL_STEPS) in 16 channels."""


def nccl_constants(version: str | None) -> NcclConstants:
    """The constants of a release (`2.21.5`); the newest if the version is unknown or cannot be parsed."""
    release = _parse_release(version)
    return next(table for table in VERSIONS if release is None or table.since <= release)


def unread_version_note(version: str | None) -> tuple[str, ...]:
    """The assumption made for a version that cannot be parsed, in words; empty for any other."""
    if version is None or _parse_release(version) is not None:
        return ()
    return (f"{version[:20]!a} is not an NCCL version: the newest release's figures are used",)


def usable_protocols(group: Group, assumed: Assumed, version: str | None = None) -> tuple[str, ...]:
    """Protocols in use: those the network software permits; LL128 needs NVLink and close interfaces.

    Interfaces behind a Grace CPU count as close only from release 2.28 on, which accepts its C2C link.
    """
    release = _parse_release(version)
    near = group.nodes == 1 or group.host_cpu != "arm" or (release is not None and release >= (2, 28))
    fit = near and group.peers != "pcie-tree"
    through = group.surely if assumed.edge == WORST.edge else group.protocols
    return tuple(protocol for protocol in through if fit or protocol != LL128)


def _parse_release(version: str | None) -> tuple[int, int] | None:
    match = _VERSION.match(version or "")
    return None if match is None else (int(match[1]), int(match[2]))


def net_overhead_s(group: Group, protocol: str) -> float:
    """Time the proxy needs to post a message, s: 2 µs on AMD hosts, else 1 µs; Simple takes three."""
    if group.nodes == 1:
        return 0.0
    return (2.0 if group.host_cpu == "amd" else 1.0) * _US * (3 if protocol == SIMPLE else 1)
