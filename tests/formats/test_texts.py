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
from cclbench.ground.errors import InputError

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


def test_a_line_beyond_all_bounds_is_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_text("a\n" + "x" * (3 * LONGEST_LINE) + "\nb")
    assert list(numbered_lines(path, 1 << 30)) == [(1, "a"), (2, "x" * LONGEST_LINE), (3, "b")]


def test_limits(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"x\n" * 3)
    assert read_whole(path, 6) == b"x\n" * 3
    assert list(numbered_lines(path, 6)) == [(1, "x"), (2, "x"), (3, "x")]
    for read in (lambda: read_whole(path, 5), lambda: list(numbered_lines(path, 5))):
        with pytest.raises(InputError, match="is larger than 0 MiB"):
            read()


def test_lines_are_counted_and_keep_their_ends_however_long_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    assert LONGEST_LINE == 64 << 10
    path.write_bytes(
        b"x" * LONGEST_LINE + b"\n\n\x1b[31my\x1b[0m\r\n" + b"z" * (LONGEST_LINE - 1) + b"\n\xff "
    )
    assert list(raw_lines(path, 1 << 20)) == [
        (1, b"x" * LONGEST_LINE),
        (2, b"\n"),
        (3, b"y\r\n"),
        (4, b"z" * (LONGEST_LINE - 1) + b"\n"),
        (5, b"\xff "),
    ]
    assert [line for _, line in numbered_lines(path, 1 << 20)][2::2] == ["y", "\ufffd"]


def test_what_compresses_beyond_belief_is_read_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 MiB, or 400 times what the file has where that is more, or `most` where that is less."""
    path = tmp_path / "a.log"
    path.write_bytes(gzip.compress(bytes(64 << 20)))
    assert len(read_whole(path, 1 << 40)) == 64 << 20
    path.write_bytes(gzip.compress(bytes((64 << 20) + 1)))
    for most, said in ((1 << 40, 64), (3 << 20, 3)):
        with pytest.raises(InputError) as caught:
            read_whole(path, most, hint="try again")
        assert str(caught.value) == f"{path}: is larger than {said} MiB; try again"
    monkeypatch.setattr(texts, "_LEAST_LIMIT", 1)
    path.write_bytes(b"\x1f\x8b" + bytes(98))
    for size, fits in ((40_000, True), (40_001, False)):
        monkeypatch.setattr(texts, "open_bytes", lambda _, size=size: io.BytesIO(b"\n" * size))
        if fits:
            assert len(read_whole(path, 1 << 40)) == len(list(numbered_lines(path, 1 << 40))) == size
        else:
            with pytest.raises(InputError, match="larger"):
                read_whole(path, 1 << 40)
            with pytest.raises(InputError, match="larger"):
                list(numbered_lines(path, 1 << 40))


def test_a_beginning_is_bare_and_as_long_as_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"\xef\xbb\xbfabc\x1b[mdef")
    assert [read_beginning(path, size) for size in (3, 5, 99)] == [b"", b"ab", b"abcdef"]
    assert read_whole(path, 99) == b"abc\x1b[mdef"


def test_only_what_terminals_and_editors_add_is_removed() -> None:
    assert (
        strip_decoration(b"\xef\xbb\xbf\x1b[31ma\x1b[mb\x1b[2Jc \xef\xbb\xbf") == b"ab\x1b[2Jc \xef\xbb\xbf"
    )


@pytest.mark.parametrize("text", ["", "-1", "1e", "0x1", "1_0", "nan", "inf", "1" * 21, "1.5.2", "\u0661"])
def test_no_number(text: str) -> None:
    assert parse_decimal(text) is None


@pytest.mark.parametrize(
    "text", ["0", "12.5", "1e5", "1.5E-12", "12345678901234567890.12345678901234567890e+99"]
)
def test_a_number_is_what_is_printed(text: str) -> None:
    assert parse_decimal(text) == Decimal(text)


def test_damage_is_said_with_file_line_and_what_helps(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    usual = "write it again, or remove it to do without"
    assert str(damaged_error(path, "is odd")) == f"{path}: is odd; {usual}"
    assert str(damaged_error(path, "is odd", line=1234, hint="look")) == f"{path}: line 1,234: is odd; look"
    for read in (
        lambda: read_whole(path, 999, hint="look"),
        lambda: read_beginning(path, 999),
        lambda: list(numbered_lines(path, 999)),
    ):
        path.unlink(missing_ok=True)
        with pytest.raises(InputError) as caught:
            read()
        assert str(caught.value) == f"{path}: cannot be read: No such file or directory"
        path.write_bytes(gzip.compress(bytes(99))[:-8])
        with pytest.raises(
            InputError, match=r": gzip stream is damaged \(Compressed file ended before.*\); "
        ) as caught:
            read()
        assert caught.value.hint in ("look", usual)
    with pytest.raises(InputError, match=r"; look$"):
        read_whole(path, 999, hint="look")


def test_a_decoder_s_reason_has_no_backticks() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(b"1", type=str)
    assert reason_of(caught.value) == "Expected 'str', got 'int'"
