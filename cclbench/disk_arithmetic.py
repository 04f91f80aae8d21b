# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on columns on disk, some rows at a time; results are numpy's, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cclbench.disk_columns import DiskColumn, Number, disk_array, pieces, release

Float = npt.NDArray[np.float64]
Values = npt.NDArray[Any]

_ROWS: Final = 1 << 16
"""Rows that are worked on at a time."""
_DIGITS: Final = 4
_DIGIT_BITS: Final = 64 // _DIGITS
_DIGIT_MASK: Final = (1 << _DIGIT_BITS) - 1


def elementwise(
    function: Callable[..., Any], *columns: Values, dtype: type[Number], beside: tuple[Values, ...] = ()
) -> npt.NDArray[Number]:
    """`function(*columns)` of a function that takes rows one by one, on disk where it is large.

    `beside` are further arrays that the function reads.
    """
    found: DiskColumn[Number] = DiskColumn(dtype)
    for here in pieces(len(columns[0]), most=_ROWS):
        found.append(function(*(column[here] for column in columns)))
        release(columns, beside)
    return found.values()


def accumulate(function: np.ufunc, total: npt.NDArray[Number], of: Values, *values: Values) -> None:
    """`function.at(total, of, *values)`: each row's value goes to what `total` has for its group `of`."""
    for here in pieces(len(of), most=_ROWS):
        function.at(total, of[here], *(own[here] for own in values))
        release(total, of, values)


def sums(of: Values, values: Values, groups: int) -> Float:
    """The sum of each group's values; `of` numbers the groups."""
    total = disk_array(groups, np.float64)
    accumulate(np.add, total, of, values)
    return total


def counts(of: Values, groups: int) -> Float:
    """How many rows each group has; `of` numbers the groups."""
    total = disk_array(groups, np.float64)
    for here in pieces(len(of), most=_ROWS):
        np.add.at(total, of[here], 1.0)
        release(total, of)
    return total


def centred(values: Float, of: Values, groups: int, weight: Float | None = None) -> Float:
    """Each value less the mean of its group's values, which a weight may weigh."""
    if weight is None:
        total, mass = sums(of, values, groups), counts(of, groups)
    else:
        total, mass = sums(of, product(weight, values), groups), sums(of, weight, groups)

    def less(value: Float, group: Values) -> Float:
        return np.asarray(value - total[group] / mass[group])

    return elementwise(less, values, of, dtype=np.float64, beside=(total, mass))


def product(one: Float, other: Float) -> Float:
    """`one * other`, row by row."""
    return elementwise(np.multiply, one, other, dtype=np.float64)


def magnitude(values: Float) -> Float:
    """`abs(values)`, row by row."""
    return elementwise(np.abs, values, dtype=np.float64)


def extremes(values: npt.NDArray[np.signedinteger[Any]]) -> tuple[int, int]:
    """The least and the largest of values, of which there is at least one."""
    found = []
    for here in pieces(len(values), most=_ROWS):
        found.append((int(values[here].min()), int(values[here].max())))
        release(values)
    return min(low for low, _ in found), max(high for _, high in found)


def distinct(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """The different values, ascending, in memory."""
    found = [values[:0]]
    for here in pieces(len(values), most=_ROWS):
        found.append(np.unique(values[here]))
        release(values)
    return np.unique(np.concatenate(found))


def median(values: Float) -> float:
    """The median of values none of which is negative: as `np.median`, of at least one."""
    rows = len(values)
    if rows <= _ROWS:
        return float(np.median(values))
    return (_nth(values, (rows - 1) // 2) + _nth(values, rows // 2)) / 2


def _nth(values: Float, n: int) -> float:
    """The value that n others go before in ascending order; none is negative.

    The bits of such numbers, as integers, are in their order: from the highest digit on, those are counted
    whose higher digits are found.
    """
    prefix = 0
    for digit in range(_DIGITS):
        shift = 64 - _DIGIT_BITS * (digit + 1)
        count = np.zeros(1 << _DIGIT_BITS, np.int64)
        for here in pieces(len(values), most=_ROWS):
            bits = values[here].view(np.int64) >> shift
            own = bits[bits >> _DIGIT_BITS == prefix] & _DIGIT_MASK
            count += np.bincount(own, minlength=len(count))
            release(values)
        upto = np.cumsum(count)
        found = int(np.searchsorted(upto, n, side="right"))
        n -= int(upto[found] - count[found])
        prefix = prefix << _DIGIT_BITS | found
    return float(np.array(prefix, np.int64).view(np.float64))
