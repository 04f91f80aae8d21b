# SPDX-License-Identifier: Apache-2.0
"""A format from outside is a package with an entry point: read, listed, contributed, with no edit here."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from docs.test_pages import installed
from helpers.packages import cclbench_with, path_to
from helpers.page_commands import blocks, here

from cclbench.contribute.redaction.publisher import UNLISTED
from cclbench.formats import READERS, sort_by_precedence

CARD = """\
version: 2
id: plain
description: One rank on gpunode17.
workload: {phase: training, precision: bf16, model: {name: tiny, parameters: 8325632}}
hardware: {accelerator: nvidia-a100-sxm-80gb, count: 1, per_node: 1}
software: {framework: {name: pytorch}, communication: {library: nccl}}
parallelism: {dp_replicate: 1}
contributor: {name: Example Lab}
"""
BINARY = '''\
"""Kernels whose texts lie between bytes."""
from plain_csv import READERS, PlainCsv, Reader

class Packed(PlainCsv):
    name = "packed"
    description = "the same, packed"

    def sniff(self, head):
        return 1.0 if head.startswith(b"PACKED\\0") else 0.0

    def _batches(self, path, trace):
        plain = path.with_suffix(".plain")
        plain.write_bytes(path.read_bytes().removeprefix(b"PACKED\\0"))
        yield from super()._batches(plain, trace)
        plain.unlink()

    rewrite = Reader.rewrite  # as a format that defines none

READERS.add(Packed.name, Packed(), origin=__name__)
'''
BROKEN = "import a_module_that_is_not_there\n"


@pytest.fixture
def outside(repository: Path, tmp_path: Path) -> Path:
    """A folder with the page's format, a binary one without `rewrite`, and one that does not load."""
    folder = tmp_path / "outside"
    folder.mkdir()
    for _, name, block in blocks((repository / "docs" / "add-a-format.md").read_text()):
        if name is not None:
            (folder / name).write_text(block)
    project = (folder / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text(project + 'packed = "packed"\nbroken = "broken"\n')
    (folder / "packed.py").write_text(BINARY)
    (folder / "broken.py").write_text(BROKEN)
    installed(folder)
    (tmp_path / "traces").mkdir()
    (tmp_path / "launch").mkdir()
    (tmp_path / "collection").mkdir()
    (tmp_path / "launch" / "run.sh").write_text("#!/bin/sh\nsrun train.py\n")
    (tmp_path / "card.yaml").write_text(CARD)
    return folder


def cclbench(outside: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A call where the formats of `outside` are installed."""
    environment = here(outside.parent) | {"PYTHONPATH": path_to(outside)}
    return cclbench_with(environment, *words, cwd=outside.parent)


def contributed(outside: Path) -> subprocess.CompletedProcess[str]:
    """A call that packages what lies in traces/."""
    place = ("--collection", "collection", "--licence", "Apache-2.0")
    words = ("card.yaml", "--traces", "traces", "--scripts", "launch", *place)
    return cclbench(outside, "contribute", *words, "--allow-gaps", "--no-input", "--json")


def test_a_format_from_outside_is_listed_and_one_that_does_not_load_is_a_row(outside: Path) -> None:
    called = cclbench(outside, "list", "readers", "--json")
    rows = {row["name"]: row for row in json.loads(called.stdout)["rows"]}
    assert set(rows) == {*READERS, "plain_csv", "packed", "broken"}
    assert rows["plain_csv"]["capture"] == "`my-profiler --csv job.csv`"
    assert rows["plain_csv"]["origin"] == "plain_csv"
    assert rows["broken"]["formats"].startswith("did not load: ModuleNotFoundError")
    assert "'broken' (broken) did not load" in called.stderr


def test_its_texts_are_rewritten_as_it_says(outside: Path) -> None:
    trace = (outside / "job.csv").read_text()
    (outside.parent / "traces" / "job.csv").write_text(trace)
    called = contributed(outside)
    assert called.returncode == 0, called.stderr
    ((path),) = (outside.parent / "collection" / "traces" / "plain").glob("*.csv")
    published = path.read_text()
    tokens = re.findall(r"x[jqvwxyz]{14}", published)
    assert published == trace.replace("gpunode17", tokens[0])
    card = (outside.parent / "collection" / "workload_cards" / "plain.yaml").read_text()
    assert f"One rank on {tokens[0]}." in card  # the same name has the same token everywhere
    told = {(one["place"], one["kind"]): one["count"] for one in json.loads(called.stdout)["redactions"]}
    assert told["host", UNLISTED] == 3


def test_bytes_that_a_format_cannot_rewrite_are_refused_with_the_reason(outside: Path) -> None:
    content = b"PACKED\0" + (outside / "job.csv").read_bytes()
    (outside.parent / "traces" / "job.packed").write_bytes(content)
    assert cclbench(outside, "run", "traces/job.packed").returncode == 0
    called = contributed(outside)
    assert called.returncode == 3
    assert "job.packed: cannot be redacted: format packed cannot rewrite its texts" in called.stderr
    assert list((outside.parent / "collection").rglob("*.*")) == []


def test_the_format_that_tells_most_comes_first_and_an_unknown_one_last() -> None:
    traces = ["a-plug-in", "xla_json", "xplane", "nsys", "kineto"]
    assert sort_by_precedence(traces) == ["kineto", "nsys", "xplane", "xla_json", "a-plug-in"]
    counters = ["fabric_counters", "nvidia_smi", "dcgm", "nsys"]
    assert sort_by_precedence(counters) == ["nsys", "dcgm", "nvidia_smi", "fabric_counters"]


def test_formats_say_what_they_are() -> None:
    for name in READERS:
        one = READERS.get(name)
        assert (one.name, READERS.origin(name)) == (name, f"cclbench.formats.{name}")
        assert all(len(text) > 5 for text in (one.description, one.versions, one.tested, one.capture)), name
        assert one.extensions, name
        assert one.sniff(b"") == one.sniff(b"\0" * 100) == 0, name
        assert one.derived_from is None or one.derived_from in READERS, name
