# SPDX-License-Identifier: Apache-2.0
"""Rows of benchmarks, gathered one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cclbench.errors import InputError
from cclbench.formats.timing_rows import Timings


@pytest.mark.parametrize("column", ["kind", "library", "dtype", "state"])
def test_a_hundred_kinds_and_no_more(column: str) -> None:
    """Whichever block of rows the words stand in."""
    rows = Timings(Path("sweep.csv"))
    for word in range(100):
        rows.add(**{column: f"word-{word}"})
    assert rows.table()[column].to_pylist() == [f"word-{word}" for word in range(100)]
    rows.add(**{column: "one more"})
    with pytest.raises(InputError, match=f"more than 100 kinds of {column}"):
        rows.table()
