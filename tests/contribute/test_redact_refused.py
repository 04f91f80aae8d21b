# SPDX-License-Identifier: Apache-2.0
"""What cannot be redacted is refused in one line, and nothing is left behind; links are not followed."""

from __future__ import annotations

import gzip
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.redact_files import gz, sized, sqlite_with

from cclbench.contribute.redaction import redact_evidence
from cclbench.ground.errors import InputError

TRACE = b'{"schemaVersion": 1, "traceEvents": [{"name": "%s"}]}'
LINE = "x:1:2 [0] NCCL INFO Using /home/zoe4/y\n"


def bomb(path: Path) -> None:
    path.write_bytes(gzip.compress(TRACE % (b" " * (2 << 20)), mtime=0))


def pickled(path: Path) -> None:
    path.write_bytes(pickle.dumps({"pg_config": {"0": print}, "k": "/home/zoe4/x"}))


def tarred(path: Path) -> None:
    with tarfile.open(path, "w") as tar:
        tar.addfile(tarfile.TarInfo("x"))


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no file": (Path, "no such file"),
    "a folder": (lambda path: path.mkdir(), "no such file"),
    "a link": (lambda path: path.symlink_to("/etc/hostname"), "is a link"),
    "a cut gzip file": (lambda path: path.write_bytes(gz(TRACE % b"a")[:-9]), "gzip stream is damaged"),
    "gzip that is none": (lambda path: path.write_bytes(b"\x1f\x8bnothing"), "gzip stream is damaged"),
    "a decompression bomb": (bomb, "expands more than 400-fold"),
    "a pickle of no format": (lambda path: path.write_bytes(b"\x80\x04}."), "is no trace of a known format"),
    "a pickle that holds more than data": (pickled, "pickle holds more than data"),
    "an archive": (tarred, "is no trace of a known format"),
    "UTF-16": (lambda path: path.write_bytes("hello".encode("utf-16")), "is no trace of a known format"),
    "JSON that is no UTF-8": (lambda path: path.write_bytes(TRACE % b"\xff"), "not valid JSON or UTF-8"),
    "JSON with a wrong escape": (lambda path: path.write_bytes(TRACE % b"\\q"), "not valid JSON or UTF-8"),
    "a cut database": (
        lambda path: path.write_bytes(sqlite_with(path.with_name("w")).read_bytes()[:5000]),
        "is cut",
    ),
    "a database that is none": (
        lambda path: path.write_bytes(b"SQLite format 3\0" + b"\0" * 200),
        "not a database|cannot be",
    ),
    "a database being written": (
        lambda path: (sqlite_with(path), path.with_name(path.name + "-wal").write_bytes(b"x")),
        "is not finished",
    ),
    "a database with a trigger": (
        lambda path: sqlite_with(
            path, "CREATE TRIGGER t AFTER UPDATE ON StringIds BEGIN DELETE FROM StringIds; END"
        ),
        "schema has more than an export's",
    ),
    "a database with a view": (
        lambda path: sqlite_with(path, "CREATE VIEW v AS SELECT * FROM StringIds"),
        "schema has more than an export's",
    ),
    "a cut profile": (
        lambda path: path.write_bytes(sized(1, sized(2, b"/host:CPU") + sized(9, b"x" * 50))[:-9]),
        "cut within a plane",
    ),
    "a compressed profile": (
        lambda path: path.write_bytes(gz(sized(1, b"\x08\x01" + sized(2, b"/host:CPU")))),
        "is compressed",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_redacted_is_refused_in_one_line(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cclbench.formats.files._LEAST_LIMIT", 1 << 20)
    make, expected = REFUSED[case]
    source, target = tmp_path / "source", tmp_path / "target"
    make(source)
    before = set(tmp_path.iterdir())
    with pytest.raises(InputError, match=expected) as raised:
        redact_evidence(source, target)
    assert len(str(raised.value).splitlines()) == 1
    assert "zoe4" not in str(raised.value)
    assert set(tmp_path.iterdir()) == before


def test_a_target_that_is_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    source, victim = tmp_path / "a.log", tmp_path / "victim"
    source.write_text(LINE)
    victim.write_text("mine")
    (tmp_path / "b.log").symlink_to(victim)
    redact_evidence(source, tmp_path / "b.log")
    assert victim.read_text() == "mine"
    assert not (tmp_path / "b.log").is_symlink()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(LINE)
    with pytest.raises(InputError, match="cannot be written"):
        redact_evidence(tmp_path / "a.log", tmp_path / "no" / "b.log")


def test_hostile_names_do_not_reach_a_terminal(tmp_path: Path) -> None:
    source = tmp_path / "a\x1b[31m\u202e.json"
    source.write_bytes(TRACE.replace(b'"name"', b'"k\\u001b[2J"') % b"/home/zoe4/x")
    for one in redact_evidence(source, tmp_path / "b"):
        assert one.file.isprintable()
        assert one.place.isprintable()
