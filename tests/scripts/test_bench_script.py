# SPDX-License-Identifier: Apache-2.0
"""Scripts: benchmarks, fixtures, SLURM and coverage of operators."""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from decimal import Decimal
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any, ClassVar

import pytest
import yaml
from helpers.trees import files

import cclbench

Event = dict[str, Any]
WORK = ("kernel", "gpu_memcpy", "gpu_memset")


@pytest.fixture
def bench(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = repository / "scripts" / "bench"
    monkeypatch.syspath_prepend(folder)
    return folder


@pytest.fixture
def enlarging(bench: Path) -> ModuleType:
    assert bench.is_dir()
    return importlib.import_module("enlarge_trace")


def synthesise(bench: Path, out: Path, *options: str) -> Path:
    subprocess.run([sys.executable, str(bench / "synthetic_trace.py"), str(out), *options], check=True)
    return out


@pytest.fixture
def trace(bench: Path, tmp_path: Path) -> Path:
    return synthesise(bench, tmp_path / "rank3.json", "--megabytes", "4", "--rank", "3", "--world-size", "8")


def read(path: Path) -> tuple[dict[str, Any], list[Event]]:
    """Everything but the rows, and the rows; times as exact decimals."""
    document = json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    return document, document.pop("traceEvents")


def spans(events: list[Event], *categories: str) -> dict[tuple[int, int], list[tuple[Decimal, Decimal]]]:
    """Start and end of the rows of some categories, per process and track, in order of start."""
    tracks = defaultdict(list)
    for event in events:
        if event.get("cat") in categories:
            tracks[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    return {track: sorted(rows) for track, rows in tracks.items()}


def overlapping(rows: list[tuple[Decimal, Decimal]]) -> int:
    return sum(following[0] < row[1] for row, following in pairwise(rows))


def test_the_synthetic_trace_has_what_a_training_rank_has(trace: Path) -> None:
    document, events = read(trace)
    assert document["schemaVersion"] == 1
    assert len(document["deviceProperties"]) == 8
    assert document["distributedInfo"]["rank"] == 3
    assert document["distributedInfo"]["world_size"] == 8
    groups = [group["ranks"] for group in document["distributedInfo"]["pg_config"]]
    assert groups == [[0, 1, 2, 3, 4, 5, 6, 7], [1, 3, 5, 7], [2, 3]]
    assert isinstance(document["baseTimeNanoseconds"], int)
    share = Counter(event.get("cat") for event in events)
    assert 0.2 < share["python_function"] / len(events) < 0.4
    assert 0.2 < share["cpu_op"] / len(events) < 0.4
    assert 0.06 < share["kernel"] / len(events) < 0.1
    assert 0.1 < share["ac2g"] / len(events) < 0.2
    assert {"cuda_sync", "user_annotation", "gpu_user_annotation", "cuda_runtime", *WORK} <= set(share)
    assert len({event["name"] for event in events if event.get("cat") == "kernel"}) > 200
    # every row is written with three decimals, and all within the size asked for
    times = [event["ts"] for event in events] + [event["dur"] for event in events if event["ph"] == "X"]
    assert min(times) >= 0
    assert {time.as_tuple().exponent for time in times} == {-3}
    annotations = (str(event["name"]) for event in events if event.get("cat") == "user_annotation")
    steps = sum(name.startswith("ProfilerStep#") for name in annotations)
    assert 4e6 <= trace.stat().st_size < 4e6 * (steps + 1) / steps


def test_device_work_is_launched_before_it_starts_and_streams_keep_their_order(trace: Path) -> None:
    _, events = read(trace)
    calls = {event["args"]["correlation"]: event for event in events if event.get("cat") == "cuda_runtime"}
    assert len(calls) == sum(event.get("cat") == "cuda_runtime" for event in events)
    work = [event for event in events if event.get("cat") in WORK]
    assert len({event["args"]["correlation"] for event in work}) == len(work)
    assert all(calls[event["args"]["correlation"]]["ts"] < event["ts"] for event in work)
    assert all(event["tid"] == event["args"]["stream"] for event in work)
    streams = spans(events, *WORK)
    assert set(streams) == {(3, 7), (3, 20), (3, 24), (3, 28)}
    assert [overlapping(rows) for rows in streams.values()] == [0, 0, 0, 0]
    # arrows join the launch with its row
    ends = {(event["ph"], event["id"]): event["ts"] for event in events if event.get("cat") == "ac2g"}
    rows = {event["args"]["correlation"]: event["ts"] for event in work}
    assert {number: at for (way, number), at in ends.items() if way == "f"} == rows
    launched = {number: calls[number]["ts"] for number in rows}
    assert {number: at for (way, number), at in ends.items() if way == "s"} == launched


def test_steps_follow_one_another_and_hold_their_launches(trace: Path) -> None:
    _, events = read(trace)
    steps = [event for event in events if str(event.get("name")).startswith("ProfilerStep#")]
    host = [event for event in steps if event["cat"] == "user_annotation"]
    assert [event["name"] for event in host] == [f"ProfilerStep#{10 + number}" for number in range(len(host))]
    assert len(host) == len(steps) / 2 >= 2
    [track] = spans(host, "user_annotation").values()
    assert overlapping(track) == 0
    launches = [event["ts"] for event in events if event.get("cat") == "cuda_runtime"]
    assert all(any(start <= at < end for start, end in track) for at in launches)


def test_collectives_say_what_they_move_and_some_run_beside_compute(trace: Path) -> None:
    _, events = read(trace)
    kernels = [event for event in events if event.get("cat") == "kernel"]
    collectives = [event for event in kernels if event["name"].startswith("ncclDevKernel_")]
    groups = {"default_pg": "[0, 1, 2, 3, 4, 5, 6, 7]", "mesh_dp": "[1, 3, 5, 7]", "mesh_tp": "[2, 3]"}
    for event in collectives:
        args = event["args"]
        assert args["Process Group Ranks"] == groups[args["Process Group Description"]]
        assert args["Group size"] == len(json.loads(args["Process Group Ranks"]))
        larger = {"_allgather_base": (1, 4), "_reduce_scatter_base": (4, 1), "allreduce": (1, 1)}
        into, out = larger[args["Collective name"]]
        assert args["In msg nelems"] * out == args["Out msg nelems"] * into
    compute = spans([event for event in kernels if event not in collectives], "kernel")[3, 7]
    beside = [
        any(start < e["ts"] + e["dur"] and e["ts"] < end for start, end in compute) for e in collectives[:60]
    ]
    assert any(beside)
    assert not all(beside)


def test_equal_arguments_give_equal_bytes_and_another_rank_other_times(bench: Path, tmp_path: Path) -> None:
    first, second, other = (tmp_path / f"{name}.json" for name in "abc")
    synthesise(bench, first, "--megabytes", "1")
    synthesise(bench, second, "--megabytes", "1")
    synthesise(bench, other, "--megabytes", "1", "--rank", "1")
    assert first.read_bytes() == second.read_bytes()
    starts = [
        [event["ts"] for event in read(path)[1] if event.get("cat") == "kernel"] for path in (first, other)
    ]
    assert starts[0] != starts[1]


SMALL = r"""{
  "schemaVersion": 1, "distributedInfo": {"rank": 2},
  "traceEvents": [
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "pid": 9, "tid": 9,
    "ts": 1712195495519000.047, "dur": 100, "args": {"External id": 5}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9,
    "ts": 1712195495519001.5, "dur": 3.250, "args": {"External id": 0, "cbid": 211, "correlation": 40}},
  {"ph": "X", "cat": "kernel", "name": "say \"ts\": 1", "pid": 0, "tid": 7,
    "ts": 1712195495519010.001, "dur": 5.5, "args": {"stream": 7, "correlation": 40, "wait": -1}},
  {"ph": "f", "id": 40, "pid": 0, "tid": 7, "ts": 1712195495519010.001,
    "cat": "ac2g", "name": "ac2g", "bp": "e"},
  {"name": "process_name", "ph": "M", "ts": 1712195495519000.047, "pid": 9, "tid": 0,
    "args": {"name": "python"}},
  {"ph": "X", "cat": "Trace", "ts": 1712195495519000, "dur": 200,
    "pid": "Spans", "tid": "P", "name": "P", "args": {}}
  ],
  "traceName": "a ] name"
}
"""


def test_a_repetition_is_later_by_span_and_gap_with_own_ids(enlarging: ModuleType, tmp_path: Path) -> None:
    source, out = tmp_path / "small.json", tmp_path / "large.json"
    source.write_text(SMALL, encoding="utf-8")
    assert enlarging.write_enlarged(source, out, (len(SMALL) + 10) / 1e6) == 2
    document, events = read(out)
    assert document == {"schemaVersion": 1, "distributedInfo": {"rank": 2}, "traceName": "a ] name"}
    # The rows to repeat span 100 µs, and 1000 µs lie between repetitions; the largest id is 40.
    shift = Decimal(1100)
    first, second, once = events[:4], events[4:8], events[8:]
    assert first == read(source)[1][:4]
    assert [event["name"] for event in once] == ["process_name", "P"]
    assert [later["ts"] - event["ts"] for event, later in zip(first, second, strict=True)] == [shift] * 4
    assert [later.get("dur") for later in second] == [event.get("dur") for event in first]
    assert second[0]["name"] == "ProfilerStep#8"
    assert second[0]["args"] == {"External id": 46}
    assert second[1]["args"] == {"External id": 0, "cbid": 211, "correlation": 81}
    assert second[2]["args"] == {"stream": 7, "correlation": 81, "wait": -1}
    assert second[2]["name"] == 'say "ts": 1'
    assert second[3]["id"] == 81


def test_an_enlarged_trace_keeps_its_order(enlarging: ModuleType, test_data: Path, tmp_path: Path) -> None:
    source, out = test_data / "kineto" / "nccl_meta_a100" / "nccl_data.json.gz", tmp_path / "large.json"
    assert enlarging.write_enlarged(source, out, 12) == 2
    _, events = read(out)
    calls = [event["args"]["correlation"] for event in events if event.get("cat") == "cuda_runtime"]
    assert len(calls) == 2 * 8740
    assert len(set(calls)) == len(calls)
    assert sum(event.get("cat") == "kernel" for event in events) == 2 * 2700
    assert all(overlapping(rows) == 0 for rows in spans(events, *WORK).values())


def test_a_file_without_rows_is_refused(enlarging: ModuleType, tmp_path: Path) -> None:
    source = tmp_path / "other.json"
    for text, said in (
        ('{"traceEvents": []}', r"other\.json: no rows"),
        ('{"traceEvents": [', "no end"),
        ('{"events": []}', "no traceEvents"),
    ):
        source.write_text(text, encoding="utf-8")
        with pytest.raises(SystemExit, match=said):
            enlarging.write_enlarged(source, tmp_path / "out.json", 1)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of processes from /proc")
def test_memory_and_time_are_of_the_command_and_its_children(bench: Path, tmp_path: Path) -> None:
    """In a process of its own: who measures adopts what the command leaves behind."""
    child = "import time; held = bytearray(b'x') * 50_000_000; time.sleep(0.5)"
    parent = "import subprocess, sys; held = bytearray(b'x') * 50_000_000; subprocess.run(sys.argv[1:])"
    command = [sys.executable, "-c", f"{parent}; print('done')", sys.executable, "-c", child]
    took = measured(bench, command, tmp_path)
    assert took["stdout"] == "done\n"
    assert took["wall_s"] > 0.5
    assert took["cpu_s"] > 0
    assert 100e6 < took["peak_bytes"] < 150e6
    assert 50e6 < took["largest_bytes"] < 90e6
    wrong = [sys.executable, "-c", "import sys; print('too bad', file=sys.stderr); sys.exit(3)"]
    assert "ended with 3: too bad" in measured(bench, wrong, tmp_path)["error"]


def measured(bench: Path, command: list[str], folder: Path) -> dict[str, Any]:
    script = (
        "import json, pathlib, sys, peak_memory\n"
        "try:\n"
        "    told = vars(peak_memory.measure(json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])))\n"
        "except peak_memory.CommandError as error:\n"
        "    told = {'error': str(error)}\n"
        "print(json.dumps(told))\n"
    )
    words = [sys.executable, "-c", script, json.dumps(command), str(folder)]
    done = subprocess.run(words, cwd=bench, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


SBATCH = """\
#!/bin/sh
# Runs the job at once, an array's tasks one after the other.
first=1 last=1
for word in "$@"; do
  case $word in --array=*-*) range=${word#--array=} first=${range%-*} last=${range#*-} ;; esac
  job=$word
done
for SLURM_ARRAY_TASK_ID in $(seq "$first" "$last"); do
  export SLURM_ARRAY_TASK_ID
  bash "$job" > "$PWD/job-$SLURM_ARRAY_TASK_ID.out" 2>&1 || exit 1
done
echo 1
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables with which `sbatch` runs jobs, and jobs find `cclbench`."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    asks = shutil.which("sinfo")
    if asks is None or subprocess.run([asks], capture_output=True, check=False).returncode:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "sbatch").write_text(SBATCH)
        (folder / "sbatch").chmod(0o755)
        path = f"{folder}:{path}"
    return {**os.environ, "PATH": path}


def test_an_array_and_its_merge(repository: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    source, store = repository / "traces" / "tiny-llama-ddp4-gloo-cpu", tmp_path / "store"
    submit = repository / "scripts" / "slurm" / "submit.sh"

    def submitted(*words: object) -> subprocess.CompletedProcess[str]:
        told = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
        return subprocess.run([submit, *map(str, words)], check=False, **told)

    wrong = submitted()
    assert (wrong.returncode, "submit.sh SOURCE STORE SHARDS" in wrong.stderr) == (2, True)
    done = submitted(source, store, 3)
    assert done.returncode == 0, done.stderr
    scripts = [line.rpartition("/")[2] for line in done.stdout.splitlines()[:2]]
    assert scripts == ["ingest.sbatch", "merge.sbatch"]
    alone = cclbench.ingest(source, store=tmp_path / "alone")
    until = time.monotonic() + 300
    while [path.name for path in store.iterdir()] != [alone.id] and time.monotonic() < until:
        time.sleep(1)
    assert files(store) == files(alone.store)


@pytest.fixture
def folder(repository: Path, tmp_path: Path) -> Path:
    """The shipped traces, and a folder with none."""
    folder = tmp_path / "traces"
    shutil.copytree(repository / "traces", folder)
    (folder / "nothing").mkdir()
    (folder / "nothing" / "notes.txt").write_text("no trace\n")
    return folder


def test_each_trace_is_a_line_and_the_rest_is_counted(
    repository: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(repository / "scripts")
    monkeypatch.setattr("sys.argv", ["operator_coverage.py", str(folder)])
    importlib.import_module("operator_coverage").main()
    _, sources, families, lacking_rows, without = capsys.readouterr().out.split("\n\n", 4)
    header, _, *lines = sources.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert all(len(row) == header.count("|") - 1 for row in rows)
    by_name = {row[0]: row[1:] for row in rows}
    kinds = {path.name: {one.suffix for one in path.iterdir()} for path in (repository / "traces").iterdir()}
    shipped = {name for name, own in kinds.items() if own - {".json", ".log"}}
    means = f"mean of {len(shipped)} sources", f"mean of {len(shipped) - 2} of them with recorded arguments"
    assert set(by_name) == {*(f"traces/{name}" for name in shipped), *means}
    whole, recorded = (float(by_name[name][2].removesuffix("%")) for name in means)
    assert by_name["traces/llama-decode-graph-h100"][2] == "0.0%"
    # neither has operators of a framework: the kernels of a graph, and the regions of an MPI job
    assert by_name["traces/mpi-training-4-cpu"][2] == "0.0%"
    assert recorded * (len(shipped) - 2) == pytest.approx(whole * len(shipped), abs=1.5)
    del by_name[means[1]]
    assert "| `aten::cat` |" in lacking_rows
    count, linked, modelled, above, lacking, _ = by_name["traces/tiny-llama-operators-ddp2-gloo-cpu"]
    assert (int(count) > 20, linked, float(modelled.removesuffix("%")) > 95) == (True, "100.0%", True)
    assert (above, lacking[:11]) == ("0", "`aten::cat`")
    assert by_name["traces/tiny-jax-dp2-tp4-cpu"][1:3] == ["100.0%", "100.0%"]
    shares = [float(values[n].removesuffix("%")) for values in by_name.values() for n in (1, 2)]
    assert sum(shares[:-2:2]) / len(shipped) == pytest.approx(shares[-2], abs=0.1)
    assert sum(shares[1:-2:2]) / len(shipped) == pytest.approx(shares[-1], abs=0.1)
    parts = [line.split("|")[2] for line in families.splitlines()[2:]]
    assert sum(float(part.strip(" %")) for part in parts) == pytest.approx(100, abs=1)
    assert without.startswith("Files and folders without device time: 14\n")


A, B, MEMBER = b"a trace\n" * 1000, b"another\n" * 1000, b'{"of": "an archive"}'


def packed() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        about = tarfile.TarInfo("job/rank0.json")
        about.size = len(MEMBER)
        archive.addfile(about, io.BytesIO(MEMBER))
    return out.getvalue()


class Origin(BaseHTTPRequestHandler):
    """Two files and an archive; what was asked for, by path and range."""

    files: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Range"]))
        content = self.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        begin = int(re.findall(r"\d+", self.headers["Range"])[0]) if self.headers["Range"] else 0
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin:])

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def origin() -> Iterator[str]:
    Origin.files = {"/o/r/c1/a%20file.json": A, "/o/r/c1/b.json": B, "/o/r/c1/job.tar.gz": packed()}
    Origin.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/{{repository}}/{{commit}}/{{path}}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def script(repository: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module, which reads from this machine's own server, too."""
    spec = importlib.util.spec_from_file_location(
        "fetch_fixtures", repository / "scripts" / "fetch_fixtures.py"
    )
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, "fetch_fixtures", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SCHEMES", ("https", "http"))
    return module


@pytest.fixture
def manifest(origin: str, tmp_path: Path) -> Path:
    """A list of the server's files, and of one that is not public."""

    def listed(name: str, content: bytes, **more: str) -> dict[str, object]:
        return {"file": name, "bytes": len(content), "sha256": sha256(content).hexdigest(), **more}

    files = [listed("kineto/a.json", A, path="a file.json"), listed("kineto/b.json", B, path="b.json")]
    files += [listed("job/rank0.json.gz", MEMBER, path="job.tar.gz", member="job/rank0.json")]
    path = tmp_path / "fixtures.yaml"
    public = {"repository": "o/r", "commit": "c1", "licence": "MIT", "files": files}
    ours = {"reason": "ours", "licence": "MIT", "files": [listed("mine.csv", b"x")]}
    path.write_text(yaml.safe_dump({"origin": origin, "repositories": [public], "not_public": [ours]}))
    return path


def test_files_are_downloaded_once(
    script: ModuleType, manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tmp_path / "data"), "--manifest", str(manifest)]
    assert script.main([*words, "--check"]) == 1
    assert script.main([*words, "--only", "kineto/a*"]) == 0
    assert [path for path, _ in Origin.asked] == ["/o/r/c1/a%20file.json"]
    assert script.main(words) == script.main([*words, "--check"]) == 0
    assert len(Origin.asked) == 3  # each once
    assert "not public, 1 of 1 absent: ours" in capsys.readouterr().out
    folder = tmp_path / "data"
    assert (folder / "kineto" / "a.json").read_bytes() == A
    assert gzip.decompress((folder / "job" / "rank0.json.gz").read_bytes()) == MEMBER
    assert [path.name for path in folder.iterdir()] == [path.name for path in folder.glob("[!.]*")]
    (folder / "kineto" / "b.json").write_bytes(A)
    (folder / "mine.csv").write_bytes(b"y")
    assert script.main([*words, "--check"]) == 1
    told = capsys.readouterr().err
    assert "kineto/b.json: missing or does not match the manifest" in told
    assert "mine.csv: does not match the manifest" in told


def test_an_interrupted_download_goes_on(script: ModuleType, manifest: Path, tmp_path: Path) -> None:
    ((address, _), *_) = script.read_manifest(manifest).by_address("kineto/b*")
    (tmp_path / f".{sha256(address.encode()).hexdigest()[:16]}.part").write_bytes(B[:3000])
    assert script.main([str(tmp_path), "--manifest", str(manifest), "--only", "kineto/b*"]) == 0
    assert Origin.asked == [("/o/r/c1/b.json", "bytes=3000-")]
    assert (tmp_path / "kineto" / "b.json").read_bytes() == B


@pytest.mark.parametrize(
    ("content", "told"),
    [(B[:-1] + b"x", "does not match the manifest"), (B + b"more", "larger than 8,000 bytes"), (None, "404")],
)
def test_another_content_is_refused(
    content: bytes | None, told: str, script: ModuleType, manifest: Path, tmp_path: Path, capsys: Any
) -> None:
    Origin.files = {"/o/r/c1/b.json": content} if content is not None else {}
    assert script.main([str(tmp_path / "data"), "--manifest", str(manifest), "--only", "kineto/b*"]) == 1
    assert told in capsys.readouterr().err
    assert not (tmp_path / "data" / "kineto").exists()


def test_addresses_without_encryption_are_refused(
    script: ModuleType, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "SCHEMES", ("https",))
    assert script.main([str(tmp_path / "data"), "--manifest", str(manifest)]) == 1
    assert Origin.asked == []


def test_the_list_is_sound_and_the_evidence_is_what_it_says(script: ModuleType, test_data: Path) -> None:
    manifest = script.read_manifest()
    assert manifest.origin.startswith("https://")
    assert all(re.fullmatch("[0-9a-f]{40}", one.commit) for one in manifest.repositories)
    parts = (*manifest.repositories, *manifest.not_public)
    files = [file for part in parts for file in part.files]
    assert len({file.file for file in files}) == len(files)
    assert all(file.path for one in manifest.repositories for file in one.files)
    assert all(part.licence for part in parts)
    there = [file for file in files if Path(test_data, file.file).exists()]
    assert [
        file.file for file in there if not script.matches_manifest(Path(test_data, file.file), file)
    ] == []
