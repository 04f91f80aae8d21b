# SPDX-License-Identifier: Apache-2.0
"""Cards as strict YAML, every line remembered."""

from __future__ import annotations

from pathlib import Path as FilePath

from cclbench import yaml_file
from cclbench.yaml_file import LARGEST_BYTES, Document, scalar

__all__ = ["LARGEST_BYTES", "Document", "parse", "read", "scalar"]

_NOUN = "workload card"


def read(path: FilePath | str) -> Document:
    """Read the card at `path`; raises `InputError` as `yaml_file.read` does."""
    return yaml_file.read(path, _NOUN)


def parse(text: str, file: str) -> Document:
    """Read a card from `text`; `file` is its name in messages.  Raises `InputError` as `read` does."""
    return yaml_file.parse(text, file, _NOUN)
