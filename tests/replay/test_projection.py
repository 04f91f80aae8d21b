# SPDX-License-Identifier: Apache-2.0
"""One rank's job on many accelerators: every single-rank trace gives a figure, or says what is missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

import numpy as np
import pyarrow.parquet as pq
import pytest

import cclbench
from cclbench.ground.errors import InputError, UsageError
from cclbench.hardware import catalog
from cclbench.record.rank import Rank
from cclbench.record.run import Run
from cclbench.replay import nodes as n
from cclbench.replay.answer import Replay
from cclbench.replay.crowd import expected_maximum, maximum_limit
from cclbench.replay.placed import HOST_BOUND_SPREAD, SPREAD
from cclbench.replay.projection import Projection, project_run

ANSWERED = (
    "traces/llama-train-h100", "workload_cards/llama-train-h100.yaml", "traces/llama-train-compiled-h100",
    "traces/llama-train-fp8-h100", "workload_cards/llama-decode-h100.yaml",
    "workload_cards/llama-decode-graph-h100.yaml", "workload_cards/tiny-jax-h100.yaml",
    "kineto/cuda_sync_a100", "kineto/h100_qwen", "kineto_more/norm_layers_mi300x.json.gz",
    "kineto_more/torch_compile_triton.json.gz", "graph_replay/xdit_flux_sage_mi300x",
)  # fmt: skip
RESNET = "kineto/resnet50_2021/resnet50_num_workers_0_2d19c6_worker0.pt.trace.json.gz"
REFUSED = {
    "traces/tiny-jax-h100": "state workload.model.parameters, workload.precision in a card",
    "kineto/gpu_only_mi210": "state workload.phase in a card",
    "kineto/sglang_decode_mi300x": "state workload.phase in a card",
    "kineto/cpu_only": "its traces or its card state more",
    "kineto/resnet_mi300x": "its traces or its card state more",
    "workload_cards/tiny-llama-ddp4-gloo-cpu.yaml": "its traces or its card state more",
    RESNET: "state workload.model.parameters, workload.precision in a card",
    "nsys/synthetic/nsysai_healthy_1pct_710487.sqlite": "state workload.phase in a card",
}
"""Sources, and what their refusal asks for."""
DRAWN = ("workload_cards/llama-train-h100.yaml", "workload_cards/tiny-jax-h100.yaml", "kineto/h100_qwen")
SETTINGS = ("batch=global", "strategy=fsdp", "kernels.time=x0.5")


def opened(name: str, repository: Path, test_data: Path, store: Path) -> Run:
    root = repository if name.startswith(("traces/", "workload_cards/")) else test_data
    return cclbench.ingest(root / name, store=store)


def step_bounds(found: Projection) -> tuple[float, float]:
    (outcome,) = found.result.predicted
    return outcome.low_ns, outcome.high_ns


@pytest.mark.parametrize("name", ANSWERED)
def test_one_rank_gives_a_step(name: str, repository: Path, test_data: Path, evidence_store: Path) -> None:
    found = project_run(opened(name, repository, test_data, evidence_store), "aws-p5", 64)
    low, high = step_bounds(found)
    assert 0 < low <= high
    steps = [row for row in found.result.figures if row.metric == "whatif.step" and row.value is not None]
    assert {row.provenance for row in steps} == {"modelled"}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_lacks(name: str, repository: Path, test_data: Path, evidence_store: Path) -> None:
    run = opened(name, repository, test_data, evidence_store)
    with pytest.raises(InputError) as error:
        project_run(run, "aws-p5", 64)
    assert REFUSED[name] in str(error.value)


def test_a_trace_of_a_cpu_lacks_kernels(tmp_path: Path) -> None:
    """One rank of operators alone."""
    rows = [
        {"ph": "X", "cat": "cpu_op", "name": name, "ts": at, "dur": 90, "pid": 1, "tid": 1, "args": {}}
        for at, name in ((1_000, "aten::mm"), (1_100, "aten::add"))
    ]
    step = {"cat": "user_annotation", "name": "ProfilerStep#1", "ts": 990, "dur": 250}
    document = {"schemaVersion": 1, "traceEvents": [*rows, {**rows[0], **step}]}
    (tmp_path / "rank0.json").write_text(json.dumps(document))
    run = cclbench.ingest(tmp_path / "rank0.json", store=tmp_path / "store")
    with pytest.raises(InputError, match=r"of a CPU: the kernels of nvidia-h100-sxm.* are missing"):
        project_run(run, "aws-p5", 8)


def test_replicas_of_a_model_that_fits_are_proposed(repository: Path, evidence_store: Path) -> None:
    """Its 108 MB of gradients are exchanged while the host is what the step waits for."""
    run = opened("workload_cards/llama-train-h100.yaml", repository, repository, evidence_store)
    found = project_run(run, "aws-p5", 64)
    assert found.layouts[0].words == "dp 64"
    assert "tp 8 x dp 8" in {layout.words for layout in found.layouts}
    throughputs = [layout.throughput for layout in found.layouts]
    assert throughputs == sorted(throughputs, reverse=True)
    exchanged = "all-reduce of 108 MB of gradients among 64 ranks"
    assert any(exchanged in note for note in found.layouts[0].outcome.basis)
    # another accelerator scales kernels
    (outcome,) = project_run(run, "aws-p5e", 8).result.predicted
    scaled = "kernels scale from nvidia-h100-sxm to nvidia-h200-sxm"
    assert any(note.startswith(scaled) for note in outcome.basis)


def test_a_layout_makes_as_many_ranks_as_asked(repository: Path, evidence_store: Path) -> None:
    run = opened("workload_cards/llama-train-h100.yaml", repository, repository, evidence_store)
    found = project_run(run, "aws-p5", 64, layout="tp=4,pp=2")
    assert [layout.words for layout in found.layouts] == ["tp 4 x dp 8 x pp 2"]
    same = project_run(run, "aws-p5", 64, layout="tp=4,dp=8,pp=2")
    assert step_bounds(found) == step_bounds(same)
    with pytest.raises(UsageError, match="makes 32 ranks, not 64"):
        project_run(run, "aws-p5", 64, layout="tp=4,dp=8")
    with pytest.raises(UsageError, match="no dimension 'sp'"):
        project_run(run, "aws-p5", 64, layout="sp=4")
    with pytest.raises(UsageError, match=r"^there is no setting 'odd'"):
        project_run(run, "aws-p5", 64, sets=["odd=1"])
    with pytest.raises(UsageError, match="aws-p5 has 8 accelerators a node, not 16"):
        project_run(run, "aws-p5", 64, per_node=16)
    # 16 · 512 tokens of 2 · 1,024 elements of 2 bytes in 4 layers; all 64 ranks exchange gradients
    found = project_run(run, "aws-p5", 64, layout="cp=2")
    assert [layout.words for layout in found.layouts] == ["cp 2 x dp 32"]
    notes = " ".join(found.layouts[0].outcome.basis if found.layouts[0].outcome else ())
    assert "exchange of 33.55 MB of keys and values among 2 ranks, 4 times a step" in notes
    assert "all-reduce of 108 MB of gradients among 64 ranks" in notes
    low, high = step_bounds(found)
    assert 0 < low < high


def test_replicas_that_do_not_fit_are_refused_unless_sharded(repository: Path, tmp_path: Path) -> None:
    """20 billion parameters with Adam's state take 16 bytes each, 320 GB; a 64th of that fits."""
    shutil.copytree(repository / "traces" / "llama-train-h100", tmp_path / "traces" / "llama-train-h100")
    text = (repository / "workload_cards" / "llama-train-h100.yaml").read_text()
    card = tmp_path / "workload_cards" / "llama-train-h100.yaml"
    card.parent.mkdir()
    card.write_text(text.replace("parameters: 54010880", "parameters: 20000000000"))
    run = cclbench.ingest(card, store=tmp_path / "store")
    with pytest.raises(InputError, match=r"a device needs 32\d GB of 80.*strategy=fsdp"):
        project_run(run, "aws-p5", 64, layout="dp=64")
    assert project_run(run, "aws-p5", 64, layout="dp=64", sets=["strategy=fsdp"]).layouts[0].words == "dp 64"
    assert project_run(run, "aws-p5", 64).layouts[0].words != "dp 64"


def test_a_faster_network_lengthens_no_step(repository: Path, evidence_store: Path) -> None:
    run = opened("traces/llama-train-compiled-h100", repository, repository, evidence_store)
    slow = step_bounds(project_run(run, "aws-p5", 64, layout="dp=64"))
    fast = step_bounds(project_run(run, "aws-p5", 64, layout="dp=64", sets=["scale_out.bandwidth=x2"]))
    assert fast[0] <= slow[0]
    assert fast[1] <= slow[1]


def test_random_settings_give_bounds_or_refusals(
    repository: Path, test_data: Path, evidence_store: Path
) -> None:
    """Systems, sizes, layouts, strategies and batches; `scripts/campaign/settings.py` draws more."""
    random = Random(1)  # noqa: S311  (tests)
    runs = [opened(name, repository, test_data, evidence_store) for name in DRAWN]
    answered = 0
    for _ in range(60):
        names = random.sample(("tp", "pp", "ep", "cp"), 2)
        layout = ",".join(f"{name}={random.choice((1, 2, 4, 8))}" for name in names)
        sets = random.sample(SETTINGS, random.choice((0, 0, 1, 2)))
        system, gpus = random.choice(sorted(catalog.systems())), random.choice((1, 2, 8, 16, 24, 64, 1024))
        try:
            found = project_run(random.choice(runs), system, gpus, layout=layout, sets=sets)
        except (InputError, UsageError):
            continue
        answered += 1
        low, high = step_bounds(found)
        assert 0 < low <= high
    assert answered >= 3


def _own_work_ns(rank: Rank, window: str) -> int:
    """Length of the rank's only window of that source, without waiting in collectives."""
    (step,) = [row for row in rank.steps().to_pylist() if row["source"] == window and not row["open"]]
    calls = rank.collectives().to_pylist()
    inside = [call for call in calls if step["start_ns"] <= call["start_ns"] < step["end_ns"]]
    return step["end_ns"] - step["start_ns"] - sum(call["wait_ns"] or 0 for call in inside)


def test_the_spread_is_that_of_jobs_with_several_ranks(test_data: Path, evidence_store: Path) -> None:
    """Of two production jobs by stage and step, of two others by step: median and maximum."""
    spreads = []
    for name in ("ST", "AR"):
        table = pq.read_table(test_data / "stragglers" / f"trace-{name}.parquet").to_pandas()
        work = table[table["optype"].isin(("forward-compute", "backward-compute", "gc"))]
        by_rank = work.groupby(["step", "stage", "dp_rank"])["duration"].sum()
        by_stage = by_rank.groupby(["step", "stage"]).agg(["mean", "std"])
        spreads.append(float(np.median(by_stage["std"] / by_stage["mean"])))
    for source, window in (
        ("nsys/nsysai_mfu_2gpu_before_c8f71e.sqlite", "whole_trace"),
        ("kineto/dlrm_8xv100", "annotation"),
    ):
        run = cclbench.ingest(test_data / source, store=evidence_store)
        own_ns = [_own_work_ns(run.rank(rank), window) for rank in run.ranks]
        spreads.append(float(np.std(own_ns, ddof=1) / np.mean(own_ns)))
    assert spreads == [pytest.approx(value, rel=0.05) for value in (0.0045, 0.0059, 0.0175, 0.114)]
    assert SPREAD.expected == pytest.approx(np.median(spreads), abs=5e-4)
    assert SPREAD.high == pytest.approx(max(spreads), abs=5e-3)


def _most_waiting(run: Run) -> float:
    """Spread of ranks if a step's exposed communication is all waiting for the slowest one."""
    rows = cclbench.metrics(run).results
    steps = rows[rows["step"].isna() & rows["rank"].isna()].groupby("metric")["value"].first()
    world = max(run.rank(rank).facts.world_size or 1 for rank in run.ranks)
    waiting = steps["time.exposed_comm"]
    return float(waiting / (steps["time.step"] - waiting) / expected_maximum(world))


def test_the_spread_of_host_bound_jobs_is_a_limit_over_five(test_data: Path, evidence_store: Path) -> None:
    """Student's t of 4 degrees of freedom: 1.533 standard deviations of logarithms, for one more job."""
    spreads = [0.0175, 0.114]  # the two of the four, as above
    spreads += [
        _most_waiting(cclbench.ingest(test_data / "kineto" / name, store=evidence_store))
        for name in ("nccl_meta_a100", "ddp_a100", "sampled_2of128")
    ]
    assert spreads[2:] == [pytest.approx(value, rel=0.05) for value in (0.087, 0.157, 0.130)]
    logs = np.log(spreads)
    limit = np.exp(logs.mean() + 1.533 * logs.std(ddof=1) * (1 + 1 / 5) ** 0.5)
    assert HOST_BOUND_SPREAD.high == pytest.approx(limit, rel=0.02)


def test_a_job_of_eight_ranks_that_wait_for_one_another(test_data: Path, evidence_store: Path) -> None:
    """ResNet-18 on eight MI300X: without its all-reduces a step takes 12.2 ms, with them 19.0."""
    replay = Replay(cclbench.ingest(test_data / "kineto" / "resnet_mi300x", store=evidence_store))
    transfers = replay.graph.nodes.kind == n.TRANSFER
    alone = replay._replay_outcome(replay.graph, np.where(transfers, 0.0, 1.0))
    alone_ns = alone.step_ns
    assert alone_ns == pytest.approx(12.2e6, rel=0.01)
    assert alone.is_host_bound
    assert replay.measured_ns == pytest.approx(19.0e6, rel=0.01)
    assert alone_ns * (1 + SPREAD.high * maximum_limit(8)) < replay.measured_ns
    assert alone_ns * (1 + HOST_BOUND_SPREAD.high * maximum_limit(8)) > replay.measured_ns


def test_the_slowest_of_ranks_that_the_host_bounds(repository: Path, evidence_store: Path) -> None:
    """64 ranks: the limit of the slowest is 2.94 spreads, 36 % of a step each."""
    run = opened("traces/llama-train-compiled-h100", repository, repository, evidence_store)
    (outcome,) = project_run(run, "aws-p5", 64, layout="dp=64").result.predicted
    assert maximum_limit(64) == pytest.approx(2.94, abs=0.01)
    assert any("(0% to 105.8%)" in note and "the host bounds" in note for note in outcome.basis)
