# SPDX-License-Identifier: Apache-2.0
"""JSON rewritten where it stands: what is replaced, under which place it counts, and where blocks may end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from helpers.plain_redactor import PlainRedactor

from cclbench.formats import json_text
from cclbench.formats.json_text import JsonRewriter, NotJsonError
from cclbench.formats.rewriting import UNREAD
from cclbench.ground.errors import InputError


class Plain(PlainRedactor):
    """Replaces whole values of some fields unless they are fine; lists what it counted."""

    def __init__(self, *kept: str) -> None:
        super().__init__()
        self.kept, self.listed = kept, list[tuple[str, dict[str, int]]]()

    def text(self, text: str, _field: str = "") -> tuple[str, Counter[str]]:
        found = text.count("secret")
        return text.replace("secret", "?"), Counter(word=found) if found else Counter()

    def keeps(self, field: str, *_: object) -> bool:
        return field in self.kept

    def count(self, place: str, counts: Mapping[str, int]) -> None:
        self.listed.append((place, dict(counts)))


def rewriter(redactor: Plain | None = None, **options: Any) -> JsonRewriter:
    return JsonRewriter(redactor or Plain(), "x.json", **options)  # type: ignore[arg-type]


def rewritten(text: str | bytes, redactor: Plain | None = None, **options: Any) -> str:
    """In one block, which ends with a comma."""
    one = rewriter(redactor, **options)
    data = text.encode() if isinstance(text, str) else text
    return (one.feed_block(data + b",") + one.finish()).decode().removesuffix(",")


ONE_UNREAD = [("private", {UNREAD: 1})]


@pytest.mark.parametrize(
    ("text", "expected", "counted"),
    [
        ('{"a": "b", "c": [1, 2.5e3, true, null, NaN, -Infinity]}', None, []),
        ('{"k": "my secret"}', '{"k": "my ?"}', [("k", {"word": 1})]),
        ('{"k": ["a", "secret secret"]}', '{"k": ["a", "? ?"]}', [("k", {"word": 2})]),
        ('["secret"]', '["?"]', [("a list", {"word": 1})]),
        ('{"secret": 1}', '{"?": 1}', [("a key", {"word": 1})]),
        ('{"secret" : "b"}', '{"?" : "b"}', [("a key", {"word": 1})]),
        ('{"k": "se\\u0063ret"}', '{"k": "?"}', [("k", {"word": 1})]),
        ('{"private": "a", "b": "a"}', '{"private": "", "b": "a"}', ONE_UNREAD),
        ('{"private": ["a", {"k": "b"}], "z": "a"}', '{"private": [], "z": "a"}', ONE_UNREAD),
        ('{"private": [], "z": "a"}', None, []),
        *(
            ('{"private": 123, "n": 5}', '{"private": null, "n": 5}', ONE_UNREAD),
            ('["private", "a"]', None, []),
        ),
        ('{"a": "private", "b": "c"}', None, []),
    ],
)
def test_changed_texts(text: str, expected: str | None, counted: list[tuple[str, dict[str, int]]]) -> None:
    redactor = Plain()
    assert rewritten(text, redactor) == (expected or text)
    assert redactor.listed == counted


def test_what_stays_is_not_counted_and_ascii_stays_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    redactor = Plain("k")
    assert rewritten('{"k": "secret", "l": "secret"}', redactor) == '{"k": "secret", "l": "?"}'
    assert redactor.listed == [("l", {"word": 1})]
    for text, expected in (
        *(('{"k": "é secret"}', '{"k": "é ?"}'), ('{"k": "\\u00e9 secret"}', '{"k": "\\u00e9 ?"}')),
        ('{"k": "é \\ud800 secret"}', '{"k": "\\u00e9 \\ud800 ?"}'),
    ):
        assert rewritten(text) == expected
    monkeypatch.setattr(Plain, "text", lambda *_: ("!", Counter(word=1)))
    assert rewritten('["12", "", "1x"]') == '["12", "", "!"]'


@pytest.mark.parametrize(
    ("block", "certain"),
    [
        *((b'["a", ' + cut, b'["a",') for cut in (b'"b"', b'"b', b"12", b'"b, c')),
        (b'[{"a": 1, "b": 2}, {"c": 3, "d"', b'[{"a": 1, "b": 2}, '),
        (b'[{"a": 1, "b": 2}, {"c": "x, {', b'[{"a": 1, "b": 2}, '),
        *((b'{"a": 1} {"b"', b'{"a": 1} '), (b'[{"a', b"["), (b'[1, "a"', b"[1,"), (b'[1, {"a"', b"[1, ")),
        *((b'[{"a": 1', b"["), (b'{"a', b""), (b'{"a": "b, c"', b"")),
    ],
)
def test_what_is_certain_before_the_next_block(block: bytes, certain: bytes) -> None:
    assert rewriter().feed_block(block) == certain


def test_what_waits_for_its_end_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "_LONGEST", 100)
    one = rewriter()
    assert one.feed_block(b'"' + b"x" * 99) == b""
    with pytest.raises(NotJsonError):
        one.feed_block(b"x")


@pytest.mark.parametrize("text", ['{"a": bad}', "{'a': 1}", '{"a" = 1}'])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(NotJsonError):
        rewritten(text)


def test_a_text_that_is_cut_at_the_end_goes() -> None:
    one = rewriter()
    assert one.feed_block(b'[{"a": "b"}, {"a": "sec') + one.finish() == b'[{"a": "b"}, {"a": '


@pytest.mark.parametrize("most", [1, 2])
def test_texts_are_the_same_however_many_are_remembered(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(json_text, "_MOST_KNOWN", most)
    text = '["a", "secret 1", "b", "secret 2", "a", "secret 1"]'
    assert rewritten(text) == text.replace("secret", "?")


def test_texts_that_are_none_say_where() -> None:
    one = rewriter()
    assert one.feed_block(b'["a", 1, ') == b'["a", 1,'
    with pytest.raises(InputError) as raised:
        one.feed_block(b'"\xff", 2')
    assert str(raised.value) == (
        "x.json: at or after byte 8: contains a text that is not valid JSON or UTF-8;"
        " what cannot be read cannot be redacted: write the file again"
    )


@pytest.mark.parametrize(
    "text",
    [
        *('[{"host":', '[{"host"', '[{"name": "mine", "cat":', '[{"name": "mine", "cat"', '[{"name":'),
        *('[{"name": "mine", "cat": 1', '{"name": "mine", "cat":', '{"name": "mine"', '{"cat": "user"'),
    ],
)
def test_a_file_that_is_cut_within_an_event_stays_as_it_is(text: str) -> None:
    one = rewriter()
    assert one.feed_block(text.encode()) + one.finish() == text.encode()
