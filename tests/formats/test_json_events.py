# SPDX-License-Identifier: Apache-2.0
"""Chunks and parts: wherever a file is cut, the events are those `json.loads` gives, in order."""

from __future__ import annotations

import gzip
import io
import json
import random
import zlib
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.formats import Part, json_events, trace_reader
from cclbench.formats import kineto as kineto_reader
from cclbench.formats.json_events import JsonEvents
from cclbench.ground.errors import InputError

DECODER = msgspec.json.Decoder(list[dict[str, Any]])

TEXT = st.text(st.sampled_from('ab"\\{}[],: \n/é\u2028'), max_size=12)
LOOKS_LIKE_EVENTS = st.lists(st.fixed_dictionaries({"name": TEXT}, optional={"ph": TEXT}), max_size=3)
DIMS = st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=2)
NAMES = st.sampled_from(["name", "ph", "x", "Input Dims"])
ARGS = st.dictionaries(NAMES, st.one_of(TEXT, LOOKS_LIKE_EVENTS, DIMS), max_size=3)
MORE = {"args": ARGS, "ts": st.integers(0, 99)}
EVENTS = st.lists(st.fixed_dictionaries({"ph": st.just("X"), "name": TEXT}, optional=MORE), max_size=12)
DEVICES = st.lists(st.fixed_dictionaries({"id": st.integers(0, 9)}), max_size=3)
KEYS = st.sampled_from(["deviceProperties", "traceName", "distributedInfo", "z"])
OUTER = st.dictionaries(KEYS, st.one_of(TEXT, LOOKS_LIKE_EVENTS, DEVICES), max_size=2)
LAYOUTS = st.sampled_from(
    [(None, (",", ":")), (None, (", ", ": ")), (1, (",", ": ")), (None, (",\n ", " : "))]
)


WHOLE: dict[str, Any] = {"events": EVENTS, "outer": st.tuples(OUTER, OUTER), "layout": LAYOUTS}
WHOLE["bare"] = st.booleans()


def written(
    events: list[Any], outer: tuple[dict[str, Any], dict[str, Any]], layout: Any, bare: bool
) -> bytes:
    (before, after), (indent, separators) = outer, layout
    whole = events if bare else {**before, "traceEvents": events, **{f"{k}_": v for k, v in after.items()}}
    return json.dumps(whole, indent=indent, separators=separators, ensure_ascii=False).encode()


@given(**WHOLE, packed=st.booleans(), chunk=st.sampled_from([1, 7, 64, 300]))
def test_any_chunks_give_what_json_gives(tmp_path, monkeypatch, events, outer, layout, bare, packed, chunk):
    """The last bytes are kept."""
    monkeypatch.setattr(json_events, "CHUNK", chunk)
    monkeypatch.setattr(json_events, "END", 8)
    path = tmp_path / "t.json"
    text = written(events, outer, layout, bare)
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    stream = JsonEvents(path, DECODER)
    got = []
    for chunk_text, decoded in stream:
        assert json.loads(chunk_text) == decoded
        got += decoded
    known = json.loads(text)
    assert got == (known if bare else known.pop("traceEvents"))
    assert stream.outer == ({} if bare else known)
    assert (stream.cut, stream.last, stream.forward, stream.end) == (None, True, packed, text[-8:])


@given(**WHOLE, size=st.sampled_from([20, 64, 200]))
def test_parts_together_are_the_whole(tmp_path, monkeypatch, events, outer, layout, bare, size):
    monkeypatch.setattr(json_events, "CHUNK", 128)
    monkeypatch.setattr(kineto_reader, "PART_BYTES", size)
    path = tmp_path / "t.json"
    text = written(events, outer, layout, bare)
    path.write_bytes(text)
    parts = trace_reader("kineto").parts(path)
    if parts != [Part()]:
        assert [parts[0].begin, parts[-1].end] == [0, len(text)]
        assert all(a.end == b.begin for a, b in pairwise(parts))
    try:
        streams = [JsonEvents(path, DECODER, part=part) for part in parts]
        got = [event for stream in streams for _, decoded in stream for event in decoded]
    except InputError:
        # Only what has a phase in a list of its own can be taken for an event.
        assert any("ph" in found for found in _nested(json.loads(text), 0))
        return
    known = json.loads(text)
    assert got == (known if bare else known["traceEvents"])


def _nested(value: Any, depth: int) -> list[dict[str, Any]]:
    """Dictionaries in lists, other than the events themselves."""
    if isinstance(value, dict):
        return [d for key, v in value.items() for d in _nested(v, 0 if key == "traceEvents" else depth + 1)]
    if isinstance(value, list):
        own = [v for v in value if isinstance(v, dict)] if depth else []
        return own + [d for v in value for d in _nested(v, depth + 1)]
    return []


@pytest.mark.parametrize("where", ["before", "after"])
def test_every_part_knows_the_base_time(read, write, monkeypatch, event, where):
    monkeypatch.setattr(kineto_reader, "PART_BYTES", 500)
    base = {"baseTimeNanoseconds": 1_700_000_000_000_000_000}
    events = [event("kernel", "k", i) for i in range(50)]
    path = write(events, **(base if where == "before" else {}), after=base if where == "after" else {"z": 1})
    parts = trace_reader("kineto").parts(path)
    assert len(parts) > 5
    starts = [row["start_ns"] for part in parts for row in read(path, part=part).rows]
    assert starts == [1_700_000_000_000_000_000 + 1000 * i for i in range(50)]


def test_kernels_are_numbered_within_their_part(read, write, monkeypatch, event):
    monkeypatch.setattr(kineto_reader, "PART_BYTES", 400)
    path = write([event("kernel", "n", i, **{"Collective name": "allreduce"}, Seq=i) for i in range(20)])
    whole = read(path).trace.stated_payloads
    merged = type(whole)()
    kernels = 0
    for part in trace_reader("kineto").parts(path):
        piece = read(path, part=part)
        merged.extend_with(piece.trace.stated_payloads, kernels)
        kernels += len(piece.of("kernel"))
    assert list(merged.row) == list(whole.row) == list(range(20))
    assert (list(merged.seq), list(merged.code)) == (list(whole.seq), list(whole.code))


def test_damage_in_a_part_is_an_error_not_a_traceback(read, write, monkeypatch, event):
    monkeypatch.setattr(kineto_reader, "PART_BYTES", 500)
    path = write([event("kernel", "k", i) for i in range(50)])
    parts = trace_reader("kineto").parts(path)
    text = bytearray(path.read_bytes())
    begin, end = parts[3].begin, parts[3].end
    text[(begin + end) // 2] = 0xFF
    path.write_bytes(text)
    with pytest.raises(InputError, match="byte"):
        read(path, part=parts[3])
    assert read(path, part=parts[2]).rows


def test_memory_is_that_of_a_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr(json_events, "CHUNK", 1 << 10)
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", "name": f"k{i}"} for i in range(5000)]}))
    assert max(len(chunk) for chunk, _ in JsonEvents(path, DECODER)) < 1 << 11


def stream_of(tmp_path: Path, text: bytes, **options: Any) -> JsonEvents[dict[str, Any]]:
    """What reads a file of that text; compressed text is read as such."""
    path = tmp_path / "t.json"
    path.write_bytes(text)
    return JsonEvents(path, DECODER, **options)


def events_of(stream: JsonEvents[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for _, decoded in stream for event in decoded]


def refusal(tmp_path: Path, text: bytes, **options: Any) -> InputError:
    """The error of reading that text."""
    with pytest.raises(InputError) as caught:
        events_of(stream_of(tmp_path, text, **options))
    return caught.value


def test_where_each_chunk_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_events, "CHUNK", 16)
    text = b' {"traceEvents" : [ {"ph": "1"}, {"ph": "2"} , {"ph": "3"}]}'
    stream = stream_of(tmp_path, text)
    begins = [(stream.position, decoded[0]["ph"]) for _, decoded in stream]
    places = (text.index(b"[") + 1, text.index(b'{"ph": "2'), text.index(b'{"ph": "3'))
    assert begins == [*zip(places, "123", strict=True)]


class TestBounds:
    """How far is read for one thing: with blocks of a byte, to the byte."""

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(json_events, "CHUNK", 1)
        monkeypatch.setattr(json_events, "LONGEST_EVENT", 64)

    BEGINS, SEEN, BEHIND = b'"traceEvents":[', b',{"ph":', b',"d":[{"id":0},{"id":1}],"a":"'

    def test_of_what_stands_before_the_events(self, tmp_path: Path) -> None:
        for size in (64, 65):
            text = b'{"a":"' + b"x" * (size - len(self.BEGINS) - 8) + b'",' + self.BEGINS
            assert len(text) == size
            if size == 64:
                assert events_of(stream_of(tmp_path, text + b"]}")) == []
        assert str(refusal(tmp_path, text + b"]}")) == (
            f"{tmp_path / 't.json'}: byte 65: no traceEvents before it;"
            " is this a Chrome-JSON trace, and all of it?"
        )

    def test_of_an_event_and_of_what_stands_behind_them(self, tmp_path: Path) -> None:
        for size in (65, 66):
            event = b'{"ph":"' + b"x" * (size - len(self.SEEN) - 9) + b'"}'
            behind = self.BEHIND + b"x" * (size - 32) + b'"}'
            assert len(event + self.SEEN) == len(behind) == size
            long = b'{"traceEvents":[' + event + self.SEEN + b'"y"}]}'
            text = b'{"traceEvents":[{"ph":"X"}]' + behind
            if size == 65:
                assert [event["ph"][:1] for event in events_of(stream_of(tmp_path, long))] == ["x", "y"]
                stream = stream_of(tmp_path, text)
                assert events_of(stream) == [{"ph": "X"}]
                assert stream.outer == {"d": [{"id": 0}, {"id": 1}], "a": "x" * (size - 32)}
        error = refusal(tmp_path, long)
        assert error.what == "an event is longer than 0 MiB (after 0 whole events)"
        assert error.where == f"{tmp_path / 't.json'}: byte 16"
        assert refusal(tmp_path, text).what == "truncated after the events (after 1 whole events)"

    @pytest.mark.parametrize(("fold", "longest", "fits"), [(0, 0, True), (-1, 0, False), (-1, 1, True)])
    def test_of_what_a_compressed_file_expands_to(self, tmp_path, monkeypatch, fold, longest, fits):
        text = b'{"traceEvents":[' + b'{"ph":"X"},' * 30 + b'{"ph":"X"}]}'
        packed = gzip.compress(text)
        monkeypatch.setattr(json_events, "LARGEST_RATIO", Fraction(len(text) + fold, len(packed)))
        monkeypatch.setattr(json_events, "LONGEST_EVENT", len(text) - 1 + longest)
        if fits:
            assert len(events_of(stream_of(tmp_path, packed))) == 31
        else:
            error = refusal(tmp_path, packed)
            assert "-fold, like a decompression bomb (after 30 whole events)" in error.what
            assert error.where == f"{tmp_path / 't.json'}: byte {len(text)}"


def test_an_event_is_longer_than_so_many_mebibytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (json_events.CHUNK, json_events.LONGEST_EVENT, json_events.END) == (1 << 20, 64 << 20, 64 << 10)
    monkeypatch.setattr(json_events, "CHUNK", 1 << 19)
    monkeypatch.setattr(json_events, "LONGEST_EVENT", 3 << 20)
    error = refusal(tmp_path, b'[{"ph":"' + b"x" * (5 << 20))
    assert error.what == "an event is longer than 3 MiB (after 0 whole events)"


@pytest.mark.parametrize(
    ("text", "byte", "events", "reason"),
    [
        ('{"a" 1, "traceEvents": []}', 5, 0, "expected ':' before the events"),
        ('{"a": 1} "traceEvents": [', 9, 0, "other text before the events"),
        ('{"traceEvents": [] "a": 1}', 19, 0, "expected ',' or '}' after the events"),
        ('{"traceEvents": [{"ph": "X"}] ', 30, 1, "truncated after the events"),
        ('{"traceEvents": [{"ph": "X"}]} x', 31, 1, "other text after the events"),
        ('{"traceEvents": [], "traceEvents": []}', 18, 0, "a second traceEvents"),
        *(('[{"ph": "X"}]' + end, 13, 1, "text follows the array of events") for end in ("\0", "}")),
        (' [{"ph": "X"}] x', 15, 1, "text follows the array of events"),
        ('{"traceEvents": [1, 2]}', 17, 0, "Expected 'object', got 'int' - at 'event'"),
        ('[{"ph": "X"}, 3, {"ph": "X"}, {"ph": "Y"}]', 14, 1, "Expected 'object', got 'int' - at 'event'"),
        ('[{"ph": "X"}, {"ph": "X"} {"ph": "X"}]', 26, 2, "expected ',' or ']' in an event"),
    ],
)
def test_faults_are_located_by_byte(tmp_path: Path, text: str, byte: int, events: int, reason: str) -> None:
    error = refusal(tmp_path, text.encode())
    assert error.where == f"{tmp_path / 't.json'}: byte {byte}"
    assert error.what == f"{reason} (after {events} whole events)"
    assert error.hint == "re-run with --allow-truncated to use the part before it"


class TestParts:
    """Ranges of a file, by hand: each part has its own events and knows what stands before them all."""

    TEXT = b'{"a": 1, "traceEvents": [{"ph": "0"}, {"ph": "1"} ,\n{"ph": "2"}, {"ph": "3"}], "b": 2}'

    def begins(self) -> list[int]:
        return [self.TEXT.index(b'{"ph": "%d"' % i) for i in range(4)]

    @pytest.mark.parametrize("chunk", [1, 7, 1000])
    def test_events_of_a_range(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
        monkeypatch.setattr(json_events, "CHUNK", chunk)
        _, one, two, three = self.begins()
        for begin, end, found, outer in (
            (0, two, "01", {"a": 1}),
            (one, two, "1", {"a": 1}),
            (two, three, "2", {"a": 1}),
            (one, None, "123", {"a": 1, "b": 2}),
            (three, len(self.TEXT), "3", {"a": 1, "b": 2}),
        ):
            stream = stream_of(tmp_path, self.TEXT, part=Part(begin=begin, end=end))
            assert [event["ph"] for event in events_of(stream)] == list(found)
            assert (stream.outer, stream.last) == (outer, end in (None, len(self.TEXT)))

    def test_a_range_beyond_the_events_is_refused(self, tmp_path: Path) -> None:
        part = Part(begin=self.begins()[2], end=len(self.TEXT) - 1)
        error = refusal(tmp_path, self.TEXT, part=part)
        assert error.what == "the events end before their part of the file (after 0 whole events)"
        assert error.where == f"{tmp_path / 't.json'}: byte {self.TEXT.index(b']') + 1}"

    def test_where_the_next_event_begins(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "t.json"
        path.write_bytes(self.TEXT)
        first, one, two, three = self.begins()
        found = [json_events.first_event(path, at) for at in (first, first + 10, first + 11, one, two, three)]
        assert found == [one, one, two, two, three, None]
        # A chunk ends with the event, or one byte short of it.
        monkeypatch.setattr(json_events, "CHUNK", one + len(b'{"ph": "1"}') - first)
        assert json_events.first_event(path, first) == one
        monkeypatch.setattr(json_events, "CHUNK", one + len(b'{"ph": "1') - first)
        assert json_events.first_event(path, first) is None

    @pytest.mark.parametrize(
        ("inside", "sure"), [('{"name": "x"}, {"name": "y"}', False), ('{"name": "x"}, {"ph": "y"}', True)]
    )
    def test_only_what_has_a_phase_begins_an_event(self, tmp_path: Path, inside: str, sure: bool) -> None:
        text = f'[{{"x": [{inside}]}}, {{"ph": "1"}}]'
        (tmp_path / "t.json").write_text(text)
        found = json_events.first_event(tmp_path / "t.json", 0)
        assert found == text.index('{"ph": "y"' if sure else '{"ph": "1"')


class TestInflated:
    """A compressed file's parts, each a file of its own that begins like the whole."""

    TEXT = b'{"a":1,"traceEvents":[' + b",".join(b'{"ph":"%02d"}' % i for i in range(40)) + b'],"b":2}'

    @pytest.fixture(autouse=True)
    def _written(self, tmp_path: Path) -> None:
        (tmp_path / "t.json.gz").write_bytes(gzip.compress(self.TEXT))
        (tmp_path / "parts").mkdir()

    @pytest.mark.parametrize("chunk", [48, 100, 1000])
    @pytest.mark.parametrize("size", [1, 100, 130])
    def test_parts_cover_the_file_and_are_of_about_that_size(self, tmp_path, monkeypatch, chunk, size):
        for name in ("CHUNK", "PIECE"):
            monkeypatch.setattr(json_events, name, chunk)
        path = tmp_path / "t.json.gz"
        parts = list(JsonEvents(path, DECODER).inflated_parts(tmp_path / "parts", size))
        names = [f"inflated-{i:03d}.json" for i in range(len(parts))]
        assert [Path(part.inflated or "").name for part in parts] == names
        assert [part.begin for part in parts] == [0, *(part.end for part in parts[:-1])]
        assert parts[-1].end is None
        found = []
        for part in parts:
            begin, end = part.begin or 0, len(self.TEXT) if part.end is None else part.end
            assert Path(part.inflated or "").read_bytes() == self.TEXT[:22] + self.TEXT[max(begin, 22) : end]
            # At least the size asked for, and no more than two blocks beyond it.
            assert part.end is None or size <= end - begin < size + 2 * chunk
            stream = JsonEvents(path, DECODER, part=part)
            assert (stream.last, stream.forward) == (part.end is None, True)
            found += [event["ph"] for event in events_of(stream)]
            assert stream.outer == ({"a": 1, "b": 2} if part.end is None else {"a": 1})
        assert found == [f"{i:02d}" for i in range(40)]

    @pytest.mark.parametrize(("size", "end"), [(48, 58), (49, 106), (96, 106), (97, 154)])
    def test_a_part_of_the_size_ends_with_the_next_event(self, tmp_path, monkeypatch, size, end):
        """Blocks end at 48, 96 and 144; the first events that begin behind these, at 58, 106 and 154."""
        for name in ("CHUNK", "PIECE"):
            monkeypatch.setattr(json_events, name, 48)
        path = tmp_path / "t.json.gz"
        assert next(JsonEvents(path, DECODER).inflated_parts(tmp_path, size)).end == end

    def test_of_a_bare_array(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(json_events, "CHUNK", 30)
        path = tmp_path / "t.json.gz"
        path.write_bytes(gzip.compress(b' [{"ph":"1"}, {"ph":"2"}, {"ph":"3"}, {"ph":"4"}]'))
        parts = list(JsonEvents(path, DECODER).inflated_parts(tmp_path, 10))
        assert [(part.begin, part.end) for part in parts] == [(0, 38), (38, None)]
        texts = [Path(part.inflated or "").read_bytes() for part in parts]
        assert texts == [b'[{"ph":"1"}, {"ph":"2"}, {"ph":"3"}, ', b'[{"ph":"4"}]']


class TestGivenUp:
    """What stands before damage is used on request, and it is told where that begins."""

    def test_of_a_cut_stream_all_that_it_still_gives(self, tmp_path: Path) -> None:
        chance = random.Random(1)  # noqa: S311
        words = [chance.randbytes(12).hex().encode() for _ in range(9000)]  # which compress little
        text = b'{"traceEvents":[' + b",".join(b'{"ph":"X","x":"%s"}' % word for word in words) + b"]}"
        packed = gzip.compress(text)
        packed = packed[: len(packed) // 2]
        given = len(zlib.decompressobj(31).decompress(packed))
        stream = stream_of(tmp_path, packed, allow_truncated=True)
        found = events_of(stream)
        assert given - json_events.PIECE <= stream.cut.byte <= given
        assert len(found) == text[: stream.cut.byte].count(b"}")
        assert (stream.cut.reason, stream.cut.rows_whole) == ("gzip stream is cut", False)
        assert stream.end == text[: stream.cut.byte][-json_events.END :]
        error = refusal(tmp_path, packed)
        assert error.what == "gzip stream is cut"
        assert error.where == f"{tmp_path / 't.json'}: decompressed byte {stream.cut.byte:,}"

    @pytest.mark.parametrize(("chunk", "end"), [(40, 64), (1 << 20, 64), (40, 1 << 20)])
    def test_of_a_compressed_file_the_end_is_read_behind_what_is_damaged(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, end: int
    ) -> None:
        monkeypatch.setattr(json_events, "CHUNK", chunk)
        monkeypatch.setattr(json_events, "END", end)
        text = b'{"traceEvents":[{"ph":"X"},{"ph":3},{"ph":"Y"}],"after":"' + b"x" * 99_999 + b'"}'
        stream = stream_of(tmp_path, gzip.compress(text), allow_truncated=True)
        stream.decoder = msgspec.json.Decoder(list[dict[str, str]])
        assert events_of(stream) == [{"ph": "X"}]
        assert (stream.cut.byte, stream.cut.reason) == (27, "Expected 'str', got 'int' - at 'event[...]'")
        assert stream.end == text[-end:]

    @pytest.mark.parametrize("behind", [b"", b"]", b'], "a"', b'], "a": 1', b'], "a": 1} x'])
    def test_what_follows_the_rows_may_be_damaged_alone(self, tmp_path: Path, behind: bytes) -> None:
        text = b'{"traceEvents": [{"ph": "X"}' + behind
        stream = stream_of(tmp_path, text, allow_truncated=True)
        assert events_of(stream) == [{"ph": "X"}]
        assert stream.cut.byte == len(text) - behind.endswith(b"x")
        assert stream.cut.rows_whole is (behind != b"")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.json"
    path.write_text("[]")
    with pytest.raises(InputError) as caught:
        JsonEvents(path, DECODER, part=Part(begin=0, inflated=str(tmp_path / "gone")))
    assert str(caught.value) == f"{path}: cannot be read: No such file or directory"

    class Broken(io.BytesIO):
        def read1(self, *_: object) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(json_events, "open_bytes", lambda _: Broken())
    with pytest.raises(InputError) as caught:
        events_of(JsonEvents(path, DECODER))
    assert str(caught.value) == f"{path}: cannot be read: Input/output error"
