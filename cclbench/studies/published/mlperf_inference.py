# SPDX-License-Identifier: Apache-2.0
"""A summary of MLPerf Inference's load generator: rates and latencies of one benchmark in one scenario."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from cclbench.ground.errors import InputError
from cclbench.ground.text import printable
from cclbench.record.metric_name import metric_name
from cclbench.record.rows import Row
from cclbench.studies.published.importing import Entry
from cclbench.studies.published.leaderboard import PublishedRow
from cclbench.studies.published.results import published_row

_SOURCE: Final = "mlperf"
_MOST_BYTES: Final = 1 << 20
_LINE: Final = re.compile(r"([A-Za-z0-9.][^:\n]{0,80}?)\s*:[ \t]*(\S[^\n]{0,80})")
_NUMBER: Final = re.compile(r"\d{1,18}(?:\.\d{1,12})?(?:e[+-]?\d{1,2})?")
_SCENARIOS: Final = ("Offline", "Server", "Interactive", "SingleStream", "MultiStream")
_OUTPUT: Final = metric_name("serving.output_throughput")
_PER_DEVICE: Final = metric_name("serving.output_tokens_per_device")
_RATES: Final = {
    metric_name("serving.request_throughput"): ("Samples per second", "Completed samples per second"),
    _OUTPUT: ("Tokens per second", "Completed tokens per second"),
}
_LATENCIES: Final = {
    metric_name("serving.ttft"): (
        ("Mean First Token latency (ns)",),
        "{:.2f} percentile first token latency (ns)",
    ),
    metric_name("serving.tpot"): (
        ("Mean Time per Output Token (ns)", "Mean Time to Output Token (ns)"),
        "{:.2f} percentile time to output token (ns)",
    ),
    metric_name("serving.e2e_latency"): (("Mean latency (ns)",), "{:.2f} percentile latency (ns)"),
}
"""Names of the mean, the second that of rounds until v4.1, and of percentiles."""
_PERCENTILES: Final = (50, 90, 99)
_BATCH: Final = "all samples are sent at once: their latencies are of the batch"
_NS: Final = 10**9


def inference_entry(path: Path, number: int, place: dict[str, Any]) -> Entry:
    """The summary as a published row; `place` is what its folders and its system's description state."""
    stated, digest = _stated_lines(path)
    where = printable(str(path))
    scenario = stated.get("Scenario")
    if scenario not in _SCENARIOS or "Result is" not in stated:
        raise InputError("states no scenario and result", where=where, hint="pass a mlperf_log_summary.txt")
    if stated.get("Mode") != "PerformanceOnly":
        raise InputError("is not of a performance run", where=where, hint="pass that of performance/run_1")
    folder = place.get("scenario")
    shown = folder if folder in _SCENARIOS else scenario
    facts = {key: value for key, value in place.items() if key != "scenario"}
    named = (facts.get("benchmark"), facts.get("system"), shown)
    metadata = {
        "workload_name": " ".join(str(name) for name in named if name),
        "suite": "MLPerf Inference",
        "phase": "inference",
        **({"model_family": facts["benchmark"]} if "benchmark" in facts else {}),
        **facts,
        "scenario": shown,
        "result": stated["Result is"],
    }
    figures = list(_figures(stated, scenario, metadata))
    content = json.dumps([metadata, digest], sort_keys=True, default=str)
    row = PublishedRow(number, metadata, {}, sha256(content.encode()).hexdigest())
    numbers = sum(figure.value is not None for figure in figures)
    invalid = len(figures) if stated["Result is"] != "VALID" else 0
    return Entry(row, figures, numbers, no_number=invalid)


def _stated_lines(path: Path) -> tuple[dict[str, str], str]:
    """The first value of each `name : value`, and the SHA-256 of the file."""
    where = printable(str(path))
    try:
        with path.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=where) from None
    if len(content) > _MOST_BYTES:
        raise InputError("is over 1 MiB", where=where, hint="pass a mlperf_log_summary.txt")
    values: dict[str, str] = {}
    for line in content.decode(errors="replace").split("\n"):
        if match := _LINE.fullmatch(line.strip()):
            values.setdefault(match[1], match[2])
    return values, sha256(content).hexdigest()


def _figures(stated: Mapping[str, str], scenario: str, metadata: Mapping[str, Any]) -> Iterator[Row]:
    invalid = None if stated["Result is"] == "VALID" else f"the result is {printable(stated['Result is'])}"
    devices = metadata.get("total_count")
    for metric, rates in _RATES.items():
        value = _first_number(stated, rates)
        missing = invalid or f"not published: {rates[0].lower()}"
        yield published_row(
            _SOURCE, metric, None if invalid else value, None if value and not invalid else missing
        )
        if metric == _OUTPUT:
            each = value / devices if value and devices and not invalid else None
            lacking = missing if invalid or value is None else "not published: the number of accelerators"
            yield published_row(_SOURCE, _PER_DEVICE, each, None if each else lacking)
    for metric, (means, percentile) in _LATENCIES.items():
        if scenario == "Offline":
            yield published_row(_SOURCE, metric, None, invalid or _BATCH)
            continue
        for percent in (None, *_PERCENTILES):
            names = means if percent is None else (percentile.format(percent),)
            stat = None if percent is None else f"p{percent}"
            ns = None if invalid else _first_number(stated, names)
            reason = None if ns is not None else invalid or f"not published: {names[0].removesuffix(' (ns)')}"
            yield published_row(_SOURCE, metric, None if ns is None else ns / _NS, reason, stat=stat)


def _first_number(stated: Mapping[str, str], names: Iterable[str]) -> float | None:
    texts = (stated.get(name, "") for name in names)
    return next((float(text) for text in texts if _NUMBER.fullmatch(text)), None)
