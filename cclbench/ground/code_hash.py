# SPDX-License-Identifier: Apache-2.0
"""A hash of the code that computed stored results: plug-ins may change without a new version."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path


def code_hash(files: Iterable[Path]) -> str:
    """SHA-256 over modules, independent of their order."""
    return sha256(b"".join(sha256(file.read_bytes()).digest() for file in sorted({*files}))).hexdigest()
