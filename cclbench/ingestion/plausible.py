# SPDX-License-Identifier: Apache-2.0
"""What no device can have done: rows and sizes that are set aside, counted, with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.intervals import Int64, Mask

NO_LAUNCH: Final = 1 << 62
"""Where a row's launch is not known."""
_DAY_NS: Final = 86_400 * 10**9
_EARLY_NS: Final = 10**8
_LEAST_NS: Final = 1000
_MOST_BYTES_PER_NS: Final = 10**5


class Rows(NamedTuple):
    """Times of rows and of the calls that launched them, ns, shape (rows,)."""

    start: Int64
    duration: Int64
    launch: Int64


RULES: Final[Mapping[str, Callable[[Rows], Mask]]] = {
    "longer than a day": lambda rows: rows.duration > _DAY_NS,
    # CUPTI gives 0 for times that it could not collect; clocks of host and device differ by far less.
    "begun more than 100 ms before the call that launched them": lambda rows: (
        (rows.launch < NO_LAUNCH) & (rows.start < rows.launch - _EARLY_NS)
    ),
}
"""Which rows are set aside, by what is said of them."""
OVERSIZED: Final = "sizes that no memory or link moves in that time: over 100 TB/s"


def broken_rules(rows: Rows) -> tuple[Mask, dict[str, int]]:
    """Which rows keep all `RULES`, shape (rows,); how many others there are, by the first rule they break."""
    kept, counts = np.ones(len(rows.start), np.bool_), {}
    for words, breaks in RULES.items():
        broken = kept & breaks(rows)
        if broken.any():
            counts[words] = int(broken.sum())
            kept &= ~broken
    return kept, counts


def without_oversized(table: pa.Table, duration: Int64, *columns: str) -> tuple[pa.Table, int]:
    """The rows without sizes that nothing moves in `duration`, ns; and how many rows had one.

    A duration counts as a microsecond at least: some traces count no less.
    """
    most = pa.array(np.maximum(duration, _LEAST_NS) * _MOST_BYTES_PER_NS)
    over = [pc.fill_null(pc.greater(table[column], most), False) for column in columns]
    any_over = over[0] if len(over) == 1 else pc.or_(*over)
    count = pc.sum(any_over).as_py() or 0
    for column in columns if count else ():
        at, kind = table.column_names.index(column), table.schema.field(column)
        table = table.set_column(at, kind, pc.if_else(any_over, pa.scalar(None, kind.type), table[column]))
    return table, count
