# SPDX-License-Identifier: Apache-2.0
"""Output files: checked before the work begins, and written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath

from cclbench.ground.errors import UsageError
from cclbench.ground.scratch import scratch, sweep

_UNFINISHED = ".cclbench-folder-"
DEEPEST = 32
"""Maximum depth of folders in an untrusted file name."""


def check_folder(path: Path) -> None:
    """`UsageError` if the file's folder does not exist."""
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}", hint="create it first")


def why_outside(name: str) -> str | None:
    """Why an untrusted name is not a path within a folder, or None."""
    pure = PurePosixPath(name)
    if not pure.parts or pure.is_absolute() or PureWindowsPath(name).anchor or "\\" in name or "\0" in name:
        return "its name is not a relative path with forward slashes"
    if ".." in pure.parts:
        return "its name leads upwards"
    return f"it lies more than {DEEPEST} folders deep" if len(pure.parts) > DEEPEST else None


@contextmanager
def atomic_replacement(path: Path) -> Iterator[Path]:
    """A temporary file that replaces `path` at the end of the block; on failure nothing is left.

    A device or pipe is written directly.  An `OSError` names `path`.
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
    """A temporary folder that becomes `path` at the end of the block; on failure nothing is left.

    `UsageError` if `path` exists and is not an empty folder.
    """
    check_folder(path)
    empty = path.is_dir() and not path.is_symlink() and not any(path.iterdir())
    if os.path.lexists(path) and not empty:
        raise UsageError(f"{path} exists already", hint="name a new folder")
    with _errors_naming_path(path), _unfinished_folder(path.resolve()) as unfinished:
        yield unfinished
        unfinished.rename(path)


@contextmanager
def replaced_folder(path: Path, mark: str) -> Iterator[Path]:
    """A temporary folder that replaces `path` at the end of the block; on failure `path` is unchanged.

    `mark` is the name of a file that such a folder has.  `UsageError` if `path` is anything else than an
    empty folder or one with that file.
    """
    check_folder(path)
    is_folder = path.is_dir() and not path.is_symlink()
    if os.path.lexists(path) and not (is_folder and ((path / mark).is_file() or not any(path.iterdir()))):
        raise UsageError(f"{path} exists already, and has no {mark}", hint="name a new folder")
    with _errors_naming_path(path), _unfinished_folder(path.resolve()) as unfinished:
        (unfinished / "new").mkdir()
        yield unfinished / "new"
        if is_folder:
            path.rename(unfinished / "former")
        (unfinished / "new").rename(path)


@contextmanager
def _unfinished_folder(path: Path) -> Iterator[Path]:
    """A temporary folder next to `path`; those of killed processes are removed first."""
    sweep(path.parent, _UNFINISHED)
    with scratch(path.parent, _UNFINISHED) as folder:
        yield folder


@contextmanager
def _errors_naming_path(path: Path) -> Iterator[None]:
    """Make every `OSError` name `path`, not a temporary file or, for a full disk, no file."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and (error.filename is None or _UNFINISHED in str(error.filename)):
            error.filename = str(path)
        raise


def write_whole(text: str, path: Path) -> None:
    """Write the file, whole or not at all."""
    with atomic_replacement(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
