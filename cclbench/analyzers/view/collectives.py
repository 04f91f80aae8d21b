# SPDX-License-Identifier: Apache-2.0
"""Collectives as arrays: payload, kind, group size, duration; and what they are told apart by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.view.columns import word_codes
from cclbench.ground.intervals import Int64, Mask

UNKNOWN = "unknown"
LARGE_SIDE: Final = (
    "S is the payload's larger side: of all_gather what a rank ends with, of reduce_scatter what it brings,"
    " of gather and scatter what the root holds."
)


def collective_payloads(table: pa.Table) -> tuple[Int64, Mask]:
    """S of each collective in bytes, and where it is known, shape (rows,).

    Of all_gather and reduce_scatter one side alone does not tell which one it is.  Of gather and scatter only
    the root has the large side, so that S is the small one times the ranks.
    """
    given = [table[side].is_valid().to_numpy() for side in ("in_bytes", "out_bytes")]
    sides = [table[side].fill_null(0).to_numpy() for side in ("in_bytes", "out_bytes")]
    large = np.maximum(*sides)
    kind, ranks = collective_kinds(table), group_sizes(table)
    known = np.where(
        np.isin(kind, ["all_gather", "reduce_scatter"]), given[0] & given[1], given[0] | given[1]
    )
    for rooted, small in (("gather", 0), ("scatter", 1)):
        here = kind == rooted
        large = np.where(here, sides[small] * ranks, large)
        known = np.where(here, given[small] & (ranks > 0), known)
    return large, known


def collective_kinds(table: pa.Table) -> npt.NDArray[np.str_]:
    """The kind of each collective, shape (rows,); empty where nobody knows."""
    numbers, words = word_codes(table, "kind")
    return np.array([word or "" for word in words], np.str_)[numbers]


def group_sizes(table: pa.Table) -> Int64:
    """Ranks of each collective's group, shape (rows,); 0 where nobody knows."""
    return np.asarray(table["group_size"].cast(pa.int64()).fill_null(0).to_numpy())


def collective_durations(table: pa.Table) -> Int64:
    """How long each collective takes on its rank, waiting included, ns, shape (rows,)."""
    return np.asarray(table["end_ns"].to_numpy() - table["start_ns"].to_numpy())


@dataclass(frozen=True, slots=True)
class Label:
    """A kind of collective, in a group or not narrowed to one; or a dimension; None spans them."""

    collective: str | None = None
    group: str | None = None
    dimension: str | None = None

    def wider_labels(self) -> Iterator[Label]:
        """The labels a collective is counted under: its kind, its kind and group, its dimension."""
        yield replace(self, group=None, dimension=None)
        if self.group is not None:
            yield replace(self, dimension=None)
        if self.dimension is not None:
            yield Label(dimension=self.dimension)


def sum_by_wider_label(known: Sequence[Label], amounts: Sequence[Fraction]) -> dict[Label, Fraction]:
    """The amounts of labels, added up by every label they are counted under."""
    sums: dict[Label, Fraction] = {}
    for one, amount in zip(known, amounts, strict=True):
        for key in one.wider_labels():
            sums[key] = sums.get(key, Fraction(0)) + amount
    return sums


def label_numbers(collectives: pa.Table) -> tuple[Int64, list[Label]]:
    """The label number of each row of `schema.COLLECTIVES`, shape (rows,), and the labels, sorted."""
    (kind, kinds), (group, groups), (dimension, dimensions) = (
        word_codes(collectives, column) for column in ("kind", "group", "dimension")
    )
    sizes = len(kinds), len(groups), len(dimensions)
    present, label = np.unique(np.ravel_multi_index((kind, group, dimension), sizes), return_inverse=True)
    found = [
        Label(kinds[k] or UNKNOWN, groups[g], dimensions[d])
        for k, g, d in np.transpose(np.unravel_index(present, sizes)).tolist()
    ]
    place = {one: n for n, one in enumerate(sorted(set(found), key=_label_order))}
    return np.array([place[one] for one in found], np.int64)[label], list(place)


def _label_order(label: Label) -> tuple[str, str, str]:
    return label.collective or "", label.group or "", label.dimension or ""
