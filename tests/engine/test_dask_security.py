# SPDX-License-Identifier: Apache-2.0
"""Ports of the local Dask cluster: on this machine alone, and closed to whoever lacks its certificate."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from cclbench.engine import engine_of

distributed = pytest.importorskip("distributed")
CLUSTER = """
import sys

import psutil

from cclbench.engine import engine_of

if __name__ == "__main__":
    with engine_of("dask", jobs=2, tell=lambda line: print(line, file=sys.stderr)) as engine:
        assert engine.map(abs, [-1, -2]) == [1, 2]
        own = psutil.Process()
        for process in [own, *own.children(recursive=True)]:
            for connection in process.net_connections("inet"):
                if connection.status == psutil.CONN_LISTEN:
                    print(*connection.laddr)
        print(flush=True)
        sys.stdin.read()
"""


@pytest.fixture(scope="module")
def listening(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[str, int]]]:
    """Addresses at which processes of a local cluster listen, while another process runs it."""
    script = tmp_path_factory.mktemp("cluster") / "cluster.py"
    script.write_text(CLUSTER)
    with subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        lines = [line.split() for line in iter(process.stdout.readline, "\n") if line]
        yield [(host, int(port)) for host, port in lines]
        process.communicate()
    assert process.returncode == 0


def untrusting() -> ssl.SSLContext:
    """TLS without a certificate of one's own, and with any of the other side."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def answer_of_http(address: tuple[str, int], *, tls: bool) -> bytes:
    """What a GET is answered with; b"" where the connection is closed, or answered by an alert of TLS."""
    try:
        with (
            socket.create_connection(address, timeout=10) as plain,
            untrusting().wrap_socket(plain) if tls else plain as connection,
        ):
            connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            answer = connection.recv(1000)
    except (ssl.SSLError, ConnectionError):
        return b""
    return b"" if answer.startswith(b"\x15\x03") else answer


async def answer_of_dask(address: str, **arguments: Any) -> Any:
    """What a Dask server answers when it is asked who it is, None where it does not answer."""
    try:
        async with asyncio.timeout(10):
            comm = await distributed.core.connect(address, timeout=5, **arguments)
            try:
                await comm.write({"op": "identity"})
                return await comm.read()
            finally:
                comm.abort()
    except OSError:  # what distributed raises for a closed connection
        return None


def test_all_servers_listen_on_this_machine_alone(listening: list[tuple[str, int]]) -> None:
    # A scheduler, two workers, two nannies.
    assert len(listening) == 5
    assert all(ip_address(host).is_loopback for host, _ in listening)


@pytest.mark.parametrize("tls", [False, True])
def test_no_server_answers_without_the_certificate(listening: list[tuple[str, int]], tls: bool) -> None:
    arguments = {"ssl_context": untrusting(), "require_encryption": True} if tls else {}
    for host, port in listening:
        assert answer_of_http((host, port), tls=tls) == b""
        address = f"{'tls' if tls else 'tcp'}://{host}:{port}"
        with ThreadPoolExecutor(1) as apart:  # a browser of other tests may have an event loop in this thread
            assert apart.submit(asyncio.run, answer_of_dask(address, **arguments)).result() is None


def test_a_cluster_of_ones_own_keeps_the_credentials_of_dasks_configuration(tmp_path: Path) -> None:
    dask = pytest.importorskip("dask")
    made = distributed.Security.temporary()
    for name, text in (("ca", made.tls_ca_file), ("key", made.tls_client_key)):
        (tmp_path / name).write_text(text)
    ca, key = str(tmp_path / "ca"), str(tmp_path / "key")
    roles = ("client", "scheduler", "worker")
    places = {f"{role}.{kind}": path for role in roles for kind, path in (("cert", ca), ("key", key))}
    settings = {f"distributed.comm.tls.{name}": path for name, path in {"ca-file": ca, **places}.items()}
    with dask.config.set(settings):
        security = distributed.Security(require_encryption=True)
        with (
            distributed.LocalCluster(
                n_workers=1, processes=False, security=security, dashboard_address=None, protocol="tls://"
            ) as cluster,
            engine_of(cluster.scheduler_address) as engine,
        ):
            assert engine.map(abs, [-1, -2]) == [1, 2]
