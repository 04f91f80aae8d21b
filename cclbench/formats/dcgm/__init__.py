# SPDX-License-Identifier: Apache-2.0
"""NVIDIA DCGM: output of `dcgmi dmon`, dcgm-exporter's Prometheus text, CSV with DCGM's field names.

Profiling fields are means over DCGM's own sampling interval, and NVLINK_TX/RX_BYTES and PCIE_TX/RX_BYTES
are rates in bytes/s in spite of their names (DCGM user guide, "Profiling Metrics": NVLink without protocol
headers, PCIe with them); some versions of the exporter label them counters, but they are rates.

`dcgmi dmon` prints no times.  Piped through `ts %.s` (after `stdbuf -oL`, or lines are buffered) each line
begins with seconds since the epoch: bytes are then the rate times the time since the GPU's previous line,
because dmon's delay is DCGM's interval.  In other files the interval is unknown, and a rate stays a rate, at
the time of its scrape if that is stated.

NVLINK_COUNT_TX/RX_BYTES (NVLink 5) and TOTAL_ENERGY_CONSUMPTION (mJ) are cumulative.  Not read:
NVLINK_BANDWIDTH_TOTAL, whose documentation and values disagree on whether it is a count or a rate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Final, NamedTuple

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.counter_rows import (
    CLOCK_BACK,
    CLOCK_LIMITS,
    NO_COUNTER,
    NO_VALUE,
    CounterRows,
    unit_of,
)
from cclbench.formats.texts import strip_decoration


class Field(NamedTuple):
    """A field of DCGM: our counter for it, and the factor from the field's unit to the counter's.

    `tag` is its short name in headers of `dcgmi dmon`.
    """

    counter: str
    tag: str | None = None
    factor: Decimal = Decimal(1)


_PERCENT, _MILLI, _MEGA, _MEBI = Decimal("0.01"), Decimal("0.001"), Decimal(10**6), Decimal(1 << 20)
FIELDS: Final = {
    "DCGM_FI_PROF_SM_ACTIVE": Field("sm_active", "SMACT"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": Field("tensor_active", "TENSO"),
    "DCGM_FI_PROF_DRAM_ACTIVE": Field("dram_active", "DRAMA"),
    "DCGM_FI_PROF_PCIE_TX_BYTES": Field("pcie_tx_rate", "PCITX"),
    "DCGM_FI_PROF_PCIE_RX_BYTES": Field("pcie_rx_rate", "PCIRX"),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": Field("nvlink_tx_rate", "NVLTX"),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": Field("nvlink_rx_rate", "NVLRX"),
    "DCGM_FI_DEV_GPU_UTIL": Field("gpu_utilization", "GPUTL", _PERCENT),
    "DCGM_FI_DEV_MEM_COPY_UTIL": Field("memory_utilization", "MCUTL", _PERCENT),
    "DCGM_FI_DEV_POWER_USAGE": Field("power", "POWER"),
    "DCGM_FI_DEV_SM_CLOCK": Field("sm_clock", "SMCLK", _MEGA),
    "DCGM_FI_DEV_MEM_CLOCK": Field("memory_clock", "MMCLK", _MEGA),
    "DCGM_FI_DEV_FB_USED": Field("memory_used", "FBUSD", _MEBI),
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": Field(CLOCK_LIMITS, "DVCCTR"),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": Field(CLOCK_LIMITS),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": Field("energy", "TOTEC", _MILLI),
    "DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES": Field("nvlink_tx_bytes"),
    "DCGM_FI_DEV_NVLINK_COUNT_RX_BYTES": Field("nvlink_rx_bytes"),
}
_BY_TAG: Final = {field.tag: name for name, field in FIELDS.items() if field.tag is not None}

CUMULATIVE: Final = ("energy", "nvlink_tx_bytes", "nvlink_rx_bytes")
OTHER: Final = "values of entities other than a whole GPU"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NS: Final = 10**9
_STAMP = r"(?:(\d{9,10}(?:\.\d{1,9})?)\s+)?"
_HEAD = re.compile(_STAMP + r"#\s*Entity\s+([A-Z0-9].*)")
_UNITS = re.compile(_STAMP + r"#?\s*I[Dd]\b.*")
_ROW = re.compile(_STAMP + r"([A-Z][\w-]{1,15})\s+(\d+)\s+(.+)")
_METRIC = re.compile(r"(\w+)(?:\{(.*)\})?\s+(\S+)(?:\s+(\d{1,18}))?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_TEXT_SEEN = re.compile(r"(?m)^(?:# (?:HELP|TYPE) DCGM_FI_\w+ |DCGM_FI_\w+\{)")
_TIMES: Final = ("timestamp", "time")
_GPUS: Final = ("gpu", "gpu_id", "gpuid", "device", "index")
_DIGITS: Final = {10: _NS, 13: 10**6, 16: 10**3, 19: 1}
"""Nanoseconds in a unit of time, by the number of digits of an epoch time between 2001 and 2286 in it."""
_BLANK: Final = ((1 << 47, 16), ((1 << 63) - 16, 16))
"""DCGM's values for "not available": the first of each type, and how many follow."""


class Dcgm(EvidenceReader):
    """Reader of DCGM samples."""

    name = "dcgm"
    counts: Mapping[str, str] = {"nvlink": "`stdbuf -oL dcgmi dmon -e 1011,1012 | ts %.s`"}
    precedence = 3
    description = "NVIDIA DCGM: dcgmi dmon, dcgm-exporter's Prometheus text, CSV of DCGM fields"
    extensions: tuple[str, ...] = (".txt", ".log", ".prom", ".csv")
    capture = (
        "`dcgmi dmon -e 100,112,155,156,1002,1004,1005,1011,1012`, each line with its time by `ts %.s`;"
        " dcgm-exporter's text"
    )
    versions = "dcgmi dmon and dcgm-exporter as documented for 3.x and 4.x"
    figures = re.compile(
        rf"{'|'.join((*_TIMES, *_GPUS, *FIELDS))}"
        r"|^\d{9,10}(?:\.\d{1,9})?\s+(?=GPU |#|I[Dd]\b)"
        r"|\bGPU \d{1,4}(?:\s+(?:\d{1,13}(?:\.\d{1,6})?|N/A))+\s*$"
        r"|(?:\}|^[A-Z_]+)\s+\d{1,13}(?:\.\d{1,9})?(?:e[+-]?\d{1,3})?(?:\s+1\d{12})?\s*$"
    )
    tested = "documentation: DCGM's user guide and field identifiers, published outputs of both tools"

    def sniff(self, head: bytes) -> float:
        """Sure of dmon's column header, DCGM's metrics, and a CSV header with its fields and a time."""
        text = strip_decoration(head).decode(errors="replace")
        first = text.lstrip().partition("\n")[0].rstrip()
        prometheus = "DCGM_FI_" in text and _TEXT_SEEN.search(text)
        return 0.9 if _HEAD.fullmatch(first) or _time_and_gpu_columns(first) or prometheus else 0.0

    def read(self, path: Path) -> Evidence:
        """All samples of whole GPUs."""
        rows = CounterRows(path)
        first, lines = rows.first_and_all()
        if _HEAD.fullmatch(first.strip()):
            _read_dmon(rows, lines)
        elif columns := _time_and_gpu_columns(first):
            _read_csv(rows, lines, *columns)
        else:
            _read_metrics(rows, lines)
        return rows.evidence()


def _read_dmon(rows: CounterRows, lines: Iterable[str]) -> None:
    columns: list[str] = []
    last_times: dict[int, int] = {}
    for line in map(str.strip, lines):
        if head := _HEAD.fullmatch(line):
            if columns != head[2].split():
                columns, last_times = head[2].split(), {}
            continue
        if _UNITS.fullmatch(line):
            continue
        row = _ROW.fullmatch(line)
        if row is None or len(cells := row[4].split()) != len(columns):
            raise rows.error_at_line("not a row of `dcgmi dmon`", "leave out lines that it did not write")
        if row[2] != "GPU":
            rows.left_out[OTHER] += len(cells)
            continue
        device = rows.device_index(row[3])
        end = None if row[1] is None else rows.check_time(int(Decimal(row[1]) * _NS))
        start = end
        if end is not None:
            start = last_times.get(device, end)
            last_times[device] = end
            if start > end:
                rows.left_out[CLOCK_BACK] += len(cells)
                continue
        for column, cell in zip(columns, cells, strict=True):
            _add_sample(rows, _BY_TAG.get(column), cell, device, start, end)


def _read_metrics(rows: CounterRows, lines: Iterable[str]) -> None:
    for line in map(str.strip, lines):
        if line.startswith("#"):
            continue
        metric = _METRIC.fullmatch(line)
        if metric is None:
            raise rows.error_at_line("not a metric in Prometheus's text format")
        labels = dict(_LABEL.findall(metric[2] or ""))
        if not line.startswith("DCGM_FI_") or "gpu" not in labels:
            rows.left_out[NO_COUNTER] += 1
        elif labels.get("GPU_I_ID"):
            rows.left_out[OTHER] += 1
        else:
            at = None if metric[4] is None else rows.check_time(int(metric[4]) * 10**6)
            _add_sample(
                rows, metric[1], metric[3], rows.device_index(labels["gpu"], labels.get("UUID", "")), at, at
            )


def _time_and_gpu_columns(head: str) -> tuple[int, int] | None:
    """Columns of time and GPU (−1: none) in a CSV header; None if it is not a header of DCGM fields."""
    if "dcgm_fi_" not in head.lower():
        return None
    names = [name.strip().lower() for name in head.split(",")]
    if not set(names) & set(_TIMES):
        return None
    gpu = next((names.index(name) for name in _GPUS if name in names), -1)
    return next(names.index(name) for name in _TIMES if name in names), gpu


def _read_csv(rows: CounterRows, lines: Iterable[str], time: int, gpu: int) -> None:
    table = rows.csv_cells(lines)
    head = [name.strip() for name in next(table)]
    for cells in table:
        if len(cells) != len(head):
            raise rows.error_at_line(f"{len(cells)} values under a header of {len(head)}")
        at = _parse_time(rows, cells[time].strip())
        device = None if gpu < 0 else rows.device_index(cells[gpu].strip())
        for i, (name, cell) in enumerate(zip(head, cells, strict=True)):
            if i not in (time, gpu):
                _add_sample(rows, name, cell.strip(), device, at, at)


def _parse_time(rows: CounterRows, text: str) -> int | None:
    integer_digits = text.partition(".")[0]
    number = rows.parse_number(text) if integer_digits.isdigit() and len(integer_digits) in _DIGITS else None
    if number is not None:
        return rows.check_time(int(number * _DIGITS[len(integer_digits)]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise rows.error_at_line(
            "no time where one belongs", "write ISO 8601, or seconds since the epoch"
        ) from None
    if moment.tzinfo is None:
        rows.note_no_zone()
        return None
    since = moment - _EPOCH
    return rows.check_time((since.days * 86_400 + since.seconds) * _NS + since.microseconds * 1000)


def _add_sample(
    rows: CounterRows, name: str | None, text: str, device: int | None, start: int | None, end: int | None
) -> None:
    """Add a field's value over [start, end), at an instant, or without a time."""
    field = FIELDS.get(name or "")
    if field is None:
        rows.left_out[NO_COUNTER] += 1
        return
    value = rows.parse_number(text)
    if value is None:
        return
    if any(first <= value < first + count for first, count in _BLANK):
        rows.left_out[NO_VALUE] += 1
        return
    value *= field.factor
    counter = field.counter
    if counter == CLOCK_LIMITS:
        rows.add_clock_limits(int(value), device=device, start_ns=start, end_ns=end)
    elif counter in CUMULATIVE:
        rows.add_cumulative(counter, value, device=device, at_ns=end)
    elif unit_of(counter) == "1" and value > 1:
        rows.left_out["shares above 1"] += 1
    elif counter.endswith("_rate") and start is not None and end is not None and start < end:
        moved = value * (end - start) / _NS
        counter = counter.removesuffix("_rate") + "_bytes"
        rows.add_row(counter, moved, device=device, start_ns=start, end_ns=end)
    else:
        rows.add_row(counter, value, device=device, start_ns=start, end_ns=end)


READERS.add(Dcgm.name, Dcgm(), origin=__name__)
