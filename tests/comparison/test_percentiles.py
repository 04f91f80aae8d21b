# SPDX-License-Identifier: Apache-2.0
"""Percentiles over captures of a served job: of all requests together, or each capture's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cclbench.comparison.build import compare
from cclbench.comparison.comparison import Comparison
from cclbench.record.rows import Row


def a_file(path: Path, *seconds: float) -> Path:
    """What vLLM's client writes of requests with those times to their first token."""
    number = len(seconds)
    document = {
        "backend": "vllm",
        "model_id": "m",
        "tokenizer_id": "m",
        "num_prompts": number,
        "request_rate": "inf",
        "max_concurrency": 4,
        "duration": 2.0,
        "completed": number,
        "output_throughput": number,
        "input_lens": [8] * number,
        "output_lens": [2] * number,
        "ttfts": list(seconds),
        "itls": [[0.01]] * number,
        "errors": [""] * number,
    }
    path.write_text(json.dumps(document))
    return path


def of_a(found: Comparison, stat: str | None) -> Row:
    """A's time to first token."""
    row = found.subjects[0].results.row("serving.ttft", **({} if stat is None else {"stat": stat}))
    assert row is not None
    return row


def test_percentiles_of_captures_are_of_all_their_requests(tmp_path: Path) -> None:
    """The median of 0.1 to 0.7 s is 0.4; the mean of the two medians would be 0.375."""
    first = a_file(tmp_path / "a1.json", 0.1, 0.2, 0.3)
    second = a_file(tmp_path / "a2.json", 0.4, 0.5, 0.6, 0.7)
    other = a_file(tmp_path / "b1.json", 0.1, 0.2, 0.3)
    found = compare(first, second, against=[other], store=tmp_path / "store")
    assert of_a(found, "p50").value == pytest.approx(0.4)
    assert of_a(found, "p99").value == pytest.approx(0.694)
    assert of_a(found, "p50").reason == "of all requests of 2 captures together"
    assert of_a(found, None).value == pytest.approx((0.2 + 0.55) / 2)  # each capture has the same weight


def test_percentiles_of_summaries_are_each_captures(test_data: Path, tmp_path: Path) -> None:
    """Two repeats of a real benchmark, and of another setting, whose files have no requests."""
    runs = test_data / "serving_repeats"
    sides = [[runs / f"{name}_rep{n}.json" for n in (2, 3)] for name in ("A0_baseline", "B0_chunk8192")]
    row = of_a(compare(*sides[0], against=sides[1], store=tmp_path / "store"), "p99")
    assert (row.value, row.status) == (None, "not_applicable")
    assert row.reason == (
        "percentiles cannot be pooled without each capture's requests; per capture: 68.0 ms, 73.2 ms"
    )
