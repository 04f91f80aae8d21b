# SPDX-License-Identifier: Apache-2.0
"""A call of an operator as a trace records it: its name and its arguments."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from cclbench.classify.dtypes import catalog_precision, element_bytes

Scalar: TypeAlias = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand: sizes, element type by any of its names, strides in elements where recorded."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None

    @property
    def elements(self) -> int:
        """Product of the sizes; 1 of a tensor without dimensions."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Elements times their size; `NoModel` where the element type is unknown."""
        if not self.dtype:
            raise NoModel("the trace records no element types of its arguments")
        size = element_bytes(self.dtype)
        if size is None:
            raise NoModel(f"the size of an element of type {self.dtype!r} is not known")
        return self.elements * size

    @property
    def distinct_bytes(self) -> int:
        """Bytes of the elements that have an address of their own: an expanded dimension has stride 0."""
        if self.strides is None or len(self.strides) != len(self.shape):
            return self.bytes
        kept = (size for size, stride in zip(self.shape, self.strides, strict=True) if stride)
        return Tensor(tuple(kept), self.dtype).bytes

    @property
    def precision(self) -> str | None:
        """The element type as catalogs of accelerators name it (bf16, fp8, ...), None for other types."""
        return catalog_precision(self.dtype)


Argument: TypeAlias = "Tensor | tuple[Tensor, ...] | tuple[Scalar, ...] | Scalar"


class NoModel(Exception):  # noqa: N818  (an answer, not an error)
    """What the call does cannot be counted; the message is the reason a person reads."""


@dataclass(frozen=True, slots=True)
class Call:
    """One way in which an operator is called: equal calls cost the same.

    `kernels` are the names of what it launched on the device, in order of launch; `annotation` is the serving
    engine's name of the step that holds it.
    """

    name: str
    arguments: tuple[Argument, ...] = ()
    kernels: tuple[str, ...] = ()
    annotation: str | None = None

    def tensor(self, index: int) -> Tensor:
        """The tensor at that position; `NoModel` where none is recorded there."""
        found = self.arguments[index] if index < len(self.arguments) else None
        if not isinstance(found, Tensor):
            raise NoModel(f"no tensor is recorded as argument {index}")
        return found

    def optional(self, index: int) -> Tensor | None:
        """The tensor at that position, None where none is recorded."""
        found = self.arguments[index] if index < len(self.arguments) else None
        return found if isinstance(found, Tensor) else None

    def value(self, index: int) -> Any:
        """The number, text or list at that position; None where none is recorded."""
        found = self.arguments[index] if index < len(self.arguments) else None
        return None if isinstance(found, Tensor) else found

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors, those of lists included, in order."""
        return tuple(self._iterate_tensors())

    def _iterate_tensors(self) -> Iterator[Tensor]:
        for argument in self.arguments:
            for one in argument if isinstance(argument, tuple) else (argument,):
                if isinstance(one, Tensor):
                    yield one


_NO_TENSOR = ("", "Scalar", "ScalarList", "GenericList", "None", "Device", "Str", "Bool", "Int", "Float")


def parse(
    name: str,
    shapes: str | None,
    dtypes: str | None,
    strides: str | None = None,
    values: str | None = None,
    kernels: tuple[str, ...] = (),
    annotation: str | None = None,
) -> Call:
    """The call whose arguments are recorded as JSON lists, one entry an argument, as PyTorch writes them.

    `shapes` are sizes, or of a list of tensors the sizes of each; `dtypes` names; `strides` like the sizes;
    `values` the texts of those that are no tensors.  What is absent or malformed is not recorded.
    """
    sizes, types, steps, texts = (_parse_list(text) for text in (shapes, dtypes, strides, values))
    arguments = tuple(
        _parse_argument(_entry_at(sizes, i), _entry_at(types, i), _entry_at(steps, i), _entry_at(texts, i))
        for i in range(max(map(len, (sizes, types, texts))))
    )
    return Call(name, arguments, kernels, annotation)


def _parse_argument(sizes: Any, dtype: Any, strides: Any, text: Any) -> Argument:
    listed = isinstance(sizes, list) and any(isinstance(size, list) for size in sizes)
    if listed:
        types = dtype if isinstance(dtype, list) else [""] * len(sizes)
        steps = strides if isinstance(strides, list) else []
        own = [_parse_tensor(size, _entry_at(types, i), _entry_at(steps, i)) for i, size in enumerate(sizes)]
        return tuple(tensor for tensor in own if tensor is not None)
    if isinstance(dtype, str) and dtype not in _NO_TENSOR and element_bytes(dtype) is not None:
        return _parse_tensor(sizes, dtype, strides)
    if sizes and (tensor := _parse_tensor(sizes, dtype, strides)) is not None:
        return tensor
    return _parse_scalar(text)


def _parse_tensor(sizes: Any, dtype: Any, strides: Any) -> Tensor | None:
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        return None
    steps = isinstance(strides, list) and all(type(step) is int for step in strides)
    return Tensor(tuple(sizes), dtype if isinstance(dtype, str) else "", tuple(strides) if steps else None)


def _parse_scalar(text: Any) -> Argument:
    """`1e-05`, `0.`, `True`, `[1, 1]` as what they say; any other text as it is."""
    if not isinstance(text, str):
        return text if isinstance(text, bool | int | float) else None
    try:
        said = msgspec.json.decode(re.sub(r"(\d\.)(?!\d)", r"\g<1>0", text.lower()))
    except msgspec.DecodeError:
        return text or None
    if isinstance(said, list):
        return tuple(item if isinstance(item, bool | int | float | str) else None for item in said)
    return said if isinstance(said, bool | int | float) else text


def _parse_list(text: str | None) -> list[Any]:
    try:
        found = msgspec.json.decode(text) if text else []
    except msgspec.DecodeError:
        return []
    return found if isinstance(found, list) else []


def _entry_at(listed: list[Any], index: int) -> Any:
    return listed[index] if index < len(listed) else None
