# SPDX-License-Identifier: Apache-2.0
"""What waits for what once communication and compute take turns."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cclbench.replay import nodes as n
from cclbench.replay.changes.overlap import _waits


@pytest.mark.parametrize(
    ("rows", "waits"),
    [
        # (kind, lane) in order of launch; communication on lane 1 that does not need the kernels before it
        ([(n.COMPUTE, 0), (n.COMPUTE, 0), (n.TRANSFER, 1)], [(1, 2)]),
        ([(n.TRANSFER, 1), (n.TRANSFER, 1), (n.COMPUTE, 0), (n.COMPUTE, 0)], [(1, 2)]),
        # every lane's first row waits for the last of every lane before
        ([(n.COMPUTE, 0), (n.COMPUTE, 2), (n.COMPUTE, 0), (n.TRANSFER, 1)], [(2, 3), (1, 3)]),
        ([(n.COMPUTE, 0), (n.TRANSFER, 1), (n.COMPUTE, 0), (n.COMPUTE, 2)], [(0, 1), (1, 2), (1, 3)]),
        ([(n.COMPUTE, 0), (n.COMPUTE, 2)], []),
    ],
)
def test_a_stretch_of_one_sort_waits_for_the_one_before(
    rows: list[tuple[int, int]], waits: list[tuple[int, int]]
) -> None:
    kind, lane = np.array(rows).T
    nodes = SimpleNamespace(rank=np.zeros(len(rows), np.int64), kind=kind, lane=lane)
    assert list(_waits(nodes, np.arange(len(rows)), 0)) == waits  # type: ignore[arg-type]
