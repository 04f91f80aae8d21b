# SPDX-License-Identifier: Apache-2.0
"""The list of external evidence, and the script that downloads it: from a server of the test's own."""

from __future__ import annotations

import gzip
import importlib.util
import io
import re
import tarfile
from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import ClassVar

import pytest
import yaml

A, B, MEMBER = b"a trace\n" * 1000, b"another\n" * 1000, b'{"of": "an archive"}'


def packed() -> bytes:
    """An archive with one member."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        about = tarfile.TarInfo("job/rank0.json")
        about.size = len(MEMBER)
        archive.addfile(about, io.BytesIO(MEMBER))
    return out.getvalue()


class Origin(BaseHTTPRequestHandler):
    """Two files and an archive; what was asked for, by path and range."""

    files: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        """A file, or a part of it."""
        self.asked.append((self.path, self.headers["Range"]))
        content = self.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        begin = int(re.findall(r"\d+", self.headers["Range"])[0]) if self.headers["Range"] else 0
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin:])

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def origin() -> Iterator[str]:
    """The address of a server with the files."""
    Origin.files = {"/o/r/c1/a%20file.json": A, "/o/r/c1/b.json": B, "/o/r/c1/job.tar.gz": packed()}
    Origin.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/{{repository}}/{{commit}}/{{path}}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def script(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, which reads from this machine's own server, too."""
    spec = importlib.util.spec_from_file_location(
        "fetch_fixtures", repository / "scripts" / "fetch_fixtures.py"
    )
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "fetch_fixtures", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SCHEMES", ("https", "http"))
    return module


@pytest.fixture
def manifest(origin: str, tmp_path: Path) -> Path:
    """A list of the server's files, and of one that is not public."""

    def listed(name: str, content: bytes, **more: str) -> dict[str, object]:
        return {"file": name, "bytes": len(content), "sha256": sha256(content).hexdigest(), **more}

    files = [
        listed("kineto/a.json", A, path="a file.json"),
        listed("kineto/b.json", B, path="b.json"),
        listed("job/rank0.json.gz", MEMBER, path="job.tar.gz", member="job/rank0.json"),
    ]
    path = tmp_path / "fixtures.yaml"
    public = {"repository": "o/r", "commit": "c1", "licence": "MIT", "files": files}
    ours = {"reason": "ours", "licence": "MIT", "files": [listed("mine.csv", b"x")]}
    path.write_text(yaml.safe_dump({"origin": origin, "repositories": [public], "not_public": [ours]}))
    return path


def test_files_are_downloaded_once_and_checked(
    script: ModuleType, manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tmp_path / "data"), "--manifest", str(manifest)]
    assert script.main([*words, "--check"]) == 1
    assert script.main([*words, "--only", "kineto/a*"]) == 0
    assert [path for path, _ in Origin.asked] == ["/o/r/c1/a%20file.json"]
    assert script.main(words) == script.main([*words, "--check"]) == 0
    assert len(Origin.asked) == 3  # each once
    assert "not public, 1 of 1 absent: ours" in capsys.readouterr().out
    folder = tmp_path / "data"
    assert (folder / "kineto" / "a.json").read_bytes() == A
    assert gzip.decompress((folder / "job" / "rank0.json.gz").read_bytes()) == MEMBER
    assert [path.name for path in folder.iterdir()] == [path.name for path in folder.glob("[!.]*")]
    (folder / "kineto" / "b.json").write_bytes(A)
    (folder / "mine.csv").write_bytes(b"y")
    assert script.main([*words, "--check"]) == 1
    told = capsys.readouterr().err
    assert "kineto/b.json: missing or does not match the manifest" in told
    assert "mine.csv: does not match the manifest" in told


def test_an_interrupted_download_goes_on(script: ModuleType, manifest: Path, tmp_path: Path) -> None:
    ((address, _), *_) = script.read_manifest(manifest).by_address("kineto/b*")
    (tmp_path / f".{sha256(address.encode()).hexdigest()[:16]}.part").write_bytes(B[:3000])
    assert script.main([str(tmp_path), "--manifest", str(manifest), "--only", "kineto/b*"]) == 0
    assert Origin.asked == [("/o/r/c1/b.json", "bytes=3000-")]
    assert (tmp_path / "kineto" / "b.json").read_bytes() == B


@pytest.mark.parametrize(
    ("content", "told"),
    [(B[:-1] + b"x", "does not match the manifest"), (B + b"more", "larger than 8,000 bytes"), (None, "404")],
)
def test_another_content_is_refused(
    content: bytes | None,
    told: str,
    script: ModuleType,
    manifest: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Origin.files = {"/o/r/c1/b.json": content} if content is not None else {}
    assert script.main([str(tmp_path / "data"), "--manifest", str(manifest), "--only", "kineto/b*"]) == 1
    assert told in capsys.readouterr().err
    assert not (tmp_path / "data" / "kineto").exists()


def test_addresses_without_encryption_are_refused(
    script: ModuleType, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "SCHEMES", ("https",))
    assert script.main([str(tmp_path / "data"), "--manifest", str(manifest)]) == 1
    assert Origin.asked == []


def test_the_list_is_sound_and_the_evidence_is_what_it_says(script: ModuleType, test_data: Path) -> None:
    manifest = script.read_manifest()
    assert manifest.origin.startswith("https://")
    assert all(re.fullmatch("[0-9a-f]{40}", one.commit) for one in manifest.repositories)
    parts = (*manifest.repositories, *manifest.not_public)
    files = [file for part in parts for file in part.files]
    assert len({file.file for file in files}) == len(files)
    assert all(file.path for one in manifest.repositories for file in one.files)
    assert all(part.licence for part in parts)
    there = [file for file in files if Path(test_data, file.file).exists()]
    assert [
        file.file for file in there if not script.matches_manifest(Path(test_data, file.file), file)
    ] == []
