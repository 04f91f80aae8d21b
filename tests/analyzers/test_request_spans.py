# SPDX-License-Identifier: Apache-2.0
"""Parts of a request's time by a server's spans, alone and beside a client's file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from formats.test_otlp_spans import line, span
from formats.test_serving import VLLM

import cclbench
from cclbench.record.run import Run


def figures(run: Run, metric: str) -> dict[tuple[str | None, str | None], float]:
    """Values by category and stat."""
    rows = [row for row in run.figures.summary if row.metric == metric and row.value is not None]
    return {(row.category, row.stat): row.number for row in rows}


@pytest.fixture
def spans(tmp_path: Path) -> Path:
    """Four requests, of which one failed; of the others two state all parts."""
    (tmp_path / "job").mkdir()
    path = tmp_path / "job" / "spans.jsonl"
    own = [
        span(1, e2e=2.25, time_to_first_token=0.5, time_in_queue=0.3),
        span(2, e2e=3.25, time_to_first_token=0.7, time_in_queue=0.5),
        span(3, e2e=4.0, time_to_first_token=0.9, time_in_queue=None),
        span(4, e2e=9.0, status={"code": 2}),
    ]
    path.write_text(line(*own) + "\n")
    return path


def test_a_requests_time_is_split(spans: Path, tmp_path: Path) -> None:
    """Of 2.75 s in the mean 0.4 are queue, 0.125 prefill, 1.75 decode; the rest is outside."""
    run = cclbench.run(spans, store=tmp_path / "store")
    found = figures(run, "serving.request_time")
    assert found[None, None] == pytest.approx(2.75)
    assert found["queue", None] == pytest.approx(0.4)
    assert found["prefill", None] == pytest.approx(0.125)
    assert found["decode", None] == pytest.approx(1.75)
    assert found["outside", None] == pytest.approx(0.475)
    latencies = figures(run, "serving.server_latency")
    assert latencies["ttft", "p50"] == pytest.approx(0.7)
    assert latencies["queue", "p90"] == pytest.approx(0.48)
    assert figures(run, "serving.ttft")[None, None] == pytest.approx(0.7)
    # Three answered requests of 8 tokens within 5.25 s: arrivals are 1 s apart, each span lasts 2.25 s.
    assert figures(run, "serving.output_throughput")[None, None] == pytest.approx(24 / 5.25)


def test_a_clients_file_goes_before_the_servers_view(spans: Path, tmp_path: Path) -> None:
    (spans.parent / "client.json").write_text(json.dumps(VLLM))
    run = cclbench.run(spans.parent, store=tmp_path / "store")
    (row,) = [row for row in run.figures.summary if row.metric == "serving.ttft" and row.stat is None]
    assert (row.category, row.source) == (None, "serving")
    assert figures(run, "serving.request_time")["queue", None] == pytest.approx(0.4)


def test_without_a_queue_nothing_is_split(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    path.write_text(line(span(1, time_in_queue=None)) + "\n")
    run = cclbench.run(path, store=tmp_path / "store")
    rows = {row.category: row for row in run.figures.summary if row.metric == "serving.request_time"}
    assert rows[None].value == pytest.approx(2.25)
    assert rows["outside"].status == "not_applicable"
    assert rows["outside"].reason == "the spans do not time the queue, prefill"
