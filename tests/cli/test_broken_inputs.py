# SPDX-License-Identifier: Apache-2.0
"""Ways to break an input: exit code and message as the contract says, the store untouched."""

from __future__ import annotations

import errno
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import Call

DEEP = 100_000
HUGE = 10**30


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The store that `call` uses."""
    return tmp_path / "store"


@dataclass(frozen=True)
class Refused:
    """A call that must fail, checked against the contract."""

    call: Call
    store: Path

    def __call__(self, source: object, *options: str, code: int = 3, lines: int = 3) -> str:
        """The message; no traceback, no output, nothing in the store."""
        answer = self.call("run", source, "--json", *options)
        assert (answer.code, answer.out) == (code, ""), answer.err
        assert answer.err.startswith("error: ")
        assert 1 <= len(answer.err.splitlines()) <= lines
        assert "Traceback" not in answer.err
        assert list(self.store.rglob("*")) == []
        return str(answer.err)


@pytest.fixture
def refused(call: Call, store: Path) -> Refused:
    """Runs a source that can't be read."""
    return Refused(call, store)


@pytest.fixture
def text(trace: Path) -> bytes:
    """The small trace's bytes."""
    return trace.read_bytes()


@pytest.mark.parametrize("tenth", [1, 5, 9])
def test_cuts(call: Call, refused: Refused, trace: Path, text: bytes, tenth: int, store: Path) -> None:
    """As it is, within gzip, and salvaged on request."""
    kept = len(text) * tenth // 10
    trace.write_bytes(text[:kept])
    message = refused(trace)
    assert f"{trace}: byte {kept:,}: " in message
    assert "--allow-truncated" in message
    packed, path = gzip.compress(text), trace.with_suffix(".json.gz")
    path.write_bytes(packed[: len(packed) * tenth // 10])
    assert str(path) in refused(path)
    answer = call("run", trace, "--allow-truncated", "--json")
    assert answer.code in (0, 3), answer.err
    if answer.code == 3:
        assert "Traceback" not in answer.err
        assert list(store.rglob("*")) == []
        return
    (cut,) = json.loads(answer.out)["run"]["truncated"]
    assert 0 < cut["byte"] <= kept


@pytest.mark.parametrize("seed", range(20))  # thousands are scripts/campaign/fuzz.py's
def test_flipped_bytes_do_no_harm(call: Call, trace: Path, text: bytes, store: Path, seed: int) -> None:
    """A flipped byte may still be a trace; it is never a traceback, and a refusal leaves no run."""
    broken = bytearray(text)
    broken[seed * len(text) // 20] ^= 1 << seed % 8
    trace.write_bytes(broken)
    answer = call("run", trace, "-q")
    assert answer.code in (0, 3), answer.err
    if answer.code == 3:
        assert trace.name in answer.err
        assert len(answer.err.splitlines()) <= 3
        assert list(store.rglob("*")) == []


def around(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """A change of the file's text; `old` must be there."""

    def change(text: bytes) -> bytes:
        assert old in text
        return text.replace(old, new, 1)

    return change


EVENT = b'{"schemaVersion": 1, "traceEvents": [{"name": "'
CHANGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda _: b"", "empty"),
    "spaces only": (lambda _: b" \n\t ", "empty"),
    "plain text": (lambda _: b"hello", "no trace of a known format"),
    "a web page": (lambda _: b"<html></html>", "no trace of a known format"),
    "another JSON": (lambda _: b'{"events": []}', "no trace of a known format"),
    "a bare null": (lambda _: b"null", "no trace of a known format"),
    "UTF-16": (lambda text: text.decode().encode("utf-16"), "no trace of a known format"),
    "not UTF-8": (around(b"ampere_", b"amp\xff\xfe"), "not UTF-8"),
    "brackets that never close": (lambda _: b'{"traceEvents": ' + b"[" * DEEP, "without rows of"),
    "a huge string that never ends": (lambda _: EVENT + b"a" * 20_000_000, "byte "),
    "a number of a million digits": (around(b'"dur": 40,', b'"dur": ' + b"9" * 1_000_000 + b","), "byte "),
    "events that are an object": (around(b'"traceEvents": [', b'"traceEvents": {}, "x": ['), "traceEvents"),
    "no events": (lambda _: b'{"schemaVersion": 1, "traceEvents": []}', "event"),
    "gzip: header only": (lambda text: gzip.compress(text)[:10], "empty"),
    "gzip: no trace inside": (lambda _: gzip.compress(b"hello"), "no trace of a known format"),
    "gzip: bomb of spaces": (lambda _: gzip.compress(EVENT[:-10] + b" " * 100_000_000), "byte "),
    "gzip: bomb of a string": (lambda _: gzip.compress(EVENT + b"a" * 100_000_000), "byte "),
}


@pytest.mark.parametrize("name", CHANGES)
def test_broken_text(refused: Refused, trace: Path, text: bytes, name: str) -> None:
    change, says = CHANGES[name]
    path = trace.with_suffix(".json.gz") if name.startswith("gzip") else trace
    path.write_bytes(change(text))
    message = refused(path)
    assert str(path) in message
    assert says in message


@pytest.mark.parametrize(
    ("facts", "codes"),
    [
        ({"distributedInfo": {"rank": 2, "world_size": 2}}, (3,)),
        ({"distributedInfo": {"rank": 0, "world_size": -4}}, (3,)),
        # what no figure needs may be ignored
        ({"deviceProperties": [{"id": 0, "name": "A", "numSms": HUGE, "totalGlobalMem": HUGE}]}, (0, 3)),
        ({"deviceProperties": "none"}, (0, 3)),
        ({"deviceProperties": [1]}, (0, 3)),
        ({"distributedInfo": []}, (0, 3)),
        ({"distributedInfo": {"rank": 0, "pg_config": [{"pg_name": 1, "ranks": [-1, HUGE]}]}}, (0, 3)),
        ({"distributedInfo": {"rank": 0, "world_size": "two", "nccl_version": []}}, (0, 3)),
        ({"schemaVersion": HUGE}, (0, 3)),
    ],
    ids=lambda facts: str(facts)[:50],
)
def test_absurd_facts(
    call: Call, store: Path, trace: Path, document: Any, facts: dict[str, Any], codes: tuple[int, ...]
) -> None:
    path = trace.rename(trace.with_name("trace.json"))
    path.write_text(json.dumps({**document, **facts}))
    answer = call("run", path, "--json")
    assert answer.code in codes, answer.err
    assert "Traceback" not in answer.err
    assert answer.code == 0 or (path.name in answer.err and list(store.rglob("*")) == [])


def test_nothing_to_read(refused: Refused, trace: Path) -> None:
    """A missing file names its neighbours; a folder is empty, or has no trace; a pipe is neither."""
    assert "did you mean rank0.json?" in refused(trace.with_name("rnak0.json"))
    folder = trace.with_name("traces")
    folder.mkdir()
    assert f"{folder}: the folder is empty" in refused(folder)
    (folder / "notes.txt").write_text("hello")
    assert "none of its files is a trace" in refused(folder)
    os.mkfifo(trace.with_name("pipe"))
    assert "neither a file nor a folder" in refused(trace.with_name("pipe"))
    loop = trace.with_name("loop")
    loop.symlink_to(loop)
    assert str(loop) in refused(loop)


@pytest.fixture
def folder(trace: Path) -> Path:
    """A folder with the trace of rank 0."""
    folder = trace.parent / "traces"
    folder.mkdir()
    return trace.rename(folder / trace.name).parent


CARD = "version: 2\nid: {id}\ndescription: a test\nworkload: {{phase: training}}\n"


def test_two_cards(refused: Refused, folder: Path) -> None:
    for name in ("a", "b"):
        (folder / f"{name}.yaml").write_text(CARD.format(id=name))
    assert f"{folder}: holds 2 cards (a.yaml and b.yaml)" in refused(folder)


def test_ranks_that_are_of_no_one_job(refused: Refused, folder: Path, document: dict[str, Any]) -> None:
    """Another backend, and one of them cut; tests/test_api.py has what else contradicts."""
    other = folder / "rank1.json"
    document["distributedInfo"] |= {"rank": 1, "backend": "gloo"}
    other.write_text(json.dumps(document))
    message = refused(folder)
    assert "different jobs" in message
    assert "backend gloo in rank1.json" in message
    other.write_text(json.dumps(document)[:900])
    assert f"{other}: byte 900: " in refused(folder)


@pytest.mark.parametrize(
    ("evidence", "says"),
    [
        ("", "lists no traces"),
        ("evidence: {traces: [{path: lost.json, format: kineto}]}\n", "lost.json"),
        ("evidence: {traces: [{path: rank0.json, format: kineto, sha256: '%s'}]}\n" % ("0" * 64), "SHA-256"),
    ],
    ids=["no traces", "a missing trace", "another trace"],
)
def test_cards_without_their_evidence(refused: Refused, trace: Path, evidence: str, says: str) -> None:
    card = trace.with_name("card.yaml")
    card.write_text(CARD.format(id="card") + evidence)
    message = refused(card)
    assert str(card) in message
    assert says in message


def test_a_card_that_is_none(refused: Refused, tmp_path: Path) -> None:
    """What is no YAML cannot be read; an invalid card is a failed check."""
    card = tmp_path / "card.yaml"
    card.write_text("version: 2\nid: [\n")
    assert f"{card}:" in refused(card)
    card.write_text("version: 2\nid: card\nid: card\n")
    assert "is there twice" in refused(card, code=1, lines=10)


def test_a_file_that_cannot_be_opened(refused: Refused, trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_really = Path.open

    def refuse(path: Path, *arguments: Any, **options: Any) -> Any:
        if path == trace:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return open_really(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    assert f"{trace}: cannot be read: Permission denied" in refused(trace)


def test_a_store_below_a_file(refused: Refused, trace: Path, text: bytes) -> None:
    store = trace / "store"
    assert f"{store}: the store cannot be written" in refused(trace, "--store", str(store))
    assert trace.read_bytes() == text


ON_A_SMALL_DISK = """
import resource, sys
from cclbench.cli import main
limit, hard = int(sys.argv[1]), resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("limit", [0, 100, 1000, 3000])
def test_a_disk_that_fills_up(trace: Path, store: Path, limit: int) -> None:
    """The system refuses to write files beyond so many bytes; in a process of its own, for its sake alone."""
    words = [sys.executable, "-c", ON_A_SMALL_DISK, str(limit), "run", str(trace), "--store", str(store)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (3, ""), ended.stderr
    assert ended.stderr.startswith(f"error: {store}: the store cannot be written: ")
    assert len(ended.stderr.splitlines()) <= 3
    assert list(store.rglob("*")) == []


def test_a_refusal_leaves_earlier_runs_alone(call: Call, trace: Path, text: bytes, store: Path) -> None:
    assert call("run", trace).code == 0
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    assert before
    trace.write_bytes(text[:-500])
    assert call("run", trace).code == 3
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before
