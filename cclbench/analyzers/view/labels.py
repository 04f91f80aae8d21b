# SPDX-License-Identifier: Apache-2.0
"""What a rank's collectives are told apart by: kind, process group, parallel dimension."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pyarrow as pa

from cclbench.analyzers.view.columns import codes
from cclbench.intervals import Int64

UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Label:
    """A kind of collective, in a group or not narrowed to one; or a dimension; None spans them."""

    collective: str | None = None
    group: str | None = None
    dimension: str | None = None

    def wider(self) -> Iterator[Label]:
        """The labels a collective is counted under: its kind, its kind and group, its dimension."""
        yield replace(self, group=None, dimension=None)
        if self.group is not None:
            yield replace(self, dimension=None)
        if self.dimension is not None:
            yield Label(dimension=self.dimension)


def wider(known: Sequence[Label], amounts: Sequence[Fraction]) -> dict[Label, Fraction]:
    """The amounts of labels, added up by every label they are counted under."""
    sums: dict[Label, Fraction] = {}
    for one, amount in zip(known, amounts, strict=True):
        for key in one.wider():
            sums[key] = sums.get(key, Fraction(0)) + amount
    return sums


def labels(collectives: pa.Table) -> tuple[Int64, list[Label]]:
    """The label number of each row of `schema.COLLECTIVES`, shape (rows,), and the labels, sorted."""
    (kind, kinds), (group, groups), (dimension, dimensions) = (
        codes(collectives, column) for column in ("kind", "group", "dimension")
    )
    sizes = len(kinds), len(groups), len(dimensions)
    present, label = np.unique(np.ravel_multi_index((kind, group, dimension), sizes), return_inverse=True)
    found = [
        Label(kinds[k] or UNKNOWN, groups[g], dimensions[d])
        for k, g, d in np.transpose(np.unravel_index(present, sizes)).tolist()
    ]
    place = {one: n for n, one in enumerate(sorted(set(found), key=_order))}
    return np.array([place[one] for one in found], np.int64)[label], list(place)


def _order(label: Label) -> tuple[str, str, str]:
    return label.collective or "", label.group or "", label.dimension or ""
