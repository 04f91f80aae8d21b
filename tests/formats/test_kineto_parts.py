# SPDX-License-Identifier: Apache-2.0
"""How sure the reader is of a file, and which parts it reads on their own."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from cclbench.formats import Part, json_events
from cclbench.formats import kineto as kineto_reader
from cclbench.formats.kineto import Kineto


@pytest.mark.parametrize(
    ("head", "sure"),
    [
        *((b'{"schemaVersion": 1', 0.9), (b' \n{"deviceProperties": [', 0.9)),
        *((b'{"traceEvents": [{"cat": "kernel"', 0.6), (b'{"traceEvents": [{"cat" : "user_annotation"', 0.6)),
        *((b'[{"cat": "Kernel"', 0.6), (b'[{"schemaVersion": 1}, {"cat": "cpu_op"', 0.6)),
        *((b'{"cat": "kernel"', 0.0), (b'{"traceEvents": [{"cat": "kernels"', 0.0)),
        *((b'[{"schemaVersion": 1}', 0.0), (b'x{"schemaVersion": 1', 0.0), (b"", 0.0)),
    ],
)
def test_how_sure_it_is_of_a_beginning(head: bytes, sure: float) -> None:
    assert Kineto().sniff(head) == sure


def test_parts_are_no_more_than_999() -> None:
    assert kineto_reader.PART_BYTES == 32 << 20


class TestParts:
    """Of files of a size, with parts as small as that shows."""

    @staticmethod
    def file(folder: Path, events: int) -> tuple[Path, list[int]]:
        """A file of so many events of eleven bytes with a comma, and where each begins."""
        path = folder / "t.json"
        text = b'{"traceEvents":[' + b",".join([b'{"ph":"X"}'] * events) + b"]}"
        path.write_bytes(text)
        return path, [16 + 11 * i for i in range(events)]

    @pytest.mark.parametrize(("size", "count"), [(100, 11), (500, 2), (558, 2), (559, 1), (2000, 1)])
    def test_they_begin_at_the_first_event_behind_their_share(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, count: int
    ) -> None:
        path, begins = self.file(tmp_path, 100)
        whole = path.stat().st_size
        assert whole == 1117
        monkeypatch.setattr(kineto_reader, "PART_BYTES", size)
        # An event is known by the end of the one before it, two bytes ahead.
        cuts = [next(b for b in begins if b - 2 >= whole * i // count) for i in range(1, count)]
        expected = [Part(begin=b, end=e) for b, e in zip([0, *cuts], [*cuts, whole], strict=True)]
        assert Kineto().parts(path) == (expected if count > 1 else [Part()])

    def test_they_are_no_more_than_999(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path, _ = self.file(tmp_path, 3000)
        monkeypatch.setattr(kineto_reader, "PART_BYTES", 1)
        assert len(Kineto().parts(path)) == 999

    def test_large_compressed_files_are_streams(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Such files are at least fifteen times as large when inflated."""
        path, _ = self.file(tmp_path, 100)
        path.write_bytes(gzip.compress(path.read_bytes()))
        monkeypatch.setattr(kineto_reader, "PART_BYTES", path.stat().st_size * 15 / 2)
        assert Kineto().parts(path) == [Part(stream=True)]
        monkeypatch.setattr(kineto_reader, "PART_BYTES", path.stat().st_size * 15 / 2 + 0.25)
        assert Kineto().parts(path) == [Part()]

    @pytest.mark.parametrize(("asked", "size"), [(1, 120), (300, 300)])
    def test_a_stream_is_cut_into_parts_of_that_size_or_what_makes_999_of_the_largest(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: int, size: int
    ) -> None:
        path, _ = self.file(tmp_path, 100)
        packed = gzip.compress(path.read_bytes(), mtime=0)
        path.write_bytes(packed + bytes(300 - len(packed)))
        assert path.stat().st_size * 400 // 999 == 120
        monkeypatch.setattr(kineto_reader, "PART_BYTES", asked)
        for name in ("CHUNK", "PIECE"):
            monkeypatch.setattr(json_events, name, 24)
        lengths = []
        for part in Kineto().inflate_parts(path, tmp_path):
            assert part.begin is not None
            lengths.append(part.end and part.end - part.begin)
        assert len(lengths) > 2
        # The first ends where a block does that holds an event's begin.
        assert all(size <= length < size + 48 for length in lengths[:-1] if length is not None)
