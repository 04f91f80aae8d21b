# SPDX-License-Identifier: Apache-2.0
"""The parallel dimension of a process group, from its shape against the card's degrees.

Frameworks lay ranks out as a mesh with tensor parallel ranks next to one another, then context, then
data (sharded within replicated), and pipeline stages furthest apart (torchtitan's mesh and Megatron-LM's
default order `tp-cp-ep-dp-pp` agree in this).  A group of a dimension then has the dimension's degree as
its size and the product of all inner degrees as its stride.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

_INNER_TO_OUTER = (("tp", "tp"), ("cp", "cp"), ("dp_shard", "dp"), ("dp_replicate", "dp"), ("pp", "pp"))


def by_shape(ranks: Sequence[int], degrees: Mapping[str, int]) -> str | None:
    """The one dimension whose groups have this shape; None if none or several have it.

    `ranks` are sorted global ranks, `degrees` the card's parallelism (tp, cp, dp_shard, dp_replicate,
    pp; 1 where absent).
    """
    strides = {b - a for a, b in pairwise(ranks)}
    if len(strides) != 1:
        return None
    (stride,) = strides
    dimensions = set()
    inner = 1
    for degree, dimension in _INNER_TO_OUTER:
        size = degrees.get(degree, 1)
        if (len(ranks), stride) == (size, inner):
            dimensions.add(dimension)
        shards = degrees.get("dp_shard", 1)
        if degree == "dp_replicate" and (len(ranks), stride) == (size * shards, inner // shards):
            dimensions.add(dimension)
        inner *= size
    return dimensions.pop() if len(dimensions) == 1 else None
