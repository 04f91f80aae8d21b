# SPDX-License-Identifier: Apache-2.0
"""Registries of plug-ins: decorators in cclbench, entry points in other packages.

The modules of cclbench are imported on first use, then the entry points of the group.  A plug-in that fails
to load becomes a warning and an entry in `broken`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.metadata import EntryPoint
from traceback import walk_tb
from typing import Generic, TypeVar

from cclbench.ground.entry_points import entry_points
from cclbench.ground.errors import CclbenchError, PluginError, UsageError, near

T = TypeVar("T")


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect a plug-in's output to stderr: stdout carries only the answer, which a program may read."""
    with redirect_stdout(sys.stderr):
        yield


@contextmanager
def plugin_code(origin: str, *answers: type[Exception]) -> Iterator[None]:
    """Around a call of a plug-in that the module `origin` registered.

    What it prints goes to stderr.  What it raises becomes a `PluginError` that names the module, but for
    `answers`, errors of ours, and those of files and memory; a module of cclbench raises what it raises.
    """
    expected: tuple[type[Exception], ...] = (CclbenchError, OSError, MemoryError, *answers)
    try:
        with stdout_to_stderr():
            yield
    except expected:
        raise
    except Exception as error:
        if origin.partition(".")[0] == "cclbench":
            raise
        what = f"a defect of the plug-in {origin}: {located_error(error, origin)}"
        raise PluginError(what, hint="re-run with --debug for the traceback") from error


def located_error(error: Exception, module: str) -> str:
    """An exception's kind and text, and the last line of a module that it passed."""
    frames = walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_globals.get("__name__") == module]
    return f"{type(error).__name__}: {error}" + (f" (line {lines[-1]})" if lines else "")


def load_plugin(entry: EntryPoint, noun: str) -> tuple[object, str | None]:
    """The object of a plug-in's entry point, and None; if it does not load, warn and return the error."""
    try:
        with stdout_to_stderr():
            return entry.load(), None
    except Exception as error:  # noqa: BLE001  (a foreign module may raise anything)
        return None, warn_unloaded(entry.name, entry.value, noun, error)


def warn_unloaded(name: str, module: str, noun: str, error: Exception) -> str:
    """Warn about a plug-in that does not load, and return the error as text."""
    warnings.warn(f"{noun} plug-in {name!r} ({module}) did not load: {error}", stacklevel=3)
    return f"{type(error).__name__}: {error}"


class Registry(Generic[T]):
    """Named plug-ins of one kind, from the package `home` and the entry-point group `group`."""

    def __init__(
        self,
        noun: str,
        *,
        home: str,
        group: str,
        validate: Callable[[T], None] = lambda _: None,
        check: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`validate` raises `UsageError` where a plug-in lacks what it must say of itself, `check` where
        those of a module may not be registered: all modules are loaded by then.
        """
        self.noun, self.home, self.group = noun, home, group
        self._validate, self._check = validate, check
        self.broken: dict[str, str] = {}
        self._known: dict[str, T] = {}
        self._origin: dict[str, str] = {}
        self._loaded = self._checked = False
        self._lock = threading.RLock()

    def add(self, name: str, plugin: T, *, origin: str) -> None:
        """Register a plug-in; a second one of the same name is an error that names both origins."""
        if name in self._known:
            raise UsageError(
                f"{self.noun} {name!r} is defined twice, in {self._origin[name]} and in {origin}"
            )
        self._validate(plugin)
        if self._checked:
            self._check(origin)
        self._known[name], self._origin[name] = plugin, origin

    def get(self, name: str) -> T:
        """The plug-in of that name; `UsageError` with near matches if there is none."""
        self._load_plugins()
        try:
            return self._known[name]
        except KeyError:
            raise UsageError(f"unknown {self.noun} {name!r}", hint=near(name, self._known)) from None

    @contextmanager
    def temporarily_replaced(self, name: str, plugin: T) -> Iterator[None]:
        """Replace a plug-in within the block, in this process."""
        former = self.get(name)
        self._known[name] = plugin
        try:
            yield
        finally:
            self._known[name] = former

    def origin(self, name: str) -> str:
        """The module or distribution that registered the plug-in."""
        self.get(name)
        return self._origin[name]

    def __iter__(self) -> Iterator[str]:
        self._load_plugins()
        return iter(sorted(self._known))

    def _load_plugins(self) -> None:
        with self._lock:  # threads that come meanwhile wait for all plug-ins, the loading one may come back
            if self._loaded:
                return
            self._loaded = True
            package = importlib.import_module(self.home)
            for module in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{self.home}.{module.name}")
            for entry in entry_points(self.group):
                _, error = load_plugin(entry, self.noun)
                if error is not None:
                    self.broken[entry.name] = error
            for name, origin in [*self._origin.items()]:
                try:
                    self._check(origin)
                except UsageError as error:
                    del self._known[name], self._origin[name]
                    self.broken[name] = warn_unloaded(name, origin, self.noun, error)
            self._checked = True
