# SPDX-License-Identifier: Apache-2.0
"""Rates of groups: of the links in a domain, of the interfaces that a group's accelerators are nearest to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from cclbench.hardware.fabric import Fabric
from cclbench.hardware.rates import Rate, rate_of
from cclbench.hardware.system import ScaleOut, ScaleUp, System

UP = Fabric("up", "fabric", "scale_up", "switch", 25e9, 0.8)
OUT = Fabric("out", "fabric", "scale_out", "fat-tree", 50e9, 0.9)
LINKS = ScaleUp(UP, "switch", 4, links=12, bytes_per_s=300e9)
NODE = System("node", "system", "chip", 4, LINKS, ScaleOut(OUT, 4, 50e9), "ampere")


def with_links(**changes: object) -> System:
    """The node with other links."""
    return structs.replace(NODE, scale_up=structs.replace(NODE.scale_up, **changes))


def rate(system: System, ranks: Sequence[int]) -> float:
    """B/s of the group's rate, which there is."""
    return rate_of(system, ranks).bytes_per_s  # type: ignore[union-attr]


def test_a_rate_names_its_tier_and_its_fabric() -> None:
    assert rate_of(NODE, range(4)) == Rate(240e9, "scale_up", "up", usable=True)
    assert rate_of(NODE, range(8)) == Rate(180e9, "scale_out", "out", usable=True)
    # where nobody states what is usable it is the line rate
    fabric = structs.replace(UP, usable_fraction=None)
    assert rate_of(with_links(fabric=fabric), [0, 1]) == Rate(300e9, "scale_up", "up", usable=False)
    # a tier without a rate is named
    unjoined = structs.replace(NODE, scale_up=None)
    # two meet in a node, of which nobody says what joins them
    assert rate_of(unjoined, [0, 1, 4, 5]) == "node states no rate in its scale-up domain"
    assert rate(unjoined, [0, 4]) == pytest.approx(45e9)
    assert rate_of(with_links(bytes_per_s=None), [0, 1]) == "node states no rate in its scale-up domain"
    alone = structs.replace(NODE, scale_out=None)
    assert rate_of(alone, [0, 4]) == "node states no rate of its network interfaces"


@pytest.mark.parametrize("ranks", [[], [3], [3, 3]])
def test_a_group_of_one_has_none(ranks: list[int]) -> None:
    assert rate_of(NODE, ranks) == "a group of one rank moves no data"


def test_parts_of_a_mesh_and_a_torus() -> None:
    """One of three links to another of the four, two to two others; all in a whole domain."""
    mesh = with_links(peers="mesh", links_per_pair=4)
    assert rate(mesh, [0, 1]) == pytest.approx(80e9)
    assert rate(mesh, [0, 1, 1, 3]) == pytest.approx(160e9)
    assert rate(mesh, range(4)) == pytest.approx(240e9)
    uneven = with_links(peers="mesh")
    assert rate_of(uneven, [0, 1]) == "the number of links between two of its accelerators is not known"
    assert rate(uneven, range(4)) == pytest.approx(240e9)
    # a torus that does not close has half
    line = with_links(peers="torus", wraps=False)
    assert rate(line, range(4)) == pytest.approx(120e9)
    assert rate(with_links(peers="torus", wraps=True), range(4)) == pytest.approx(240e9)
    assert rate_of(line, range(3)) == "which axes of the torus the group fills is not known"


def test_a_domain_has_the_interfaces_of_its_nodes() -> None:
    """Domains of two nodes: all eight of 45 GB/s; the domain with fewest decides."""
    rack = with_links(domain=8)
    assert rate(rack, range(16)) == pytest.approx(8 * 45e9)
    assert rate(rack, [0, 1, 2, 3, 8, 9, 10, 11]) == pytest.approx(4 * 45e9)
    assert rate(rack, [0, 1, 4, 5, 8]) == pytest.approx(45e9)
    assert rate(rack, [0, 8, 4, 12]) == pytest.approx(2 * 45e9)
    # of two pairs in a node a group of all four of each of two nodes has all four interfaces
    assert rate(with_links(domain=2), range(8)) == pytest.approx(180e9)
