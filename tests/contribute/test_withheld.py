# SPDX-License-Identifier: Apache-2.0
"""What a program printed, command lines, environments and facts about the system are not published at all."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from formats import test_guidellm as guidellm
from formats import test_inferencex as inferencex
from formats import test_request_trace as request_trace
from helpers import nsys_files as files
from helpers.nccl_job import fsdp2_pp4, interleaved

import cclbench
from cclbench.contribute.redaction import has_token, redact_evidence
from cclbench.contribute.redaction.name_forms import TOKEN
from cclbench.contribute.redaction.publisher import UNLISTED
from cclbench.formats import READERS
from cclbench.formats.nccl_log import NcclLog
from cclbench.formats.serving import Serving
from cclbench.normalize.communicators import join_communicators

PRINTED = "epoch 1: validation of project Moonshot at 71 %"
"""No rule finds anything in it."""


def redacted(source: Path) -> tuple[Path, dict[str, int]]:
    """The copy of a file, and how much of what is not published was left out, by what that held."""
    target = source.with_name(f"copy-{source.name}")
    counts: dict[str, int] = {}
    for one in redact_evidence(source, target):
        if one.kind != UNLISTED:
            counts[one.kind] = counts.get(one.kind, 0) + one.count
    return target, counts


def export(path: Path, **tables: list[dict[str, object]]) -> Path:
    """An export of three kernels, whose captured output is a text of StringIds."""
    steps = (0, 1000, 2000)
    files.write(
        path,
        StringIds=files.strings("gemm", "cudaLaunchKernel", PRINTED, "/var/log/stdout.txt", "step 7"),
        CUPTI_ACTIVITY_KIND_KERNEL=[files.kernel(at + 100, at + 500, correlationId=1 + at) for at in steps],
        CUPTI_ACTIVITY_KIND_RUNTIME=[files.call(at + 10, at + 20, 1 + at) for at in steps],
        NVTX_EVENTS=[files.nvtx(at, at + 900, f"step {at // 1000}") for at in steps],
        TARGET_INFO_SESSION_START_TIME=files.SESSION,
        **tables,
    )
    return path


def test_captured_output_of_an_export_is_gone_and_results_are_the_same(tmp_path: Path) -> None:
    ids = {
        text: key for key, text in enumerate(["gemm", "cudaLaunchKernel", PRINTED, "/var/log/stdout.txt"], 1)
    }
    source = export(tmp_path / "a.sqlite")
    with closing(sqlite3.connect(source)) as base, base:
        ids = dict(base.execute("SELECT value, id FROM StringIds"))
        base.execute("CREATE TABLE ProcessStreams (globalPid INTEGER, filenameId INTEGER, contentId INTEGER)")
        base.execute(
            "INSERT INTO ProcessStreams VALUES (1, ?, ?)", (ids["/var/log/stdout.txt"], ids[PRINTED])
        )
        # A name that a kernel has, too, stays.
        base.execute("INSERT INTO ProcessStreams VALUES (1, NULL, ?)", (ids["gemm"],))
        base.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
        base.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('Site', 'Moonshot Hall')")
        base.execute("CREATE TABLE SAMPLING_CALLCHAINS (id INTEGER, symbol INTEGER, module INTEGER)")
        base.execute("INSERT INTO SAMPLING_CALLCHAINS VALUES (1, ?, NULL)", (ids["step 7"],))
    target, counts = redacted(source)
    with closing(sqlite3.connect(target)) as base:
        left = {value for (value,) in base.execute("SELECT value FROM StringIds")}
        for table in ("ProcessStreams", "TARGET_INFO_SYSTEM_ENV", "SAMPLING_CALLCHAINS"):
            assert base.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)  # noqa: S608
    assert left == {"gemm", "cudaLaunchKernel", ""}
    assert b"Moonshot" not in target.read_bytes()
    assert counts == {"captured output": 2, "system information": 1, "source path": 1}
    before, after = (cclbench.run(path, store=tmp_path / path.stem) for path in (source, target))
    assert after.rows == before.rows


def test_of_an_export_s_metadata_what_says_the_rank_stays(tmp_path: Path) -> None:
    rows = [
        ("PROCESS_0:ENVIRONMENT_VARIABLE", 'RANK="1"'),
        ("PROCESS_0:ENVIRONMENT_VARIABLE", "WORLD_SIZE=4"),
        ("PROCESS_0:ENVIRONMENT_VARIABLE", "RANK=1 of Moonshot"),
        ("PROCESS_0:ENVIRONMENT_VARIABLE", "PLAN=Moonshot"),
        ("PROCESS_0:COMMAND", "/opt/Moonshot/bin/torchrun"),
        ("PROCESS_0:ARGUMENT_0", "--nnodes=2"),
        ("PROCESS_0:ARGUMENT_1", "Moonshot.py"),
        ("HOST_OS", "Moonshot Linux"),
    ]
    source = export(tmp_path / "a.sqlite", META_DATA_CAPTURE=[{"name": n, "value": v} for n, v in rows])
    target, counts = redacted(source)
    with closing(sqlite3.connect(target)) as base:
        *kept, script = base.execute("SELECT name, value FROM META_DATA_CAPTURE").fetchall()
    assert kept == [*rows[:2], ("PROCESS_0:COMMAND", "torchrun"), ("PROCESS_0:ARGUMENT_0", "--nnodes=2")]
    assert TOKEN.sub("", script[1]) == ".py"
    assert counts == {"system information": 3, "command line": 1}


def test_of_an_export_s_diagnostics_what_says_that_events_were_lost_stays(tmp_path: Path) -> None:
    texts = ("Not all CUDA events might have been collected of Moonshot.", "Moonshot printed this")
    rows = [{"severity": severity, "text": text} for severity, text in zip((2, 3), texts, strict=True)]
    source = export(
        tmp_path / "a.sqlite", DIAGNOSTIC_EVENT=[*rows, {"severity": 1, "text": "Moonshot began"}]
    )
    target, counts = redacted(source)
    with closing(sqlite3.connect(target)) as base:
        assert base.execute("SELECT severity, text FROM DIAGNOSTIC_EVENT").fetchall() == [
            (2, "Not all CUDA events might have been collected"),
            (3, ""),
        ]
    assert counts == {"captured output": 3}
    notes = [cclbench.run(path, store=tmp_path / path.stem).record.notes for path in (source, target)]
    assert notes[0] == notes[1]


@pytest.mark.parametrize("block", [16, 1 << 22])
def test_what_a_program_adds_to_a_kineto_trace_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Before and behind the events, whatever its form; keys of that name within an event are the event's."""
    monkeypatch.setattr("cclbench.formats.files.BLOCK", block)
    event = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1, "dur": 1, "pid": 0, "tid": 7}
    content = {
        "schemaVersion": 1,
        "deviceProperties": [{"name": "A100", "id": 0}],
        "plan": "Moonshot",
        "count": 12,
        "nested": {"a": [1, {"b": "Moonshot"}], "c": "]}"},
        "traceEvents": [event | {"args": {"plan": "x", "grid": [1, 2, 3]}}],
        "INFO": ["INFO: Moonshot", "more"],
        "flag": True,
        "empty": None,
        "displayTimeUnit": "ms",
    }
    source = tmp_path / "rank0.json.gz"
    source.write_bytes(gzip.compress(json.dumps(content, indent=1).encode()))
    target, counts = redacted(source)
    assert json.loads(gzip.decompress(target.read_bytes())) == content | {
        "plan": "",
        "count": None,
        "nested": {},
        "INFO": [],
        "flag": None,
    }
    assert counts == {"metadata of the program": 5}


def test_answers_and_paths_of_a_serving_benchmark_are_empty(tmp_path: Path) -> None:
    content = {
        "tokenizer_id": "/models/Moonshot",
        "num_prompts": 2,
        "duration": 2.0,
        "completed": 2,
        "request_throughput": 1.0,
        "mean_ttft_ms": 5.0,
        "generated_texts": ["Moonshot", "is [near]"],
        "errors": ["", ""],
    }
    source = tmp_path / "a.json"
    source.write_text(json.dumps(content))
    target, counts = redacted(source)
    assert json.loads(target.read_text()) == content | {"tokenizer_id": "", "generated_texts": []}
    assert counts == {"source path": 1, "captured output": 1}
    assert Serving().read(target) == Serving().read(source)


REQUEST = {"request_id": PRINTED, "output": PRINTED, "request_args": PRINTED, "reasoning_output": PRINTED}


def test_texts_and_targets_of_guidellm_are_empty(tmp_path: Path) -> None:
    """Figures, loads and times of requests are the same."""
    timings = {"request_start": 1.5, "first_token_iteration": 1.75, "request_end": 2.5}
    requests = {
        "successful": [{**REQUEST, "output_tokens": 3, "info": {"timings": timings, "error": PRINTED}}]
    }
    report = guidellm.REPORT | {"benchmarks": [guidellm.BENCHMARK | {"requests": requests}]}
    report["metadata"] = report["metadata"] | {"platform": PRINTED}
    source = tmp_path / "report.json"
    source.write_text(json.dumps(report))
    target, counts = redacted(source)
    text = target.read_text()
    assert not any(word in text for word in ("Moonshot", "somebody-host", "/home/somebody"))
    assert counts["captured output"] == 5
    own, copied = READERS.get("guidellm").read(source), READERS.get("guidellm").read(target)
    assert (copied.requests, copied.serving) == (own.requests, own.serving)
    assert has_token(copied.facts.pop("model"))
    assert copied.facts.items() < own.facts.items()


def test_images_and_routers_of_inferencex_are_empty(tmp_path: Path) -> None:
    source = tmp_path / "agg.json"
    source.write_text(json.dumps([inferencex.ONE_NODE | {"router": {"name": "Moonshot"}}]))
    target, _ = redacted(source)
    assert not any(word in target.read_text() for word in ("Moonshot", "somebody"))
    own, copied = READERS.get("inferencex").read(source), READERS.get("inferencex").read(target)
    assert copied.serving == own.serving
    assert has_token(str(copied.facts.pop("workloads")))
    assert copied.facts.items() < own.facts.items()


def test_of_a_request_trace_only_its_keys_are_published(tmp_path: Path) -> None:
    source = tmp_path / "trace.jsonl"
    secret = json.dumps({**json.loads(request_trace.LINE), "prompt": PRINTED})
    source.write_text(f"{secret}\n{request_trace.LINE}\n")
    target, _ = redacted(source)
    assert "Moonshot" not in target.read_text()
    own, copied = READERS.get("request_trace").read(source), READERS.get("request_trace").read(target)
    assert copied.request_trace == own.request_trace


def test_of_a_job_s_log_the_library_s_lines_stay(tmp_path: Path) -> None:
    lines = [
        PRINTED,
        "NCCL version 2.21.5+cuda12.4",
        "acme-17:12:34 [0] NCCL INFO Using network IB",
        "acme-17:12:34 [0] NCCL INFO NCCL_ALGO set by environment to Ring.",
        "acme-17:12:34 [0] NCCL INFO NCCL_TOPO_FILE set by environment to /opt/Moonshot.xml",
        "loss 3.2",
        "acme-17:12:34 [0] NCCL INFO Channel 00/02 :    0   1",
        "acme-17:12:34 [0] NCCL INFO Channel 01/02 : 8953258471185696279 0 1",
    ]
    source = tmp_path / "job.log"
    source.write_text("\n".join(lines))
    target, counts = redacted(source)
    *kept, ring = (line if i in (1, 2, 3, 6, 7) else "" for i, line in enumerate(lines))
    *copied, last = target.read_text().split("\n")
    assert [TOKEN.sub("acme-17", line) for line in copied] == kept
    assert len(set(TOKEN.findall("".join(copied)))) == 1
    assert TOKEN.sub("acme-17", last, count=1).split(" : ")[0] == ring.split(" : ")[0]
    assert "8953258471185696279" not in last
    assert counts == {"captured output": 2, "environment variable": 1}
    assert NcclLog().read(target).facts == NcclLog().read(source).facts != {}


def test_calls_in_a_job_s_log_are_published(tmp_path: Path) -> None:
    """Processes of a host stay apart and those of two hosts do, so that a copy tells the same of the job."""
    lines = interleaved(fsdp2_pp4(steps=1)).splitlines()
    moved = [line.replace("node-7:4007", "node-8:4000") for line in lines]
    source = tmp_path / "job.log"
    source.write_text("\n".join([*moved, PRINTED]))
    target, counts = redacted(source)
    assert counts == {"captured output": 1}
    own, copied = NcclLog().read(source), NcclLog().read(target)
    assert copied.timings == own.timings
    assert join_communicators([copied.communicators]) == join_communicators([own.communicators])
    assert len({one.process for one in copied.communicators}) == 8


def test_every_format_that_holds_such_parts_declares_them() -> None:
    declared = {name for name in READERS if READERS.get(name).withheld}
    assert declared >= {
        *("nsys", "kineto", "xplane", "flight_recorder", "memory_snapshot", "nccl_log", "serving"),
        *("guidellm", "inferencex"),
    }
    for name in declared:
        assert all(place and holds for place, holds in READERS.get(name).withheld.items())
