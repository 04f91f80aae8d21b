# SPDX-License-Identifier: Apache-2.0
"""The least cost of a call, and the registry of cost models."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from inspect import cleandoc
from typing import Any, Final

from cclbench.ground.errors import UsageError
from cclbench.ground.registry import Registry
from cclbench.operators.call import COMPILED, FUSED, Call, NoModel, Tensor
from cclbench.operators.element_types import is_floating, vector_precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Arithmetic and compulsory traffic of a call.

    `flops` count a multiply-add as two.  `precision` names the peak in the catalog that applies; None where
    there is no arithmetic or no such peak.  Each distinct operand is read once, each result written once, at
    its own element size: a lower bound of the real traffic.
    """

    flops: int
    precision: str | None
    read_bytes: int
    written_bytes: int
    assumes: str | None = None
    """Assumptions besides the recorded arguments."""

    @classmethod
    def from_tensors(
        cls,
        *,
        flops: int = 0,
        precision: str | None = None,
        reads: Iterable[Tensor | None],
        writes: Iterable[Tensor | None],
        assumes: str | None = None,
    ) -> Cost:
        """The cost of `flops` on these operands and results; None stands for an absent tensor."""
        return cls(
            flops=flops,
            precision=precision if flops else None,
            read_bytes=sum(tensor.distinct_bytes for tensor in reads if tensor is not None),
            written_bytes=sum(tensor.distinct_bytes for tensor in writes if tensor is not None),
            assumes=assumes,
        )

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.read_bytes + self.written_bytes


Formula = Callable[[Call], Cost]


@dataclass(frozen=True, slots=True)
class CostModel:
    """A registered cost model: a formula for all operators whose whole name matches a pattern."""

    name: str
    family: str
    patterns: tuple[str, ...]
    """Regular expressions."""
    formula: Formula
    reads_inner: tuple[str, ...] = ()
    """Names of the calls inside a call, `Call.inner`, that the formula reads."""

    @property
    def is_ours(self) -> bool:
        """Whether the formula is cclbench's, not a plug-in's."""
        return self.formula.__module__.partition(".")[0] == "cclbench"

    @property
    def docstring_parts(self) -> dict[str, str]:
        """Sections of the formula's docstring: `definition`, `FLOPs`, `Bytes`, `Source` and, if it has one,
        `Tested`.
        """
        text = cleandoc(self.formula.__doc__ or "")
        definition, *lines = re.split(r"^(FLOPs|Bytes|Source|Tested): ", text, flags=re.MULTILINE)
        sections = zip(["definition", *lines[::2]], [definition, *lines[1::2]], strict=True)
        return {key: " ".join(line.split()) for key, line in sections}

    @property
    def tested(self) -> str:
        """What the formula was tested with: a trace, unless its docstring states otherwise (`no trace`)."""
        return self.docstring_parts.get("Tested", "a trace" if self.is_ours else "")


PRODUCTS: Final = ("matrix product", "convolution", "attention")
"""Families that count in a model's FLOPs."""
WHOLE: Final = (*PRODUCTS, "linear algebra")
"""Families whose models count all that a call does: enclosing calls are not counted again."""


_CHOICE: Final = re.compile(r"(\w+::)\(\?:([\w|]+)\)(_\?)?")
"""A pattern that is a choice of names, with or without an underscore."""


@cache
def _matcher(pattern: str) -> Callable[[str], object]:
    """Whether the whole of a name matches the pattern.

    Most patterns are names or a choice of names, which need not be compiled; the cache of `re` holds fewer
    than the others are.
    """
    if re.escape(pattern) == pattern:
        return pattern.__eq__
    if choice := _CHOICE.fullmatch(pattern):
        library, names, may_end = choice.groups()
        endings = ("", "_") if may_end else ("",)
        return {library + name + end for name in names.split("|") for end in endings}.__contains__
    return re.compile(pattern).fullmatch


def require_explained(model: CostModel) -> None:
    """Raise `UsageError` for a plug-in's invalid regular expression, or a docstring that lacks a section.

    Ours are not examined in each process: they are by tests.
    """
    if model.is_ours:
        return
    for pattern in model.patterns:
        try:
            _matcher(pattern)
        except re.error as error:
            raise UsageError(f"cost model {model.name!r}: the pattern {pattern!r}: {error}") from None
    parts = model.docstring_parts
    lacking = [part for part in ("definition", "FLOPs", "Bytes", "Source") if not parts.get(part)]
    if lacking:
        raise UsageError(f"cost model {model.name!r}: its docstring lacks {', '.join(lacking)}")


MODELS: Registry[CostModel] = Registry(
    "cost model", home="cclbench.operators.families", group="cclbench.operators", validate=require_explained
)


def cost_model(
    family: str, *patterns: str, reads_inner: tuple[str, ...] = ()
) -> Callable[[Formula], Formula]:
    """Register the decorated formula for operators whose whole name matches one of the patterns.

        @cost_model("mine", r"mine::twice")
        def twice(call: Call) -> Cost:
            \"""2·x.

            FLOPs: 1 an element
            Bytes: x, the result
            Source: mine/ops.cpp
            \"""
            x = call.tensor(0)
            precision = vector_precision(x.dtype)
            return Cost.from_tensors(flops=x.elements, precision=precision, reads=(x,), writes=(x,))

    The formula takes a `Call` and returns its `Cost`, or raises `NoModel` with a reason.  The call has the
    calls inside it with the names `reads_inner`.
    """

    def register(formula: Formula) -> Formula:
        name = formula.__name__
        MODELS.add(name, CostModel(name, family, patterns, formula, reads_inner), origin=formula.__module__)
        _matchers.cache_clear()
        model_of.cache_clear()
        return formula

    return register


@cache
def _library(pattern: str) -> str | None:
    """The library, `aten` of `aten::mm`, to which all operators belong that the pattern matches, if it names
    one before any choice.
    """
    named = re.match(r"(\w+)::", pattern)
    may_choose = "|" in re.sub(r"\\.|\([^()]*\)", "", pattern)
    return None if named is None or may_choose else named[1]


@cache
def _matchers(library: str) -> list[tuple[Callable[[str], object], CostModel]]:
    """The patterns that can match operators of a library, by the models' names.

    Those of libraries that a trace does not use need not be compiled.
    """
    models = map(MODELS.get, MODELS)
    patterns = ((pattern, model) for model in models for pattern in model.patterns)
    return [(_matcher(each), model) for each, model in patterns if _library(each) in (None, library)]


@lru_cache(maxsize=1 << 14)
def model_of(operator: str) -> CostModel | None:
    """The cost model of an operator by its name, the first by name of several; None where it has none.

    A plug-in's model takes precedence over ours, with a warning.
    """
    matchers = _matchers(operator.partition("::")[0])
    matches = dict.fromkeys(model for is_named, model in matchers if is_named(operator))
    models = sorted(matches, key=lambda model: model.is_ours)
    if len(models) > 1 and not models[0].is_ours:
        used, unused = (f"{model.name} of {model.formula.__module__}" for model in models[:2])
        warnings.warn(f"{operator} has two cost models: {used} is used, {unused} is not", stacklevel=2)
    return models[0] if models else None


_MOST: Final = 1 << 80
"""FLOPs or bytes from which the recorded arguments cannot be true."""


def cost_of(call: Call) -> Cost:
    """The call's cost; raises `NoModel` where it cannot be counted."""
    counted = call.counted_work(COMPILED)
    cost = _modelled_cost(call) if counted is None else _compiled_cost(call, counted)
    if not 0 <= cost.flops < _MOST or not 0 <= cost.read_bytes < _MOST or not 0 <= cost.written_bytes < _MOST:
        raise NoModel("its recorded arguments are implausible")
    return cost


def _modelled_cost(call: Call) -> Cost:
    model = model_of(call.name)
    if model is None:
        raise NoModel("no cost model for this operator")
    if not call.arguments:
        raise NoModel("its arguments are not recorded: a capture with record_shapes=True has them")
    try:
        return model.formula(call)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise NoModel(f"its recorded arguments do not fit its model ({type(error).__name__})") from None


def _compiled_cost(call: Call, counted: tuple[Any, ...]) -> Cost:
    """The cost of an instruction of a compiled program, as counted in the program."""
    match counted:
        case [str(why)]:
            raise NoModel(why)
        case [int(flops), int(read), int(written), *assumes]:
            words = (vector_precision(tensor.dtype) for tensor in call.tensors if is_floating(tensor.dtype))
            return Cost(
                flops=flops,
                precision=next(words, None) if flops else None,
                read_bytes=read,
                written_bytes=written,
                assumes=next(iter(assumes), None),
            )
    raise NoModel("its counted work is malformed")


def with_fused_work(call: Call, cost: Cost) -> Cost:
    """The cost of a compiled operator with that of what is fused to it."""
    fused = call.counted_work(FUSED)
    if fused is None:
        return cost
    flops, read, written, *assumes = fused
    listed = filter(None, (cost.assumes, *assumes))
    return replace(
        cost,
        flops=cost.flops + flops,
        read_bytes=read,
        written_bytes=written,
        assumes="; ".join(listed) or None,
    )
