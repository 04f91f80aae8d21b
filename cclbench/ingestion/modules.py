# SPDX-License-Identifier: Apache-2.0
"""Module paths of a model, from the nesting of its Python rows."""

from __future__ import annotations

from typing import Final

import numpy as np

from cclbench.classify.python_rows import MODULE, is_module
from cclbench.formats import Names
from cclbench.ground.intervals import Index, Int64
from cclbench.ingestion.host_rows import HostRows

_DEEPEST: Final = 64
"""Greatest depth of nested modules that a path names."""


class Modules:
    """Paths of nested modules, by code.

    A module is identified by its class and number: one that runs again alone, in the backward pass, has the
    path of its first run.
    """

    def __init__(self, python: HostRows) -> None:
        self.paths: list[str] = []
        self._codes, self._first = Names(), dict[int, int]()
        runs = python.named_ranges.select_ranges(python.named_ranges.name_is(is_module))
        self._names, self._ranges = runs.names, runs.ranges
        around = runs.ranges.parent_indices()
        self._of_runs: Index = np.full(len(around), -1, np.int32)
        for run in np.argsort(runs.ranges.start_ns, kind="stable").tolist():
            parent = int(around[run])
            inside = None if parent < 0 else int(self._of_runs[parent])
            self._of_runs[run] = self._module_code(int(runs.name[run]), inside)

    def module_codes_at(self, track: Int64, at: Int64) -> Index:
        """Code of the module that runs on each thread at each instant, −1 for none."""
        return np.append(self._of_runs, np.int32(-1))[self._ranges.innermost_at(track, at)]

    def _module_code(self, name: int, parent: int | None) -> int:
        """Code of a module's run, from the code of its name and the code of the enclosing run."""
        module_name = self._names[name].removeprefix(MODULE)
        if parent is None:
            return self._first[name] if name in self._first else self._path_code(module_name)
        if self.paths[parent].count("/") >= _DEEPEST:
            return parent
        code = self._path_code(f"{self.paths[parent]}/{module_name}")
        self._first.setdefault(name, code)
        return code

    def _path_code(self, path: str) -> int:
        code = self._codes[path]
        if code == len(self.paths):
            self.paths.append(path)
        return code
