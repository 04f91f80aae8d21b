# SPDX-License-Identifier: Apache-2.0
"""A client's figures of a whole benchmark, under the names of all versions, and of each request."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from cclbench.formats.serving.lines import MOST, WrittenResult, is_number
from cclbench.ground.evidence_schema import REQUESTS

_FIGURES: Final = {
    "duration": ("duration", "s"),
    "completed": ("completed", "count"),
    "failed": ("failed", "count"),
    "total_input_tokens": ("input_tokens", "count"),
    "total_input": ("input_tokens", "count"),
    "total_output_tokens": ("output_tokens", "count"),
    "total_output": ("output_tokens", "count"),
    "request_throughput": ("request_throughput", "1/s"),
    "request_inthroughput": ("request_throughput", "1/s"),
    "request_goodput": ("goodput", "1/s"),
    "request_goodput:": ("goodput", "1/s"),
    "input_throughput": ("input_throughput", "1/s"),
    "output_throughput": ("output_throughput", "1/s"),
    "total_token_throughput": ("total_throughput", "1/s"),
    "total_throughput": ("total_throughput", "1/s"),
    "concurrency": ("concurrency", "count"),
    "max_concurrent_requests": ("peak_concurrency", "count"),
    "accept_length": ("accept_length", "count"),
}
"""Figure and unit by the client's name; the spelling with a colon is vLLM's until 2025."""
_STAT: Final = r"mean|median|std|min|max|p(?:[1-9]?\d|99\.9{1,3})"
"""A closed set: the column's dictionary has at most 127 entries."""
_LATENCY = re.compile(rf"({_STAT})_(ttft|tpot|itl|e2el|e2e_latency)_ms")
_PERCENTILES = re.compile(r"percentiles_(ttft|tpot|itl|e2el)_ms")
_LISTS: Final = ("input_lens", "output_lens", "ttfts", "itls", "latencies", "errors")
_LOAD: Final = ("request_rate", "max_concurrency", "num_prompts", "burstiness")
_TEXTS: Final = ("generated_texts",)
_NAME = re.compile(r"[\w.+:@-]{1,128}", re.ASCII)
LONGEST_RUN_S: Final = 30 * 86_400
LONGEST_WAIT_S: Final = 86_400
LOAD_UNITS: Final = {"max_concurrency": "count", "request_rate": "1/s"}
"""Offered load that is a figure, with its unit."""

Key = tuple[str, str | None]
Column = list[int | None]


def benchmark_settings(written: WrittenResult) -> dict[str, str | int | float]:
    """Client, backend, data set, the model's name without its path, and the requested load."""
    entries, settings = written.entries, dict[str, str | int | float]()
    names = {
        "client": "vLLM" if "tokenizer_id" in entries else "SGLang" if "dataset_name" in entries else None,
        "backend": entries.get("backend", entries.get("endpoint_type")),
        "dataset": entries.get("dataset_name"),
        "model": model_name(entries.get("model_id")),
    }
    settings |= {key: name for key, name in names.items() if isinstance(name, str) and _NAME.fullmatch(name)}
    for key in _LOAD:
        value = entries.get(key)
        if isinstance(value, float) and value == math.inf:
            settings[key] = "inf"
        elif value in ("inf", "trace"):
            settings[key] = value
        elif value is not None:
            number = written.bounded_number(key, value)
            settings[key] = int(number) if number.is_integer() else number
    return settings


def model_name(stated: object) -> str | None:
    """The last part of a model's name or path; None if it is no name."""
    name = stated.replace("\\", "/").rstrip("/").rpartition("/")[2] if isinstance(stated, str) else ""
    return name if _NAME.fullmatch(name) else None


def figure_rows(written: WrittenResult, benchmark: int) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Rows of `SERVING`, and the number of entries left out, by reason."""
    rows_by_key, left_out = dict[Key, dict[str, Any]](), Counter[str]()
    for name, value, key, unit, most in _stated_figures(written):
        if key is None:
            left_out["settings and figures that have no column"] += 1
        elif is_number(value) and value < 0 and key[1] is not None:
            left_out["negative latencies"] += 1  # SGLang subtracts readings of two clocks
        elif isinstance(value, float):
            left_out["figures that are NaN or infinite"] += 1
        elif value is not None:
            row = {"benchmark": benchmark, "figure": key[0], "stat": key[1], "unit": unit}
            rows_by_key.setdefault(key, row | {"value": written.bounded_number(name, value, most)})
    # The clients write 0 for every statistic of an empty list.
    empty = {figure for (figure, stat), row in rows_by_key.items() if stat == "mean" and row["value"] == 0}
    if empty:
        left_out["latencies that no request had, written as 0"] += sum(
            figure in empty for figure, _ in rows_by_key
        )
    return [row for (figure, _), row in rows_by_key.items() if figure not in empty], left_out


def load_rows(settings: Mapping[str, str | int | float], benchmark: int) -> Iterator[dict[str, Any]]:
    """Rows of `SERVING` of the offered load, as far as it is limited."""
    for figure, unit in LOAD_UNITS.items():
        value = settings.get(figure)
        if isinstance(value, int | float):
            yield {
                "benchmark": benchmark,
                "figure": figure,
                "stat": None,
                "unit": unit,
                "value": float(value),
            }


def _stated_figures(written: WrittenResult) -> Iterator[tuple[str, Any, Key | None, str, int]]:
    """Name, value in base units, key, unit and largest value of every figure; key None if it is not read."""
    for name, value in written.entries.items():
        if definition := _FIGURES.get(name):
            figure, unit = definition
            yield name, value, (figure, None), unit, LONGEST_RUN_S if unit == "s" else MOST
        elif latency := _LATENCY.fullmatch(name):
            yield (
                name,
                _milliseconds_to_seconds(value),
                _figure_key(latency[2], latency[1]),
                "s",
                LONGEST_WAIT_S,
            )
        elif latency := _PERCENTILES.fullmatch(name):
            for pair in written.list_of(name) or []:
                if not isinstance(pair, list) or len(pair) != 2:
                    raise written.entry_error(f"{name} has an entry that is not a percentile and its time")
                stat = f"p{written.bounded_number(name, pair[0], 100):g}"
                key = _figure_key(latency[1], stat) if re.fullmatch(_STAT, stat) else None
                yield name, _milliseconds_to_seconds(pair[1]), key, "s", LONGEST_WAIT_S
        elif name not in (*_LOAD, *_LISTS, *_TEXTS) and not isinstance(value, str | bool | None):
            yield name, value, None, "", MOST


def _milliseconds_to_seconds(milliseconds: object) -> object:
    if is_number(milliseconds) and -MOST < milliseconds < MOST:
        return milliseconds / Decimal(1000)
    return milliseconds  # unchanged: not a number, or out of range


def _figure_key(figure: str, stat: str) -> Key:
    return "e2e_latency" if figure == "e2el" else figure, "p50" if stat == "median" else stat


def request_table(written: WrittenResult, benchmark: int) -> pa.Table:
    """Rows of `REQUESTS`; none if the result has no lists.

    The clients initialise times to 0: a time to first token or a latency of 0 means no answer, and is null.
    """
    lists = {name: values for name in _LISTS if (values := written.list_of(name)) is not None}
    if len({len(values) for values in lists.values()}) > 1:
        lengths = ", ".join(f"{name} {len(values):,}" for name, values in lists.items())
        raise written.entry_error(f"its lists have different numbers of requests: {lengths}")
    count = len(next(iter(lists.values()), []))
    nothing: list[None] = [None] * count
    output = _token_column(written, "output_lens", lists)
    ttft = [ns or None for ns in _nanoseconds(written, "ttfts", lists.get("ttfts", []))] or nothing
    e2e = [ns or None for ns in _nanoseconds(written, "latencies", lists.get("latencies", []))] or nothing
    columns = {
        "benchmark": [benchmark] * count,
        "request": range(count),
        "success": _request_success(
            written, lists, output or [], [a or b for a, b in zip(ttft, e2e, strict=True)]
        ),
        "input_tokens": _token_column(written, "input_lens", lists),
        "output_tokens": output,
        "ttft_ns": ttft,
        "e2e_ns": e2e,
        "itl_ns": _token_gaps(written, lists),
    }
    return pa.table({name: columns.get(name) or nothing for name in REQUESTS.names}, schema=REQUESTS)


def _token_column(written: WrittenResult, name: str, lists: dict[str, list[Any]]) -> Column | None:
    values = lists.get(name)
    if values is not None and any(type(v) is not int or not 0 <= v < 1 << 31 for v in values):
        raise written.entry_error(f"{name} has an entry that is not a number of tokens")
    return values


def _token_gaps(written: WrittenResult, lists: dict[str, list[Any]]) -> list[list[int]] | None:
    listed = lists.get("itls")
    if listed is None:
        return None
    if not all(isinstance(gaps, list) for gaps in listed):
        raise written.entry_error("itls has an entry that is not a list of times")
    return [_nanoseconds(written, "itls", gaps) for gaps in listed]


def _nanoseconds(written: WrittenResult, name: str, seconds: list[Any]) -> list[int]:
    """Nanoseconds, exact by the digits of the file."""
    if not all(is_number(value) and 0 <= value <= LONGEST_WAIT_S for value in seconds):
        raise written.entry_error(f"{name} has an entry that is not a time from 0 s to a day")
    return [round(value * 10**9) for value in seconds]


def _request_success(
    written: WrittenResult, lists: dict[str, list[Any]], output: Column, times: Column
) -> list[bool | None]:
    """Whether each request succeeded: no error, and at least one token.

    If neither is listed: whether it has a time, provided that as many have one as the client states
    completed.
    """
    if "errors" in lists and output:
        return [not error and tokens != 0 for error, tokens in zip(lists["errors"], output, strict=True)]
    if "errors" in lists:
        return [not error for error in lists["errors"]]
    if output:
        return [tokens != 0 for tokens in output]
    timed = [ns is not None for ns in times]
    return list(timed) if sum(timed) == written.entries.get("completed") else [None] * len(times)
