# SPDX-License-Identifier: Apache-2.0
"""The downloader for http and https: bounded pieces, checked redirects, a minimum rate.

It sends no credentials and uses no proxy.  `verify --fetch` and `cclbench mcp` limit it to public addresses.
"""

from __future__ import annotations

import http.client
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from cclbench import __version__
from cclbench.ground.units import MIB

SECONDS: Final = 30.0
"""Timeout of a connection and of a read."""
SLOWEST: Final = 100_000
"""Minimum rate of a download in bytes/s, averaged over the file."""
_REDIRECTS = 5
_CHUNK = MIB
_MOVED = (301, 302, 303, 307, 308)
_NOTHING_THERE: Final = 416
_HEADERS: Final = {"User-Agent": f"cclbench/{__version__}", "Accept-Encoding": "identity"}
_RANGE: Final = re.compile(r"bytes (?:(\d{1,18})-\d{1,18}|\*)/(\d{1,18})")


class BadAnswerError(Exception):
    """An unexpected response; `status` is the HTTP status, if that is the reason."""

    def __init__(self, why: str, status: int | None = None) -> None:
        super().__init__(why)
        self.status = status


def size_and_version(url: str, *, public: bool = False) -> tuple[int, str | None]:
    """Size in bytes and ETag (else Last-Modified) of `url`, from a request for its first byte.

    `public`: see `open_answer`.
    """
    expected = (200, 206, _NOTHING_THERE)
    with open_answer(url, {"Range": "bytes=0-0"}, expected=expected, public=public) as response:
        size = _content_range(response)[1] if response.status != 200 else response.headers["Content-Length"]
        if size is None:
            raise BadAnswerError("the server does not state the size")
        return int(size), response.headers["ETag"] or response.headers["Last-Modified"]


def body_pieces(
    url: str, *, size: int, start: int = 0, version: str | None = None, public: bool = False
) -> Iterator[bytes]:
    """The body from byte `start` on; `public`: see `open_answer`.

    Raises `BadAnswerError` with status 412 if `version`, from `size_and_version`, is not that of the answer.
    """
    headers = {"Range": f"bytes={start}-"} if start else {}
    with open_answer(url, headers, expected=(200, 206), public=public) as response:
        if version not in (None, response.headers["ETag"], response.headers["Last-Modified"]):
            raise BadAnswerError("the server sent another version", 412)
        at = int(_content_range(response)[0] or 0) if response.status == 206 else 0
        if at not in (0, start):
            raise BadAnswerError("the server sent another range")
        for piece in read_bounded(response, size):
            # A server without support for ranges sends the whole body.
            skipped = min(max(start - at, 0), len(piece))
            at += len(piece)
            if skipped < len(piece):
                yield piece[skipped:]


def read_bounded(response: http.client.HTTPResponse, size: int) -> Iterator[bytes]:
    """The pieces of a response; `BadAnswerError` if `size` bytes arrive slower than `SLOWEST`."""
    until = time.monotonic() + SECONDS + size / SLOWEST
    while piece := response.read1(_CHUNK):
        if time.monotonic() > until:
            raise BadAnswerError(f"download slower than {SLOWEST:,} bytes/s")
        yield piece


@contextmanager
def open_answer(
    url: str, headers: Mapping[str, str], *, expected: tuple[int, ...] = (200,), public: bool = False
) -> Iterator[http.client.HTTPResponse]:
    """The response to a GET, after redirects; connections are always closed.

    `public` allows only https and public addresses, also after redirects.  https never redirects to http.
    """
    secure = public
    for _ in range(_REDIRECTS + 1):
        parts = _checked_parts(url, secure)
        secure = parts.scheme == "https"
        with closing(_new_connection(parts, public)) as connection:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", path, headers={**_HEADERS, **headers})
            with closing(connection.getresponse()) as response:
                if response.status in expected:
                    if response.headers.get("Content-Encoding") not in (None, "", "identity"):
                        raise BadAnswerError("the server compresses the response, though asked not to")
                    yield response
                    return
                if response.status not in _MOVED:
                    raise BadAnswerError(f"the server answers {response.status}", response.status)
                url = urljoin(url, response.headers["Location"] or "")
    raise BadAnswerError(f"more than {_REDIRECTS} redirects")


def _content_range(response: http.client.HTTPResponse) -> tuple[str | None, str | None]:
    """First byte and total size from the response's Content-Range, each None if not stated."""
    match = _RANGE.fullmatch(response.headers["Content-Range"] or "")
    return (None, None) if match is None else (match[1], match[2])


def _checked_parts(url: str, secure: bool) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in (("https",) if secure else ("http", "https")) or not parts.hostname:
        raise BadAnswerError("is not an https URL" if secure else "is not an http URL")
    if parts.username is not None or parts.password is not None:
        raise BadAnswerError("contains a user name or password")
    return parts


def _new_connection(parts: SplitResult, public: bool) -> http.client.HTTPConnection:
    host = parts.hostname or ""
    if public:
        return _PublicConnection(host, parts.port or 443, timeout=SECONDS)
    if parts.scheme == "https":
        return http.client.HTTPSConnection(host, parts.port, timeout=SECONDS)
    return http.client.HTTPConnection(host, parts.port, timeout=SECONDS)


class _PublicConnection(http.client.HTTPSConnection):
    """A connection to a public address only, whatever the name resolves to."""

    def __init__(self, host: str, port: int, *, timeout: float) -> None:
        self._context_of_tls = ssl.create_default_context()
        super().__init__(host, port, timeout=timeout, context=self._context_of_tls)

    def connect(self) -> None:
        """Connect to an address that was checked: the name may resolve differently the next time."""
        sock = _connected_to_public(self.host, self.port, self.timeout)
        self.sock = self._context_of_tls.wrap_socket(sock, server_hostname=self.host)


def _connected_to_public(host: str, port: int, timeout: float | None) -> socket.socket:
    """A connection to the first public address of a name that answers; others are not contacted."""
    addresses = [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    public = [address for address in addresses if _is_public(address)]
    if not public:
        raise BadAnswerError(f"{host} is at {addresses[0]}, which is not a public address")
    for address in public[:-1]:
        with suppress(OSError):
            return socket.create_connection((address, port), timeout)
    return socket.create_connection((public[-1], port), timeout)


def _is_public(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    return parsed.is_global and not parsed.is_multicast
