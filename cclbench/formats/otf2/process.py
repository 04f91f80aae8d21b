# SPDX-License-Identifier: Apache-2.0
"""The process that reads an archive with OTF2's library, as its reader sees it: definitions, then events."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from cclbench.formats.otf2 import archive
from cclbench.formats.otf2.definitions import Definitions
from cclbench.ground.errors import InputError, install_hint
from cclbench.ground.text import printable

Block: TypeAlias = dict[str, npt.NDArray[np.uint64]]
"""Rows of an archive: a column by each name of `archive.COLUMNS`; `value` holds floats."""
HINT: Final = "is an archive's file missing or damaged? otf2-print ARCHIVE says more"
_LIBRARY: Final = "_otf2"
_LONGEST_REASON: Final = 200


@dataclass(slots=True)
class Archive:
    """An archive that is being read."""

    path: Path
    definitions: Definitions
    counts: Mapping[str, int]
    """What was not read, by reason; complete once the events are."""
    _process: subprocess.Popen[bytes]

    def blocks(self, locations: Sequence[int]) -> Iterator[Block]:
        """The rows of these locations, in bounded blocks, by the end of regions and messages."""
        answers, order = self._process.stdout, self._process.stdin
        assert answers is not None and order is not None  # noqa: S101, PT018
        try:
            order.write(" ".join(map(str, locations)).encode() + b"\n")
            order.close()
        except BrokenPipeError:
            raise _EndedError from None
        while rows := _read_size(answers):
            columns = [np.frombuffer(_read_exactly(answers, 8 * rows), np.uint64) for _ in archive.COLUMNS]
            yield dict(zip(archive.COLUMNS, columns, strict=True))
        self.counts = msgspec.json.decode(_read_exactly(answers, _read_size(answers)), type=dict[str, int])


class _EndedError(Exception):
    """The process has ended before its answer."""


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """The archive; `InputError` if it is damaged, or the package otf2 is missing."""
    if find_spec(_LIBRARY) is None:
        raise InputError(
            "is an OTF2 archive, and the package otf2 is not installed",
            where=str(path),
            hint=install_hint("otf2"),
        )
    with tempfile.TemporaryFile() as stderr, _started(path, stderr) as process:
        try:
            assert process.stdout is not None  # noqa: S101
            text = _read_exactly(process.stdout, _read_size(process.stdout))
            yield Archive(path, msgspec.json.decode(text, type=Definitions), {}, process)
        except (_EndedError, msgspec.DecodeError):
            assert process.stdin is not None  # noqa: S101
            process.stdin.close()  # it waits for nothing else
            raise _damaged_error(path, process.wait(), stderr) from None


@contextmanager
def _started(path: Path, stderr: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """The process; it has ended when this ends."""
    # Its modules are found as here, and never in the folder that it is started in.
    places = os.pathsep.join(place for place in sys.path if place)
    process = subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-P", archive.__file__, str(path.absolute())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": places},
    )
    try:
        yield process
    finally:
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        process.kill()
        process.wait()


def _read_size(answers: IO[bytes]) -> int:
    return int.from_bytes(_read_exactly(answers, 8), sys.byteorder)


def _read_exactly(answers: IO[bytes], size: int) -> bytes:
    content = answers.read(size)
    if len(content) < size:
        raise _EndedError
    return content


def _damaged_error(path: Path, status: int, stderr: IO[bytes]) -> InputError:
    """The error for an archive whose process has failed."""
    if status == archive.DAMAGED:
        stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - _LONGEST_REASON))
        lines = stderr.read().decode(errors="replace").splitlines()
        reason = printable(lines[-1]) if lines else "the library gives no reason"
    else:
        ends = status not in (-signal.SIGXCPU, -signal.SIGKILL)
        reason = (
            f"OTF2's library {'fails on it' if ends else 'was ended, it takes too long'} (status {status})"
        )
    return InputError(f"cannot be read: {reason}", where=str(path), hint=HINT)
