# SPDX-License-Identifier: Apache-2.0
"""Entry points of installed packages, searched once a process: a search reads a file of each package."""

from __future__ import annotations

import sys
from functools import cache
from importlib import metadata
from typing import Any


def entry_points(group: str) -> metadata.EntryPoints:
    """The entry points of a group, of the packages on `sys.path`."""
    found: metadata.EntryPoints = _installed(*sys.path).select(group=group)
    return found


@cache
def _installed(*path: str) -> Any:  # noqa: ARG001  (the type depends on Python)
    return metadata.entry_points()
