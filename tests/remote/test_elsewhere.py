# SPDX-License-Identifier: Apache-2.0
"""URLs of every kind: what is one, what is shown of it; web servers, and fsspec's other file systems."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

import pytest

import cclbench
from cclbench.ground.errors import InputError, UsageError
from cclbench.record.remote_store import RemoteStore
from cclbench.remote import objects
from cclbench.remote.url import check_names, location_of
from cclbench.workspace import store_at


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("CCLBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(objects, "PAUSE", 0.01)
    yield
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize("place", ["runs", "/a/b", "a:b", "./s3", "c:/x", "rank0.json", "", Path("a/b")])
def test_a_path_is_no_url(place: str | Path) -> None:
    assert location_of(place) == Path(place)


def test_a_url_is_shown_without_its_query() -> None:
    url = location_of("HTTPS://host/a/rank0%20x.json?X-Amz-Signature=secret#secret")
    assert (str(url), url.name) == ("https://host/a/rank0%20x.json", "rank0 x.json")
    assert url.full.endswith("?X-Amz-Signature=secret#secret")
    assert "secret" not in f"{url!r}{url.parent!r}{url.below('x')!r}"
    assert str(location_of("s3://bucket/a/b/")) == "s3://bucket/a/b"
    assert str(location_of("abfs://container@account.dfs.core.windows.net/a")).startswith("abfs://container@")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("https://ada:secret@host/x", "user name or password"),
        ("https://secret@host/x", "user name or password"),
        ("s3://key:secret@bucket/x", "user name or password"),
        ("zip://a.json::s3://bucket/x.zip", "chained URLs are not supported"),
        *(("https://host/folder/", "cannot be listed"), ("s3://", "has no bucket or host")),
        (Path("s3://bucket/x"), "is a URL converted to a path"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(place: str | Path, words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        location_of(place)
    assert "secret" not in str(raised.value)


def test_long_and_deep_names_are_refused() -> None:
    url = location_of("s3://bucket/job")
    assert url is not None
    check_names(["a/b.json", "a/c.json", "ä b/é.json"], url)
    for name in ("x" * 256, "a/" * 40 + "b", "/x", "a/./b", "C:/x"):
        with pytest.raises(InputError, match=r"its name|folders deep"):
            check_names([name], url)


class Web:
    """A web server of files by path; `ranges` says whether it gives parts of one."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.ranges, self.cut, self.etag = True, 0, '"1"'
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """The file, or a part of it; cut short as often as `cut` says."""
        self.asked.append(handler.path)
        path, _, query = handler.path.partition("?")
        content = self.files.get(path)
        if content is None or query != "signature=secret":
            handler.send_error(404 if content is None else 403)
            return
        begin, _, end = (handler.headers["Range"] or "bytes=0-").removeprefix("bytes=").partition("-")
        ranges = self.ranges and bool(content)
        part = content[int(begin) : int(end) + 1 if end else None] if ranges else content
        handler.send_response(206 if ranges else 200)
        if ranges:
            handler.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        handler.send_header("Content-Length", str(len(part)))
        handler.send_header("ETag", self.etag)
        handler.end_headers()
        if self.cut and len(part) > 1:
            self.cut -= 1
            part = part[: len(part) // 2]
        handler.wfile.write(part)


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.mark.parametrize("ranges", [True, False])
def test_a_trace_is_read_from_a_web_server(web: Web, job: Path, tmp_path: Path, ranges: bool) -> None:
    web.files["/a/rank0.json"] = (job / "rank0.json").read_bytes()
    web.ranges, web.cut = ranges, 2
    there = cclbench.ingest(f"{web.url}/a/rank0.json?signature=secret", store=tmp_path / "others")
    assert there.id == cclbench.ingest(job / "rank0.json", store=tmp_path / "runs").id
    assert there.manifest["source"] == f"{web.url}/a/rank0.json"
    assert "secret" not in "".join(path.read_text("latin-1") for path in there.path.rglob("*.json"))
    assert len(web.asked) >= 3  # its size; cut short; the rest


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/rank0.json?signature=wrong-secret", "access denied"),
        ("/rank7.json?signature=secret", "no such object"),
        ("/empty.json?signature=secret", "the file is empty"),
    ],
)
def test_refusals_hold_no_signature(web: Web, job: Path, tmp_path: Path, path: str, words: str) -> None:
    web.files["/rank0.json"], web.files["/empty.json"] = (job / "rank0.json").read_bytes(), b""
    with pytest.raises(InputError, match=words) as raised:
        cclbench.ingest(web.url + path, store=tmp_path / "runs")
    assert raised.value.where == web.url + path.partition("?")[0]
    assert "secret" not in str(raised.value)


def test_a_changing_page_is_refused_and_web_servers_keep_none(web: Web, job: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be a store"):
        store_at("https://host/runs")
    with pytest.raises(UsageError, match="does not support"):
        cclbench.runs("nonsense://x/y")
    web.files["/rank0.json"] = (job / "rank0.json").read_bytes()

    versions = count(2)

    def renewed(handler: BaseHTTPRequestHandler) -> None:
        # Before the answer: after it the next request may have been answered already.
        web.etag = f'"{next(versions)}"'
        answer(handler)

    answer, web.answer = web.answer, renewed  # type: ignore[method-assign]
    with pytest.raises(InputError, match="changed while it was read"):
        cclbench.ingest(f"{web.url}/rank0.json?signature=secret", store=tmp_path / "runs")


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_what_else_fsspec_has_gives_the_same_runs(kind: str, job: Path, tmp_path: Path) -> None:
    root = f"file://{tmp_path}/there" if kind == "file" else f"memory://{tmp_path.name}"
    store = RemoteStore(location_of(f"{root}/traces/job"))  # type: ignore[arg-type]
    store._objects.upload_all([(p, p.relative_to(job).as_posix()) for p in job.rglob("*") if p.is_file()])
    here = cclbench.run(job, store=tmp_path / "runs")
    there = cclbench.run(f"{root}/traces/job", store=f"{root}/runs")
    assert (there.id, there.rows) == (here.id, here.rows)
    assert [run["run"] for run in cclbench.runs(f"{root}/runs")] == [here.id]
    again = store_at(f"{root}/runs").get(here.id)
    assert again.path == there.path
    assert again.saved_results is not None
