# SPDX-License-Identifier: Apache-2.0
"""Temporary folders, removed at the end or, after a kill, by a later process; stamps of unchanged files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Final
from zlib import crc32

from cclbench.ground.errors import InputError

_TEMPORARY: Final = "cclbench-"


def cache_folder() -> Path:
    """The folder of copies from elsewhere: $CCLBENCH_CACHE, else in the user's cache folder."""
    chosen = os.environ.get("CCLBENCH_CACHE")
    return Path(chosen or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "cclbench")).expanduser()


@contextmanager
def scratch(folder: Path, prefix: str, *, mode: int = 0o777) -> Iterator[Path]:
    """A temporary folder within `folder`; its name identifies the process and its machine."""
    path = folder / f"{prefix}{os.getpid()}-{_machine_tag()}-{os.urandom(4).hex()}"
    path.mkdir(mode=mode)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def sweep(folder: Path, prefix: str) -> None:
    """Remove temporary folders of that prefix that killed processes of this machine left behind."""
    for abandoned in folder.glob(f"{prefix}*"):
        process, _, rest = abandoned.name.removeprefix(prefix).partition("-")
        is_local = rest.rpartition("-")[0] == _machine_tag()
        if is_local and process.isdecimal() and not _is_alive(int(process)):
            shutil.rmtree(abandoned, ignore_errors=True)


@contextmanager
def temporary_folder(folder: Path | None = None) -> Iterator[Path]:
    """A folder for temporary files, removed at the end; also removes those of killed processes.

    It is created in `folder`, by default the system's folder of temporary files.
    """
    folder = folder or Path(gettempdir())
    sweep(folder, _TEMPORARY)
    with scratch(folder, _TEMPORARY, mode=0o700) as path:
        yield path


def no_space_error(error: Exception) -> InputError:
    """The error if temporary files cannot be written."""
    reason = error.strerror if isinstance(error, OSError) else None
    return InputError(
        f"temporary files cannot be written: {reason or str(error).splitlines()[0]}",
        where=gettempdir(),
        hint="free some space, or set TMPDIR to a folder on a larger disk",
    )


def _machine_tag() -> str:
    """A short name of the process namespace: this machine, on Linux its container."""
    link = Path("/proc/self/ns/pid")
    namespace = os.readlink(link) if link.is_symlink() else ""
    return f"{crc32(f'{os.uname().nodename} {namespace}'.encode()):08x}"  # sockets' paths must be short


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def stamp_of(stat: os.stat_result) -> tuple[int, ...]:
    """Inode, size and times of change of a file; equal stamps mean an unchanged file."""
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns
