# SPDX-License-Identifier: Apache-2.0
"""Payload, kind and group size of collectives, as arrays."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.view.columns import codes
from cclbench.intervals import Int64, Mask

LARGE_SIDE: Final = (
    "S is the payload's larger side: of all_gather what a rank ends with, of reduce_scatter what it brings,"
    " of gather and scatter what the root holds."
)


def payload(table: pa.Table) -> tuple[Int64, Mask]:
    """S of each collective in bytes, and where it is known, shape (rows,).

    Of all_gather and reduce_scatter one side alone does not tell which one it is.  Of gather and scatter only
    the root has the large side, so that S is the small one times the ranks.
    """
    given = [table[side].is_valid().to_numpy() for side in ("in_bytes", "out_bytes")]
    sides = [table[side].fill_null(0).to_numpy() for side in ("in_bytes", "out_bytes")]
    large = np.maximum(*sides)
    kind, ranks = kinds(table), group_sizes(table)
    known = np.where(
        np.isin(kind, ["all_gather", "reduce_scatter"]), given[0] & given[1], given[0] | given[1]
    )
    for rooted, small in (("gather", 0), ("scatter", 1)):
        here = kind == rooted
        large = np.where(here, sides[small] * ranks, large)
        known = np.where(here, given[small] & (ranks > 0), known)
    return large, known


def kinds(table: pa.Table) -> npt.NDArray[np.str_]:
    """The kind of each collective, shape (rows,); empty where nobody knows."""
    numbers, words = codes(table, "kind")
    return np.array([word or "" for word in words])[numbers]


def group_sizes(table: pa.Table) -> Int64:
    """Ranks of each collective's group, shape (rows,); 0 where nobody knows."""
    return np.asarray(table["group_size"].cast(pa.int64()).fill_null(0).to_numpy())


def durations(table: pa.Table) -> Int64:
    """How long each collective takes on its rank, waiting included, ns, shape (rows,)."""
    return np.asarray(table["end_ns"].to_numpy() - table["start_ns"].to_numpy())
