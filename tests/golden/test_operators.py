# SPDX-License-Identifier: Apache-2.0
"""Operators of traces and data points, and their time."""

from __future__ import annotations

import ast
import csv
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cclbench
from cclbench.comparison.build import run_subject
from cclbench.normalize.operators import Ranges
from cclbench.operator_table import operator_costs
from cclbench.present.operators import operator_section
from cclbench.record.run import Run

from .conftest import Measure

QUERY = """
    SELECT k.start_ns, k.operator, l.track, l.start_ns AS launched_ns
    FROM events k JOIN events l ON l.kind = 'launch' AND l.correlation = k.correlation
    WHERE k.kind IN ('kernel', 'copy', 'memset')
    AND k.operator IN (SELECT operator FROM events WHERE kind = 'op')
"""


def innermost(run: cclbench.Run, track: Any, at: Any) -> Any:
    """Id of the innermost call on each thread at each instant, −1 for none."""
    table = run.sql(
        "SELECT track, start_ns, start_ns + dur_ns, operator FROM events WHERE kind = 'op' AND operator > 0"
    )
    columns = [column.to_numpy() for column in table.columns]
    order = Ranges.order_of(*columns)
    *edges, number = (column[order] for column in columns)
    return np.append(number, -1)[Ranges(*edges).innermost_at(track, at)]


@pytest.mark.parametrize(
    ("trace", "stated"),
    [
        ("nccl_meta_a100", 3774),
        ("resnet_mi300x", 2685),
        ("h100_qwen", 1198),
        ("resnet50_2021/resnet50_num_workers_4_29dba6_worker0.pt.trace.json.gz", 8946),
    ],
)
def test_the_operator_around_the_launch_is_the_one_that_the_trace_states(
    test_data: Path, evidence_store: Path, trace: str, stated: int
) -> None:
    """`External id` of a device row, which nesting knows nothing of, names the innermost call each time."""
    run = cclbench.ingest(test_data / "kineto" / trace, store=evidence_store)
    rows = run.sql(QUERY)
    found = innermost(run, rows["track"].to_numpy(), rows["launched_ns"].to_numpy())
    assert np.array_equal(found, rows["operator"].to_numpy())
    assert len(rows) == stated


def smallest_around(events: list[dict[str, Any]], kernel: dict[str, Any]) -> str | None:
    """Input Dims of the shortest operator around a kernel's launch, found by looking at all of them."""
    link = kernel["args"]["correlation"]
    calls = (e for e in events if e.get("cat") == "cuda_runtime" and e["args"]["correlation"] == link)
    launch = next(calls, None)
    if launch is None:
        return None
    on_thread = (e for e in events if e.get("cat") == "cpu_op" and e["tid"] == launch["tid"])
    around = [e for e in on_thread if e["ts"] <= launch["ts"] < e["ts"] + e["dur"]]
    # Of equally long ones the one that was entered last.
    inner = min(around, key=lambda e: (e["dur"], -e["args"]["External id"]), default=None)
    return inner and json.dumps(inner["args"].get("Input Dims"), separators=(",", ":"))


@pytest.mark.parametrize(
    ("trace", "kernels"),
    [
        ("dlrm_8xv100/worker0_step_12.1694128201545.pt.trace.json.gz", 245),
        ("sampled_2of128/sampled_rank-0.json.gz", 1154),
    ],
)
def test_shapes_of_kernels_in_traces_that_repeat_the_correlation(test_data, evidence_store, trace, kernels):
    path = test_data / "kineto" / trace
    run = cclbench.ingest(path, store=evidence_store)
    table = run.sql(
        "SELECT k.correlation, o.shapes FROM events k LEFT JOIN events o ON o.kind = 'op' AND"
        " o.operator = k.operator WHERE k.kind = 'kernel'"
    )
    ours = dict(zip(table["correlation"].to_pylist(), table["shapes"].to_pylist(), strict=True))
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    ran = [e for e in events if e.get("cat") == "kernel"]
    assert len(ours) == kernels
    assert ours == {e["args"]["correlation"]: smallest_around(events, e) for e in ran}
    assert sum(shapes is not None for shapes in ours.values()) >= 0.98 * kernels


def test_a_report_tells_what_the_table_of_operators_does(test_data: Path, evidence_store: Path) -> None:
    run = cclbench.ingest(test_data / "kineto" / "h100_qwen", store=evidence_store)
    found, by_op = operator_section(run_subject("", run)), operator_costs(run, "op")
    assert len({row.operator for row in found.rows}) == len(by_op.rows) == 20
    for row in by_op.rows:
        own = [one for one in found.rows if one.operator == row.key]
        assert sum(one.time_ns for one in own) == row.time_ns
        assert sum(one.calls for one in own) == row.calls
        assert sum(one.flops or 0 for one in own) == pytest.approx(row.flops or 0)
        assert sum(one.gap_s or 0 for one in own) == pytest.approx(row.gap_s or 0)
    assert {chart.key for chart in found.charts if chart.svg} == {"operator-roofline", "modules"}


ID = "tiny-llama-operators-ddp2-gloo-cpu"
STEPS = (3, 4, 5)
TOKENS, HIDDEN, INNER, VOCABULARY = 4 * 128, 256, 640, 2048
LAYER = HIDDEN * 3 * HIDDEN + HIDDEN * HIDDEN + 3 * HIDDEN * INNER
"""Weights of a layer's five products."""
HEAD = HIDDEN * VOCABULARY
COUNTED_BY_TORCH = 7_012_876_288
"""`aten.mm` of one rank's step under torch.utils.flop_counter.FlopCounterMode, torch 2.15.0."""


@pytest.fixture(scope="module")
def run(repository: Path, measure: Measure) -> Run:
    """The data point, through its card."""
    return measure(repository / "workload_cards" / f"{ID}.yaml")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("step", STEPS)
def test_matrix_products_have_the_flops_that_torch_counts(run: Run, rank: int, step: int) -> None:
    rows = {row.key: row for row in operator_costs(run, ranks=[rank], steps=(step, step + 1)).rows}
    # Forward once, backward twice: the gradients of both operands; and the first layer once more.
    assert COUNTED_BY_TORCH == 2 * TOKENS * (3 * 2 * LAYER + LAYER + 3 * HEAD)
    assert rows["aten::mm"].flops == COUNTED_BY_TORCH


def test_causal_attention_counts_the_pairs_that_the_mask_leaves(run: Run) -> None:
    """Calls name the workload's own line."""
    rows = {row.key: row for row in operator_costs(run, ranks=[0], steps=(3, 4)).rows}
    pairs = 4 * 8 * (128 * 129 // 2)
    name = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert rows[name].flops == 3 * 2 * pairs * (32 + 32)
    assert rows[f"{name}_backward"].flops == 2 * 2 * pairs * (3 * 32 + 2 * 32)
    found = run.sql("SELECT DISTINCT call_site FROM operators WHERE step IS NOT NULL").to_pylist()
    assert {f"tiny_llama.py({line}): forward" for line in (94, 107)} <= {row["call_site"] for row in found}


def test_the_first_layer_is_computed_again(run: Run) -> None:
    rows = run.sql(
        "SELECT rank, step, module, phase, shapes FROM operators WHERE name = 'aten::mm' AND recomputed"
    ).to_pylist()
    assert {row["phase"] for row in rows} == {"backward"}
    assert all("/Layer_0/" in row["module"] for row in rows)
    flops = dict.fromkeys(((rank, step) for rank in (0, 1) for step in STEPS), 0)
    for row in rows:
        (m, k), (_, n) = json.loads(row["shapes"])
        flops[row["rank"], row["step"]] += 2 * m * k * n
    assert set(flops.values()) == {2 * TOKENS * LAYER}


def test_each_product_has_its_module(run: Run) -> None:
    """A call runs three times, or four in the layer that is computed again."""
    counted = run.sql(
        "SELECT module, count(*) AS n FROM operators "
        "WHERE name = 'aten::mm' AND rank = 0 AND step = 3 GROUP BY ALL"
    ).to_pylist()
    model = "DistributedDataParallel_0/TinyLlama_0"
    linear = {
        f"{model}/Layer_{layer}/{part}_{layer}/Linear_{5 * layer + number}": 4 - layer
        for layer in (0, 1)
        for part, numbers in (("Attention", (0, 1)), ("FeedForward", (2, 3, 4)))
        for number in numbers
    }
    assert {row["module"]: row["n"] for row in counted} == {**linear, f"{model}/Linear_10": 3}


def test_the_peak_is_the_profilers_own(run: Run, repository: Path) -> None:
    for rank in (0, 1):
        text = gzip.decompress((repository / "traces" / ID / f"rank{rank}_trace.json.gz").read_bytes())
        events = json.loads(text)["traceEvents"]
        largest = max(event["args"]["Total Allocated"] for event in events if event["name"] == "[memory]")
        (row,) = (row for row in run.rows if row["metric"] == "memory.peak_allocated" and row["rank"] == rank)
        assert row["value"] == largest > 0


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
def test_kernel_time_under_every_operator(test_data, evidence_store, name, folder, rows):
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
