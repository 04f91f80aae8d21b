# SPDX-License-Identifier: Apache-2.0
"""`cclbench open`: a file, or the viewer's page with the trace behind it."""

from __future__ import annotations

import gzip
import json
import webbrowser
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest
from helpers.command_line import Call

from cclbench.present.perfetto import serve


def body_of(address: str) -> bytes:
    """What is served there."""
    parts = urlsplit(address)
    connection = HTTPConnection(parts.netloc, timeout=10)
    connection.request("GET", parts.path)
    return connection.getresponse().read()


def test_a_file(call: Call, trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    answer = call("open", trace, "-o", path)
    # 2 annotations, 6 launches, 6 device rows, 2 steps by annotation and 2 by device; one rank of two.
    assert (answer.code, answer.out) == (0, "")
    assert answer.err.startswith(f"wrote {path}: 18 slices, arrows through 0 collectives, ")
    written = json.loads(path.read_text())
    (gemm, _) = (one for one in written["traceEvents"] if one["name"] == "ampere_sgemm_128x64_nn")
    assert (gemm["ts"], gemm["dur"]) == (10, 40)
    assert gemm["args"] == {"category": "gemm", "step": 0, "correlation": 1, "blocks": 54}
    assert written["otherData"]["run"].startswith("rank0")
    assert call("open", trace, "-o", tmp_path / "a.json.gz").code == 0
    assert gzip.decompress((tmp_path / "a.json.gz").read_bytes()) == path.read_bytes()


def test_the_page_fetches_the_trace(call: Call, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[bytes] = []

    def browser(link: str) -> bool:
        page, _, address = link.partition("/#!/?url=")
        assert page == "https://ui.perfetto.dev"
        Thread(target=lambda: fetched.append(body_of(address))).start()
        return True

    monkeypatch.setattr(webbrowser, "open", browser)
    monkeypatch.setattr(serve.serve_file, "__kwdefaults__", {"port": 0})
    answer = call("open", trace, "--steps", "1:")
    assert answer.code == 0
    assert answer.out == ""
    lines = answer.err.splitlines()
    assert lines[-1] == "loaded by the viewer"
    assert lines[-3].startswith("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:")
    (packed,) = fetched
    names = {one["name"] for one in json.loads(gzip.decompress(packed))["traceEvents"]}
    assert "step 1" in names
    assert "step 0" not in names


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("rank0.json -o x.json --ranks 3", 2, "has no rank 3; it has [0]"),
        ("rank0.json -o x.json --steps 7:", 2, "there is nothing to show; its steps are 0, 1"),
        ("rank0.json -o x.json --steps x", 2, "'x' is not A:B"),
        ("rank0.json -o none/x.json", 2, "none/x.json: there is no folder none; create it first"),
        ("rank0.json -o full.json", 3, "full.json: No space left on device"),
        ("rank0.json -o x.html", 2, "x.html: unsupported suffix for a trace; use .json or .json.gz"),
        ("./none", 3, "no such file or folder"),
    ],
)
def test_what_cannot_be_shown(
    call: Call, trace: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, code: int, message: str
) -> None:
    monkeypatch.chdir(trace.parent)
    Path("full.json").symlink_to("/dev/full")
    answer = call("open", *arguments.split())
    assert answer.code == code
    assert message in answer.err
    assert not Path("x.json").exists()
