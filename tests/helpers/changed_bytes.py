# SPDX-License-Identifier: Apache-2.0
"""Files with bytes changed by chance: a reader reads each of them, or refuses it as damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from cclbench.ground.errors import InputError

_TEXTS = (b"", b'"', b"-1", b"1e999", b"[", b"9" * 40)


def changed_bytes(content: bytes, seed: int, times: int) -> Iterator[bytes]:
    """Bytes replaced; in every other one also removed, repeated and put in, and the end cut off."""
    chance = Random(seed)  # noqa: S311 - chance that repeats
    for number in range(times):
        data = bytearray(content)
        for _ in range(chance.randint(1, 6)):
            at, size = chance.randrange(len(data) or 1), chance.choice((1, 1, 1, 8, chance.randint(2, 90)))
            part = data[at : at + size]
            other = chance.choice((chance.randbytes(len(part)), 2 * part, *_TEXTS))
            data[at : at + size] = other if number % 2 else chance.randbytes(len(part))
        yield bytes(data[: chance.randrange(len(data) or 1)] if number % 4 == 3 else data)


def read_or_refused(read: Callable[[Path], Any], path: Path, content: bytes, times: int = 300) -> None:
    """Files of that content, changed: nothing is raised but an `InputError`."""
    for data in changed_bytes(content, 34, times):
        path.write_bytes(data)
        with suppress(InputError):
            read(path)
