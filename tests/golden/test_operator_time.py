# SPDX-License-Identifier: Apache-2.0
"""Kernel time under each operator's calls against another tool's, and phases against busy time."""

from __future__ import annotations

import ast
import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import cclbench

from .conftest import Measure

Key = tuple[str, str]


def inclusive(run: cclbench.Run, kinds: Sequence[str]) -> Counter[Key]:
    """ns of the device rows under calls of each name and shapes, found by walking up from each row.

    SGLang numbers the calls of its attention by layer, which the other tool leaves out.
    """
    rows = run.sql("SELECT operator, parent, name, shapes FROM operators").to_pylist()
    calls = {row["operator"]: row for row in rows}
    times: Counter[Key] = Counter()
    rows = run.sql("SELECT operator, dur_ns, kind FROM events WHERE operator IS NOT NULL").to_pylist()
    for operator, ns in ((row["operator"], row["dur_ns"]) for row in rows if row["kind"] in kinds):
        around = set[Key]()
        while operator is not None:
            call = calls[operator]
            around.add((re.sub(r"(?<=_ragged)_\d+$", "", call["name"]), call["shapes"] or "[]"))
            operator = call["parent"]
        times.update(dict.fromkeys(around, ns))
    return times


def theirs(path: Path) -> Iterator[tuple[Key, float]]:
    """Each row's operator and shapes, and its kernels' time in ns."""

    def listed(sizes: Any) -> Any:
        return [listed(one) for one in sizes] if isinstance(sizes, tuple) else sizes

    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            dims = listed(ast.literal_eval(row["input_dims"])) if row["input_dims"] else []
            yield (row["name"], str(dims).replace(" ", "")), float(row["kernel_us_sum"]) * 1000


# Rows of operators that the other tool makes up, or names after a part of what it replaced.
OTHER_NAMES = ("pseudo_op::", "(Synthetic Op)", "SortTokens", "TopK")
MISSED = {"sglang_decode_mi300x": {("aten::copy_", "[[32],[32],[]]")}}
"""Of five calls it lists four: one that converts `int` to `long`, within `aten::_to_copy`, is gone."""


@pytest.mark.parametrize(
    ("name", "folder", "rows"),
    [
        ("h100_qwen", "kineto", 33),
        ("resnet_mi300x", "kineto", 97),
        ("sglang_decode_mi300x", "graph_replay", 24),
        ("vllm_decode_mi300x", "graph_replay", 17),
    ],
)
def test_kernel_time_under_every_operator(
    test_data: Path, evidence_store: Path, name: str, folder: str, rows: int
) -> None:
    run = cclbench.ingest(test_data / folder / name, store=evidence_store)
    # Memsets of workspaces count with some operators there, and with others not.
    every = [inclusive(run, kinds) for kinds in (("kernel", "copy", "memset"), ("kernel", "copy"))]
    wanted: Counter[Key] = Counter()
    for key, ns in theirs(test_data / "expected" / "operators" / f"{name}.csv"):
        if not any(mark in key[0] for mark in OTHER_NAMES):
            wanted[key] += ns
    assert len(wanted) == rows
    different = {
        key: ([own.get(key) for own in every], ns)
        for key, ns in wanted.items()
        if all(own.get(key) != pytest.approx(ns, rel=1e-3) for own in every)
    }
    assert set(different) == MISSED.get(name, set())


PHASED = ["ddp_a100", "nccl_meta_a100", "resnet_mi300x", "sampled_2of128", "dlrm_8xv100"]


@pytest.mark.parametrize("name", PHASED)
def test_phases_sum_to_busy_time(kineto: Path, measure: Measure, name: str) -> None:
    """Exactly: parts of each step, in ns, of every rank."""
    run = measure(kineto / name)
    rows = [row for row in run.rows if row["step"] is row["stat"] is None]
    for rank in run.ranks:
        value = {(row["metric"], row["category"]): row["value"] for row in rows if row["rank"] == rank}
        phases = {of: amount for (metric, of), amount in value.items() if metric == "time.phase" and of}
        busy = value["time.step", None] - value["time.idle", None]
        assert sum(phases.values()) == pytest.approx(busy, rel=1e-12)
        assert {"forward", "backward", "optimizer"} <= phases.keys()
