# SPDX-License-Identifier: Apache-2.0
"""Max-min fair rates: by hand, and by the condition that defines them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cclbench.studies.networks.fairness import max_min


def test_a_flow_over_two_links_gets_what_the_tighter_one_leaves() -> None:
    """Links of 10 and 4: A uses both, B the first, C the second.  C and A share 4, B has the rest of 10."""
    use = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    endless = np.full(3, np.inf)
    assert max_min(use, np.array([10.0, 4.0]), endless).tolist() == [2.0, 8.0, 2.0]
    # C wants 1 alone: A has 3, B 7
    assert max_min(use, np.array([10.0, 4.0]), np.array([np.inf, np.inf, 1.0])).tolist() == [3.0, 7.0, 1.0]


def test_a_flow_that_loads_a_link_twice_fills_it_at_half_the_rate() -> None:
    """x + 2 x = 9 on the shared link."""
    assert max_min(np.array([[1.0], [2.0]]), np.array([9.0]), np.full(2, np.inf)).tolist() == [3.0, 3.0]


def test_without_links_in_the_way_demands_are_met() -> None:
    assert max_min(np.zeros((2, 1)), np.array([1.0]), np.array([5.0, 0.0])).tolist() == [5.0, 0.0]


@st.composite
def networks(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    flows, links = draw(st.integers(1, 7)), draw(st.integers(1, 5))
    use = [[draw(st.sampled_from((0, 0, 1, 1, 2, 8))) for _ in range(links)] for _ in range(flows)]
    capacity = [draw(st.floats(0.1, 100)) for _ in range(links)]
    demand = [draw(st.floats(0.01, 200)) for _ in range(flows)]
    return np.array(use, float), np.array(capacity), np.array(demand)


@given(networks())
def test_rates_are_max_min_fair(network: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """Feasible, and each flow is at its demand or crosses a full link on which no flow is faster."""
    use, capacity, demand = network
    rate = max_min(use, capacity, demand)
    load = rate @ use
    assert (load <= capacity * (1 + 1e-9)).all()
    assert (rate <= demand * (1 + 1e-9)).all()
    full = load >= capacity * (1 - 1e-9)
    for flow, own in enumerate(rate):
        fastest = [rate[use[:, link] > 0].max() for link in np.flatnonzero(full & (use[flow] > 0))]
        assert own >= demand[flow] * (1 - 1e-9) or any(own >= other * (1 - 1e-9) for other in fastest)
