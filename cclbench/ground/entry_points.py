# SPDX-License-Identifier: Apache-2.0
"""Entry points of installed packages, searched once a process: a search reads a file of each package."""

from __future__ import annotations

import sys
from functools import cache
from importlib import metadata


def entry_points(group: str) -> metadata.EntryPoints:
    """The entry points of a group, of the packages on `sys.path`."""
    return _installed(*sys.path).select(group=group)


@cache
def _installed(*path: str) -> metadata.EntryPoints:  # noqa: ARG001  (a changed path is searched anew)
    return metadata.entry_points()
