# SPDX-License-Identifier: Apache-2.0
"""Entries of the catalog in words."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from cclbench.hardware.accelerator import Accelerator
from cclbench.hardware.describe import Entry, entry_summary, figures_of
from cclbench.hardware.fabric import Fabric, Transport
from cclbench.hardware.system import ScaleOut, ScaleUp, System

PEAKS = {"bf16": 90e12, "fp16": 80e12, "int8": 180e12}
CITED = {"hbm_bytes": "bench", "sm_count": "unverified", "peak_flops_per_s.bf16": "bench"}
MEMORY = (16 * 10**9, 400e9)
CHIP = Accelerator("chip", "accelerator", "generic", ("Chip",), PEAKS, *MEMORY, 8, 100e9, cited=CITED)
LINKS = Fabric("links", "fabric", "scale_up", "mesh", 25e9, usable_fraction=0.8, wraps=False)
NETWORK = Fabric(
    "net", "fabric", "scale_out", "fat-tree", 50e9, transports={"fast": Transport(3e-6)}, hop_latency_s=2e-7
)
JOINED = ScaleUp(LINKS, "torus", 8, bytes_per_s=100e9, dims=(2, 4)), ScaleOut(NETWORK, 2, 50e9, "fast")
NODE = System("node", "system", "chip", 4, *JOINED, "ampere")
SLOW = [structs.replace(tier, bytes_per_s=None) for tier in JOINED]
NOTHING = {"peak_flops_per_s": {}}
NOTHING |= dict.fromkeys(("hbm_bytes", "hbm_bytes_per_s", "scale_up_bytes_per_s"))


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (CHIP, "bf16 90.0 TFLOP/s, 16.0 GB at 400 GB/s, scale-up 100 GB/s"),
        (structs.replace(CHIP, hbm_bytes=None), "bf16 90.0 TFLOP/s, at 400 GB/s, scale-up 100 GB/s"),
        (
            structs.replace(CHIP, peak_flops_per_s={"bf16": None, "fp16": 80e12}, hbm_bytes_per_s=None),
            "fp16 80.0 TFLOP/s, 16.0 GB, scale-up 100 GB/s",
        ),
        (structs.replace(CHIP, **NOTHING), "no figures"),
        (LINKS, "mesh, 25.0 GB/s a link, 80.0 % usable"),
        (NETWORK, "fat-tree, 50.0 GB/s an interface"),
        (structs.replace(NETWORK, link_bytes_per_s=None), "fat-tree, rate unknown an interface"),
        (NODE, "4 × chip; links torus 100 GB/s; net 2 × 50.0 GB/s"),
        (structs.replace(NODE, scale_up=None), "4 × chip; net 2 × 50.0 GB/s"),
        (
            structs.replace(NODE, scale_up=SLOW[0], scale_out=SLOW[1]),
            "4 × chip; links torus; net 2 × unknown rate",
        ),
        (structs.replace(NODE, scale_up=None, scale_out=None), "4 × chip"),
    ],
)
def test_an_entry_in_one_line(entry: Entry, line: str) -> None:
    assert entry_summary(entry) == line


def rows(entry: Entry) -> dict[str, tuple[Any, str, str | None]]:
    """Value, text and source by field."""
    return {row["field"]: (row["value"], row["shown"], row["source"]) for row in figures_of(entry)}


def test_figures_have_units_and_sources() -> None:
    """Operations of integers are no FLOP; what nobody knows has no row."""
    assert rows(structs.replace(CHIP, scale_up_bytes_per_s=None)) == {
        "vendor": ("generic", "generic", None),
        "peak_flops_per_s.bf16": (90e12, "90.0 TFLOP/s", "bench"),
        "peak_flops_per_s.fp16": (80e12, "80.0 TFLOP/s", None),
        "peak_flops_per_s.int8": (180e12, "180 TOP/s", None),
        "hbm_bytes": (16 * 10**9, "16.0 GB", "bench"),
        "hbm_bytes_per_s": (400e9, "400 GB/s", None),
        "sm_count": (8, "8", "unverified"),
    }
    # figures of a fabric
    assert rows(structs.replace(NETWORK, in_network_reduction=True)) == {
        "tier": ("scale_out", "scale_out", None),
        "topology": ("fat-tree", "fat-tree", None),
        "link_bytes_per_s": (50e9, "50.0 GB/s", None),
        "hop_latency_s": (2e-7, "200 ns", None),
        "in_network_reduction": (True, "yes", None),
        "transports.fast.latency_s": (3e-6, "3.00 µs", None),
    }
    assert rows(LINKS)["wraps"] == (False, "no", None)
    assert rows(LINKS)["usable_fraction"] == (0.8, "80.0 %", None)
    # figures of a system name its fabrics
    found = rows(NODE)
    assert found["scale_up.fabric"] == ("links", "links", None)
    assert found["scale_up.dims"] == ((2, 4), "2 x 4", None)
    assert found["scale_out.transport"] == ("fast", "fast", None)
    assert found["scale_out.nics"] == (2, "2", None)
    assert not {"id", "kind", "sources", "notes", "scale_up.links"} & found.keys()
