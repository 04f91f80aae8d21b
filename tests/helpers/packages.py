# SPDX-License-Identifier: Apache-2.0
"""Packages of plug-ins, installed for a test: what pip would leave beside their modules."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def install(folder: Path, name: str, version: str, groups: Mapping[str, Mapping[str, str]]) -> None:
    """Make the modules in `folder` a package of that name with those entry points, by group."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    text = "".join(
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in of.items()) for group, of in groups.items()
    )
    (info / "entry_points.txt").write_text(text)


def with_module(folder: Path, module: str, source: str, *groups: str) -> dict[str, str]:
    """The environment with a package installed that holds one module, an entry point of those groups."""
    (folder / f"{module}.py").write_text(source)
    install(folder, module.replace("_", "-"), "1.0", {group: {module: module} for group in groups})
    return {**os.environ, "PYTHONPATH": path_to(folder)}


def path_to(folder: Path) -> str:
    """PYTHONPATH with the folder ahead of what it has."""
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


def cclbench_with(
    environment: Mapping[str, str], *words: object, **how: Any
) -> subprocess.CompletedProcess[str]:
    """`cclbench WORDS` in a process of its own, with what is installed in the environment."""
    command = [sys.executable, "-m", "cclbench", *map(str, words)]
    told = {"check": False, "capture_output": True, "text": True, **how}
    return subprocess.run(command, env=environment, **told)
