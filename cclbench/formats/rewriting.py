# SPDX-License-Identifier: Apache-2.0
"""The interface between a format's rewriting and redaction: kinds of content, and the protocol `Redactor`.

A format knows where its texts are and what their fields are called; the `Redactor` decides what is secret
and what replaces it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from os.path import commonprefix
from typing import Final, Protocol

HOST: Final = "host name"
JOB: Final = "job"
ENVIRONMENT: Final = "environment variable"

CAPTURED: Final = "captured output"
COMMAND_LINE: Final = "command line"
SYSTEM: Final = "system information"
SOURCE_PATH: Final = "source path"
METADATA: Final = "metadata of the program"
UNREAD: Final = "field that is not read"
"""Kinds of content that are not published."""
REVEALED: Final = "revealed"
"""Kind of a field whose value its owner publishes deliberately."""

Replaced = tuple[str, Counter[str]]
"""A redacted text, and the number of replacements in it by rule."""


class Redactor(Protocol):
    """Redacts the texts of a file."""

    @property
    def learns(self) -> bool:
        """Whether it only collects names, also from parts that are not published."""
        ...

    def text(self, text: str, field: str = "") -> Replaced:
        """Redact any text; `field` is the name of its field, if it has one."""
        ...

    def listed_text(self, text: str) -> Replaced:
        """Redact a text of which the format itself published only words that it lists."""
        ...

    def publishes(self, key: str) -> bool:
        """Whether a field of that name is published with its value."""
        ...

    def kind_of_field(self, name: str) -> str | None:
        """The kind of content of a field with this name, None if unknown."""
        ...

    def field(self, kind: str, text: str, *, name: str = "") -> Replaced:
        """Redact the value of a field of this kind; `name` is the variable's name in an environment."""
        ...

    def keeps(self, field: str, counts: Mapping[str, int], text: str) -> bool:
        """Whether the text of a field with this name is kept although a rule matched."""
        ...

    def count(self, place: str, counts: Mapping[str, int]) -> None:
        """Count replacements by place in the file: a key, a table's column, a plane."""
        ...


def alternation_pattern(names: Iterable[str]) -> str:
    """A regular expression for any of the names, the longest first, by their common beginnings."""
    ends = ""
    tree: dict[str, list[str]] = {}
    for name in sorted(set(names)):
        if name:
            tree.setdefault(name[0], []).append(name)
        else:
            ends = "?"
    branches = []
    for group in tree.values():
        begin = commonprefix(group)  # noqa: RUF071 - texts, not paths
        endings = [name[len(begin) :] for name in group]
        branches.append(re.escape(begin) + (alternation_pattern(endings) if any(endings) else ""))
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)}){ends}"
