# SPDX-License-Identifier: Apache-2.0
"""A torus whose idle links carry the job's traffic: what is gained follows from the slice's shape."""

from __future__ import annotations

import numpy as np
import pytest

from cclbench.hardware import catalog
from cclbench.hardware.collectives import NoPrice, algorithm_costs, group_of, price_collective
from cclbench.hardware.collectives.cost import EXPECTED, CollectiveCost

POD = catalog.system("google-tpu-v4-pod")
"""16 x 16 x 16 chips, numbered along the last axis first; axes that are whole close into rings."""


def costs_of(ranks: int, kind: str = "all_gather") -> tuple[CollectiveCost, CollectiveCost]:
    """Of a slice of the first so many chips: along its own axes, and with all links."""
    group = group_of(POD, range(ranks))
    assert not isinstance(group, NoPrice)
    found = {
        cost.algorithm: cost for cost in algorithm_costs(kind, group, EXPECTED, algorithm="torus_egress")
    }
    return found["torus_bucket"], found["torus_egress"]


@pytest.mark.parametrize(
    ("ranks", "idle"),
    [
        (16, 2 / 3),  # one ring: four of a chip's six links lie idle
        (256, 1 / 3),  # rings along two axes
        (4, 5 / 6),  # a line of four: of the axis' two links an end chip uses one
        (64, 1 - 1.5 / 3),  # a ring of 16 by a line of four
        (4096, 0.0),  # the whole pod has no idle link
    ],
)
def test_idle_links_are_a_matter_of_the_slice_s_shape(ranks: int, idle: float) -> None:
    own, all_links = costs_of(ranks)
    assert 1 - (all_links.beta_s_per_byte / own.beta_s_per_byte) == pytest.approx(idle, abs=1e-9)


def test_an_all_reduce_is_both_halves() -> None:
    own, all_links = costs_of(16, "all_reduce")
    assert own.beta_s_per_byte / all_links.beta_s_per_byte == pytest.approx(3)
    assert all_links.beta_s_per_byte == pytest.approx(2 * costs_of(16)[1].beta_s_per_byte)
    # half of 16 hops, there and back, at 1 µs each
    assert all_links.steps[1].count == 16


def test_it_is_asked_for_by_name_and_never_slower() -> None:
    """It does no all-to-all."""
    sizes = np.array([1024.0, 1 << 20, 1 << 30])
    for ranks in (4, 16, 64, 256, 4096):
        own, given, chosen = (
            price_collective("all_reduce", sizes, range(ranks), POD, algorithm=name)
            for name in ("torus_bucket", "torus_egress", None)
        )
        assert not isinstance(own, NoPrice)
        assert not isinstance(given, NoPrice)
        assert not isinstance(chosen, NoPrice)
        assert (given.formula_s <= own.formula_s * (1 + 1e-12)).all()
        assert "torus_egress" not in chosen.algorithm
    refused = price_collective("all_to_all", 1 << 20, range(16), POD, algorithm="torus_egress")
    assert isinstance(refused, NoPrice)
