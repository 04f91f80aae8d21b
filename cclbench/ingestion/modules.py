# SPDX-License-Identifier: Apache-2.0
"""Modules of a model by their runs: the path of each, from the rows of Python around one another."""

from __future__ import annotations

from typing import Final

import numpy as np

from cclbench.disk_columns import disk_array, release
from cclbench.formats import Names
from cclbench.ingestion.host import MODULE, is_module
from cclbench.ingestion.host_rows import HostRows, Stretch
from cclbench.intervals import Index, Int64

_DEEPEST: Final = 64
"""Modules within one another that a path names."""


class Modules:
    """Paths of modules within one another, by code.

    A module is named by its class and number, so that one which runs again alone, in the backward pass, has
    the path of its first run.
    """

    def __init__(self, python: HostRows) -> None:
        self.paths: list[str] = []
        self._names = python.names
        self._codes, self._first = Names(), dict[int, int]()
        self._of_runs: Index = disk_array(len(python), np.int32)

    def add(self, python: Stretch) -> None:
        """Name the modules whose runs begin in a stretch; those before it were added in turn."""
        runs = python.named.where(is_module)
        place, own = python.at[runs], python.own[runs]
        ranges = python.ranges.of(runs)
        around, names = ranges.parents(), python.named.name[runs]
        found = self._of_runs[place]
        for run in np.flatnonzero(own)[np.argsort(ranges.start_ns[own], kind="stable")].tolist():
            parent = int(around[run])
            found[run] = self._code(int(names[run]), None if parent < 0 else int(found[parent]))
        self._of_runs[place[own]] = found[own]

    def at(self, python: Stretch, track: Int64, at: Int64) -> Index:
        """Code of the module that runs on each thread at each instant of a stretch, −1 for none."""
        runs = python.named.where(is_module)
        index = python.ranges.of(runs).innermost(track, at)
        return np.append(self._of_runs[python.at[runs]], np.int32(-1))[index]

    def release(self) -> None:
        """Let go of what was read."""
        release(self._of_runs)

    def _code(self, name: int, parent: int | None) -> int:
        """The code of a module's run, by the number of its name and the code of the run around it."""
        own = self._names[name].removeprefix(MODULE)
        if parent is None:
            return self._first[name] if name in self._first else self._coded(own)
        if self.paths[parent].count("/") >= _DEEPEST:
            return parent
        code = self._coded(f"{self.paths[parent]}/{own}")
        self._first.setdefault(name, code)
        return code

    def _coded(self, path: str) -> int:
        code = self._codes[path]
        if code == len(self.paths):
            self.paths.append(path)
        return code
