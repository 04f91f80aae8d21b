# SPDX-License-Identifier: Apache-2.0
"""A rank's operator calls: the call that each one's work belongs to, and kinds of calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.view.columns import short_codes
from cclbench.classify import base_name
from cclbench.ground.intervals import Index, Int64, Mask
from cclbench.normalize.operators import Ids, holds_chosen, inherited_numbers, nearest_flagged
from cclbench.operators.call import COMPILED, Call, NoModel, Tensor, parse_call
from cclbench.operators.cost import WHOLE, Cost, cost_of, model_of

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

Float64 = npt.NDArray[np.float64]

_INSIDE: Final = "the operators that it calls are counted instead"
_BACKWARD: Final = "Backward"
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
_TEXTS: Final = ("name", "shapes", "dtypes", "strides", "values", "annotation")


@dataclass(frozen=True)
class WorkKind:
    """A kind of work: calls of an operator with equal arguments, or kernels of one name.

    `cost`: of one call; None for the reason `why_not`.
    """

    call: Call
    linked: bool
    cost: Cost | None = None
    why_not: str | None = None

    @cached_property
    def name(self) -> str:
        """Its operator, or the kernel's base name."""
        return self.call.name if self.linked else base_name(self.call.name)

    @cached_property
    def shaped_name(self) -> str:
        """The name with the types and sizes of the tensors: `aten::mm(bf16[16,559], bf16[559,64])`."""
        return f"{self.name}({', '.join(_tensor_words(self.call.arguments))})".removesuffix("()")

    @cached_property
    def model_family(self) -> str | None:
        """Family of the operator's cost model; None without one."""
        if self.cost is not None and self.call.counted_work(COMPILED) is not None:
            return "compiled instruction"
        model = model_of(self.call.name) if self.linked else None
        return model.family if model else None


def _tensor_words(arguments: Iterable[Any]) -> Iterator[str]:
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield f"{argument.precision or argument.dtype}[{','.join(map(str, argument.shape))}]"
        elif isinstance(argument, tuple) and any(isinstance(item, Tensor) for item in argument):
            yield f"{len(argument)} x {next(_tensor_words(argument))}"


class OperatorCalls:
    """A rank's operator calls, and the call that each one's work belongs to."""

    def __init__(self, rank: RankView) -> None:
        calls = rank.operators("operator", "parent", "sequence", "recomputed")
        self.operator: Int64 = calls["operator"].to_numpy()
        """Id of each call."""
        self.ids = Ids(self.operator)
        parents = self.ids.index_of(ids_of(calls["parent"]))
        self.sequence: Int64 = inherited_numbers(parents, calls["sequence"])
        """Autograd's number of each call, else of the nearest one that holds it; −1 of none."""
        self.recomputed: Mask = calls["recomputed"].to_numpy()
        self._texts = {column: short_codes(rank.operators(column), column) for column in _TEXTS}
        self.name, self.names = self._texts["name"]
        models = [model_of(name or "") for name in self.names]
        families = [model.family if model else None for model in models]
        of_product = np.array([family in WHOLE for family in families], np.bool_)[self.name]
        self._attends = np.array([family == "attention" for family in families], np.bool_)
        self._counted_inside = holds_chosen(parents, of_product)
        self._forward = _forward_calls(self.name, self.names, self.sequence)
        reads_inner = np.array([bool(model and model.reads_inner) for model in models], np.bool_)
        self._inner = _InnerCalls(parents, reads_inner[self.name], self._texts)
        modelled = np.array([model is not None for model in models], np.bool_)[self.name]
        owner = nearest_flagged(parents, modelled & ~self._counted_inside)
        self.owner: Index = np.where(owner >= 0, owner, np.arange(len(owner), dtype=np.int32))

    def __len__(self) -> int:
        return len(self.owner)

    def numbered_kinds(
        self, calls: Index, launched: Int64, kernels_of: Callable[[int], tuple[str, ...]]
    ) -> tuple[list[WorkKind], Index]:
        """The kinds of `calls`, ordered by what they launch and their texts, and each call's index into them.

        `launched`: identifies the kernels of each call; `kernels_of(i)`: the names of the i-th call's
        kernels.
        """
        code = launched
        for column, (number, _) in self._texts.items():
            codes = number[calls].astype(np.int64)
            if column == "annotation":
                # annotations differ by step, and only attention's cost depends on a step's requests
                codes = np.where(self._attends[self.name[calls]], codes, 0)
            code = _joined_codes(code, codes)
        forward = self._forward[calls]
        for number, _ in self._texts.values() if (forward >= 0).any() else ():
            code = _joined_codes(code, np.where(forward >= 0, number[forward] + np.int64(1), 0))
        if len(self._inner):
            code = _joined_codes(code, np.unique(self._inner.hashes[calls], return_inverse=True)[1])
        _, first, kind = np.unique(code, return_index=True, return_inverse=True)
        kinds = [self._costed_kind(int(calls[i]), kernels_of(i)) for i in first.tolist()]
        return kinds, kind.astype(np.int32)

    def _costed_kind(self, call: int, kernels: tuple[str, ...]) -> WorkKind:
        if self._counted_inside[call]:
            return WorkKind(Call(self.names[self.name[call]] or ""), linked=True, why_not=_INSIDE)
        parsed = self._parsed_call(call, kernels)
        if self._forward[call] >= 0:
            parsed = replace(parsed, forward=self._parsed_call(int(self._forward[call]), ()))
        if inner := self._inner.inner_calls(call):
            parsed = replace(parsed, inner=tuple(self._parsed_call(number, ()) for number in inner))
        try:
            return WorkKind(parsed, linked=True, cost=cost_of(parsed))
        except NoModel as why:
            return WorkKind(parsed, linked=True, why_not=str(why))

    def _parsed_call(self, call: int, kernels: tuple[str, ...]) -> Call:
        texts = (words[number[call]] for number, words in self._texts.values())
        name, shapes, dtypes, strides, values, annotation = texts
        return parse_call(name or "", shapes, dtypes, strides, values, kernels, annotation)


class _InnerCalls:
    """The calls that are made by calls whose cost model reads them."""

    def __init__(self, parents: Index, reads: Mask, texts: Mapping[str, tuple[Index, Sequence[Any]]]) -> None:
        inner = np.flatnonzero((parents >= 0) & reads[parents])
        self._inner = inner[np.argsort(parents[inner], kind="stable")]
        self._parents = parents[self._inner]
        self.hashes = np.zeros(len(parents), np.uint64)
        """Of each call, a hash of the names and arguments of the calls that it makes, in any order."""
        content = np.zeros(len(inner), np.uint64)
        for column in _TEXTS[:5]:
            content = (content + texts[column][0][self._inner].astype(np.uint64) + _ODD) * _ODD
            content ^= content >> np.uint64(29)
        np.add.at(self.hashes, self._parents, content)

    def __len__(self) -> int:
        return len(self._inner)

    def inner_calls(self, call: int) -> list[int]:
        """Indices of the calls that the call makes, in order."""
        first, end = np.searchsorted(self._parents, (call, call + 1)).tolist()
        return list(map(int, self._inner[first:end]))


def _forward_calls(name: Index, names: Sequence[str | None], sequence: Int64) -> Index:
    """Index of the call whose gradients each one computes; −1 for none, or several; shape (calls,).

    It is `F` for `FBackward` of the same sequence number, as autograd names a function and its node.
    """
    codes = {word: code for code, word in enumerate(names)}
    forward_of_code = np.full(len(names) + 1, -1, np.int64)
    for word, code in codes.items():
        if word and word.endswith(_BACKWARD):
            forward_of_code[code] = codes.get(word.removesuffix(_BACKWARD), -1)
    forward_name = forward_of_code[name]
    backward = np.flatnonzero((forward_name >= 0) & (sequence >= 0))
    forward_call = np.full(len(name), -1, np.int32)
    candidates = np.flatnonzero(np.isin(name, forward_name[backward]) & (sequence >= 0))
    if not len(candidates):
        return forward_call
    keys = name[candidates] + sequence[candidates] * np.int64(len(names))
    order = candidates[np.argsort(keys, kind="stable")]
    keys = np.sort(keys)
    key = forward_name[backward] + sequence[backward] * np.int64(len(names))
    place = np.searchsorted(keys, key)
    single = np.searchsorted(keys, key, "right") - place == 1
    forward_call[backward[single]] = order[place[single]]
    return forward_call


def _joined_codes(code: Int64, other: Int64) -> Int64:
    """A number for each pair of codes."""
    return np.asarray(np.unique(code, return_inverse=True)[1] * (other.max(initial=0) + 1) + other)


def ids_of(ids: pa.Array | pa.ChunkedArray) -> Int64:
    """The ids; null becomes a number that no id has."""
    return np.asarray(ids.fill_null(np.iinfo(np.int64).min).to_numpy())


def costs_of(kinds: Sequence[WorkKind]) -> tuple[Float64, Float64, Float64]:
    """FLOPs, bytes and written bytes of each kind, NaN without a cost."""
    costs = [
        (kind.cost.flops, kind.cost.bytes, kind.cost.written_bytes) if kind.cost else (np.nan,) * 3
        for kind in kinds
    ]
    flops, size, written = np.array(costs, np.float64).reshape(len(costs), 3).T
    return flops, size, written
