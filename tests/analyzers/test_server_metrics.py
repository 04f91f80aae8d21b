# SPDX-License-Identifier: Apache-2.0
"""A request's time by the server's histograms: parts that add up, bounds of percentiles, differences."""

from __future__ import annotations

from math import inf, nextafter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.hand_made import Evidence, job_values
from helpers.hand_values import told
from hypothesis import given
from hypothesis import strategies as st

from cclbench.analyzers.metric import Value
from cclbench.analyzers.view.server_metrics import GONE, RESTARTED, SINCE_START, Histogram
from cclbench.ground.evidence_schema import SERVER_METRICS

Sample = tuple[str, str, float | None, float]


def histogram(metric: str, count: float, total: float, *buckets: tuple[float, float]) -> list[Sample]:
    """Samples of one histogram."""
    rows: list[Sample] = [(metric, "count", None, count), (metric, "sum", None, total)]
    return rows + [(metric, "bucket", bound, value) for bound, value in buckets]


def table(samples: list[Sample], file: str = "a.prom", scrape: int = 0, series: str = "") -> pa.Table:
    """Rows of a scrape."""
    own = {"source": "prometheus", "file": file, "scrape": scrape, "at_ns": None, "series": series}
    rows: list[dict[str, Any]] = [
        own | {"metric": metric, "part": part, "le": le, "value": value}
        for metric, part, le, value in samples
    ]
    return pa.Table.from_pylist(rows, schema=SERVER_METRICS)


def values(metric: str, *tables: pa.Table) -> list[Value]:
    together = pa.concat_tables(tables).unify_dictionaries()
    return job_values(f"serving.{metric}", Evidence(server_metrics=together))


def parts(count: float, whole: float, queue: float, prefill: float, decode: float) -> list[Sample]:
    own = {"e2e_latency": whole, "queue": queue, "prefill": prefill, "decode": decode}
    return [row for name, total in own.items() for row in histogram(name, count, total)]


def test_parts_of_a_requests_time_add_up() -> None:
    """4 requests between the snapshots: 12 s in all, 2 s queued, 1 s of prefill, 8 s of decoding."""
    before = table(parts(2, 100, 10, 20, 30), "m_before.prom")
    found = values("request_time", before, table(parts(6, 112, 12, 21, 38), "m_after.prom"))
    assert told(found) == {None: 3.0, "queue": 0.5, "prefill": 0.25, "decode": 2.0, "outside": 0.25}
    assert {(value.reason, value.source) for value in found} == {("of 4 requests", "prometheus")}
    # One snapshot is since the start.
    whole, *_ = values("request_time", table(parts(2, 6, 1, 1, 3)))
    assert (whole.value, whole.reason) == (3.0, f"of 2 requests; {SINCE_START}")


def test_scrapes_of_one_file_and_servers_add_up() -> None:
    """First and last scrape; a server that appears later counts from 0."""
    scrapes = [(1, 5, 1, 1, 2), (2, 50, 1, 1, 2), (3, 65, 11, 1, 42)]
    tables = [table(parts(*one), scrape=n) for n, one in enumerate(scrapes)]
    found = told(values("request_time", *tables, table(parts(1, 12, 2, 4, 6), scrape=2, series='engine="1"')))
    assert (found[None], found["queue"]) == ((60 + 12) / 3, (10 + 2) / 3)
    assert sum(found[part] or 0 for part in ("queue", "prefill", "decode", "outside")) == 24
    # Two servers' files are kept apart.
    both = values("request_time", table(parts(1, 2, 0, 0, 1), "a"), table(parts(1, 4, 0, 0, 1), "b"))
    assert both[0].reason == "2 servers: see their rows"
    assert (told(both)["a"], told(both)["b: decode"]) == (2, 1)


FIRST, GONE_SERVER = table(parts(3, 9, 1, 1, 1)), table(parts(1, 3, 0, 0, 1), series="s")


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ([FIRST, table(parts(1, 3, 0, 0, 1), scrape=1)], RESTARTED),
        ([FIRST, GONE_SERVER, table(parts(4, 9, 1, 1, 1), scrape=1)], GONE),
        ([table(histogram("queue", 1, 1))], "the snapshots have no e2e latency"),
        ([table(parts(0, 0, 0, 0, 0))], "no request finished"),
    ],
)
def test_no_time_without_a_difference(tables: list[pa.Table], reason: str) -> None:
    (found,) = values("request_time", *tables)
    assert (found.status, found.reason) == ("not_applicable", reason)


def test_parts_of_other_requests_do_not_add_up() -> None:
    samples = parts(4, 12, 2, 1, 8)
    samples[2] = ("queue", "count", None, 5)
    whole, outside = values("request_time", table(samples))
    assert (whole.value, outside.reason) == (3, "4 requests finished, but queue 5 were timed")
    _, outside = values("request_time", table(histogram("e2e_latency", 4, 12)))
    assert outside.reason == "the server does not time its queue, prefill, decode"
    # A rest below zero says why.
    *_, outside = values("request_time", table(parts(1, 1, 1, 1, 1)))
    assert (outside.value, "read other clocks" in (outside.reason or "")) == (-2, True)


def test_bounds_of_percentiles_are_those_of_the_bucket() -> None:
    """10 observations: 5 up to 1 s, 4 up to 2 s, 1 beyond: the 5th, the 9th and the 10th."""
    buckets = ((0.5, 0), (1.0, 5), (2.0, 9), (inf, 10))
    found = values("server_latency", table(histogram("ttft", 10, 14, *buckets)))
    shown, bounds = told(found), {50: (0.5, 1.0), 90: (1.0, 2.0), 99: (2.0, None)}
    assert shown["ttft"] == 1.4
    for percent, (low, high) in bounds.items():
        assert (shown["ttft", f"p{percent}_low"], shown["ttft", f"p{percent}_high"]) == (low, high)
    (beyond,) = (value for value in found if value.stat == "p99_high")
    assert beyond.reason == "beyond the last bucket"
    # Servers with other buckets have no bounds.
    one = table(histogram("ttft", 1, 1, (1.0, 1), (inf, 1)), series="a")
    found = values("server_latency", one, table(histogram("ttft", 1, 2, (3.0, 1), (inf, 1)), series="b"))
    assert told(found)["ttft"] == 1.5
    assert all(v.status == "not_applicable" for v in found if v.stat is not None)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=40), st.sampled_from((50, 90, 99)))
def test_bounds_contain_the_observation(observations: list[float], percent: int) -> None:
    bounds = np.array([0.5, 1.0, 2.0, 4.0, 8.0, inf])
    cumulative = np.array([sum(x <= bound for x in observations) for bound in bounds], np.float64)
    histogram = Histogram(bounds, cumulative, sum(observations), len(observations))
    found = histogram.quantile_bounds(percent)
    assert found is not None
    wanted = sorted(observations)[-(-percent * len(observations) // 100) - 1]
    assert (nextafter(found[0], inf) if found[0] else 0) <= wanted <= found[1]


def test_prefix_hits() -> None:
    def counted(queries: float, hits: float, scrape: int) -> pa.Table:
        totals = {"prefix_queries": queries, "prefix_hits": hits}
        return table([(name, "total", None, value) for name, value in totals.items()], scrape=scrape)

    (found,) = values("prefix_hit_rate", counted(100, 50, 0), counted(300, 80, 1))
    assert (found.value, found.reason) == (0.15, "30 of 200 tokens")
    (none,) = values("prefix_hit_rate", counted(0, 0, 0))
    assert none.reason == "no token was queried"


@pytest.mark.parametrize("metric", ["request_time", "server_latency", "prefix_hit_rate"])
def test_without_snapshots_it_says_what_to_take(metric: str) -> None:
    (none,) = job_values(f"serving.{metric}", Evidence())
    assert "needs snapshots of the server's metrics" in (none.reason or "")


def test_a_transfers_bytes_and_bandwidth() -> None:
    """4 transfers of 8 MiB in all, 16 ms: 2 MiB each, 512 MiB/s; untimed ones have no bandwidth."""
    sizes, times = histogram("transferred_bytes", 4, 8 << 20), histogram("transfer", 4, 1 / 64)
    own = {value.stat: value.value for value in values("kv_transfer", table(sizes + times))}
    assert own == {None: 2 << 20, "sum": 8 << 20, "bandwidth": 512 << 20}
    *_, rate = values("kv_transfer", table(sizes))
    assert (rate.stat, rate.reason) == ("bandwidth", "the snapshots do not time transfers")


def test_transfers_by_an_agents_counters() -> None:
    """NIXL: two writes of 3 kB and a read of 1 kB in all, 50 us: 4/3 kB each."""
    moved = {"sent_bytes": 3000, "sent_transfers": 2, "received_bytes": 1000, "received_transfers": 1}
    samples: list[Sample] = [(name, "total", None, value) for name, value in moved.items()]
    found = values("kv_transfer", table(samples + histogram("transfer", 3, 50e-6)))
    assert {value.stat: value.value for value in found} == {
        None: pytest.approx(4000 / 3),
        "sum": 4000,
        "bandwidth": pytest.approx(4000 / 50e-6),
    }
    idle: list[Sample] = [(name, "total", None, 0) for name in moved]
    assert [value.value for value in values("kv_transfer", table(idle))] == [None]
