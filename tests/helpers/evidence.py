# SPDX-License-Identifier: Apache-2.0
"""The external evidence where some of it is missing: a test that needs what is missing is skipped."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path, PosixPath
from typing import Any, ClassVar, Self

import pytest
import yaml

MANIFEST = Path(__file__).resolve().parents[1] / "fixtures.yaml"


@cache
def missing(folder: Path) -> tuple[Path, ...]:
    manifest = yaml.safe_load(MANIFEST.read_text())
    parts = (*manifest["repositories"], *manifest["not_public"])
    paths = (folder / file["file"] for part in parts for file in part["files"])
    return tuple(path for path in paths if not path.exists())


class Evidence(PosixPath):
    """A path of evidence: naming a file that is missing, or listing a folder without it, skips the test."""

    folder: ClassVar[Path]

    def __truediv__(self, key: Any) -> Self:
        below = super().__truediv__(key)
        if not below.exists():
            below._need_all()
        return below

    def iterdir(self) -> Iterator[Self]:
        self._need_all()
        return iter(list(super().iterdir()))

    def glob(self, *pattern: Any, **options: Any) -> Iterator[Self]:
        self._need_all()
        return iter(list(super().glob(*pattern, **options)))

    def rglob(self, *pattern: Any, **options: Any) -> Iterator[Self]:
        self._need_all()
        return iter(list(super().rglob(*pattern, **options)))

    def _need_all(self) -> None:
        lacking = [path for path in missing(self.folder) if path.is_relative_to(self)]
        if lacking:
            more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            pytest.skip(f"{lacking[0]}{more}: missing; tests/fixtures.yaml says where it comes from")
