# SPDX-License-Identifier: Apache-2.0
"""Evidence other than traces, as people have it: alone, several kinds in a folder, beside traces, damaged.

Expectations are by hand or numpy's; layouts are those that the producers document.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command_line import Call

from cclbench.formats import READERS, recognise_format

GLOO = Path(__file__).parents[2] / "traces" / "tiny-llama-ddp4-gloo-cpu"
SYS = "/sys/class/infiniband"
TTFTS = [0.031, 0.25, 0.125, 0.0625, 0.5]
ITLS = [[0.01, 0.02], [0.03], [0.011, 0.013, 0.017], [], [0.02] * 4]
LISTS = {"input_lens": [100] * 5, "output_lens": [len(gaps) + 1 for gaps in ITLS], "ttfts": TTFTS}
LISTS |= {"itls": ITLS, "generated_texts": ["the answer"] * 5, "errors": [""] * 5}
VLLM = json.loads("""{
  "date": "20251002-101112", "backend": "vllm", "model_id": "/home/somebody/models/Llama-3.1-8B",
  "tokenizer_id": "/home/somebody/models/Llama-3.1-8B", "num_prompts": 5, "request_rate": "inf",
  "duration": 2.5, "completed": 5, "total_output_tokens": 15, "request_throughput": 2.0,
  "output_throughput": 6.0, "mean_ttft_ms": 193.7, "median_ttft_ms": 125.0, "p99_ttft_ms": 490.0
}""")
SGLANG = json.loads("""{
  "backend": "sglang", "dataset_name": "random", "request_rate": Infinity, "max_concurrency": 16,
  "duration": 42.5, "completed": 80, "request_throughput": 1.88, "mean_e2e_latency_ms": 2100.5,
  "mean_ttft_ms": 74.1, "p99_ttft_ms": 150.0
}""")
# 2 MiB in 1000 µs are 2.10 GB/s, of two ranks half of it on the bus: S is all that is gathered.
TABLE = """\
# nccl-tests version 2.18.2 nccl-headers=23007 nccl-library=23007
# Collective test starting: all_gather_perf
# nThread 1 nGpus 1 minBytes 1048576 maxBytes 2097152 step: 2(factor) warmup iters: 1 iters: 20
#  Rank  0 Group  0 Pid  15784 on   alpha device  0 [0009:01:00] NVIDIA GH200 120GB
#  Rank  1 Group  0 Pid  24926 on    beta device  0 [0009:01:00] NVIDIA GH200 120GB
#
#       size    count    type  redop   root    time  algbw  busbw  #wrong    time  algbw  busbw  #wrong
#        (B)    (elements)                     (us)  (GB/s) (GB/s)           (us)  (GB/s) (GB/s)
     1048576   131072   float   none     -1   524.0   2.00   1.00       0   524.0   2.00   1.00     N/A
     2097152   262144   float   none     -1  1000.0   2.10   1.05       0   800.0   2.62   1.31     N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 1.09
"""
LOG = """\
alpha:100:100 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)
alpha:100:100 [0] NCCL INFO Using network AWS Libfabric
NCCL version 2.18.5+cuda12.2
alpha:100:150 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/AWS Libfabric/0/GDRDMA
"""
INSPECTOR = """{
  "header": {"id": "0x7f8c", "rank": 0, "n_ranks": 2, "nnodes": 1},
  "metadata": {"inspector_output_format_version": "v4.0", "hostname": "alpha", "pid": 1},
  "coll_perf": {"coll": "AllGather", "coll_sn": 1, "coll_msg_size_bytes": 1000000, "coll_exec_time_us": 1000,
    "coll_algobw_gbs": 2.0, "coll_busbw_gbs": 1.0}
}"""
RECORDER = json.loads("""{
  "version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
  "pg_status": {}, "entries": [{
    "frames": [{"name": "f", "filename": "/home/somebody/train.py", "line": 3}],
    "process_group": ["0", "default_pg"], "collective_seq_id": 7, "profiling_name": "nccl:all_reduce",
    "duration_ms": 1.5, "input_sizes": [[1024]], "input_dtypes": ["Float"], "output_sizes": [[1024]],
    "output_dtypes": ["Float"], "state": "completed"
  }]
}""")


def nvlink(kib: int) -> str:
    """Two GPUs of two links, each of which sent `kib` and received twice as much."""
    return "".join(
        f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-{gpu})\n"
        + "".join(f"\t Link {i}: Data Tx: {kib} KiB\n\t Link {i}: Data Rx: {2 * kib} KiB\n" for i in (0, 1))
        for gpu in (0, 1)
    )


def efa(tx: int, rx: int) -> str:
    """Two ports of EFA."""
    return "".join(
        f"{SYS}/{nic}/ports/1/hw_counters/{name}:{value}\n"
        for nic in ("rdmap0s6", "rdmap16s6")
        for name, value in (("lifespan", 12), ("rx_bytes", rx), ("rx_pkts", 1), ("tx_bytes", tx))
    )


DMON = """\
1700000000.0 #Entity   SMACT        NVLTX                NVLRX
1700000000.0 ID
1700000001.0 GPU 0     0.5          1000                 10
1700000003.0 GPU 0     0.5          3000                 20
"""
SMI_DMON = "# gpu    pwr     sm\n# Idx      W      %\n    0    300     95\n"
SMI_QUERY = "index, utilization.gpu [%], power.draw [W]\n0, 95 %, 300.5 W\n"
DCGM_CSV = "timestamp,gpu,DCGM_FI_PROF_SM_ACTIVE\n1700000000,0,0.5\n"
EXPORTER = 'DCGM_FI_PROF_SM_ACTIVE{gpu="0",Hostname="alpha"} 0.5\n'
SWEEP_CSV = (
    "# coll: all_reduce\n# ranks: 8\nsize_bytes,count,dtype,redop,oop_time_us,oop_algbw_GBps,oop_busbw_GBps,"
    "ip_time_us,ip_algbw_GBps,ip_busbw_GBps\n1000000,250000,float,sum,10,100,175,10,100,175\n"
)
FILES: dict[str, tuple[str, str | bytes]] = {
    "summary.json": ("serving", json.dumps(VLLM)),
    "detailed.json": ("serving", json.dumps(VLLM | LISTS, indent=2)),
    "sglang.jsonl": ("serving", f"{json.dumps(SGLANG)}\n{json.dumps(SGLANG | {'mean_ttft_ms': 80})}\n"),
    "sweep.txt": ("nccl_tests", TABLE),
    "sweep.csv": ("nccl_tests", SWEEP_CSV),
    "job.log": ("nccl_log", LOG),
    "both.log": ("nccl_tests", LOG + TABLE),
    "alpha-pid1.log": ("nccl_inspector", "".join(INSPECTOR.splitlines()) + "\n"),
    "trace_rank_0": ("flight_recorder", pickle.dumps(RECORDER, protocol=2)),
    "trace_rank_1.json": ("flight_recorder", json.dumps(RECORDER)),
    "dmon.txt": ("dcgm", DMON),
    "dcgm.csv": ("dcgm", DCGM_CSV),
    "exporter.prom": ("dcgm", EXPORTER),
    "smi.txt": ("nvidia_smi", SMI_DMON),
    "smi.csv": ("nvidia_smi", SMI_QUERY),
    "nvlink_before.txt": ("nvidia_smi", nvlink(1000)),
    "nvlink_after.txt": ("nvidia_smi", nvlink(5000)),
    "efa_before.txt": ("fabric_counters", efa(100, 50)),
    "efa_after.txt": ("fabric_counters", efa(1100, 250)),
}


def content(name: str) -> bytes:
    text = FILES[name][1]
    return text if isinstance(text, bytes) else text.encode()


def write(folder: Path, *names: str) -> Path:
    """The files of those names in a folder."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_bytes(content(name))
    return folder


@pytest.fixture
def told(call: Call) -> Callable[..., dict[tuple[Any, ...], dict[str, Any]]]:
    """The result rows of a source by metric, collective, category and stat."""

    def told(source: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
        answer = call("run", source, "--json")
        assert answer.code == 0, answer.err
        rows = json.loads(answer.out)["results"]
        keys = ("metric", "collective", "category", "stat")
        return {tuple(row[key] for key in keys): row for row in rows if row["rank"] is None}

    return told


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_one_readers_and_a_run_without_secrets(call: Call, tmp_path: Path, name: str) -> None:
    reader, text = FILES[name][0], content(name)
    assert recognise_format(Path(name), text).name == reader
    sure = [each for each in READERS if READERS.get(each).sniff(text) > 0]
    assert sure in ([reader], ["nccl_log", "nccl_tests"])  # a job's log may hold both
    path = write(tmp_path / "one", name) / name
    answer = call("run", path, "--json")
    assert answer.code == 0, answer.err
    printed = answer.out + call("run", path, "-v").out
    assert not any(secret in printed for secret in ("somebody", "alpha:", "the answer", "15784"))


def test_everything_in_one_folder_beside_traces(call: Call, told: Any, tmp_path: Path) -> None:
    alone = ("sweep.csv", "both.log", "summary.json", "sglang.jsonl")
    folder = write(tmp_path / "all", *(name for name in FILES if name not in alone))
    for trace in GLOO.glob("rank*.json.gz"):
        shutil.copy(trace, folder)
    rows = told(folder)
    # two ports of 1,000 and 200 bytes; four links of 4,000 and 8,000 KiB; 3,000 B/s for two seconds
    values = {
        ("comm.measured_busbw", "all_gather", None, None): 1.05e9,
        ("comm.measured_busbw", "all_gather", None, "in_place"): 1.31e9,
        ("comm.measured_busbw", "all_gather", "1MiB", None): 1e9,
        ("comm.nic_bytes", None, None, None): 2000,
        ("comm.nic_bytes", None, "rx", None): 400,
        ("comm.nvlink_bytes", None, None, None): 6000,
        ("comm.nvlink_bytes", None, None, "nvidia_smi"): 4 * 4000 * 1024,
        ("serving.ttft", None, None, "p90"): pytest.approx(np.percentile(TTFTS, 90)),
    }
    assert {key: rows[key]["value"] for key in values} == values
    assert rows["time.step", None, None, None]["status"] == "ok"
    sources = {"comm.measured_busbw": "nccl_tests", "comm.nic_bytes": "fabric_counters"}
    sources |= {"time.step": "kineto"}
    for (metric, *_), row in rows.items():
        assert row["source"], row
        assert row["source"] == sources.get(metric, row["source"])
    query = "SELECT source, kind, bytes, dur_ns, busbw, rank FROM timings"
    query += " WHERE source <> 'nccl_tests' ORDER BY ALL"
    timings = json.loads(call("sql", folder, query, "--json").out)["rows"]
    assert [list(row.values()) for row in timings] == [
        ["flight_recorder", "all_reduce", 4096, 1_500_000, None, 0],
        ["flight_recorder", "all_reduce", 4096, 1_500_000, None, 1],
        ["nccl_inspector", "all_gather", 2_000_000, 1_000_000, 1e9, None],
    ]
