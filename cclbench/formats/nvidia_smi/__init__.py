# SPDX-License-Identifier: Apache-2.0
"""nvidia-smi: `dmon` (text and CSV), `--query-gpu ... --format=csv`, `nvlink -gt d`.

Units are read from the tool's second line or header (W, %, MB/s, GPM:MiB/s); a file without units is not
read.  `sm` and `mem` are shares of time.  `rxpci` and `txpci` are rates over 20 ms (NVML,
nvmlDeviceGetPcieThroughput), a sample of an interval that may be much longer, so they stay rates.  GPM's
columns (Hopper and later) are means since the GPU's previous sample: if lines have date and time (`-o DT`)
and are evenly spaced, an NVLink rate times the spacing is bytes.  Dates are local times without a zone: rows
have no time.

`nvlink -gt d` prints each link's cumulative payload in KiB, in both directions; `-gt r` includes protocol
overhead and becomes separate counters.  A file has one or several dumps, each optionally after a line
`# time_ns N`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.counter_rows import AGAIN, CLOCK_LIMITS, NO_COUNTER, NO_VALUE, CounterRows, unit_of
from cclbench.formats.texts import strip_decoration

DMON: Final = {
    "pwr": "power",
    "sm": "gpu_utilization",
    "mem": "memory_utilization",
    "pclk": "sm_clock",
    "mclk": "memory_clock",
    "pviol": "power_limited",
    "tviol": "thermally_limited",
    "rxpci": "pcie_rx_rate",
    "txpci": "pcie_tx_rate",
    "smutil": "sm_active",
    "mmaact": "tensor_active",
    "dram": "dram_active",
    "pcitx": "pcie_tx_rate",
    "pcirx": "pcie_rx_rate",
    "nvltx": "nvlink_tx_rate",
    "nvlrx": "nvlink_rx_rate",
}
"""Counters by dmon's columns; columns from `smutil` on are GPM's."""
QUERY: Final = {
    "power.draw": "power",
    "utilization.gpu": "gpu_utilization",
    "utilization.memory": "memory_utilization",
    **dict.fromkeys(("clocks.sm", "clocks.current.sm"), "sm_clock"),
    **dict.fromkeys(("clocks.mem", "clocks.current.memory"), "memory_clock"),
    "memory.used": "memory_used",
    **dict.fromkeys(("clocks_throttle_reasons.active", "clocks_event_reasons.active"), CLOCK_LIMITS),
}
_FACTORS: Final = {
    "W": ("W", Decimal(1)),
    "%": ("1", Decimal("0.01")),
    "bool": ("1", Decimal(1)),
    "MHz": ("Hz", Decimal(10**6)),
    "MiB": ("B", Decimal(1 << 20)),
    "GPM:%": ("1", Decimal("0.01")),
    "MB/s": ("B/s", Decimal(10**6)),
    "GPM:MiB/s": ("B/s", Decimal(1 << 20)),
}
"""Our unit and the factor to it, by the tool's unit."""

_GPU = re.compile(r"GPU (\d{1,5}): .*?(?:\(UUID: ([^)]*)\))?\s*")
_LINK = re.compile(r"\s*Link (\d{1,3}): (Data|Raw) (Tx|Rx): (\S+)(?: (\w+))?\s*")
_NO_LINK = re.compile(r"\s*(?:NVML: )?Unable to retrieve NVLink .*")
_SEEN_LINK = re.compile(rb"(?m)^\s*Link \d+: (?:Data|Raw) [TR]x: ")
_DMON_HEAD = re.compile(r"#\s*(?:Date|Time|gpu)\b.*")
_QUERY_HEAD = re.compile(r"(?:[\w.]+(?: \[[^\]]*\])?, )*(?:power\.draw|utilization\.(?:gpu|memory)) \[.*")

_REASONS = re.compile("0x[0-9A-Fa-f]{1,16}")

_Samples = list[tuple[int | None, Decimal]]
"""Time and rate of each sample."""
_Rates = dict[tuple[str, int], _Samples]
"""Samples by counter and GPU."""


class NvidiaSmi(EvidenceReader):
    """Reader of periodic output of nvidia-smi."""

    name = "nvidia_smi"
    counts: Mapping[str, str] = {"nvlink": "`nvidia-smi nvlink -gt d` from before and after"}
    precedence = 2
    description = "nvidia-smi dmon and --query-gpu, text and CSV; nvidia-smi nvlink -gt d"
    extensions: tuple[str, ...] = (".csv", ".txt", ".log")
    capture = "`nvidia-smi dmon -o DT --format csv`; `nvidia-smi nvlink -gt d` before and after"
    versions = "layouts are known by their heads; drivers are not told apart"
    figures = re.compile(
        rf"#?Date|Time|gpu|index|(?:{'|'.join(map(re.escape, (*DMON, *QUERY)))})(?: \[[^\]]*\])?"
        r"|^(?:\s*\d{8}\s+\d\d:\d\d:\d\d)?(?:\s+(?:\d{1,7}(?:\.\d{1,3})?|-))+\s*$|# time_ns 1\d{18}\b"
        r"|\bLink \d{1,3}: (?:Data|Raw) [RT]x: \d{1,13} KiB\s*$"
    )
    tested = "documentation: NVML, published outputs of dmon, --query-gpu and nvlink"

    def sniff(self, head: bytes) -> float:
        """Sure of a header of dmon or of a query with units, and of NVLink counters."""
        head = strip_decoration(head)
        first = next((line for line in head.decode(errors="replace").splitlines() if line.strip()), "")
        of_links = b"Link " in head and _SEEN_LINK.search(head)
        return 0.9 if _dmon_head(first) or _QUERY_HEAD.fullmatch(first) or of_links else 0.0

    def read(self, path: Path) -> Evidence:
        """All samples, by GPU and link."""
        rows = CounterRows(path)
        first, lines = rows.first_and_all()
        if _dmon_head(first):
            _read_dmon(rows, lines)
        elif _QUERY_HEAD.fullmatch(first):
            _read_query(rows, lines)
        else:
            _read_nvlink(rows, lines)
        return rows.evidence()


def _dmon_head(line: str) -> bool:
    return _DMON_HEAD.fullmatch(line) is not None and "gpu" in _split_cells(line)


def _split_cells(line: str) -> list[str]:
    """The cells of a line, comma-separated or aligned by blanks."""
    line = line.lstrip("# ").rstrip(" ,")
    return [cell.strip() for cell in line.split(",")] if "," in line else line.split()


def _read_dmon(rows: CounterRows, lines: Iterable[str]) -> None:
    columns: list[str] = []
    units: list[str] = []
    rates: _Rates = defaultdict(list)
    for line in lines:
        cells = _split_cells(line)
        if line.lstrip().startswith("#"):
            if "gpu" in cells:
                if cells != columns:
                    _add_nvlink_rates(rows, rates)
                columns, units = cells, []
            else:
                units = cells
            continue
        if len(units) != len(columns):
            raise rows.error_at_line("no line of units under the header", "print them: without `nounit`")
        if len(cells) != len(columns):
            raise rows.error_at_line(f"{len(cells)} values under a header of {len(columns)}")
        row = dict(zip(columns, cells, strict=True))
        device = rows.device_index(row["gpu"])
        at = _local_seconds(rows, f"{row['Date']} {row['Time']}") if "Date" in row and "Time" in row else None
        for column, unit, cell in zip(columns, units, cells, strict=True):
            if column in ("Date", "Time", "gpu"):
                continue
            counter, value = _counter_value(rows, DMON.get(column), unit, cell)
            if value is None:
                continue
            if counter.startswith("nvlink"):
                rates[counter, device].append((at, value))
            else:
                rows.add_row(counter, value, device=device)
    _add_nvlink_rates(rows, rates)


def _counter_value(
    rows: CounterRows, counter: str | None, unit: str, cell: str
) -> tuple[str, Decimal | None]:
    unit_and_factor = _FACTORS.get(unit)
    if counter is None or unit_and_factor is None or unit_of(counter) != unit_and_factor[0]:
        rows.left_out[NO_COUNTER] += 1
        return "", None
    value = rows.parse_number(cell)
    if value is not None and unit_and_factor[0] == "1" and value > 100:
        rows.left_out["shares above 1"] += 1
        value = None
    return counter, None if value is None else value * unit_and_factor[1]


@lru_cache(maxsize=64)
def _wall_clock_seconds(text: str) -> int:
    """Seconds of local time since 1970, in an unknown zone."""
    moment = datetime.strptime(text, "%Y%m%d %H:%M:%S")
    return (moment - datetime(1970, 1, 1)) // timedelta(seconds=1)


def _local_seconds(rows: CounterRows, text: str) -> int:
    rows.note_no_zone()
    try:
        return _wall_clock_seconds(text)
    except ValueError:
        raise rows.error_at_line("no date and time in their columns") from None


def _add_nvlink_rates(rows: CounterRows, rates: _Rates) -> None:
    """Add mean rates of NVLink: as bytes if a GPU's samples are evenly spaced, else as rates."""
    for (counter, device), all_samples in rates.items():
        samples = _drop_repeated(all_samples)
        if repeated := len(all_samples) - len(samples):
            rows.left_out[AGAIN] += repeated
        spacing = _sample_spacing([at for at, _ in samples])
        for i, (_, rate) in enumerate(samples):
            if spacing is None or i == 0:
                rows.add_row(counter, rate, device=device)
            else:
                rows.add_row(counter.removesuffix("_rate") + "_bytes", rate * spacing, device=device)
    rates.clear()


def _drop_repeated(samples: _Samples) -> _Samples:
    """The samples without repeated ones after the clock goes back: the file was concatenated with itself."""
    distinct: _Samples = []
    earlier: set[tuple[int | None, Decimal]] = set()
    latest: int | None = None
    back = False
    for at, rate in samples:
        back = at is not None and latest is not None and (at < latest or (back and at == latest))
        if back and (at, rate) in earlier:
            continue
        distinct.append((at, rate))
        earlier.add((at, rate))
        latest = at if at is not None else latest
    return distinct


def _sample_spacing(stamps: list[int | None]) -> Decimal | None:
    """Mean seconds between samples; None if a gap differs from it by more than one second."""
    times = [at for at in stamps if at is not None]
    if len(times) < 2 or len(times) < len(stamps):
        return None
    mean = Decimal(times[-1] - times[0]) / (len(times) - 1)
    even = all(abs(later - earlier - mean) <= 1 for earlier, later in pairwise(times))
    return mean if mean > 0 and even else None


def _read_query(rows: CounterRows, lines: Iterable[str]) -> None:
    head: list[tuple[str, str]] = []
    for line in lines:
        cells = _split_cells(line)
        if _QUERY_HEAD.fullmatch(line):
            head = [(name, unit.rstrip("]")) for name, _, unit in (cell.partition(" [") for cell in cells)]
            continue
        if len(cells) != len(head):
            raise rows.error_at_line(f"{len(cells)} values under a header of {len(head)}")
        values = {name: cell for (name, _), cell in zip(head, cells, strict=True)}
        device = rows.device_index(values["index"]) if "index" in values else None
        for (name, unit), cell in zip(head, cells, strict=True):
            if name in ("index", "timestamp"):
                continue
            if QUERY.get(name) == CLOCK_LIMITS:
                if _REASONS.fullmatch(cell):
                    rows.add_clock_limits(int(cell, 16), device=device)
                elif rows.parse_number(cell) is not None:
                    raise rows.error_at_line("no mask of reasons for lower clocks, such as 0x4")
                continue
            number = cell if cell.startswith("[") else cell.removesuffix(f" {unit}")
            counter, value = _counter_value(rows, QUERY.get(name), unit, number)
            if value is not None:
                rows.add_row(counter, value, device=device)
    if any(name == "timestamp" for name, _ in head):
        rows.note_no_zone()


def _read_nvlink(rows: CounterRows, lines: Iterable[str]) -> None:
    at: int | None = None
    device: int | None = None
    dumped, counted = set[int](), set[tuple[str, str, str, int]]()
    for line in lines:
        if (mark := rows.time_mark(line)) is not None:
            at, device, dumped, counted = mark, None, set(), set()
        elif gpu := _GPU.fullmatch(line):
            device = rows.device_index(gpu[1], gpu[2] or "")
            if device in dumped:  # the next dump begins, without a time
                at, dumped, counted = None, set(), set()
            dumped.add(device)
        elif (link := _LINK.fullmatch(line)) and device is not None:
            number, kind, way, text, unit = link.groups()
            if (key := (number, kind, way, device)) in counted:
                raise rows.error_at_line(f"one dump counts link {number} twice", "is the file damaged?")
            counted.add(key)
            value = rows.parse_number(text)
            if value is None:
                continue
            if unit != "KiB" or value != int(value):
                raise rows.error_at_line("an NVLink counter that is not a whole number of KiB")
            counter = f"nvlink_{'raw_' if kind == 'Raw' else ''}{way.lower()}_bytes"
            rows.add_cumulative(counter, int(value) * 1024, device=device, port=f"nvlink {number}", at_ns=at)
        elif _NO_LINK.fullmatch(line):
            rows.left_out[NO_VALUE] += 1
        else:
            raise rows.error_at_line(
                "not a line of `nvidia-smi nvlink -gt d`", "leave out lines that it did not write"
            )


READERS.add(NvidiaSmi.name, NvidiaSmi(), origin=__name__)
