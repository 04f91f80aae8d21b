# SPDX-License-Identifier: Apache-2.0
"""Grids of kernels: three dimensions, and how many blocks they make."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.errors import InputError

NONE: Final = (0, 0, 0)
"""Stands for a grid that is not stated."""
_MOST_BLOCKS: Final = float(1 << 62)


def grid_columns(
    grids: npt.ArrayLike, where: str, *, hint: str = "is the file damaged?"
) -> dict[str, pa.Array]:
    """The columns of `Rows` for grids of shape (kernels, 3); null where a dimension is 0.

    `InputError` for a negative dimension, and for more than 2^62 blocks.
    """
    sides = np.asarray(grids, np.float64).reshape(-1, 3)
    sizes = sides.prod(axis=1)
    wrong = (sides < 0).any(axis=1) | (np.maximum(sides.max(axis=1), sizes) > _MOST_BLOCKS)
    if wrong.any():
        x, y, z = sides[np.argmax(wrong)]
        raise InputError(f"impossible grid of {x:g} × {y:g} × {z:g} blocks", where=where, hint=hint)
    exact = np.asarray(grids, np.int64).reshape(-1, 3)
    columns = (*exact.T, exact.prod(axis=1))
    return {
        name: pa.array(column, mask=sizes == 0)
        for name, column in zip(("grid_x", "grid_y", "grid_z", "blocks"), columns, strict=True)
    }
