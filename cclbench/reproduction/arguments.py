# SPDX-License-Identifier: Apache-2.0
"""The recorded arguments of an operator call, as a micro-benchmark makes them again."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from cclbench.operators.call import parse_scalar

Argument: TypeAlias = dict[str, Any] | None
"""`{"tensor": {shape, dtype, strides}}`, `{"tensors": [...]}`, `{"value": ...}`; None if it is absent."""

DTYPES: Final = {
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "long int": "int64",
    "long": "int64",
    "short int": "int16",
    "short": "int16",
    "int": "int32",
    "signed char": "int8",
    "char": "int8",
    "unsigned char": "uint8",
    "byte": "uint8",
    "complex<float>": "complex64",
    "complex<double>": "complex128",
}
"""PyTorch's name of an element type by its C++ name, without namespaces and in lower case."""
TORCH_DTYPES: Final = (
    *("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "complex64", "complex128"),
)
_VALUES: Final = ("Scalar", "ScalarList", "Str", "Bool", "Int", "Float")
"""Recorded types of arguments that are not tensors, and have a value."""
_OPERATOR: Final = re.compile(r"aten::[A-Za-z_][A-Za-z0-9_]*")
_REFUSED: Final = (
    (r"aten::(save|from_file)", "it reads or writes a file"),
    (
        r"aten::_?(unsafe_)?index(_put)?(_impl)?_?",
        "profilers record neither sizes nor types of its list of indices, whose entries are optional",
    ),
    (r"aten::(as_strided|set)_?", "it is a view of a storage whose size is not recorded"),
)
"""Operators by pattern, and why they are not reproduced."""


class RecordedTexts(NamedTuple):
    """The arguments of a call as the table `operators` has them, JSON lists with one entry per argument."""

    shapes: str | None
    dtypes: str | None
    strides: str | None
    values: str | None


class NotRecorded(Exception):  # noqa: N818  (an answer, not an error)
    """A call cannot be reproduced from what the trace records; the message says why."""


def require_reproducible(operator: str) -> None:
    """`NotRecorded` unless the operator is one of PyTorch itself, which `torch.ops.aten` has."""
    if re.match(r"c10d|nccl|gloo|mpi|xccl|_c10d_functional", operator):
        raise NotRecorded("it is a collective, whose time depends on the other ranks")
    for pattern, reason in _REFUSED:
        if re.fullmatch(pattern, operator):
            raise NotRecorded(reason)
    if _OPERATOR.fullmatch(operator):
        return
    if "::" in operator and not re.match(r"(torch::)?autograd::", operator):
        raise NotRecorded("it is not an operator of PyTorch itself (aten::...), which needs torch alone")
    raise NotRecorded("it is not an operator of PyTorch (aten::...) but a function that calls operators")


def recorded_arguments(texts: RecordedTexts, stated_dtype: str | None = None) -> list[Argument]:
    """The arguments of a call; raises `NotRecorded` where one lacks its sizes, its type or its value.

    `stated_dtype`: type of tensors whose type is not recorded, as in lists of tensors.
    """
    shapes, dtypes, strides, values = (_entries(text) for text in texts)
    if not shapes or not (any(shapes) or any(dtypes)):
        raise NotRecorded("its arguments are not recorded; a capture with record_shapes=True has them")
    return [
        _argument(
            place,
            shape,
            _entry_at(dtypes, place),
            _entry_at(strides, place),
            _entry_at(values, place),
            stated_dtype,
        )
        for place, shape in enumerate(shapes)
    ]


def _argument(
    place: int, shape: Any, dtype: Any, strides: Any, text: Any, stated_dtype: str | None
) -> Argument:
    is_list = isinstance(dtype, list) or (
        isinstance(shape, list) and any(isinstance(entry, list) for entry in shape)
    )
    if is_list or dtype in ("TensorList", "GenericList"):
        if not is_list or not shape:
            raise NotRecorded(f"the sizes of its list of tensors (argument {place}) are not recorded")
        tensors = [
            _tensor(place, sizes, _entry_at(dtype, n), _entry_at(strides, n), stated_dtype)
            for n, sizes in enumerate(shape)
        ]
        return {"tensors": tensors}
    if dtype in _VALUES:
        value = parse_scalar(text)
        if value is None:
            raise NotRecorded(f"the value of its argument {place} is not recorded")
        return {"value": list(value) if isinstance(value, tuple) else value}
    if dtype in (None, "", "None") and not shape:
        value = parse_scalar(text)
        return None if value is None else {"value": list(value) if isinstance(value, tuple) else value}
    return {"tensor": _tensor(place, shape, dtype, strides, stated_dtype)}


def _tensor(place: int, shape: Any, dtype: Any, strides: Any, stated_dtype: str | None) -> dict[str, Any]:
    if not _are_sizes(shape):
        raise NotRecorded(f"the sizes of its argument {place} are not recorded")
    if not isinstance(dtype, str) or dtype in ("", "TensorList", "GenericList"):
        if stated_dtype is None:
            raise NotRecorded(
                f"the element type of its argument {place}, a list of tensors or of a trace without types, is"
                " not recorded; state it with --dtype"
            )
        dtype = stated_dtype
    has_strides = _are_sizes(strides) and len(strides) == len(shape)
    return {"shape": shape, "dtype": _torch_dtype(place, dtype), "strides": strides if has_strides else None}


def _torch_dtype(place: int, dtype: str) -> str:
    plain = dtype.lower().removeprefix("c10::").removeprefix("torch.").replace("c10::", "")
    name = DTYPES.get(plain, plain)
    if name not in TORCH_DTYPES:
        raise NotRecorded(f"its argument {place} is of type {dtype!r}, of which no operand can be made")
    return name


def _are_sizes(sizes: Any) -> bool:
    return isinstance(sizes, list) and all(type(size) is int and 0 <= size < 1 << 48 for size in sizes)


def _entries(text: str | None) -> list[Any]:
    try:
        decoded = msgspec.json.decode(text) if text else []
    except msgspec.DecodeError:
        return []
    return decoded if isinstance(decoded, list) else []


def _entry_at(entries: Any, index: int) -> Any:
    return entries[index] if isinstance(entries, list) and index < len(entries) else None
