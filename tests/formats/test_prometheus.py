# SPDX-License-Identifier: Apache-2.0
"""Metrics of serving engines: families, scrapes and series; damage by line; labels that are published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.refused import refused

from cclbench.contribute.redaction import redact_evidence
from cclbench.formats import Evidence, recognise_format
from cclbench.formats.prometheus import Prometheus
from cclbench.ground.evidence_schema import SERVER_METRICS

SNAPSHOT = """\
# HELP vllm:request_queue_time_seconds Histogram of time spent in WAITING phase for request.
# TYPE vllm:request_queue_time_seconds histogram
vllm:request_queue_time_seconds_bucket{engine="0",le="0.5",model_name="m"} 1.0
vllm:request_queue_time_seconds_bucket{engine="0",le="+Inf",model_name="m"} 2.0
vllm:request_queue_time_seconds_count{engine="0",model_name="m"} 2.0
vllm:request_queue_time_seconds_sum{engine="0",model_name="m"} 1.25
vllm:generation_tokens_total{engine="0",model_name="m"} 40.0
vllm:num_requests_waiting{engine="0",model_name="m"} NaN
vllm:num_requests_running{engine="0",model_name="m"} 3.0 1780000000000
process_cpu_seconds_total 25.6
"""


def read(tmp_path: Path, text: str) -> Evidence:
    path = tmp_path / "metrics.prom"
    path.write_text(text)
    return Prometheus().read(path)


def rows(evidence: Evidence, *names: str) -> list[tuple[Any, ...]]:
    assert evidence.server_metrics.schema == SERVER_METRICS
    return [tuple(row[name] for name in names) for row in evidence.server_metrics.to_pylist()]


def test_families_of_an_engine(tmp_path: Path) -> None:
    found = read(tmp_path, SNAPSHOT)
    bounds = [("queue", "bucket", 0.5, 1, None), ("queue", "bucket", float("inf"), 2, None)]
    assert rows(found, "metric", "part", "le", "value", "at_ns") == [
        *(*bounds, ("queue", "count", None, 2, None), ("queue", "sum", None, 1.25, None)),
        ("generated_tokens", "total", None, 40, None),
        ("running", "value", None, 3, 1_780_000_000_000_000_000),
    ]
    assert set(rows(found, "series", "scrape")) == {('engine="0"', 0)}
    assert found.left_out == {"samples that are NaN": 1, "samples that are not read": 1}


def test_units_and_servers(tmp_path: Path) -> None:
    """Milliseconds become seconds, counts of observations stay."""
    name = "sglang:kv_transfer_latency_ms"
    found = read(tmp_path, f'{name}_bucket{{le="20"}} 3\n{name}_count 3\n{name}_sum 30\n')
    assert rows(found, "metric", "part", "le", "value") == [
        ("transfer", part, le, value)
        for part, le, value in (("bucket", 0.02, 3), ("count", None, 3), ("sum", None, 0.03))
    ]
    # their names are not kept: the second one is numbered
    text = "".join(f'vllm:prompt_tokens_total{{instance="host{n}"}} {n}\n' for n in (1, 2))
    assert rows(read(tmp_path, text), "scrape", "series") == [(0, ""), (0, 'series="2"')]


def test_telemetry_of_an_agent_of_nixl(tmp_path: Path) -> None:
    """As its exporter names them: bytes and transfers are counters, times a histogram in us."""
    own = '{agent_name="a",hostname="h"}'
    counts = {"tx_bytes_total": 4096, "tx_last_bytes": 4096, "tx_requests_num_total": 2, "rx_bytes_total": 0}
    counts |= {"xfer_time_us_count": 2, "xfer_time_us_sum": 50, "xfer_time_total": 50}
    text = "".join(f"agent_{name}{own} {value}\n" for name, value in counts.items())
    path = tmp_path / "nixl.prom"
    path.write_text(text)
    assert recognise_format(path, text.encode()).name == "prometheus"
    found = read(tmp_path, text)
    assert rows(found, "metric", "part", "value") == [
        *(("sent_bytes", "total", 4096), ("sent_transfers", "total", 2), ("received_bytes", "total", 0)),
        *(("transfer", "count", 2), ("transfer", "sum", 50e-6)),
    ]
    assert found.left_out == {"samples that are not read": 2}


def test_a_sample_that_repeats_begins_another_scrape(tmp_path: Path) -> None:
    first = 'vllm:prompt_tokens_total{engine="0"} 1\nvllm:prompt_tokens_total{engine="1"} 2\n'
    found = read(tmp_path, f"# time_ns 5\n{first}{first}# time_ns 9\n{first}")
    assert rows(found, "scrape", "series", "at_ns") == [
        (scrape, f'engine="{n}"', at) for scrape, at in enumerate((5, None, 9)) for n in (0, 1)
    ]


def test_published_lines_have_no_other_words(tmp_path: Path) -> None:
    """Models, hosts, comments and other metrics go; what is read stays the same."""
    source, target = tmp_path / "metrics.prom", tmp_path / "published.prom"
    secret = SNAPSHOT.replace('"m"', '"/home/somebody/m",instance="gpunode17:8000"')
    secret = secret.replace("Histogram", "Zebra")
    second = "".join(f'vllm:prompt_tokens_total{{pod="somebody-{n}"}} {n + 4}\n' for n in (1, 2))
    source.write_text(f'# time_ns 7\n{secret}{second}zebra_total{{engine="zebra"}} 1 # {{trace="zebra"}} 1\n')
    redact_evidence(source, target)
    text = target.read_text()
    assert not any(word in text.lower() for word in ("somebody", "gpunode17", "zebra", "process"))
    before, after = Prometheus().read(source), Prometheus().read(target)
    assert before.server_metrics == after.server_metrics


LINE = 'vllm:prompt_tokens_total{engine="0"} 1\n'
QUEUE = "vllm:request_queue_time_seconds"
BAD: dict[str, tuple[str, str]] = {
    "cut within a number": (LINE + LINE[:-1], "line 2: has no end"),
    "cut within labels": (LINE + 'vllm:prompt_tokens_total{engine="0\n', "line 2: is not a sample"),
    "empty": ("", "has no metric of a serving engine"),
    "others only": ("process_cpu_seconds_total 25.6\n", "has no metric of a serving engine"),
    "a value of text": (LINE.replace("1\n", "many\n"), "line 1: has text where a number belongs"),
    "a negative count": (LINE.replace("1\n", "-1\n"), "line 1: has a value below 0"),
    "an endless count": (LINE.replace("1\n", "+Inf\n"), "line 1: has a value below 0 or beyond"),
    "a bucket without bound": (f"{QUEUE}_bucket 1\n", "line 1: has a bound that is not"),
    "a bound of text": (QUEUE + '_bucket{le="x"} 1\n', "line 1: has text where"),
    "a bound of NaN": (QUEUE + '_bucket{le="NaN"} 1\n', "without a bound"),
    "a bound of a count": (QUEUE + '_count{le="1"} 1\n', "line 1: has a bound that is not"),
    "a time beyond all": ("# time_ns 99999999999999999999\n" + LINE, "line 1: has a time before 1970"),
    "prose": ("vllm:prompt_tokens_total goes up\n", "line 1: "),
}


@pytest.mark.parametrize("case", BAD)
def test_damage_is_an_error_that_says_where(tmp_path: Path, case: str) -> None:
    text, says = BAD[case]
    refused(lambda _: read(tmp_path, text), tmp_path / "metrics.prom", says)
