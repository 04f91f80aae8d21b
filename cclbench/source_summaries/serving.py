# SPDX-License-Identifier: Apache-2.0
"""Results of serving benchmarks: failed requests, throughput by load, percentiles of latencies."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from cclbench.analyzers.benchmarks import Benchmark, run_benchmarks
from cclbench.analyzers.request_spans import first_token_parts, span_requests
from cclbench.analyzers.serving import latency_values, output_tokens, rate_value
from cclbench.ground.units import humanise
from cclbench.source_summaries.summary import Cell, FigureColumn, FigureTable, SourceSummary, SummaryInputs

_STATS: Final = ("mean", "p50", "p90", "p99")
FIGURE_WORDS: Final = {
    "ttft": "time to first token",
    "tpot": "time per output token",
    "itl": "inter-token latency",
    "e2e_latency": "end-to-end latency",
}
_LOADS: Final = (
    FigureColumn(name="benchmark"),
    FigureColumn(name="concurrency", unit="count"),
    FigureColumn(name="request rate", detail=True),
    FigureColumn(name="answered", unit="count", detail=True),
    FigureColumn(name="not answered", unit="count"),
    FigureColumn(name="requests", unit="1/s", detail=True),
    FigureColumn(name="output tokens", unit="1/s", lead=True),
    FigureColumn(name="TTFT p50", unit="s"),
    FigureColumn(name="TTFT p99", unit="s"),
    FigureColumn(name="TPOT p50", unit="s"),
)
_LATENCIES: Final = (
    FigureColumn(name="load", key=True),
    FigureColumn(name="latency", key=True),
    *(FigureColumn(name=stat, unit="s", lead=stat == "p50") for stat in _STATS),
)
_Latencies = dict[str, dict[str, float | None]]
"""By figure and statistic."""


def summarise_serving(inputs: SummaryInputs) -> Iterator[SourceSummary]:
    """All benchmarks of the source by load; failed requests first."""
    benchmarks = sorted(run_benchmarks(inputs.view), key=_load_order)
    if not benchmarks:
        return
    several = len(benchmarks) > 1
    concurrencies = [_settings(benchmark).get("max_concurrency") for benchmark in benchmarks]
    # A sweep over loads is compared by load, whatever its files are called.
    by_load = None not in concurrencies and len(set(concurrencies)) == len(concurrencies)
    loads, latencies = list[tuple[Cell, ...]](), list[tuple[Cell, ...]]()
    for benchmark, concurrency in zip(benchmarks, concurrencies, strict=True):
        name = benchmark.label if several else None
        figures = _latencies_of(benchmark)
        loads.append((name, *_load_cells(benchmark), *_typical(figures)))
        load = f"concurrency {concurrency}" if by_load and several else name
        latencies += [
            (load, FIGURE_WORDS[figure], *map(by_stat.get, _STATS)) for figure, by_stat in figures.items()
        ]
    yield SourceSummary(
        kind="serving",
        heading=f"Results of {len(benchmarks):,} serving benchmarks"
        if several
        else "Results of a serving benchmark",
        warnings=[words for benchmark in benchmarks for words in _failure_words(benchmark)],
        sentences=[*_best_sentences(loads), *_first_token_sentence(inputs)],
        tables=[
            FigureTable(
                subject="load",
                title="Load and throughput",
                columns=_load_columns(by_load=by_load),
                rows=loads,
                detail=not several,
                ascending=True,
            ),
            FigureTable(
                subject="latency",
                title="Latencies of requests",
                columns=_LATENCIES,
                rows=latencies,
                detail=several,
            ),
        ][: 2 if latencies else 1],
        absent=[] if latencies else ["no latencies: the files state none"],
    )


def _first_token_sentence(inputs: SummaryInputs) -> Iterator[str]:
    """What the time to first token consists of, by the server's spans."""
    if parts := first_token_parts(span_requests(inputs.view)):
        ttft, queue, prefill = (humanise(part, "s") for part in parts)
        yield f"Of {ttft} to the first token in the mean {queue} are queue and {prefill} prefill, by spans."


def _load_columns(*, by_load: bool) -> tuple[FigureColumn, ...]:
    """`_LOADS`, with the concurrency as key in place of the file if it tells benchmarks apart."""
    keys = {"benchmark": not by_load, "concurrency": by_load}
    return tuple(replace(column, key=keys.get(column.name, False)) for column in _LOADS)


def _settings(benchmark: Benchmark) -> dict[str, Cell]:
    """The client's settings; empty where they are unknown."""
    settings: dict[str, Cell] = json.loads(benchmark.settings) if benchmark.settings else {}
    return settings


def _answered_and_not(benchmark: Benchmark) -> tuple[int | None, int | None]:
    """Numbers of answered and of other requests, as listed, else as the file states; None where unknown."""
    if len(benchmark.requests) and not benchmark.unknown_count:
        answered = len(benchmark.answered_requests)
        return answered, len(benchmark.requests) - answered
    completed, failed = (benchmark.stated.get((name, None)) for name in ("completed", "failed"))
    sent = _settings(benchmark).get("num_prompts")
    if completed is None:
        return None, None if failed is None else int(failed)
    if failed is None and isinstance(sent, int | float) and sent >= completed:
        failed = sent - completed
    return int(completed), None if failed is None else int(failed)


def _load_order(benchmark: Benchmark) -> tuple[float, str]:
    concurrency = _settings(benchmark).get("max_concurrency")
    return (concurrency if isinstance(concurrency, int | float) else math.inf), benchmark.label


def _load_cells(benchmark: Benchmark) -> tuple[Cell, ...]:
    """The cells of `_LOADS` from the concurrency to the output tokens."""
    settings = _settings(benchmark)
    rate = settings.get("request_rate")
    return (
        settings.get("max_concurrency"),
        None if rate is None else str(rate),
        *_answered_and_not(benchmark),
        rate_value(benchmark, "request_throughput", len).value,
        rate_value(benchmark, "output_throughput", output_tokens).value,
    )


def _latencies_of(benchmark: Benchmark) -> _Latencies:
    """Mean and percentiles of each latency that is known."""
    figures = {
        figure: {value.stat or "mean": value.value for value in latency_values(benchmark, figure)}
        for figure in FIGURE_WORDS
    }
    return {
        figure: by_stat
        for figure, by_stat in figures.items()
        if any(value is not None for value in by_stat.values())
    }


def _typical(figures: _Latencies) -> tuple[float | None, ...]:
    """The last three cells of `_LOADS`."""
    return tuple(
        figures.get(figure, {}).get(stat)
        for figure, stat in (("ttft", "p50"), ("ttft", "p99"), ("tpot", "p50"))
    )


def _failure_words(benchmark: Benchmark) -> Iterator[str]:
    answered, failed = _answered_and_not(benchmark)
    if failed:
        total = "" if answered is None else f" of {answered + failed:,}"
        yield f"{benchmark.label}: {failed:,}{total} requests were not answered"
    if benchmark.unknown_count:
        yield f"{benchmark.label}: the outcome of {benchmark.unknown_count:,} requests is unknown"


def _best_sentences(loads: Sequence[tuple[Cell, ...]]) -> Iterator[str]:
    """The benchmark with the most output tokens a second: its load, and its time to first token."""
    rated_rows = [(row[6], row) for row in loads if isinstance(row[6], int | float)]
    if not rated_rows:
        return
    rate, best = max(rated_rows, key=lambda pair: pair[0])
    label, concurrency, _, answered, _, _, _, median, p99, _ = best
    text = f"{'At most ' if len(loads) > 1 else ''}{rate:,.0f} output tokens/s"
    text += "" if label is None else f", by {label}"
    text += f", concurrency {concurrency:,}" if isinstance(concurrency, int | float) else ""
    text += f", {answered:,} requests answered" if isinstance(answered, int | float) else ""
    yield f"{text}."
    if isinstance(median, int | float):
        tail = f", {humanise(p99, 's')} at the 99th percentile" if isinstance(p99, int | float) else ""
        yield f"Its first token takes {humanise(median, 's')} in the median{tail}."
