# SPDX-License-Identifier: Apache-2.0
"""Arithmetic on columns on disk, some rows at a time; results are numpy's, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def some_rows(*columns: Values, beside: tuple[Values, ...] = ()) -> Iterator[tuple[Values, ...]]:
    """The columns' rows, some at a time: what was read of them and of arrays `beside` is let go each time."""
    for here in pieces(len(columns[0]), most=_ROWS):
        yield tuple(column[here] for column in columns)
        release(columns, beside)


def elementwise(
    function: Callable[..., Any], *columns: Values, dtype: type[Number], beside: tuple[Values, ...] = ()
) -> npt.NDArray[Number]:
    """`function(*columns)` of a function that takes rows one by one, on disk where it is large.

    `beside` are further arrays that the function reads.
    """
    found: DiskColumn[Number] = DiskColumn(dtype)
    for rows in some_rows(*columns, beside=beside):
        found.append(function(*rows))
    return found.values()


def accumulate(function: np.ufunc, total: npt.NDArray[Number], of: Values, *values: Values) -> None:
    """`function.at(total, of, *values)`: each row's value goes to what `total` has for its group `of`."""
    for rows in some_rows(of, *values, beside=(total,)):
        function.at(total, *rows)


def sums(of: Values, values: Values, groups: int) -> Float:
    """The sum of each group's values; `of` numbers the groups."""
    total = disk_array(groups, np.float64)
    accumulate(np.add, total, of, values)
    return total


def counts(of: Values, groups: int) -> Float:
    """How many rows each group has; `of` numbers the groups."""
    total = disk_array(groups, np.float64)
    for (own,) in some_rows(of, beside=(total,)):
        np.add.at(total, own, 1.0)
    return total


def centred(values: Float, of: Values, groups: int) -> Float:
    """Each value less the mean of its group's values."""
    total, number = sums(of, values, groups), counts(of, groups)

    def less(value: Float, group: Values) -> Float:
        return np.asarray(value - total[group] / number[group])

    return elementwise(less, values, of, dtype=np.float64, beside=(total, number))


def product(one: Float, other: Float) -> Float:
    """`one * other`, row by row."""
    return elementwise(np.multiply, one, other, dtype=np.float64)


def magnitude(values: Float) -> Float:
    """`abs(values)`, row by row."""
    return elementwise(np.abs, values, dtype=np.float64)


def extremes(values: npt.NDArray[np.signedinteger[Any]]) -> tuple[int, int]:
    """The least and the largest of values, of which there is at least one."""
    found = [(int(own.min()), int(own.max())) for (own,) in some_rows(values)]
    return min(low for low, _ in found), max(high for _, high in found)


def distinct(values: npt.NDArray[Number]) -> npt.NDArray[Number]:
    """The different values, ascending, in memory."""
    found = [values[:0], *(np.unique(own) for (own,) in some_rows(values))]
    return np.unique(np.concatenate(found))


def median(values: Float) -> float:
    """The median of values none of which is negative: as `np.median`, of at least one."""
    rows = len(values)
    if rows <= _ROWS:
        return float(np.median(values))
    lower = _nth(values, (rows - 1) // 2)
    if rows % 2:
        return lower
    upto = [(int((own <= lower).sum()), own[own > lower].min(initial=np.inf)) for (own,) in some_rows(values)]
    more = sum(number for number, _ in upto) > rows // 2
    return (lower + (lower if more else float(min(above for _, above in upto)))) / 2


def _nth(values: Float, n: int) -> float:
    """The value that n others go before in ascending order; none is negative.

    The bits of such numbers, as integers, are in their order: from the highest digit on, those are counted
    whose higher digits are found.
    """
    prefix = 0
    for digit in range(_DIGITS):
        shift = 64 - _DIGIT_BITS * (digit + 1)
        count = np.zeros(1 << _DIGIT_BITS, np.int64)
        for (own,) in some_rows(values):
            bits = own.view(np.int64) >> shift
            digits = bits[bits >> _DIGIT_BITS == prefix] & _DIGIT_MASK
            count += np.bincount(digits, minlength=len(count))
        upto = np.cumsum(count)
        found = int(np.searchsorted(upto, n, side="right"))
        n -= int(upto[found] - count[found])
        prefix = prefix << _DIGIT_BITS | found
    return float(np.array(prefix, np.int64).view(np.float64))
