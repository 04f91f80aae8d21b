# SPDX-License-Identifier: Apache-2.0
"""Texts as editors, terminals and other systems leave them: to every reader of evidence the same."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from helpers.changed_bytes import read_or_refused
from helpers.refused import refused

from cclbench.formats import EvidenceReader, texts
from cclbench.formats.dcgm import Dcgm
from cclbench.formats.fabric_counters import FabricCounters
from cclbench.formats.flight_recorder import FlightRecorder
from cclbench.formats.nccl_inspector import NcclInspector
from cclbench.formats.nccl_log import NcclLog
from cclbench.formats.nccl_tests import NcclTests
from cclbench.formats.nvidia_smi import NvidiaSmi
from cclbench.formats.serving import Serving
from cclbench.formats.texts import (
    LONGEST_LINE,
    damaged_error,
    numbered_lines,
    parse_decimal,
    raw_lines,
    read_beginning,
    read_whole,
    reason_of,
    strip_decoration,
)

PORT = "/sys/class/infiniband/rdmap0s6/ports/1/hw_counters/"
SAMPLES: dict[str, tuple[EvidenceReader, str]] = {
    "serving": (
        Serving(),
        '{"backend": "vllm",\n"tokenizer_id": "m", "num_prompts": 1,\n"mean_ttft_ms": 3.5}\n',
    ),
    "table": (
        NcclTests(),
        "# Collective test starting: all_gather_perf\n"
        "#       size   count    type  redop  root   time  algbw  busbw #wrong   time  algbw  busbw #wrong\n"
        "#        (B)   (elements)               (us)  (GB/s)  (GB/s)        (us)  (GB/s)  (GB/s)\n"
        "  1048576   131072   float  none    -1  339.61   3.09   1.54      0  335.85   3.12   1.56    N/A\n"
        "# Out of bounds values : 0 OK\n",
    ),
    "log": (NcclLog(), "node:1:1 [0] NCCL INFO Using network Socket\nNCCL version 2.18.5+cuda12.2\n"),
    "inspector": (
        NcclInspector(),
        '{"header": {"id": "0x1", "n_ranks": 2, "nnodes": 1}, "coll_perf": {"coll": "AllReduce",'
        ' "coll_sn": 1, "coll_msg_size_bytes": 4, "coll_exec_time_us": 5}}\n',
    ),
    "recorder": (
        FlightRecorder(),
        '{"version": "2.10",\n"pg_config": {}, "pg_status": {},\n'
        '"entries": [{"profiling_name": "nccl:all_reduce", "collective_seq_id": 1, "state": "started"}]}\n',
    ),
    "dmon": (Dcgm(), "#Entity   SMACT   NVLTX\nID\nGPU 0     0.512   1000\nGPU 0     0.612   2000\n"),
    "nvlink": (
        NvidiaSmi(),
        "GPU 0: NVIDIA H100 (UUID: GPU-1)\n\t Link 0: Data Tx: 10 KiB\n\t Link 0: Data Rx: 20 KiB\n",
    ),
    "ports": (FabricCounters(), f"{PORT}rx_bytes:5\n{PORT}tx_bytes:7\n"),
}
DRESSES: dict[str, Callable[[str], bytes]] = {
    "byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "carriage returns": lambda text: text.replace("\n", "\r\n").encode(),
    "blank lines at the end": lambda text: text.encode() + b"\n\r\n\n",
    "gzip": lambda text: gzip.compress(text.encode()),
    "colours": lambda text: "".join(f"\x1b[1;32m{x}\x1b[0m\x1b[K\n" for x in text.splitlines()).encode(),
}


def _told(reader: EvidenceReader, path: Path) -> Any:
    told = reader.read(path)
    tables = (told.requests, told.serving, told.timings, told.counters)
    rows = [None if table is None else table.to_pylist() for table in tables]
    return rows, told.facts, told.left_out, told.notes


DRESSED = [
    (sample, dress)
    for sample in SAMPLES
    for dress in DRESSES
    if dress != "colours" or sample in ("table", "log", "dmon", "nvlink", "ports")
]


@pytest.mark.parametrize(("sample", "dress"), DRESSED)
def test_a_dressed_file_is_the_same_file(tmp_path: Path, sample: str, dress: str) -> None:
    reader, text = SAMPLES[sample]
    plain, dressed = tmp_path / "plain.log", tmp_path / "dressed.log"
    plain.write_text(text)
    dressed.write_bytes(DRESSES[dress](text))
    if dress != "gzip":
        assert reader.sniff(dressed.read_bytes()) == reader.sniff(text.encode()) > 0
    told = _told(reader, plain)
    assert any(told[0]) or told[1]
    assert _told(reader, dressed) == told


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_damaged_file_is_refused_by_every_reader(tmp_path: Path, sample: str) -> None:
    """One that is missing or cut always, one of changed bytes unless it can be read."""
    reader, text = SAMPLES[sample]
    refused(reader.read, tmp_path / "none.log", "cannot be read")
    read_or_refused(reader.read, tmp_path / "changed.log", text.encode())
    path = tmp_path / "cut.log.gz"
    path.write_bytes(gzip.compress(text.encode())[:-9])
    refused(reader.read, path, "gzip stream is damaged")


def test_lines_have_bounds_and_keep_their_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("a\n" + "x" * (3 * LONGEST_LINE) + "\nb")
    assert list(numbered_lines(path, 1 << 30)) == [(1, "a"), (2, "x" * LONGEST_LINE), (3, "b")]
    path.write_bytes(b"x\n" * 3)
    assert read_whole(path, 6) == b"x\n" * 3
    assert list(numbered_lines(path, 6)) == [(1, "x"), (2, "x"), (3, "x")]
    for read in (read_whole, lambda path, most: list(numbered_lines(path, most))):
        refused(lambda path, read=read: read(path, 5), path, "is larger than 0 MiB")
    path = tmp_path / "a.log"
    assert LONGEST_LINE == 64 << 10
    long = b"x" * LONGEST_LINE, b"z" * (LONGEST_LINE - 1) + b"\n"
    path.write_bytes(long[0] + b"\n\n\x1b[31my\x1b[0m\r\n" + long[1] + b"\xff ")
    lines = (long[0], b"\n", b"y\r\n", long[1], b"\xff ")
    assert list(raw_lines(path, 1 << 20)) == [*enumerate(lines, 1)]
    assert [line for _, line in numbered_lines(path, 1 << 20)][2::2] == ["y", "\ufffd"]


def test_what_compresses_well_is_read_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MiB, or 400 times what the file has where that is more, or `most` where that is less."""
    path = tmp_path / "a.log"
    path.write_bytes(gzip.compress(bytes(64 << 20)))
    assert len(read_whole(path, 1 << 40)) == 64 << 20
    path.write_bytes(gzip.compress(bytes((64 << 20) + 1)))
    for most, said in ((1 << 40, 64), (3 << 20, 3)):
        message = refused(lambda path, most=most: read_whole(path, most, hint="try again"), path)
        assert message == f"{path}: is larger than {said} MiB; try again"
    monkeypatch.setattr(texts, "_LEAST_LIMIT", 1)
    path.write_bytes(b"\x1f\x8b" + bytes(98))
    for size, fits in ((40_000, True), (40_001, False)):
        monkeypatch.setattr(texts, "open_bytes", lambda _, size=size: io.BytesIO(b"\n" * size))
        if fits:
            assert len(read_whole(path, 1 << 40)) == len(list(numbered_lines(path, 1 << 40))) == size
        else:
            refused(lambda path: read_whole(path, 1 << 40), path, "larger")
            refused(lambda path: list(numbered_lines(path, 1 << 40)), path, "larger")


def test_a_beginning_is_bare_and_as_long_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"\xef\xbb\xbfabc\x1b[mdef")
    assert [read_beginning(path, size) for size in (3, 5, 99)] == [b"", b"ab", b"abcdef"]
    assert read_whole(path, 99) == b"abc\x1b[mdef"
    # only what terminals and editors add is removed
    text = b"\xef\xbb\xbf\x1b[31ma\x1b[mb\x1b[2Jc \xef\xbb\xbf"
    assert strip_decoration(text) == b"ab\x1b[2Jc \xef\xbb\xbf"


def test_numbers_and_reasons_as_printed() -> None:
    for text in ("", "-1", "1e", "0x1", "1_0", "nan", "inf", "1" * 21, "1.5.2", "\u0661"):
        assert parse_decimal(text) is None
    for text in ("0", "12.5", "1e5", "1.5E-12", "12345678901234567890.12345678901234567890e+99"):
        assert parse_decimal(text) == Decimal(text)
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(b"1", type=str)
    assert reason_of(caught.value) == "Expected 'str', got 'int'"


def test_damage_is_said_with_file_line_and_what_helps(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    usual = "write it again, or remove it to do without"
    assert str(damaged_error(path, "is odd")) == f"{path}: is odd; {usual}"
    assert str(damaged_error(path, "is odd", line=1234, hint="look")) == f"{path}: line 1,234: is odd; look"
    reads = (read_whole, read_beginning, lambda path, most, **hint: list(numbered_lines(path, most, **hint)))
    for read, hint in zip(reads, ({"hint": "look"}, {}, {}), strict=True):
        path.unlink(missing_ok=True)
        message = refused(lambda path, read=read, hint=hint: read(path, 999, **hint), path)
        assert message == f"{path}: cannot be read: No such file or directory"
        path.write_bytes(gzip.compress(bytes(99))[:-8])
        message = refused(lambda path, read=read, hint=hint: read(path, 999, **hint), path)
        assert message.startswith(f"{path}: gzip stream is damaged (Compressed file ended before")
        assert message.endswith(f"; {hint.get('hint', usual)}")
