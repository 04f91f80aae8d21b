# SPDX-License-Identifier: Apache-2.0
"""The tables that nccl-tests and rccl-tests print, as jobs' logs hold them: with other lines in between.

Columns are found by the header: older tables have no `root`, or neither `redop` nor `root`; before 2.11 the
last column is `error`, the largest deviation and no count; `-I` and per-iteration reports add columns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from cclbench.classify import kind_of
from cclbench.readers.nccl_lines import LineFacts
from cclbench.readers.nccl_tests.rows import Figures, Sweep, SweepRows, count, library_version
from cclbench.readers.texts import lines, number

_MOST_BYTES: Final = 1 << 34
_MOST_RANKS: Final = 1 << 20
# mpirun's --tag-output and --timestamp-output, `srun --label` and containers' logs begin each line with the
# time at which it was written and the process that wrote it.
_LABEL = re.compile(
    r"(?:\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d) )?(?:[^#<>]{0,100}<std\w+>: ?|\d+: )?", re.ASCII
)
_DEVICE = re.compile(
    r"# +Rank +(\d{1,7}) +(?:Group +(\d{1,7}) +)?Pid +\d+ +on +(\S+) +device +\d+ +\[[^\]]*\] +(.*)", re.ASCII
)
_PROGRAM = re.compile(r"(?<![\w.-])([a-z][a-z_]*)_perf(?:_mpi)?(?![\w.-])", re.ASCII)
_NAMED = re.compile(r"([a-z][a-z_]*)_perf(?![a-z])", re.ASCII)
_BY_NAME: Final = "which collective was measured is told by the file's name alone"
_LIBRARY_CODE = re.compile(r"nccl-library=(\d{4,6})\b", re.ASCII)
_TESTS_VERSION = re.compile(r"# [nr]ccl-tests:? [Vv]ersion:? (\d[\w.]{0,20})", re.ASCII)
_WRONG = re.compile(r"# Out of bounds values +: +(\d+) FAILED", re.ASCII)
_AMD = re.compile(r"\bAMD\b|Instinct|Radeon|\bgfx\d", re.IGNORECASE)
_NVIDIA = re.compile(r"NVIDIA|Tesla|GeForce|Quadro|TITAN|^(?:[ABHV]|GH|GB)\d{2,3}\b")
_UNITS: Final = ["(us)", "(GB/s)", "(GB/s)"]


@dataclass(frozen=True, slots=True)
class _Table:
    """Columns of a table: the row's name takes `lead` words at most, `figures` follow."""

    lead: int
    figures: tuple[str, ...]
    stamped: bool
    host_time: bool

    def split(self, words: list[str]) -> tuple[list[str], list[str]] | None:
        """A row's name and its figures; None where words are missing. Columns of the name may be blank."""
        end = len(words) - (2 if self.stamped else 0)
        begin = end - len(self.figures)
        return (words[:begin], words[begin:end]) if 3 <= begin <= self.lead else None


@dataclass(slots=True)
class _Header:
    """What stands before a table; hosts are counted, never kept beyond it."""

    programs: set[str] = field(default_factory=set)
    stated: str | None = None
    rocm: bool = False
    nccl: bool = False
    devices: dict[tuple[int, int], str] = field(default_factory=dict)
    incomplete: bool = False

    def sweep(self) -> Sweep:
        """What the header states of the table that follows."""
        program = self.stated or (next(iter(self.programs)) if len(self.programs) == 1 else None)
        ranks, nodes = self._size()
        return Sweep(
            kind=None if program is None else kind_of(program),
            library="rccl" if self.rocm else "nccl" if self.nccl else None,
            ranks=ranks,
            nodes=nodes,
        )

    def _size(self) -> tuple[int | None, int | None]:
        """Ranks and nodes of a group; unknown where the list is cut, or split into unequal groups."""
        ranks = sorted(rank for _, rank in self.devices)
        if not ranks or self.incomplete or ranks != list(range(len(ranks))):
            return None, None
        groups: dict[int, list[str]] = {}
        for (group, _), host in self.devices.items():
            groups.setdefault(group, []).append(host)
        sizes = {(len(hosts), len(set(hosts))) for hosts in groups.values()}
        return sizes.pop() if len(sizes) == 1 else (None, None)


class Printed:
    """Reads a log with one or more tables in it."""

    def __init__(self, path: Path) -> None:
        self.rows = SweepRows(path)
        self._path = path
        self._log = LineFacts()
        self._header = _Header()
        self._table: _Table | None = None
        self._sweep = Sweep()
        self._units = False
        self._open = False

    def read(self) -> SweepRows:
        """All lines."""
        for at, line in lines(self._path, _MOST_BYTES):
            label = _LABEL.match(line)
            self._line(line[label.end() :] if label else line, at)
        if self._open:
            self.rows.notes.append("the last table has no end: the benchmark did not finish")
        self.rows.facts |= self._log.facts()
        return self.rows

    def _line(self, line: str, at: int) -> None:
        words = line.split()
        if not words:
            return
        if self._table is not None and words[0].isdecimal() and len(words) > 1 and words[1].isdecimal():
            self._row(self._table, words, at)
        elif words[0].startswith("#"):
            self._comment(line, words)
        else:
            self._log.see(line)
            self._header.rocm |= "RCCL version" in line
            self._header.nccl |= "NCCL version" in line
            if not self._open:
                self._header.programs.update(_PROGRAM.findall(line)[:8])

    def _comment(self, line: str, words: list[str]) -> None:
        if "size" in words[:2] and "busbw" in words:
            self._begin(words)
        elif "(elements)" in words:
            self._units = words[words.index("(elements)") + 1 :][:3] == _UNITS
        elif device := _DEVICE.search(line):
            self._device(int(device[1]), int(device[2] or 0), device[3], device[4].strip())
        elif line.startswith("# nThread") or "Collective test starting:" in line:
            self._start(line)
        elif "Out of bounds values" in line:
            self._open = False
            if wrong := _WRONG.search(line):
                self.rows.notes.append(f"the benchmark found {int(wrong[1]):,} wrong results")
        elif "..." in words:
            self._header.incomplete = True
        self._versions(line)

    def _versions(self, line: str) -> None:
        if version := _TESTS_VERSION.search(line):
            self.rows.facts["benchmark_version"] = version[1]
        if "ccl-tests" in line:
            self._header.rocm |= "rccl-tests" in line
            self._header.nccl |= "nccl-tests" in line
        if code := _LIBRARY_CODE.search(line):
            self.rows.facts["library_version"] = library_version(int(code[1]))

    def _start(self, line: str) -> None:
        """A header begins: devices are listed anew."""
        self._table = None
        if "Collective test starting:" in line:
            found = _PROGRAM.findall(line.partition(":")[2])
            rocm, nccl = self._header.rocm, self._header.nccl
            self._header = _Header(stated=found[0] if found else None, rocm=rocm, nccl=nccl)
        else:
            self._header.devices.clear()
            self._header.incomplete = False

    def _device(self, rank: int, group: int, host: str, model: str) -> None:
        if len(self._header.devices) < _MOST_RANKS:
            self._header.devices[group, rank] = host
        self._header.rocm |= bool(_AMD.search(model))
        self._header.nccl |= bool(_NVIDIA.search(model))
        self.rows.gpu(model[:80])

    def _begin(self, words: list[str]) -> None:
        """The header of a table: `# size count type redop root time algbw busbw #wrong time ...`."""
        names = [word.lstrip("#") for word in words if word != "#"]
        stamped = names[-1] == "timestamp"
        names = names[:-1] if stamped else names
        names = ["time" if name == "cputime" else name for name in names]
        lead = names.index("time") if "time" in names else len(names)
        self._table = _Table(lead, tuple(names[lead:]), stamped, "cputime" in words)
        self._sweep, self._open, self._units = self._header.sweep(), True, False
        if self._sweep.kind is None and (named := _NAMED.search(self._path.name)):
            self._sweep = replace(self._sweep, kind=kind_of(named[1]))
            if _BY_NAME not in self.rows.notes:
                self.rows.notes.append(_BY_NAME)
        self._header.programs.clear()
        self._header.stated = None

    def _row(self, table: _Table, words: list[str], line: int) -> None:
        if table.host_time:
            return self.rows.leave_out("of CPU times, which are not the collective's")
        parts = table.split(words)
        if parts is None:
            return self.rows.leave_out("cut, or interrupted by other output")
        if not self._units:
            return self.rows.leave_out("of a table whose units are not stated")
        (size, _, dtype, *_), figures = parts
        placements = _placements(table.figures, figures)
        if placements is None:
            return self.rows.leave_out("with text in place of a number")
        for in_place, placement in enumerate(placements[:2]):
            self.rows.add(self._sweep, int(size[:20]), dtype, placement, in_place=bool(in_place), line=line)
        return None


def _placements(names: tuple[str, ...], words: list[str]) -> list[Figures] | None:
    """The figures out of place and in place; None where one is no number."""
    begins = [i for i, name in enumerate(names) if name == "time"]
    found = []
    for begin, end in pairwise([*begins, len(names)]):
        own = dict(zip(names[begin:end], words[begin:end], strict=True))
        time, algbw, busbw = (number(own.get(name, "")) for name in ("time", "algbw", "busbw"))
        if time is None or algbw is None or busbw is None:
            return None
        found.append(Figures(time, algbw, busbw, count(number(own.get("wrong", "")))))
    return found or None
