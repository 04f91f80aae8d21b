# SPDX-License-Identifier: Apache-2.0
"""A call of an operator as a trace records it: its name and its arguments."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from cclbench.classify.dtypes import catalog_precision, element_bytes

Scalar: TypeAlias = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand: sizes, element type under any of its names, strides in elements where recorded."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        """Product of the sizes; 1 for a tensor without dimensions."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Elements times element size; raises `NoModel` where the element type is unknown."""
        if not self.dtype:
            raise NoModel("the element types of its arguments are not recorded")
        size = element_bytes(self.dtype)
        if size is None:
            raise NoModel(f"the element size of type {self.dtype!r} is unknown")
        return self.elements * size

    @property
    def distinct_bytes(self) -> int:
        """Bytes of elements at distinct addresses: an expanded dimension (stride 0) counts once."""
        if self.strides is None or len(self.strides) != len(self.shape):
            return self.bytes
        sizes = (size for size, stride in zip(self.shape, self.strides, strict=True) if stride)
        return Tensor(tuple(sizes), self.dtype).bytes

    @property
    def precision(self) -> str | None:
        """The element type as accelerator catalogs name it (bf16, fp8, ...); None for other types."""
        return catalog_precision(self.dtype)


Argument: TypeAlias = "Tensor | tuple[Tensor, ...] | tuple[Scalar, ...] | Scalar"


COMPILED = "hlo"
"""Argument of a call that is an instruction of a compiled program, before its counted work (FLOPs, bytes
read, bytes written, assumptions) or the reason why it is not counted."""
FUSED = "fused"
"""Argument of a call that runs with others in a fusion, before the FLOPs of those, and the bytes that the
fusion reads and writes."""


class NoModel(Exception):  # noqa: N818  (an answer, not an error)
    """The call's cost cannot be counted; the message is the reason that users see."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator; equal calls cost the same.

    `kernels` are the names of the kernels it launched, in launch order; `annotation` is the serving engine's
    name of the enclosing step; `forward` is the call whose gradients it computes, where that is a function of
    the user's or of a library's, which keeps its operands in its context; `inner` are the calls that it
    makes, in order, if its model reads them.
    """

    name: str
    arguments: tuple[Argument, ...] = ()
    kernels: tuple[str, ...] = ()
    annotation: str | None = None
    forward: Call | None = None
    inner: tuple[Call, ...] = ()

    def tensor(self, index: int) -> Tensor:
        """The tensor argument at `index`; raises `NoModel` where none is recorded."""
        argument = self.arguments[index] if index < len(self.arguments) else None
        if not isinstance(argument, Tensor):
            raise NoModel(f"no tensor is recorded as argument {index}")
        return argument

    def optional_tensor(self, index: int) -> Tensor | None:
        """The tensor argument at `index`; None where none is recorded."""
        argument = self.arguments[index] if index < len(self.arguments) else None
        return argument if isinstance(argument, Tensor) else None

    def value(self, index: int) -> Any:
        """The number, text or list at `index`; None where none is recorded."""
        argument = self.arguments[index] if index < len(self.arguments) else None
        return None if isinstance(argument, Tensor) else argument

    @property
    def parameters(self) -> tuple[Argument, ...]:
        """The arguments after the tensors: of a compiled instruction its attributes."""
        return self.arguments[len(self.tensors) :]

    def counted_work(self, marker: str) -> tuple[Any, ...] | None:
        """The arguments after `marker`, `COMPILED` or `FUSED`; None without it."""
        return self.arguments[self.arguments.index(marker) + 1 :] if marker in self.arguments else None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensor arguments, including those in lists, in order."""
        return tuple(self._iterate_tensors())

    def _iterate_tensors(self) -> Iterator[Tensor]:
        for argument in self.arguments:
            for item in argument if isinstance(argument, tuple) else (argument,):
                if isinstance(item, Tensor):
                    yield item


_NO_TENSOR = ("", "Scalar", "ScalarList", "GenericList", "None", "Device", "Str", "Bool", "Int", "Float")


@lru_cache(maxsize=2048)  # the ranks of a job call alike
def parse_call(
    name: str,
    shapes: str | None,
    dtypes: str | None,
    strides: str | None = None,
    values: str | None = None,
    kernels: tuple[str, ...] = (),
    annotation: str | None = None,
) -> Call:
    """Parse a call whose arguments are JSON lists, one entry per argument, as PyTorch records them.

    `shapes`: sizes, or for a list of tensors the sizes of each; `dtypes`: type names; `strides`: as `shapes`;
    `values`: texts of non-tensor arguments.  Absent or malformed entries count as not recorded.
    """
    sizes, types, stride_lists, texts = (_parse_list(text) for text in (shapes, dtypes, strides, values))
    arguments = tuple(
        _parse_argument(
            _entry_at(sizes, i), _entry_at(types, i), _entry_at(stride_lists, i), _entry_at(texts, i)
        )
        for i in range(max(map(len, (sizes, types, texts))))
    )
    return Call(name, arguments, kernels, annotation)


def _parse_argument(sizes: Any, dtype: Any, strides: Any, text: Any) -> Argument:
    is_list = isinstance(sizes, list) and any(isinstance(size, list) for size in sizes)
    if is_list:
        types = dtype if isinstance(dtype, list) else [""] * len(sizes)
        stride_lists = strides if isinstance(strides, list) else []
        tensors = [
            _parse_tensor(size, _entry_at(types, i), _entry_at(stride_lists, i))
            for i, size in enumerate(sizes)
        ]
        return tuple(tensor for tensor in tensors if tensor is not None)
    if isinstance(dtype, str) and dtype not in _NO_TENSOR and element_bytes(dtype) is not None:
        return _parse_tensor(sizes, dtype, strides)
    if sizes and (tensor := _parse_tensor(sizes, dtype, strides)) is not None:
        return tensor
    return parse_scalar(text)


def _parse_tensor(sizes: Any, dtype: Any, strides: Any) -> Tensor | None:
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        return None
    has_strides = isinstance(strides, list) and all(type(step) is int for step in strides)
    return Tensor(
        tuple(sizes), dtype if isinstance(dtype, str) else "", tuple(strides) if has_strides else None
    )


def parse_scalar(text: Any) -> Argument:
    """The value of `1e-05`, `0.`, `True` or `[1, 1]`; any other text as it is."""
    if not isinstance(text, str):
        return text if isinstance(text, bool | int | float) else None
    try:
        value = msgspec.json.decode(re.sub(r"(\d\.)(?!\d)", r"\g<1>0", text.lower()))
    except msgspec.DecodeError:
        return text or None
    if isinstance(value, list):
        return tuple(item if isinstance(item, bool | int | float | str) else None for item in value)
    return value if isinstance(value, bool | int | float) else text


def _parse_list(text: str | None) -> list[Any]:
    try:
        decoded = msgspec.json.decode(text) if text else []
    except msgspec.DecodeError:
        return []
    return decoded if isinstance(decoded, list) else []


def _entry_at(entries: list[Any], index: int) -> Any:
    return entries[index] if index < len(entries) else None
