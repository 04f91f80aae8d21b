# SPDX-License-Identifier: Apache-2.0
"""FLOPs, bytes and precision of a graph's kernels: from the trace, else from the launching call.

A kernel belongs to the innermost call around its launch that has a cost model. A call's cost is shared by its
kernels in proportion to their time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.classify.arithmetic import kernel_arithmetic
from cclbench.ground.codes import combination_codes
from cclbench.ground.intervals import Int64, Mask
from cclbench.normalize.operators import Ids, holds_chosen, inherited_numbers, nearest_flagged
from cclbench.operators.call import Call, NoModel, parse_call
from cclbench.operators.chains import KINDS, Chain, find_chains, fused_cost
from cclbench.operators.cost import WHOLE, Cost, cost_of, model_of
from cclbench.record.rank import Rank
from cclbench.record.run import Run
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph
from cclbench.replay.tables import clocks_of

Float64 = npt.NDArray[np.float64]
_TEXTS: Final = ("name", "shapes", "dtypes", "strides", "values", "annotation")
_KERNELS: Final = ("start_ns", "dur_ns", "name", "category", "operator", "flops", "hbm_bytes")
_NONE: Final = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True, eq=False)
class NodeCosts:
    """Costs by node, shape (nodes,): FLOPs, bytes (NaN if unknown), index into `precisions` (−1: none)."""

    flops: Float64
    bytes: Float64
    precision: Int64
    precisions: tuple[str, ...]
    chain: Int64
    """Chain of the kernel's call: index into `chains.KINDS`; precision as one kernel; 1 for calls that are
    not the chain's first; −1 for none; shape (3, nodes)."""
    fused: Float64
    """A kernel's part of its chain's cost as one kernel: FLOPs, bytes, and share of the chain's time; NaN
    where unknown; shape (3, nodes)."""
    recomputed: Mask
    """Kernels of forward operators that run again for the backward pass, shape (nodes,)."""

    def chain_costs(self) -> NodeCosts:
        """The costs of chains as one kernel, shared by their kernels."""
        inside = self.chain[0] >= 0
        flops, size = (np.where(inside, fused, np.nan) for fused in self.fused[:2])
        return replace(self, flops=flops, bytes=size, precision=self.chain[1])

    def arithmetic_ns(self, flops_per_s: dict[str, float]) -> Float64:
        """Arithmetic time at rates by precision, ns; 0 without arithmetic, NaN where unknown."""
        rates = np.array([*(flops_per_s.get(word, np.nan) for word in self.precisions), np.nan], np.float64)
        return np.where(self.flops == 0, 0.0, self.flops / rates[self.precision] * 1e9)

    def memory_ns(self, bytes_per_s: float) -> Float64:
        """Memory time at a rate, ns; NaN where unknown."""
        return self.bytes / bytes_per_s * 1e9


class KernelCosts:
    """Costs of a graph's kernels, computed on first use."""

    def __init__(self, run: Run, graph: Graph) -> None:
        self._run, self._graph = run, graph

    @cached_property
    def node_costs(self) -> NodeCosts:
        """Costs of all nodes; unknown for nodes that are not kernels."""
        nodes, words = self._graph.nodes, dict[str, int]()
        names = {name: code for code, name in enumerate(self._graph.names)}
        flops, size = (np.full(len(nodes), np.nan) for _ in range(2))
        precision, chain = np.full(len(nodes), -1, np.int64), np.full((3, len(nodes)), -1, np.int64)
        fused, recomputed = np.full((3, len(nodes)), np.nan), np.zeros(len(nodes), np.bool_)
        clocks = clocks_of(self._run)
        for windowed in self._graph.windowed:
            if windowed.on_host:
                continue
            of_rank = np.flatnonzero((nodes.rank == windowed.rank) & (nodes.kind == n.COMPUTE))
            kernels = _rank_kernels(self._run.rank(windowed.rank), names, words)
            common_starts = clocks(windowed.rank).on_common_clock(kernels.start)
            matching = _first_matching_rows(
                (nodes.start[of_rank], nodes.end[of_rank], nodes.name[of_rank]),
                (common_starts, common_starts + kernels.dur, kernels.name),
            )
            is_found = matching >= 0
            for column, values in (
                *((flops, kernels.flops), (size, kernels.bytes), (precision, kernels.precision)),
                *zip((*chain, *fused), (*kernels.chain, *kernels.fused), strict=True),
                (recomputed, kernels.recomputed),
            ):
                column[of_rank[is_found]] = values[matching[is_found]]
        return NodeCosts(flops, size, precision, (*words,), chain, fused, recomputed)


@dataclass(frozen=True, slots=True, eq=False)
class _RankKernels:
    """A rank's kernels; arrays of shape (kernels,)."""

    start: Int64
    dur: Int64
    name: Int64
    flops: Float64
    bytes: Float64
    precision: Int64
    chain: Int64
    fused: Float64
    recomputed: Mask


class _KernelCalls(NamedTuple):
    """The calls that launched kernels, in thread order. `kind`: index into the distinct calls and their
    costs; `sequence`: autograd's sequence number of the call, or of its nearest parent, −1 for none; shape
    (calls,)."""

    distinct: list[Call]
    costs: list[Cost | None]
    kind: Int64
    sequence: Int64


def _rank_kernels(tables: Rank, names: dict[str, int], words: dict[str, int]) -> _RankKernels:
    """A rank's kernels; `names`: the graph's; `words`: precisions, extended by new ones."""
    columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in _KERNELS if name != "category"}
    for batch in tables.events(("kernel",), _KERNELS):
        communicates = [word == "communication" for word in batch["category"].dictionary.to_pylist()]
        computes = ~np.array([*communicates, False], np.bool_)[_dictionary_indices(batch["category"])]
        code = np.array([names.get(word, -1) for word in batch["name"].dictionary.to_pylist()] + [-1])
        columns["name"].append(code[_dictionary_indices(batch["name"])][computes])
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
    stated_precisions = [
        kernel_arithmetic(kernel_names[code]).precision if code >= 0 else None for code in np.unique(name)
    ]
    by_name = np.array([_word_code(word, words) for word in stated_precisions], np.int64)
    precision = by_name[np.searchsorted(np.unique(name), name)] if len(name) else name
    calls, call, recomputed = _launching_calls(tables, operator, name, kernel_names)
    modelled = call >= 0
    chain, fused = np.full((3, len(call)), -1, np.int64), np.full((3, len(call)), np.nan)
    if modelled.any():
        call_ns = np.bincount(call[modelled], dur[modelled], len(calls.kind)).astype(np.float64)
        share = dur[modelled] / np.maximum(call_ns[call[modelled]], 1)
        kind = calls.kind[call[modelled]]
        costs = np.array(
            [(np.nan, np.nan) if cost is None else (cost.flops, cost.bytes) for cost in calls.costs],
            np.float64,
        )
        of_calls = np.array(
            [_word_code(cost.precision if cost else None, words) for cost in calls.costs], np.int64
        )
        of_chains = _in_chains(calls, call_ns, words)
        chain[:, modelled] = of_chains.kind[:, call[modelled]]
        fused[:, modelled] = of_chains.parts[:, call[modelled]] * share
        is_stated = ~np.isnan(flops[modelled])
        flops[modelled] = np.where(is_stated, flops[modelled], costs[kind, 0] * share)
        size[modelled] = np.where(is_stated, size[modelled], costs[kind, 1] * share)
        precision[modelled] = np.where(is_stated, precision[modelled], of_calls[kind])
    return _RankKernels(start, dur, name, flops, size, precision, chain, fused, recomputed)


class _ChainCodes(NamedTuple):
    """Chains by call. `kind`: kind, precision as one kernel, 1 for calls after the first, −1 for none, shape
    (3, calls); `parts`: FLOPs, bytes and share of the chain's time, shape (3, calls)."""

    kind: Int64
    parts: Float64


def _in_chains(calls: _KernelCalls, call_ns: Float64, words: dict[str, int]) -> _ChainCodes:
    """Chains among calls that take `call_ns`."""
    count, kind_of_call = len(calls.kind), calls.kind.tolist()
    codes = _ChainCodes(np.full((3, count), -1, np.int64), np.full((3, count), np.nan))
    kinds = [*KINDS]
    costs: dict[tuple[object, ...], Cost | None] = {}
    for chain in find_chains([calls.distinct[kind] for kind in kind_of_call], calls.sequence):
        members = np.array(chain.calls, np.int64)
        codes.kind[0, members] = kinds.index(chain.kind)
        key = (chain.kind, chain.is_backward, *(kind_of_call[index] for index in chain.forward))
        if key not in costs:
            forward = [calls.distinct[kind_of_call[index]] for index in chain.forward]
            costs[key] = _cost_as_one_kernel(chain, forward)
        cost = costs[key]
        if cost is None:
            continue
        share = call_ns[members] / max(float(call_ns[members].sum()), 1.0)
        codes.kind[1, members], codes.kind[2, members[1:]] = _word_code(cost.precision, words), 1
        codes.parts[:, members] = np.array([[cost.flops], [cost.bytes], [1]], np.float64) * share
    return codes


def _cost_as_one_kernel(chain: Chain, forward: Sequence[Call]) -> Cost | None:
    """Fused cost of a chain, by its forward calls; None where their arguments do not suffice."""
    try:
        return fused_cost(chain.kind, forward, backward=chain.is_backward)
    except NoModel:
        return None


def _launching_calls(
    tables: Rank, operator: Int64, name: Int64, names: Sequence[str]
) -> tuple[_KernelCalls, Int64, Mask]:
    """The calls that launched kernels; the call of each kernel, −1 for none; whether each is recomputed."""
    table = tables.operators(["operator", "parent", "sequence", "recomputed", *_TEXTS])
    ids = Ids(table["operator"].to_numpy())
    parents = ids.index_of(table["parent"].fill_null(_NONE).to_numpy())
    text = {column: table[column].combine_chunks() for column in _TEXTS}
    code = {column: _dictionary_indices(values) for column, values in text.items()}
    models = [model_of(word) for word in text["name"].dictionary.to_pylist()]
    has_model = np.array([*(model is not None for model in models), False], np.bool_)
    is_product = np.array(
        [*(model is not None and model.family in WHOLE for model in models), False], np.bool_
    )
    inside = holds_chosen(parents, is_product[code["name"]])
    owner = nearest_flagged(parents, has_model[code["name"]] & ~inside).astype(np.int64)
    owner = np.where(owner >= 0, owner, np.arange(len(owner)))
    launched = ids.index_of(operator)
    call = np.where(launched >= 0, np.append(owner, -1)[launched], -1)
    recomputed = np.append(table["recomputed"].to_numpy(), False)[np.where(launched >= 0, launched, -1)]
    heads, called = np.unique(call[call >= 0], return_inverse=True)
    call[call >= 0] = called
    if not len(heads):
        return _KernelCalls([], [], heads, heads), call, recomputed
    sequence = inherited_numbers(parents, table["sequence"])[heads]
    order = np.flatnonzero(call >= 0)
    order = order[np.argsort(call[order], kind="stable")]
    first = np.searchsorted(call[order], np.arange(len(heads) + 1))
    kernels = np.add.reduceat((name[order] + 1) * 0x9E3779B1 % 0x7FFFFFFF, first[:-1])
    alike = combination_codes(kernels, *(code[column][heads] for column in _TEXTS))
    _, example, kind = np.unique(alike, return_index=True, return_inverse=True)
    distinct: list[Call] = []
    costs: list[Cost | None] = []
    for example_call in example.tolist():
        kernel_names = [
            names[code_of_name]
            for code_of_name in dict.fromkeys(
                name[order[first[example_call] : first[example_call + 1]]].tolist()
            )
            if code_of_name >= 0
        ]
        arguments = {column: text[column][int(heads[example_call])].as_py() for column in _TEXTS}
        distinct.append(parse_call(**arguments, kernels=(*kernel_names,)))
        try:
            costs.append(cost_of(distinct[-1]))
        except NoModel:
            costs.append(None)
    return _KernelCalls(distinct, costs, kind, sequence), call, recomputed


def _dictionary_indices(column: pa.DictionaryArray) -> Int64:
    """Dictionary index of each value, −1 for null."""
    return np.asarray(column.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)


def _word_code(word: str | None, words: dict[str, int]) -> int:
    return -1 if word is None else words.setdefault(word, len(words))


def _first_matching_rows(keys: Sequence[Int64], rows: Sequence[Int64]) -> Int64:
    """The first row with the columns of each key; −1 for none."""
    code = combination_codes(*(np.concatenate(pair) for pair in zip(rows, keys, strict=True)))
    count = len(rows[0])
    first_row = np.full(int(code.max(initial=-1)) + 1, -1, np.int64)
    first_row[code[:count][::-1]] = np.arange(count)[::-1]
    return first_row[code[count:]]
