# SPDX-License-Identifier: Apache-2.0
"""A proxy before an S3 service, which fails as it is told."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
from collections.abc import Callable
from html import escape, unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, urlsplit

Fault = Literal["503", "reset", "short", "slow", "expired", "forbidden"]
ERRORS = {"503": (503, "SlowDown"), "expired": (400, "ExpiredToken"), "forbidden": (403, "AccessDenied")}


class Service:
    """An S3 service: objects by name, the requests it got, and what it is to do wrong."""

    def __init__(self, behind: str) -> None:
        self.behind = behind
        self.asked: list[tuple[str, str]] = []
        self.sent = 0
        """Bytes of the answers' bodies."""
        self.faults: list[tuple[str, str, Fault]] = []
        """Method, part of the path, fault: each met once, in order."""
        self.before: Callable[[str, str], None] = lambda _method, _path: None
        self.over = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return lambda: service.forward(self)
                raise AttributeError(name)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def fail(self, fault: Fault, part: str = "", method: str = "GET", times: int = 1) -> None:
        """Fail the next requests of that method whose path has that part."""
        self.faults += [(method, part, fault)] * times

    def objects(self, prefix: str = "") -> dict[str, bytes]:
        found = self.direct("GET", f"/bucket?list-type=2&prefix={prefix}")[1].decode()
        keys = [unescape(part.partition("</Key>")[0]) for part in found.split("<Key>")[1:]]
        return {key: self.direct("GET", f"/bucket/{quote(key)}")[1] for key in keys}

    def put(self, key: str, content: bytes) -> None:
        assert self.direct("PUT", f"/bucket/{quote(key)}", content)[0] == 200

    def put_folder(self, folder: Path, prefix: str) -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def counted(self, method: str, part: str = "") -> int:
        """Requests of that method whose path has that part."""
        return sum(each == method and part in path for each, path in self.asked)

    def direct(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        """The answer of the service itself."""
        connection = http.client.HTTPConnection(urlsplit(self.behind).netloc, timeout=30)
        try:
            signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/s3/aws4_request"}
            connection.request(method, path, body, headers or signed)
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())
        finally:
            connection.close()

    def forward(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer as the service does, or fail."""
        method, path = handler.command, handler.path
        body = handler.rfile.read(int(handler.headers["Content-Length"] or 0))
        self.asked.append((method, path))
        self.before(method, path)
        fault = None
        for at, (of_method, part, wanted) in enumerate(self.faults):
            if of_method == method and part in path:
                fault = wanted
                del self.faults[at]
                break
        if fault in ERRORS:
            status, code = ERRORS[fault]
            answer = f"<Error><Code>{code}</Code><Message>secret={escape(path)}</Message></Error>".encode()
            headers = {"Content-Type": "application/xml"}
        else:
            status, answer, headers = self.direct(method, path, body, dict(handler.headers))
        handler.send_response(status)
        self.sent += len(answer)
        length = headers.get("Content-Length", "0") if method == "HEAD" else str(len(answer))
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                handler.send_header(name, value)
        handler.send_header("Content-Length", length)
        handler.end_headers()
        if method == "HEAD":
            return
        if fault in ("reset", "short", "slow"):
            handler.wfile.write(answer[: len(answer) // 2])
            handler.wfile.flush()
            if fault == "slow":
                self.over.wait(5)
            if fault == "reset":
                # Closing with nothing to linger for sends a reset.
                handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.close_connection = True
            handler.connection.close()
            return
        handler.wfile.write(answer)
