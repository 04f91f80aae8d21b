# SPDX-License-Identifier: Apache-2.0
"""Which code computed what is stored: people change their own without a new version."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path


def code_hash(files: Iterable[Path]) -> str:
    """SHA-256 over modules, whatever their order."""
    return sha256(b"".join(sha256(file.read_bytes()).digest() for file in sorted({*files}))).hexdigest()
