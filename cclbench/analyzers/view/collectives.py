# SPDX-License-Identifier: Apache-2.0
"""Collectives as arrays: payload, kind, group size, duration, label."""

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
    "S is the larger side of the payload: the output of all_gather, the input of reduce_scatter, the root's"
    " side of gather and scatter."
)


def collective_payloads(table: pa.Table) -> tuple[Int64, Mask]:
    """S of each collective in bytes, and where it is known; shape (rows,).

    For all_gather and reduce_scatter both sides are needed, since a single one may be either. For gather and
    scatter only the root has the large side: S is the small one times the ranks.
    """
    stated = [table[side].is_valid().to_numpy() for side in ("in_bytes", "out_bytes")]
    sides = [table[side].fill_null(0).to_numpy() for side in ("in_bytes", "out_bytes")]
    large = np.maximum(*sides)
    kind, ranks = collective_kinds(table), group_sizes(table)
    has_payload = np.where(
        np.isin(kind, ["all_gather", "reduce_scatter"]), stated[0] & stated[1], stated[0] | stated[1]
    )
    for rooted, small in (("gather", 0), ("scatter", 1)):
        of_kind = kind == rooted
        large = np.where(of_kind, sides[small] * ranks, large)
        has_payload = np.where(of_kind, stated[small] & (ranks > 0), has_payload)
    return large, has_payload


def collective_kinds(table: pa.Table) -> npt.NDArray[np.str_]:
    """The kind of each collective, shape (rows,); empty where unknown."""
    numbers, words = word_codes(table, "kind")
    return np.array([word or "" for word in words], np.str_)[numbers]


def group_sizes(table: pa.Table) -> Int64:
    """Number of ranks of each collective's group, shape (rows,); 0 where unknown."""
    return np.asarray(table["group_size"].cast(pa.int64()).fill_null(0).to_numpy())


def collective_durations(table: pa.Table) -> Int64:
    """Duration of each collective on its rank, including waiting, ns, shape (rows,)."""
    return np.asarray(table["end_ns"].to_numpy() - table["start_ns"].to_numpy())


@dataclass(frozen=True, slots=True)
class Label:
    """A kind of collective, a kind in a group, or a parallel dimension; None is any."""

    collective: str | None = None
    group: str | None = None
    dimension: str | None = None

    def wider_labels(self) -> Iterator[Label]:
        """The labels that a collective counts for: its kind, its kind and group, its dimension."""
        yield replace(self, group=None, dimension=None)
        if self.group is not None:
            yield replace(self, dimension=None)
        if self.dimension is not None:
            yield Label(dimension=self.dimension)


def sum_by_wider_label(labels: Sequence[Label], amounts: Sequence[Fraction]) -> dict[Label, Fraction]:
    """Amounts of labels, added up by every label that they count for."""
    sums: dict[Label, Fraction] = {}
    for label, amount in zip(labels, amounts, strict=True):
        for key in label.wider_labels():
            sums[key] = sums.get(key, Fraction(0)) + amount
    return sums


def label_numbers(collectives: pa.Table) -> tuple[Int64, list[Label]]:
    """Label code of each row of `schema.COLLECTIVES`, shape (rows,), and the labels, sorted."""
    (kind, kinds), (group, groups), (dimension, dimensions) = (
        word_codes(collectives, column) for column in ("kind", "group", "dimension")
    )
    sizes = len(kinds), len(groups), len(dimensions)
    present, label = np.unique(np.ravel_multi_index((kind, group, dimension), sizes), return_inverse=True)
    labels = [
        Label(kinds[k] or UNKNOWN, groups[g], dimensions[d])
        for k, g, d in np.transpose(np.unravel_index(present, sizes)).tolist()
    ]
    code_of = {key: n for n, key in enumerate(sorted(set(labels), key=_label_order))}
    return np.array([code_of[key] for key in labels], np.int64)[label], list(code_of)


def _label_order(label: Label) -> tuple[str, str, str]:
    return label.collective or "", label.group or "", label.dimension or ""
