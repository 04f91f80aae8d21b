# SPDX-License-Identifier: Apache-2.0
"""Times of calls by name: of those that take most time in all, the mean and how they spread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.metric import Value
from cclbench.analyzers.view.columns import word_codes
from cclbench.ground.intervals import Mask


def longest_names(
    calls: pa.Table, column: str, seconds: npt.NDArray[np.float64], most: int
) -> Iterator[tuple[str, Mask]]:
    """The names with the largest sums of seconds, each with the mask of its calls; shape (calls,)."""
    codes, names = word_codes(calls, column)
    sums = np.bincount(codes, seconds, len(names))
    called = np.unique(codes)
    for code in called[np.argsort(-sums[called], kind="stable")][:most].tolist():
        yield str(names[code]), codes == code


def spread_values(
    seconds: npt.NDArray[np.float64], percents: Sequence[int], *, category: str, source: str
) -> Iterator[Value]:
    """Mean of a name's times, then the percentiles, max, sum and count as stats."""
    yield Value(value=float(seconds.mean()), category=category, source=source)
    stats = {f"p{percent}": np.percentile(seconds, percent) for percent in percents}
    for stat, figure in {**stats, "max": seconds.max(), "sum": seconds.sum()}.items():
        yield Value(value=float(figure), stat=stat, category=category, source=source)
    yield Value(value=len(seconds), stat="count", unit="count", category=category, source=source)
