# SPDX-License-Identifier: Apache-2.0
"""Figures that follow from a device's parts: units x clock x operations, bus width x data rate."""

from __future__ import annotations

import pytest

from cclbench.hardware.catalog import accelerator, accelerators, system, systems

# Lanes of fp32 in a multiprocessor; a lane multiplies and adds in a cycle.
TURING, AMPERE = 64, 128


@pytest.mark.parametrize(
    ("id", "lanes", "boost_mhz", "bus_bits", "gbit_per_s"),
    # boost clocks, of Founders Editions for the RTX 20, and memory: bits of the bus, Gb/s of a pin
    [
        ("nvidia-rtx-2070", TURING, 1710, 256, 14),
        ("nvidia-rtx-2080", TURING, 1800, 256, 14),
        ("nvidia-rtx-2080-ti", TURING, 1635, 352, 14),
        ("nvidia-rtx-3070", AMPERE, 1725, 256, 14),
        ("nvidia-rtx-3080", AMPERE, 1710, 320, 19),
        ("nvidia-rtx-3090", AMPERE, 1695, 384, 19.5),
        ("nvidia-rtx-4090", AMPERE, 2520, 384, 21),
        ("nvidia-l4", AMPERE, 2040, 192, 12.5),
        ("nvidia-a10g", AMPERE, 1710, 384, 12.5),
        ("nvidia-l40s", AMPERE, 2520, 384, 18),
        ("nvidia-rtx-pro-6000", AMPERE, 2617, 512, 28),
    ],
)
def test_peaks_and_bandwidth_follow_from_the_parts(
    id: str,  # noqa: A002
    lanes: int,
    boost_mhz: float,
    bus_bits: int,
    gbit_per_s: float,
) -> None:
    device = accelerator(id)
    fp32 = device.peak_flops_per_s["fp32"]
    assert device.sm_count is not None
    assert fp32 == pytest.approx(device.sm_count * lanes * 2 * boost_mhz * 1e6, rel=0.01)
    assert device.hbm_bytes_per_s == pytest.approx(bus_bits / 8 * gbit_per_s * 1e9, rel=0.001)


@pytest.mark.parametrize(
    ("id", "ratios"),
    # Products of 16 bits summed in 32: as fast as summed in 16, but half of it in GeForce.
    [
        *((f"nvidia-rtx-{name}", {"fp16": 4, "int8": 16}) for name in ("2070", "2080", "2080-ti")),
        *((f"nvidia-rtx-{name}", {"tf32": 1, "fp16": 2, "int8": 8}) for name in ("3070", "3080", "3090")),
        ("nvidia-rtx-4090", {"tf32": 1, "fp16": 2, "fp8": 4, "int8": 8}),
        ("nvidia-l40s", {"tf32": 2, "fp16": 4, "fp8": 8, "int8": 8}),
        ("nvidia-rtx-pro-6000", {"tf32": 2, "fp16": 4, "fp8": 8, "int8": 8, "fp4": 16}),
    ],
)
def test_peaks_of_products_are_multiples(id: str, ratios: dict[str, int]) -> None:  # noqa: A002
    peaks = accelerator(id).peak_flops_per_s
    fp32 = peaks["fp32"]
    assert fp32 is not None
    assert {dtype: (peaks[dtype] or 0) / fp32 for dtype in ratios} == pytest.approx(ratios, rel=0.02)


def test_gaudi_3() -> None:
    """8 engines of 256 x 256 multipliers at 1.75 GHz; 24 ports of 200 Gb/s, 3 to each of 7 peers."""
    device = accelerator("intel-gaudi3")
    assert device.peak_flops_per_s["bf16"] == pytest.approx(8 * 256**2 * 2 * 1.75e9, rel=0.001)
    assert device.scale_up_bytes_per_s == 7 * 3 * 25e9
    out = system("gaudi3-8").scale_out
    assert out is not None
    assert (out.nics, out.bytes_per_s) == (8 * (24 - 21), 25e9)


def test_clocks_that_peaks_imply_are_possible() -> None:
    """Of every NVIDIA device with vector lanes: 128 or 64 of fp32, 0.9 to 3 GHz."""
    for id in accelerators():  # noqa: A001
        device = accelerator(id)
        fp32, count = device.peak_flops_per_s.get("fp32"), device.sm_count
        if device.vendor == "nvidia" and fp32 and count and not device.announced:
            clocks = [fp32 / (count * lanes * 2) for lanes in (TURING, AMPERE)]
            assert any(0.9e9 <= clock <= 3e9 for clock in clocks), (id, clocks)


def test_links_of_a_system_are_those_of_its_fabric() -> None:
    for id in systems():  # noqa: A001
        up = system(id).scale_up
        if up is not None and up.links and up.fabric.link_bytes_per_s and up.bytes_per_s:
            assert up.bytes_per_s == pytest.approx(up.links * up.fabric.link_bytes_per_s, rel=0.02), id


@pytest.mark.parametrize(
    ("id", "interfaces"),
    # NCCL_IB_HCA of each shape: docs/recommended-nccl-rccl-parameters-by-shape.md of oci-hpc-oke at 0d0fde2
    [
        *(("oci-a100-v2-8", 16), ("oci-h100-8", 16), ("oci-h200-8", 8), ("oci-b200-8", 8)),
        *(("oci-gb200-4", 4), ("oci-gb300-4", 8), ("oci-mi300x-8", 8), ("oci-mi355x-8", 8)),
    ],
)
def test_interfaces_of_oci_s_shapes(id: str, interfaces: int) -> None:  # noqa: A002
    out = system(id).scale_out
    assert out is not None
    assert out.nics == interfaces
