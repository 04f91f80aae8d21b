# SPDX-License-Identifier: Apache-2.0
"""Standard output and error without control characters from inputs."""

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
    """A text stream that escapes characters that are not printable, except line breaks.

    Escapes are JSON's, so that JSON values are preserved.  `unescaped_stream` returns the underlying stream,
    for styled output and raw data.
    """

    encoding = "utf-8"
    errors = "strict"

    def __init__(self, stream: TextIO) -> None:
        self.unescaped = stream

    def write(self, text: str) -> int:
        """Write the text; returns its length."""
        self.unescaped.write(printable_json(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unescaped, name)


def unescaped_stream(stream: TextIO) -> TextIO:
    """The stream underlying a `PrintableStream`; any other stream unchanged."""
    return stream.unescaped if isinstance(stream, PrintableStream) else stream


@contextmanager
def printable_streams() -> Iterator[None]:
    """Context in which only printable text reaches stdout and stderr.

    Characters that their encoding lacks are written as JSON escapes.
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
    """Write one line to stderr, with control characters escaped."""
    click.echo(printable(line), err=True)


def _escape_surrogates(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)  # noqa: S101  (registered for written streams only)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end
