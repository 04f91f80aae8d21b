# SPDX-License-Identifier: Apache-2.0
"""Shapes of broadcast operands, and list arguments with one number per dimension."""

from __future__ import annotations

import math
from typing import Any, Final

from cclbench.operators.call import NoModel

_LONGEST: Final = 1 << 16
"""Positions of a window or a result along a dimension that are counted one by one."""


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


def valid_positions(
    read: int,
    written: int,
    size: int,
    *,
    stride: int = 1,
    before: int = 0,
    dilation: int = 1,
    spread: int = 1,
) -> int:
    """Pairs of a position in the result and one in the window that meet a number of the operand, not padding.

    Along one dimension: position o of the result and k of the window meet o·stride + k·dilation − before,
    of an operand whose `read` numbers are `spread` apart.
    """
    (few, step), (many, stride) = sorted(((written, stride), (size, dilation)))
    if few > _LONGEST:
        raise NoModel(f"its window has {few} positions along a dimension")
    last = (read - 1) * spread
    common = math.gcd(stride, spread)
    period = spread // common
    pairs = 0
    for place in range(few):
        start = place * step - before
        # many positions m with 0 ≤ start + m·stride ≤ last, a multiple of `spread`
        first, end = max(-(start // stride), 0), min((last - start) // stride, many - 1)
        if start % common or first > end:
            continue
        residue = -(start // common) * pow(stride // common, -1, period) % period
        pairs += (end - residue) // period - (first - 1 - residue) // period
    return pairs
