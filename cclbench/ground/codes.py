# SPDX-License-Identifier: Apache-2.0
"""Codes of distinct values and of their combinations."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cclbench.ground.intervals import Int64

_DENSE: Final = 16
"""Possible values per row up to which they are marked instead of sorted."""


def combination_codes(*columns: npt.NDArray[np.signedinteger]) -> Int64:
    """Code of each distinct combination, from 0; shape of the columns."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        index = value_codes(column)
        code = value_codes(code * (int(index.max(initial=0)) + 1) + index)
    return code


def value_codes(values: npt.NDArray[np.signedinteger]) -> Int64:
    """Index of each value among the distinct ones in order, shape of `values`."""
    if not len(values):
        return np.empty(0, np.int64)
    least, most = int(values.min()), int(values.max())
    if most - least > _DENSE * len(values):
        return np.asarray(np.unique(values, return_inverse=True)[1], np.int64)
    # a mark per possible value: several times faster than sorting
    offset = values.astype(np.int64) - least
    occurs = np.zeros(most - least + 1, np.bool_)
    occurs[offset] = True
    return np.asarray((np.cumsum(occurs) - 1)[offset], np.int64)
