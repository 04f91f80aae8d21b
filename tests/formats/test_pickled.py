# SPDX-License-Identifier: Apache-2.0
"""Pickles of plain data read without pickle: what Python writes, and how much of it is believed."""

from __future__ import annotations

import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from helpers.plain_redactor import PlainRedactor

from cclbench.formats import pickled
from cclbench.formats.pickled import NotPlainError, load_plain, rewrite_pickle
from cclbench.formats.rewriting import UNREAD
from cclbench.ground.errors import InputError

TEXTS = [f"text {n}" for n in range(300)]
CUT = "pickle is cut: it has no end"
HUGE = (1 << 62).to_bytes(8, "little")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "value",
    [
        *(0, 1, 255, 256, 65_535, 65_536, -1, 2**31 - 1, -(2**31), 2**31, -(2**31) - 1, 2**63, -(2**70), 0.0),
        *(-1.5, 1e300, float("inf"), None, True, False, "", "a", "é", "x" * 255, "x" * 256, "\ud800", ()),
        *((1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [1], [1, [2, [3]]], {}, {"a": 1}, {1: "b", False: 2}),
        *({"a": {"b": [(1, None)]}, "c": {}}, TEXTS + TEXTS, dict.fromkeys(TEXTS[:3], TEXTS)),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_python_writes_is_read_as_it_was(value: Any, protocol: int) -> None:
    found = load_plain(pickle.dumps(value, protocol))
    assert found == value
    assert type(found) is type(value)


def test_references_share_and_count() -> None:
    shared = ["x"]
    first, (second,), third = load_plain(pickle.dumps([shared, (shared,), ["x"]]))
    assert first is second
    assert first is not third
    shared = [1, 2]
    data = pickle.dumps([shared, shared])
    assert load_plain(data, unfolded=6) == [shared, shared]
    with pytest.raises(NotPlainError, match="unfolds"):
        load_plain(data, unfolded=5)


@pytest.mark.parametrize("runs", [1, 1 << 16])
def test_references_are_followed_whatever_is_remembered(monkeypatch: pytest.MonkeyPatch, runs: int) -> None:
    monkeypatch.setattr(pickled, "_RUNS", runs)
    frames = [{"line": n} for n in range(400)]
    stacks = [[frames[(a * b) % 400] for b in range(40)] for a in range(30)] * 2
    assert load_plain(pickle.dumps(stacks, 2)) == stacks


@pytest.mark.parametrize(("value", "entries"), [([1, 2, 3], 3), ({"a": (1, 2)}, 3), ([[], [[]]], 3), (7, 0)])
def test_entries_are_counted_within_all_that_hold_them(value: Any, entries: int) -> None:
    assert load_plain(pickle.dumps(value), unfolded=entries) == value
    if entries:
        with pytest.raises(NotPlainError, match=r"^pickle unfolds to more than any dump holds$"):
            load_plain(pickle.dumps(value), unfolded=entries - 1)


def test_instructions_are_counted_but_not_references(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of so many is one too many, but for the end; here eight without the references."""
    data = b"\x80\x02(Nq\x00" + b"h\x00N" * 3 + b"t."
    monkeypatch.setattr(pickled, "_MOST_INSTRUCTIONS", 9)
    assert load_plain(data) == (None,) * 7
    monkeypatch.setattr(pickled, "_MOST_INSTRUCTIONS", 8)
    with pytest.raises(NotPlainError, match=r"^pickle has more than 8 instructions$"):
        load_plain(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        *((b"\x80\x02" + cut, CUT) for cut in (b"}", b"X\x02\x00\x00\x00a", b"j\x00", b"K\x07q\x01h")),
        (b"\x80\x02cos\nmkdir\n.", "pickle holds more than data: instruction GLOBAL at byte 2"),
        (b"\x80\x02I42\n.", "pickle holds more than data: instruction INT at byte 2"),
        # lengths of exabytes
        (b"\x80\x04\x8d" + HUGE + b".", "pickle holds more than data: instruction BINUNICODE8 at byte 2"),
        (b"\x80\x04\x8e" + HUGE + b".", "pickle holds more than data: instruction BINBYTES8 at byte 2"),
        (b"\x80\x02\x8b\xff\xff\xff\x7f.", "pickle holds more than data: instruction LONG4 at byte 2"),
        (b"\x80\x02K\x01K\x02a.", "pickle is damaged (items without a list)"),
        *(
            (data, "pickle is damaged (items without a dictionary)")
            for data in (
                *(b"\x80\x02]K\x01K\x02s.", b"\x80\x02}NK\x02s.", b"\x80\x02}]K\x01s."),
                b"\x80\x02}G" + b"\x00" * 8 + b"K\x02s.",
                # a deep key, refused before it is hashed: hashing nested tuples recurses and ends the process
                b"\x80\x02}" + (b"(" + b"N" * 16) * 50_000 + b")" + b"t" * 50_000 + b"K\x01s.",
            )
        ),
        *(
            (data, f"pickle is damaged ({error})")
            for error, *some in (
                ("IndexError", b"\x80\x02](K\x01ee.", b"\x80\x02]K\x01e.", b"\x80\x02K\x01\x86."),
                ("ValueError", b"\x80\x02K\x01\x85\x85K\x02.", b"\x80\x02K\x01K\x02.", b"\x80\x02."),
                ("ValueError", b"\x80\x02}(K\x01u."),
                ("KeyError", b"\x80\x02h\x05.", b"\x80\x02\xff\xfe\x00"),
                ("error", b"\x80\x02J\x01", b"\x80\x02G\x00"),
            )
            for data in some
        ),
        (b"\x80\x02]q\x00h\x00a.", "pickle holds an object that refers to itself"),
        (b"\x80\x02]q\x00]h\x00aa.", "pickle holds an object that refers to itself"),
    ],
    ids=range(28),
)
def test_what_is_wrong_with_it(data: bytes, why: str) -> None:
    with pytest.raises(NotPlainError) as raised:
        load_plain(data)
    assert str(raised.value) == why


def test_places_in_the_memo() -> None:
    """Instructions of either length refer to it, and to what was put there last."""
    both = b"h\x01j\x01\x00\x00\x00"
    data = b"\x80\x02(K\x07q\x01" + both + b"K\x08r\x01\x00\x00\x00" + both + b"K\x09\x94h\x01t."
    assert load_plain(data) == (7, 7, 7, 8, 8, 8, 9, 9)
    # `pickle.loads` of it takes a table of 2^32 places
    tracemalloc.start()
    try:
        assert load_plain(b"\x80\x02K\x07r\xff\xff\xff\x7f.") == 7
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_deep_data_is_only_data() -> None:
    """No recursion: neither in reading nor in counting."""
    deep = load_plain(b"\x80\x02" + (b"](" + b"N" * 16) * 50_000 + b"e" * 50_000 + b".")
    for _ in range(49_999):
        *_, deep = deep
    assert deep == [None] * 16


SHARED, PRIME = b"]q\x00", 2**61 - 1


@pytest.mark.parametrize(
    "data",
    [
        b"]" * 100_000 + b"a" * 99_999,  # nested
        b"(" + b"}" * 100_000 + b"t",  # side by side
        *(b"N" + b"\x85" * 100_000, b"(" * 50_000 + b"t" * 50_000),
        b"N" + b"\x94" * 100_000,  # each a further place in the memo
        SHARED + b"h\x00\x86q\x00" * 20_000,  # each twice as large as the one within it
        # All of one hash, so that each is compared with all before it.
        b"}(" + b"".join(b"\x8a\x0b" + (n * PRIME).to_bytes(11, "little") + b"N" for n in range(8000)) + b"u",
    ],
    ids=["nested", "dictionaries", "tuples", "marks", "memo", "doubled", "equal hashes"],
)
def test_what_takes_more_than_its_bytes_is_refused_early(data: bytes) -> None:
    """In less memory than a real dump of that size takes several times over; 40 bytes a byte at the most."""
    tracemalloc.start()
    try:
        with pytest.raises(NotPlainError, match=r"than data of its size|unfolds|than 64 bits"):
            load_plain(b"\x80\x02" + data + b".")
        assert tracemalloc.get_traced_memory()[1] < 40 * len(data)
    finally:
        tracemalloc.stop()


def test_as_many_containers_and_places_as_the_bytes_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickled, "_FEW", 2)
    lists = b"\x80\x02(" + b"]" * 4 + b"N" * 20 + b"t."  # 29 bytes: 1 more than the few
    assert pickled.most_containers(len(lists)) == 3
    with pytest.raises(NotPlainError, match=r"^pickle has more lists and dictionaries than data of its size"):
        load_plain(lists)
    assert load_plain(lists.replace(b"]]]", b"]")) == ([], [], *[None] * 20)
    kept = b"\x80\x02N" + b"\x94" * 4 + b"."  # 8 bytes: 1 more than the few
    with pytest.raises(NotPlainError, match=r"^pickle keeps more objects than data of its size$"):
        load_plain(kept)
    assert load_plain(kept.replace(b"\x94\x94", b"\x94")) is None


def test_what_cannot_be_rewritten_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.pkl"
    path.write_bytes(b"\x80\x02}")
    with pytest.raises(InputError, match=r"a.pkl: pickle is cut: it has no end; write it again"):
        rewrite_pickle(path, None, PlainRedactor())  # type: ignore[arg-type]
    path.write_bytes(b"\x80\x02" + (b"](" + b"N" * 16) * 5000 + b"e" * 5000 + b".")
    with pytest.raises(InputError, match=r"a.pkl: is nested too deeply; write it again"):
        rewrite_pickle(path, None, PlainRedactor())  # type: ignore[arg-type]


SHARED = ["a secret"]


@pytest.mark.parametrize(
    ("value", "expected", "counted"),
    [
        ("secret", "?", {("a key", "word"): 1}),
        ({"k": "secret", "n": [1, 2.5, None]}, {"k": "?", "n": [1, 2.5, None]}, {("k", "word"): 1}),
        ({"k": ("a", ["secret"])}, {"k": ("a", ["?"])}, {("k", "word"): 1}),
        ({"secret": 1, 7: "secret"}, {"?": 1, 7: "?"}, {("a key", "word"): 1, ("7", "word"): 1}),
        ({"private": "a", "k": "a"}, {"private": "", "k": "a"}, {("private", UNREAD): 1}),
        (
            {"private": {"k": "b"}, "n": {"private": 7}},
            {"private": {}, "n": {"private": None}},
            {("private", UNREAD): 2},
        ),
        ({"kept": "a secret", "k": "a"}, {"kept": "a secret", "k": "a"}, {}),
        (
            {"a": SHARED, "b": [SHARED] * 2},
            {"a": ["a ?"], "b": [["a ?"]] * 2},
            {(k, "word"): 1 for k in "ab"},
        ),
    ],
)
def test_texts_change_by_the_keys_they_are_the_values_of(tmp_path, value, expected, counted):
    path, target, redactor = tmp_path / "a.pkl", tmp_path / "b.pkl", PlainRedactor()
    path.write_bytes(pickle.dumps(value))
    rewrite_pickle(path, target, redactor)  # type: ignore[arg-type]
    assert load_plain(target.read_bytes()) == expected
    assert redactor.counted == counted


def test_what_was_shared_is_still_shared(tmp_path: Path) -> None:
    path, target = tmp_path / "a.pkl", tmp_path / "b.pkl"
    path.write_bytes(pickle.dumps({"b": [SHARED, SHARED], "c": SHARED}))
    rewrite_pickle(path, target, PlainRedactor())  # type: ignore[arg-type]
    new = load_plain(target.read_bytes())
    assert new["b"][0] is new["b"][1]
    assert target.read_bytes()[:2] == b"\x80\x02"
