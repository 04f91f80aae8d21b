# SPDX-License-Identifier: Apache-2.0
"""Fetching: from public https servers only, and only what is recorded."""

from __future__ import annotations

import http.client
import io
import socket
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from cclbench.contribute.remote import fetch_file
from cclbench.ground.errors import InputError
from cclbench.remote import web as downloader

CONTENT = b"a trace" * 1000
SHA = sha256(CONTENT).hexdigest()
URL = "https://example.org/my-job/rank0.json"


class Answer:
    """What a server says."""

    def __init__(self, status: int, body: bytes = b"", location: str | None = None) -> None:
        self.status, self.headers = status, {"Location": location}
        self.read1 = io.BytesIO(body).read1

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> dict[str, Answer]:
    """Servers by URL; asks are kept under "asked"."""
    pages: dict[str, Any] = {"asked": []}

    class Connection:
        def __init__(self, host: str, port: int, *, timeout: float) -> None:
            assert timeout <= 60
            self.host = host if port == 443 else f"{host}:{port}"

        def request(self, method: str, path: str, headers: dict[str, str]) -> None:
            assert method == "GET"
            assert not {"Authorization", "Cookie"} & headers.keys()
            self.url = f"https://{self.host}{path}"
            pages["asked"].append(self.url)

        def getresponse(self) -> Answer:
            if self.url not in pages:
                raise ConnectionRefusedError(111, "Connection refused")
            found = pages[self.url]
            if isinstance(found, Exception):
                raise found
            assert isinstance(found, Answer)
            return found

        def close(self) -> None:
            pass

    monkeypatch.setattr(downloader, "_PublicConnection", Connection)
    return pages


def fetched(target: Path, url: str = URL, *, size: int = len(CONTENT)) -> bytes:
    fetch_file(url, target, sha256=SHA, size=size)
    return target.read_bytes()


def test_what_is_recorded_is_fetched(web: dict[str, Any], tmp_path: Path) -> None:
    web[URL] = Answer(200, CONTENT)
    seen: list[int] = []
    target = tmp_path / "a" / "b.json"
    fetch_file(URL, target, sha256=SHA, size=len(CONTENT), progress=lambda *told: seen.append(told[1]))
    assert target.read_bytes() == CONTENT
    assert seen[-1] == len(CONTENT)
    assert [path.name for path in target.parent.iterdir()] == ["b.json"]


def test_redirects_are_followed_while_they_are_https(web: dict[str, Any], tmp_path: Path) -> None:
    web[URL] = Answer(302, location="https://cdn.example.org:8443/x?y=1")
    web["https://cdn.example.org:8443/x?y=1"] = Answer(301, location="/z")
    web["https://cdn.example.org:8443/z"] = Answer(200, CONTENT)
    assert fetched(tmp_path / "x") == CONTENT
    web[URL] = Answer(302, location="http://cdn.example.org/x")
    with pytest.raises(InputError, match="is not an https URL"):
        fetched(tmp_path / "y")
    web[URL] = Answer(302, location=URL)
    with pytest.raises(InputError, match="more than 5 redirects"):
        fetched(tmp_path / "y")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(200, CONTENT + b"x"), "more than the recorded 7,000 bytes"),
        (Answer(200, CONTENT[:-1]), "has 6,999 bytes"),
        (Answer(200, b"b" + CONTENT[1:]), "its SHA-256 is"),
        (Answer(404), "answers 404"),
        (Answer(302, location="file:///etc/passwd"), "is not an https URL"),
        (Answer(302), "more than 5 redirects"),
        (TimeoutError("timed out"), "cannot be fetched: timed out"),
        (http.client.IncompleteRead(b""), "cannot be fetched"),
        (http.client.BadStatusLine("\x1b[31m"), "cannot be fetched"),
    ],
)
def test_anything_else_is_refused(web: dict[str, Any], tmp_path: Path, answer: Any, words: str) -> None:
    web[URL] = answer
    with pytest.raises(InputError, match=words) as raised:
        fetched(tmp_path / "x")
    assert str(raised.value).isprintable()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        *("http://example.org/x", "file:///etc/passwd", "ftp://x/y"),
        *("https://", "https:///x", "x", "https://[::1/x"),
    ],
)
def test_only_https_is_spoken(web: dict[str, Any], tmp_path: Path, url: str) -> None:
    with pytest.raises(InputError, match=r"is not an https URL|cannot be fetched"):
        fetched(tmp_path / "x", url)
    assert web["asked"] == []


@pytest.mark.usefixtures("web")
def test_a_password_is_not_sent(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="contains a user name"):
        fetched(tmp_path / "x", "https://ada:secret@example.org/x")


def test_a_machine_of_the_own_network_is_not_connected_to(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        port = server.getsockname()[1]
        with pytest.raises(InputError, match="which is not a public address"):
            fetched(tmp_path / "x", f"https://localhost:{port}/x")
        with pytest.raises(BlockingIOError):
            server.accept()


def test_the_address_that_was_looked_at_is_the_one_that_is_connected_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads elsewhere the next time is not asked for again; addresses of the own network are left
    out, and of the others the next one is tried."""
    answers = iter([["10.0.0.1", "::ffff:127.0.0.1", "224.0.0.1", "192.0.2.1", "1.1.1.1", "8.8.8.8"]])
    tried: list[tuple[str, int]] = []

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        assert host == "example.org"
        return [(None, None, None, "", (address, port)) for address in next(answers)]

    def connect(place: tuple[str, int], timeout: float) -> socket.socket:
        assert timeout <= 60
        tried.append(place)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(downloader.socket, "getaddrinfo", resolve)
    monkeypatch.setattr(downloader.socket, "create_connection", connect)
    with pytest.raises(InputError, match="refused"):
        fetched(tmp_path / "x")
    assert tried == [("1.1.1.1", 443), ("8.8.8.8", 443)]


def test_a_server_that_only_drips_is_given_up(
    web: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    web[URL] = Answer(200, CONTENT)
    clock = iter([0.0, 1.0, 31.0])  # 30 s and 0.07 s for its bytes
    monkeypatch.setattr(downloader, "_CHUNK", 1)
    monkeypatch.setattr(downloader.time, "monotonic", lambda: next(clock))
    with pytest.raises(InputError, match="slower than 100,000 bytes/s"):
        fetch_file(URL, tmp_path / "rank0.json", sha256=SHA, size=len(CONTENT))
    assert list(tmp_path.iterdir()) == []
