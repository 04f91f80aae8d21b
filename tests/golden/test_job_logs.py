# SPDX-License-Identifier: Apache-2.0
"""Logs of real jobs: figures against arithmetic on the same lines with Python's own JSON and text reading."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from rich.console import Console, Group

from cclbench.present.terminal.run import first_screen
from cclbench.record.run import Run
from cclbench.source_summaries import source_summaries

Measure = Callable[..., Run]
MEGATRON = {
    "llama_8gpu_46715226_nid003281.out": (8.0694, 4061, {"tensor_parallel": 4, "data_parallel": 2}),
    "llama_8gpu_46715979_nid002208.out": (9.3183, 3517, {"tensor_parallel": 2, "data_parallel": 4}),
}
MLPERF = "mlperf_training/*/results/*/llama31_8b/result_*.txt"


def figures(run: Run, metric: str) -> dict[tuple[str | None, str | None, int | None], float]:
    """Values by category, stat and step."""
    rows = run.figures.summary
    return {
        (row.category, row.stat, row.step): row.value
        for row in rows
        if row.metric == metric and row.value is not None
    }


@pytest.mark.parametrize("name", MEGATRON)
def test_two_jobs_of_megatron(name: str, test_data: Path, measure: Measure) -> None:
    """The published step times and rates of two jobs of 50 iterations; the profiler took 25 to 27."""
    run = measure(test_data / "job_logs_ccl" / "megatron_logs" / name)
    step, rate, settings = MEGATRON[name]
    found = figures(run, "log.step")
    assert found[None, None, None] == pytest.approx(step)
    assert [(what, number) for what, _, number in found if what] == [
        ("profiled", 25),
        ("profiled", 26),
        ("profile saved", 27),
    ]
    assert figures(run, "log.tokens")[None, None, None] == pytest.approx(rate, abs=0.5)
    (entry,) = run.record.evidence
    assert entry.facts.items() >= ({"devices": 8, "global_batch": 32, "network": "Socket"} | settings).items()


def test_the_first_screen_of_a_log_alone_is_about_its_steps(test_data: Path, measure: Measure) -> None:
    """It says neither that there is no step time nor that there is no trace."""
    run = measure(test_data / "job_logs_ccl" / "megatron_logs" / next(iter(MEGATRON)))
    paper = Console(width=80, color_system=None)
    with paper.capture() as printed:
        paper.print(
            Group(
                *first_screen(
                    run.record, run.figures, run.window, (), summaries=source_summaries(run, run.figures)
                )
            )
        )
    text = " ".join(printed.get().split())
    assert "No step" not in text
    assert "A step takes 8.07 s in the median, 7.85 s to 9.45 s (p5 to p95), at most 24.7 s." in text
    assert "4,061 tokens/s, 508 on a device." in text
    assert "Profiled: step 25 (12.8 s), 26 (10.0 s)." in text


def stated_steps(path: Path) -> tuple[list[float], int, int]:
    """Step times, batch and sequence length of a log of MLPerf, read as JSON."""
    entries = [json.loads(line.split(":::MLLOG ")[1]) for line in path.read_text().splitlines()]
    settings = {entry["key"]: entry["value"] for entry in entries if entry["key"] != "tracked_stats"}
    batch, length = settings["global_batch_size"], settings["max_sequence_length"]
    stats = [entry for entry in entries if entry["key"] == "tracked_stats" and "step" in entry["metadata"]]
    times = [entry["value"]["train_step_time"] for entry in stats if "train_step_time" in entry["value"]]
    rates = [entry["value"]["throughput"] for entry in stats if "throughput" in entry["value"]]
    return times or [batch / rate for rate in rates], batch, length


def test_eighteen_logs_of_mlperf(test_data: Path, measure: Measure) -> None:
    """Step, batch and tokens a second to 0.1 % of the log's own arithmetic."""
    logs = sorted(test_data.glob(MLPERF))
    assert len(logs) == 18
    for path in logs:
        run = measure(path)
        times, batch, length = stated_steps(path)
        table = run.evidence("log_steps")
        assert len(table) == len(times)
        assert set(table["samples"].to_pylist()) == {batch}
        assert figures(run, "log.step")[None, None, None] == pytest.approx(median(times[1:]), rel=1e-6)
        rate = median(batch * length / time for time in times[1:])
        assert figures(run, "log.tokens")[None, None, None] == pytest.approx(rate, rel=1e-6)


def test_a_job_of_torchtitan(test_data: Path, measure: Measure, tmp_path: Path) -> None:
    """100 steps with colours: stamps give 15.3 s, and tokens of a device what `tps` states, within 1 %."""
    path = tmp_path / "train.log"
    with tarfile.open(test_data / "nccl_job_logs" / "b0_fsdp8.tar.gz") as archive:
        member = next(one for one in archive if one.name.endswith("/train.log"))
        content = archive.extractfile(member)
        assert content is not None
        path.write_bytes(content.read())
    run = measure(path)
    times = [
        int(h) * 3600 + int(m) * 60 + int(s) + int(ms) / 1000
        for h, m, s, ms in re.findall(
            r"(\d\d):(\d\d):(\d\d),(\d{3}) - root - INFO - \S*step:", path.read_text()
        )
    ]
    steps = [after - before for before, after in pairwise(times)]
    assert len(steps) == 99
    assert figures(run, "log.step")[None, None, None] == pytest.approx(median(steps), abs=1e-6)
    rates = figures(run, "log.tokens")
    assert rates[None, None, None] == pytest.approx(8 * rates[None, "per_device", None])
    assert rates[None, "per_device", None] == pytest.approx(rates[None, "stated_per_device", None], rel=0.01)
    assert figures(run, "log.mfu")[None, None, None] == pytest.approx(0.0158)
