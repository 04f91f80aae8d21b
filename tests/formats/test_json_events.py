# SPDX-License-Identifier: Apache-2.0
"""Chunks and parts: wherever a file is cut, the events are those `json.loads` gives, in order."""

from __future__ import annotations

import gzip
import json
import random
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cclbench.errors import InputError
from cclbench.formats import Part, json_events, trace_reader
from cclbench.formats import kineto as kineto_reader
from cclbench.formats.json_events import JsonEvents

DECODER = msgspec.json.Decoder(list[dict[str, Any]])

TEXT = st.text(st.sampled_from('ab"\\{}[],: \n/é\u2028'), max_size=12)
LOOKS_LIKE_EVENTS = st.lists(st.fixed_dictionaries({"name": TEXT}, optional={"ph": TEXT}), max_size=3)
ARGS = st.dictionaries(
    st.sampled_from(["name", "ph", "x", "Input Dims"]),
    st.one_of(TEXT, LOOKS_LIKE_EVENTS, st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=2)),
    max_size=3,
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {"ph": st.just("X"), "name": TEXT}, optional={"args": ARGS, "ts": st.integers(0, 99)}
    ),
    max_size=12,
)
OUTER = st.dictionaries(
    st.sampled_from(["deviceProperties", "traceName", "distributedInfo", "z"]),
    st.one_of(
        TEXT, LOOKS_LIKE_EVENTS, st.lists(st.fixed_dictionaries({"id": st.integers(0, 9)}), max_size=3)
    ),
    max_size=2,
)
LAYOUTS = st.sampled_from(
    [(None, (",", ":")), (None, (", ", ": ")), (1, (",", ": ")), (None, (" ,\n ", " : "))]
)


def written(
    events: list[Any], before: dict[str, Any], after: dict[str, Any], layout: Any, bare: bool
) -> bytes:
    indent, separators = layout
    whole = events if bare else {**before, "traceEvents": events, **{f"{k}_": v for k, v in after.items()}}
    return json.dumps(whole, indent=indent, separators=separators, ensure_ascii=False).encode()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=EVENTS,
    before=OUTER,
    after=OUTER,
    layout=LAYOUTS,
    bare=st.booleans(),
    packed=st.booleans(),
    chunk=st.sampled_from([1, 7, 64, 300]),
)
def test_any_chunk_size_gives_what_json_gives(
    tmp_path, monkeypatch, events, before, after, layout, bare, packed, chunk
):
    monkeypatch.setattr(json_events, "CHUNK", chunk)
    path = tmp_path / "t.json"
    text = written(events, before, after, layout, bare)
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    stream = JsonEvents(path, DECODER)
    got = [event for chunk_text, decoded in stream for event in _same(chunk_text, decoded)]
    known = json.loads(text)
    assert got == (known if bare else known.pop("traceEvents"))
    assert stream.outer == ({} if bare else known)
    assert stream.cut is None


def _same(chunk: bytes, decoded: list[Any]) -> list[Any]:
    assert json.loads(chunk) == decoded
    return decoded


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=EVENTS,
    before=OUTER,
    after=OUTER,
    layout=LAYOUTS,
    bare=st.booleans(),
    size=st.sampled_from([20, 64, 200]),
)
def test_parts_together_are_the_whole(tmp_path, monkeypatch, events, before, after, layout, bare, size):
    monkeypatch.setattr(json_events, "CHUNK", 128)
    monkeypatch.setattr(kineto_reader, "PART_BYTES", size)
    path = tmp_path / "t.json"
    text = written(events, before, after, layout, bare)
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


def test_parts_begin_at_events_whatever_lies_inside_them(tmp_path, monkeypatch, read, event):
    """Brackets in strings and lists of dictionaries in `args` look like the space between events."""
    monkeypatch.setattr(kineto_reader, "PART_BYTES", 700)
    rows = random.Random(5)  # noqa: S311
    events = []
    for i in range(120):
        shapes = [{"name": "a"}, {"name": "b"}, {"id": i}] * rows.randrange(3)
        name = rows.choice(["k", 'a},{"ph":', "x},{}", "]}, {"])
        events.append(event("kernel", f"{name}{i}", i, x=shapes, y=[{}, {}], correlation=i))
    path = tmp_path / "t.json"
    path.write_text(
        json.dumps({"deviceProperties": [{"id": 0}, {"id": 1}], "rank": 1, "traceEvents": events})
    )
    parts = trace_reader("kineto").parts(path)
    assert len(parts) > 20
    whole = read(path)
    pieces = [read(path, part=part) for part in parts]
    assert [row for piece in pieces for row in piece.rows] == whole.rows
    assert {piece.trace.facts.rank for piece in pieces} == {1}


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


def test_parts_of_a_bare_array(read, tmp_path, monkeypatch, event):
    monkeypatch.setattr(kineto_reader, "PART_BYTES", 500)
    path = tmp_path / "t.json"
    path.write_text(json.dumps([event("Kernel", f"k{i}", i) for i in range(50)]))
    parts = trace_reader("kineto").parts(path)
    assert len(parts) > 5
    assert [r["name"] for part in parts for r in read(path, part=part).rows] == [f"k{i}" for i in range(50)]


def test_kernels_are_numbered_within_their_part(read, write, monkeypatch, event):
    monkeypatch.setattr(kineto_reader, "PART_BYTES", 400)
    path = write([event("kernel", "n", i, **{"Collective name": "allreduce"}, Seq=i) for i in range(20)])
    whole = read(path).trace.told
    merged = type(whole)()
    kernels = 0
    for part in trace_reader("kineto").parts(path):
        piece = read(path, part=part)
        merged.extend(piece.trace.told, kernels)
        kernels += len(piece.of("kernel"))
    assert list(merged.row) == list(whole.row) == list(range(20))
    assert (list(merged.seq), list(merged.code)) == (list(whole.seq), list(whole.code))


def test_compressed_and_small_files_have_no_parts(write, event):
    reader = trace_reader("kineto")
    assert reader.parts(write([event("kernel", "k")], name="a.json.gz")) == [Part()]
    assert reader.parts(write([event("kernel", "k")])) == [Part()]


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
