# SPDX-License-Identifier: Apache-2.0
"""Read cards as strict YAML, with line numbers."""

from __future__ import annotations

from pathlib import Path as FilePath

from cclbench.ground import yaml_file
from cclbench.ground.yaml_file import LARGEST_BYTES, Document, scalar

__all__ = ["LARGEST_BYTES", "Document", "parse_card", "read_card", "scalar"]

_NOUN = "workload card"


def read_card(path: FilePath | str) -> Document:
    """Read the card at `path`; raises `InputError` as `yaml_file.read` does."""
    return yaml_file.read(path, _NOUN)


def parse_card(text: str, file: str) -> Document:
    """Parse a card; `file` is its name in messages.  Raises `InputError` as `read_card` does."""
    return yaml_file.parse(text, file, _NOUN)
