# SPDX-License-Identifier: Apache-2.0
"""Untrusted text made safe to print: for terminals, tables, messages and Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatch
from html import escape
from typing import Final

from cclbench.ground.file_names import escape_character, utf8_text

_LONGEST_QUOTED = 80
_LONGEST_TOLD: Final = 2000
# An underscore within a word formats nothing.
_FORMATS: Final = re.compile(r"([\\`*\[\]|~#$]|(?<![^\W_])_|_(?![^\W_]))")


@singledispatch
def html_of(shown: object) -> str:
    """HTML of an object for notebooks; `interactive` registers runs and comparisons."""
    return f"<pre>{escape(repr(shown))}</pre>"


def printable(text: str) -> str:
    """`text` with control characters, including line breaks, as escapes."""
    return (
        text if text.isprintable() else "".join(c if c.isprintable() else escape_character(c) for c in text)
    )


def printable_lines(text: str) -> str:
    """As `printable`, keeping line breaks."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    """JSON of the same value, with unprintable characters as escapes.

    Invalid UTF-8 becomes text: a byte of a file name `\\xHH`, another lone surrogate `\\uHHHH`.
    """
    lines = (line if line.isprintable() else "".join(map(_json_character, line)) for line in text.split("\n"))
    return "\n".join(lines)


def _json_character(character: str) -> str:
    if character.isprintable():
        return character
    return json.dumps(utf8_text(character))[1:-1]


def cut_text(text: str) -> str:
    """As `printable`, truncated after 2,000 characters, with a note of how many more there are."""
    more = len(text) - _LONGEST_TOLD
    return printable(text) if more <= 0 else f"{printable(text[:_LONGEST_TOLD])}… ({more:,} more characters)"


def shorten_middle(text: str, most: int) -> str:
    """`text` in at most `most` characters, with the middle of a longer text left out.

    Kernel names often share a prefix and differ at the end.
    """
    if len(text) <= most:
        return text
    tail = (most - 3) // 2
    return f"{text[: most - 3 - tail]}...{text[-tail:]}"


def first_few(texts: Sequence[str], most: int = 3) -> str:
    """`a, b, c, ...`: the first `most` texts, and dots if there are more."""
    return ", ".join(texts[:most]) + (", ..." if len(texts) > most else "")


def listed(lines: Sequence[str], most: int, indent: str = "") -> list[str]:
    """The first `most` lines, and a line with the number of further ones."""
    more = [f"and {len(lines) - most} more"] if len(lines) > most else []
    return [f"{indent}{line}" for line in [*lines[:most], *more]]


def letters_and_digits(name: str) -> str:
    """A name without punctuation and case: `llama318b` of `Llama-3.1_8B`."""
    return re.sub(r"[\W_]", "", name).casefold()


def as_markdown(text: str) -> str:
    """`text` as Markdown that shows it verbatim, without formatting, links, mentions or HTML."""
    plain = _FORMATS.sub(r"\\\1", escape(printable(text), quote=False))
    return plain.replace("@", "&#64;").replace("://", ":&#47;&#47;").replace("www.", "www&#46;")


def markdown_table(
    head: Sequence[str], rows: Iterable[Iterable[str]], *, numbers: bool = False
) -> Iterator[str]:
    """The lines of a Markdown table; `numbers` right-aligns all columns but the first."""
    yield f"| {' | '.join(head)} |"
    yield "| --- |" + (" ---: |" if numbers else " --- |") * (len(head) - 1)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def quoted_value(value: object) -> str:
    """A value for messages: JSON on one line, truncated after 80 characters."""
    text = printable(json.dumps(value, ensure_ascii=False, default=str))
    return quoted(text)


def quoted(text: str) -> str:
    """`text`, truncated after 80 characters."""
    return text if len(text) <= _LONGEST_QUOTED else f"{text[:_LONGEST_QUOTED]}…"
