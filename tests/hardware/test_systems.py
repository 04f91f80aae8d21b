# SPDX-License-Identifier: Apache-2.0
"""Systems: published nodes, and which tier and how many interfaces a group of ranks has."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from cclbench.errors import UsageError
from cclbench.hardware.catalog import accelerators, system, systems
from cclbench.hardware.fabric import Fabric, Transport
from cclbench.hardware.system import ScaleOut, ScaleUp, System

# What the catalog promises by name.
CONTRACT = [
    "aws-p4de",
    "aws-p5",
    "aws-p5en",
    "aws-p6-b200",
    "gcp-a3-mega",
    "gcp-a4",
    "perlmutter-gpu",
    "alps-gh200",
    "dgx-a100",
    "dgx-h100",
    "dgx-b200",
    "mi300x-8gpu",
    "mi355x-8gpu",
]


def test_the_contract_has_its_systems() -> None:
    assert set(CONTRACT) <= set(systems())


@pytest.mark.parametrize(
    ("id", "per_node", "up", "node_out", "generation"),
    [
        # Scale-up of one accelerator; interfaces of a node together (count × Gb/s / 8).
        ("aws-p3dn", 8, 150e9, 1 * 100 / 8 * 1e9, "volta"),
        ("aws-p4d", 8, 300e9, 4 * 100 / 8 * 1e9, "ampere"),
        ("aws-p4de", 8, 300e9, 4 * 100 / 8 * 1e9, "ampere"),
        ("aws-p5", 8, 450e9, 32 * 100 / 8 * 1e9, "hopper"),
        ("aws-p5en", 8, 450e9, 16 * 200 / 8 * 1e9, "hopper"),
        ("aws-p6-b200", 8, 900e9, 8 * 400 / 8 * 1e9, "blackwell"),
        ("aws-p6-b300", 8, 900e9, 16 * 400 / 8 * 1e9, "blackwell"),
        ("aws-trn1", 16, 206e9, 800 / 8 * 1e9, "trainium"),
        ("aws-trn1n", 16, 412e9, 1600 / 8 * 1e9, "trainium"),
        ("aws-trn2", 16, 640e9, 3200 / 8 * 1e9, "trainium"),
        ("gcp-a3-mega", 8, 450e9, 8 * 200 / 8 * 1e9, "hopper"),
        ("gcp-a4", 8, 900e9, 8 * 400 / 8 * 1e9, "blackwell"),
        ("perlmutter-gpu", 4, 300e9, 4 * 200 / 8 * 1e9, "ampere"),
        ("alps-gh200", 4, 450e9, 4 * 200 / 8 * 1e9, "hopper"),
        ("dgx-a100", 8, 300e9, 8 * 200 / 8 * 1e9, "ampere"),
        ("dgx-h100", 8, 450e9, 8 * 400 / 8 * 1e9, "hopper"),
        ("dgx-b200", 8, 900e9, 8 * 400 / 8 * 1e9, "blackwell"),
        ("dgx-b300", 8, 900e9, 8 * 800 / 8 * 1e9, "blackwell"),
        ("mi300x-8gpu", 8, 448e9, 8 * 400 / 8 * 1e9, "amd"),
        ("mi355x-8gpu", 8, 535.5e9, 8 * 400 / 8 * 1e9, "amd"),
    ],
)
def test_nodes(
    id: str,  # noqa: A002
    per_node: int,
    up: float | None,
    node_out: float,
    generation: str,
) -> None:
    found = system(id)
    assert (found.per_node, found.architecture) == (per_node, generation)
    assert found.scale_up is not None
    assert found.scale_up.bytes_per_s == up
    assert found.scale_out is not None
    assert found.scale_out.bytes_per_s is not None
    assert found.scale_out.nics * found.scale_out.bytes_per_s == pytest.approx(node_out)


def test_every_system_agrees_with_its_parts() -> None:
    for found in systems().values():
        assert found.accelerator in accelerators()
        if found.scale_up is not None:
            up = found.scale_up
            assert up.fabric.tier == "scale_up"
            if up.bytes_per_s and up.links and up.fabric.link_bytes_per_s:
                assert up.bytes_per_s == pytest.approx(up.links * up.fabric.link_bytes_per_s, rel=0.01)
                own = accelerators()[found.accelerator].scale_up_bytes_per_s
                assert up.bytes_per_s == pytest.approx(own, rel=0.01), found.id
            if up.links_per_pair and up.links:
                assert up.links_per_pair * (up.domain - 1) == up.links
            if up.dims:
                assert math.prod(up.dims) == up.domain
        if found.scale_out is not None and found.scale_out.bytes_per_s:
            assert found.scale_out.bytes_per_s == found.scale_out.fabric.link_bytes_per_s


@pytest.mark.parametrize(
    ("id", "latency_s"),
    [
        ("aws-p3dn", 150e-6),
        ("aws-p4de", 75e-6),
        ("aws-p5", 75e-6),
        ("aws-p5en", 35e-6),
        ("aws-p6-b200", 35e-6),
        ("aws-trn2", 75e-6),
        ("dgx-h100", 0.0),
        ("gcp-a3-mega", None),
    ],
)
def test_latency_of_the_machines_own_transport(id: str, latency_s: float | None) -> None:  # noqa: A002
    out = system(id).scale_out
    assert out is not None
    assert out.latency_s() == latency_s


def test_switches_reduce_where_there_are_switches() -> None:
    reduces = {
        name: up.in_network_reduction for name in CONTRACT if (up := system(name).scale_up) is not None
    }
    assert {name for name, yes in reduces.items() if yes} == {
        "aws-p5",
        "aws-p5en",
        "aws-p6-b200",
        "gcp-a3-mega",
        "gcp-a4",
        "dgx-h100",
        "dgx-b200",
    }


def node(per_node: int, nics: int, domain: int | None = None) -> System:
    """Nodes of so many accelerators and interfaces, on made-up fabrics."""
    up = Fabric("up", "fabric", "scale_up", "switch", 25e9, 0.8)
    out = Fabric("out", "fabric", "scale_out", "fat-tree", 50e9, 0.9, transports={"fast": Transport(3e-6)})
    return System(
        "made-up",
        "system",
        "chip",
        per_node,
        ScaleUp(up, "switch", domain or per_node, links=12, bytes_per_s=300e9),
        ScaleOut(out, nics, 50e9, "fast"),
        "ampere",
    )


@pytest.mark.parametrize(
    ("ranks", "tier"),
    [
        ((), None),
        ((3,), None),
        ((3, 3), None),
        ((0, 7), "scale_up"),
        ((8, 15), "scale_up"),
        ((7, 8), "scale_out"),
        (range(16), "scale_out"),
    ],
)
def test_the_tier_a_group_spans(ranks: Sequence[int], tier: str | None) -> None:
    assert node(8, 8).tier_of(ranks) == tier


def test_a_domain_of_several_nodes_is_one_tier() -> None:
    rack = system("gb200-nvl72")
    assert rack.tier_of(range(72)) == "scale_up"
    assert rack.tier_of((71, 72)) == "scale_out"
    assert rack.nodes(range(8)) == (4, 4)


@pytest.mark.parametrize(
    ("nics", "ranks", "rails"),
    [
        (8, range(16), 8),
        (8, (0, 8), 1),  # one accelerator of each node, one interface each
        (8, (0, 1, 8), 1),  # the node with fewer decides
        (32, (0, 8), 4),  # four interfaces an accelerator
        (4, (0, 1, 8, 9), 1),  # neighbours share one
        (4, (0, 2, 8, 10), 2),
        (4, range(16), 4),
        (1, range(16), 1),
    ],
)
def test_rails(nics: int, ranks: Sequence[int], rails: int) -> None:
    assert node(8, nics).rails(ranks) == rails


def test_usable_rates() -> None:
    made = node(8, 8)
    assert made.scale_up is not None
    assert made.scale_up.usable_bytes_per_s == pytest.approx(240e9)
    assert made.scale_out is not None
    assert made.scale_out.usable_bytes_per_s == pytest.approx(45e9)
    assert (made.scale_out.latency_s(), made.scale_out.latency_s("slow")) == (3e-6, None)


def test_one_host_of_a_torus_does_not_close() -> None:
    host, pod = system("google-tpu-v6e-8").scale_up, system("google-tpu-v6e-pod").scale_up
    assert host is not None
    assert pod is not None
    assert (host.rings, pod.rings) == (False, True)


def test_an_unknown_system_gets_near_matches() -> None:
    with pytest.raises(UsageError, match="aws-p5"):
        system("aws-p55")
