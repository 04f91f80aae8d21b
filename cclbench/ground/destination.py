# SPDX-License-Identifier: Apache-2.0
"""Where a file is to go, checked before the work for it begins; and putting it there whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath

from cclbench.ground.errors import UsageError
from cclbench.ground.scratch import scratch, sweep

_UNFINISHED = ".cclbench-folder-"
DEEPEST = 32
"""Folders within folders that a stranger's name may go down."""


def check_folder(path: Path) -> None:
    """`UsageError` where the file's folder is not there."""
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}", hint="create it first")


def why_outside(name: str) -> str | None:
    """Why a stranger's name is none for a file within a folder, or None where it is one."""
    pure = PurePosixPath(name)
    if not pure.parts or pure.is_absolute() or PureWindowsPath(name).anchor or "\\" in name or "\0" in name:
        return "its name is no relative path with forward slashes"
    if ".." in pure.parts:
        return "its name leads upwards"
    return f"it lies more than {DEEPEST} folders deep" if len(pure.parts) > DEEPEST else None


@contextmanager
def atomic_replacement(path: Path) -> Iterator[Path]:
    """A file of the name of `path` elsewhere that takes its place at the end; on any failure nothing is left.

    What is no regular file (a device, a pipe) is written itself.  An `OSError` names `path`.
    """
    target = path.resolve()
    with _errors_naming_path(path):
        if target.exists() and not target.is_file():
            yield target
            return
        with _unfinished_folder(target) as folder:
            yield folder / target.name
            os.replace(folder / target.name, target)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder beside `path` that takes its place at the end; on any failure nothing is left.

    `UsageError` where there is something at `path`, unless it is an empty folder.
    """
    check_folder(path)
    empty = path.is_dir() and not path.is_symlink() and not any(path.iterdir())
    if os.path.lexists(path) and not empty:
        raise UsageError(f"{path} is there already", hint="name a new folder")
    with _errors_naming_path(path), _unfinished_folder(path.resolve()) as unfinished:
        yield unfinished
        unfinished.rename(path)


@contextmanager
def _unfinished_folder(path: Path) -> Iterator[Path]:
    """A folder beside `path`, gone at the end; what killed processes left of theirs goes first."""
    sweep(path.parent, _UNFINISHED)
    with scratch(path.parent, _UNFINISHED) as folder:
        yield folder


@contextmanager
def _errors_naming_path(path: Path) -> Iterator[None]:
    """An `OSError` names `path`: a full disk names no file, and nobody knows the folder beside."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and (error.filename is None or _UNFINISHED in str(error.filename)):
            error.filename = str(path)
        raise


def write_whole(text: str, path: Path) -> None:
    """The file, whole or as it was before."""
    with atomic_replacement(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
