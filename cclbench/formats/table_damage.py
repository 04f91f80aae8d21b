# SPDX-License-Identifier: Apache-2.0
"""Errors of Arrow's readers of tables as those of a damaged file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from cclbench.ground.errors import InputError
from cclbench.ground.out_of_memory import is_out_of_memory


@contextmanager
def name_damage(path: Path, hint: str) -> Iterator[None]:
    """`InputError` with the file and the reason for what reading a damaged table raises, but for memory."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if is_out_of_memory(error):
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)[:200]
        raise InputError(f"is damaged: {reason}", where=str(path), hint=hint) from None
