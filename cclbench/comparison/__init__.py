# SPDX-License-Identifier: Apache-2.0
"""Two or more runs beside each other: who is faster, by how much, and where the difference lies.

`cclbench.compare("run-a", "run-b")` is `build.compare`: a package may carry the name of its function.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cclbench.comparison.comparison import Comparison


class _Callable(ModuleType):
    """This package: it can be called, since `cclbench.compare` names both it and what it does."""

    def __call__(self, *runs: Any, **options: Any) -> Comparison:
        """As `build.compare`."""
        from cclbench.comparison.build import compare

        return compare(*runs, **options)


sys.modules[__name__].__class__ = _Callable
