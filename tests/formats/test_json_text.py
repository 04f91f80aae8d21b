# SPDX-License-Identifier: Apache-2.0
"""JSON rewritten where it stands: what is replaced, under which place it counts, and where blocks may end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from cclbench.formats import json_text
from cclbench.formats.json_text import JsonRewriter, NotJsonError
from cclbench.formats.rewriting import ENVIRONMENT, HOST, JOB, alternation_pattern
from cclbench.ground.errors import InputError


class Plain:
    """Replaces the word `secret`, whole values of some fields, and annotations; remembers what it counted."""

    learns = False

    FIELDS = {"host": HOST, "env": ENVIRONMENT, "job": JOB}  # noqa: RUF012 - not changed

    def publishes(self, key: str) -> bool:
        """All are."""
        del key
        return True

    def __init__(self, *kept: str) -> None:
        self.kept, self.counted = kept, list[tuple[str, dict[str, int]]]()

    def text(self, text: str, _field: str = "") -> tuple[str, Counter[str]]:
        found = text.count("secret")
        return text.replace("secret", "?"), Counter(word=found) if found else Counter()

    def kind_of_field(self, name: str) -> str | None:
        return self.FIELDS.get(name)

    def field(self, kind: str, text: str, *, name: str = "") -> tuple[str, Counter[str]]:
        return f"{kind} {name}".strip() if text != "fine" else text, Counter({kind: 1})

    def keeps(self, field: str, _counts: Mapping[str, int], _text: str) -> bool:
        return field in self.kept

    def redact_annotation(self, text: str) -> tuple[str, Counter[str]]:
        return ("range 1", Counter(annotation=1)) if text != "step" else (text, Counter())

    def count(self, place: str, counts: Mapping[str, int]) -> None:
        self.counted.append((place, dict(counts)))


def rewritten(text: str | bytes, redactor: Plain | None = None, **options: Any) -> str:
    """In one block, which ends with a comma."""
    rewriter = JsonRewriter(redactor or Plain(), "x.json", **options)  # type: ignore[arg-type]
    data = text.encode() if isinstance(text, str) else text
    return (rewriter.feed_block(data + b",") + rewriter.finish()).decode().removesuffix(",")


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
        ('{"host": "a", "b": "a"}', '{"host": "host name", "b": "a"}', [("host", {HOST: 1})]),
        ('{"host" : "fine"}', None, []),
        (
            '{"host": ["a", {"k": "b"}], "z": "a"}',
            '{"host": ["host name", {"k": "host name"}], "z": "a"}',
            [("host", {HOST: 1})] * 2,
        ),
        ('{"host": [], "z": "a"}', None, []),
        ('{"host": [[1], "a"], "z": "a"}', '{"host": [[1], "host name"], "z": "a"}', [("host", {HOST: 1})]),
        (
            '{"env": {"A": "1", "B": "2"}, "C": "3"}',
            '{"env": {"A": "environment variable A", "B": "environment variable B"}, "C": "3"}',
            [("env", {ENVIRONMENT: 1})] * 2,
        ),
        ('{"env": ["A=1"]}', '{"env": ["environment variable"]}', [("env", {ENVIRONMENT: 1})]),
        ('{"job": 123, "n": 5}', '{"job": null, "n": 5}', [("job", {JOB: 1})]),
        ('{"job" : -1.5}', '{"job" : null}', [("job", {JOB: 1})]),
        ('{"host": 123}', None, []),
        ('{"job": "x7"}', '{"job": "job"}', [("job", {JOB: 1})]),
        ('{"job": true, "x": "y"}', None, []),
        ('["host", "a"]', None, []),
        ('{"a": "host", "b": "c"}', None, []),
    ],
)
def test_texts_that_change_and_where_they_count(
    text: str, expected: str | None, counted: list[tuple[str, dict[str, int]]]
) -> None:
    redactor = Plain()
    assert rewritten(text, redactor) == (expected or text)
    assert redactor.counted == counted


def test_what_stays_is_not_counted() -> None:
    redactor = Plain("k")
    assert rewritten('{"k": "secret", "l": "secret"}', redactor) == '{"k": "secret", "l": "?"}'
    assert redactor.counted == [("l", {"word": 1})]


def test_numbers_in_quotes_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plain, "text", lambda *_: ("!", Counter(word=1)))
    assert rewritten('["-12.5e+3", "", "1x"]') == '["-12.5e+3", "", "!"]'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"k": "é secret"}', '{"k": "é ?"}'),
        ('{"k": "\\u00e9 secret"}', '{"k": "\\u00e9 ?"}'),
        ('{"k": "é \\ud800 secret"}', '{"k": "\\u00e9 \\ud800 ?"}'),
    ],
)
def test_ascii_stays_ascii(text: str, expected: str) -> None:
    assert rewritten(text) == expected


@pytest.mark.parametrize(
    ("block", "certain"),
    [
        (b'["a", "b"', b'["a",'),
        (b'["a", "b', b'["a",'),
        (b'["a", 12', b'["a",'),
        (b'["a", "b, c', b'["a",'),
        (b'[{"a": 1, "b": 2}, {"c": 3, "d"', b'[{"a": 1, "b": 2}, '),
        (b'[{"a": 1, "b": 2}, {"c": "x, {', b'[{"a": 1, "b": 2}, '),
        (b'{"a": 1} {"b"', b'{"a": 1} '),
        (b'[{"a', b"["),
        (b'[1, "a"', b"[1,"),
        (b'[1, {"a"', b"[1, "),
        (b'[{"a": 1', b"["),
        (b'{"a', b""),
        (b'{"a": "b, c"', b""),
    ],
)
def test_what_is_certain_before_the_next_block(block: bytes, certain: bytes) -> None:
    rewriter = JsonRewriter(Plain(), "x.json")  # type: ignore[arg-type]
    assert rewriter.feed_block(block) == certain


def test_what_waits_for_its_end_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "_LONGEST", 100)
    rewriter = JsonRewriter(Plain(), "x.json")  # type: ignore[arg-type]
    assert rewriter.feed_block(b'"' + b"x" * 99) == b""
    with pytest.raises(NotJsonError):
        rewriter.feed_block(b"x")


@pytest.mark.parametrize("text", ['{"a": bad}', "{'a': 1}", '{"a": "b', '{"a" = 1}'])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(NotJsonError):
        rewritten(text)


@pytest.mark.parametrize(("depth", "refused"), [(64, False), (65, True)])
def test_values_of_a_telling_key_are_64_deep_at_most(depth: int, refused: bool) -> None:
    text = '{"host": ' + "[" * depth + '"a"' + "]" * depth + "}"
    if refused:
        with pytest.raises(NotJsonError):
            rewritten(text)
    else:
        assert rewritten(text) == text.replace('"a"', '"host name"')


@pytest.mark.parametrize("most", [1, 2])
def test_texts_are_the_same_however_many_are_remembered(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(json_text, "_MOST_KNOWN", most)
    text = '["a", "secret 1", "b", "secret 2", "a", "secret 1"]'
    assert rewritten(text) == text.replace("secret", "?")


def test_texts_that_are_none_say_where() -> None:
    rewriter = JsonRewriter(Plain(), "x.json")  # type: ignore[arg-type]
    assert rewriter.feed_block(b'["a", 1, ') == b'["a", 1,'
    with pytest.raises(InputError) as raised:
        rewriter.feed_block(b'"\xff", 2')
    assert str(raised.value) == (
        "x.json: at or after byte 8: contains a text that is not valid JSON or UTF-8;"
        " what cannot be read cannot be redacted: write the file again"
    )


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        ([], ""),
        (["a"], "(?:a)"),
        (["ab", "ab", "ac"], "(?:a(?:b|c))"),
        (["a", "ab"], "(?:a(?:b)?)"),
        (["a.b", "c"], r"(?:a\.b|c)"),
        (["", "a"], "(?:a)?"),
        ([""], ""),
    ],
)
def test_one_expression_for_many_names(names: list[str], pattern: str) -> None:
    assert alternation_pattern(names) == pattern


@pytest.mark.parametrize(
    "text",
    [
        *(
            '[{"host":',
            '[{"host"',
            '[{"name": "mine", "cat":',
            '[{"name": "mine", "cat"',
            '[{"name": "mine", "cat": 1',
            '[{"name":',
        ),
        *('{"name": "mine", "cat":', '{"name": "mine"', '{"cat": "user"'),
    ],
)
def test_a_file_that_is_cut_within_an_event_stays_as_it_is(text: str) -> None:
    rewriter = JsonRewriter(Plain(), "x.json")  # type: ignore[arg-type]
    assert rewriter.feed_block(text.encode()) + rewriter.finish() == text.encode()
