# SPDX-License-Identifier: Apache-2.0
"""Metrics from outside that raise or print: a failed row of their own, and no word of theirs on stdout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from helpers.packages import with_module

METRICS = '''
"""Metrics that misbehave."""

from cclbench.analyzers.metric import Value, metric

print("loaded")


def mine(name):
    about = {"definition": "None.", "formula": "none", "not_applicable": "it never does"}
    return metric(f"mine.{name}", **about, unit="s", better="lower")


@mine("raises")
def raises(rank):
    return Value(value=1 / 0)


@mine("prints")
def prints(rank):
    print("computing")
    yield Value(value=1.0)
'''


def test_the_answer_is_whole_whatever_plugins_do(repository: Path, tmp_path: Path) -> None:
    outside = with_module(tmp_path, "my_metrics", METRICS, "cclbench.analyzers")
    card = repository / "workload_cards" / "tiny-llama-ddp4-gloo-cpu.yaml"
    program = [sys.executable, "-m", "cclbench", "run", card, "--metric", "mine.*", "--metric", "time.step"]
    done = subprocess.run(
        [*program, "--json", "--store", tmp_path / "store", "--jobs", "2"],
        env=outside,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = {row["metric"]: row for row in json.loads(done.stdout)["results"] if row["rank"] is None}
    assert rows["mine.prints"]["value"] == 1.0
    assert rows["mine.raises"]["status"] == "failed"
    assert "a defect of the plug-in my_metrics: ZeroDivisionError" in rows["mine.raises"]["reason"]
    assert "computing" in done.stderr
    assert "loaded" in done.stderr
