# SPDX-License-Identifier: Apache-2.0
"""Rows of a Python profiler by their names: modules, lines of the workload, the call of backward."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

MODULE: Final = "nn.Module: "
_FRAMEWORK: Final = re.compile(
    r"(.*/)?(torch|jax|jaxlib)/|<|nn\.Module: |.*/lib/python[\d.]*/"
    r"|(threading|contextlib|functools|runpy|queue)\.py\("
)
"""Python rows that are not lines of the workload itself."""
_STARTS_BACKWARD: Final = re.compile(
    r"(?:.*/)?torch/(?:_tensor|autograd/__init__)\.py\(\d+\): (?:backward|grad)"
)


def is_module(name: str) -> bool:
    """Whether a Python row is the run of a module."""
    return name.startswith(MODULE)


def is_site(name: str) -> bool:
    """Whether a Python row is a line of the workload itself."""
    return _FRAMEWORK.match(name) is None


def starts_backward(name: str) -> bool:
    """Whether a Python row is the call that starts autograd's engine."""
    return _STARTS_BACKWARD.fullmatch(name) is not None


@lru_cache(maxsize=1 << 14)
def is_informative(name: str) -> bool:
    """Whether a Python row is a module, a line of the workload or the call of backward."""
    return is_module(name) or is_site(name) or starts_backward(name)
