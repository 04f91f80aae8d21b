# SPDX-License-Identifier: Apache-2.0
"""Archives: whole ones give their files, hostile ones nothing."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.trees import files as tree

from cclbench.contribute import archive
from cclbench.contribute.archive import is_archive, unpack_archive
from cclbench.ground.errors import InputError

FILES = {"rank0.json": b'{"a": 1}', "sub/rank1.json": b"x" * 300_000}


def tar(path: Path, add: Callable[[tarfile.TarFile], None], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as file:  # type: ignore[call-overload]
        add(file)
    return path


def plain(files: dict[str, bytes]) -> Callable[[tarfile.TarFile], None]:
    def add(file: tarfile.TarFile) -> None:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))

    return add


def special(name: str, kind: bytes, link: str = "") -> Callable[[tarfile.TarFile], None]:
    def add(file: tarfile.TarFile) -> None:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, link
        file.addfile(member)

    return add


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return path


@pytest.mark.parametrize("name", ["a.tar.gz", "A.TGZ", "a.tar", "a.zip"])
def test_an_archive_gives_its_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("zip"):
        zipped(path, FILES)
    else:
        tar(path, plain(FILES), "w" if name.endswith(".tar") else "w:gz")
    assert is_archive(path)
    assert unpack_archive(path, tmp_path / "out") == [tmp_path / "out" / n for n in sorted(FILES)]
    assert tree(tmp_path / "out") == FILES


def test_a_trace_is_no_archive(tmp_path: Path) -> None:
    trace = tmp_path / "rank0.json.gz"
    trace.write_bytes(gzip.compress(b"{}"))
    assert not is_archive(trace)
    (tmp_path / "folder.zip").mkdir()
    assert not is_archive(tmp_path / "folder.zip")


def test_permissions_are_not_carried_over(tmp_path: Path) -> None:
    def add(file: tarfile.TarFile) -> None:
        member = tarfile.TarInfo("a")
        member.mode = 0o6777
        file.addfile(member, io.BytesIO())

    (path,) = unpack_archive(tar(tmp_path / "a.tgz", add), tmp_path / "out")
    assert stat.S_IMODE(path.stat().st_mode) & 0o7111 == 0


UNSAFE = ["../out.json", "a/../../out.json", "/tmp/out.json", "..", r"..\out.json", r"C:\out.json", "c:out"]  # noqa: S108


@pytest.mark.parametrize("name", UNSAFE)
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_nothing_leaves_the_folder(tmp_path: Path, kind: str, name: str) -> None:
    files = {"good.json": b"{}", name: b"evil"}
    path = zipped(tmp_path / "a.zip", files) if kind == "zip" else tar(tmp_path / "a.tgz", plain(files))
    before = tree(tmp_path)
    with pytest.raises(InputError, match=r"relative|upwards"):
        unpack_archive(path, tmp_path / "deep" / "out")
    assert {n for n in tree(tmp_path) if n not in before} <= {"deep/out/good.json"}


@pytest.mark.parametrize(
    ("kind", "link"),
    [
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.LNKTYPE, "../../secret"),
        (tarfile.CHRTYPE, ""),
        (tarfile.BLKTYPE, ""),
        (tarfile.FIFOTYPE, ""),
    ],
)
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes, link: str) -> None:
    with pytest.raises(InputError, match="link, a device or a sparse file"):
        unpack_archive(tar(tmp_path / "a.tgz", special("x.json", kind, link)), tmp_path / "out")
    assert tree(tmp_path / "out") == {}


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as file:
        member = zipfile.ZipInfo("x.json")
        member.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(member, "/etc/passwd")
    with pytest.raises(InputError, match="link or a device"):
        unpack_archive(path, tmp_path / "out")


@pytest.mark.parametrize(
    ("offset", "field", "words"), [(8, b"\1\0", "encrypted"), (24, b"\n\0\0\0", "damaged")]
)
def test_a_directory_that_states_another_member(
    tmp_path: Path, offset: int, field: bytes, words: str
) -> None:
    """An encrypted one; one of 10 bytes, of which there are 100,000."""
    path = zipped(tmp_path / "a.zip", {"x.json": os.urandom(100_000)})
    content = bytearray(path.read_bytes())
    at = content.index(b"PK\x01\x02") + offset
    content[at : at + len(field)] = field
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        unpack_archive(path, tmp_path / "out")


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_a_bomb_is_stopped_early(tmp_path: Path, kind: str) -> None:
    content = {"x.json": bytes(archive.ALWAYS_BYTES + 1)}  # zeros: 64 MB in 64 kB
    path = zipped(tmp_path / "a.zip", content) if kind == "zip" else tar(tmp_path / "a.tgz", plain(content))
    assert path.stat().st_size * archive.LARGEST_RATIO < archive.ALWAYS_BYTES + 1
    with pytest.raises(InputError, match="more than 400 times its size"):
        unpack_archive(path, tmp_path / "out")
    assert sum(len(c) for c in tree(tmp_path / "out").values()) <= archive.ALWAYS_BYTES


def test_many_members_share_one_allowance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "ALWAYS_BYTES", 1000)
    monkeypatch.setattr(archive, "LARGEST_RATIO", 1)
    path = zipped(tmp_path / "a.zip", {f"{n}.json": bytes(600) for n in range(3)})
    with pytest.raises(InputError, match="times its size"):
        unpack_archive(path, tmp_path / "out")


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_FILES", 2)
    path = tar(tmp_path / "a.tgz", plain({str(n): b"" for n in range(3)}))
    with pytest.raises(InputError, match="more than 2 files"):
        unpack_archive(path, tmp_path / "out")


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    def add(file: tarfile.TarFile) -> None:
        plain({"a.json": b"1"})(file)
        plain({"./a.json": b"2"})(file)

    with pytest.raises(InputError, match="the name occurs twice"):
        unpack_archive(tar(tmp_path / "a.tgz", add), tmp_path / "out")


@pytest.mark.parametrize(
    ("size", "count", "words"), [(1 << 33, 1, "header of more than 1 MB"), (1, 20_000, "damaged")]
)
def test_huge_headers_and_chains_of_them_are_not_read(
    tmp_path: Path, size: int, count: int, words: str
) -> None:
    member = tarfile.TarInfo("longname")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, size
    path = tmp_path / "a.tar"
    path.write_bytes((member.tobuf(tarfile.GNU_FORMAT) + b"x" + bytes(511)) * count)
    with pytest.raises(InputError, match=words):
        unpack_archive(path, tmp_path / "out")


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
@pytest.mark.parametrize("content", [b"", b"not an archive", b"\x1f\x8b\x08", bytes(4096)])
def test_no_archive_at_all(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"damaged|no file"):
        unpack_archive(path, tmp_path / "out")


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
def test_every_cut_of_an_archive_is_noticed(tmp_path: Path, name: str) -> None:
    files = {"a.json": b"1" * 700, "b.json": b"2" * 700}
    path = tmp_path / name
    if name.endswith("zip"):
        zipped(path, files)
    else:
        tar(path, plain(files), "w" if name.endswith(".tar") else "w:gz")
    whole = path.read_bytes()
    content = len(whole.rstrip(b"\0"))  # a tar file ends in zeros, and fewer will do
    for at in [*range(0, content, 97), content - 1]:
        path.write_bytes(whole[:at])
        with pytest.raises(InputError):
            unpack_archive(path, tmp_path / f"out{at}")
