# SPDX-License-Identifier: Apache-2.0
"""`torch.optim.optimizer`: hooks behind each step of any optimizer."""

from __future__ import annotations

from collections.abc import Callable

_hooks: list[Callable[..., None]] = []


class _Handle:
    def __init__(self, hook: Callable[..., None]) -> None:
        self._hook = hook

    def remove(self) -> None:
        """No more calls."""
        if self._hook in _hooks:
            _hooks.remove(self._hook)


def register_optimizer_step_post_hook(hook: Callable[..., None]) -> _Handle:
    """Have it called behind each step."""
    _hooks.append(hook)
    return _Handle(hook)


def step() -> None:
    """A step of some optimizer."""
    for hook in _hooks:
        hook(None, (), {})
