# SPDX-License-Identifier: Apache-2.0
"""Reports of iostat (sysstat): what each block device delivered in each interval, as text or JSON.

Its kB and MB are KiB and MiB, its blocks and sectors 512 bytes, and its awaits ms (iostat.c): of a device
that moves `r/s` requests of `rareq-sz` kB, `rMB/s` is their product over 1024.  The first report is the mean
since the boot unless iostat was given `-y`, which no file says: it is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Final, NamedTuple

from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.counter_rows import CUT, UNENDED
from cclbench.formats.files import open_output
from cclbench.formats.rewriting import HOST, SYSTEM, Redactor
from cclbench.formats.serving.lines import listed_results
from cclbench.formats.storage_rows import MOST, StorageRows
from cclbench.formats.texts import damaged_error, parse_decimal, raw_lines, read_beginning, strip_decoration
from cclbench.ground.units import KIB, MIB

_MOST_BYTES: Final = 256 << 20
_TEXT: Final = re.compile(rb"(?m)^Device:?[ \t]+(?=[^\n]*[A-Za-z_]/s)[^\n]*(?:%util|_wrtn|_dscd)")
_JSON: Final = re.compile(rb'\s*\{\s*"sysstat".*"disk_device"', re.DOTALL)
_FIRST: Final = "rows of the first report, which is of the time since the boot unless iostat was given -y"
_AGAIN: Final = "run `iostat -x -t 1`, as text or with -o JSON, and LC_ALL=C"
_SIZES: Final = {"kB": KIB, "MB": MIB, "sec": 512, "Blk": 512}
_PHASES: Final = {"r": "read", "w": "write", "d": "trim", "f": "flush", "": "all"}
_WORDS: Final = {"read": "read", "wrtn": "write", "dscd": "trim"}
_SECOND: Final = Decimal("0.001")


class _Column(NamedTuple):
    """What a column of iostat is: figure, operation, and base units in one of its units."""

    figure: str
    phase: str
    factor: Decimal


_COLUMNS: Final = {
    **{f"{p}/s": _Column("operations_per_s", phase, Decimal(1)) for p, phase in _PHASES.items() if p},
    "tps": _Column("operations_per_s", "all", Decimal(1)),
    **{
        f"{p}{unit}/s": _Column("bytes_per_s", phase, Decimal(size))
        for p, phase in _PHASES.items()
        for unit, size in _SIZES.items()
    },
    **{
        f"{unit}_{word}/s": _Column("bytes_per_s", phase, Decimal(size))
        for word, phase in _WORDS.items()
        for unit, size in _SIZES.items()
    },
    **{f"{p}_await".removeprefix("_"): _Column("latency", phase, _SECOND) for p, phase in _PHASES.items()},
    **dict.fromkeys(("util", "%util"), _Column("utilization", "all", Decimal("0.01"))),
}
"""Columns that are read, by name; before sysstat 12 `await` is of reads and writes."""

_DEVICE: Final = ("Device", "Device:")
_START: Final = ["Linux"]
_PUBLISHED: Final = frozenset((*_START, *_DEVICE, *_COLUMNS))

_Cells = Mapping[str, Decimal]


class Iostat(EvidenceReader):
    """Reader of iostat's reports."""

    name = "iostat"
    description = "reports of iostat (text, JSON): bytes, requests, waits and utilization of each device"
    extensions: tuple[str, ...] = (".txt", ".log", ".json")
    capture = "`iostat -x -t 1 > iostat.txt`, or with `-o JSON`, beside the job"
    versions = "sysstat 10 to 12, also without -x"
    tested = "real: sysstat 12.6; DLIO's iostat.json; documentation: sysstat 10"
    withheld: Mapping[str, str] = {"nodename": HOST, **dict.fromkeys(("release", "sysname"), SYSTEM)}

    def sniff(self, head: bytes) -> float:
        """Sure of the heading of a table of devices, or of their key in JSON."""
        head = strip_decoration(head)
        return 0.9 if _TEXT.search(head) or _JSON.match(head) else 0.0

    def read(self, path: Path) -> Evidence:
        """Rows of each device in each report but the first."""
        rows, left_out = StorageRows(), Counter[str]()
        cell_rows = _json_cells(path) if _is_json(path) else _text_cells(path, left_out)
        for sample, device, cells in cell_rows:
            if sample:
                _add_device(rows, device, sample, cells)
            else:
                left_out[_FIRST] += 1
        if not rows:
            only = "has one report only, which may be of the time since the boot"
            raise damaged_error(path, only if left_out[_FIRST] else "has no device", hint=_AGAIN)
        notes = [UNENDED] if left_out[CUT] else []
        return Evidence(storage=rows.table(), left_out=dict(+left_out), notes=notes)

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Of a text the columns that are read, without times and what is of the CPU; JSON as any."""
        if _is_json(path):
            return super().rewrite(path, target, redactor)
        with open_output(path, target) as write:
            for _, names, words in _text_lines(path, Counter()):
                pairs = zip(names, words, strict=True)
                kept = [_published(redactor, *pair) for pair in pairs if pair[0] in _PUBLISHED]
                write((" ".join(kept) + "\n").encode())
        return True


def _published(redactor: Redactor, name: str, word: str) -> str:
    if name == word or (name in _COLUMNS and parse_decimal(word) is not None):
        return word
    text, counts = redactor.text(word, name)
    redactor.count(name, counts)
    return text


def _is_json(path: Path) -> bool:
    return read_beginning(path, 1 << 10).lstrip().startswith(b"{")


def _add_device(rows: StorageRows, device: str, sample: int, cells: _Cells) -> None:
    """Add a device's figures; of no request, a wait of 0 says nothing."""
    figures = {_COLUMNS[name][:2]: value * _COLUMNS[name].factor for name, value in cells.items()}
    requests = {phase: value for (figure, phase), value in figures.items() if figure == "operations_per_s"}
    if ("latency", "all") in figures and "all" not in requests:
        requests["all"] = sum(requests.values(), Decimal(0))
        figures["operations_per_s", "all"] = requests["all"]
    for (figure, phase), value in figures.items():
        if figure != "latency" or requests.get(phase):
            rows.add(phase, figure, value, job=device, sample=sample)


def _json_cells(path: Path) -> Iterator[tuple[int, str, _Cells]]:
    """Number of the report, 0 for the first, device and cells of each row."""
    (report,) = listed_results(path)
    for host in report.object_of("sysstat").objects_of("hosts"):
        for sample, statistics in enumerate(host.objects_of("statistics")):
            for disk in statistics.objects_of("disk"):
                device = disk.entries.get("disk_device")
                if not isinstance(device, str):
                    raise disk.entry_error("disk_device is not a text")
                cells = {name: value for name, value in disk.entries.items() if name in _COLUMNS}
                for name, value in cells.items():
                    disk.bounded_number(name, value, MOST)
                yield sample, device, {name: Decimal(value) for name, value in cells.items()}


def _text_cells(path: Path, left_out: Counter[str]) -> Iterator[tuple[int, str, _Cells]]:
    """Number of the report, 0 for the first of each start of iostat, device and cells of each row."""
    reports = sample = 0
    is_first = True
    for number, names, words in _text_lines(path, left_out):
        if names == words:
            reports += words != _START and not is_first
            sample = 0 if is_first else reports
            is_first = words == _START
            continue
        pairs = zip(names, words, strict=True)
        yield sample, words[0], {name: _cell(path, number, text) for name, text in pairs if name in _COLUMNS}


def _text_lines(path: Path, left_out: Counter[str]) -> Iterator[tuple[int, list[str], list[str]]]:
    """Number, headings and words of each heading and of the rows behind it, up to a line without any.

    The line with which iostat starts is a heading of its own, without host and kernel.
    """
    names = list[str]()
    for number, raw in raw_lines(path, _MOST_BYTES):
        if not raw.endswith(b"\n"):
            left_out[CUT] += 1
            return
        words = raw.decode(errors="replace").split()
        if not names and words[:1] == _START:
            yield number, _START, _START
            continue
        if not words or words[0] in _DEVICE:
            names = words
        if names and len(words) != len(names):
            message = f"{len(words)} cells under {len(names)} headings"
            raise damaged_error(path, message, line=number, hint=_AGAIN)
        if names:
            yield number, names, words


def _cell(path: Path, line: int, text: str) -> Decimal:
    value = parse_decimal(text)
    if value is None or value > MOST:
        raise damaged_error(path, f"{text[:20]!r} where a number belongs", line=line, hint=_AGAIN)
    return value


READERS.add(Iostat.name, Iostat(), origin=__name__)
