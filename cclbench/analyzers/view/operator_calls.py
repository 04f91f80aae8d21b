# SPDX-License-Identifier: Apache-2.0
"""A rank's calls of operators: to which of them each one's work belongs, and in what ways they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.view.columns import Words
from cclbench.disk_columns import on_disk, pieces
from cclbench.intervals import Index, Int64, Mask
from cclbench.normalize.operators import Ids, ancestors, inherited, nearest
from cclbench.operators.call import Call, NoModel, parse
from cclbench.operators.cost import PRODUCTS, Cost, cost_of, model_of

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

Float64 = npt.NDArray[np.float64]

_INSIDE: Final = "what it calls is counted by itself"
_TEXTS: Final = ("name", "shapes", "dtypes", "strides", "values", "annotation")
_ROWS: Final = 1 << 18
"""Calls whose parents are looked up at once."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Work that is alike: calls of an operator with equal arguments, or kernels of one name.

    `cost` is one call's; None where `why_not` says why.
    """

    call: Call
    linked: bool
    cost: Cost | None = None
    why_not: str | None = None

    @property
    def family(self) -> str | None:
        """The family of the operator's cost model, None without one."""
        model = model_of(self.call.name) if self.linked else None
        return model.family if model else None


class OperatorCalls:
    """The rank's calls of operators, and which of them each call's work belongs to."""

    def __init__(self, rank: RankView) -> None:
        self.ids = Ids(rank.operators("operator")["operator"].to_numpy())
        above = rank.operators("parent")["parent"]
        parents = np.empty(len(above), np.int32)
        for rows in pieces(len(parents), most=_ROWS):
            parents[rows] = self.ids.index_of(ids_of(above.slice(rows.start, rows.stop - rows.start)))
        del above
        rank.rest()
        self.sequence: Int64 = on_disk(inherited(parents, rank.operators("sequence")["sequence"]))
        """Autograd's number of each call, else of the nearest one that holds it; −1 of none."""
        rank.rest()
        self.recomputed: Mask = rank.operators("recomputed")["recomputed"].to_numpy()
        self._texts = {column: Words.of(rank.operators(column), column) for column in _TEXTS}
        self.name = self._texts["name"]
        rank.rest()
        models = [model_of(name or "") for name in self.name.words]
        families = [model.family if model else None for model in models]
        of_product = self.name.each([family in PRODUCTS for family in families])
        self._attends = np.array([family == "attention" for family in families], np.bool_)
        self._counted_inside = ancestors(parents, of_product)
        modelled = self.name.each([model is not None for model in models])
        owner = nearest(parents, modelled & ~self._counted_inside)
        self.owner: Index = on_disk(np.where(owner >= 0, owner, np.arange(len(owner), dtype=np.int32)))
        self._numbers: dict[tuple[int, ...], int] = {}
        self._kinds: list[Kind] = []

    def __len__(self) -> int:
        return len(self.owner)

    def number_kinds(
        self, calls: Index, launched: Int64, kernels_of: Callable[[int], tuple[str, ...]]
    ) -> Index:
        """The way in which each of `calls` is called, as a number for `kinds`; `launched` identifies kernels.

        `kernels_of(i)` are the names of the kernels of the i-th call.
        """
        columns = [launched]
        for column, words in self._texts.items():
            numbers = words[calls].astype(np.int64)
            if column == "annotation":
                # Steps differ, and only attention costs what a step's requests make it cost.
                numbers = np.where(self._attends[self.name[calls]], numbers, 0)
            columns.append(numbers)
            words.release()
        code = launched
        for numbers in columns[1:]:
            code = np.unique(code, return_inverse=True)[1] * (numbers.max(initial=0) + 1) + numbers
        _, first, kind = np.unique(code, return_index=True, return_inverse=True)
        keys = zip(*(column[first].tolist() for column in columns), strict=True)
        texts = zip(*(words.texts(calls[first]) for words in self._texts.values()), strict=True)
        place = []
        for i, key, own in zip(first.tolist(), keys, texts, strict=True):
            if key not in self._numbers:
                self._numbers[key] = len(self._kinds)
                self._kinds.append(self._kind(int(calls[i]), own, kernels_of(i)))
            place.append(self._numbers[key])
        return np.array(place, np.int32)[kind]

    def kinds(self) -> tuple[list[Kind], Index]:
        """All ways that were numbered, in order of what they launch and their texts, and each one's place."""
        order = [self._numbers[key] for key in sorted(self._numbers)]
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order), dtype=np.int32)
        return [self._kinds[number] for number in order], place

    def _kind(self, call: int, texts: tuple[str | None, ...], kernels: tuple[str, ...]) -> Kind:
        name, shapes, dtypes, strides, values, annotation = texts
        if self._counted_inside[call]:
            return Kind(Call(name or ""), linked=True, why_not=_INSIDE)
        found = parse(name or "", shapes, dtypes, strides, values, kernels, annotation)
        try:
            return Kind(found, linked=True, cost=cost_of(found))
        except NoModel as why:
            return Kind(found, linked=True, why_not=str(why))


def ids_of(ids: pa.Array | pa.ChunkedArray) -> Int64:
    """The ids, where one is null a number that none is."""
    return np.asarray(ids.fill_null(np.iinfo(np.int64).min).to_numpy())


def costs_of(kinds: Sequence[Kind]) -> tuple[Float64, Float64]:
    """FLOPs and bytes of each kind, NaN where it has no cost."""
    costs = [(kind.cost.flops, kind.cost.bytes) if kind.cost else (np.nan, np.nan) for kind in kinds]
    flops, size = np.array(costs, np.float64).reshape(len(costs), 2).T
    return flops, size
