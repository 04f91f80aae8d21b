# SPDX-License-Identifier: Apache-2.0
"""Operators of a CPU-only rank: compute, calls of the communication library, transfers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cclbench.analyzers.view.columns import has_word, matching_rows, row_spans, word_codes
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
    """Calls of the communication library, which start or await transfers, and transfers that hold their
    thread: not gloo's sends and receives, which are in flight until the thread waits for them."""
    transfers: Mask
    of_library: Mask
    """Transfers on the library's own threads."""


def host_ops(tables: Rank) -> Iterator[HostOps]:
    """The operators of a rank, in bounded batches."""
    for batch in tables.events(("op",), ("track", "start_ns", "dur_ns", "category", "name", "collective")):
        starts, ends = row_spans(batch)
        category, categories = word_codes(batch, "category")
        communicates = has_word(batch, "category", "communication")
        is_transfer = batch["collective"].is_valid().to_numpy(zero_copy_only=False)
        of_library = matching_rows(batch, "name", _is_library_transfer)
        yield HostOps(
            track=batch["track"].to_numpy(),
            starts=starts,
            ends=ends,
            category=category,
            categories=categories,
            works=~communicates & ~matching_rows(batch, "name", is_wrapper),
            calls=communicates & ~matching_rows(batch, "name", _is_request),
            transfers=is_transfer,
            of_library=is_transfer & of_library,
        )


def _is_library_transfer(name: str) -> bool:
    return name.startswith("gloo:") and not _is_request(name)


def _is_request(name: str) -> bool:
    return name in ("gloo:send", "gloo:recv")
