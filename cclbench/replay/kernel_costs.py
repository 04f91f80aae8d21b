# SPDX-License-Identifier: Apache-2.0
"""FLOPs, bytes and precision of a graph's kernels: as the trace states them, else of the launching call.

A kernel belongs to the innermost call around its launch that has a cost model.  Of a call with several
kernels each has the share of the cost that it has of their time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.classify.arithmetic import arithmetic
from cclbench.intervals import Int64
from cclbench.normalize.operators import Ids, ancestors, nearest
from cclbench.operators.call import NoModel, parse
from cclbench.operators.cost import PRODUCTS, Cost, cost_of, model_of
from cclbench.record.rank import Rank
from cclbench.record.run import Run
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph
from cclbench.replay.places import codes
from cclbench.replay.tables import clocks_of

Float64 = npt.NDArray[np.float64]
_TEXTS: Final = ("name", "shapes", "dtypes", "strides", "values", "annotation")
_KERNELS: Final = ("start_ns", "dur_ns", "name", "category", "operator", "flops", "hbm_bytes")
_NONE: Final = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """Of each node, shape (nodes,): FLOPs and bytes, NaN where unknown; an index into `precisions`, −1."""

    flops: Float64
    bytes: Float64
    precision: Int64
    precisions: tuple[str, ...]

    def arithmetic_ns(self, flops_per_s: dict[str, float]) -> Float64:
        """Time of the arithmetic at those rates by precision; 0 without any, NaN where unknown."""
        rates = np.array([*(flops_per_s.get(word, np.nan) for word in self.precisions), np.nan], np.float64)
        return np.where(self.flops == 0, 0.0, self.flops / rates[self.precision] * 1e9)

    def memory_ns(self, bytes_per_s: float) -> Float64:
        """Time of the bytes at that rate; NaN where unknown."""
        return self.bytes / bytes_per_s * 1e9


class KernelCosts:
    """The costs of a graph's kernels, computed when they are first asked for."""

    def __init__(self, run: Run, graph: Graph) -> None:
        self._run, self._graph = run, graph

    @cached_property
    def costs(self) -> Costs:
        """Those of all nodes; of nodes that are no kernels nothing is known."""
        nodes, words = self._graph.nodes, dict[str, int]()
        names = {name: code for code, name in enumerate(self._graph.names)}
        flops, size = (np.full(len(nodes), np.nan) for _ in range(2))
        precision = np.full(len(nodes), -1, np.int64)
        clocks = clocks_of(self._run)
        for windowed in self._graph.windowed:
            if windowed.on_host:
                continue
            own = np.flatnonzero((nodes.rank == windowed.rank) & (nodes.kind == n.COMPUTE))
            found = _of_rank(self._run.rank(windowed.rank), names, words)
            at = clocks(windowed.rank).common(found.start)
            place = _places(
                (nodes.start[own], nodes.end[own], nodes.name[own]), (at, at + found.dur, found.name)
            )
            known = place >= 0
            for column, values in ((flops, found.flops), (size, found.bytes), (precision, found.precision)):
                column[own[known]] = values[place[known]]
        return Costs(flops, size, precision, (*words,))


@dataclass(frozen=True, slots=True, eq=False)
class _Kernels:
    """A rank's kernels, arrays of shape (kernels,)."""

    start: Int64
    dur: Int64
    name: Int64
    flops: Float64
    bytes: Float64
    precision: Int64


def _of_rank(tables: Rank, names: dict[str, int], words: dict[str, int]) -> _Kernels:
    """Those of a rank; `names` are the graph's, `words` grow by the precisions that occur."""
    columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in _KERNELS if name != "category"}
    for batch in tables.events(("kernel",), _KERNELS):
        told = [word == "communication" for word in batch["category"].dictionary.to_pylist()]
        computes = ~np.array([*told, False], np.bool_)[_indices(batch["category"])]
        code = np.array([names.get(word, -1) for word in batch["name"].dictionary.to_pylist()] + [-1])
        columns["name"].append(code[_indices(batch["name"])][computes])
        for column in ("start_ns", "dur_ns"):
            columns[column].append(batch[column].to_numpy()[computes])
        columns["operator"].append(batch["operator"].fill_null(_NONE).to_numpy()[computes])
        for column in ("flops", "hbm_bytes"):
            stated = batch[column].cast(pa.float64()).fill_null(np.nan).to_numpy()
            columns[column].append(stated[computes])
    start, dur, name, operator, flops, size = (
        np.concatenate([np.empty(0, kind), *parts])
        for parts, kind in zip(columns.values(), (*[np.int64] * 4, np.float64, np.float64), strict=True)
    )
    kernel_names = [*names]
    own = [arithmetic(kernel_names[code]).precision if code >= 0 else None for code in np.unique(name)]
    by_name = np.array([_code(word, words) for word in own], np.int64)
    precision = by_name[np.searchsorted(np.unique(name), name)] if len(name) else name
    calls, call = _calls(tables, operator, name, kernel_names)
    modelled = call >= 0
    if modelled.any():
        taken = np.bincount(call[modelled], dur[modelled], len(calls))
        share = dur[modelled] / np.maximum(taken[call[modelled]], 1)
        costs = np.array(
            [(cost.flops, cost.bytes) if cost else (np.nan, np.nan) for cost in calls], np.float64
        )
        of_calls = np.array([_code(cost.precision if cost else None, words) for cost in calls], np.int64)
        stated = ~np.isnan(flops[modelled])
        flops[modelled] = np.where(stated, flops[modelled], costs[call[modelled], 0] * share)
        size[modelled] = np.where(stated, size[modelled], costs[call[modelled], 1] * share)
        precision[modelled] = np.where(stated, precision[modelled], of_calls[call[modelled]])
    return _Kernels(start, dur, name, flops, size, precision)


def _calls(
    tables: Rank, operator: Int64, name: Int64, names: Sequence[str]
) -> tuple[list[Cost | None], Int64]:
    """The cost of each call that launched kernels, None without a model; and the call of each kernel, −1."""
    table = tables.operators(["operator", "parent", *_TEXTS])
    ids = Ids(table["operator"].to_numpy())
    parents = ids.index_of(table["parent"].fill_null(_NONE).to_numpy())
    text = {column: table[column].combine_chunks() for column in _TEXTS}
    code = {column: _indices(values) for column, values in text.items()}
    models = [model_of(word) for word in text["name"].dictionary.to_pylist()]
    has_model = np.array([*(one is not None for one in models), False], np.bool_)
    is_product = np.array([*(one is not None and one.family in PRODUCTS for one in models), False], np.bool_)
    inside = ancestors(parents, is_product[code["name"]])
    owner = nearest(parents, has_model[code["name"]] & ~inside).astype(np.int64)
    launched = ids.index_of(operator)
    call = np.where(launched >= 0, np.append(owner, -1)[launched], -1)
    heads, called = np.unique(call[call >= 0], return_inverse=True)
    call[call >= 0] = called
    if not len(heads):
        return [], call
    order = np.flatnonzero(call >= 0)
    order = order[np.argsort(call[order], kind="stable")]
    first = np.searchsorted(call[order], np.arange(len(heads) + 1))
    kernels = np.add.reduceat((name[order] + 1) * 0x9E3779B1 % 0x7FFFFFFF, first[:-1])
    alike = codes(kernels, *(code[column][heads] for column in _TEXTS))
    _, example, kind = np.unique(alike, return_index=True, return_inverse=True)
    costs: list[Cost | None] = []
    for at in example.tolist():
        own = [
            names[one] for one in dict.fromkeys(name[order[first[at] : first[at + 1]]].tolist()) if one >= 0
        ]
        told = {column: text[column][int(heads[at])].as_py() for column in _TEXTS}
        try:
            costs.append(cost_of(parse(**told, kernels=(*own,))))
        except NoModel:
            costs.append(None)
    return [costs[one] for one in kind.tolist()], call


def _indices(column: pa.DictionaryArray) -> Int64:
    """The index of each value in the dictionary, −1 of none."""
    return np.asarray(column.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def _code(word: str | None, words: dict[str, int]) -> int:
    return -1 if word is None else words.setdefault(word, len(words))


def _places(wanted: Sequence[Int64], rows: Sequence[Int64]) -> Int64:
    """Which row, of equal ones the first, has the columns of each wanted one; −1 of none."""
    code = codes(*(np.concatenate(pair) for pair in zip(rows, wanted, strict=True)))
    count = len(rows[0])
    found = np.full(int(code.max(initial=-1)) + 1, -1, np.int64)
    found[code[:count][::-1]] = np.arange(count)[::-1]
    return found[code[count:]]
