# SPDX-License-Identifier: Apache-2.0
"""Operators' calls in Kineto's args: the id of the call, and the shapes of its inputs."""

from __future__ import annotations

from functools import lru_cache

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.formats.kineto.events import Args


def operators(args: list[Args]) -> pa.Array:
    """Ids of operators' calls: an op's own, a device row's of the op that launched it; 0 is none."""
    stated = [a.external_id for a in args]
    if not any(stated):
        stated = [a.external_id_2021 for a in args]
    try:
        ids = pa.array(stated, pa.int64())
    except (TypeError, ValueError, OverflowError):
        ids = pa.array([i if type(i) is int and abs(i) < 1 << 63 else None for i in stated], pa.int64())
    return pc.if_else(pc.greater(ids, 0), ids, None)


def shapes(args: list[Args]) -> pa.Array:
    """Input Dims of ops as text, null where an op has none."""
    raws = [a.dims for a in args]
    if not any(raws):
        raws = [a.dims_2021 for a in args]
    ends = np.zeros(len(raws) + 1, np.int32)
    np.fromiter(map(len, raws), np.int32, len(raws)).cumsum(out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(raws))]
    coded = pa.Array.from_buffers(pa.binary(), len(raws), buffers).dictionary_encode()
    distinct, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy()
    absent = codes == distinct.index(b"") if b"" in distinct else np.zeros(len(codes), np.bool_)
    texts = pa.array([_without_spaces(raw) for raw in distinct], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=absent), texts)


@lru_cache(maxsize=1 << 12)
def _without_spaces(json: bytes) -> str:
    return str(msgspec.json.format(json or b"[]", indent=-1), "utf-8", "replace")
