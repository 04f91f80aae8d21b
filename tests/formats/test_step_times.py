# SPDX-License-Identifier: Apache-2.0
"""The file of step times with and without the profiler, as a rank's facts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.refused import refused

from cclbench.formats.step_times import StepTimesFile

Written = Callable[..., Path]
TIMES: dict[str, Any] = {"schema": "cclbench.step-times.v1", "rank": 3, "profiler": "torch"}
TIMES |= {"records": ["cpu", "cuda"], "profiled": {"steps": 2, "seconds": 1.0}}
TIMES["unprofiled"] = {"steps": 3, "seconds": 0.75, "each": [0.25, 0.125, 0.375]}


def test_means_of_a_rank_and_extremes_where_steps_are_told_apart(written: Written) -> None:
    evidence = StepTimesFile().read(written(json.dumps(TIMES)))
    known = {"steps": 3, "step_s": 0.25, "least_s": 0.125, "most_s": 0.375, "median_s": 0.25, "slow_steps": 0}
    facts = {f"unprofiled_{name}": value for name, value in known.items()}
    facts |= {"rank": 3, "profiler": "torch", "records": ["cpu", "cuda"]}
    assert evidence.facts == facts | {"profiled_steps": 2, "profiled_step_s": 0.5}


@pytest.mark.parametrize("text", ["{", '{"schema": "cclbench.step-times.v2"}', b"\xff"])
def test_damage_names_the_file(written: Written, text: str | bytes) -> None:
    message = refused(StepTimesFile().read, written(text))
    assert message.endswith("; write it again, or remove it to do without")


def test_its_schema_stands_at_the_begin() -> None:
    name = b'"cclbench.step-times.v1"'
    assert StepTimesFile().sniff(b" " * (200 - len(name)) + name) == 1.0
    assert StepTimesFile().sniff(b" " * (201 - len(name)) + name) == 0.0


def test_a_file_has_16_mib_at_most(written: Written) -> None:
    text = json.dumps(TIMES)
    assert StepTimesFile().read(written(text.ljust(1 << 24))).facts["rank"] == 3
    refused(StepTimesFile().read, written(text.ljust((1 << 24) + 1)), "is larger than 16 MiB")
