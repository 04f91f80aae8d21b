# SPDX-License-Identifier: Apache-2.0
"""Steps of other layouts from one measured step: the way back, closed forms, and published jobs."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
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
from cclbench.replay.crowd import expected_maximum
from cclbench.replay.placed import SPREAD
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


def of_sequences(cp: int, dp: int, micro: int, batch: int) -> JobLayout:
    return JobLayout(degrees(cp=cp, dp=dp), micro, batch)


def test_sequences_over_two_ranks_by_hand() -> None:
    """As many tokens on each rank as before, and the same two ranks exchange gradients: only keys and values
    are new, twice gathered and once scattered in each of 32 layers, by 8 heads of 128 in bytes of 2."""
    sizes = card({**MODEL, "heads": 20, "kv_heads": 8, "head_dim": 128}, {"sequence_length": 2048}, "fp16")
    step, notes = project_step(sizes, SYSTEM, of_sequences(1, 2, 1, 2), 2.0, of_sequences(2, 1, 2, 2))
    nbytes = 2 * 2048 * (8 * 128 * 2) * 2
    layer_s = 2 * exposed_s("all_gather", (0, 1), nbytes) + exposed_s("reduce_scatter", (0, 1), nbytes)
    assert step.low == pytest.approx(2e9 / NOISE)
    assert step.high == pytest.approx((2 + 32 * layer_s) * 1e9 * NOISE)
    assert any(f"a layer's exchange takes {layer_s * 1e3:.3g} ms" in note for note in notes)


def test_half_a_sequence_takes_half_the_time_or_less_is_saved() -> None:
    """One replica of one rank, then two ranks of a sequence: in proportion at best; at worst only what
    products take at the peak is halved, and keys, values and gradients are exchanged after it."""
    step, _ = project_step(CARD, SYSTEM, of_sequences(1, 1, 1, 1), 1.0, of_sequences(2, 1, 1, 1))
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
    step, _ = project_step(sizes, SYSTEM, of_sequences(1, 2, 1, 4), step_s, of_sequences(1, 2, 1, 2))
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
    jobs = [
        (
            layout(*(int(row[name]) for name in ("dp", "pp", "micro_batch", "global_batch"))),
            float(row["seconds"]),
        )
        for row in rows
    ]
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
def test_steps_of_a_published_benchmark(
    small: tuple[int, int, str], large: tuple[int, int, str | None], test_data: Path
) -> None:
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
        (
            {"layout": "pp=4,dp=16", "sets": ["parallelism.schedule=zero_bubble"]},
            JobLayout(degrees(tp=4, dp=16, pp=4), 4, 2048, "zero_bubble"),
        ),
        (
            {"layout": "pp=4", "sets": ["parallelism.interleave=2"]},
            JobLayout(degrees(tp=4, dp=16, pp=4), 4, 2048, turns=2),
        ),
        ({"layout": "cp=2"}, JobLayout(degrees(tp=4, cp=2, dp=16, pp=2), 4, 2048)),
        (
            {"layout": "pp=1", "sets": ["batch=global"], "gpus": 2048},
            JobLayout(degrees(tp=4, dp=512), 2, 1024),
        ),
    ],
)
def test_a_card_s_job_is_projected(neo: Path, options: dict[str, Any], job: JobLayout) -> None:
    """Degrees not stated stay; replicas keep their 128 samples unless the batch stays, then down to two."""
    sizes = card(
        {"parameters": 2_651_307_520, "hidden": 2560, "layers": 32, "vocabulary": 50_257},
        {"sequence_length": 2048},
        "fp16",
    )
    measured = JobLayout(degrees(tp=4, dp=8, pp=2), 4, 1024)
    step, _ = project_step(sizes, catalog.system("alps-gh200"), measured, 6.43, job)
    low, expected, high, samples = projected(neo, **options)
    assert (low, expected, high) == pytest.approx((step.low, step.expected or 0.0, step.high))
    assert samples == 8 * job.global_batch / 1024


@pytest.mark.parametrize(
    ("old", "new", "options", "error", "says"),
    [
        (
            *("system: alps-gh200", "system: aws-p5", {}, InputError),
            "measured on aws-p5 .*another machine needs a",
        ),
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
