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
EVIDENCE = Path(__file__).with_name("evidence")
READERS_FILES = {
    "serving": ["summary.json", "detailed.json", "sglang.jsonl"],
    "nccl_tests": ["sweep.txt", "sweep.csv", "both.log"],
    "nccl_log": ["job.log"],
    "nccl_inspector": ["alpha-pid1.log"],
    "flight_recorder": ["trace_rank_0", "trace_rank_1.json"],
    "dcgm": ["dmon.txt", "dcgm.csv", "exporter.prom"],
    "nvidia_smi": ["smi.txt", "smi.csv", "nvlink_before.txt", "nvlink_after.txt"],
    "fabric_counters": ["efa_before.txt", "efa_after.txt"],
}
FILES = {name: reader for reader, names in READERS_FILES.items() for name in names}


def content(name: str) -> bytes:
    """A file as people have it; of the flight recorder's the pickle of what stands as JSON."""
    if name == "trace_rank_0":
        return pickle.dumps(json.loads(content("trace_rank_1.json")), protocol=2)
    return (EVIDENCE / name).read_bytes()


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
    reader, text = FILES[name], content(name)
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
        ("serving.ttft", None, None, "p90"): pytest.approx(
            np.percentile(json.loads(content("detailed.json"))["ttfts"], 90)
        ),
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
