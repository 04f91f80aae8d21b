# SPDX-License-Identifier: Apache-2.0
"""Chains of calls that one kernel can do: attention, norms, activations, rotary embeddings, updates; and
neighbouring elementwise calls, copies and reductions, which one kernel could do if they depend on each other.

A chain is a pattern over the calls of a thread that launch kernels, one letter per call (`_LETTERS`).  The
calls that compute its gradients, identified by autograd's sequence numbers, are a chain of their own.  The
fused cost of a chain is its products' FLOPs and the bytes of its inputs and outputs, each counted once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from cclbench.ground.intervals import Int64, Mask
from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_of, model_of

_LETTERS: Final = {
    **dict.fromkeys(("bmm", "baddbmm"), "B"),
    **dict.fromkeys(("mm", "addmm", "linear"), "M"),
    **dict.fromkeys(("_softmax", "softmax", "_safe_softmax"), "S"),
    **dict.fromkeys(("mul", "mul_"), "m"),
    **dict.fromkeys(("div", "div_"), "d"),
    **dict.fromkeys(("add", "add_"), "a"),
    **dict.fromkeys(("sub", "sub_", "rsub"), "s"),
    **dict.fromkeys(("exp", "exp_"), "E"),
    **dict.fromkeys(("masked_fill", "masked_fill_", "where", "tril", "triu", "fill_"), "f"),
    **dict.fromkeys(("isneginf", "isinf", "all", "any", "eq", "ne", "lt", "gt", "le", "ge"), "w"),
    **dict.fromkeys(("logical_not", "bitwise_not", "bitwise_and", "amax", "max", "sum"), "w"),
    **dict.fromkeys(("native_dropout", "dropout", "bernoulli_"), "D"),
    **dict.fromkeys(("copy_", "clone", "_to_copy", "contiguous"), "c"),
    **dict.fromkeys(("silu", "silu_", "gelu", "gelu_"), "i"),
    **dict.fromkeys(("sigmoid", "sigmoid_"), "o"),
    **dict.fromkeys(("tanh", "tanh_"), "t"),
    **dict.fromkeys(("erf", "erf_"), "g"),
    "pow": "p",
    "mean": "e",
    "rsqrt": "r",
    "neg": "n",
    "cat": "k",
    **dict.fromkeys(("lerp", "lerp_"), "L"),
    **dict.fromkeys(("addcmul", "addcmul_"), "C"),
    **dict.fromkeys(("sqrt", "sqrt_"), "q"),
    **dict.fromkeys(("addcdiv", "addcdiv_"), "V"),
}
_NAMESPACE: Final = "aten::"
_LISTS: Final = "_foreach_"
_OTHER: Final = "x"
NEIGHBOURS: Final = "neighbours"
"""The kind of chain of which only an upper bound of the gain is known."""
_ELEMENTWISE: Final = ("elementwise", "reduction", "copy")
"""Families of calls that can be neighbours."""
_FEW: Final = 16
"""Calls on at most one in so many elements, such as those on means, do not separate neighbours."""


class Chain(NamedTuple):
    """A chain: its kind, the indices of its calls, and those of the forward pass: its own, or the calls whose
    gradients it computes."""

    kind: str
    calls: tuple[int, ...]
    forward: tuple[int, ...]

    @property
    def is_backward(self) -> bool:
        """Whether it computes gradients."""
        return self.calls != self.forward


class _ChainKind(NamedTuple):
    pattern: re.Pattern[str] | None
    """None: neighbouring calls; see `_neighbours`."""
    cost: Callable[[Sequence[Call]], Cost]
    backward: tuple[float, float] = (0.0, 0.0)
    """FLOPs and bytes of its gradients as one kernel, relative to the forward pass."""
    unfused: str = ""
    """Letters of calls in between that are not fused."""
    accepts: Callable[[Sequence[Call]], bool] = lambda _: True


def _attention_cost(calls: Sequence[Call]) -> Cost:
    """FLOPs of both products; reads queries, keys and values, writes the second product's result.  Operands
    that were converted to fp32 beforehand count in their original type."""
    first, last = _attention_products(calls)
    costs = cost_of(first), cost_of(last)
    read = sum(operand.bytes for operand in (*_product_operands(first), _product_operands(last)[1]))
    cost = Cost(
        flops=costs[0].flops + costs[1].flops,
        precision=costs[0].precision,
        read_bytes=read,
        written_bytes=costs[1].written_bytes,
    )
    conversion = calls[0]
    if conversion.name != "aten::copy_" or conversion.tensor(0).precision != "fp32":
        return cost
    source = conversion.tensor(1)
    ratio = conversion.tensor(0).bytes // max(source.bytes, 1)
    if source.precision is None or ratio < 2:
        return cost
    return replace(
        cost,
        precision=source.precision,
        read_bytes=cost.read_bytes // ratio,
        written_bytes=cost.written_bytes // ratio,
    )


def _attention_products(calls: Sequence[Call]) -> tuple[Call, Call]:
    """The products of queries and keys, and of scores and values."""
    products = [call for call in calls if _call_letter(call.name) == "B"]
    return products[0], products[-1]


def _has_softmax_of_scores(calls: Sequence[Call]) -> bool:
    """Whether the softmax has as many elements as the first product's result; True where not recorded."""
    try:
        left, right = _product_operands(_attention_products(calls)[0])
        scores = left.elements // left.shape[-1] * right.shape[-1]
        return any(scores == call.tensor(0).elements for call in calls if _call_letter(call.name) in "SE")
    except (NoModel, LookupError, ZeroDivisionError):
        return True


def _product_operands(call: Call) -> tuple[Tensor, Tensor]:
    """The two factors of a batched product."""
    first = 1 if call.name.endswith("baddbmm") else 0
    return call.tensor(first), call.tensor(first + 1)


def _one_pass_cost(calls: Sequence[Call]) -> Cost:
    """Reads the first operand (for a copy, its source) and writes as much."""
    operand = calls[0].tensor(1 if calls[0].name == "aten::copy_" else 0)
    return Cost(flops=0, precision=None, read_bytes=operand.bytes, written_bytes=operand.bytes)


def _rotation_cost(calls: Sequence[Call]) -> Cost:
    """Reads what is rotated and writes as much: the first operand, or the halves concatenated last."""
    operand = calls[0].tensor(0)
    halves = sum(half.elements for half in calls[-1].tensors) if _call_letter(calls[-1].name) == "k" else 0
    size = operand.bytes * max(operand.elements, halves) // max(operand.elements, 1)
    return Cost(flops=0, precision=None, read_bytes=size, written_bytes=size)


def _activation_cost(calls: Sequence[Call]) -> Cost:
    """A gated activation reads gate and value and writes their product; GELU by its formula reads its first
    operand and writes as much.  A sigmoid is assumed to gate another value than its argument: an upper bound.
    """
    if not {"i", "o"} & {_call_letter(call.name) for call in calls}:
        return _one_pass_cost(calls)
    gate = calls[0].tensor(0)
    return Cost(flops=0, precision=None, read_bytes=2 * gate.bytes, written_bytes=gate.bytes)


def _update_cost(calls: Sequence[Call]) -> Cost:
    """Reads parameter, gradient and two moments, writes all but the gradient; addcdiv moves four tensors."""
    last = next((call for call in reversed(calls) if call.name.rstrip("_").endswith("addcdiv")), None)
    if last is None:
        raise NoModel("the chain has no addcdiv")
    tensor_bytes = cost_of(last).bytes // 4
    return Cost(flops=0, precision=None, read_bytes=4 * tensor_bytes, written_bytes=3 * tensor_bytes)


def _neighbours_cost(calls: Sequence[Call]) -> Cost:
    """Reads and writes the elements of the largest operand once, in the smallest of their types, or writes
    what the last call does, if that is less: a lower bound."""
    operands = [_largest(call) for call in calls]
    most = max(operand.elements for operand in operands)
    size = min(operand.bytes for operand in operands if operand.elements == most)
    written = min(size, cost_of(calls[-1]).written_bytes)
    return Cost(flops=0, precision=None, read_bytes=size, written_bytes=written)


def _largest(call: Call) -> Tensor:
    return max(call.tensors, key=lambda operand: operand.elements)


_BETWEEN: Final = "[^BMFx]*"
"""Calls on scores, between the products of attention."""
KINDS: Final = {
    "attention": _ChainKind(
        re.compile(f"(?:c+[mdfw]*)?B{_BETWEEN}(?:S|E{_BETWEEN}d){_BETWEEN}Bc{{0,2}}"),
        _attention_cost,
        # the scores again and four products, for two; queries, keys, values, output and their gradients
        backward=(2.5, 2.0),
        accepts=_has_softmax_of_scores,
    ),
    "norm": _ChainKind(
        re.compile("c?(?:pearm|espea(?:rm|qd))(?:mc|cm|m|c)?"), _one_pass_cost, backward=(0.0, 1.5)
    ),
    # SwiGLU and GeGLU; GELU by tanh or erf, swish, an operator at a time
    "activation": _ChainKind(
        re.compile("iM?m|mpmamtam|mdgam|m?om"), _activation_cost, backward=(0.0, 5 / 3), unfused="M"
    ),
    "rotary": _ChainKind(re.compile("mnkma|mmsmmak"), _rotation_cost, backward=(0.0, 1.0)),
    "optimizer": _ChainKind(re.compile("m?(?:L|ma)mC(?:q|d|a|m){2,5}V|F{4,}"), _update_cost),
    NEIGHBOURS: _ChainKind(None, _neighbours_cost),
}
"""Kinds of chains, in search order."""


def find_chains(calls: Sequence[Call], sequence: Int64, *, with_neighbours: bool = True) -> Iterator[Chain]:
    """Find chains among the calls of a thread, in order; a call is in one chain at most.

    `sequence`, shape (calls,): autograd's sequence number of each call, or of the call whose gradient it
    computes; −1 where there is none.
    """
    letters = [_call_letter(call.name) for call in calls]
    is_used = np.zeros(len(calls), np.bool_)
    by_number = np.argsort(sequence, kind="stable")
    numbers = sequence[by_number]

    def backward_indices(forward: tuple[int, ...]) -> tuple[int, ...]:
        ids = sequence[list(forward)]
        ids = ids[ids >= 0]
        # numbers of earlier calls: the chain is itself part of their gradients
        if (by_number[np.searchsorted(numbers, ids)] < forward[0]).all():
            return ()
        candidates = by_number[
            np.searchsorted(numbers, ids.min()) : np.searchsorted(numbers, ids.max(), "right")
        ]
        candidates = candidates[candidates > forward[-1]]
        if rule.unfused:
            candidates = candidates[np.isin(sequence[candidates], ids)]
        return tuple(np.sort(candidates[~is_used[candidates]]).tolist())

    for kind, rule in KINDS.items():
        if rule.pattern is None:
            spans = _neighbours(calls, is_used) if with_neighbours else iter(())
        else:
            spans = (match.span() for match in rule.pattern.finditer("".join(letters)))
        for span in spans:
            indices = range(*span)
            members = [calls[index] for index in indices]
            if is_used[indices.start : indices.stop].any() or not rule.accepts(members):
                continue
            if kind == "optimizer" and _LISTS in members[0].name and not _has_update(members):
                continue
            forward = tuple(index for index in indices if letters[index] not in rule.unfused)
            yield Chain(kind, forward, forward)
            backward = backward_indices(forward) if any(rule.backward) else ()
            if backward:
                yield Chain(kind, backward, forward)
            for index in (*forward, *backward):
                letters[index], is_used[index] = _OTHER, True  # a call is in one chain at most


def _neighbours(calls: Sequence[Call], is_used: Mask) -> Iterator[tuple[int, int]]:
    """Spans of two or more successive elementwise calls on as many elements, with smaller ones in between."""
    sizes: dict[int, int] = {}
    begin = end = most = full = 0
    for index, call in enumerate(calls):
        if id(call) not in sizes:
            sizes[id(call)] = _elementwise_size(call)
        size = 0 if is_used[index] else sizes[id(call)]
        if size and full and size == most:
            end, full = index + 1, full + 1
        elif not (size and full and size * _FEW <= most):
            if full > 1:
                yield begin, end
            begin, end, most, full = index, index + 1, size, int(size > 0)
    if full > 1:
        yield begin, end


def _elementwise_size(call: Call) -> int:
    """Elements of the largest operand of an elementwise call, copy or reduction; 0 for other calls."""
    model = model_of(call.name)
    is_chosen = model is not None and model.family in _ELEMENTWISE and _begins_with_tensor(call)
    return max(operand.elements for operand in call.tensors) if is_chosen else 0


def _begins_with_tensor(call: Call) -> bool:
    return bool(call.arguments) and isinstance(call.arguments[0], Tensor)


def fused_cost(kind: str, forward: Sequence[Call], *, backward: bool = False) -> Cost:
    """Cost of a chain as one kernel, or with `backward` of its gradients, from its forward calls; raises
    `NoModel` where their arguments do not suffice."""
    rule = KINDS[kind]
    try:
        cost = rule.cost(forward)
    except (LookupError, TypeError, ValueError) as error:
        raise NoModel(f"its recorded arguments do not fit the model ({type(error).__name__})") from None
    if not backward:
        return cost
    flops_ratio, bytes_ratio = rule.backward
    return replace(
        cost,
        flops=round(cost.flops * flops_ratio),
        read_bytes=round(cost.read_bytes * bytes_ratio),
        written_bytes=round(cost.written_bytes * bytes_ratio),
    )


def _has_update(calls: Sequence[Call]) -> bool:
    return any("addcdiv" in call.name for call in calls)


@lru_cache(maxsize=1 << 12)
def _call_letter(name: str) -> str:
    if not name.startswith(_NAMESPACE):
        return _OTHER
    plain = name.removeprefix(_NAMESPACE)
    return "F" if plain.startswith(_LISTS) else _LETTERS.get(plain, _OTHER)
