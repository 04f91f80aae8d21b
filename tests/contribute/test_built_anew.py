# SPDX-License-Identifier: Apache-2.0
"""What is written is built anew: nothing that no reader sees comes along, also where nothing is redacted.

Each file is clean where a reader looks, and holds a text that nothing calls a secret where none does.
"""

from __future__ import annotations

import gzip
import json
import pickle
import sqlite3
import struct
import zipfile
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from helpers.redact_files import sized

from cclbench.contribute.archive import unpack_archive
from cclbench.contribute.redaction import redact_evidence
from cclbench.formats.xplane import proto
from cclbench.ground.errors import InputError

HIDDEN = b"the merger closes on friday"
JSON = b'{"schemaVersion": 1, "traceEvents": []}'
LOG = b"x:1:2 [0] NCCL INFO Using network IB\n"


def copy_of(source: Path) -> bytes:
    """The file as it is written where nothing in it is redacted."""
    target = source.with_name("copy-" + source.name)
    assert redact_evidence(source, target) == []
    return target.read_bytes()


def packed(data: bytes, *, flags: int, fields: bytes) -> bytes:
    """A gzip file with those fields in its header (RFC 1952)."""
    body = zlib.compressobj(wbits=-15)
    deflated = body.compress(data) + body.flush()
    header = b"\x1f\x8b\x08" + bytes([flags]) + bytes(6)
    return header + fields + deflated + struct.pack("<II", zlib.crc32(data), len(data))


def test_pages_that_a_database_no_longer_uses_are_gone(tmp_path: Path) -> None:
    source = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(source)) as base:
        base.execute("PRAGMA secure_delete = OFF")
        base.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        base.execute("INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'reduce')")
        base.execute("CREATE TABLE Gone (note TEXT)")
        base.executemany("INSERT INTO Gone VALUES (?)", [(HIDDEN.decode() * 200,)] * 50)
        base.execute("INSERT INTO StringIds VALUES (3, ?)", [HIDDEN.decode()])
        base.commit()
        base.execute("DROP TABLE Gone")
        base.execute("DELETE FROM StringIds WHERE id = 3")
        base.commit()
    assert source.read_bytes().count(HIDDEN) > 1000
    assert HIDDEN not in copy_of(source)
    assert not list(tmp_path.glob(".redacting-*"))
    with closing(sqlite3.connect(tmp_path / "copy-a.sqlite")) as base:
        assert base.execute("SELECT * FROM StringIds").fetchall() == [(1, "gemm"), (2, "reduce")]
        assert base.execute("PRAGMA freelist_count").fetchone() == (0,)


def test_bytes_behind_a_database_are_gone(tmp_path: Path) -> None:
    source = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(source)) as base, base:
        base.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    with source.open("ab") as file:
        file.write(HIDDEN)
    assert HIDDEN not in copy_of(source)


@pytest.mark.parametrize(
    ("flags", "fields"),
    [(0x04, struct.pack("<H", len(HIDDEN)) + HIDDEN), (0x08, HIDDEN + b"\0"), (0x10, HIDDEN + b"\0")],
    ids=["extra field", "name", "comment"],
)
def test_a_gzip_header_holds_nothing(flags: int, fields: bytes, tmp_path: Path) -> None:
    source, target = tmp_path / "a.json.gz", tmp_path / "b.json.gz"
    source.write_bytes(packed(JSON, flags=flags, fields=fields))
    redact_evidence(source, target)
    assert target.read_bytes()[3:8] == bytes(5)  # neither flags nor a time
    assert HIDDEN not in target.read_bytes()
    assert gzip.decompress(target.read_bytes()) == JSON


def test_bytes_behind_a_gzip_stream_are_refused_and_padding_is_gone(tmp_path: Path) -> None:
    source = tmp_path / "a.json.gz"
    source.write_bytes(gzip.compress(JSON) + bytes(512))
    assert not copy_of(source).endswith(bytes(512))
    source.write_bytes(gzip.compress(JSON) + HIDDEN)
    with pytest.raises(InputError, match="gzip stream is damaged"):
        copy_of(source)


@pytest.mark.parametrize("name", ["a.json", "a.log"])
def test_a_tail_of_nuls_is_gone(name: str, tmp_path: Path) -> None:
    source = tmp_path / name
    content = JSON if name == "a.json" else LOG
    source.write_bytes(content + bytes(5000))
    assert copy_of(source) == content


@pytest.mark.parametrize("begin", [JSON, LOG * 20_000], ids=["JSON", "a long log"])
def test_bytes_behind_a_text_are_refused(begin: bytes, tmp_path: Path) -> None:
    source = tmp_path / "a.log"
    source.write_bytes(begin + b"\0\1" + HIDDEN)
    with pytest.raises(InputError, match=r"is no trace of a known format|cannot rewrite its texts"):
        copy_of(source)
    assert [path.name for path in tmp_path.iterdir()] == ["a.log"]


def test_fields_that_a_profile_does_not_know_are_gone(tmp_path: Path) -> None:
    unknown = b"\xa2\x06" + bytes([len(HIDDEN)]) + HIDDEN  # field 100
    name = sized(2, sized(2, b"dot")) + unknown
    plane = b"\x08\x01" + sized(2, b"/host:CPU") + sized(4, b"\x08\x01" + name) + unknown
    source = tmp_path / "a.xplane.pb"
    source.write_bytes(sized(1, plane) + unknown + sized(4, b""))
    new = copy_of(source)
    assert HIDDEN not in new
    (where,) = proto.find_planes(tmp_path / "copy-a.xplane.pb").planes
    message = proto.parse_plane(tmp_path / "copy-a.xplane.pb", where)
    assert proto.event_metadata(message)[1].name == "dot"
    assert len(new) == len(source.read_bytes()) - 3 * len(unknown)


def test_bytes_behind_a_pickle_are_gone(tmp_path: Path) -> None:
    source = tmp_path / "dump.pkl"
    source.write_bytes(pickle.dumps({"pg_config": {}, "entries": []}, protocol=2) + HIDDEN)
    assert HIDDEN not in copy_of(source)
    assert pickle.loads((tmp_path / "copy-dump.pkl").read_bytes())["entries"] == []  # noqa: S301


def test_of_an_archive_only_its_files_are_taken(tmp_path: Path) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w") as file:
        member = zipfile.ZipInfo("rank0.json")
        member.extra = struct.pack("<HH", 0x6363, len(HIDDEN)) + HIDDEN
        member.comment = HIDDEN
        file.writestr(member, JSON)
        file.comment = HIDDEN
    unpack_archive(archive, tmp_path / "unpacked")
    redact_evidence(tmp_path / "unpacked" / "rank0.json", tmp_path / "rank0.json")
    assert json.loads((tmp_path / "rank0.json").read_bytes()) == json.loads(JSON)
    assert [path.name for path in (tmp_path / "unpacked").iterdir()] == ["rank0.json"]


def test_a_picture_is_refused(tmp_path: Path) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    source = tmp_path / "a.png"
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    source.write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"tEXt", HIDDEN) + chunk(b"IEND", b""))
    with pytest.raises(InputError, match=r"is no trace of a known format|cannot rewrite its texts"):
        copy_of(source)
