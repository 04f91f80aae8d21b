# SPDX-License-Identifier: Apache-2.0
"""A job as its owner has it: a card, four ranks' traces with a secret planted in them, a script."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from cclbench.contribute import redaction

SECRET = b"ada-lovelace"
"""What the stand-in for redaction takes for an identity."""


@dataclass(frozen=True)
class Found:
    """As `redaction.Redaction`."""

    file: str
    place: str
    kind: str
    count: int


def plain(path: Path) -> bytes:
    """A file's content, decompressed."""
    content = path.read_bytes()
    return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content


def collect(paths: Sequence[Path]) -> bytes:
    """One identity is known."""
    assert all(path.is_file() for path in paths)
    return SECRET


def redact(source: Path, target: Path, *, annotations: bool = False, known: bytes) -> list[Found]:
    """Replaces it; with `annotations` the word `forward` too."""
    content = plain(source)
    changed = content.replace(known, b"user-1")
    if annotations:
        changed = changed.replace(b"forward", b"note")
    if changed == content:
        shutil.copyfile(source, target)
        return []
    target.write_bytes(gzip.compress(changed, mtime=0) if source.suffix == ".gz" else changed)
    return [Found(target.name, "text", "user name", content.count(known) or 1)]


def redacted_name(name: str, known: bytes) -> str:
    """A file's name without it."""
    return name.replace(known.decode(), "user-1")


def leftovers(path: Path, known: bytes) -> list[Found]:
    """Where it is still."""
    count = plain(path).count(known)
    return [Found(path.name, "text", "user name", count)] if count else []


@pytest.fixture
def fake_redaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redaction of one known name, so that tests of packaging are about packaging."""
    for function in (collect, redact, leftovers, redacted_name):
        monkeypatch.setattr(redaction, function.__name__, function, raising=False)


CARD = """\
version: 2
id: my-job
description: A tiny Llama that ada-lovelace trained.
workload:
  phase: training
  model: {parameters: 8325632, layers: 2, heads: 8, head_dim: 64}
  batch: {global: 16, sequence_length: 128}
hardware: {per_node: 4}
parallelism: {dp_replicate: 4}
"""


@dataclass(frozen=True)
class Job:
    """Where a contributor's own files lie, and the collection that they go to."""

    folder: Path
    collection: Path

    @property
    def card(self) -> Path:
        """The card, with gaps that the traces fill."""
        return self.folder / "my-job.yaml"

    @property
    def traces(self) -> Path:
        """Four ranks."""
        return self.folder / "capture"

    @property
    def scripts(self) -> Path:
        """One script, and a hidden file."""
        return self.folder / "launch"

    def arguments(self, *more: object) -> list[str]:
        """Of `cclbench contribute`."""
        fixed = (self.card, "--traces", self.traces, "--scripts", self.scripts)
        where = ("--collection", self.collection, "--jobs", "1")
        return [str(word) for word in (*fixed, *where, *more)]


@pytest.fixture
def job(tmp_path: Path, repository: Path) -> Job:
    """The shipped traces of DDP, with a name planted in an annotation of rank 0 and in the script."""
    made = Job(tmp_path / "job", tmp_path / "collection")
    made.collection.mkdir()
    made.scripts.mkdir(parents=True)
    made.traces.mkdir()
    for trace in (repository / "traces" / "tiny-llama-ddp4-gloo-cpu").glob("rank*"):
        shutil.copyfile(trace, made.traces / trace.name)
    first = made.traces / "rank0_trace.json.gz"
    text = plain(first)
    assert b'"traceName"' in text
    named = text.replace(b'"traceName"', b'"owner": "' + SECRET + b'", "traceName"', 1)
    first.write_bytes(gzip.compress(named, mtime=0))
    made.card.write_text(CARD)
    (made.scripts / "run.sh").write_text("#!/bin/sh\n# by ada-lovelace\ntorchrun train.py\n")
    (made.scripts / "run.sh").chmod(0o755)
    (made.scripts / ".env").write_text("TOKEN=x\n")
    return made


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def files() -> Callable[[Path], dict[str, bytes]]:
    """Every file below a folder, by its path."""
    return tree
