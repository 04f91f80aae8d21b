# SPDX-License-Identifier: Apache-2.0
"""A file is whole or as it was, whatever happens while it is written."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cclbench.ground.destination import atomic_replacement, new_folder, write_whole
from cclbench.ground.errors import UsageError


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_what_was_there(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "out.txt"
    path.write_text("old")

    def write() -> None:
        with atomic_replacement(path) as unfinished:
            unfinished.write_text("half")
            raise error

    with pytest.raises(type(error)) as caught:
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    if isinstance(caught.value, OSError):
        assert caught.value.filename == str(path)


def test_what_a_killed_process_left_goes_with_the_next_file(tmp_path: Path) -> None:
    path, other = tmp_path / "out.txt", tmp_path / "other.txt"
    killed = (
        "import os, sys; from pathlib import Path\n"
        "from cclbench.ground.destination import atomic_replacement\n"
        "with atomic_replacement(Path(sys.argv[1])) as file: file.write_text('half'); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", killed, path], check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    assert not path.exists()
    with atomic_replacement(path) as unfinished:
        write_whole("another process's file", other)
        unfinished.write_text("whole")
    assert sorted(tmp_path.iterdir()) == [other, path]


def test_a_file_is_replaced_whole_a_link_is_kept_and_a_pipe_is_written_itself(tmp_path: Path) -> None:
    path, link, pipe = (tmp_path / name for name in ("out.txt", "link.txt", "pipe"))
    path.write_text("old")
    write_whole("new", path)
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
    link.symlink_to("out.txt")
    write_whole("newer", link)
    assert (link.is_symlink(), path.read_text()) == (True, "newer")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole("through", pipe)
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert sorted(tmp_path.iterdir()) == [link, path, pipe]


def test_a_new_folder_is_whole_or_absent(tmp_path: Path) -> None:
    place = tmp_path / "new"
    place.mkdir()

    def fail() -> None:
        with new_folder(place) as unfinished:
            (unfinished / "half").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert [path.name for path in tmp_path.rglob("*")] == ["new"]
    with new_folder(place) as unfinished:
        (unfinished / "file").write_text("whole")
    assert (place / "file").read_text() == "whole"
    with pytest.raises(UsageError, match="exists already"), new_folder(place):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
