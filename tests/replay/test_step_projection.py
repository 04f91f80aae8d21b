# SPDX-License-Identifier: Apache-2.0
"""A step projected to other numbers of ranks, and jobs from the trace of one."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.neo_card import CARD as NEO
from helpers.neo_card import neo_card  # noqa: F401 - a fixture
from helpers.replay_subjects import card, degrees

import cclbench
from cclbench.ground.errors import InputError, UsageError
from cclbench.hardware import catalog
from cclbench.hardware.collectives import NoPrice, price_collective
from cclbench.hardware.collectives.ratio import time_ratio
from cclbench.record.rank import Rank
from cclbench.record.run import Run
from cclbench.replay import nodes as n
from cclbench.replay.answer import Replay
from cclbench.replay.crowd import expected_maximum, maximum_limit
from cclbench.replay.placed import HOST_BOUND_SPREAD, SPREAD
from cclbench.replay.projection import Projection, project_run
from cclbench.replay.step_projection import JITTER, OUTSIDE, JobLayout, _gradient_price, project_step

MODEL = {"parameters": 2_651_307_520, "hidden": 2560, "layers": 32, "vocabulary": 50_257}
CARD = card(MODEL, {"sequence_length": 2048}, "fp16")
SYSTEM = catalog.system("alps-gh200")
PEAK = catalog.accelerator(SYSTEM.accelerator).peak_flops_per_s["fp16"] or 0.0
NOISE = (1 + JITTER) / (1 - JITTER)


def layout(dp: int = 8, pp: int = 2, micro: int = 4, batch: int = 1024, tp: int = 4) -> JobLayout:
    return JobLayout(degrees(dp=dp, pp=pp, tp=tp), micro, batch)


def test_the_measured_layout_takes_its_measured_time() -> None:
    step, _ = project_step(CARD, SYSTEM, layout(), 6.0, layout())
    assert step.expected == pytest.approx(6e9)
    assert (step.low, step.high) == (pytest.approx(6e9 / NOISE), pytest.approx(6e9 * NOISE))
    # the pipeline fills once for any number of micro-batches
    step, notes = project_step(CARD, SYSTEM, layout(), 6.0, layout(batch=2048))
    assert step.low <= step.expected <= step.high  # type: ignore[operator]
    # 64 and 32 micro-batches with the head on the last of 2 stages, without sends and the rest of a step
    assert 6 * 64.9 / 33 > step.expected / 1e9 > 6 * 1.9
    assert "1f1b: 64 micro-batches, layers split as evenly" in " ".join(notes)
    # another micro batch gives bounds alone
    step, notes = project_step(CARD, SYSTEM, layout(), 6.0, layout(micro=1))
    assert step.expected is None
    assert step.high > 3.5 * step.low
    assert any(
        "other tokens of a micro-batch on a rank: products at the peak are in proportion" in n for n in notes
    )


def test_better_schedules_take_less_of_few_micro_batches() -> None:
    few = layout(pp=4, batch=256)
    better = (replace(few, turns=2), replace(few, schedule="zero_bubble"))
    usual, *others = (project_step(CARD, SYSTEM, few, 2.0, asked)[0] for asked in (few, *better))
    assert all(one.expected < usual.expected for one in others)  # type: ignore[operator]


def test_notes_name_the_weak_classes_of_its_transfers() -> None:
    """A single replica exchanges no gradients, a single stage sends nothing."""
    _, notes = project_step(CARD, SYSTEM, layout(1, 1, batch=64), 4.0, layout(1, 1, batch=128))
    assert not [note for note in notes if "gradients" in note or "send" in note]
    # no published machine has a sweep of sends; those without stages and replicas have no such note
    _, notes = project_step(CARD, SYSTEM, layout(), 6.0, layout(batch=2048))
    assert [note for note in notes if note.startswith("weak class: send_recv, ")]
    _, alone = project_step(CARD, SYSTEM, layout(1, 1, batch=64), 4.0, layout(1, 1, batch=128))
    assert not [note for note in alone if note.startswith("weak class")]


def test_the_rest_of_a_step_is_that_of_two_traced_jobs(test_data: Path) -> None:
    """Neither pipeline nor, on the rank that waits least, exchange or optimizer; medians over steps."""
    shares = []
    for name in ("ST", "AR"):
        rows = pq.read_table(test_data / "stragglers" / f"trace-{name}.parquet").to_pandas()
        rows["end"] = rows["start_ts"] + rows["duration"]
        pipelined = rows["optype"].isin(("forward-compute", "backward-compute"))
        steps, spans = rows.groupby("step"), rows[pipelined].groupby("step")
        step_s = steps["end"].max() - steps["start_ts"].min()
        span_s = spans["end"].max() - spans["start_ts"].min()
        after = rows["optype"].str.contains("grad|params|optimizer")
        least = rows[after].groupby(["step", "optype"])["duration"].min().groupby("step").sum()
        shares.append(float(((step_s - span_s - least).median()) / step_s.median()))
    assert shares == [pytest.approx(0.024, abs=5e-4), pytest.approx(0.0128, abs=5e-4)]
    assert pytest.approx((np.mean(shares), max(shares)), abs=6e-4) == OUTSIDE


@pytest.mark.parametrize(
    ("measured", "asked", "says"),
    [
        (layout(), layout(tp=8), "layers split otherwise"),
        (layout(), layout(dp=7), "1,024 samples of a step are no whole micro-batches of 4 on 7 replicas"),
        (layout(1, 2), layout(), r"0.001 s are less than the products of a step take on 8 .*, 4.01 s"),
        (layout(1, 32, 1, 1), layout(), "sends and the optimizer of tp 4 x pp 32 take longer than 0.001 s"),
    ],
)
def test_what_a_step_does_not_show_is_refused(measured: JobLayout, asked: JobLayout, says: str) -> None:
    """6 · (2.65 − 0.13) · 10^9 parameters · 1,024 · 2,048 tokens: 31.7 PFLOP by 8 · 0.99 PFLOP/s, 4.01 s."""
    with pytest.raises(InputError, match=says):
        project_step(CARD, SYSTEM, measured, 6.0 if measured == layout() else 0.001, asked)


def exposed_s(kind: str, ranks: tuple[int, ...], nbytes: float) -> float:
    """Upper bound of a collective's time on the machine, s."""
    price = price_collective(kind, nbytes, ranks, SYSTEM)
    assert not isinstance(price, NoPrice)
    return float(price.high_s[0])


def sequence_layout(cp: int, dp: int, micro: int, batch: int) -> JobLayout:
    return JobLayout(degrees(cp=cp, dp=dp), micro, batch)


def test_sequences_over_two_ranks_by_hand() -> None:
    """As many tokens on each rank as before, and the same two ranks exchange gradients: only keys and values
    are new, twice gathered and once scattered in each of 32 layers, by 8 heads of 128 in bytes of 2."""
    sizes = card({**MODEL, "heads": 20, "kv_heads": 8, "head_dim": 128}, {"sequence_length": 2048}, "fp16")
    step, notes = project_step(sizes, SYSTEM, sequence_layout(1, 2, 1, 2), 2.0, sequence_layout(2, 1, 2, 2))
    nbytes = 2 * 2048 * (8 * 128 * 2) * 2
    layer_s = 2 * exposed_s("all_gather", (0, 1), nbytes) + exposed_s("reduce_scatter", (0, 1), nbytes)
    assert step.low == pytest.approx(2e9 / NOISE)
    assert step.high == pytest.approx((2 + 32 * layer_s) * 1e9 * NOISE)
    assert any(f"a layer's exchange takes {layer_s * 1e3:.3g} ms" in note for note in notes)


def test_half_a_sequence_takes_half_the_time_or_less_is_saved() -> None:
    """One replica of one rank, then two ranks of a sequence: in proportion at best; at worst only what
    products take at the peak is halved, and keys, values and gradients are exchanged after it."""
    step, _ = project_step(CARD, SYSTEM, sequence_layout(1, 1, 1, 1), 1.0, sequence_layout(2, 1, 1, 1))
    whole_s = 6 * (2_651_307_520 - 50_257 * 2560) * 2048 / PEAK
    keys_s = exposed_s("all_gather", (0, 1), 2048 * 2 * 2560 * 2) * 2
    keys_s += exposed_s("reduce_scatter", (0, 1), 2048 * 2 * 2560 * 2)
    late = 1 + SPREAD.high * expected_maximum(2)
    assert step.expected is None
    assert step.low == pytest.approx(0.5e9 / NOISE)
    high_s = 1 - whole_s / 2 + 32 * keys_s + exposed_s("all_reduce", (0, 1), 4 * 2_651_307_520)
    assert step.high == pytest.approx(high_s * 1e9 * NOISE * late, rel=1e-6)


def test_an_exchange_among_more_ranks_by_hand() -> None:
    """Of 2.7 GB between two nodes, then four. With the same work a step is longer by what the exchange is, up
    to the band of both times' ratio; half the work hides half as much, and halves what is not constant."""
    prices = []
    for ranks in ((0, 4), (0, 4, 8, 12)):
        price = price_collective("all_reduce", 2_651_307_520, ranks, SYSTEM)
        assert not isinstance(price, NoPrice)
        prices.append(price)
    ratio, whole_s = time_ratio(prices[1], prices[0]), float(prices[0].high_s[0])
    high, fewer = float(ratio.high[0]), float(time_ratio(prices[0], prices[1]).low[0])
    late = 1 + SPREAD.high * (expected_maximum(16) - expected_maximum(8))
    assert fewer < 1 < high
    measured = layout(2, 1, 1, 4)
    same, _ = project_step(CARD, SYSTEM, measured, 2.0, layout(4, 1, 1, 8))
    back, _ = project_step(CARD, SYSTEM, layout(4, 1, 1, 8), 2.0, measured)
    assert same.low == pytest.approx(2e9 / NOISE)
    sooner = 1 - SPREAD.high * (expected_maximum(16) - expected_maximum(8))
    assert back.low == pytest.approx((2 + float(prices[1].high_s[0]) * (fewer - 1)) * 1e9 / NOISE * sooner)
    assert same.high == pytest.approx((2 + whole_s * (high - 1)) * 1e9 * NOISE * late)
    half, _ = project_step(CARD, SYSTEM, measured, 2.0, layout(4, 1, 1, 4))
    rate = catalog.accelerator(SYSTEM.accelerator).hbm_bytes_per_s or 0.0
    optimizer_s = 4 * 30 * 2_651_307_520 / 4 / rate
    high_s = 1 + whole_s * (high - 0.5) + optimizer_s / 2 + OUTSIDE[1] * 2 / 2
    assert half.high == pytest.approx(high_s * 1e9 * NOISE * late)


def test_an_exchange_is_no_longer_than_the_step() -> None:
    """Products take all of a step at their peak, so that nothing is exposed. Half of them hide at most half
    of an exchange that was as long as the step."""
    sizes = card({**MODEL, "parameters": 100 * MODEL["parameters"]}, {"sequence_length": 2048}, "fp16")
    step_s = 6 * (100 * 2_651_307_520 - 50_257 * 2560) * 4 * 2048 / 2 / PEAK * 1.0001
    step, _ = project_step(sizes, SYSTEM, sequence_layout(1, 2, 1, 4), step_s, sequence_layout(1, 2, 1, 2))
    assert step.low == pytest.approx(step_s / 2 * 1e9 / NOISE, rel=1e-3)
    assert step.high == pytest.approx(step_s * (1 + OUTSIDE[1] / 2) * 1e9 * NOISE, rel=1e-3)


def test_ranks_of_a_sequence_exchange_gradients_with_all_replicas() -> None:
    prices = [
        _gradient_price({"model.parameters": 1e9, "element": 2.0}, SYSTEM, degrees(cp=cp, dp=dp))
        for cp, dp in ((1, 1), (1, 8), (4, 2), (8, 1))
    ]
    assert prices[0] is None
    assert len({float(price.time_s[0]) for price in prices[1:] if price}) == 1


def test_a_card_without_sizes_is_refused() -> None:
    sizes = card({**MODEL, "vocabulary": None}, {"sequence_length": 2048})
    with pytest.raises(InputError, match=r"state workload\.model\.vocabulary in a card"):
        project_step(sizes, SYSTEM, layout(), 6.0, layout())


def test_published_layouts_from_the_nearest_other_one(test_data: Path) -> None:
    """GPT-Neo 2.7B on Alps: 10 of 12 are within bounds. One with a single stage is three times as fast a
    sample as the others, and a step of a single micro-batch is mostly what is not modelled."""
    text = (test_data / "published_jobs" / "sailor_alps_gpt_neo.csv").read_text()
    rows = list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
    names = ("dp", "pp", "micro_batch", "global_batch")
    jobs = [(layout(*(int(row[name]) for name in names)), float(row["seconds"])) for row in rows]
    missed, errors = [], []
    for i, (asked, measured_s) in enumerate(jobs):
        others = [job for job in jobs if job[0].micro_batch == asked.micro_batch and job[0] != asked]
        base, base_s = min(others, key=lambda job: job[0].distance(asked))
        step, _ = project_step(CARD, SYSTEM, base, base_s, asked)
        errors.append(abs(step.expected / 1e9 / measured_s - 1))
        if not step.low <= measured_s * 1e9 <= step.high:
            missed.append(i)
    assert missed == [8, 11]
    assert sorted(errors)[5] < 0.03


LLAMA = {"parameters": 8_030_261_248, "hidden": 4096, "layers": 32, "vocabulary": 128_256}
LLAMA_CARD = card({**LLAMA, "heads": 32, "kv_heads": 8}, {"sequence_length": 8192}, "fp8")
FLORIDA = "University-of-Florida/results/hpg.dgxb200x8.n"


def llama_step_s(folder: Path, submission: str) -> float:
    """Median step of a submission's logs."""
    logs = sorted((folder / "mlperf_training" / submission / "llama31_8b").iterdir())
    times = re.findall(r'"train_step_time": ([0-9.]+)', "".join(log.read_text() for log in logs))
    return float(np.median([float(time) for time in times]))


def llama_layout(gpus: int, batch: int) -> JobLayout:
    """Two samples a rank on eight accelerators, else a sample on two, as the submissions' configurations
    (`config_DGXB200_4x8x1xtp1pp1cp2_8b.sh`) state."""
    cp, micro = (1, 2) if gpus == 8 else (2, 1)
    return JobLayout(degrees(dp=gpus // cp, cp=cp), micro, batch)


FLORIDA_256_S = 0.220
"""Step of 256 accelerators in the blocks of published logs that are not part of the test data."""


@pytest.mark.parametrize(
    ("small", "large"),
    [
        ((8, 16, f"{FLORIDA}1"), (32, 16, f"{FLORIDA}4")),
        ((32, 16, f"{FLORIDA}4"), (128, 64, f"{FLORIDA}16")),
        ((128, 64, f"{FLORIDA}16"), (256, 128, None)),
    ],
)
def test_a_published_benchmark(small: Any, large: Any, test_data: Path) -> None:
    """Llama 3.1 8B (MLPerf Training v5.1), from the smaller number of accelerators and back. NVIDIA's logs of
    8 and 72 GB200 are not comparable: by their configurations, products are in FP4 on 8 and in FP8 on 72."""
    steps = [FLORIDA_256_S if name is None else llama_step_s(test_data, name) for *_, name in (small, large)]
    layouts = [llama_layout(gpus, batch) for gpus, batch, _ in (small, large)]
    system = catalog.system("dgx-b200")
    for old, new in ((0, 1), (1, 0)):
        step, _ = project_step(LLAMA_CARD, system, layouts[old], steps[old], layouts[new])
        assert step.low <= steps[new] * 1e9 <= step.high
        assert (step.expected is None) == (8 in (small[0], large[0]))
        if (small[0], old) == (32, 0):
            assert step.expected == pytest.approx(steps[new] * 1e9, rel=0.01)


def test_a_pipeline_of_a_published_benchmark() -> None:
    """Llama 3.1 405B on 448 accelerators from 256 (University of Florida; 144 micro-batches): steps of
    published logs that are not part of the test data, opened after the method was complete."""
    model = {"parameters": 405_853_388_800, "hidden": 16_384, "layers": 126, "vocabulary": 128_256}
    sizes = card({**model, "heads": 128, "kv_heads": 8}, {"sequence_length": 8192}, "fp8")
    small, large = (JobLayout(degrees(tp=4, cp=2, dp=dp, pp=8), 1, 144 * dp) for dp in (4, 7))
    step, _ = project_step(sizes, catalog.system("dgx-b200"), small, 27.55, large)
    assert step.low <= 27.94e9 <= step.high
    assert step.high / step.low < 1.08
    assert step.expected == pytest.approx(27.94e9, rel=0.02)


def projected(path: Path, gpus: int = 256, step_s: float = 6.43, **options: Any) -> tuple[float, ...]:
    """Low, expected and high of the projected step, ns, and relative samples of a step."""
    projection = cclbench.project(path, "alps-gh200", gpus, step_s=step_s, **options)
    (outcome,) = projection.result.predicted
    (layout,) = projection.layouts
    return outcome.low_ns, outcome.step_ns or 0.0, outcome.high_ns, layout.samples


@pytest.mark.parametrize(
    ("options", "job"),
    [
        ({"layout": "pp=4", "sets": ["batch=global"]}, JobLayout(degrees(tp=4, dp=16, pp=4), 4, 1024)),
        ({"layout": "pp=4"}, JobLayout(degrees(tp=4, dp=16, pp=4), 4, 2048)),
        ({}, JobLayout(degrees(tp=4, dp=32, pp=2), 4, 4096)),
        ({"layout": "pp=4,dp=16", "sets": ["parallelism.schedule=zero_bubble"]},
         JobLayout(degrees(tp=4, dp=16, pp=4), 4, 2048, "zero_bubble")),
        ({"layout": "pp=4", "sets": ["parallelism.interleave=2"]},
         JobLayout(degrees(tp=4, dp=16, pp=4), 4, 2048, turns=2)),
        ({"layout": "cp=2"}, JobLayout(degrees(tp=4, cp=2, dp=16, pp=2), 4, 2048)),
        ({"layout": "pp=1", "sets": ["batch=global"], "gpus": 2048},
         JobLayout(degrees(tp=4, dp=512), 2, 1024)),
    ],
)  # fmt: skip
def test_a_card_s_job_is_projected(neo: Path, options: dict[str, Any], job: JobLayout) -> None:
    """Degrees not stated stay; replicas keep their 128 samples unless the batch stays, then down to two."""
    measured = JobLayout(degrees(tp=4, dp=8, pp=2), 4, 1024)
    step, _ = project_step(CARD, catalog.system("alps-gh200"), measured, 6.43, job)
    low, expected, high, samples = projected(neo, **options)
    assert (low, expected, high) == pytest.approx((step.low, step.expected or 0.0, step.high))
    assert samples == 8 * job.global_batch / 1024


@pytest.mark.parametrize(
    ("old", "new", "options", "error", "says"),
    [
        ("system: alps-gh200", "system: aws-p5", {}, InputError, "on aws-p5 .*another machine needs a"),
        ("phase: training", "phase: inference", {}, InputError, "is not training"),
        ("micro: 4, ", "", {}, InputError, r"state workload\.batch\.micro in a card"),
        ("global: 1024, ", "", {}, InputError, r"state workload\.batch\.global in a card"),
        ("pp: 2", "pp: 2, ep: 16", {}, InputError, "do not make the 64 ranks"),
        ("", "", {"sets": ["kernels.time=x0.5"]}, UsageError, r"kernels\.time needs a trace of a rank"),
        ("", "", {"layout": "tp=8"}, InputError, "layers split otherwise"),
        ("", "", {"layout": "dp=2"}, UsageError, "makes 16 ranks, not 256"),
        ("", "", {"layout": "pp=64"}, InputError, "32 layers are too few for 64 parts"),
        ("", "", {"gpus": 100}, UsageError, "not a multiple of the 8 of a replica"),
        ("", "", {"per_node": 8}, UsageError, "alps-gh200 has 4 accelerators a node, not 8"),
        ("", "", {"step_s": 0.1}, InputError, "less than the products of a step take on 64"),
    ],
)
def test_what_a_card_and_a_step_do_not_show(
    neo: Path, old: str, new: str, options: dict[str, Any], error: type[Exception], says: str
) -> None:
    neo.write_text(NEO.replace(old, new, 1) if old else NEO)
    with pytest.raises(error, match=says):
        projected(neo, **options)


def test_a_machine_that_the_card_does_not_state_is_the_measured_one(neo: Path) -> None:
    before = projected(neo)
    neo.write_text(NEO.replace("system: alps-gh200, ", ""))
    assert projected(neo) == before


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
    # another memory scales the kernels that it bounds
    (outcome,) = project_run(run, "aws-p5e", 8).result.predicted
    scaled = "nvidia-h100-sxm and nvidia-h200-sxm differ in memory alone: kernels bound by it scale"
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


def test_random_settings_are_bounded(repository: Path, test_data: Path, evidence_store: Path) -> None:
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
