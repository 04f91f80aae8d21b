# SPDX-License-Identifier: Apache-2.0
"""Standard output and error as commands write to them: no control character of an input gets through."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TextIO

import click

from cclbench.ground.text import printable, printable_json

_NARROW: Final = "cclbench.escapes"


class PrintableStream:
    """A text stream to which characters that are not printable get as escapes, line breaks as they are.

    The escapes are JSON's, whose values stay the same by that. `unescaped_stream` is the stream itself, for
    what is styled and for data that are wanted as they are.
    """

    encoding = "utf-8"
    errors = "strict"

    def __init__(self, stream: TextIO) -> None:
        self.unescaped = stream

    def write(self, text: str) -> int:
        """Write the text; how many characters of it were taken."""
        self.unescaped.write(printable_json(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unescaped, name)


def unescaped_stream(stream: TextIO) -> TextIO:
    """The stream behind a `PrintableStream`; any other stream itself."""
    return stream.unescaped if isinstance(stream, PrintableStream) else stream


@contextmanager
def printable_streams() -> Iterator[None]:
    """Let nothing but printable text reach stdout and stderr meanwhile.

    A character that their encoding lacks is written as JSON's escape of it.
    """
    codecs.register_error(_NARROW, _escape_surrogates)
    out, err = sys.stdout, sys.stderr
    for stream in (out, err):
        with suppress(AttributeError):  # a test's or a notebook's stream
            stream.reconfigure(errors=_NARROW)  # type: ignore[union-attr]
    sys.stdout, sys.stderr = PrintableStream(out), PrintableStream(err)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


def say_on_stderr(line: str) -> None:
    """Write one line to stderr, whatever the names in it hold."""
    click.echo(printable(line), err=True)


def _escape_surrogates(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)  # noqa: S101  (it is registered for streams that are written)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
