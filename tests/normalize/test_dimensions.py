# SPDX-License-Identifier: Apache-2.0
"""Dimensions from shapes, worked out on meshes of sixteen ranks."""

from __future__ import annotations

import pytest

from cclbench.normalize.dimensions import by_shape

MESH = {"tp": 2, "dp_shard": 4, "pp": 2}


@pytest.mark.parametrize(
    ("ranks", "degrees", "dimension"),
    [
        ((0, 1), MESH, "tp"),
        ((6, 7), MESH, "tp"),
        ((0, 2, 4, 6), MESH, "dp"),
        ((9, 11, 13, 15), MESH, "dp"),
        ((0, 8), MESH, "pp"),
        (tuple(range(16)), MESH, None),
        ((0, 4), MESH, None),
        ((0, 1, 3), MESH, None),
        ((5,), MESH, None),
        ((0, 2), {"tp": 2, "cp": 2, "dp_replicate": 4}, "cp"),
        ((0, 4, 8, 12), {"tp": 2, "cp": 2, "dp_replicate": 4}, "dp"),
        # sharded within replicated: either alone, and both together
        ((0, 1), {"dp_shard": 2, "dp_replicate": 2}, "dp"),
        ((0, 2), {"dp_shard": 2, "dp_replicate": 2}, "dp"),
        ((0, 1, 2, 3), {"dp_shard": 2, "dp_replicate": 2}, "dp"),
        # replicas of both stages together are no dimension
        (tuple(range(0, 32, 4)), {"tp": 2, "cp": 2, "dp_replicate": 4, "pp": 2}, None),
        # without shards the replicas are neighbours of one another beyond the tensor parallel ones
        ((0, 2, 4, 6), {"tp": 2, "dp_replicate": 4}, "dp"),
        ((0, 1, 2, 3), {"tp": 2, "dp_replicate": 4}, None),
        ((0, 1), {"tp": 2, "cp": 1, "dp_shard": 1}, "tp"),
        # all ranks are the tensor parallel ones
        ((0, 1, 2, 3), {"tp": 4}, "tp"),
    ],
)
def test_dimension_of_a_shape(ranks, degrees, dimension):
    assert by_shape(ranks, degrees) == dimension
