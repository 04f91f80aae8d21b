# SPDX-License-Identifier: Apache-2.0
"""Calls one after another that one kernel can do: attention, norms, activations, rotary embeddings, updates.

A chain is a pattern over the calls of a thread that launch kernels, a letter a call (`_LETTERS`).  What it
costs fused are its products' FLOPs, and the bytes of what goes in and comes out, each once, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from cclbench.operators.call import Call, NoModel, Tensor
from cclbench.operators.cost import Cost, cost_of

_LETTERS: Final = {
    **dict.fromkeys(("bmm", "baddbmm"), "B"),
    **dict.fromkeys(("mm", "addmm", "linear"), "M"),
    **dict.fromkeys(("_softmax", "softmax", "_safe_softmax"), "S"),
    **dict.fromkeys(("mul", "mul_"), "m"),
    **dict.fromkeys(("div", "div_"), "d"),
    **dict.fromkeys(("add", "add_"), "a"),
    **dict.fromkeys(("masked_fill", "masked_fill_", "where", "tril"), "f"),
    **dict.fromkeys(("native_dropout", "dropout", "bernoulli_"), "D"),
    **dict.fromkeys(("copy_", "clone", "_to_copy", "contiguous"), "c"),
    **dict.fromkeys(("silu", "silu_", "gelu", "gelu_"), "i"),
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


class Chain(NamedTuple):
    """A chain that was found: its kind, and the places of its calls."""

    kind: str
    calls: tuple[int, ...]


class _Kind(NamedTuple):
    pattern: re.Pattern[str]
    cost: Callable[[Sequence[Call]], Cost]
    apart: str = ""
    """Letters of calls that stand between and stay."""


def _attention(calls: Sequence[Call]) -> Cost:
    """Both products; queries, keys and values in, what the second product gives out."""
    first, last = cost_of(calls[0]), cost_of(calls[-1])
    read = sum(one.bytes for one in (*_operands(calls[0]), _operands(calls[-1])[1]))
    return Cost(
        flops=first.flops + last.flops,
        precision=first.precision,
        read_bytes=read,
        written_bytes=last.written_bytes,
    )


def _operands(call: Call) -> tuple[Tensor, Tensor]:
    """The two factors of a batched product."""
    first = 1 if call.name.endswith("baddbmm") else 0
    return call.tensor(first), call.tensor(first + 1)


def _once(calls: Sequence[Call]) -> Cost:
    """Its first operand in, as much out; of a copy what it copies."""
    entry = calls[0].tensor(1 if calls[0].name == "aten::copy_" else 0)
    return Cost(flops=0, precision=None, read_bytes=entry.bytes, written_bytes=entry.bytes)


def _gated(calls: Sequence[Call]) -> Cost:
    """Gate and value in, their product out."""
    gate = calls[0].tensor(0)
    return Cost(flops=0, precision=None, read_bytes=2 * gate.bytes, written_bytes=gate.bytes)


def _update(calls: Sequence[Call]) -> Cost:
    """Parameter, gradient and two moments in, all but the gradient out; addcdiv reads three, writes one."""
    last = next((one for one in reversed(calls) if one.name.rstrip("_").endswith("addcdiv")), None)
    if last is None:
        raise NoModel("no addcdiv among them")
    each = cost_of(last).bytes // 4
    return Cost(flops=0, precision=None, read_bytes=4 * each, written_bytes=3 * each)


KINDS: Final = {
    "attention": _Kind(re.compile("B[mdafc]*Sc?D?c?B"), _attention),
    "norm": _Kind(re.compile("c?pearmc?m?"), _once),
    "activation": _Kind(re.compile("iM?m"), _gated, apart="M"),
    "rotary": _Kind(re.compile("mnkma"), _once),
    "optimizer": _Kind(re.compile("m?(?:L|ma)mC(?:q|d|a|m){2,5}V|F{4,}"), _update),
}
"""Kinds of chains, in the order in which they are looked for."""


def chains(names: Sequence[str]) -> Iterator[Chain]:
    """The chains among calls in the order of a thread, each call in one at most."""
    text = "".join(_letter(name) for name in names)
    for kind, rule in KINDS.items():
        for match in rule.pattern.finditer(text):
            places = range(*match.span())
            if kind == "optimizer" and _LISTS in names[places[0]] and not _updates(names, places):
                continue
            yield Chain(kind, tuple(at for at in places if text[at] not in rule.apart))
        # a call is of one chain: what was found is no letter of another
        text = rule.pattern.sub(lambda match: _OTHER * len(match[0]), text)


def fused_cost(kind: str, calls: Sequence[Call]) -> Cost:
    """What a chain's calls cost as one kernel; `NoModel` where their arguments do not tell."""
    try:
        return KINDS[kind].cost(calls)
    except (LookupError, TypeError, ValueError) as error:
        raise NoModel(f"its recorded arguments do not fit ({type(error).__name__})") from None


def _updates(names: Sequence[str], places: range) -> bool:
    return any("addcdiv" in names[at] for at in places)


def _letter(name: str) -> str:
    if not name.startswith(_NAMESPACE):
        return _OTHER
    plain = name.removeprefix(_NAMESPACE)
    return "F" if plain.startswith(_LISTS) else _LETTERS.get(plain, _OTHER)
