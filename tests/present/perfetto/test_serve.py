# SPDX-License-Identifier: Apache-2.0
"""The file goes to the viewer's page and to nobody else, once."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from queue import Queue
from threading import Thread
from urllib.parse import urlsplit

import pytest

from cclbench.ground.errors import UsageError
from cclbench.present.perfetto.serve import PORT, VIEWER, serve_file

CONTENT = bytes(range(256)) * 60_000


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a served file; at the end it is fetched, so that serving ends."""
    path = folder / "trace.json.gz"
    path.write_bytes(CONTENT)
    links: Queue[str] = Queue()
    serving = Thread(target=serve_file, args=(path, links.put), kwargs={"port": 0})
    serving.start()
    page, _, address = links.get(timeout=10).partition("/#!/?url=")
    assert page == "https://ui.perfetto.dev"
    yield address
    with suppress(OSError):  # where it was fetched before
        asked(address)
    serving.join(timeout=10)
    assert not serving.is_alive()


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address of a served file."""
    with served(tmp_path) as address:
        yield address


def asked(
    address: str, method: str = "GET", path: str | None = None, **headers: str
) -> tuple[HTTPResponse, bytes]:
    """The answer to one request, and its body."""
    parts = urlsplit(address)
    assert parts.hostname is not None
    with closing(HTTPConnection(parts.hostname, parts.port, timeout=10)) as connection:
        connection.request(method, path or parts.path, headers=headers)
        response = connection.getresponse()
        return response, response.read()


def test_the_viewer_fetches_it_once_on_this_machine_alone(address: str) -> None:
    """Looking whether it is there does not end it."""
    parts = urlsplit(address)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", parts.port or 0), timeout=1).close()
    response, _ = asked(address, "HEAD")
    assert (response.status, response.headers["Content-Length"]) == (200, str(len(CONTENT)))
    assert parts.scheme == "http"
    assert parts.hostname == "127.0.0.1"
    assert parts.path.endswith(".json.gz")
    assert len(parts.path) > 25
    response, body = asked(address, Origin=VIEWER)
    assert body == CONTENT
    assert response.headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
    assert response.headers["Cache-Control"] == "no-store"


def test_every_name_is_new(tmp_path: Path) -> None:
    with served(tmp_path) as first, served(tmp_path) as second:
        assert urlsplit(first).path != urlsplit(second).path


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 404),
        ("GET", "/../../../etc/passwd", {}, 404),
        ("GET", "/trace.json.gz", {}, 404),
        ("GET", None, {"Host": "attacker.example:9001"}, 403),
        ("GET", None, {"Host": "localhost"}, 403),
        ("GET", None, {"Origin": "https://attacker.example"}, 403),
        ("GET", None, {"Origin": "null"}, 403),
        ("HEAD", None, {"Origin": "https://ui.perfetto.dev.attacker.example"}, 403),
        ("POST", None, {}, 501),
        ("PUT", None, {}, 501),
        ("OPTIONS", None, {}, 501),
        ("DELETE", None, {}, 501),
    ],
)
def test_nobody_else_gets_it(
    address: str, method: str, path: str | None, headers: dict[str, str], status: int
) -> None:
    response, body = asked(address, method, path, **headers)
    assert response.status == status
    assert "Access-Control-Allow-Origin" not in response.headers
    assert CONTENT[:256] not in body


def test_a_fetch_that_breaks_off_can_be_made_again(address: str, capfd: pytest.CaptureFixture[str]) -> None:
    parts = urlsplit(address)
    with socket.create_connection((str(parts.hostname), parts.port or 0)) as broken:
        broken.sendall(f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        broken.recv(100)
    assert asked(address)[1] == CONTENT
    assert capfd.readouterr().err == ""


def test_a_port_in_use_names_the_way_out(tmp_path: Path) -> None:
    assert PORT == 9001
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=rf"port {port} of this machine is in use; .*--output"):
            serve_file(tmp_path / "t.json", print, port=port)
