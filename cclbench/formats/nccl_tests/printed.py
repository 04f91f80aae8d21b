# SPDX-License-Identifier: Apache-2.0
"""Printed tables of nccl-tests and rccl-tests in logs of jobs, interleaved with other lines.

Columns follow the header: older tables have no `root`, or neither `redop` nor `root`; before 2.11 the last
column is `error`, the largest deviation rather than a count; `-I` and per-iteration reports add columns.  A
row that library lines interrupt is reassembled if the pieces are exactly a row and its bandwidth follows from
its size and time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cclbench.classify import kind_of
from cclbench.formats.nccl_lines import LineFacts
from cclbench.formats.nccl_tests.labels import Labels, LibraryLines
from cclbench.formats.nccl_tests.rows import (
    Heading,
    SweepRows,
    even_groups,
    library_version,
    row_contradiction,
)
from cclbench.formats.nccl_tests.tables import MISFIT, PrintedColumns, PrintedRow, PrintedRows
from cclbench.formats.texts import numbered_lines

_MOST_BYTES: Final = 1 << 34
_MOST_RANKS: Final = 1 << 20
_DEVICE = re.compile(
    r"# +Rank +(\d{1,7}) +(?:Group +(\d{1,7}) +)?Pid +\d+ +on +(\S+) +device +\d+ +\[[^\]]*\] +(.*)", re.ASCII
)
_PROGRAM = re.compile(r"(?<![\w.-])([a-z][a-z_]*)_perf(?:_mpi)?(?![\w.-])", re.ASCII)
_NAMED = re.compile(r"([a-z][a-z_]*)_perf(?![a-z])", re.ASCII)
_BY_NAME: Final = "only the file's name states which collective was measured"
_LIBRARY_CODE = re.compile(r"nccl-library=(\d{4,6})\b", re.ASCII)
_TESTS_VERSION = re.compile(r"# [nr]ccl-tests:? [Vv]ersion:? (\d[\w.]{0,20})", re.ASCII)
_WRONG = re.compile(r"# Out of bounds values +: +(\d+) FAILED", re.ASCII)
_AMD = re.compile(r"\bAMD\b|Instinct|Radeon|\bgfx\d", re.IGNORECASE)
_NVIDIA = re.compile(r"NVIDIA|Tesla|GeForce|Quadro|TITAN|^(?:[ABHV]|GH|GB)\d{2,3}\b")
_UNITS: Final = ["(us)", "(GB/s)", "(GB/s)"]
_COPY: Final = "printed by another process as well"


@dataclass(slots=True)
class _Process:
    """Output of one process of the benchmark: a header and the table after it; hosts are only counted."""

    stated: str | None = None
    devices: dict[tuple[int, int], str] = field(default_factory=dict)
    incomplete: bool = False
    table: PrintedRows | None = None
    heading: Heading = field(default_factory=Heading)
    units: bool = False

    def group_size(self) -> tuple[int | None, int | None]:
        """Ranks and nodes of a group; None if the list is cut, or split into unequal groups."""
        ranks = sorted(rank for _, rank in self.devices)
        if not ranks or self.incomplete or ranks != list(range(len(ranks))):
            return None, None
        return even_groups((group, host) for (group, _), host in self.devices.items())


@dataclass(slots=True)
class _Commands:
    """Benchmark programs in commands that scripts echo; a table is of the one since the last table."""

    programs: set[str] = field(default_factory=set)
    users: set[str] = field(default_factory=set)
    """Labels of the processes that have begun a table since then."""

    def read_line(self, line: str) -> None:
        """Read the programs that a line names."""
        programs = _PROGRAM.findall(line)[:8]
        if programs and self.users:
            self.programs, self.users = set(), set()
        self.programs.update(programs)

    def program_of(self, label: str) -> str | None:
        """The program of a process's next table; None if it is ambiguous."""
        if label in self.users:
            self.programs, self.users = set(), set()
        self.users.add(label)
        return next(iter(self.programs)) if len(self.programs) == 1 else None


class Printed:
    """Reads a log with one or more tables."""

    def __init__(self, path: Path) -> None:
        self.rows = SweepRows(path)
        self._path = path
        self._log = LineFacts()
        self._labels = Labels()
        self._library = LibraryLines()
        self._commands = _Commands()
        self._processes: dict[str, _Process] = {}
        self._rocm = self._nccl = False
        self._open: set[str] = set()
        """Labels of the processes whose table has not ended."""
        self._printed: dict[tuple[tuple[str, ...], ...], str] = {}
        """The label of the process that first printed these rows."""
        self._joined = 0

    def read_log(self) -> SweepRows:
        """Read all lines."""
        for at, line in numbered_lines(self._path, _MOST_BYTES):
            label, text = self._labels.split_label(line)
            self._read_line(label, text, at)
        for label, process in self._processes.items():
            self._end_table(label, process)
        if self._open:
            self.rows.notes.append("the last table is incomplete: the benchmark did not finish")
        if self._joined:
            self.rows.notes.append(
                f"rows interrupted by library output that were reassembled: {self._joined:,}"
            )
        if len(printers := set(self._printed.values())) > 1:
            self.rows.notes.append(
                f"{len(printers):,} processes print separate tables, and all are kept: without MPI, every"
                " process runs the benchmark alone"
            )
        self.rows.facts |= self._log.collected_facts()
        return self.rows

    def _read_line(self, label: str, text: str, at: int) -> None:
        process = self._processes.setdefault(label, _Process())
        begin = self._library.library_line_start(text)
        printed = text[:begin]
        words = printed.split()
        if words and words[0].startswith("#"):
            if process.table is not None:
                process.table.end_row()
            self._read_comment(label, process, printed, words)
        elif (
            words and process.table is not None and process.table.add_words(words, at, torn=begin is not None)
        ):
            pass
        elif not self._open:
            self._commands.read_line(text)
        if begin is not None or not (words and words[0].startswith("#")):
            self._log.read_line(text)
            self._rocm |= "RCCL version" in text
            self._nccl |= "NCCL version" in text

    def _read_comment(self, label: str, process: _Process, line: str, words: list[str]) -> None:
        if "size" in words[:2] and "busbw" in words:
            self._begin_table(label, process, words)
        elif "(elements)" in words:
            process.units = words[words.index("(elements)") + 1 :][:3] == _UNITS
        elif device := _DEVICE.search(line):
            self._add_device(process, int(device[1]), int(device[2] or 0), device[3], device[4].strip())
        elif line.startswith("# nThread") or "Collective test starting:" in line:
            self._start_header(label, process, line)
        elif "Out of bounds values" in line:
            self._end_table(label, process)
            self._open.discard(label)
            if wrong := _WRONG.search(line):
                self.rows.notes.append(f"the benchmark found {int(wrong[1]):,} wrong results")
        elif "..." in words:
            process.incomplete = True
        self._read_versions(line)

    def _read_versions(self, line: str) -> None:
        if version := _TESTS_VERSION.search(line):
            self.rows.facts["benchmark_version"] = version[1]
        if "ccl-tests" in line:
            self._rocm |= "rccl-tests" in line
            self._nccl |= "nccl-tests" in line
        if code := _LIBRARY_CODE.search(line):
            self.rows.facts["library_version"] = library_version(int(code[1]))

    def _start_header(self, label: str, process: _Process, line: str) -> None:
        """Begin a header: its list of devices replaces the previous one."""
        self._end_table(label, process)
        process.devices.clear()
        process.incomplete = False
        if "Collective test starting:" in line:
            programs = _PROGRAM.findall(line.partition(":")[2])
            process.stated = programs[0] if programs else None

    def _add_device(self, process: _Process, rank: int, group: int, host: str, model: str) -> None:
        process.devices[group, rank] = host
        if len(process.devices) > _MOST_RANKS:
            process.incomplete = True
            process.devices.clear()
        self._library.add_host(host)
        self._rocm |= bool(_AMD.search(model))
        self._nccl |= bool(_NVIDIA.search(model))
        self.rows.add_gpu(model[:80])

    def _begin_table(self, label: str, process: _Process, words: list[str]) -> None:
        self._end_table(label, process)
        ranks, nodes = process.group_size()
        echoed = self._commands.program_of(label)
        program = process.stated or echoed
        process.heading = Heading(
            kind=None if program is None else kind_of(program),
            library="rccl" if self._rocm else "nccl" if self._nccl else None,
            ranks=ranks,
            nodes=nodes,
        )
        if process.heading.kind is None and (file := _NAMED.search(self._path.name)):
            process.heading = replace(process.heading, kind=kind_of(file[1]))
            if _BY_NAME not in self.rows.notes:
                self.rows.notes.append(_BY_NAME)
        process.table, process.units, process.stated = (
            PrintedRows(PrintedColumns.from_header(words)),
            False,
            None,
        )
        self._open.add(label)

    def _end_table(self, label: str, process: _Process) -> None:
        """Keep the rows of the current table, unless another process printed the same ones."""
        table = process.table
        if table is None:
            return
        table.end_row()
        self.rows.left_out.update(table.left_out)
        printed = tuple(row.words for row in table.rows)
        if printed and self._printed.setdefault(printed, label) != label:
            self.rows.left_out[_COPY] += len(printed)
        else:
            for row in table.rows:
                if reason := self._left_out(process, table.columns, row):
                    self.rows.left_out[reason] += 1
        process.table = None

    def _left_out(self, process: _Process, columns: PrintedColumns, row: PrintedRow) -> str | None:
        """Keep a row, or return the reason for leaving it out."""
        if columns.host_time:
            return "with CPU times, which are not the collective's"
        if not process.units:
            return "in a table that does not state its units"
        parts = columns.split_row(row.words)
        placements = None if parts is None else columns.parse_placements(parts[1])
        if parts is None or placements is None:
            return "with text in place of a number"
        size, dtype = int(row.words[0][:20]), row.words[2]
        if row.joined:
            if any(row_contradiction(process.heading, size, figures) for figures in placements):
                return MISFIT
            self._joined += 1
        for in_place, figures in enumerate(placements):
            self.rows.add_row(process.heading, size, dtype, figures, in_place=bool(in_place), line=row.line)
        return None
