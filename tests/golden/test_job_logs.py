# SPDX-License-Identifier: Apache-2.0
"""Logs of real jobs: figures against arithmetic on the same lines with Python's own JSON and text reading."""

from __future__ import annotations

import gzip
import json
import re
import tarfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

import pyarrow as pa
import pytest
from rich.console import Console, Group

from cclbench.contribute.redaction import collect_identities, redact_file
from cclbench.formats import READERS
from cclbench.present.terminal.run import first_screen
from cclbench.record.rows import Row
from cclbench.record.run import Run
from cclbench.source_summaries import source_summaries

from .conftest import Measure

MEGATRON = {
    "llama_8gpu_46715226_nid003281.out": (8.0694, 4061, 0.246, {"tensor_parallel": 4, "data_parallel": 2}),
    "llama_8gpu_46715979_nid002208.out": (9.3183, 3517, 0.088, {"tensor_parallel": 2, "data_parallel": 4}),
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
    """The published step times and rates of two jobs of 50 iterations; the profiler took 25 to 27.

    Its overhead is iteration 26 against the median: 10.033 and 10.141 s were published as those jobs' steps.
    """
    run = measure(test_data / "job_logs_ccl" / "megatron_logs" / name)
    step, rate, overhead, settings = MEGATRON[name]
    found = figures(run, "log.step")
    assert found[None, None, None] == pytest.approx(step)
    marked = [(what, number) for what, _, number in found if what]
    assert marked == [("profiled", 25), ("profiled", 26), ("profile saved", 27)]
    assert figures(run, "log.tokens")[None, None, None] == pytest.approx(rate, abs=0.5)
    (entry,) = run.record.evidence
    assert entry.facts.items() >= ({"devices": 8, "global_batch": 32, "network": "Socket"} | settings).items()
    assert figures(run, "log.profiler_overhead")[None, "logged", None] == pytest.approx(overhead, abs=5e-4)


def test_the_first_screen_of_a_log_alone_is_about_its_steps(test_data: Path, measure: Measure) -> None:
    """It says neither that there is no step time nor that there is no trace."""
    run = measure(test_data / "job_logs_ccl" / "megatron_logs" / next(iter(MEGATRON)))
    paper = Console(width=80, color_system=None)
    about = source_summaries(run, run.figures)
    with paper.capture() as printed:
        paper.print(Group(*first_screen(run.record, run.figures, run.window, (), summaries=about)))
    text = " ".join(printed.get().split())
    assert "No step" not in text
    for said in (
        "A step takes 8.07 s in the median, 7.85 s to 9.45 s (p5 to p95), at most 24.7 s.",
        "4,061 tokens/s, 508 on a device.",
        "Profiled: step 25 (12.8 s), 26 (10.0 s).",
        "Under the profiler a step took 24.6 % longer.",
    ):
        assert said in text


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


ACCELERATORS = {
    "MI355X_EPYC_9575F_pytorch": (1, 8),
    "theia_ngpu72_ngc25.09_nemo": (18, 4),
    "theia_ngpu8_ngc25.09_nemo": (2, 4),
    "hpg.dgxb200x8.n1": (1, 8),
    "hpg.dgxb200x8.n4": (4, 8),
    "hpg.dgxb200x8.n16": (16, 8),
}
"""Nodes, and accelerators of each, as the submissions' published descriptions state them."""


@pytest.mark.parametrize("system", ACCELERATORS)
def test_tokens_of_a_device_need_the_systems_description(
    system: str, test_data: Path, measure: Measure, tmp_path: Path
) -> None:
    """Of a system's three logs: to 0.1 % of the log's own arithmetic over the accelerators described."""
    nodes, each = ACCELERATORS[system]
    logs = [path for path in sorted(test_data.glob(MLPERF)) if path.parts[-3] == system]
    assert len(logs) == 3
    (alone,) = device_rates(measure(logs[0]))
    assert (alone.value, "systems/NAME.json" in str(alone.reason)) == (None, True)
    folder = tmp_path / "results" / system / "llama31_8b"
    folder.mkdir(parents=True)
    (tmp_path / "systems").mkdir()
    for name, of in ((system, (nodes, each)), ("another", (99, 99))):
        text = json.dumps({"number_of_nodes": str(of[0]), "accelerators_per_node": str(of[1])})
        (tmp_path / "systems" / f"{name}.json").write_text(text)
    for path in logs:
        (folder / path.name).write_bytes(path.read_bytes())
    rows = {str(row.category): row for row in device_rates(measure(tmp_path))}
    for path in logs:
        row = rows[f"results/{system}/llama31_8b/{path.name}"]
        times, batch, length = stated_steps(path)
        rate = median(batch * length / time for time in times[1:])
        assert row.value == pytest.approx(rate / (nodes * each), rel=1e-3)
        assert row.reason == f"{nodes * each:,} devices by systems/{system}.json"


def device_rates(run: Run) -> list[Row]:
    """Tokens per second of a device, by log."""
    return [row for row in run.figures.summary if (row.metric, row.stat) == ("log.tokens", "per_device")]


def extracted(test_data: Path, part: str, folder: Path) -> Path:
    """The file of the job on eight GPUs whose name has that part."""
    with tarfile.open(test_data / "nccl_job_logs" / "b0_fsdp8.tar.gz") as archive:
        content = archive.extractfile(next(one for one in archive if part in one.name))
        assert content is not None
        path = folder / part.strip("/")
        path.write_bytes(content.read())
    return path


def test_a_job_of_torchtitan(test_data: Path, measure: Measure, tmp_path: Path) -> None:
    """100 steps with colours: stamps give 15.3 s, and tokens of a device what `tps` states, within 1 %.

    Its events tell of the same steps; 99,072 tokens each, as the trainer counts them.
    """
    path = extracted(test_data, "/train.log", tmp_path)
    run = measure(path)
    stamp = r"(\d\d):(\d\d):(\d\d),(\d{3}) - root - INFO - \S*step:"
    stamps = [map(int, found) for found in re.findall(stamp, path.read_text())]
    times = [h * 3600 + m * 60 + s + ms / 1000 for h, m, s, ms in stamps]
    steps = [after - before for before, after in pairwise(times)]
    assert len(steps) == 99
    assert figures(run, "log.step")[None, None, None] == pytest.approx(median(steps), abs=1e-6)
    rates = figures(run, "log.tokens")
    assert rates[None, None, None] == pytest.approx(8 * rates[None, "per_device", None])
    assert rates[None, "per_device", None] == pytest.approx(rates[None, "stated_per_device", None], rel=0.01)
    assert figures(run, "log.mfu")[None, None, None] == pytest.approx(0.0158)
    run = measure(extracted(test_data, "/events.out", tmp_path))
    table = run.evidence("log_steps")
    assert table["step"].to_pylist() == list(range(1, 101))
    assert set(table["tokens"].to_pylist()[1:]) == {99_072}
    assert figures(run, "log.step")[None, None, None] == pytest.approx(15.30, abs=0.005)
    assert figures(run, "log.mfu")[None, None, None] == pytest.approx(0.0158, abs=5e-5)


OWN = Path(__file__).with_name("job_logs")


def test_a_trainers_text_and_its_events_tell_of_the_same_steps(measure: Measure) -> None:
    """HF Trainer: the bar's rates, which tqdm smooths, are within 10 % of the times of the events.

    The bar of two evaluations has 12 steps and looks like that of training. Epochs are no restarts:
    Lightning has six steps in each of two, with a validation after each.
    """
    text, events, epochs = (
        measure(OWN / name).evidence("log_steps")
        for name in ("hf_trainer.log", "hf_trainer.tfevents", "lightning.log")
    )
    assert text["step"].to_pylist() == events["step"].to_pylist() == list(range(1, 9))
    assert epochs["step"].to_pylist() == list(range(1, 13))
    assert set(text["restart"].to_pylist()) == set(epochs["restart"].to_pylist()) == {0}
    before_evaluation = [table["dur_ns"].to_pylist()[1:4] for table in (text, events)]
    assert before_evaluation[0] == pytest.approx(before_evaluation[1], rel=0.1)
    assert set(events["tokens"].to_pylist()[1:]) == {64}


def test_events_of_torch_with_a_restart(measure: Measure) -> None:
    """Values of the program that wrote them; times in float32."""
    run = measure(OWN / "torch.tfevents.gz")
    table = run.evidence("log_steps")
    steps = [*((0, step) for step in range(1, 7)), *((1, step) for step in range(4, 7))]
    assert [(row["restart"], row["step"]) for row in table.to_pylist()] == steps
    assert table["loss"].to_pylist() == [10 - n / 8 for n in range(1, 7)] + [9 - n / 8 for n in range(4, 7)]
    assert table["flops_per_s"].to_pylist()[:6] == [(20 + n) * 1e12 for n in range(1, 7)]
    seconds = [0.02 + 0.001 * n for n in range(1, 7)]
    assert [ns / 1e9 for ns in table["dur_ns"].to_pylist()[:6]] == pytest.approx(seconds, rel=1e-6)
    assert figures(run, "goodput.training")[None, "lost_steps", None] == 3


def test_an_offline_run_of_wandb(measure: Measure) -> None:
    table = measure(OWN / "offline.wandb").evidence("log_steps")
    assert table["step"].to_pylist() == list(range(1, 13))
    assert table["dur_ns"].to_pylist() == [(100 + n) * 10**6 for n in range(12)]
    assert table["loss"].to_pylist() == [5 - n * 0.01 for n in range(12)]
    assert set(table["samples"].to_pylist()) == {32}


@pytest.mark.parametrize("name", ["torch.tfevents.gz", "offline.wandb"])
def test_planted_words_of_real_files_are_not_published(name: str, tmp_path: Path) -> None:
    source, target = OWN / name, tmp_path / name
    redact_file(source, target, identities=collect_identities([source]))
    unpack: Callable[[bytes], bytes] = gzip.decompress if name.endswith(".gz") else bytes
    assert b"planted-secret" in unpack(source.read_bytes())
    assert b"planted-secret" not in unpack(target.read_bytes())
    before, after = (recognise_and_read(path) for path in (source, target))
    assert before == after


def recognise_and_read(path: Path) -> pa.Table:
    """The rows of a log."""
    reader = READERS.get("wandb" if path.name.endswith(".wandb") else "tensorboard")
    assert reader.reads == "evidence"
    return reader.read(path).log_steps
