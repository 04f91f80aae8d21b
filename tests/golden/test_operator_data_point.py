# SPDX-License-Identifier: Apache-2.0
"""The data point with operands, stacks and allocations: counts by hand, by torch and by its JSON rows.

Each rank's batch is 4 sequences of 128 tokens. Of two layers the first is computed again in backward.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from cclbench.operator_table import operator_costs
from cclbench.record.run import Run

from .conftest import Measure

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
