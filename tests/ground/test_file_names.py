# SPDX-License-Identifier: Apache-2.0
"""Names of files as text: every name has one, that UTF-8 holds, and is found again by it."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.ground.errors import InputError
from cclbench.ground.file_names import path_of, stored_name, utf8_text
from cclbench.ground.text import printable, printable_json, printable_lines

PIECES = st.sampled_from(
    [b"\\", b"x", b"\\xe9", b"\\x5c", b"5c", b"e9", b"\xe9", b"\xc3", b"\xa9", b"\n", b"/"]
)
NAMES = st.lists(st.one_of(PIECES, st.binary(max_size=2).filter(lambda raw: b"\0" not in raw)), max_size=8)


@given(NAMES, NAMES)
def test_a_stored_name_is_utf8_and_of_one_file(pieces: list[bytes], others: list[bytes]) -> None:
    path, other = (os.fsdecode(b"".join(of)) for of in (pieces, others))
    name = stored_name(path)
    assert name.encode().decode() == name
    assert path_of(name) == path
    assert (stored_name(other) == name) == (other == path)


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"r\xe9sultats.txt", r"r\xe9sultats.txt"),
        ("résultats.txt".encode(), "résultats.txt"),
        (rb"r\xe9sultats.txt", r"r\x5cxe9sultats.txt"),
        (rb"back\slash", r"back\slash"),
        (b"\xed\xb3\xa9", r"\xed\xb3\xa9"),
    ],
)
def test_what_a_name_is_stored_as(raw: bytes, name: str) -> None:
    assert stored_name(os.fsdecode(raw)) == name


def test_what_is_no_byte_of_a_name_is_its_code_and_no_escape_leads_out_of_a_folder() -> None:
    """A card's path is checked as it is written; of what its escapes stand for none is a dot or a slash."""
    assert path_of(r"\x2e\x2e\x2f\x00\x0a") == r"\x2e\x2e\x2f\x00\x0a"
    assert utf8_text("a\ud800b\udce9") == r"a\ud800b\xe9"
    assert printable("r\udce9s\u202e\x1b") == r"r\xe9s\u202e\x1b"


@given(st.text(st.characters()))
def test_json_stays_the_same_value(text: str) -> None:
    document = printable_json(json.dumps({text: [text]}, ensure_ascii=False, indent=1))
    assert printable_lines(document) == document
    assert json.loads(document) == {utf8_text(text): [utf8_text(text)]}


def test_the_lines_of_an_error_are_those_that_were_meant() -> None:
    error = InputError(["two of", "  a\nb"], where="new\nline\x1b[31m\udce9", hint="a\u2028b")
    assert str(error).split("\n") == [r"new\nline\x1b[31m\xe9: two of", r"  a\nb; a\u2028b"]
    assert error.__reduce__()[0](*error.__reduce__()[1]).__dict__ == error.__dict__
