# SPDX-License-Identifier: Apache-2.0
"""Serving results, memory snapshots and NCCL's debug output on their first screens; figures by hand."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from formats.test_memory_snapshot import event, snapshot
from formats.test_nccl_log import EFA, PREFIX

import cclbench
from cclbench.agents.reach import Reach
from cclbench.agents.tools import Tools
from cclbench.api import run
from cclbench.record.selection import Selection
from cclbench.results import full_results
from cclbench.source_summaries import source_summaries

Call = Callable[..., Any]

CLIENT: dict[str, Any] = {"backend": "vllm", "model_id": "m/tiny", "tokenizer_id": "m/tiny"}
CLIENT |= {"num_prompts": 5, "request_rate": "inf", "max_concurrency": 2, "duration": 10.0, "completed": 4}
CLIENT |= {"total_input_tokens": 400, "total_output_tokens": 200}
CLIENT |= {"request_throughput": 0.4, "output_throughput": 20.0}
CLIENT |= {"mean_ttft_ms": 150.0, "median_ttft_ms": 100.0, "p99_ttft_ms": 400.0}
CLIENT |= {"mean_tpot_ms": 12.0, "median_tpot_ms": 10.0}


def result(path: Path, **changes: Any) -> Path:
    """A result file of a client that was asked for five requests, of which four were answered."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(CLIENT | changes))
    return path


def only_summary(call: Call, path: Path) -> dict[str, Any]:
    """The only summary of a source."""
    (found,) = json.loads(call("run", path, "--json").out)["summaries"]
    return dict(found)


def test_a_benchmark_of_a_server(call: Call, tmp_path: Path) -> None:
    found = only_summary(call, result(tmp_path / "a.json"))
    assert found["warnings"] == ["a.json: 1 of 5 requests were not answered"]
    assert found["sentences"] == [
        "20 output tokens/s, concurrency 2, 4 requests answered.",
        "Its first token takes 100 ms in the median, 400 ms at the 99th percentile.",
    ]
    load, latency = found["tables"]
    (row,) = load["rows"]
    assert (row["concurrency"], row["answered"], row["not answered"]) == (2, 4, 1)
    assert (row["requests"], row["output tokens"], row["TTFT p50"]) == (0.4, 20.0, 0.1)
    first, each = (
        ("time to first token", 0.15, 0.1, None, 0.4),
        ("time per output token", 0.012, 0.01, None, None),
    )
    assert [tuple(row.values()) for row in latency["rows"]] == [(None, *first), (None, *each)]
    failed = call("run", result(tmp_path / "b.json", **{key: 0 for key in CLIENT if key.endswith("_ms")})).out
    assert "no latencies: the files state none" in failed
    run = cclbench.run(tmp_path / "a.json", store=tmp_path / "store")
    (source,) = Tools(tmp_path / "store", Reach(()), 1 << 30).diagnose(run.id, full=True).fields["source"]
    assert (source["kind"], source["warnings"]) == ("serving", found["warnings"])


def test_metrics_of_a_server_since_its_start(call: Call, tmp_path: Path) -> None:
    """Two requests of 3 s in all; both took 1 s to 2 s."""
    name = "vllm:e2e_request_latency_seconds"
    buckets = [f'{name}_bucket{{le="{le}"}} {count}' for le, count in (("1.0", 0), ("2.0", 2), ("+Inf", 2))]
    (path := tmp_path / "a.prom").write_text("\n".join([*buckets, f"{name}_count 2", f"{name}_sum 3", ""]))
    (row,) = only_summary(call, path)["tables"][0]["rows"]
    assert tuple(row.values()) == ("end-to-end latency", 1.5, 1.0, 2.0, 1.0, 2.0)


def test_listed_requests_count_before_stated_ones(call: Call, tmp_path: Path) -> None:
    """Of three listed requests one failed, whatever the client was asked for."""
    lists: dict[str, Any] = {"input_lens": [10, 20, 5], "output_lens": [3, 3, 0], "ttfts": [0.1, 0.3, 0.0]}
    lists |= {"itls": [[0.01, 0.03], [0.02, 0.02], []], "errors": ["", "", "refused"]}
    found = only_summary(call, result(tmp_path / "a.json", completed=2, **lists))
    (row,) = found["tables"][0]["rows"]
    assert (row["answered"], row["not answered"]) == (2, 1)
    assert row["TTFT p50"] == pytest.approx(0.2)
    assert row["output tokens"] == pytest.approx(6 / 10)
    silent = {key: value for key, value in CLIENT.items() if key not in ("num_prompts", "completed")}
    (tmp_path / "b.json").write_text(json.dumps(silent))
    found = only_summary(call, tmp_path / "b.json")
    answers = [(row["answered"], row["not answered"]) for row in found["tables"][0]["rows"]]
    assert (answers, found["warnings"]) == ([(None, None)], [])  # what nobody states is not zero


def test_a_sweep_over_loads_is_compared_by_load(call: Call, tmp_path: Path) -> None:
    """Files of other names, equal concurrencies; the lowest load stands first."""
    for side, factor in (("a", 1), ("b", 2)):
        for load in (16, 2):
            name = f"{side}-{load}.json"
            result(tmp_path / side / name, max_concurrency=load, output_throughput=factor * 10.0 * load)
    document = json.loads(call("compare", tmp_path / "a", tmp_path / "b", "--json").out)
    load, latency = document["tables"]
    assert [(row["concurrency"], row["output tokens"]["ratio"]) for row in load["rows"]] == [(2, 2), (16, 2)]
    assert {row["load"] for row in latency["rows"]} == {"concurrency 2", "concurrency 16"}
    assert "a-16.json" in call("run", tmp_path / "a").out


def test_out_of_memory_comes_first(call: Call, tmp_path: Path) -> None:
    """1 MiB is asked where 8,192 B are reserved: all free memory together is too small."""
    events = [event("alloc", 6096, 300, 1), event("oom", 0, 1 << 20, 5, device_free=4096)]
    path = tmp_path / "rank3.pickle"
    path.write_bytes(pickle.dumps(snapshot(snapshot()["segments"], events)))
    (warning,) = only_summary(call, path)["warnings"]
    assert warning.startswith("rank 3, device 0: out of memory: 1.05 MB asked at forward model.py:7: ")
    lines = call("run", path).out.splitlines()
    begin = lines.index("Memory snapshot")
    assert lines[begin + 1].startswith("rank 3, device 0: out of memory")


def test_the_peak_and_who_holds_it(call: Call, tmp_path: Path) -> None:
    """650 B at the peak: 300 B and 200 B of the program's calls, 150 B older."""
    path = tmp_path / "rank3.pickle"
    path.write_bytes(pickle.dumps(snapshot()))
    found = only_summary(call, path)
    assert found["warnings"] == []
    devices, _, sites = found["tables"]
    (device,) = devices["rows"]
    assert (device["peak"], device["reserved"], device["at the end"]) == (650, 8192, 400)
    assert [(row["call site"], row["bytes"]) for row in sites["rows"]] == [
        *(("forward model.py:7", 300), ("step torch/optim/adam.py:9 < forward model.py:7", 200)),
        ("older than the recording", 150),
    ]
    assert sum(row["share"] for row in sites["rows"]) == pytest.approx(1)


def test_a_cut_snapshot_a_cut_result_and_an_empty_folder_are_errors(call: Call, tmp_path: Path) -> None:
    whole = pickle.dumps(snapshot())
    (tmp_path / "rank3.pickle").write_bytes(whole[: len(whole) // 2])
    result(tmp_path / "b.json").write_text(json.dumps(CLIENT)[:200])
    for name in ("rank3.pickle", "b.json"):
        answer = call("run", tmp_path / name)
        assert (answer.code, answer.out) == (3, "")
        assert answer.err.startswith("error: ")
        assert name in answer.err
    (tmp_path / "nothing").mkdir()
    answer = call("run", tmp_path / "nothing")
    assert (answer.code, answer.out) == (3, "")


def log(path: Path, *messages: str) -> Path:
    """A log of NCCL's debug output."""
    path.write_text("".join(f"{PREFIX}{message}\n" for message in (*EFA, *messages)))
    return path


def test_a_log_of_the_library(call: Call, tmp_path: Path) -> None:
    tuned = [
        f"NCCL INFO AllReduce: {size} Bytes -> Algo {words} channel{{Lo..Hi}}={{0..15}}"
        for size, words in ((8, "TREE proto LL"), (4096, "TREE proto LL"), (1 << 28, "NVLS proto SIMPLE"))
    ]
    found = only_summary(call, log(tmp_path / "job.log", *tuned))
    assert found["kind"] == "library"
    assert found["sentences"][0] == "nccl 2.29.2+cuda12.8; 16 ranks, 2 nodes."
    tuned = "Algorithm and protocol: all_reduce 8B-4KiB: TREE LL; all_reduce 256MiB: NVLS SIMPLE."
    assert tuned in found["sentences"]
    rows = {row["setting"]: row["value"] for row in found["tables"][0]["rows"]}
    assert (rows["version"], rows["ranks"], rows["NVLS channels"]) == ("2.29.2+cuda12.8", "16", "8")


ACROSS = "NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET"
WITHIN = "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via"
SOCKETS = "Channels between nodes use TCP sockets (NET/Socket)"
NO_GDRDMA, NO_PEERS = "Channels of the network state no GDRDMA", "No channel uses peer-to-peer access"


@pytest.mark.parametrize(
    ("messages", "warning"),
    [
        (["NCCL WARN something"], "The library warned 1 time: search the log for NCCL WARN."),
        ([f"{ACROSS}/Socket/0"], f"{SOCKETS}, not the network's own transport."),
        ([f"{ACROSS}/IB/0"], f"{NO_GDRDMA}: without GPUDirect RDMA, data pass through host memory."),
        ([f"{ACROSS}/IB/0/GDRDMA"], None),
        ([f"{WITHIN} SHM/direct/direct"], f"{NO_PEERS}: data within a node pass through host memory (SHM)."),
        ([f"{WITHIN} SHM/direct/direct", f"{WITHIN} P2P/CUMEM"], None),
    ],
)
def test_slow_paths_come_first(call: Call, tmp_path: Path, messages: list[str], warning: str | None) -> None:
    path = tmp_path / "job.log"
    head = ["NCCL INFO NCCL version 2.27.3+cuda12.9", "NCCL INFO Using network IB"]
    path.write_text("".join(f"host:1:2 [0] {message}\n" for message in (*head, *messages)))
    assert only_summary(call, path)["warnings"] == ([] if warning is None else [warning])


def test_warnings_of_processes_are_summed_where_logs_state_nothing_else(call: Call, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for rank in range(2):
        path = log(tmp_path / "job" / f"nccl-{rank}.log")
        path.write_text(path.read_text() + f"host:{rank}:2 [0] NCCL WARN a\n" * 3)
    warned = "The library warned {}: search the log for NCCL WARN."
    assert only_summary(call, tmp_path / "job")["warnings"] == [warned.format("6 times")]
    (tmp_path / "job.log").write_text("host:1:2 [0] NCCL WARN a\n")
    found = only_summary(call, tmp_path / "job.log")
    assert (found["warnings"], found["sentences"]) == ([warned.format("1 time")], [])
    assert "No step" not in call("run", tmp_path / "job.log").out


SENTENCES = {
    "mlperf_storage": (
        "storage",
        ["Training: accelerators compute 93.6 % of the time, 708.9 samples/s, 104 GB/s."],
    ),
    "dlio/tests/test_data/iostat.json": (
        "stores",
        [  # Σ r/s · r_await / Σ r/s = 484.6 µs; 1,109,166,964 B/s in the mean of 131 reports
            "flush: 0.3965 operations/s, 7.05 ms each.",
            "read: 1.11 GB/s, 9,245 operations/s, 485 µs each.",
            "write: 5.42 MB/s, 276.7 operations/s, 1.40 ms each.",
            "all: with a request 75.1 % of the time.",
            "trim: 0 B/s, 0 operations/s.",
        ],
    ),
    "dftracer/examples": (
        "io_calls",
        [
            "37,495 calls of 6 processes: 1.72 s in calls for files, 1.2 % of their time.",
            "Read: 1,735 calls, 35.6 ms, 362 kB, 10.2 MB/s.",
            *("Write: 14,661 calls, 390 ms, 91.5 MB, 235 MB/s.", "Metadata: 21,099 calls, 1.56 s."),
        ],
    ),
    "agent_tools": (
        "agents",
        [
            "2 sessions, 19 rounds, 19 calls of tools: 263 s, model 52.9 %, tools 30.1 %, neither 17.0 %.",
            "A cache of tool results saves 79.0 s at most.",
        ],
    ),
    "rl_tpu": (
        "roles",
        [
            "sampler_a is active 56.2 % of the time; trainer_a is active 39.5 % of the time;"
            " all at once 0.23 %, none 4.5 %."
        ],
    ),
}


@pytest.mark.parametrize("source", SENTENCES)
def test_a_source_says_what_it_is_about_first(test_data: Path, evidence_store: Path, source: str) -> None:
    read = run(test_data / source, store=evidence_store)
    first = source_summaries(read, full_results(read, Selection()))[0]
    assert (first.kind, first.sentences) == SENTENCES[source]
    assert all(len(row) == len(table.columns) for table in first.tables for row in table.rows)
