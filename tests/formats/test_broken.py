# SPDX-License-Identifier: Apache-2.0
"""Damaged files: an error with file and byte, or, where allowed, the whole events before the damage."""

from __future__ import annotations

import gzip
import json
import re
import zlib

import pytest
from helpers.refused import refused

from cclbench.formats import json_events
from cclbench.ground.errors import InputError

BYTE = re.compile(r"byte ([\d,]+)")


def byte_of(error: InputError) -> int:
    return int(BYTE.search(error.where)[1].replace(",", ""))


@pytest.fixture
def whole(write, event):
    """A small file with every structure: outer keys on both sides, nested args, strings with brackets."""
    events = [
        event("cpu_op", "aten::mm", 1, 2, tid=3, **{"Input Dims": [[2, 3], []]}),
        event("kernel", "void f<{a}>(int[3])", 2, 3, correlation=1),
        *(event("user_annotation", 'say "}, {" now', 3, 1), event("kernel", "k", 6, 1, grid=[1, 2, 3])),
    ]
    info = {"rank": 1, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]}
    return write(events, schemaVersion=1, distributedInfo=info, after={"traceName": "x]y"})


def test_cut_at_every_byte_is_an_error_that_says_where(read, whole):
    text = whole.read_bytes()
    for size in range(len(text)):
        whole.write_bytes(text[:size])
        with pytest.raises(InputError) as caught:
            read(whole)
        assert caught.value.where.startswith(f"{whole}: byte "), size
        assert byte_of(caught.value) == (size if text[:size].strip() else 0)
    whole.write_bytes(text)
    assert len(read(whole).rows) == 4


def test_cut_at_every_byte_gives_what_is_whole_where_allowed(read, whole):
    text = whole.read_bytes()
    begin = text.index(b"[", text.index(b'"traceEvents"')) + 1
    closing = [begin + end for end in json_events._event_ends(text[begin:])]
    names = [row["name"] for row in sorted(read(whole).rows, key=lambda row: row["start_ns"])]
    for size in range(begin, len(text)):
        whole.write_bytes(text[:size])
        found = read(whole, allow_truncated=True)
        count = sum(1 for end in closing if end <= size)
        kept = sorted(found.rows, key=lambda row: row["start_ns"])
        assert [row["name"] for row in kept] == names[:count], size
        assert found.trace.cut.byte == size
        assert found.trace.cut.rows_whole == (size > text.index(b"]", closing[-1]))
        assert found.trace.facts.rank == 1
    for size in range(text.index(b'"traceEvents"') + len(b'"traceEvents": ')):
        whole.write_bytes(text[:size])
        with pytest.raises(InputError):
            read(whole, allow_truncated=True)


def test_bare_array_cut_at_every_byte(read, tmp_path, event):
    path = tmp_path / "trace.json"
    text = json.dumps([event("Kernel", "a", 1), event("Kernel", "b", 2)]).encode()
    for size in range(1, len(text)):
        path.write_bytes(text[:size])
        with pytest.raises(InputError) as caught:
            read(path)
        assert byte_of(caught.value) == size
        whole = read(path, allow_truncated=True)
        assert len(whole.rows) == (size >= text.index(b"}},") + 2) + (size == len(text) - 1)
    path.write_bytes(text)
    assert len(read(path).rows) == 2


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        *((b"caf\xe9", "not UTF-8"), (b"a\x00b", "invalid character"), (b"a\nb", "invalid character")),
        *((b"\\x41", "invalid escape character"), (b"\\ud800", "truncated")),
        (b'say "hi"', "expected ',' or '}'"),
    ],
)
def test_bad_bytes_in_a_name(read, write, event, name, reason):
    path = write([event("kernel", "first", 1), event("kernel", "MIDDLE", 2), event("kernel", "last", 3)])
    text = path.read_bytes()
    at = text.index(b"MIDDLE")
    path.write_bytes(text.replace(b"MIDDLE", name))
    with pytest.raises(InputError, match=re.escape(reason)) as caught:
        read(path)
    # Within the event, which begins 33 bytes before its name.
    assert at - 40 <= byte_of(caught.value) <= at + len(name) + 1
    assert "after 1 whole events" in str(caught.value)
    found = read(path, allow_truncated=True)
    assert [row["name"] for row in found.rows] == ["first"]
    assert found.trace.cut.byte == byte_of(caught.value)
    assert not found.trace.cut.rows_whole


@pytest.mark.parametrize("text", ['{"ph":"X","x":NaN}', '{"ph":"X","x":-Infinity}', '{"ph":"X","ts":1e999}'])
def test_numbers_that_json_does_not_have(read, write, text):
    refused(read, write([text]), "byte")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("ts", '"soon"'), ("ts", "true"), ("ts", "[]"), ("dur", '"1"'), ("name", "3"), ("name", "null")),
        *(("cat", "{}"), ("ph", "1"), ("tid", "1.5"), ("tid", "{}"), ("tid", "9" * 30), ("args", "[]")),
        ("pid", "-" + "9" * 30),
        *(
            ("args", f'{{"{name}": {value}}}')
            for name, values in {
                "correlation": ('"x"', "1e3000", "99999999999999999999"),
                "grid": ("3", '["a"]', "[4294967296, 1, 1]", "[8]"),
                "In msg nelems": ('"many"', "-1", "9223372036854775807"),
                "flops": ("1e308", "-1"),
            }.items()
            for value in values
        ),
        *(("args", '{"bytes": 99999999999999999999}'), ("args", '{"Seq": 99999999999999999999}')),
        *(("args", '{"Group size": "two"}'), ("args", '{"dtype": []}')),
        *(("args", '{"Process Group Ranks": [0, 1]}'), ("args", '{"Src Rank": 4294967296}')),
    ],
)
def test_wrong_types_and_absurd_numbers_name_the_event(read, write, event, field, value):
    bad = {**event("kernel", "BAD", 2), field: "VALUE"}
    path = write([event("kernel", "good", 1), json.dumps(bad).replace('"VALUE"', value)])
    with pytest.raises(InputError) as caught:
        read(path)
    text = path.read_bytes()
    assert byte_of(caught.value) == text.index(b'{"ph"', text.index(b"good"))
    assert [row["name"] for row in read(path, allow_truncated=True).rows] == ["good"]


@pytest.mark.parametrize("grid", [[2**31 - 1, 2**31 - 1, 8], [-1, 1, 1]])
def test_grid_beyond_the_schema(read, write, event, grid):
    path = write([event("kernel", "k", grid=grid)])
    within = f"{path}: within 1 MiB after byte {path.read_bytes().index(b'[') + 1}: "
    assert re.match(rf"{within}impossible grid of (-1 × 1 × 1 blocks|[0-9e.+]+ × )", refused(read, path))


@pytest.mark.parametrize("nested", ["args", "x"])
def test_deep_nesting(read, write, event, nested):
    deep = f'{{"ph": "X", "{nested}": {{"kind": {"[" * 1_000_000}1{"]" * 1_000_000}}}}}'
    path = write([event("kernel", "k", 1), deep, event("kernel", "later", 2)])
    with pytest.raises(InputError, match="nesting"):
        read(path)
    assert [row["name"] for row in read(path, allow_truncated=True).rows] == ["k"]


def test_deep_nesting_around_the_events_and_a_long_name(read, tmp_path, write, event):
    path = tmp_path / "trace.json"
    path.write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + ', "traceEvents": []}')
    refused(read, path, "nesting before the events")
    path = write([event("kernel", "x" * (9 << 20), 1), event("kernel", "y", 2)])
    assert [len(row["name"]) for row in read(path).rows] == [9 << 20, 1]


def test_white_space_after_the_end_and_names_do_not_matter(read, whole):
    whole.write_bytes(whole.read_bytes() + b" \n\t\r\n")
    assert len(read(whole).rows) == 4


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *(
            (text, "no traceEvents")
            for text in (
                *('{"traceEvents": {}}', '{"traceEvents": null}', '{"schemaVersion": 1}', "{}", "null"),
                *("hello", '{"traceEvents": 3, "x": [1]}'),
            )
        ),
        *(('{"traceEvents": [], "a": inf}', "after the events"), ("", "empty"), (" \n", "empty")),
        ('{"traceEvents": [{"ph": "X"},]}', "trailing comma"),
        ('{"traceEvents": [{"ph": "X"}}]}', "expected ',' or ']'"),
    ],
)
def test_broken_around_and_between_events(read, tmp_path, text, reason):
    path = tmp_path / "trace.json"
    path.write_text(text)
    assert f"{path}: byte " in refused(read, path, reason)


class TestGzip:
    """The same for compressed files."""

    def test_cut_at_every_byte(self, read, whole):
        packed = gzip.compress(whole.read_bytes())
        path = whole.with_name("cut.json.gz")
        for size in range(2, len(packed)):
            path.write_bytes(packed[:size])
            with pytest.raises(InputError) as caught:
                read(path)
            assert byte_of(caught.value) >= 0
            begun = b'"traceEvents": [' in zlib.decompressobj(31).decompress(packed[:size])
            if begun:
                assert read(path, allow_truncated=True).trace.cut.reason == "gzip stream is cut"
            else:
                with pytest.raises(InputError, match=r"gzip|no traceEvents"):
                    read(path, allow_truncated=True)

    def test_flipped_bytes_never_pass(self, read, write, event):
        path = write([event("kernel", f"k{i}", i) for i in range(200)], name="t.json.gz")
        packed = path.read_bytes()
        for at in range(10, len(packed), 7):
            path.write_bytes(packed[:at] + bytes([packed[at] ^ 0x55]) + packed[at + 1 :])
            with pytest.raises(InputError):
                read(path)

    def test_flipped_checksum_is_said_and_salvaged(self, read, whole):
        packed = bytearray(gzip.compress(whole.read_bytes()))
        packed[-6] ^= 1
        path = whole.with_name("t.json.gz")
        path.write_bytes(packed)
        refused(read, path, "damaged")
        found = read(path, allow_truncated=True)
        assert (len(found.rows), found.trace.cut.rows_whole) == (4, False)

    def test_bombs_text_behind_the_stream_and_what_is_no_deflate(self, read, whole, monkeypatch):
        path = whole.with_name("t.json.gz")
        path.write_bytes(gzip.compress(whole.read_bytes()) + b"more")
        refused(read, path, "damaged")
        path.write_bytes(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + b"\xff" * 50)
        refused(read, path, "gzip")
        # blanks before the events
        monkeypatch.setattr(json_events, "LONGEST_EVENT", 1 << 20)
        path.write_bytes(gzip.compress(b"{" + b" " * (5 << 20)))
        refused(read, path)


def test_missing_file_and_folder(read, tmp_path):
    for path in (tmp_path / "missing.json", tmp_path):
        refused(read, path, "cannot be read")
