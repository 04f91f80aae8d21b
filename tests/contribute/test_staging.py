# SPDX-License-Identifier: Apache-2.0
"""Several renames that happen together or not at all."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from cclbench.contribute.staging import put_in_place, scratch_in
from cclbench.ground.errors import InputError

Tree = Callable[[Path], dict[str, bytes]]


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_all_get_their_names(tmp_path: Path, files: Tree) -> None:
    with scratch_in(tmp_path) as scratch:
        moves = [
            (written(scratch / "a" / "x", "new").parent, tmp_path / "deep" / "a"),
            (written(scratch / "b", "new"), tmp_path / "b"),
        ]
        written(tmp_path / "deep" / "a" / "old", "old")
        written(tmp_path / "b", "old")
        put_in_place(moves)
    assert files(tmp_path) == {"deep/a/x": b"new", "b": b"new"}


def test_a_failure_puts_all_back(tmp_path: Path, files: Tree) -> None:
    written(tmp_path / "a" / "old", "old")
    with pytest.raises(InputError, match="cannot be written"), scratch_in(tmp_path) as scratch:
        put_in_place(
            [(written(scratch / "a" / "x", "new").parent, tmp_path / "a"), (scratch / "none", tmp_path / "b")]
        )
    assert files(tmp_path) == {"a/old": b"old"}


def test_the_scratch_folder_is_hidden_from_git_and_gone_at_the_end(tmp_path: Path) -> None:
    subprocess.run(["git", "-C", tmp_path, "init", "-q"], check=True)  # noqa: S607
    with suppress(KeyError), scratch_in(tmp_path) as scratch:
        written(scratch / "secret", "x")
        told = subprocess.run(
            ["git", "-C", tmp_path, "status", "--porcelain", "-uall"],  # noqa: S607
            check=True,
            capture_output=True,
        )
        assert told.stdout == b""
        assert scratch.stat().st_mode & 0o077 == 0
        raise KeyError
    assert [path.name for path in tmp_path.iterdir()] == [".git"]


def test_what_a_killed_process_left_is_swept(tmp_path: Path, files: Tree) -> None:
    killed = (
        "import os, pathlib, sys; from cclbench.contribute.staging import scratch_in\n"
        "with scratch_in(pathlib.Path(sys.argv[1])) as scratch:\n"
        "    (scratch / 'unpacked').write_text('secret')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", killed, tmp_path], check=False)
    assert done.returncode == -9
    assert b"secret" in files(tmp_path).values()
    with scratch_in(tmp_path) as own:
        assert list(tmp_path.iterdir()) == [own]
        with scratch_in(tmp_path) as another:  # this process lives, so the first stays
            assert {*tmp_path.iterdir()} == {own, another}
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    file = written(tmp_path / "file", "")
    with pytest.raises(InputError, match="cannot be written"), scratch_in(file / "x"):
        pass
