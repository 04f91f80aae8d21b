# SPDX-License-Identifier: Apache-2.0
"""The interface between a format's rewriting and redaction: kinds of content, and the protocol `Redactor`.

A format knows where its texts are and what their fields are called; the `Redactor` decides what is secret
and what replaces it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final, Protocol

HOST: Final = "host name"
ENVIRONMENT: Final = "environment variable"

CAPTURED: Final = "captured output"
COMMAND_LINE: Final = "command line"
SYSTEM: Final = "system information"
SOURCE_PATH: Final = "source path"
METADATA: Final = "metadata of the program"
UNREAD: Final = "field that is not read"
"""Kinds of content that are not published."""

Replaced = tuple[str, Counter[str]]
"""A redacted text, and the number of replacements in it by kind."""


class Redactor(Protocol):
    """Redacts the texts of a file."""

    def text(self, text: str, field: str = "") -> Replaced:
        """Redact any text; `field` is the name of its field, if it has one."""
        ...

    def publishes(self, key: str) -> bool:
        """Whether a field of that name is published with its value."""
        ...

    def reveals(self, key: str) -> bool:
        """Whether the owner asks to publish the values of fields of that name."""
        ...

    def keeps(self, field: str, text: str) -> bool:
        """Whether the text of a field with this name is kept: a figure, or revealed."""
        ...

    def count(self, place: str, counts: Mapping[str, int]) -> None:
        """Count replacements by place in the file: a key, a table's column, a plane."""
        ...
