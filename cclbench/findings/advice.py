# SPDX-License-Identifier: Apache-2.0
"""Advice that fits a run: actions whose prerequisites, found in their text, the run does not refute."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cclbench.analyzers.products import OF_GENERATION, OF_PRECISION, WITHOUT_TENSOR_CORES
from cclbench.record.metric_name import metric_name

if TYPE_CHECKING:
    from cclbench.findings.case import Case

_PRODUCT_TIME: Final = metric_name("compute.product_time")
_COMPILED_SHARE: Final = metric_name("compute.compiled_share")
_PHASE: Final = metric_name("time.phase")
_EXPOSED_COPY: Final = metric_name("time.exposed_copy")

_WIDE: Final = ("fp64", "fp32", "tf32")
"""Precisions slower than 16-bit types."""
_BEFORE_BF16: Final = frozenset(("sm50", "sm60", "sm61", "sm70", "sm72", "sm75"))
"""NVIDIA compute capabilities without bf16, TF32 and fp8."""
_ENOUGH: Final = 0.05
"""Least share of product or compute time at which something is worth advice, or counts as done already."""


def _has_type(case: Case, word: str) -> bool | None:
    """Whether the device supports the type: by the catalog, else by the generation of its kernels."""
    device = case.machine.accelerator.value
    if device is not None:
        return device.peak_flops_per_s.get(word) is not None
    generations = _product_times(case, OF_GENERATION)
    return False if generations and set(generations) <= _BEFORE_BF16 and word != "fp16" else None


def could_use_16_bits(case: Case, word: str) -> bool | None:
    """Whether products could use the 16-bit type: the device supports it, and some are wider."""
    if _has_type(case, word) is False:
        return False
    by_precision = _product_times(case, OF_PRECISION)
    total = sum(by_precision.values())
    if not total:
        return None
    return sum(by_precision.get(precision, 0.0) for precision in _WIDE) >= _ENOUGH * total


def has_fp8(case: Case) -> bool | None:
    """Whether the device supports fp8."""
    return _has_type(case, "fp8")


def is_tf32_unused(case: Case) -> bool | None:
    """Whether fp32 products could use tensor cores and do not; PyTorch has the switch for NVIDIA devices."""
    device = case.machine.accelerator.value
    if _has_type(case, "tf32") is False or (device is not None and device.vendor != "nvidia"):
        return False
    if not _product_times(case, OF_PRECISION):
        return None
    return case.number(_PRODUCT_TIME, category=WITHOUT_TENSOR_CORES, stat="fp32") is not None


def is_eager(case: Case) -> bool | None:
    """Whether the kernels are not compiler-generated."""
    share = case.number(_COMPILED_SHARE)
    return None if share is None else share < _ENOUGH


def has_pageable_copies(case: Case) -> bool | None:
    """Whether exposed copies between host and device are not known to use pinned memory."""
    labels = _exposed_copies(case)
    host_labels = [label for label in labels if label.startswith(("h2d", "d2h"))]
    return any("pinned" not in label for label in host_labels) if labels else None


def has_host_copies(case: Case) -> bool | None:
    """Whether there are exposed copies between host and device."""
    labels = _exposed_copies(case)
    return any(label.startswith(("h2d", "d2h")) for label in labels) if labels else None


def has_device_copies(case: Case) -> bool | None:
    """Whether there are exposed copies within the device."""
    labels = _exposed_copies(case)
    return any(label.startswith("d2d") for label in labels) if labels else None


def is_accelerated(case: Case) -> bool | None:
    """Whether the device is not the CPU."""
    return False if case.on_host else None


def is_nvidia(case: Case) -> bool | None:
    """Whether the device is from NVIDIA."""
    if case.on_host:
        return False
    vendors = {rank.facts.vendor for rank in case.record.ranks} - {None}
    device = case.machine.accelerator.value
    all_vendors = vendors | ({device.vendor} if device is not None else set())
    return "nvidia" in all_vendors if all_vendors else None


def is_training(case: Case) -> bool | None:
    """Whether steps train, unlike a serving engine's prefill and decode."""
    rows = case.parts(_PHASE)
    phases = {row.category for row in rows if row.category and row.number}
    if phases & {"backward", "optimizer"}:
        return True
    return False if phases & {"prefill", "decode", "mixed"} else None


def has_no_graphs(case: Case) -> bool | None:
    """Whether no rank launches CUDA graphs yet."""
    return False if any(rank.facts.whole_graphs for rank in case.record.ranks) else None


Fact = Callable[["Case"], "bool | None"]

PRESUPPOSED: Final[Mapping[str, Fact]] = MappingProxyType(
    {
        r"\bbf16\b": lambda case: could_use_16_bits(case, "bf16"),
        r"\bfp16\b": lambda case: could_use_16_bits(case, "fp16"),
        r"\bfp8\b": has_fp8,
        r"(?i)tf32": is_tf32_unused,
        r"torch\.compile": is_eager,
        r"(?i)\bgraph(?:s|ed_callables)?\b|reduce-overhead": has_no_graphs,
        r"\bpin(?:_memory)?\b|\bpinned\b": has_pageable_copies,
        r"within the device": has_device_copies,
        r"between it and the host": has_host_copies,
        r"CUDA|torch\.cuda|cudnn|reduce-overhead": is_accelerated,
        r"NCCL_|NVLink|CUDA_|torch\.backends\.cuda": is_nvidia,
        r"DDP|FSDP|optimizer|loss": is_training,
    }
)
"""Prerequisite of actions whose text matches the pattern; None is unknown, and refutes nothing."""


_FOR_KINDS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        r"FSDP": frozenset(("all_gather", "reduce_scatter")),
        r"DDP": frozenset(("all_reduce",)),
        r"sends and receives": frozenset(("send", "recv", "send_recv")),
        r"dispatch and combine": frozenset(("all_to_all",)),
    }
)
"""Kinds of collectives of actions whose text matches the pattern."""


def _is_for_kinds(text: str, kinds: AbstractSet[str]) -> bool:
    """Whether one of the kinds is that of the action; any is where none is known or the action names none."""
    named = [of_kinds for pattern, of_kinds in _FOR_KINDS.items() if re.search(pattern, text)]
    return not kinds or not named or any(of_kinds & kinds for of_kinds in named)


def fitting_actions(actions: Iterable[str], case: Case, kinds: AbstractSet[str] = frozenset()) -> list[str]:
    """The actions whose prerequisites the run does not refute; `kinds`: collectives of the finding."""

    def is_refuted(text: str) -> bool:
        return not _is_for_kinds(text, kinds) or any(
            re.search(pattern, text) and fact(case) is False for pattern, fact in PRESUPPOSED.items()
        )

    return [text for text in actions if not is_refuted(text)]


def _product_times(case: Case, category: str) -> dict[str, float]:
    """Time of matrix products by precision or generation, from kernel names, s."""
    rows = case.parts(_PRODUCT_TIME)
    return {row.stat: row.number for row in rows if row.stat and row.category == category}


def _exposed_copies(case: Case) -> list[str]:
    """Labels of the exposed copies, such as `h2d pageable` and `d2d`."""
    rows = case.parts(_EXPOSED_COPY)
    return [row.category for row in rows if row.category and row.number and row.category != "memset"]
