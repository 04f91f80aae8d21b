# SPDX-License-Identifier: Apache-2.0
"""`pyarrow.compute`, loaded by its first use.

It makes some 250 functions when it is loaded, in a fifth of the time that `cclbench explain` takes: modules
that declare metrics have it from here.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import pyarrow.compute

    function = getattr(pyarrow.compute, name)
    globals()[name] = function
    return function
