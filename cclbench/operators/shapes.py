# SPDX-License-Identifier: Apache-2.0
"""Shapes of broadcast operands, and list arguments with one number per dimension."""

from __future__ import annotations

from typing import Any

from cclbench.operators.call import NoModel


def broadcast_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that `shapes` broadcast to; raises `NoModel` where they do not."""
    length = max(map(len, shapes))
    columns = zip(*[(1,) * (length - len(shape)) + shape for shape in shapes], strict=True)
    result = []
    for sizes in columns:
        lengths = {size for size in sizes if size != 1} or {1}
        if len(lengths) > 1:
            raise NoModel("the sizes of its operands do not broadcast")
        result.append(lengths.pop())
    return tuple(result)


def per_dimension(value: Any, dimensions: int, label: str) -> tuple[int, ...]:
    """A list argument, a single number repeated for all dimensions; `NoModel` where it is not recorded."""
    numbers = value if isinstance(value, tuple) else (value,)
    if not numbers or not all(type(number) is int for number in numbers):
        raise NoModel(f"its {label} is not recorded")
    if len(numbers) not in (1, dimensions):
        raise NoModel(f"its {label} has {len(numbers)} entries for {dimensions} dimensions")
    return numbers * dimensions if len(numbers) == 1 else numbers
