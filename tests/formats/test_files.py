# SPDX-License-Identifier: Apache-2.0
"""Files that are rewritten and the bytes of compressed ones: in blocks, whole or not at all."""

from __future__ import annotations

import gzip
import random
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from helpers.refused import refused

from cclbench.formats import files, streams
from cclbench.formats.files import (
    copy_file,
    name_inside,
    open_output,
    open_target,
    read_blocks,
    read_head,
    replace_atomically,
    require_plain_file,
    require_uncompressed,
    strip_padding,
    unreadable_error,
    unwritable_error,
)
from cclbench.formats.streams import LARGEST_RATIO, PIECE, is_compressed, open_bytes
from cclbench.ground.errors import InputError
from cclbench.ground.units import KIB, MIB


def noise(size: int) -> bytes:
    """Bytes that do not compress, the same each time."""
    return random.Random(size).randbytes(size)  # noqa: S311


def sparse(path: Path, size: int) -> Path:
    """A file of that many NULs."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


class TestBlocks:
    """The bytes of a file, as they are or inflated."""

    @pytest.mark.parametrize("size", [0, 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1])
    def test_a_plain_file_is_read_in_blocks_of_four_mebibytes(self, tmp_path: Path, size: int) -> None:
        path = sparse(tmp_path / "a", size)
        blocks = (min(size, 4 * MIB), size - 4 * MIB)
        assert [len(block) for block in read_blocks(path)] == [n for n in blocks if n > 0]

    def test_compressed_files_are_whole_or_damaged(self, tmp_path: Path) -> None:
        text = (noise(5000) + bytes(295_000)) * 40
        path = tmp_path / "a"
        path.write_bytes(gzip.compress(text, 1))
        found = list(read_blocks(path))
        assert b"".join(found) == text
        assert [4 * MIB <= len(block) < 4 * MIB + PIECE for block in found[:-1]] == [True, True]
        path.write_bytes(gzip.compress(noise(1000))[:-9])
        message = refused(lambda path: list(read_blocks(path)), path)
        assert message.startswith(f"{path}: gzip stream is damaged (Compressed file ended before")
        assert message.endswith("; only a whole file can be redacted: copy or capture it again")

    def test_files_grow_to_64_mib_or_400_fold(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "a"
        path.write_bytes(gzip.compress(b" " * 64 * MIB))
        assert sum(map(len, read_blocks(path))) == 64 * MIB > LARGEST_RATIO * path.stat().st_size
        path.write_bytes(gzip.compress(b" " * (64 * MIB + 1)))
        assert refused(lambda path: list(read_blocks(path)), path) == (
            f"{path}: expands more than 400-fold, like a decompression bomb"
        )
        monkeypatch.setattr(files, "_LEAST_LIMIT", 1)
        path.write_bytes(gzip.compress(b" " * 100_000, 6))
        most = 400 * path.stat().st_size
        for size, whole in ((most, True), (most + 1, False)):
            # A longer text of this kind compresses to as many bytes.
            opened = sparse(tmp_path / "b", size)
            monkeypatch.setattr(files, "open_bytes", lambda _, opened=opened: opened.open("rb"))
            if whole:
                assert sum(map(len, read_blocks(path))) == size
            else:
                with pytest.raises(InputError, match="400-fold"):
                    list(read_blocks(path))

    def test_the_beginning_is_as_long_as_asked_for(self, tmp_path: Path) -> None:
        path = tmp_path / "a"
        text = noise(5 * MIB)
        path.write_bytes(text)
        assert read_head(path) == text[: 64 * KIB]
        for size in (3, 4 * MIB, 4 * MIB + 1, 9 * MIB):
            assert read_head(path, size) == text[:size]
        # no more is read for it than it needs
        path.write_bytes(gzip.compress(noise(4 * MIB), 1) + b"\x1f\x8bdamage")
        assert len(read_head(path, 4 * MIB)) == 4 * MIB
        with pytest.raises(InputError):
            read_head(path, 4 * MIB + 1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *(([b"a\0", b"\0b\0", b"\0\0"], [b"a", b"\0\0b"]), ([b"a", b"\0c"], [b"a", b"\0c"])),
        *(([b"\0\0", b"\0"], []), ([b"a\0\0", b"b"], [b"a", b"\0\0b"])),
    ],
)
def test_padding_goes_at_the_end_alone(given: list[bytes], expected: list[bytes]) -> None:
    assert list(strip_padding(given)) == expected


@pytest.mark.parametrize(
    ("flags", "behind", "name"),
    [
        # one that says that it is text, one that has a checksum of the header
        *((0x00, b"", None), (0x01, b"", None), (0x02, b"", None)),
        *((0x08, b"caf\xe9.json\0rest", "café.json"), (0x09, b"a\0", "a"), (0x04, b"\x01\0x", "*")),
        *((0x10, b"a comment\0", "*"), (0x0C, b"\x01\0xa\0", "*"), (0x18, b"a\0a comment\0", "*")),
    ],
)
def test_the_name_in_a_gzip_header(tmp_path: Path, flags: int, behind: bytes, name: str | None) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\x1f\x8b\x08" + bytes([flags]) + b"TIMEXO" + behind)
    assert name_inside(path) == name
    for content in (b"\x1f\x8b\x08", b"{}", b"\x08" * 99):
        path.write_bytes(content)
        assert name_inside(path) is None


def test_a_path_that_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    path, link = tmp_path / "a", tmp_path / "link\x1b"
    path.write_text("x")
    link.symlink_to(path)
    require_plain_file(path)
    with pytest.raises(InputError) as caught:
        require_plain_file(link)
    assert str(caught.value).endswith("link\\x1b: is a link; name the file itself")
    with pytest.raises(InputError, match="no such file"):
        require_plain_file(tmp_path)


class TestReplacing:
    """A new file takes the place of the target when all of it is written."""

    @pytest.mark.parametrize(
        ("mode", "made"), [(0o600, 0o644), (0o640, 0o644), (0o711, 0o755), (0o677, 0o644), (0o100, 0o755)]
    )
    def test_a_script_stays_one_and_all_may_read_it(self, tmp_path: Path, mode: int, made: int) -> None:
        source, target = tmp_path / "a", tmp_path / "b"
        source.write_text("x")
        source.chmod(mode)
        with open_target(source, target, as_gzip=False) as file:
            file.write(b"y")
        assert stat.S_IMODE(target.stat().st_mode) == made
        assert target.read_bytes() == b"y"

    def test_nothing_is_left_of_what_was_not_finished(self, tmp_path: Path) -> None:
        source = tmp_path / "a"
        source.write_text("x")

        def fail() -> None:
            with replace_atomically(source, tmp_path / "b") as scratch:
                assert scratch.parent == tmp_path
                assert scratch.name.startswith(".redacting-")
                raise OSError(28, "No space left on device")

        message = refused(lambda _: fail(), tmp_path / "b")
        assert message == f"{tmp_path / 'b'}: cannot be written: No space left on device"
        assert list(tmp_path.iterdir()) == [source]

    def test_the_same_bytes_make_the_same_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        source, target = tmp_path / "a.gz", tmp_path / "b.gz"
        source.write_bytes(gzip.compress(b"x"))
        text = noise(1000) * 9
        made = []
        for now in (1_000_000_000, 1_500_000_000):
            monkeypatch.setattr("time.time", lambda now=now: now)
            with open_output(source, target) as write:
                write(text)
            made.append(target.read_bytes())
        assert gzip.decompress(made[0]) == text
        assert made[0] == made[1]
        assert name_inside(target) is None
        assert made[0][4:8] == bytes(4)  # no time
        assert made[0][10:] == gzip.compress(text, 6)[10:]

    def test_what_is_plain_is_written_plain_and_to_no_target_nothing(self, tmp_path: Path) -> None:
        source, target = tmp_path / "a", tmp_path / "b"
        source.write_text("x")
        with open_output(source, target) as write:
            write(b"y")
        assert target.read_bytes() == b"y"
        with open_output(source, None) as write:
            write(b"z")
        source.write_bytes(gzip.compress(b"x"))
        copy_file(source, target)  # a copy is the file as it is
        assert target.read_bytes() == source.read_bytes()
        message = refused(lambda path: copy_file(path, target), tmp_path / "gone")
        assert message.endswith("gone: cannot be read: No such file or directory")
        assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


def test_what_is_compressed_is_told_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    compressed, plain = (b"\x1f\x8b", b"\x1f\x8b\x08"), (b"\x1f", b"", b"\x8b\x1f")
    for content in (*compressed, *plain):
        path.write_bytes(content)
        assert is_compressed(path) is (content in compressed)
    path.write_bytes(b"plain")
    assert require_uncompressed(path) == path
    path.write_bytes(gzip.compress(b"x"))
    assert refused(require_uncompressed, path) == f"{path}: is compressed; gunzip it first"


@pytest.mark.parametrize("read", [is_compressed, open_bytes])
def test_a_file_that_cannot_be_opened_is_said(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "gone"
    assert refused(read, path) == f"{path}: cannot be read: No such file or directory"


def test_an_error_without_a_text_of_the_system_says_its_own(tmp_path: Path) -> None:
    error = OSError("seek on a pipe")
    for made in (unreadable_error(tmp_path, error), streams.unreadable_error(tmp_path, error)):
        assert str(made) == f"{tmp_path}: cannot be read: seek on a pipe"
    assert str(unwritable_error(tmp_path, error)) == f"{tmp_path}: cannot be written: seek on a pipe"


class TestDamagedStreams:
    """What can still be read before the damage of a gzip stream."""

    @staticmethod
    def readable(path: Path) -> bytes:
        found = b""
        with open_bytes(path) as file, suppress(EOFError):
            while True:
                found += file.read1(PIECE)
        return found

    @pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
    def test_all_but_the_last_piece_before_a_cut(self, tmp_path: Path, keep: float) -> None:
        text = noise(1 << 20)
        whole = gzip.compress(text, 1)
        path = tmp_path / "a"
        path.write_bytes(whole[: int(keep * len(whole))])
        found = self.readable(path)
        assert text.startswith(found)
        assert len(found) >= keep * len(text) - PIECE - (64 << 10)

    def test_pieces_are_of_an_eighth_of_a_mebibyte(self, tmp_path: Path) -> None:
        path = tmp_path / "a"
        path.write_bytes(gzip.compress(bytes(1 << 20)))
        with open_bytes(path) as file:
            file.read(1)
            assert len(file.peek()) == (128 << 10) - 1
