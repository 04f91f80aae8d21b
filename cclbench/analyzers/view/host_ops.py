# SPDX-License-Identifier: Apache-2.0
"""Operators of a CPU-only rank: compute, calls of the communication library, transfers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cclbench.analyzers.view.columns import row_spans, word_codes
from cclbench.ground.intervals import Int64, Mask
from cclbench.normalize.operators import is_wrapper

if TYPE_CHECKING:
    from cclbench.record.rank import Rank


@dataclass(frozen=True, slots=True, eq=False)
class HostOps:
    """A batch of one rank's operators; arrays of shape (rows,)."""

    track: Int64
    starts: Int64
    ends: Int64
    category: Int64
    """Index into `categories`."""
    categories: list[str | None]
    works: Mask
    """Operators that compute, without autograd's nodes, which only wrap operators and hooks."""
    calls: Mask
    """Calls of the communication library, which start or await transfers."""
    transfers: Mask
    of_library: Mask
    """Transfers on the library's own threads."""


def host_ops(tables: Rank) -> Iterator[HostOps]:
    """The operators of a rank, in bounded batches."""
    for batch in tables.events(("op",), ("track", "start_ns", "dur_ns", "category", "name", "collective")):
        starts, ends = row_spans(batch)
        category, categories = word_codes(batch, "category")
        calls = np.isin(category, [n for n, word in enumerate(categories) if word == "communication"])
        names, name = batch["name"].dictionary.to_pylist(), batch["name"].indices.to_numpy()
        is_transfer = batch["collective"].is_valid().to_numpy(zero_copy_only=False)
        of_gloo = np.array([n.startswith("gloo:") for n in names], np.bool_)[name]
        by_caller = np.array([n.endswith((":send", ":recv")) for n in names], np.bool_)[name]
        yield HostOps(
            track=batch["track"].to_numpy(),
            starts=starts,
            ends=ends,
            category=category,
            categories=categories,
            works=~calls & ~np.array([is_wrapper(n) for n in names], np.bool_)[name],
            calls=calls,
            transfers=is_transfer,
            of_library=is_transfer & of_gloo & ~by_caller,
        )
