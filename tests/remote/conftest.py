# SPDX-License-Identifier: Apache-2.0
"""An S3 service on loopback, and a job of two ranks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.s3_service import Service

GEMM = "ampere_sgemm_128x64_nn<float>"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@pytest.fixture(scope="session", autouse=True)
def _libraries() -> None:
    """Of the extra `dev`; without them these tests are skipped on a bare machine and fail in CI."""
    for name in ("moto", "s3fs") if not os.environ.get("CI") else ():
        pytest.importorskip(name, reason="pip install '.[dev]'")


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """The address of an S3 service."""
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


def complete(category: str, name: str, begin_us: float, length_us: float, **args: Any) -> dict[str, Any]:
    """A row with a duration, on stream 7 or on thread 100."""
    place = {"pid": 0, "tid": 7} if category == "kernel" else {"pid": 100, "tid": 100}
    row = {"ph": "X", "cat": category, "name": name, "ts": begin_us, "dur": length_us}
    return {**row, **place, "args": args}


def events(rank: int) -> list[dict[str, Any]]:
    """Two steps of 100 µs: 40 µs of matrix product, then 30 + `rank` µs of all-reduce."""
    rows = []
    for step in range(2):
        at, call = 1000.0 + 100 * step, 10 * step
        members = {"Group size": 2, "Process Group Ranks": "[0, 1]"}
        sizes = {"In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float"}
        rows += [
            complete("user_annotation", f"ProfilerStep#{step}", at, 95),
            complete("cuda_runtime", "cudaLaunchKernel", at + 2, 1, correlation=call + 1),
            complete("cuda_runtime", "cudaLaunchKernel", at + 4, 1, correlation=call + 2),
            complete("kernel", GEMM, at + 10, 40, correlation=call + 1, grid=[54, 1, 1]),
            complete(
                "kernel",
                ALL_REDUCE,
                at + 35,
                30 + rank,
                correlation=call + 2,
                **{"Collective name": "allreduce", **members, **sizes},
            ),
        ]
    return rows


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A folder with the traces of two ranks, and a text beside them."""
    folder = tmp_path / "here" / "job"
    folder.mkdir(parents=True)
    for rank in (0, 1):
        of_rank = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}
        trace = {"schemaVersion": 1, **of_rank, "traceEvents": events(rank)}
        (folder / f"rank{rank}.json").write_text(json.dumps(trace))
    (folder / "notes").mkdir()
    (folder / "notes" / "read me.md").write_text("# A job\n")
    return folder
