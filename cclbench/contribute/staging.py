# SPDX-License-Identifier: Apache-2.0
"""Put a data point into a collection atomically."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cclbench.ground.errors import InputError
from cclbench.ground.scratch import scratch, sweep

Move = tuple[Path, Path]
"""From, to."""
_SCRATCH: Final = ".cclbench-"


@contextmanager
def scratch_in(folder: Path) -> Iterator[Path]:
    """A hidden folder in `folder`, removed at the end, that git ignores.

    Leftovers of killed processes are removed first: they may hold originals that are not redacted.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder, _SCRATCH)
        with scratch(folder, _SCRATCH, mode=0o700) as path:
            (path / ".gitignore").write_text("*\n")
            yield path
    except OSError as error:
        if error.filename is None or not Path(error.filename).is_relative_to(folder):
            raise
        raise InputError(f"cannot be written: {error.strerror}", where=str(folder)) from None


def put_in_place(moves: Sequence[Move]) -> None:
    """Rename each `from` to its `to`, all or none of them.

    An existing target is first moved next to `from`, to be removed with the scratch folder.
    """
    done: list[Move] = []
    try:
        for source, target in moves:
            target.parent.mkdir(parents=True, exist_ok=True)
            if target.exists():
                _rename_noting(target, source.with_name(f"{source.name}.former"), done)
            _rename_noting(source, target, done)
    except BaseException:
        for source, target in reversed(done):
            target.rename(source)
        raise


def _rename_noting(source: Path, target: Path, done: list[Move]) -> None:
    source.rename(target)
    done.append((source, target))
