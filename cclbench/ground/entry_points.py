# SPDX-License-Identifier: Apache-2.0
"""Entry points of installed packages, searched once a process: a search reads a file of each package."""

from __future__ import annotations

import sys
from functools import cache
from importlib import metadata


def entry_points(group: str) -> list[metadata.EntryPoint]:
    """The entry points of one of our groups, of the packages on `sys.path`."""
    return [entry for entry in _installed(*sys.path) if entry.group == group]


@cache
def _installed(*path: str) -> tuple[metadata.EntryPoint, ...]:
    """All entry points of packages that name us; of a package found twice, those of the first on the path."""
    packages: dict[str, metadata.Distribution] = {}
    for package in metadata.distributions(path=[*path]):
        if "cclbench" in (package.read_text("entry_points.txt") or ""):
            packages.setdefault(package.name, package)
    return tuple(entry for package in packages.values() for entry in package.entry_points)
