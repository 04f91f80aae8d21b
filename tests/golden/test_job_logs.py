# SPDX-License-Identifier: Apache-2.0
"""Logs of jobs, alone, beside traces and of calls, and evidence of serving."""

from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median

import pandas as pd
import pyarrow as pa
import pytest
from helpers.nccl_job import Process
from rich.console import Console, Group

import cclbench
from cclbench.contribute.redaction import redact_evidence
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


ACCELERATORS = {"MI355X_EPYC_9575F_pytorch": (1, 8), "theia_ngpu72_ngc25.09_nemo": (18, 4)}
ACCELERATORS |= {"theia_ngpu8_ngc25.09_nemo": (2, 4), "hpg.dgxb200x8.n1": (1, 8), "hpg.dgxb200x8.n4": (4, 8)}
ACCELERATORS |= {"hpg.dgxb200x8.n16": (16, 8)}
"""Nodes, and accelerators of each, as the submissions' published descriptions state them."""


@pytest.mark.parametrize("system", ACCELERATORS)
def test_tokens_of_a_device_need_the_systems_description(system, test_data, measure, tmp_path):
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
    redact_evidence(source, target)
    unpack: Callable[[bytes], bytes] = gzip.decompress if name.endswith(".gz") else bytes
    assert b"planted-secret" in unpack(source.read_bytes())
    assert b"planted-secret" not in unpack(target.read_bytes())
    before, after = (recognise_and_read(path) for path in (source, target))
    assert before == after


def recognise_and_read(path: Path) -> pa.Table:
    """The rows of a log."""
    reader = READERS.get("wandb" if path.name.endswith(".wandb") else "tensorboard")
    return reader.read(path).log_steps


DATATYPES = {"float": (7, 4), "int": (2, 4), "long int": (4, 8)}
"""Of NCCL's enumeration the number, and bytes of an element."""


def log_of(rank: int, calls: pd.DataFrame, steps: int = 3, *, larger: int = 0) -> str:
    """Calls of so many steps: all-to-all is a group of sends and receives, as old libraries have it."""
    one = Process(rank)
    one.init("world", rank, 8)
    one.call("Broadcast", "world", 8, 4, dtype=7)
    for step in range(steps):
        for row in calls.sort_values("start_ns").itertuples():
            datatype, size = DATATYPES[str(row.dtype)]
            count = int(str(row.in_bytes)) // size + (larger if step == 1 else 0)
            if row.kind == "all_reduce":
                one.call("AllReduce", "world", 8, count, dtype=datatype)
            for peer in range(8) if row.kind == "all_to_all" else ():
                one.call("Send", "world", 8, count // 8, dtype=datatype, root=peer)
                one.call("Recv", "world", 8, count // 8, dtype=datatype, root=peer)
    return one.text


@pytest.fixture
def traced(test_data: Path, measure: Measure, tmp_path: Path) -> tuple[Path, pd.DataFrame]:
    """The traces without their execution traces, and what these say of the collectives."""
    source, folder = test_data / "kineto" / "dlrm_8xv100", tmp_path / "dlrm"
    folder.mkdir()
    for file in source.glob("*.gz"):
        shutil.copyfile(file, folder / file.name)
    return folder, measure(source).collectives().to_pandas()


def test_a_log_tells_groups_that_no_trace_names(traced: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    folder, known = traced
    for rank, calls in known.groupby("rank"):
        (folder / f"nccl-{rank}.log").write_text(log_of(int(str(rank)), calls))
    run = cclbench.ingest(folder, store=tmp_path / "store", inference=False)
    found = run.collectives().to_pandas()
    assert set(found["group"]) == {"0-7"}
    for column in ("kind", "group_size", "in_bytes", "instance", "wait_ns", "transfer_ns"):
        assert list(found[column]) == list(known[column]), column
    assert set(found["payload_source"]) == {"annotation"}
    assert {note for entry in run.record.ranks for note in entry.notes} == {
        "nccl_log completes 8 of 8 collectives of which the trace does not tell group or payload"
    }
    assert [row["group"] for row in run.groups().to_pylist()] == ["0-7"]


def test_a_log_of_other_sizes_is_not_used(traced: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    """Where one step of several fits, it alone counts; where none does, the log is left and that is said."""
    folder, known = traced
    for rank, calls in known.groupby("rank"):
        wrong = calls.assign(in_bytes=calls["in_bytes"] + (4 if rank == 5 else 0))
        (folder / f"nccl-{rank}.log").write_text(log_of(int(str(rank)), wrong, larger=10))
    run = cclbench.ingest(folder, store=tmp_path / "store", inference=False)
    found = run.collectives().to_pandas()
    assert set(found["rank"][found["group"].isna()]) == {5}
    assert run.record.ranks[5].notes == [
        "the calls that nccl_log lists are not used: its 8 kernels are nowhere among them, in that order and"
        " of these groups and sizes"
    ]


def test_flight_recorder_dumps_tell_the_same(traced: tuple[Path, pd.DataFrame], tmp_path: Path) -> None:
    """There an all-to-all is one call."""
    folder, known = traced
    call = {"process_group": ["0", "default_pg"], "state": "completed"}
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(8)))}}
    for rank, calls in known.groupby("rank"):
        twice = enumerate([*calls.sort_values("start_ns").itertuples()] * 2)
        own = [{"profiling_name": f"nccl:{row.kind}", "collective_seq_id": n} for n, row in twice]
        dump = {"version": "2.10", "rank": rank, "pg_config": groups, "entries": [call | one for one in own]}
        (folder / f"nccl_trace_rank_{rank}.json").write_text(json.dumps(dump))
    run = cclbench.ingest(folder, store=tmp_path / "store", inference=False)
    found = run.collectives().to_pandas()
    assert set(found["group"]) == {"0-7"}
    assert list(found["instance"]) == list(known["instance"])
    assert {note for entry in run.record.ranks for note in entry.notes} == {
        "flight_recorder completes 8 of 8 collectives of which the trace does not tell group or payload"
    }


KINDS = {"AllGather": ("all_gather", 8), "ReduceScatter": ("reduce_scatter", 8)}
KINDS |= {"AllReduce": ("all_reduce", 1)}
KINDS |= {name: (name.lower(), 1) for name in ("Broadcast", "Send", "Recv")}


@pytest.fixture(scope="module")
def job(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the logs, the table among them."""
    folder = tmp_path_factory.mktemp("job")
    with tarfile.open(test_data / "nccl_job_logs" / "b0_fsdp8.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    (table,) = folder.glob("**/collective_summary.csv")
    return table.parent


@pytest.fixture(scope="module")
def run(job: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All metrics of it."""
    return cclbench.run(job, store=tmp_path_factory.mktemp("store"))


def totals(run: Run, metric: str) -> dict[str | None, float]:
    """The sums over all ranks by kind; under None of them all."""
    rows = [row for row in run.figures.rows if (row.metric, row.stat) == (metric, "total")]
    return {row.collective: row.value for row in rows if row.group is row.category is None}


def test_every_call_is_counted_with_its_bytes(run: Run, job: Path) -> None:
    calls, volume = Counter[str](), Counter[str]()
    with (job / "collective_summary.csv").open() as file:
        for row in csv.DictReader(file):
            kind, parts = KINDS[row["opname"]]
            calls[kind] += 1
            volume[kind] += parts * int(row["bytes"])
    assert calls.total() == 263_378
    assert totals(run, "comm.count") == {None: 263_378, **calls}
    assert totals(run, "comm.volume") == {None: volume.total(), **volume}
    assert calls["all_gather"] == 168_040
    assert volume["all_gather"] == 21_265_321_576_704


def test_ranks_group_and_transfers(run: Run) -> None:
    """Rank 0 gathers objects from all others and scatters others to them, besides what all call."""
    assert run.figures.ranks("comm.count") == {0: 32_959, **dict.fromkeys(range(1, 8), 32_917)}
    assert [row["ranks"] for row in run.groups().to_pylist()] == [list(range(8))]
    rows = [row for row in run.figures.rows if row.metric == "comm.edges" and row.category]
    edges = {(row.collective, row.category): row.value for row in rows if row.stat is None}
    pairs = {pair for _, pair in edges if " " not in pair}
    assert pairs == {pair for rank in range(1, 8) for pair in (f"0->{rank}", f"{rank}->0")}
    assert edges["send", "5->0 68796B"] == edges["recv", "5->0 68796B"] == 1
    assert run.figures.value("comm.edges") == 49
    assert run.figures.value("comm.edges", stat="unmatched") == 0
    assert run.figures.value("comm.missing_calls") == 0
    assert all(row["value"] is None for row in run.rows if row["unit"] == "s")
    assert {row["window"] for row in run.rows if row["metric"] == "comm.count"} == {"trace"}
