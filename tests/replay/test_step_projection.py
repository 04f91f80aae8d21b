# SPDX-License-Identifier: Apache-2.0
"""Steps of other layouts from one measured step: the way back, closed forms, and published jobs."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from helpers.replay_subjects import card, degrees

from cclbench.ground.errors import InputError
from cclbench.hardware import catalog
from cclbench.replay.step_projection import JITTER, OUTSIDE, JobLayout, project_step

MODEL = {"parameters": 2_651_307_520, "hidden": 2560, "layers": 32, "vocabulary": 50_257}
CARD = card(MODEL, {"sequence_length": 2048}, "fp16")
SYSTEM = catalog.system("alps-gh200")
NOISE = (1 + JITTER) / (1 - JITTER)


def layout(dp: int = 8, pp: int = 2, micro: int = 4, batch: int = 1024, tp: int = 4) -> JobLayout:
    return JobLayout(degrees(dp=dp, pp=pp, tp=tp), micro, batch)


def test_the_measured_layout_takes_its_measured_time() -> None:
    step, _ = project_step(CARD, SYSTEM, layout(), 6.0, layout())
    assert step.expected == pytest.approx(6e9)
    assert (step.low, step.high) == (pytest.approx(6e9 / NOISE), pytest.approx(6e9 * NOISE))


def test_twice_the_samples_take_less_than_twice_as_long() -> None:
    """The pipeline fills once for any number of micro-batches."""
    step, notes = project_step(CARD, SYSTEM, layout(), 6.0, layout(batch=2048))
    assert step.low <= step.expected <= step.high  # type: ignore[operator]
    # 64 and 32 micro-batches with the head on the last of 2 stages, without sends and the rest of a step
    assert 6 * 64.9 / 33 > step.expected / 1e9 > 6 * 1.9
    assert "1f1b: 64 micro-batches, layers split as evenly" in " ".join(notes)


def test_better_schedules_take_less_of_few_micro_batches() -> None:
    few = layout(pp=4, batch=256)
    better = (replace(few, turns=2), replace(few, schedule="zero_bubble"))
    usual, *others = (project_step(CARD, SYSTEM, few, 2.0, asked)[0] for asked in (few, *better))
    assert all(one.expected < usual.expected for one in others)  # type: ignore[operator]


def test_another_micro_batch_gives_bounds_alone() -> None:
    step, notes = project_step(CARD, SYSTEM, layout(), 6.0, layout(micro=1))
    assert step.expected is None
    assert step.high > 3.5 * step.low
    assert "another micro-batch: layers take as long as before, or in proportion to samples" in notes


def test_stages_that_replicas_do_not_need_to_wait_for() -> None:
    """A single replica exchanges no gradients, a single stage sends nothing."""
    _, notes = project_step(CARD, SYSTEM, layout(1, 1, batch=64), 4.0, layout(1, 1, batch=128))
    assert not [note for note in notes if "gradients" in note or "send" in note]


def test_notes_name_the_weak_classes_of_its_transfers() -> None:
    """No published machine has a sweep of sends; those without stages and replicas have no such note."""
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
        (layout(1, 2), layout(), "take longer than 0.001 s"),
    ],
)
def test_what_a_step_does_not_show_is_refused(measured: JobLayout, asked: JobLayout, says: str) -> None:
    with pytest.raises(InputError, match=says):
        project_step(CARD, SYSTEM, measured, 0.001 if "longer" in says else 6.0, asked)


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
        assert step.expected is not None
        errors.append(abs(step.expected / 1e9 / measured_s - 1))
        if not step.low <= measured_s * 1e9 <= step.high:
            missed.append(i)
    assert missed == [8, 11]
    assert sorted(errors)[5] < 0.03


def test_four_times_the_accelerators_of_a_published_benchmark(test_data: Path) -> None:
    """Llama 3.1 8B on DGX B200 (MLPerf Training v5.1): 128 GPUs take 1.026 times the step of 32, each
    with half a sample; the logs do not state how layers are split, here by two ranks."""
    folder = test_data / "mlperf_training" / "University-of-Florida" / "results"
    steps = []
    for nodes in (4, 16):
        logs = sorted((folder / f"hpg.dgxb200x8.n{nodes}" / "llama31_8b").iterdir())
        times = re.findall(r'"train_step_time": ([0-9.]+)', "".join(log.read_text() for log in logs))
        steps.append(float(np.median([float(time) for time in times])))
    model = {"parameters": 8_030_261_248, "hidden": 4096, "layers": 32, "vocabulary": 128_256}
    of_card = card(model, {"sequence_length": 8192})
    small, large = (layout(dp, 1, 1, dp, tp=2) for dp in (16, 64))
    step, _ = project_step(of_card, catalog.system("dgx-b200"), small, steps[0], large)
    assert step.low <= steps[1] * 1e9 <= step.high
    assert step.expected == pytest.approx(steps[1] * 1e9, rel=0.01)
