# SPDX-License-Identifier: Apache-2.0
"""`cclbench timeline`: pictures of runs, and what cannot be drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command_line import Call


@pytest.mark.parametrize(
    ("suffix", "begin"), [("png", b"\x89PNG\r\n"), ("svg", b"<?xml version"), ("pdf", b"%PDF-")]
)
def test_a_picture_of_one_step(call: Call, trace: Path, tmp_path: Path, suffix: str, begin: bytes) -> None:
    path = tmp_path / f"picture.{suffix}"
    answer = call("timeline", trace, "-o", path)
    assert (answer.code, answer.out, answer.err) == (0, "", f"wrote {path}\n")
    assert path.read_bytes().startswith(begin)


def test_the_picture_names_step_rank_and_what_it_lacks(call: Call, trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    assert call("timeline", trace, "-o", path, "--step", 1, "--ranks", 0).code == 0
    text = path.read_text()
    assert ": step 1<" in text
    assert "rank 0" in text
    # One rank of two: nothing says when the other came.
    assert "waiting and transfer cannot be separated" in text
    assert "communication, not matched" in text


def test_a_picture_of_a_run_in_the_store(call: Call, trace: Path, tmp_path: Path) -> None:
    assert call("ingest", trace).code == 0
    (run,) = (path for path in (tmp_path / "store").iterdir() if path.is_dir())
    assert call("timeline", run.name, "-o", tmp_path / "a.png").code == 0
    assert call("timeline", trace, "-o", tmp_path / "b.png").code == 0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "x.gif"], "error: x.gif: unsupported picture format; use .png, .svg, .pdf"),
        (["-o", "x.png", "--step", "7"], "error: the run has no complete step 7; it has 0, 1"),
        (["-o", "x.png", "--ranks", "3"], "has no rank 3; it has [0]"),
        (["-o", "x.png", "--from-ms", "2"], "error: there is nothing from 2 to 0.1 ms; it lasts 0.1 ms"),
        ([], "Missing option '-o' / '--output'"),
    ],
)
def test_what_cannot_be_drawn(call: Call, trace: Path, arguments: list[str], message: str) -> None:
    answer = call("timeline", trace, *arguments)
    assert answer.code == 2
    assert message in answer.err
    assert not Path("x.png").exists()


def test_a_folder_that_does_not_exist(call: Call, trace: Path, tmp_path: Path) -> None:
    answer = call("timeline", trace, "-o", tmp_path / "none" / "x.png")
    assert answer.code == 2
    assert "there is no folder" in answer.err
