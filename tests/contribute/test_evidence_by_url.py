# SPDX-License-Identifier: Apache-2.0
"""Traces that a card names by URL, SHA-256 and size: fetched once from a server, and read from the cache."""

from __future__ import annotations

import http.client
import http.server
import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from helpers import command_line
from helpers.contributed import CARD

from cclbench.remote import web

call = command_line.call


class Server(http.server.ThreadingHTTPServer):
    """Files by path on this machine; `asked` are the paths of its requests."""

    files: dict[str, bytes]
    redirects: dict[str, str]
    asked: list[str]


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as its server's files and redirects say."""

    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path in self.server.redirects:
            self.send_response(302)
            self.send_header("Location", self.server.redirects[self.path])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content = self.server.files[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that stands for each public host, without TLS, which the checks of URLs still require."""
    serving = Server(("127.0.0.1", 0), Handler)
    serving.files, serving.redirects, serving.asked = {}, {}, []

    class Connection(http.client.HTTPConnection):
        def __init__(self, *_: object, timeout: float) -> None:
            super().__init__("127.0.0.1", serving.server_port, timeout=timeout)

    monkeypatch.setattr(web, "_PublicConnection", Connection)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    yield serving
    serving.shutdown()
    thread.join()
    serving.server_close()


@pytest.fixture
def card(job: Any, tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A card whose only trace is on the server."""
    monkeypatch.setenv("CCLBENCH_CACHE", str(tmp_path / "cache"))
    content = (job.traces / "rank0.json").read_bytes()
    server.files["/rank0.json"] = content
    path = tmp_path / "my-job.yaml"
    trace = f"{{path: rank0.json, url: 'https://example.org/rank0.json', bytes: {len(content)}, "
    trace += f"sha256: {sha256(content).hexdigest()}}}"
    path.write_text(f"{CARD}evidence: {{traces: [{trace}]}}\n")
    return path


def test_a_card_is_run_from_the_cache_once_its_trace_is_fetched(
    call: Any, card: Path, server: Server, tmp_path: Path
) -> None:
    words = ("run", card, "--metric", "time.step", "--store", tmp_path / "runs", "--json")
    before = call(*words)
    assert before.code == 3
    assert "cclbench card fetch" in before.err
    assert server.asked == []  # nothing is fetched that nobody asked for
    assert "card fetch" in call("card", "validate", card).out
    for _ in range(2):
        assert call("card", "fetch", card).code == 0
    assert server.asked == ["/rank0.json"]
    assert call(*words).code == 0
    assert "card fetch" not in call("card", "validate", card).out
    (cached,) = (path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    cached.write_bytes(cached.read_bytes().replace(b"sgemm", b"dgemm"))
    changed = call(*words)
    assert (changed.code, "SHA-256 differs" in changed.err) == (3, True)
    assert call("card", "fetch", card).code == 0
    assert call(*words).code == 0


def test_what_is_not_the_recorded_file_is_refused(
    call: Any, card: Path, server: Server, tmp_path: Path
) -> None:
    content = server.files["/rank0.json"]
    for served, reason in (
        (content + b" " * 9_000_000, "more than the recorded"),
        (content[:-1], f"has {len(content) - 1:,} bytes"),
        (content[:-1] + b" ", "its SHA-256 is"),
    ):
        server.files["/rank0.json"] = served
        answer = call("card", "fetch", card)
        assert (answer.code, reason in answer.err) == (3, True), answer.err
    server.redirects["/rank0.json"] = (tmp_path / "my-job.yaml").as_uri()
    answer = call("card", "fetch", card)
    assert (answer.code, "is not an https URL" in answer.err) == (3, True)
    size = len(content)
    card.write_text(card.read_text().replace(f"bytes: {size}", f"bytes: {1 << 60}"))
    answer = call("card", "fetch", card)
    assert (answer.code, "are free on the disk" in answer.err) == (3, True)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_a_url_without_hash_is_refused_before_any_request(call: Any, card: Path, server: Server) -> None:
    head, _, _ = card.read_text().partition(", bytes:")
    card.write_text(f"{head}}}]}}\n")
    answer = call("card", "fetch", card)
    assert answer.code == 1
    assert "requires sha256 and bytes" in answer.err
    assert server.asked == []
