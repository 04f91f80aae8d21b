# SPDX-License-Identifier: Apache-2.0
"""Files and folders of any name: the same exit codes and numbers as under plain names, and text to read."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final

import pytest
from formats.test_memory_snapshot import snapshot
from helpers import nsys_files
from helpers.contributed import CARD
from helpers.xplane_files import gpu_file
from hostile.test_terminal import assert_clean

import cclbench
from cclbench.cli import main
from cclbench.ground.file_names import path_of, stored_name

NAMES: Final = {
    "control": b"-x\xe9\xff\xc3\x80\xed\xb3\xa9\nSPLIT\x1b[31m\x1b]52;c;eA==\x07\r\b"
    + "\u202e\u2066\u200b\u2028\x9b".encode(),
    "shell": b"--help 'q\" `x` $(x) {0} [*!a]?{b,c} %25 %zz #f?m=rw&x=1 rank=0;",
}
"""`SPLIT` stands at the beginning of a line where a name's line break was printed."""
SWEEP: Final = (
    "# coll: all_reduce\n# ranks: 2\n# nodes: 1\n# gpus_per_node: 2\n"
    "size_bytes,count,dtype,redop,oop_time_us,oop_algbw_GBps,oop_busbw_GBps,"
    "ip_time_us,ip_algbw_GBps,ip_busbw_GBps\n1048576,262144,float,sum,100,0,0,,,\n"
)


def trace(rank: int, *, longer: float = 0) -> str:
    """Two steps of one rank of two: a matrix product, then an all-reduce."""
    events = []
    host = {"ph": "X", "pid": 42, "tid": 42, "dur": 2}
    device = {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel"}
    about = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float"}
    about |= {"Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
    kernels = [("ampere_sgemm_128x64_nn", 200 + longer, {}), ("ncclDevKernel_AllReduce_Sum_f32", 60, about)]
    for step in (0, 1):
        at = 1000.0 + 1000 * step
        for n, (name, length, more) in enumerate(kernels):
            launch = {"correlation": 10 * step + n}
            begin = at + 300 * n + 10 * rank
            events += [
                host | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": begin, "args": launch},
                device | {"name": name, "ts": begin + 5, "dur": length, "args": launch | more},
            ]
        events.append(host | {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 950})
    device = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}
    job = {"backend": "nccl", "rank": rank, "world_size": 2}
    document = {"schemaVersion": 1, "deviceProperties": [device], "distributedInfo": job}
    return json.dumps(document | {"traceEvents": events})


class Place:
    """A folder in which every file and folder has a name in it, and the commands on them."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.root = name, folder / f"{name}r"
        self.capture, self.other = self.root / f"{name}capture", self.root / f"{name}other"
        self.store, self.scripts = self.root / f"{name}store", self.root / f"{name}scripts"
        self.collection, self.card = self.root / f"{name}collection", self.root / f"{name}.yaml"
        self.archive = self.root / f"{name}.tar.gz"
        for path in (self.capture, self.other, self.scripts, self.collection):
            path.mkdir(parents=True)
        for rank in (0, 1):
            (self.capture / f"{name}-rank{rank}.json").write_text(trace(rank))
            (self.other / f"{name}-rank{rank}.json").write_text(trace(rank, longer=50))
        (self.capture / f"{name}sweep.csv").write_text(SWEEP)
        (self.capture / f"{name}.txt").write_text("no trace\n")
        (self.scripts / f"{name}.sh").write_text("#!/bin/sh\n")
        self.card.write_text(CARD)
        with tarfile.open(self.archive, "w:gz") as file:
            file.add(self.capture, f"{name}capture")

    def calls(self) -> Iterator[tuple[Any, ...]]:
        """Each with its words; the run's id is that of the first one's answer."""
        root, name, capture, other = self.root, self.name, self.capture, self.other
        yield "run", capture, "--json"
        for form in ("table", "csv", "md"):
            yield "run", capture, "--format", form
            yield "list", "runs", "--format", form
        yield "list", "runs", "--json"
        yield "run", capture / f"{name}-rank0.json"
        yield "ingest", other, "-v"
        (run,) = (path for path in self.store.iterdir() if "capture" in path.name)
        yield "metrics", run.name, "--json"
        yield "sql", run.name, "SELECT rank, kind, count(*) FROM events GROUP BY ALL ORDER BY ALL", "--json"
        yield "sql", run.name, "SELECT DISTINCT file FROM timings"
        yield "sql", run.name, "SELECT metric, value FROM results ORDER BY ALL", "--json"
        for command in ("diagnose", "ops", "sequences", "stragglers", "memory"):
            yield command, capture
        yield "report", capture, "-o", root / f"{name}.html"
        yield "timeline", capture, "-o", root / f"{name}.svg"
        for suffix in ("html", "md", "json"):
            yield "compare", capture, other, "-o", root / f"{name}2.{suffix}"
        yield "whatif", capture, "--set", "kernels.time=x2", "--json"
        yield "export", capture, "--to", "chakra", "--check", "-o", root / f"{name}graph"
        yield "open", capture, "-o", root / f"{name}.trace.json.gz"
        for share in ("1/2", "2/2"):
            yield "ingest", capture, "--shard", share, "--store", root / f"{name}shards"
        shards = sorted((root / f"{name}shards").iterdir())
        yield "merge", *shards, "--store", root / f"{name}merged", "--json"
        yield "card", "new", capture, "-o", root / "new.yaml"
        yield "card", "show", self.card
        yield "card", "validate", self.card, root / "new.yaml", "--json"
        point = ("--collection", self.collection, "--jobs", "1")
        made = ("contribute", self.card, "--scripts", self.scripts, "--no-input", "--allow-gaps", *point)
        yield *made, "--traces", capture, "--licence", "Apache-2.0"
        yield *made, "--traces", self.archive, "--licence", "Apache-2.0", "--replace", "--json"
        yield "verify", "--all", *point
        yield "verify", "my-job", "--evidence", self.archive, *point, "--json"
        (self.collection / "traces" / "my-job" / f"{name}more").write_text("")
        yield "verify", "my-job", "-v", *point
        run.rename(self.store / f"r{name}")
        yield "list", "runs"
        yield "metrics", f"r{name}", "--metric", "time.step"
        yield "remove", f"r{name}", "--yes"
        yield "run", root / f"{name}missing"


def call(store: Path, *words: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command, both in strict UTF-8."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    os.environ["CCLBENCH_STORE"] = str(store)
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(word) for word in words])
    return code, *(stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]


def numbers(document: Any) -> Any:
    """What is in a document apart from texts, which may name files and runs, and sizes of files with such."""
    if isinstance(document, dict):
        return {key: numbers(value) for key, value in document.items() if key != "stored"}
    if isinstance(document, list):
        return [numbers(value) for value in document]
    return None if isinstance(document, str) else document


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, and an environment that is put back."""
    monkeypatch.setenv("CCLBENCH_STORE", "")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("cclbench.engine.available_cores", lambda: 1)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CCLBENCH_STORE", "")
        patch.setenv("COLUMNS", "80")
        patch.setattr("cclbench.engine.available_cores", lambda: 1)
        place = Place(tmp_path_factory.mktemp("plain"), "plain")
        answers = [call(place.store, *words) for words in place.calls()]
    assert [code for code, *_ in answers if code] == [1, 1, 3], answers
    return [(code, out) for code, out, _ in answers]


@pytest.mark.parametrize("kind", NAMES)
def test_every_command_takes_every_name(kind: str, here: Path, plain: list[tuple[int, str]]) -> None:
    place = Place(here, os.fsdecode(NAMES[kind]))
    for words, (code, out) in zip(place.calls(), plain, strict=True):
        answer = call(place.store, *words)
        assert answer[0] == code, (words, answer)
        assert_clean(answer[1] + answer[2])
        assert "\nSPLIT" not in answer[1] + answer[2]
        if out.startswith("{") and words[0] not in ("list", "card", "contribute"):
            assert numbers(json.loads(answer[1])) == numbers(json.loads(out)), words
    for path in place.root.iterdir():
        if path.suffix in (".html", ".svg", ".md"):
            assert_clean(path.read_text(encoding="utf-8").replace("\t", ""))
    left = [path.name for path in place.store.iterdir()]
    assert not [path for path in left if path.startswith(".")]
    for run in cclbench.record.store.Store(place.store).runs():
        for file in run.manifest["ranks"][0]["files"]:
            assert any(path_of(file["name"]) == path.name for path in place.root.rglob("*"))


def test_a_card_names_a_file_by_its_stored_name(here: Path) -> None:
    raw = os.fsdecode(b"r\xe9sultats rank0.json")
    (here / raw).write_text(trace(0))
    (here / "my-job.yaml").write_text(f"{CARD}evidence: {{traces: [{{path: '{stored_name(raw)}'}}]}}\n")
    code, _, err = call(here / "store", "run", here / "my-job.yaml", "--json")
    assert code == 0, err
    (entry,) = cclbench.record.store.Store(here / "store").runs()[0].manifest["ranks"]
    assert entry["files"][0]["name"] == r"r\xe9sultats rank0.json"


@pytest.mark.parametrize("file", ["job.sqlite", "rank0.xplane.pb", "rank0.pickle", "rank0_trace.json.gz"])
def test_every_kind_of_file_takes_every_name(here: Path, file: str) -> None:
    """Of a database, of protocol buffers, of a pickle, compressed: alone, and in a folder."""
    plain, other = here / "plain", here / os.fsdecode(NAMES["control"])
    plain.mkdir()
    if file == "job.sqlite":
        steps = (0, 1000, 2000)
        nsys_files.write(
            plain / file,
            StringIds=nsys_files.strings("gemm", "step"),
            CUPTI_ACTIVITY_KIND_KERNEL=[nsys_files.kernel(at + 100, at + 500) for at in steps],
            NVTX_EVENTS=[nsys_files.nvtx(at, at + 900, f"step {at}") for at in steps],
            TARGET_INFO_SESSION_START_TIME=nsys_files.SESSION,
        )
    elif file == "rank0_trace.json.gz":
        (plain / file).write_bytes(gzip.compress(trace(0).encode()))
    else:
        made = {"rank0.xplane.pb": gpu_file, "rank0.pickle": lambda: pickle.dumps(snapshot())}
        (plain / file).write_bytes(made[file]())
    other.mkdir()
    named = other / os.fsdecode(NAMES["shell"] + b"r\xe9\xff" + file.encode())
    named.write_bytes((plain / file).read_bytes())
    code, expected, err = call(here / "store", "run", plain / file, "--json")
    assert code == 0, err
    for source in (named, other):
        code, out, err = call(here / "store", "run", source, "--json")
        assert code == 0, err
        assert numbers(json.loads(out)) == numbers(json.loads(expected))


def test_python_and_notebooks_take_every_name(here: Path) -> None:
    place = Place(here, os.fsdecode(NAMES["control"]))
    run = cclbench.run(place.capture, store=place.store)
    for text in (repr(run), run._repr_html_(), json.dumps(run.manifest, ensure_ascii=False)):
        assert text.encode().decode() == text
    assert "\x1b" not in run._repr_html_() + repr(run)
    assert len(run.sql("FROM timings")) == 1


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C.UTF-8"},
        {"PYTHONIOENCODING": "ascii"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=str,
)
def test_locales_change_no_name(here: Path, environment: dict[str, str]) -> None:
    """The same document, whatever the encoding of file names and streams."""
    place = Place(here, os.fsdecode("é".encode() + NAMES["control"]))
    code, expected, _ = call(place.store, "run", place.capture, "--json")
    assert code == 0
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHON"))}

    def run(source: Path, *options: str) -> subprocess.CompletedProcess[bytes]:
        words = [sys.executable, "-m", "cclbench", "run", os.fsencode(source), *options]
        told = kept | environment | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        return subprocess.run(words, env=told, capture_output=True, check=False)

    told = run(place.capture, "--json")
    assert (told.returncode, told.stderr) == (0, b"")
    assert json.loads(told.stdout) == json.loads(expected)
    wrong = run(place.capture / "é\udcff")
    assert wrong.returncode == 3
    assert rb"\xff: no such file or folder" in wrong.stderr
    assert b"Traceback" not in wrong.stderr
