# SPDX-License-Identifier: Apache-2.0
"""An S3 service on loopback, and a job of two ranks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.s3_service import Service
from helpers.two_ranks import events, on_rank, write


@pytest.fixture(scope="session", autouse=True)
def _libraries() -> None:
    """Of the extra `dev`; without them these tests are skipped on a bare machine and fail in CI."""
    for name in ("moto", "s3fs") if not os.environ.get("CI") else ():
        pytest.importorskip(name, reason="pip install '.[dev]'")


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def service(moto: str) -> Iterator[Service]:
    """The proxy before it."""
    proxy = Service(moto)
    yield proxy
    proxy.server.shutdown()
    proxy.server.server_close()


@pytest.fixture
def s3(service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Service]:
    """A service with an empty bucket called `bucket`, whose clients wait less than usual for anything."""
    for name, value in {
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "no-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "no-credentials"),
        "CCLBENCH_CACHE": str(tmp_path / "cache"),
        "TMPDIR": str(tmp_path / "tmp"),
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr("cclbench.remote.objects.PAUSE", 0.01)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    service.asked.clear()
    service.faults.clear()
    service.over.clear()
    service.before = lambda _method, _path: None
    monkeypatch.setenv("AWS_ENDPOINT_URL", service.url)
    service.direct("POST", "/moto-api/reset")
    assert service.direct("PUT", "/bucket")[0] == 200
    yield service
    service.over.set()
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with the traces of two ranks, and a text beside them."""
    folder = tmp_path / "here" / "job"
    folder.mkdir(parents=True)
    for rank in (0, 1):
        write(folder / f"rank{rank}.json", events(rank), **on_rank(rank))
    (folder / "notes").mkdir()
    (folder / "notes" / "read me.md").write_text("# A job\n")
    return folder
