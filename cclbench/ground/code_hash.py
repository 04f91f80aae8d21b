# SPDX-License-Identifier: Apache-2.0
"""A hash of the code that computed stored results: plug-ins may change without a new version."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from cclbench.ground.entry_points import entry_points


def code_hash(files: Iterable[Path]) -> str:
    """SHA-256 over modules, independent of their order."""
    return sha256(b"".join(sha256(file.read_bytes()).digest() for file in sorted({*files}))).hexdigest()


def module_files(modules: Iterable[str]) -> list[Path]:
    """The files of those modules, found without loading them; none of one that is not there."""
    paths = []
    for module in modules:
        with suppress(ImportError, ValueError):  # a plug-in may name what is not installed
            spec = find_spec(module)
            if spec is not None and spec.has_location and spec.origin is not None:
                paths.append(Path(spec.origin))
    return paths


def plugin_files(*groups: str) -> list[Path]:
    """The files of the modules that entry points of those groups name."""
    return module_files(entry.module for group in groups for entry in entry_points(group))
