# SPDX-License-Identifier: Apache-2.0
"""What decode reads over what memory delivers, on hand-made ranks and requests, and of a real iteration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.hand_made import (
    Evidence,
    a_rank,
    card,
    compute,
    event,
    launch,
    main,
    of_run,
    reason,
    values,
    window,
)

import cclbench
from cclbench.analyzers.metric import Value
from cclbench.analyzers.view.rank_view import RankView

DECODE = "execute_context_0(0)_generation_6(6)"
DETAILED = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk100sqsq2sqsk100)"
HBM = 1e12
A100 = 2.039e12
SERVED: dict[str, Any] = {
    "workload__phase": "serving",
    "workload__batch": {"input_length": 6, "output_length": 4},
    "workload__model__kv_heads": 1,
}
"""N_mm is 1,000, of 2 bytes each; a cached token has a key and a value of 5 elements of 2 bytes."""


def a_decode(*names: str, **changes: Any) -> RankView:
    """A rank with an iteration of each name, 100 ns long, in which a device could read 100,000 bytes."""
    rows = []
    for number, name in enumerate(names):
        begin = 100 * number
        rows += [
            event("annotation", begin, begin + 40, name=name, side="host"),
            launch(begin + 1, number + 1),
        ]
        rows.append(compute(begin + 50, begin + 60, correlation=number + 1, step=number))
    windows = [window(50 + 100 * n, 150 + 100 * n, n) for n in range(len(names))]
    return a_rank(rows, windows, card=card(**SERVED | changes), hbm_bytes_per_s=HBM)


PREFILL = "execute_context_2(512)_generation_0(0)"
SPLIT = {"parallelism": {"tp": 2}}


@pytest.mark.parametrize(
    ("names", "changes", "read"),
    [
        # Six requests of 6 + 4 / 2 tokens in one iteration, 100 tokens in another; a prefill does not count.
        ((DECODE, PREFILL, DETAILED), {}, ((2000 + 6 * 8 * 20) + (2000 + 100 * 20)) / 2),
        # Two devices halve weights and share a lone key-value head.
        ((DETAILED,), SPLIT, 1000 + 100 * 20),
        ((DETAILED,), SPLIT | {"workload__model__kv_heads": 2}, 1000 + 100 * 20),
        # Narrow weights have a cache of two bytes.
        ((DETAILED,), {"workload__precision": "fp8"}, 1000 + 100 * 20),
        ((DETAILED,), {"workload__precision": "fp32"}, 4000 + 100 * 40),
    ],
)
def test_weights_and_cache_by_the_names_of_iterations_and_the_card(
    names: tuple[str, ...], changes: dict[str, Any], read: float
) -> None:
    """Of 100,000 bytes in each iteration."""
    rank = a_decode(*names, **changes)
    assert main(rank, "memory.mbu") == pytest.approx(read / 100_000)
    (found,) = values(rank, "memory.mbu")
    assert found.provenance == "derived"
    if not changes:
        assert found.reason == (
            "a device reads 2.00 kB of weights, and 20 B of KV cache for each token in context"
        )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"workload__model__kv_heads": None}, "the workload card lacks workload.model.kv_heads"),
        ({"workload__precision": None}, "the workload card lacks workload.precision"),
        ({"workload__batch": {"input_length": 6}}, "the workload card lacks workload.batch.output_length"),
        ({"parallelism": {"pp": 2}}, "tensor parallelism alone splits the model: the card has pp 2, cp 1"),
    ],
)
def test_what_is_lacking_is_named(changes: dict[str, Any], says: str) -> None:
    assert says in reason(a_decode(DECODE, **changes), "memory.mbu")


def test_an_impossible_share_is_no_number() -> None:
    (found,) = values(a_decode(DETAILED, workload__model__parameters=1_000_000), "memory.mbu")
    assert (found.status, found.value) == ("failed", None)
    assert found.reason == "decode would need 20 of the memory's peak: card and evidence disagree"


def of_client(**changes: Any) -> Value:
    """Of a client that states 20 ms a token and 100 output tokens a second, served by two devices."""
    own = {"source": "serving", "file": "a.json", "benchmark": 0, "unit": "s"}
    told = (("tpot", "mean", 0.02), ("output_throughput", None, 100.0))
    rows = [own | {"figure": figure, "stat": stat, "value": value} for figure, stat, value in told]
    (found,) = of_run("memory.mbu", Evidence(serving=rows), card=card(**SERVED | changes))
    return found


def test_a_clients_rates_tell_how_many_sequences_decode_at_once() -> None:
    """100 / s · 20 ms = 2 sequences over two replicas of one device, 8 tokens each."""
    found = of_client()
    assert found.value == pytest.approx((2000 + 1 * 8 * 20) / (0.02 * A100))
    assert (found.status, found.provenance, found.source) == ("ok", "derived", "serving")
    assert "; 1 sequences decode at once" in (found.reason or "")
    split = of_client(parallelism={"tp": 2})
    assert split.value == pytest.approx((1000 + 2 * 8 * 20) / (0.02 * A100))
    assert of_client(hardware__count=None).reason == "the workload card lacks hardware.count"


def test_a_clients_file_without_a_card_says_which_field_is_needed(
    test_data: Path, evidence_store: Path
) -> None:
    file = test_data / "serving_repeats/A0_baseline_rep1.json"
    run = cclbench.run(file, store=evidence_store, metrics="mbu")
    assert [row["reason"] for row in run.rows] == ["needs a workload card with workload.precision"]


CARD = """version: 2
id: qwen3
description: Qwen3-8B decoding 32 requests
workload:
  phase: serving
  precision: bf16
  model: {name: Qwen3-8B, moe: false, parameters: 8190735360, embedding_parameters: 622329856,
          tied_embeddings: false, vocabulary: 151936, hidden: 4096, layers: 36, heads: 32, kv_heads: 8,
          head_dim: 128}
hardware: {accelerator: amd-mi300x, count: 1}
evidence: {traces: [{path: decode.json.gz}]}
"""


def test_a_real_iteration_by_its_published_sizes(test_data: Path, tmp_path: Path) -> None:
    """The engine names 32 requests with 32,785 tokens in context together."""
    (trace,) = (test_data / "kineto/sglang_decode_mi300x").iterdir()
    (tmp_path / "decode.json.gz").write_bytes(trace.read_bytes())
    (tmp_path / "qwen3.yaml").write_text(CARD)
    run = cclbench.run(tmp_path / "qwen3.yaml", store=tmp_path / "store")
    found = {row["metric"]: row for row in run.rows if row["rank"] is None and row["step"] is None}
    seconds = found["serving.iteration"]["value"]
    read = 2 * (8_190_735_360 - 622_329_856) + 32_785 * 36 * 8 * 2 * 128 * 2
    assert found["memory.mbu"]["value"] == pytest.approx(read / (seconds * 5.3e12))
    assert "a device reads 15.1 GB of weights" in found["memory.mbu"]["reason"]
