# SPDX-License-Identifier: Apache-2.0
"""The file of step times with and without the profiler, as a rank's facts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cclbench.formats.step_times import StepTimesFile
from cclbench.ground.errors import InputError

Written = Callable[..., Path]
TIMES: dict[str, Any] = {
    "schema": "cclbench.step-times.v1",
    "rank": 3,
    "profiler": "torch",
    "records": ["cpu", "cuda"],
    "unprofiled": {"steps": 3, "seconds": 0.75, "each": [0.25, 0.125, 0.375]},
    "profiled": {"steps": 2, "seconds": 1.0},
}


def test_means_of_a_rank_and_extremes_where_steps_are_told_apart(written: Written) -> None:
    evidence = StepTimesFile().read(written(json.dumps(TIMES)))
    assert evidence.facts == {
        "rank": 3,
        "profiler": "torch",
        "records": ["cpu", "cuda"],
        "unprofiled_steps": 3,
        "unprofiled_step_s": 0.25,
        "unprofiled_least_s": 0.125,
        "unprofiled_most_s": 0.375,
        "unprofiled_median_s": 0.25,
        "unprofiled_slow_steps": 0,
        "profiled_steps": 2,
        "profiled_step_s": 0.5,
    }


@pytest.mark.parametrize("text", ["{", '{"schema": "cclbench.step-times.v2"}', b"\xff"])
def test_damage_names_the_file(written: Written, text: str | bytes) -> None:
    path = written(text)
    with pytest.raises(InputError, match=r"; write it again, or remove it to do without$") as raised:
        StepTimesFile().read(path)
    assert raised.value.where == str(path)


def test_its_schema_stands_at_the_begin() -> None:
    name = b'"cclbench.step-times.v1"'
    assert StepTimesFile().sniff(b" " * (200 - len(name)) + name) == 1.0
    assert StepTimesFile().sniff(b" " * (201 - len(name)) + name) == 0.0


@pytest.mark.parametrize(("size", "refused"), [(1 << 24, False), ((1 << 24) + 1, True)])
def test_a_file_has_16_mib_at_most(written: Written, size: int, refused: bool) -> None:
    path = written(json.dumps(TIMES).ljust(size))
    if refused:
        with pytest.raises(InputError, match="is larger than 16 MiB"):
            StepTimesFile().read(path)
    else:
        assert StepTimesFile().read(path).facts["rank"] == 3
