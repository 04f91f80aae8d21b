# SPDX-License-Identifier: Apache-2.0
"""Serve one file from this machine to ui.perfetto.dev only.

The viewer's content policy permits one local address, that of `PORT`; it fetches the file named in its URL
(https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui).
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import token_urlsafe
from threading import Event, Thread
from typing import Final

from cclbench.ground.errors import UsageError
from cclbench.ground.signals import WAIT_S

VIEWER: Final = "https://ui.perfetto.dev"
PORT: Final = 9001
_HERE: Final = "127.0.0.1"
_PATIENCE_S: Final = 60


def serve_file(path: Path, announce: Callable[[str], object], *, port: int = PORT) -> None:
    """Serve the file on the loopback interface until it is fetched once; `announce` receives the link.

    Its name is random.  Only requests to the loopback address, from the viewer's pages or without an origin,
    are answered.  `UsageError` if the port is in use.
    """
    try:
        server = _OneFileServer((_HERE, port), path)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        hint = "the viewer can only use this port: stop what uses it, or write a file with --output"
        raise UsageError(f"port {port} of this machine is in use", hint=hint) from None
    with server:
        # In a thread, so that the main thread can be interrupted.
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            announce(f"{VIEWER}/#!/?url=http://{server.expected_host}{server.name}")
            while not server.fetched.wait(WAIT_S):
                pass
        finally:
            server.shutdown()


class _OneFileServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], path: Path) -> None:
        super().__init__(address, _Handler)
        self.path, self.name, self.fetched = path, f"/{token_urlsafe(16)}{''.join(path.suffixes)}", Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore: an interrupted fetch can be repeated."""

    @property
    def expected_host(self) -> str:
        """The required Host header: a foreign page whose name resolves to this address has another."""
        return f"{_HERE}:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: _OneFileServer
    server_version, sys_version = "cclbench", ""
    timeout = _PATIENCE_S

    def do_GET(self) -> None:
        """Send the file."""
        if self._is_admitted():
            with self.server.path.open("rb") as file:
                shutil.copyfileobj(file, self.wfile)
            self.wfile.flush()
            self.server.fetched.set()

    def do_HEAD(self) -> None:
        """Send the headers only."""
        self._is_admitted()

    def _is_admitted(self) -> bool:
        """Check the request; send the file's headers or an error."""
        origin = self.headers.get("Origin")
        if self.headers.get("Host") != self.server.expected_host or origin not in (None, VIEWER):
            self.send_error(HTTPStatus.FORBIDDEN)
            return False
        if self.path != self.server.name:
            self.send_error(HTTPStatus.NOT_FOUND)
            return False
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(self.server.path.stat().st_size))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Access-Control-Allow-Origin", VIEWER)
        self.end_headers()
        return True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's name)
        """No log."""
