# SPDX-License-Identifier: Apache-2.0
"""Scratch folders, which vanish: at the end, or when a later process finds that theirs was killed."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from zlib import crc32


@contextmanager
def scratch(folder: Path, prefix: str, *, mode: int = 0o777) -> Iterator[Path]:
    """A new folder within `folder`, gone at the end; its name says which process of which machine has it."""
    path = folder / f"{prefix}{os.getpid()}-{_machine()}-{token_hex(4)}"
    path.mkdir(mode=mode)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def sweep(folder: Path, prefix: str) -> None:
    """Remove scratch folders of that prefix that processes of this machine left behind when killed."""
    for left in folder.glob(f"{prefix}*"):
        process, _, rest = left.name.removeprefix(prefix).partition("-")
        here = rest.rpartition("-")[0] == _machine()
        if here and process.isdecimal() and not _alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)


def _machine() -> str:
    """A short name of this machine: sockets' paths must be short."""
    return f"{crc32(socket.gethostname().encode()):08x}"


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
