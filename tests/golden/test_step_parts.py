# SPDX-License-Identifier: Apache-2.0
"""The parts of real steps sum to time.step, and within a part to the part; processes change nothing."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path

import pytest

import cclbench
from cclbench.analyzers.step_parts import PARTS
from cclbench.record.run import Run

from .conftest import Measure

KINETO = ("dlrm_8xv100", "ddp_a100", "resnet_mi300x", "h100_qwen", "sglang_decode_mi300x", "sampled_2of128")
SOURCES = [(f"kineto/{capture}", window) for capture in KINETO for window in ("steps", "trace")]
SOURCES += [("nsys/nsysai_mfu_2gpu_before_c8f71e.sqlite", "steps")]
SOURCES += [("xprof/tpu_v6e_4plane_host_offload_psum.xplane.pb", "steps")]
EXPOSED = ("exposed_transfer", "exposed_wait", "exposed_unmatched")


def check(run: Run) -> None:
    own = [row for row in run.rows if row["metric"] == "time.step_parts"]
    step = next(row["value"] for row in run.rows if row["metric"] == "time.step" and row["rank"] is None)
    whole, by_part = own[0], defaultdict(list)
    assert whole["value"] == pytest.approx(step, rel=1e-15)
    for row in own:
        if row["step"] is None and row["stat"] in PARTS:
            key = [name for name in ("collective", "group", "category") if row[name] is not None]
            by_part[row["stat"], *key].append(row["value"])
    total = math.fsum(by_part[part,][0] for part in PARTS if (part,) in by_part)
    assert total == pytest.approx(step, rel=1e-15)
    for part, by in (("compute", "category"), *((part, "collective") for part in EXPOSED)):
        total = by_part.get((part,), [0.0])[0]
        assert math.fsum(by_part.get((part, by), [])) == pytest.approx(total, rel=1e-14, abs=1e-18)
    steps: dict[int, list[float]] = defaultdict(list)
    for row in own:
        if row["step"] is not None:
            steps[row["step"]].append(row["value"])
    longest: dict[int, float] = defaultdict(float)
    for row in run.rows:
        counted = row["step"] is not None and row["stat"] != "open"
        if row["metric"] == "time.step" and counted and row["rank"] is not None:
            longest[row["step"]] = max(longest[row["step"]], row["value"])
    assert {step: math.fsum(values) for step, values in steps.items()} == pytest.approx(longest, rel=1e-14)


@pytest.mark.parametrize(("source", "window"), SOURCES)
def test_parts_of_traces_sum_to_the_step(test_data: Path, measure: Measure, source: str, window: str) -> None:
    check(measure(test_data / source, window))


def test_parts_of_a_shipped_run_sum_and_are_the_same_from_several_processes(
    repository: Path, measure: Measure, tmp_path: Path
) -> None:
    card = repository / "workload_cards" / "tiny-llama-fsdp2-tp2-gloo-cpu.yaml"
    alone = measure(card)
    check(alone)
    several = cclbench.run(card, store=tmp_path, jobs=2, metrics=["time.step_parts"])
    assert several.rows == [row for row in alone.rows if row["metric"] == "time.step_parts"]
    for window in ("trace", "annotations"):
        check(measure(card, window))
