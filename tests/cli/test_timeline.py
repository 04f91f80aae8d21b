# SPDX-License-Identifier: Apache-2.0
"""`cclbench timeline`: pictures of runs, and what cannot be drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command_line import Call


def test_a_picture_of_one_step(call: Call, stored: str, trace: Path, tmp_path: Path) -> None:
    """As from a run in the store, in every form."""
    for suffix, begin in (("png", b"\x89PNG\r\n"), ("svg", b"<?xml version"), ("pdf", b"%PDF-")):
        path = tmp_path / f"picture.{suffix}"
        answer = call("timeline", trace, "-o", path)
        assert (answer.code, answer.out, answer.err) == (0, "", f"wrote {path}\n")
        assert path.read_bytes().startswith(begin)
    assert call("timeline", stored, "-o", tmp_path / "a.png").code == 0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "picture.png").read_bytes()


def test_the_picture_names_step_rank_and_what_it_lacks(call: Call, trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    assert call("timeline", trace, "-o", path, "--step", 1, "--ranks", 0).code == 0
    text = path.read_text()
    # One rank of two: nothing says when the other came.
    lacks = "waiting and transfer cannot be separated"
    for words in (": step 1<", "rank 0", lacks, "communication, not matched"):
        assert words in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("-o x.gif", "error: x.gif: unsupported picture format; use .png, .svg, .pdf"),
        ("-o x.png --step 7", "error: the run has no complete step 7; it has 0, 1"),
        ("-o x.png --ranks 3", "has no rank 3; it has [0]"),
        ("-o x.png --from-ms 2", "error: there is nothing from 2 to 0.1 ms; it lasts 0.1 ms"),
        ("-o none/x.png", "there is no folder"),
        ("", "Missing option '-o' / '--output'"),
    ],
)
def test_what_cannot_be_drawn(call: Call, trace: Path, arguments: str, message: str) -> None:
    answer = call("timeline", trace, *arguments.split())
    assert answer.code == 2
    assert message in answer.err
    assert not Path("x.png").exists()
