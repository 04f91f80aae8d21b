# SPDX-License-Identifier: Apache-2.0
"""Keeps pyarrow from loading pandas before somebody wants a DataFrame; imported for this effect.

pyarrow looks for pandas when it makes its first array, and loading it takes a quarter of a small run.  Where
it finds none then, it looks again only for `to_pandas` and its like, which work as before.
"""

from __future__ import annotations

import sys
import threading

import pyarrow as pa


class _Absent:
    """Finds no pandas, for the thread that made it."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, *_: object) -> None:
        """`ModuleNotFoundError` for pandas, None for all else, which other finders then look for."""
        if name == "pandas" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(name)


def _look_for_pandas_once() -> None:
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(absent)


if "pandas" not in sys.modules:
    _look_for_pandas_once()
