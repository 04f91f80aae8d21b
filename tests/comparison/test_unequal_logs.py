# SPDX-License-Identifier: Apache-2.0
"""Logs of jobs with unequal work, and results of serving clients with equal and unequal totals, compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from formats import test_guidellm as guidellm
from helpers.command_line import call  # noqa: F401 - a fixture
from helpers.job_logs import TITAN_HEAD
from source_summaries.test_other_kinds import CLIENT


def job(path: Path, seconds: float, batch: int, length: int = 512, dp_shard: int = 8) -> Path:
    """A log of torchtitan: 30 steps of that time, tensor parallel 2."""
    mesh, trainer = TITAN_HEAD
    trainer = trainer.replace("global batch size 16", f"global batch size {batch}")
    trainer = trainer.replace("sequence length 512", f"sequence length {length}")
    lines = [mesh.replace("dp_shard=8", f"dp_shard={dp_shard}"), trainer]
    for step in range(1, 31):
        ms = round(1000 * seconds * step)
        stamp = f"2026-01-02 03:{4 + ms // 60_000:02}:{ms // 1000 % 60:02},{ms % 1000:03}"
        lines.append(f"[titan] {stamp} - root - INFO - step: {step:2}  loss:  6.5  memory:  8.50GiB(26.87%)")
    path.write_text("\n".join([*lines, ""]))
    return path


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        # 32 sequences in 2 s are 16 a second, as 16 in 1 s: twice the work in twice the time.
        ({"batch": 32}, "global batch 32 against 16, tokens per step 16,384 against 8,192"),
        ({"length": 1024}, "sequence length 1,024 against 512, tokens per step 16,384 against 8,192"),
    ],
)
def test_unequal_work_is_said_before_any_ratio(
    call: Any,  # noqa: F811
    tmp_path: Path,
    changes: dict[str, int],
    says: str,
) -> None:
    pair = (job(tmp_path / "a.log", 1.0, 16), job(tmp_path / "b.log", 2.0, **{"batch": 16, **changes}))
    document = json.loads(call("compare", *pair, "--json").out)
    (versus,) = document["versus"]
    assert versus["words"].startswith(f"Their work differs ({says}), so step times do not rank them.")
    assert "tokens per second and device are 1.00× A's" in versus["words"]
    assert document["warnings"][0].startswith("the work differs: ")
    assert "median is" not in versus["words"]


def test_equal_work_is_compared_by_step_time_and_devices_are_named(call: Any, tmp_path: Path) -> None:  # noqa: F811
    pair = (job(tmp_path / "a.log", 1.0, 16), job(tmp_path / "b.log", 2.0, 16, dp_shard=4))
    document = json.loads(call("compare", *pair, "--json").out)
    (versus,) = document["versus"]
    assert "B's median is 2.00× A's" in versus["words"]
    assert "number of devices: A 16, B 8" in document["warnings"]


def report(path: Path, output_tokens: int = 320) -> Path:
    """GuideLLM's report of one benchmark, whose totals it states."""
    document = json.loads(json.dumps(guidellm.REPORT))
    document["benchmarks"] = document["benchmarks"][:1]
    metrics = document["benchmarks"][0]["metrics"]
    metrics["request_totals"] = {"successful": 4, "errored": 0}
    for name, total in (("prompt_token_count", 400), ("output_token_count", output_tokens)):
        metrics[name] = {"successful": {"total_sum": total}}
    path.write_text(json.dumps(document))
    return path


def equality(call: Any, *pair: Path) -> tuple[str, str]:  # noqa: F811
    """Whether the clients requested equal work, and why; no standard says so."""
    (versus,) = json.loads(call("compare", *pair, "--json").out)["versus"]
    assert versus["work"].pop("standard") is None
    return versus["work"]["status"], versus["work"]["reason"]


def test_totals_of_any_client_prove_or_refute_equal_work(call: Any, tmp_path: Path) -> None:  # noqa: F811
    """Of GuideLLM's as of vLLM's; of both beside each other by requests and tokens."""
    same, more = report(tmp_path / "a.json"), report(tmp_path / "b.json", output_tokens=321)
    again = tmp_path / "c.json"
    again.write_text(same.read_text() + "\n")
    assert equality(call, same, again)[0] == "proved"
    assert equality(call, same, more) == ("refuted", "output tokens 321 against 320")
    client = tmp_path / "d.json"
    changed = {"model_id": "m/Tiny-1B", "total_output_tokens": 320, "completed": 4}
    client.write_text(json.dumps(CLIENT | changed))
    reason = "4 requests, 400 input and 320 output tokens each"
    assert equality(call, same, client) == ("proved", reason)
