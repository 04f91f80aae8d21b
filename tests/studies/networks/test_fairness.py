# SPDX-License-Identifier: Apache-2.0
"""Max-min fair rates: by hand, and by the condition that defines them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.studies.networks.fairness import max_min

BOTH = [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
INF = np.inf


@pytest.mark.parametrize(
    ("use", "capacity", "demand", "rates"),
    [
        # links of 10 and 4: A uses both, B the first, C the second; C and A share 4, B has the rest of 10
        (BOTH, [10.0, 4.0], [INF] * 3, [2.0, 8.0, 2.0]),
        # C wants 1 alone: A has 3, B 7
        (BOTH, [10.0, 4.0], [INF, INF, 1.0], [3.0, 7.0, 1.0]),
        # who loads a link twice fills it at half the rate: x + 2 x = 9
        ([[1.0], [2.0]], [9.0], [INF] * 2, [3.0, 3.0]),
        # without links in the way demands are met
        ([[0.0], [0.0]], [1.0], [5.0, 0.0], [5.0, 0.0]),
    ],
)
def test_rates_by_hand(use: Any, capacity: Any, demand: Any, rates: list[float]) -> None:
    assert max_min(np.array(use), np.array(capacity), np.array(demand)).tolist() == rates


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
