# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a serving engine's metrics in Prometheus's text format, one or several in a file.

A sample that repeats begins another scrape, as does a line `# time_ns N` before one.  Counts are since the
server started: `cclbench.analyzers.server_metrics` subtracts them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.files import open_output
from cclbench.formats.prometheus.families import LABELS, PREFIXES, SERIES
from cclbench.formats.rewriting import SYSTEM, Redactor
from cclbench.formats.texts import damaged_error, raw_lines, strip_decoration
from cclbench.ground.evidence_schema import SERVER_METRICS

_MOST_BYTES: Final = 256 << 20
_MOST_SERIES: Final = 1 << 16
_LARGEST: Final = 1e18
_INT64: Final = 1 << 63
_UNREAD: Final = "samples that are not read"
_NO_VALUE: Final = "samples that are NaN"
_SEEN = re.compile(rf"(?m)^(?:# (?:HELP|TYPE) )?(?:{'|'.join(PREFIXES)})[a-z0-9_]+[ {{]")
_MARK = re.compile(r"# time_ns (\d{1,20})")
_SAMPLE = re.compile(
    r"([a-zA-Z_:][\w:]*)(?:\{((?:[^}\"]|\"(?:[^\"\\]|\\.)*\")*)\})?[ \t]+(\S+)(?:[ \t]+(-?\d{1,18}))?"
    r"(?:[ \t]+#.*)?"
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class _Sample(NamedTuple):
    """A sample that is read; `labels` without the bucket's bound."""

    name: str
    labels: tuple[tuple[str, str], ...]
    le: float | None
    value: float
    at_ns: int | None


class Prometheus(EvidenceReader):
    """Reader of the metrics of vLLM and SGLang servers."""

    name = "prometheus"
    description = "metrics of vLLM and SGLang servers and of NIXL's agents in Prometheus's text format"
    extensions: tuple[str, ...] = (".prom", ".txt")
    capture = "`curl http://localhost:8000/metrics > before.prom`, and `after.prom` behind the benchmark"
    versions = "vLLM's V1 engine (2025 and 2026), SGLang 2025, NIXL 2026"
    tested = "real: a snapshot of vLLM before its first request; documentation: everything else"

    def sniff(self, head: bytes) -> float:
        """Sure of a family of either engine."""
        return 0.9 if _SEEN.search(strip_decoration(head).decode(errors="replace")) else 0.0

    def read(self, path: Path) -> Evidence:
        """All samples of the families that are read."""
        columns: dict[str, list[Any]] = {
            name: [] for name in ("scrape", "at_ns", "series", "metric", "part", "le", "value")
        }
        left_out, sample_keys, series = Counter[str](), set[tuple[object, ...]](), _SeriesNames(path)
        scrape, at_mark = 0, None
        for number, line in _text_lines(path):
            if mark := _MARK.fullmatch(line):
                scrape, sample_keys = scrape + bool(sample_keys), set()
                at_mark = _time(path, number, int(mark[1]))
                continue
            sample = _parsed_sample(path, number, line, left_out)
            if sample is None:
                continue
            if (key := (sample.name, sample.labels, sample.le)) in sample_keys:
                scrape, sample_keys, at_mark = scrape + 1, set(), None
            sample_keys.add(key)
            family, part = SERIES[sample.name]
            scaled = family.per_unit if part != "count" and part != "bucket" else 1
            row = (
                scrape,
                at_mark if sample.at_ns is None else sample.at_ns,
                series.name_of(sample, number),
                family.metric,
                part,
                None if sample.le is None else sample.le / family.per_unit,
                sample.value / scaled,
            )
            for column, cell in zip(columns.values(), row, strict=True):
                column.append(cell)
        if not columns["scrape"]:
            raise damaged_error(path, "has no metric of a serving engine that is read")
        rows = len(columns["scrape"])
        arrays = [pa.array(columns.get(field.name, [None] * rows), field.type) for field in SERVER_METRICS]
        return Evidence(
            server_metrics=pa.Table.from_arrays(arrays, schema=SERVER_METRICS), left_out=dict(left_out)
        )

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Samples that are read, with the labels of `LABELS`; all other lines are left empty."""
        series = _SeriesNames(path)
        with open_output(path, target) as write:
            for number, line in _text_lines(path):
                sample = None if _MARK.fullmatch(line) else _parsed_sample(path, number, line, Counter())
                published = line if _MARK.fullmatch(line) else ""
                if sample is not None:
                    published = _published_line(sample, series.name_of(sample, number))
                redactor.count("lines", {SYSTEM: int(bool(line and not published))})
                write(f"{published}\n".encode())
        return True


class _SeriesNames:
    """Names of label sets by the labels that are kept, numbered where only others differ."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
        self._times = Counter[tuple[str, str]]()

    def name_of(self, sample: _Sample, line: int) -> str:
        """`engine="0"`; `engine="0",series="2"` for the second label set with that engine."""
        key = (sample.name, sample.labels)
        if key not in self._names:
            if len(self._names) == _MOST_SERIES:
                raise damaged_error(self._path, f"has more than {_MOST_SERIES:,} series", line=line)
            kept = ",".join(
                f'{name}="{value}"'
                for name, value in sample.labels
                if name in LABELS and LABELS[name].fullmatch(value)
            )
            self._times[sample.name, kept] += 1
            times = self._times[sample.name, kept]
            labels = [kept] * bool(kept) + [f'series="{times}"'] * (times > 1)
            self._names[key] = ",".join(labels)
        return self._names[key]


def _text_lines(path: Path) -> Iterator[tuple[int, str]]:
    for number, raw in raw_lines(path, _MOST_BYTES):
        try:
            line = raw.decode().strip()
        except UnicodeDecodeError:
            raise damaged_error(path, "has bytes that are not UTF-8", line=number) from None
        if line and not raw.endswith(b"\n") and not line.startswith("#"):
            what = "has no end, or is too long: its last number may be cut"
            raise damaged_error(path, what, line=number, hint="scrape again, or end the line")
        yield number, line


def _parsed_sample(path: Path, number: int, line: str, left_out: Counter[str]) -> _Sample | None:
    """The sample of a line; None for a comment, and for what is not read, which is counted."""
    if not line or line.startswith("#"):
        return None
    match = _SAMPLE.fullmatch(line)
    if match is None:
        raise damaged_error(path, "is not a sample in Prometheus's text format", line=number)
    if match[1] not in SERIES:
        left_out[_UNREAD] += 1
        return None
    value = _number(path, number, match[3])
    if math.isnan(value):
        left_out[_NO_VALUE] += 1
        return None
    if not 0 <= value < _LARGEST:
        raise damaged_error(path, "has a value below 0 or beyond 10^18", line=number)
    labels = dict(_LABEL.findall(match[2] or ""))
    bound = labels.pop("le", None)
    is_bucket = SERIES[match[1]][1] == "bucket"
    if is_bucket != (bound is not None):
        raise damaged_error(path, "has a bound that is not a bucket's, or none of a bucket", line=number)
    le = None if bound is None else _number(path, number, bound)
    if le is not None and not le >= 0:
        raise damaged_error(path, "has a bucket without a bound", line=number)
    at = None if match[4] is None else _time(path, number, int(match[4]) * 10**6)
    return _Sample(match[1], tuple(sorted(labels.items())), le, value, at)


def _number(path: Path, line: int, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise damaged_error(path, "has text where a number belongs", line=line) from None


def _time(path: Path, line: int, ns: int) -> int:
    if not 0 <= ns < _INT64:
        raise damaged_error(path, "has a time before 1970 or beyond 2262", line=line)
    return ns


def _published_line(sample: _Sample, series: str) -> str:
    """The sample with its numbers as they are read, whatever digits the file has beyond these."""
    bound = "" if sample.le is None else f'le="{sample.le}"'.replace('"inf"', '"+Inf"')
    labels = ",".join(filter(None, [series, bound]))
    at = "" if sample.at_ns is None else f" {sample.at_ns // 10**6}"
    return f"{sample.name}{{{labels}}} {sample.value!r}{at}"


READERS.add(Prometheus.name, Prometheus(), origin=__name__)
