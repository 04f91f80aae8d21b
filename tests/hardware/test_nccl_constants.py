# SPDX-License-Identifier: Apache-2.0
"""NCCL's constants against its source: NVIDIA/nccl `src/graph/tuning.cc` at the tags named here.

Copied from there by hand, in its order and its units: µs, GB/s, triples (LL, LL128, Simple).
"""

from __future__ import annotations

import pytest

from cclbench.hardware.collectives import nccl
from cclbench.hardware.collectives.nccl import nccl_constants

TREE_AND_RING = {
    # {baseLat, hwLat[NVLINK], hwLat[PCI], hwLat[NET]}: {tree, ring}
    "v2.29.2-1 and v2.27.3-1": (
        ((6.8, 14.0, 8.4), (6.6, 14.0, 8.4)),
        ((0.6, 1.25, 4.0), (0.6, 1.9, 3.4)),
        ((1.0, 1.9, 4.0), (1.0, 2.5, 5.7)),
        ((5.0, 8.5, 14.0), (2.7, 4.0, 14.0)),
    ),
    "v2.18.3-1 and v2.18.6-1": (
        ((6.8, 14.0, 0.0), (6.6, 14.0, 8.4)),
        ((0.6, 1.25, 4.0), (0.6, 1.9, 3.4)),
        ((1.0, 1.9, 6.0), (1.0, 2.5, 5.7)),
        ((5.0, 8.5, 14.0), (2.7, 4.0, 14.0)),
    ),
    "v2.8.4-1, v2.10.3-1 and v2.16.5-1": (
        ((4.4, 4.4, 0.0), (3.6, 10.0, 8.4)),
        ((0.52, 1.25, 28.0), (0.47, 1.9, 3.4)),
        ((1.0, 1.9, 28.0), (1.0, 2.5, 5.7)),
        ((5.0, 8.5, 28.0), (2.7, 4.0, 9.6)),
    ),
    "v2.19.3-1 to v2.22.3-1": (
        ((6.8, 14.0, 0.0), (6.6, 14.0, 8.4)),
        ((0.6, 1.25, 28.0), (0.6, 1.9, 3.4)),
        ((1.0, 1.9, 28.0), (1.0, 2.5, 5.7)),
        ((5.0, 8.5, 28.0), (2.7, 4.0, 14.0)),
    ),
}


@pytest.mark.parametrize(
    ("version", "tag"),
    [
        ("2.29.2", "v2.29.2-1 and v2.27.3-1"), ("2.27.3", "v2.29.2-1 and v2.27.3-1"),
        ("2.23.4", "v2.29.2-1 and v2.27.3-1"), ("2.22.3", "v2.19.3-1 to v2.22.3-1"),
        ("2.21.5", "v2.19.3-1 to v2.22.3-1"), ("2.20.3", "v2.19.3-1 to v2.22.3-1"),
        ("2.19.3", "v2.19.3-1 to v2.22.3-1"), ("2.18.6", "v2.18.3-1 and v2.18.6-1"),
        ("2.16.5", "v2.8.4-1, v2.10.3-1 and v2.16.5-1"), ("2.10.3", "v2.8.4-1, v2.10.3-1 and v2.16.5-1"),
    ],
)  # fmt: skip
def test_latencies_of_trees_and_rings(version: str, tag: str) -> None:
    table = nccl_constants(version)
    found = [(own["tree"], own["ring"]) for own in (table.base, table.nvlink, table.pci, table.net)]
    assert found == [*TREE_AND_RING[tag]]


VOLTA, AMPERE, HOPPER = (39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0)


@pytest.mark.parametrize(
    ("version", "rows"),
    [
        # v2.29.2-1 and v2.27.3-1, llMaxBws: of Blackwell {2*141.0, 2*45.0, 2*35.0}
        ("2.29.2", {"hopper": HOPPER, "blackwell": (282.0, 90.0, 70.0)}),
        ("2.27.3", {"hopper": HOPPER, "blackwell": (282.0, 90.0, 70.0)}),
        # v2.21.5-1 and v2.22.3-1: no row of Blackwell
        ("2.22.3", {"hopper": HOPPER, "blackwell": HOPPER}),
        ("2.21.5", {"hopper": HOPPER, "blackwell": HOPPER}),
        # v2.20.3-1: Hopper as Ampere; of later ones it has no row, and takes Hopper's
        ("2.20.3", {"hopper": AMPERE, "blackwell": AMPERE}),
        # v2.10.3-1: {Volta, Ampere}
        ("2.10.3", {"hopper": AMPERE, "blackwell": AMPERE}),
    ],
)
def test_what_ll_moves_at_most(version: str, rows: dict[str, tuple[float, float, float]]) -> None:
    assert nccl_constants(version).ll_most == {"volta": VOLTA, "ampere": AMPERE, **rows}


@pytest.mark.parametrize(
    ("version", "nvls_us", "nvls_tree_net_us", "ring_ll", "plateau"),
    [
        ("2.29.2", 25.0, 20.9, 0.5, 1.4),
        ("2.27.3", 25.0, 14.0, 0.5, 1.4),
        ("2.23.4", 25.0, 14.0, 0.5, 1.4),
        ("2.21.5", 25.0, 14.0, 0.5, 1.4),
        ("2.20.3", 23.0, 14.0, 1 / 4, 1.4),
        ("2.18.3", 23.0, 19.0, 1 / 4, 1.4),  # baseLat of NVLS, hwLat[NVLINK] is 0
        ("2.10.3", None, 14.0, 1 / 4, 1.9),
    ],
)
def test_switches_and_shares(
    version: str, nvls_us: float | None, nvls_tree_net_us: float, ring_ll: float, plateau: float
) -> None:
    """hwLat[NVLINK] of NVLS, hwLat[NET] of NVLSTree; LL of a ring; `lat *=` of its plateau, Ampere on."""
    table = nccl_constants(version)
    assert (table.nvls_us, table.nvls_tree_net_us) == (nvls_us, nvls_tree_net_us)
    assert (table.ring_ll, table.plateau) == (ring_ll, plateau)


def test_shares_of_protocols() -> None:
    """`busBw *` in v2.29.2-1's ncclTopoTuneModel; nvlsEfficiency of Hopper and Blackwell."""
    assert nccl.RING_LL128 == 0.92
    assert nccl.TREE_RATE == 0.92
    assert nccl.TREE_LL == 1 / 3.8
    assert nccl.TREE_LL128_ONE_NODE == 7 / 9
    assert nccl.TREE_LL128 == 120 / 128
    assert nccl.NVLS_EFFICIENCY == {"hopper": 0.85, "blackwell": 0.74}
    # NCCL_BUFFSIZE of 4 MiB in NCCL_STEPS = 8 steps (`src/init.cc`, `src/include/device.h`), 16 channels
    assert nccl.CHUNKS_BYTES == 16 * (4 << 20) // 8
