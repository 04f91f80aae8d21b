# SPDX-License-Identifier: Apache-2.0
"""Fabrics: published rates, what is usable of them, and what nobody published."""

from __future__ import annotations

import pytest

from cclbench.ground.errors import UsageError
from cclbench.hardware.catalog import fabric, fabrics


@pytest.mark.parametrize(
    ("id", "line", "usable"),
    [
        # NVLink: line rate by the generation, usable by NCCL's own constants (20, 20.6 and 40.1 GB/s).
        *(("nvlink2", 25e9, 20e9), ("nvlink3", 25e9, 20e9)),
        *(("nvlink4", 25e9, 20.6e9), ("nvlink5", 50e9, 40.1e9)),
        *(("pcie3", 15.75e9, 12e9), ("pcie5", 63e9, None)),
        *(("xgmi-mi250x", 50e9, None), ("xgmi-mi300x", 64e9, 48e9), ("xgmi-mi355x", 76.5e9, None)),
        *(("ici-v4", 46.9e9, 46.9e9 * 0.96), ("ici-v5e", 50e9, 45e9), ("ici-v5p", 100e9, 90e9)),
        *(("ici-v6e", 100e9, 90e9), ("ici-v7x", 100e9, None)),
        *(("infiniband-hdr", 25e9, None), ("infiniband-ndr", 50e9, 47e9), ("infiniband-xdr", 100e9, None)),
        *(("slingshot-11", 25e9, 92.5e9 / 4), ("efa-v1", 12.5e9, 340e9 / 8 / 4)),
        *(("efa-v2", 12.5e9, None), ("efa-v3", 25e9, None), ("efa-v4", 50e9, None)),
        *(("gcp-tcpxo", 25e9, None), ("neuronlink-v3", None, None)),
    ],
)
def test_rates(id: str, line: float | None, usable: float | None) -> None:  # noqa: A002
    found = fabric(id)
    assert found.link_bytes_per_s == line
    if usable is None:
        assert found.usable_bytes_per_s(found.link_bytes_per_s) is None
    else:
        assert found.usable_bytes_per_s(found.link_bytes_per_s) == pytest.approx(usable, rel=0.001)


def test_usable_shares_and_hops() -> None:
    shares = [found.usable_fraction for found in fabrics().values() if found.usable_fraction is not None]
    assert len(shares) >= 12
    assert all(0.5 <= share < 1 for share in shares)
    # a hop of a torus takes a microsecond
    assert {fabric(f"ici-{name}").hop_latency_s for name in ("v4", "v5e", "v5p", "v6e", "v7x")} == {1e-6}
    assert fabric("ici-v6e").wraps is True
    # an unknown fabric gets near matches
    with pytest.raises(UsageError, match="did you mean nvlink"):
        fabric("nvlink7")


@pytest.mark.parametrize(
    ("id", "reduces"),
    [("nvlink3", False), ("nvlink4", True), ("nvlink5", True), ("infiniband-ndr", True), ("efa-v2", False)],
)
def test_which_switches_reduce(id: str, reduces: bool) -> None:  # noqa: A002
    assert fabric(id).in_network_reduction is reduces


@pytest.mark.parametrize(
    ("id", "transport", "latency_s"),
    [
        ("infiniband-ndr", "ib-verbs", 0.0),  # NCCL's own transport adds nothing to its constants
        ("infiniband-ndr", "socket", None),
        ("efa-v2", "aws-ofi-nccl", 75e-6),
        ("efa-v4", "aws-ofi-nccl", 35e-6),
        ("efa-v1", "aws-ofi-nccl", None),  # by machine: 150 µs on p3dn, 75 µs on p4d
        ("slingshot-11", "cxi", 0.0),
        ("gcp-tcpxo", "tcpxo", None),
    ],
)
def test_latencies_of_transports(id: str, transport: str, latency_s: float | None) -> None:  # noqa: A002
    assert fabric(id).transports[transport].latency_s == latency_s
