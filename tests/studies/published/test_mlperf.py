# SPDX-License-Identifier: Apache-2.0
"""MLPerf's results as published runs: steps and tokens of logs, summaries of the load generator."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from cclbench.ground.errors import InputError
from cclbench.record.store import Store
from cclbench.studies.published import Imported, import_mlperf

SYSTEM = {"submitter": "Example Lab", "division": "closed", "number_of_nodes": "2", "framework": "PyTorch"}
SYSTEM |= {"accelerators_per_node": "4", "accelerator_model_name": "NVIDIA H100 80GB HBM3"}
SERVER = """\
================================================
MLPerf Results Summary
================================================
SUT name : PySUT
Scenario : Server
Mode     : PerformanceOnly
Completed samples per second    : 8.00
Completed tokens per second: 2400.5
Result is : VALID
  Min duration satisfied : Yes
Additional Stats
Scheduled samples per second : 8.62
Mean latency (ns)               : 45000000000
50.00 percentile latency (ns)   : 39000000000
90.00 percentile latency (ns)   : 82000000000
99.00 percentile latency (ns)   : 147000000000
Mean First Token latency (ns)               : 400000000
50.00 percentile first token latency (ns)   : 410000000
99.00 percentile first token latency (ns)   : 785000000
Mean Time to Output Token (ns)                : 153000000
90.00 percentile time to output token (ns)   : 177000000
ttft_latency (ns): 2000000000
"""
OFFLINE = """\
Scenario : Offline
Mode     : PerformanceOnly
Samples per second: 10.5
Tokens per second: 3000
Result is : VALID
Mean latency (ns)               : 2352902842601
"""


def entry(key: str, value: object, time_ms: int, **metadata: object) -> str:
    own = {"namespace": "", "time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return ":::MLLOG " + json.dumps({**own, "metadata": {"file": "a.py", "lineno": 1, **metadata}})


STATED = {"submission_benchmark": "tiny_llm", "submission_org": "Example Lab"}
STATED |= {"submission_division": "closed"}
BEGIN = 1_700_000_000_000


def result_log(**changes: object) -> str:
    """100 steps of 0.5 s of 16 samples of 1,024 tokens, 60 s from begin to end."""
    stated: Mapping[str, object] = {**STATED, "global_batch_size": 16, "max_sequence_length": 1024, **changes}
    took = {"train_step_time": 0.5}
    lines = [
        *(entry(key, value, BEGIN) for key, value in stated.items() if value is not None),
        entry("run_start", None, BEGIN),
        *(entry("tracked_stats", took, BEGIN + 500 * step, step=step) for step in range(1, 101)),
        entry("run_stop", None, BEGIN + 60_000, status=changes.get("status", "success")),
    ]
    return "\n".join([*lines, ""])


def submission(folder: Path, text: str, *place: str, system: Mapping[str, Any] | None = SYSTEM) -> Path:
    """A result in `lab/results/sys/...`, and its system."""
    path = folder.joinpath("lab", "results", "sys", *place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if system is not None:
        (folder / "lab" / "systems").mkdir(exist_ok=True)
        (folder / "lab" / "systems" / "sys.json").write_text(json.dumps(system))
    return path


Rows = dict[tuple[str, str | None], Any]


def imported(path: Path, store: Path) -> tuple[Imported, list[Rows]]:
    """The outcome, and each run's rows by metric and stat."""
    found = import_mlperf(path, store)
    runs = [Store(store).get(run.run) for run in found.runs]
    assert all(run.record.published for run in runs)
    results = [run.saved_results for run in runs]
    return found, [{(row.metric, row.stat): row for row in result.rows} for result in results if result]


def trained(folder: Path, text: str, **system: Any) -> Rows:
    path = submission(folder, text, "tiny_llm", "result_0.txt", **system)
    _, (rows,) = imported(path, folder / "store")
    return rows


def test_training(tmp_path: Path) -> None:
    """16 · 1,024 tokens in 0.5 s on 8 accelerators."""
    root = tmp_path / "training_results_v5.1"
    path = submission(root, result_log(), "tiny_llm", "result_0.txt")
    found, (rows,) = imported(path, tmp_path / "store")
    values = {
        "log.step": 0.5, "time.step": 0.5, "log.time_to_train": 60, "throughput.tokens": 32768,
        "throughput.tokens_per_device": 4096, "throughput.samples": 32,
    }  # fmt: skip
    assert {metric: rows[metric, None].value for metric in values} == values
    assert {row.provenance for row in rows.values()} == {"published"}
    (run,) = Store(tmp_path / "store").runs()
    assert run.record.published is not None
    known = {"suite": "MLPerf Training", "benchmark": "tiny_llm", "round": "v5.1", "division": "closed"}
    known |= {"batch_size": 16, "total_count": 8, "system": "sys"}
    assert run.record.published.metadata.items() >= known.items()
    assert (found.runs[0].card, found.runs[0].new) == (True, True)
    again, _ = imported(root, tmp_path / "store")
    assert [run.new for run in again.runs] == [False]


@pytest.mark.parametrize("system", [None, {**SYSTEM, "accelerators_per_node": "N/A"}])
def test_unknown_accelerators_have_no_rate_of_their_own(tmp_path: Path, system: Any) -> None:
    rows = trained(tmp_path, result_log(), system=system)
    row = rows["throughput.tokens_per_device", None]
    assert (row.status, row.value) == ("not_applicable", None)
    assert row.reason == "not published: the number of accelerators (systems/SYSTEM.json)"
    assert rows["throughput.tokens", None].value == 32768


def test_a_run_that_failed_has_no_time_to_train_and_one_without_steps_has_it(tmp_path: Path) -> None:
    rows = trained(tmp_path, result_log(status="aborted"))
    assert rows["log.time_to_train", None].value is None
    assert "no run_start and successful run_stop" in rows["log.time_to_train", None].reason
    lines = [line for line in result_log().splitlines() if "tracked_stats" not in line]
    rows = trained(tmp_path / "other", "\n".join([*lines, ""]))
    assert rows["log.time_to_train", None].value == 60
    assert rows["time.step", None].reason == "its log has no line about a step that is read"


RUN_1 = ("performance", "run_1", "mlperf_log_summary.txt")


def test_inference(tmp_path: Path) -> None:
    root = tmp_path / "inference_results_v4.1" / "closed"
    submission(root, SERVER, "llama2-70b", "Server", *RUN_1)
    submission(root, OFFLINE, "llama2-70b", "Offline", *RUN_1)
    submission(root, SERVER, "llama2-70b", "Server", "TEST06", *RUN_1)
    submission(root, SERVER, "llama2-70b", "Server", "accuracy", "mlperf_log_summary.txt")
    found, (offline, server) = imported(root, tmp_path / "store")
    assert [run.name for run in found.runs] == ["llama2-70b sys Offline", "llama2-70b sys Server"]
    values = {
        ("output_throughput", None): 2400.5, ("output_tokens_per_device", None): 2400.5 / 8,
        ("request_throughput", None): 8, ("ttft", None): 0.4, ("ttft", "p99"): 0.785, ("tpot", None): 0.153,
        ("tpot", "p90"): 0.177, ("e2e_latency", "p50"): 39,
    }  # fmt: skip
    assert {key: server[f"serving.{key[0]}", key[1]].value for key in values} == values
    assert server["serving.ttft", "p90"].reason == "not published: 90.00 percentile first token latency"
    assert offline["serving.output_throughput", None].value == 3000
    assert "all samples are sent at once" in offline["serving.e2e_latency", None].reason


def test_an_interactive_result_is_no_server_result(tmp_path: Path) -> None:
    """The load generator calls both Server; the folder tells them apart. An invalid result has no figures."""
    submission(tmp_path, SERVER, "m", "Interactive", *RUN_1)
    imported(tmp_path, tmp_path / "store")
    (run,) = Store(tmp_path / "store").runs()
    assert run.record.published is not None
    assert run.record.published.metadata["scenario"] == "Interactive"
    path = submission(tmp_path / "other", SERVER.replace("VALID", "INVALID"), "m", "Server", *RUN_1)
    _, (rows,) = imported(path, tmp_path / "store")
    assert {(row.value, row.reason) for row in rows.values()} == {(None, "the result is INVALID")}


SILENT, NO_SCENARIO = "does not state submission_benchmark", "states no scenario and result"
ACCURACY = SERVER.replace("PerformanceOnly", "AccuracyOnly")
BAD: dict[str, tuple[str, str, str]] = {
    "an empty log": ("result_0.txt", "", SILENT),
    "a log of another tool": ("result_0.txt", "iteration 1\n", SILENT),
    "a benchmark that is a number": ("result_0.txt", result_log(submission_benchmark=3), SILENT),
    "an empty summary": ("mlperf_log_summary.txt", "", NO_SCENARIO),
    "a cut summary": ("mlperf_log_summary.txt", SERVER[:160], NO_SCENARIO),
    "an accuracy run": ("mlperf_log_summary.txt", ACCURACY, "is not of a performance run"),
    "an unknown scenario": ("mlperf_log_summary.txt", SERVER.replace(": Server", ": Elsewhere"), NO_SCENARIO),
}


@pytest.mark.parametrize("case", BAD)
def test_damage_is_an_error_that_says_where(tmp_path: Path, case: str) -> None:
    name, text, says = BAD[case]
    with pytest.raises(InputError, match="there is no result of MLPerf"):
        import_mlperf(tmp_path, tmp_path / "store")
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=says) as error:
        import_mlperf(tmp_path / name, tmp_path / "store")
    assert name in str(error.value)
    assert not Store(tmp_path / "store").runs()


@pytest.mark.parametrize(
    ("text", "says"),
    [("[]", "is not a JSON object"), ("{", "is not valid JSON"), ("[" * 100_000, "is not valid JSON")],
)
def test_a_damaged_system_is_an_error(tmp_path: Path, text: str, says: str) -> None:
    path = submission(tmp_path, result_log(), "tiny_llm", "result_0.txt")
    (tmp_path / "lab" / "systems" / "sys.json").write_text(text)
    with pytest.raises(InputError, match=says) as error:
        import_mlperf(path, tmp_path / "store")
    assert "sys.json" in str(error.value)


NODES = {"hpg.dgxb200x8.n1": (1, 30.1), "hpg.dgxb200x8.n4": (4, 21.8), "hpg.dgxb200x8.n16": (16, 21.2)}


@pytest.mark.parametrize("system", NODES)
def test_real_logs_of_dgx_b200(test_data: Path, tmp_path: Path, system: str) -> None:
    """Tokens/s and accelerator of three systems, against the logs' own numbers and published ones."""
    root = tmp_path / "training_results_v5.1"
    target = root / "uf" / "results" / system
    shutil.copytree(test_data / "mlperf_training" / "University-of-Florida" / "results" / system, target)
    nodes, published = NODES[system]
    (root / "uf" / "systems").mkdir()
    described = {**SYSTEM, "number_of_nodes": str(nodes), "accelerators_per_node": "8"}
    (root / "uf" / "systems" / f"{system}.json").write_text(json.dumps(described))
    _, runs = imported(root, tmp_path / "store")
    assert len(runs) == 3
    rates = [rows["throughput.tokens_per_device", None].value for rows in runs]
    assert median(rates) / 1000 == pytest.approx(published, abs=0.1)
    for number, rows in enumerate(runs):
        lines = (target / "llama31_8b" / f"result_{number}.txt").read_text().splitlines()
        stated = [json.loads(line.partition(":::MLLOG ")[2]) for line in lines if ":::MLLOG" in line]
        begin, end = (
            next(e["time_ms"] for e in stated if e["key"] == f"run_{at}") for at in ("start", "stop")
        )
        assert rows["log.time_to_train", None].value == (end - begin) / 1000
