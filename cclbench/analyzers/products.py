# SPDX-License-Identifier: Apache-2.0
"""How operators compute, by names of kernels or types of operands, and which kernels a compiler made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from cclbench.analyzers.metric import NotApplicable, Value, metric
from cclbench.analyzers.view.kernel_times import kernel_times
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S, parts_over_ranks
from cclbench.classify import base_name
from cclbench.classify.arithmetic import Arithmetic, kernel_arithmetic

PRODUCTS: Final = ("gemm", "convolution")
"""Categories of kernels that are matrix products, or can be."""
WITHOUT_TENSOR_CORES: Final = "without_tensor_cores"
MISALIGNED: Final = "misaligned"
UNNAMED: Final = "unnamed"
OF_PRECISION: Final = "of_precision"
OF_GENERATION: Final = "of_generation"
_ONE_BY_ONE: Final = 2
"""Elements of alignment up to which less than 16 bytes are loaded at once, whatever their type."""
_COMPILED: Final = re.compile(
    r"^triton_(?:poi|red|per|tem|for|mm|bmm)_|^(?:loop|input|wrapped)_\w*fusion|^fusion"
)
"""Kernels of TorchInductor and XLA."""

_Key = tuple[str | None, str | None]
"""Category and stat of a row."""


@metric(
    "compute.product_time",
    definition="Time of kernels of matrix products and convolutions, a step, by what their names tell"
    f" (category): {WITHOUT_TENSOR_CORES} run on the device's vector units, {MISALIGNED} on tensor cores with"
    " operands aligned to one or two elements; stat: the precision of the arithmetic. {OF_PRECISION}: all of"
    f" which names tell a precision; {UNNAMED}: names tell nothing of tensor cores.",
    formula="Σ duration / windows",
    unit="s",
    inputs=("events", "steps"),
    combine=parts_over_ranks,
    not_applicable="the rank ran no such kernels in the window, or the CPU is the device",
)
def product_time(rank: RankView) -> Iterator[Value]:
    rank.needs_accelerator("it runs ops, no kernels")
    sums: dict[_Key, int] = {}
    longest: dict[_Key, tuple[int, str]] = {}
    found = kernel_times(rank)
    for (category, name, *_), ns in zip(found.kernels, found.ns.sum(axis=1).tolist(), strict=True):
        for key in _kernel_keys(kernel_arithmetic(name or "")) if category in PRODUCTS else ():
            sums[key] = sums.get(key, 0) + ns
            longest[key] = max(longest.get(key, (0, "")), (ns, name or ""))
    windows = len(rank.windows) * NS_PER_S
    if not sums:
        raise NotApplicable("no matrix product or convolution begins in the window")
    for (kind, precision), ns in sorted(sums.items(), key=str):
        most = (
            f"mostly {base_name(longest[kind, precision][1])}"
            if kind in (WITHOUT_TENSOR_CORES, MISALIGNED)
            else None
        )
        yield Value(value=ns / windows, category=kind, stat=precision, reason=most)


def _kernel_keys(told: Arithmetic) -> Iterator[_Key]:
    """The rows that a kernel's time is part of."""
    yield None, None
    if told.precision is not None:
        yield OF_PRECISION, told.precision
    if told.generation is not None:
        yield OF_GENERATION, told.generation
    if told.tensor_cores is None:
        yield UNNAMED, None
    elif not told.tensor_cores:
        yield WITHOUT_TENSOR_CORES, told.precision
    elif told.alignment is not None and told.alignment <= _ONE_BY_ONE:
        yield MISALIGNED, told.precision


@metric(
    "compute.precision_time",
    definition="Compute time of operators, a step, by the precision of their arithmetic (category), which the"
    " types of their operands state; in all, of those whose types are recorded. Copies and views have no"
    " arithmetic. Of an accelerator their kernels' time, of a CPU the time of calls, each outside of calls"
    " within it.",
    formula="Σ time of calls / windows",
    unit="s",
    inputs=("events", "operators", "steps"),
    combine=parts_over_ranks,
    not_applicable="no operator in the window has recorded types (record them with record_shapes)",
)
def precision_time(rank: RankView) -> Iterator[Value]:
    works, windows = rank.works, len(rank.windows) * NS_PER_S
    precisions = sorted({word for word in works.kind_precisions if word is not None})
    times = {
        word: works.sum_amounts(works.time_ns, works.computes & works.of_precision(word))
        for word in precisions
    }
    if not any(times.values()):
        raise NotApplicable("no operator in the window has recorded types: record them with record_shapes")
    yield Value(value=sum(times.values()) / windows)
    for word, ns in times.items():
        yield Value(value=ns / windows, category=word)


@metric(
    "compute.compiled_share",
    definition="Share of the compute time in kernels that TorchInductor or XLA generated, by their names.",
    formula="Σ duration of generated kernels / Σ duration of compute kernels",
    unit="1",
    inputs=("events", "steps"),
    not_applicable="the rank ran no kernels in the window, or the CPU is the device",
)
def compiled_share(rank: RankView) -> Value:
    rank.needs_accelerator("it runs ops, no kernels")
    found = kernel_times(rank)
    times = found.ns.sum(axis=1).tolist()
    total = sum(times)
    if not total:
        raise NotApplicable("the kernels in the window have no duration")
    names = (name or "" for _, name, *_ in found.kernels)
    generated = sum(ns for name, ns in zip(names, times, strict=True) if _COMPILED.match(name))
    return Value(value=generated / total, weight=total)
