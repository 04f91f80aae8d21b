# SPDX-License-Identifier: Apache-2.0
"""What a format's rewriting and the policy that redacts have in common: kinds of names, and one protocol.

A format knows where its texts lie and what their fields are called; what of them is secret, and what
stands in its place, the `Redactor` knows.
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
ANNOTATION: Final = "annotation"

CAPTURED: Final = "captured output"
COMMAND_LINE: Final = "command line"
SYSTEM: Final = "system information"
SOURCE_PATH: Final = "source path"
METADATA: Final = "metadata of the program"
"""What the parts of a format hold that are not published."""
REVEALED: Final = "revealed"
"""What a field holds whose value its owner reveals."""

Replaced = tuple[str, Counter[str]]
"""A text as it may be published, and how many things were replaced in it, by the rule that found them."""


class Redactor(Protocol):
    """Says of each text of a file what may be published of it."""

    @property
    def learns(self) -> bool:
        """Whether it gathers names, so that it looks at what is not published, too."""
        ...

    def text(self, text: str, field: str = "") -> Replaced:
        """Any text; `field` is what it is called, where something does."""
        ...

    def kind_of_field(self, name: str) -> str | None:
        """What a field of this name holds, None where the name tells nothing."""
        ...

    def field(self, kind: str, text: str, *, name: str = "") -> Replaced:
        """The value of a field that holds that kind, called `name` in an environment."""
        ...

    def keeps(self, field: str, counts: Mapping[str, int], text: str) -> bool:
        """Whether the text of a field of this name stays though something was found in it."""
        ...

    def annotation(self, text: str) -> Replaced:
        """What somebody called a range of the program: numbered, unless it is a framework's own."""
        ...

    def is_marker(self, annotation: str) -> bool:
        """Whether an annotation is a framework's own: a step, a phase, a collective."""
        ...

    def suspicious(self, data: bytes) -> bool:
        """Whether bytes may hold something; what they hold for sure, only the texts in them tell."""
        ...

    def masked(self, data: bytes) -> tuple[bytes, Counter[str]]:
        """Bytes in no known format: the texts in them replaced without a change of their length."""
        ...

    def count(self, place: str, counts: Mapping[str, int]) -> None:
        """Note what was replaced at a place of the file: a key, a table's column, a plane."""
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
    for together in tree.values():
        begin = commonprefix(together)  # noqa: RUF071 - texts, not paths
        rest = [name[len(begin) :] for name in together]
        branches.append(re.escape(begin) + (alternation_pattern(rest) if any(rest) else ""))
    if not branches:
        return ""
    return f"(?:{'|'.join(branches)}){ends}"
