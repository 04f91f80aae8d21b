# SPDX-License-Identifier: Apache-2.0
"""Results of FIO, the flexible I/O tester, as JSON: bytes, operations and latencies of jobs by direction.

`bw` is in KiB/s and `bw_bytes`, since version 3, in B/s.  Latencies are ns where their key says so (`clat_ns`
since version 3), else µs (stat.c of both versions).  The latency read is that of completion (`clat`), which
begins when an operation has been submitted, or the whole one (`lat`) where only that has percentiles.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.rewriting import COMMAND_LINE, HOST
from cclbench.formats.serving.lines import HALF_PAIR, LARGEST, WrittenResult, require_unicode
from cclbench.formats.storage_rows import MOST, StorageRows
from cclbench.formats.texts import damaged_error, parse_decimal, read_whole, strip_decoration
from cclbench.ground.errors import InputError

_DIRECTIONS: Final = ("read", "write", "trim", "mixed")
_NANOSECOND, _MICROSECOND = Decimal("1e-9"), Decimal("1e-6")
_LATENCIES: Final = (
    *(("clat_ns", _NANOSECOND), ("clat", _MICROSECOND)),
    *(("lat_ns", _NANOSECOND), ("lat", _MICROSECOND)),
)
_OF_BINS: Final = tuple(map(Decimal, ("50", "90", "99", "99.9")))
"""Percentiles that are computed where a file has the counts of latencies."""
_LONGEST_NS: Final = 10**15
_FAILED: Final = "jobs that failed"
_TOO_SHORT: Final = "directions of jobs that took less than a millisecond"


class Fio(EvidenceReader):
    """Reader of FIO's results."""

    name = "fio"
    description = "results of FIO (JSON, json+): bytes, operations and latencies of each job"
    extensions: tuple[str, ...] = (".json",)
    capture = "`fio job.fio --group_reporting --output-format=json+ --output=fio.json`"
    versions = "FIO 2 and 3"
    tested = "real: FIO 3.33; published results of FIO 2"
    figures = re.compile(r"\d{1,3}\.\d{2,6}|\d{1,10}")  # percentiles, and bins in ns, which are keys
    withheld: Mapping[str, str] = {
        "global options": COMMAND_LINE,
        "job options": COMMAND_LINE,
        "hostname": HOST,
    }

    def sniff(self, head: bytes) -> float:
        """Sure of the first key, also behind other lines."""
        return 0.9 if b'"fio version"' in strip_decoration(head) else 0.0

    def read(self, path: Path) -> Evidence:
        """Rows of each job; of a file with reports of a running job those of the last, which counts all."""
        reports = list(_reports(path))
        last, rows, left_out = reports[-1], StorageRows(), Counter[str]()
        jobs = last.objects_of("jobs") + last.objects_of("client_stats")
        names = _distinct_names([str(job.entries.get("jobname") or "") for job in jobs])
        for name, job in zip(names, jobs, strict=True):
            if job.entries.get("error"):
                left_out[_FAILED] += 1
                continue
            for direction in _DIRECTIONS:
                if direction in job.entries and not _add_direction(rows, name, job, direction):
                    left_out[_TOO_SHORT] += 1
        for disk in last.objects_of("disk_util"):
            if (stated := disk.entries.get("util")) is not None:
                disk.bounded_number("util", stated, MOST)
                rows.add("all", "utilization", stated / Decimal(100), job=str(disk.entries.get("name") or ""))
        if not rows and not left_out:
            raise last.entry_error("has no job that read or wrote")
        version = last.entries.get("fio version")
        return Evidence(
            storage=rows.table(),
            facts={"producer": version} if isinstance(version, str) else {},
            left_out=dict(left_out),
            notes=[f"{len(reports)} reports of a running job: the last is read"] if len(reports) > 1 else [],
        )


def _reports(path: Path) -> Iterator[WrittenResult]:
    """Each JSON object of the file, with what FIO prints between them left out."""
    try:
        text = read_whole(path, LARGEST).decode()
    except UnicodeDecodeError as error:
        raise InputError("bytes that are not UTF-8", where=f"{path}: byte {error.start:,}") from None
    decoder, end, has_object = json.JSONDecoder(parse_float=Decimal), 0, False
    while (begin := _next_object(text, end)) >= 0:
        try:
            entries, end = decoder.raw_decode(text, begin)
            require_unicode(entries, text[begin:end])
        except json.JSONDecodeError as error:
            raise damaged_error(path, f"is not JSON ({error.msg})", line=error.lineno) from None
        except UnicodeEncodeError:
            raise damaged_error(path, HALF_PAIR, line=text.count("\n", 0, begin) + 1) from None
        except (ValueError, InvalidOperation, RecursionError):
            message = "is nested too deeply, or has a number with too many digits"
            raise damaged_error(path, message, line=text.count("\n", 0, begin) + 1) from None
        has_object = True
        yield WrittenResult(entries, str(path))
    if not has_object:
        raise damaged_error(path, "has no JSON object")


def _next_object(text: str, begin: int) -> int:
    """Where the next line that begins an object does; −1 without any."""
    if text.startswith("{", begin):
        return begin
    line = text.find("\n{", begin)
    return line + 1 if line >= 0 else -1


def _distinct_names(names: list[str]) -> list[str]:
    """The names, those that several jobs have with a number behind them."""
    counts, occurrences = Counter(names), Counter[str]()
    for number, name in enumerate(names):
        occurrences[name] += 1
        if counts[name] > 1:
            names[number] = f"{name} #{occurrences[name]}"
    return names


def _add_direction(rows: StorageRows, name: str, job: WrittenResult, direction: str) -> bool:
    """Add the figures of a direction; False where a clock of milliseconds gives no rate."""
    figures = job.object_of(direction)
    bytes_moved, runtime = (_number(figures, key, 0) for key in ("io_bytes", "runtime"))
    if not bytes_moved:
        return True
    if not runtime:
        return False
    kibibytes = _number(figures, "bw", None) if "bw_bytes" not in figures.entries else Decimal(0)
    rate = _number(figures, "bw_bytes", kibibytes * 1024)
    rows.add(direction, "bytes_per_s", rate, job=name)
    rows.add(direction, "operations_per_s", _number(figures, "iops", None), job=name)
    for stat, seconds in _latencies(figures):
        rows.add(direction, "latency", seconds, job=name, stat=stat)
    return True


def _number(owner: WrittenResult, name: str, otherwise: Decimal | int | None) -> Decimal:
    value: Any = owner.entries.get(name, otherwise)
    owner.bounded_number(name, value, MOST)
    return Decimal(value)


def _latencies(figures: WrittenResult) -> Iterator[tuple[str | None, Decimal]]:
    """Mean, least, most and percentiles of completion, or of the whole where only that has any, s."""
    stated = [(figures.object_of(key), unit) for key, unit in _LATENCIES if key in figures.entries]
    measured = [(part, unit) for part, unit in stated if _number(part, "max", 0)]
    measured.sort(key=lambda entry: not entry[0].object_of("percentile").entries)
    for part, unit in measured[:1]:
        for stat, key in ((None, "mean"), ("min", "min"), ("max", "max")):
            yield stat, _number(part, key, None) * unit
        percentiles = _percentiles(part) | _percentiles_of_bins(part)
        for percent, value in sorted(percentiles.items()):
            yield f"p{percent.normalize():f}", value * unit


def _percentiles(part: WrittenResult) -> dict[Decimal, Decimal]:
    percentiles = part.object_of("percentile")
    values = {key: _number(percentiles, key, None) for key in percentiles.entries if parse_decimal(key) != 0}
    percents = {key: parse_decimal(key) for key in values}
    if any(percent is None or percent > 100 for percent in percents.values()):
        raise part.entry_error("has a percentile that is not one")
    return {percent: values[key] for key, percent in percents.items() if percent is not None}


def _percentiles_of_bins(part: WrittenResult) -> dict[Decimal, Decimal]:
    """Percentiles by FIO's rule: the first bin at which the share of operations is reached."""
    bins = part.object_of("bins")
    pairs = sorted((_bin(bins, key), _number(bins, key, None)) for key in bins.entries)
    totals = list(accumulate(count for _, count in pairs))
    if not totals or not totals[-1]:
        return {}
    return {
        percent: next(
            value
            for (value, _), total in zip(pairs, totals, strict=True)
            if total * 100 >= percent * totals[-1]
        )
        for percent in _OF_BINS
    }


def _bin(bins: WrittenResult, key: str) -> Decimal:
    value = parse_decimal(key)
    if value is None or value > _LONGEST_NS:
        raise bins.entry_error("has a bin that is not a time")
    return value


READERS.add(Fio.name, Fio(), origin=__name__)
