# SPDX-License-Identifier: Apache-2.0
"""Serving's metrics on hand-made requests and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from helpers.hand_made import Evidence, job_values
from helpers.hand_made import card as a_card

from cclbench.analyzers.metric import Coverage, Value
from cclbench.card.model import Card
from cclbench.ground.evidence_schema import REQUESTS, SERVING

MS = 10**6

METRIC_NAMES = ["ttft", "tpot", "itl", "e2e_latency", "request_throughput", "output_throughput", "goodput"]
NO_CLIENT = "a kernel trace has no requests or tokens: it needs the client's benchmark file"
STATED = "as stated by the client's file"


PIECES = (
    "of one output token or of unknown length",
    "answered in one piece",
    "without a latency",
    "with the last token before the first",
)


def _request(
    tokens: int | None, ttft: float | None, gaps: list[int] | None, *, whole: float | None = None, **more: Any
) -> dict[str, Any]:
    """An answered request: its tokens, and ms to the first one, between them and to the last one."""
    times = {"ttft_ns": ttft and round(ttft * MS), "e2e_ns": whole and round(whole * MS)}
    listed = None if gaps is None else [gap * MS for gap in gaps]
    return {"success": True, "output_tokens": tokens, "itl_ns": listed, **times, **more}


REQUEST_ROWS = [_request(3, 100, [10, 30]), _request(1, 200, []), _request(0, 5, [7], success=False)]
REQUEST_ROWS += [_request(5, 300, [20, 20, 20, 40]), _request(4, 400, [])]

DURATION = ("duration", None, 2.0)

Stated = tuple[str, str | None, float]


def _requests(rows: Sequence[dict[str, Any]], file: str = "a.json", benchmark: int = 0) -> pa.Table:
    own = {"source": "serving", "file": file, "benchmark": benchmark}
    numbered = [dict.fromkeys(REQUESTS.names) | own | {"request": n} | row for n, row in enumerate(rows)]
    return pa.Table.from_pylist(numbered, schema=REQUESTS)


def _serving(*stated: Stated, file: str = "a.json", benchmark: int = 0) -> pa.Table:
    own = {"source": "serving", "file": file, "benchmark": benchmark, "unit": "s"}
    rows = [own | {"figure": figure, "stat": stat, "value": value} for figure, stat, value in stated]
    return pa.Table.from_pylist(rows, schema=SERVING)


def _values(
    metric: str,
    *tables: pa.Table,
    card: Card | None = None,
    settings: Mapping[str, Mapping[str, object]] | None = None,
) -> list[Value]:
    kinds: dict[str, list[pa.Table]] = {}
    for table in tables:
        kinds.setdefault("requests" if table.schema == REQUESTS else "serving", []).append(table)
    together = {name: pa.concat_tables(of).unify_dictionaries() for name, of in kinds.items()}
    return job_values(f"serving.{metric}", Evidence(**together), card=card, settings=settings)


def _numbers(values: Sequence[Value]) -> dict[str | None, float | None]:
    assert all(value.status == "ok" and value.source == "serving" for value in values)
    return {value.stat: value.value for value in values}


@pytest.mark.parametrize(
    ("metric", "mean", "p50", "p90", "p99"),
    [
        ("ttft", 0.250, 0.250, 0.370, 0.397),  # of 100, 200, 300, 400 ms
        ("itl", 0.140 / 6, 0.020, 0.035, 0.0395),  # of 10, 20, 20, 20, 30, 40 ms
        ("e2e_latency", 0.285, 0.300, 0.400, 0.400),  # of 140, 200, 400, 400 ms
        ("tpot", 0.0225, 0.0225, 0.0245, 0.02495),  # of 40 ms / 2 and 100 ms / 4
    ],
)
def test_latencies_of_answered_requests(metric: str, mean: float, p50: float, p90: float, p99: float) -> None:
    found = _numbers(_values(metric, _requests(REQUEST_ROWS)))
    assert found == pytest.approx({None: mean, "p50": p50, "p90": p90, "p99": p99}, rel=1e-12)


def test_what_latencies_leave_out_and_rest_on() -> None:
    (ttft, *_), (tpot, *_) = (_values(metric, _requests(REQUEST_ROWS)) for metric in ("ttft", "tpot"))
    assert (ttft.provenance, tpot.provenance) == ("measured", "derived")
    assert ttft.words == "left out: 1 failed"
    left_out = dict(zip(PIECES, (1, 1, 0, 0), strict=True))
    assert tpot.left_out == {"failed": 1, "of unknown outcome": 0, **left_out}


def test_latencies_as_listed_are_measured_and_preferred_to_sums() -> None:
    """Tokens take (500 − 100) / 2 and (500 − 300) / 4 ms; a last token before the first is left out."""
    rows = [row | {"e2e_ns": 500 * MS} for row in REQUEST_ROWS]
    (mean, *_), (derived, *_) = (_values("e2e_latency", _requests(own)) for own in (rows, REQUEST_ROWS))
    assert (mean.value, mean.provenance, derived.provenance) == (0.5, "measured", "derived")
    assert _numbers(_values("tpot", _requests(rows)))[None] == pytest.approx(0.125)
    (mean, *_) = _values("tpot", _requests([REQUEST_ROWS[0], REQUEST_ROWS[3] | {"e2e_ns": 1}]))
    assert (mean.value, mean.left_out["with the last token before the first"]) == (0.02, 1)


def test_a_first_token_that_is_the_last_is_no_time_of_zero_but_one_gap_of_zero_is() -> None:
    """Of 200, 0 and nothing: 3 tokens in 200 ms, 2 at once; 1 token has no gap."""
    told = [(3, [200], None), (2, [0], None), (1, [5], None), (3, [], 900)]
    rows = [_request(tokens, 100, gaps, whole=whole) for tokens, gaps, whole in told]
    (mean, *_) = _values("tpot", _requests(rows))
    assert mean.value == pytest.approx((0.1 + 0) / 2)
    assert mean.coverage == Coverage(2, 2)
    assert mean.words == "left out: 1 of one output token or of unknown length, 1 answered in one piece"


UNKNOWN_ROWS = [
    *(_request(3, 100, [10, 30]), _request(3, None, [50]), _request(2, 300, None)),
    # 1 ns before its first token
    *(_request(None, 200, [60], whole=250), _request(2, 200, [10], whole=200 - 1e-6)),
    *(_request(0, 1, [1], success=False), _request(2, 1, [1], success=None)),
]


@pytest.mark.parametrize(
    ("metric", "mean", "requests", "unknown", "left_out", "provenance"),
    [
        # 100, 300, 200 and 200 ms
        ("ttft", 0.2, 4, 1, {"without a time to first token": 1}, "measured"),
        # 10, 30, 50, 60 and 10 ms
        ("itl", 0.032, 4, 1, {"without a list of gaps": 1}, "measured"),
        # 140, 250 and 1 ns less than 200 ms; nobody knows the second's first token and the third's gaps
        ("e2e_latency", 0.589999999 / 3, 3, 2, {"without a latency": 2}, "measured"),
        # 40 / 2 ms
        ("tpot", 0.020, 1, 4, dict(zip(PIECES, (1, 0, 2, 1), strict=True)), "derived"),
    ],
)
def test_requests_that_state_a_part_only_leave_a_latency_partial(
    metric: str, mean: float, requests: int, unknown: int, left_out: dict[str, int], provenance: str
) -> None:
    """One request of unknown outcome may have been answered: it is unknown, too."""
    (own, *_) = _values(metric, _requests(UNKNOWN_ROWS))
    assert own.value == pytest.approx(mean)
    assert own.coverage == Coverage(requests, requests + unknown + 1)
    assert own.left_out == {"failed": 1, "of unknown outcome": 1, **left_out}
    assert (own.status, own.provenance) == ("partial", provenance)


def test_two_benchmarks_of_two_files_are_kept_apart() -> None:
    """Two in either file; a figure that is stated belongs to the file and number that state it."""
    tables = [
        _requests(REQUEST_ROWS[:1], file=file, benchmark=number) for file in ("a", "b") for number in (0, 1)
    ]
    stated = _serving(("duration", None, 4.0), file="b", benchmark=1)
    found = [(value.category, value.value) for value in _values("request_throughput", *tables, stated)]
    assert found == [(None, None), ("a#1", None), ("a#2", None), ("b#1", None), ("b#2", 0.25)]


@pytest.mark.parametrize(("stated", "says"), [(100.0, False), (99.9, True), (102.0, False), (102.1, True)])
def test_a_stated_rate_is_mentioned_where_it_differs_by_a_hundredth(stated: float, says: bool) -> None:
    """101 requests a second, a hundredth more than 100."""
    figures = _serving(("duration", None, 1.0), ("request_throughput", None, stated))
    (rate,) = _values("request_throughput", _requests(REQUEST_ROWS[:1] * 101), figures)
    assert (rate.value, rate.provenance) == (101, "derived")
    assert (rate.reason is not None) is says
    assert (rate.reason or "of the listed requests").startswith("of the listed requests")


LISTED, TIMED = _requests(REQUEST_ROWS), _serving(DURATION)
NONE_ANSWERED = _requests([REQUEST_ROWS[2]])
UNKNOWN_OUTCOME = _requests([row | {"success": None} for row in REQUEST_ROWS])
UNKNOWN_LENGTH = _requests([row | {"output_tokens": None} for row in REQUEST_ROWS])
PARTLY_ANSWERED = _requests([REQUEST_ROWS[0], REQUEST_ROWS[1] | {"success": None}])
RATE, GOODPUT = ("request_throughput", None, 3.0), ("goodput", None, 0.0)
NO_RATE = "the file states none; it needs the duration and the requests' lists"


@pytest.mark.parametrize(
    ("metric", "tables", "value", "why"),
    [
        ("request_throughput", [LISTED, TIMED], 2.0, None),  # 4 / 2 s
        ("output_throughput", [LISTED, TIMED], 6.5, None),  # 13 / 2 s
        ("request_throughput", [NONE_ANSWERED, TIMED], 0.0, None),
        ("output_throughput", [NONE_ANSWERED, TIMED], 0.0, None),
        ("ttft", [NONE_ANSWERED, TIMED], None, "no answered request that the file lists has one"),
        # Without a duration, or an outcome of each request, a stated rate stands.
        ("request_throughput", [LISTED, _serving(RATE)], 3.0, STATED),
        ("request_throughput", [PARTLY_ANSWERED, _serving(DURATION, RATE)], 3.0, STATED),
        ("request_throughput", [UNKNOWN_OUTCOME, _serving(DURATION, RATE)], 3.0, STATED),
        ("request_throughput", [_serving(RATE, GOODPUT, DURATION)], 3.0, STATED),
        ("goodput", [_serving(RATE, GOODPUT, DURATION)], 0.0, STATED),
        ("request_throughput", [LISTED], None, NO_RATE),
        ("output_throughput", [_serving(RATE, GOODPUT, DURATION)], None, NO_RATE),
        ("output_throughput", [UNKNOWN_LENGTH, TIMED], None, NO_RATE),
        ("tpot", [UNKNOWN_LENGTH, TIMED], None, "no answered request that the file lists has one"),
        ("goodput", [TIMED], None, "service-level objectives"),
    ],
)
def test_rates_of_requests_and_as_stated(
    metric: str, tables: list[pa.Table], value: float | None, why: str | None
) -> None:
    own, *_ = found = _values(metric, *tables)
    assert (own.value, own.status) == (value, "not_applicable" if value is None else "ok")
    assert own.reason is None if why is None else why in (own.reason or "")
    assert {one.status for one in found} == {own.status}
    assert value is None or own.provenance == ("measured" if why == STATED else "derived")


def test_requests_of_unknown_outcome_are_not_taken_for_answered() -> None:
    mean, p50, *_ = _values("ttft", UNKNOWN_OUTCOME, _serving(DURATION, ("ttft", "mean", 0.1)))
    assert (mean.value, p50.reason) == (0.1, "no answered request that the file lists has one")


@pytest.mark.parametrize(("stated", "mentioned"), [(0.2524, False), (0.24, True)])
def test_the_files_summary_is_mentioned_where_it_differs(stated: float, mentioned: bool) -> None:
    (mean, *_) = _values("ttft", _requests(REQUEST_ROWS), _serving(("ttft", "mean", stated)))
    assert mean.value == 0.25
    expected = "of the listed requests; the file's own summary states 240 ms" if mentioned else None
    assert mean.reason == expected


def test_summaries_give_what_they_hold() -> None:
    held = [("ttft", "mean", 0.1), ("ttft", "p99", 0.4), ("ttft", "std", 0.05), ("itl", "mean", 9.0)]
    found = {value.stat: value for value in _values("ttft", _serving(*held))}
    assert {stat: value.value for stat, value in found.items()} == {
        None: 0.1, "p50": None, "p90": None, "p99": 0.4, "std": 0.05
    }  # fmt: skip
    assert found["p90"].status == "not_applicable"
    assert found["p90"].reason == (
        "the file has only summaries: p90 needs the requests' lists"
        " (vLLM: --save-detailed, SGLang: --output-details)"
    )
    assert (found[None].provenance, found[None].reason) == ("measured", STATED)


def test_several_benchmarks_have_rows_of_their_own() -> None:
    more = [
        _serving(("ttft", "mean", value), file="b.jsonl", benchmark=n) for n, value in enumerate((0.5, 0.75))
    ]
    first, *others = _values("ttft", LISTED, TIMED, *more)
    assert (first.status, first.reason) == ("not_applicable", "3 benchmarks: see their rows")
    assert (first.category, first.stat) == (None, None)
    means = {value.category: value.value for value in others if value.stat is None}
    assert means == {"a.json": 0.25, "b.jsonl#1": 0.5, "b.jsonl#2": 0.75}
    first, *_ = _values("goodput", TIMED, _serving(DURATION, file="b.json"))
    assert "service-level objectives" in (first.reason or "")


def test_requests_of_no_stated_file_are_a_benchmark_of_their_own() -> None:
    unnamed = _requests(REQUEST_ROWS[:1], file=None)  # type: ignore[arg-type]
    assert _numbers(_values("ttft", unnamed))[None] == pytest.approx(0.1)
    first, *others = _values("ttft", _requests(REQUEST_ROWS), unnamed)
    assert first.reason == "2 benchmarks: see their rows"
    assert [v.value for v in others if v.stat is None] == pytest.approx([0.1, 0.25])


@pytest.mark.parametrize("metric", METRIC_NAMES)
def test_a_run_without_a_client_says_so(metric: str) -> None:
    (only,) = _values(metric)
    assert (only.status, only.reason) == ("not_applicable", NO_CLIENT)


def test_tokens_of_a_device_are_those_of_the_cards_number() -> None:
    """13 tokens out, and 40 in, in 2 s on 4 devices; of summaries what the file states, its devices too."""
    own = a_card(hardware__count=4)
    listed = (_requests([{**row, "input_tokens": 10} for row in REQUEST_ROWS]), TIMED)
    (out,) = _values("output_tokens_per_device", *listed, card=own)
    (total,) = _values("total_tokens_per_device", *listed, card=own)
    assert (out.value, total.value) == (13 / 8, (13 + 40) / 8)
    (stated,) = _values("total_tokens_per_device", _serving(("total_throughput", None, 8.0)), card=own)
    assert stated.value == 2
    of_eight = _serving(("output_throughput", None, 80.0), ("devices", None, 8.0))
    (out,) = _values("output_tokens_per_device", of_eight, card=own)
    assert out.value == 10
    (none,) = _values("output_tokens_per_device", *listed)
    assert none.reason == "needs a workload card with hardware.count"


def _timed(file: str, *milliseconds: int) -> pa.Table:
    """Requests with those times to their first token."""
    return _requests([{"success": True, "ttft_ns": MS * ms} for ms in milliseconds], file=file)


REPEATS = _timed("a_1.json", 100, 200, 300), _timed("a_2.json", 400, 500, 600, 700)


def test_percentiles_of_repeats_are_of_all_their_requests() -> None:
    """The median of 100 to 700 ms is 400; the mean of the two medians, 200 and 550, would be 375."""
    alike = {name: {"max_concurrency": 4} for name in ("a_1.json", "a_2.json")}
    found = _values("ttft", *REPEATS, settings=alike)
    own = {value.stat: value for value in found if value.category is None}
    assert {stat: value.value for stat, value in own.items()} == pytest.approx(
        {None: 0.4, "p50": 0.4, "p90": 0.64, "p99": 0.694}
    )
    assert own["p50"].reason == "of all requests of 2 repeats together"
    assert own["p50"].coverage == Coverage(7, 7)
    each = {value.category: value.value for value in found if value.category and value.stat == "p50"}
    assert each == pytest.approx({"a_1.json": 0.2, "a_2.json": 0.55})
    third = _values("ttft", *REPEATS, _timed("b.json", 1), settings=alike)
    together = [v.value for v in third if v.category == "repeats of a_1.json" and v.stat == "p50"]
    assert together == [pytest.approx(0.4)]
    assert third[0].reason == "3 benchmarks: see their rows"


@pytest.mark.parametrize(
    ("tables", "settings"),
    [
        (REPEATS, [{"max_concurrency": 4}, {"max_concurrency": 8}]),
        (REPEATS, []),
        (REPEATS, [{"max_concurrency": ["4", "8"]}] * 2),
        ((_timed("a_1.json", 1), _timed("b_1.json", 1)), [{"max_concurrency": 4}] * 2),
        ((REPEATS[0], _serving(("ttft", "p50", 0.5), file="a_2.json")), [{"max_concurrency": 4}] * 2),
    ],
)
def test_other_loads_are_not_pooled(tables: tuple[pa.Table, ...], settings: list[dict[str, object]]) -> None:
    files = [table["file"][0].as_py() for table in tables]
    found = _values("ttft", *tables, settings=dict(zip(files, settings, strict=False)))
    assert [value.value for value in found if value.category is None] == [None]
    assert not any((value.category or "").startswith("repeats") for value in found)


def test_the_load_names_what_was_served() -> None:
    """10 requests of 300 and 40 tokens in the mean, 4 at a time."""
    figures = {"max_concurrency": 4.0, "request_rate": 2.5, "completed": 10.0, "input_tokens": 3000.0}
    stated = _serving(*((name, None, value) for name, value in (figures | {"output_tokens": 400.0}).items()))
    found = _values("load", stated, settings={"a.json": {"model": "m", "dataset": "random"}})
    assert {value.stat: value.value for value in found} == {
        None: 4, "request_rate": 2.5, "input_tokens": 300, "output_tokens": 40
    }  # fmt: skip
    assert {value.reason for value in found} == {"m, random"}
    (none,) = _values("load", TIMED)
    assert none.reason == "the client limits no concurrency"
    # Each of several workloads is named by its place.
    loads = [_serving(("max_concurrency", None, 4.0), benchmark=n) for n in (0, 1)]
    settings = {"a.json": {"workloads": ["m, 8 input tokens", "m, 9 input tokens"]}}
    _, *found = _values("load", *loads, settings=settings)
    assert [value.reason for value in found] == settings["a.json"]["workloads"]
