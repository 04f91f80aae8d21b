# SPDX-License-Identifier: Apache-2.0
"""A run's serving benchmarks, and latencies of their answered requests."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.request_spans import SOURCE as SPANS
from cclbench.analyzers.view.columns import has_values, has_word, with_values, word_codes
from cclbench.analyzers.view.run_view import RunView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.ground.evidence_schema import REQUESTS, SERVING

_LAST_NUMBER: Final = re.compile(r"\d+(?=\D*$)")
_NO_REQUESTS: Final = REQUESTS.empty_table()
_NO_FIGURES: Final = SERVING.empty_table()

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Benchmark:
    """One benchmark: its requests (rows of `REQUESTS`) and the figures that its file states."""

    label: str
    requests: pa.Table
    stated: dict[tuple[str, str | None], float]
    settings: str | None = None
    """The client's settings as JSON; None where they are unknown or vary within the file."""
    source: str = "serving"
    """Reader of its file."""
    workload: str | None = None
    """What was served: model and data set, or model and lengths; None where unknown."""

    @property
    def answered_requests(self) -> pa.Table:
        """The requests that were answered."""
        return self.requests.filter(self.requests["success"])

    @property
    def left_out(self) -> dict[str, int]:
        """Number of requests without an answer, by reason."""
        failed = len(self.requests) - len(self.answered_requests) - self.unknown_count
        return {"failed": failed, "of unknown outcome": self.unknown_count}

    @property
    def unknown_count(self) -> int:
        """Number of requests whose outcome is unknown."""
        return int(self.requests["success"].null_count)


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """A latency of the requests, s, and the number of requests without one, by reason."""

    values: Seconds
    requests: int
    """Number of requests behind the values."""
    left_out: dict[str, int]
    unknown: int
    """Number of requests whose latency is unknown."""
    provenance: Literal["measured", "derived"] = "measured"


def run_benchmarks(run: RunView) -> list[Benchmark]:
    """The run's benchmarks, by file and order within it; the label has a number if a file has several."""
    tables = _without_spans_beside_clients(run.table("requests"), run.table("serving"))
    requests, figures = map(_by_benchmark, tables)
    keys = sorted({*requests, *figures})
    of_file = Counter(file for file, _ in keys)
    benchmarks = []
    for file, number in keys:
        settings = run.settings.get(file, {})
        stated = figures.get((file, number), _NO_FIGURES)
        rows = stated.select(["source", "figure", "stat", "value"]).to_pylist()
        listed = requests.get((file, number), _NO_REQUESTS)
        benchmarks.append(
            Benchmark(
                label=f"{file}#{number + 1}" if of_file[file] > 1 else file,
                requests=listed,
                stated={(row["figure"], row["stat"]): row["value"] for row in rows},
                settings=_settings_text(settings),
                source=(rows[0]["source"] if rows else listed["source"][0].as_py()) or "serving",
                workload=_workload_words(settings, number),
            )
        )
    return benchmarks


def _without_spans_beside_clients(*tables: pa.Table) -> tuple[pa.Table, ...]:
    """The tables without the server's spans, if a client has a file: they are of the same requests."""
    sources = {source for table in tables for source in table["source"].unique().to_pylist()}
    if sources == {SPANS}:
        return tables
    return tuple(table.filter(pa.array(~has_word(table, "source", SPANS))) for table in tables)


def _by_benchmark(table: pa.Table) -> dict[tuple[str, int], pa.Table]:
    """The rows of each benchmark by file and number, in their order."""
    files, names = word_codes(table, "file")
    numbers = table["benchmark"].to_numpy()
    order = np.lexsort((numbers, files))
    files, numbers, table = files[order], numbers[order], table.take(pa.array(order))
    if not len(order):
        return {}
    begins = np.flatnonzero(np.r_[True, (np.diff(files) != 0) | (np.diff(numbers) != 0)])
    ends = [*begins[1:].tolist(), len(order)]
    return {
        (names[files[begin]] or "", int(numbers[begin])): table.slice(begin, end - begin)
        for begin, end in zip(begins.tolist(), ends, strict=True)
    }


def _settings_text(settings: Mapping[str, object]) -> str | None:
    several = any(isinstance(value, list) for value in settings.values())
    return json.dumps(settings, sort_keys=True) if settings and not several else None


def _workload_words(settings: Mapping[str, object], benchmark: int) -> str | None:
    each = settings.get("workloads")
    if isinstance(each, list):
        return str(each[benchmark]) if benchmark < len(each) else None
    return ", ".join(str(settings[key]) for key in ("model", "dataset") if settings.get(key)) or None


def repeated_benchmarks(benchmarks: Sequence[Benchmark]) -> list[list[Benchmark]]:
    """Groups of benchmarks with equal settings and labels that differ only in the last number."""
    series: dict[tuple[str, str], list[Benchmark]] = {}
    for benchmark in benchmarks:
        if benchmark.settings is not None:
            series.setdefault((_LAST_NUMBER.sub("#", benchmark.label), benchmark.settings), []).append(
                benchmark
            )
    return [repeats for repeats in series.values() if len(repeats) > 1]


def pool_benchmarks(parts: Sequence[Benchmark]) -> Benchmark | None:
    """All requests of several benchmarks as one; None where one of them lists none."""
    if not parts or not all(len(part.requests) for part in parts):
        return None
    return Benchmark(parts[0].label, pa.concat_tables([part.requests for part in parts]), {})


def ttft_of(answered: pa.Table) -> Samples:
    """Time to first token of each request."""
    ttfts = answered["ttft_ns"].drop_null()
    lacking = len(answered) - len(ttfts)
    return Samples(_as_seconds(ttfts), len(ttfts), {"without a time to first token": lacking}, lacking)


def itl_of(answered: pa.Table) -> Samples:
    """Every gap between consecutive chunks that the client received for a request."""
    lists = answered["itl_ns"]
    lacking = lists.null_count
    return Samples(
        _as_seconds(lists.combine_chunks().flatten()),
        len(lists) - lacking,
        {"without a list of gaps": lacking},
        lacking,
    )


def e2e_of(answered: pa.Table) -> Samples:
    """End-to-end latency of each request, as listed, else first token + Σ gaps."""
    latencies = _request_latencies(answered).drop_null()
    stated = answered["e2e_ns"].null_count < len(answered)
    lacking = len(answered) - len(latencies)
    return Samples(
        _as_seconds(latencies),
        len(latencies),
        {"without a latency": lacking},
        lacking,
        "measured" if stated else "derived",
    )


def tpot_of(answered: pa.Table) -> Samples:
    """(latency − first token) / (tokens − 1) of each request that was answered in several chunks."""
    several = answered.filter(pa.array(answered["output_tokens"].fill_null(0).to_numpy() > 1))
    gaps = several["itl_ns"].combine_chunks().value_lengths().fill_null(-1).to_numpy()
    streamed = several.filter(pa.array(gaps != 0))
    latencies = streamed.append_column("latency_ns", _request_latencies(streamed))
    timed_requests = with_values(latencies, "latency_ns", "ttft_ns")
    decoding = timed_requests["latency_ns"].to_numpy() - timed_requests["ttft_ns"].to_numpy()
    per_token = decoding / (timed_requests["output_tokens"].to_numpy() - 1)
    forward = per_token[per_token >= 0]
    left_out = {
        "of one output token or of unknown length": len(answered) - len(several),
        "answered in one piece": len(several) - len(streamed),
        "without a latency": len(streamed) - len(timed_requests),
        "with the last token before the first": len(timed_requests) - len(forward),
    }
    unknown = len(streamed) - len(forward) + answered["output_tokens"].null_count
    return Samples(forward / NS_PER_S, len(forward), left_out, unknown, "derived")


def _request_latencies(requests: pa.Table) -> pa.ChunkedArray:
    """End-to-end latency of each request, ns, null where neither it nor the gaps are listed."""
    gaps = requests["itl_ns"].combine_chunks()
    listed = requests["ttft_ns"].fill_null(0).to_numpy().copy()
    np.add.at(listed, gaps.value_parent_indices().to_numpy(), gaps.flatten().to_numpy())
    unknown = ~has_values(requests, "ttft_ns", "itl_ns")
    return requests["e2e_ns"].fill_null(pa.array(listed, mask=unknown))


def _as_seconds(ns: pa.ChunkedArray) -> Seconds:
    seconds: Seconds = ns.to_numpy().astype(np.float64) / NS_PER_S
    return seconds
