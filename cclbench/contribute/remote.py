# SPDX-License-Identifier: Apache-2.0
"""Fetching a file of a data point: https only, no more bytes than declared, and only with the right hash."""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from cclbench import __version__
from cclbench.engine import Progress
from cclbench.errors import InputError
from cclbench.text import printable
from cclbench.units import MIB

SECONDS: Final = 30.0
"""Longest silence of a server."""
_SLOWEST: Final = 100_000
"""Bytes a second, over the whole of a file, below which a server is given up."""
_REDIRECTS = 5
_CHUNK = MIB
_MOVED = (301, 302, 303, 307, 308)
_HEADERS: Final = {"User-Agent": f"cclbench/{__version__}", "Accept-Encoding": "identity"}


def fetch(url: str, target: Path, *, sha256: str, size: int, progress: Progress | None = None) -> None:
    """Write what is at `url` to `target`, whole or not at all.

    It is asked for without credentials or proxy, from public addresses alone, redirected or not.  Raises
    `InputError` for any other scheme, address, answer, size or SHA-256.
    """
    draft = target.with_name(target.name + ".part")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _answer(url) as answer, draft.open("wb") as file:
            sum_ = hashlib.sha256()
            done, until = 0, time.monotonic() + SECONDS + size / _SLOWEST
            while chunk := answer.read1(_CHUNK):
                done += len(chunk)
                if time.monotonic() > until:
                    raise _refused(url, f"comes slower than {_SLOWEST:,} bytes a second")
                if done > size:
                    raise _refused(url, f"has more than the {size:,} bytes that are recorded")
                sum_.update(chunk)
                file.write(chunk)
                if progress:
                    progress(f"fetching {printable(target.name)}", done, size)
        if done < size:
            raise _refused(url, f"has {done:,} bytes, recorded are {size:,}")
        if sum_.hexdigest() != sha256:
            raise _refused(url, f"its SHA-256 is {sum_.hexdigest()}, recorded is {sha256}")
        draft.replace(target)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise _refused(url, f"cannot be fetched: {error}") from None
    finally:
        draft.unlink(missing_ok=True)


def _refused(url: str, why: str) -> InputError:
    return InputError(printable(why), where=printable(url)[:300])


@contextmanager
def _answer(url: str) -> Iterator[http.client.HTTPResponse]:
    """The body of a GET, after redirects; each connection is closed whatever happens."""
    for _ in range(_REDIRECTS + 1):
        parts = _checked(url)
        with closing(_Public(parts.hostname or "", parts.port or 443, timeout=SECONDS)) as connection:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", path, headers=_HEADERS)
            response = connection.getresponse()
            if response.status == 200:
                yield response
                return
            if response.status not in _MOVED:
                raise _refused(url, f"the server answers {response.status}")
            url = urljoin(url, response.headers["Location"] or "")
    raise _refused(url, f"more than {_REDIRECTS} redirects")


def _checked(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise _refused(url, "is no https address")
    if parts.username is not None or parts.password is not None:
        raise _refused(url, "carries a user's name or password")
    return parts


class _Public(http.client.HTTPSConnection):
    """A connection whose other end is a public address, whatever the name resolves to."""

    def __init__(self, host: str, port: int, *, timeout: float) -> None:
        self._context_of_tls = ssl.create_default_context()
        super().__init__(host, port, timeout=timeout, context=self._context_of_tls)

    def connect(self) -> None:
        """Connect, look at whom, and only then speak."""
        sock = socket.create_connection((self.host, self.port), self.timeout)
        address = sock.getpeername()[0]
        if not ipaddress.ip_address(address.partition("%")[0]).is_global:
            sock.close()
            raise OSError(f"{self.host} is at {address}, which is no public address")
        self.sock = self._context_of_tls.wrap_socket(sock, server_hostname=self.host)
