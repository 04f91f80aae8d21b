# SPDX-License-Identifier: Apache-2.0
"""Facts about a capture: its processes, clock and devices, and events that it lost.

Of the environments, command lines and names in captures, only integers that state a rank are used.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cclbench.formats.nsys.database import EXPORT_AGAIN, Database
from cclbench.formats.trace import LATEST_NS
from cclbench.ground.errors import InputError

KERNELS: Final[str] = "CUPTI_ACTIVITY_KIND_KERNEL"
GRAPHS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
COPIES: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSETS: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
SYNCS: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
CALLS: Final = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
OVERHEADS: Final = ("PROFILER_OVERHEAD", "CUPTI_ACTIVITY_KIND_OVERHEAD")
NVTX: Final[str] = "NVTX_EVENTS"
MPI: Final[tuple[str, ...]] = (
    "MPI_COLLECTIVES_EVENTS",
    "MPI_P2P_EVENTS",
    "MPI_START_WAIT_EVENTS",
    "MPI_OTHER_EVENTS",
)
COUNTERS: Final = ("GPU_METRICS", "NET_NIC_METRIC")
DIAGNOSTICS: Final = "DIAGNOSTIC_EVENT"
RANGES: Final = (59, 60, 70, 71)
"""`eventType` of NVTX ranges: push/pop and start/end, and the same imported from a text file."""
THREAD_NAME: Final = 39

_WORK: Final[tuple[str, ...]] = (KERNELS, COPIES, MEMSETS, GRAPHS)
_HOST: Final = (*CALLS, *OVERHEADS, NVTX, *MPI)
_READ: Final = frozenset((*_WORK, SYNCS, *_HOST, *COUNTERS, DIAGNOSTICS))
_OF_EXPORTS: Final = frozenset(("META_DATA_EXPORT", "EXPORT_META_DATA", "TARGET_INFO_SESSION_START_TIME"))
LOST: Final = re.compile(
    r"Not all (?:\w+ ){1,4}events might have been collected|(?:events|buffers?|records) (?:were|was) "
    r"(?:dropped|lost)|CUDA profiling might have not been started correctly",
    re.IGNORECASE,
)
_PROCESS_BITS: Final = ~0xFFFFFF
_NO_DEVICE: Final = "host row of a process without device work"
_NO_PROCESS: Final = "row of no known process"


@dataclass(frozen=True, slots=True)
class CapturedProcesses:
    """The processes of a file that are ranks, in order, and the origin of its times.

    `members` are `globalPid`s (process in bits 24 to 47) by their names in the file; a file without
    processes has one member, None.
    """

    database: Database
    members: dict[str, int | None]
    base_ns: int
    """Nanoseconds since the epoch at time 0; 0 if the file does not state it."""
    notes: tuple[str, ...]

    @classmethod
    def open_capture(cls, database: Database) -> CapturedProcesses:
        """Inspect the file; `InputError` if it is not an export of Nsight Systems or has no events."""
        path = str(database.path)
        if not (_READ | _OF_EXPORTS) & set(database.tables):
            raise InputError("is an SQLite database, not an export of Nsight Systems", where=path)
        members = _process_members(database)
        if not members:
            message = "holds no CUDA work, NVTX ranges or MPI calls"
            raise InputError(message, where=path, hint="capture with nsys profile --trace=cuda,nvtx,mpi")
        if not database.has_columns("StringIds", "id", "value"):
            message = "has no table StringIds: communication kernels are recognised by their names"
            raise InputError(message, where=path, hint=EXPORT_AGAIN)
        base, notes = _base_time_ns(database)
        return cls(database, members, base, notes)

    def is_first(self, member: str) -> bool:
        """Whether a member is the first, whose part also reports what concerns the whole file."""
        return member == next(iter(self.members))

    def process_id(self, member: str) -> int | None:
        """The process id of a member."""
        process = self.members[member]
        return None if process is None else process >> 24 & 0xFFFFFF

    def device_ordinals(self, member: str) -> list[int]:
        """CUDA devices on which a member's kernels and graphs ran."""
        devices = dict[int, None]()
        for table in (KERNELS, GRAPHS):
            where = self.process_condition(member, table)
            rows = self.database.select_rows(
                table, "DISTINCT deviceId", where, "LIMIT 64", needs=["deviceId"]
            )
            devices |= dict.fromkeys(device for (device,) in rows if isinstance(device, int))
        return list(devices)

    def count_rows(self, member: str, *tables: str) -> int:
        """Number of a member's rows in these tables; by default in all tables of device work."""
        present_tables = (table for table in tables or _WORK if table in self.database.tables)
        return sum(
            self.database.count_rows(table, self.process_condition(member, table)) for table in present_tables
        )

    def process_condition(self, member: str, table: str) -> str:
        """SQL condition for a member's rows of a table; none match if members share it without processes."""
        process = self.members[member]
        key = _process_of(self.database, table)
        if process is None or key is None:
            return "" if len(self.members) == 1 else "0"
        return f"{key} = {process}"

    def left_out(self) -> dict[str, int]:
        """Number of rows that belong to no member or to tables that are not read, by reason."""
        database = self.database
        counts = {_NO_DEVICE: 0, _NO_PROCESS: 0}
        mine = ", ".join(str(process) for process in self.members.values())
        tables = [t for t in (*_WORK, SYNCS, *_HOST) if t in database.tables and "" not in self.members]
        for table in tables:
            if (key := _process_of(database, table)) is not None:
                counts[_NO_DEVICE] += database.count_rows(table, f"{key} NOT IN ({mine})")
                counts[_NO_PROCESS] += database.count_rows(table, f"{key} IS NULL")
            elif len(self.members) > 1:
                counts[_NO_PROCESS] += database.count_rows(table)
        for table, columns in database.tables.items():
            event = columns.keys() & {"start", "timestamp", "rawTimestamp"} or table.endswith("_CALLCHAINS")
            if event and table not in _READ and re.fullmatch(r"\w{1,64}", table):
                counts[f"table {table}"] = database.count_rows(table)
        return {reason: count for reason, count in counts.items() if count}


def process_key(column: str) -> str:
    """SQL for the process in a column of thread or process ids."""
    return f'("{column}" & {_PROCESS_BITS})'


def _process_of(database: Database, table: str) -> str | None:
    column = next((c for c in ("globalPid", "globalTid") if database.has_columns(table, c)), None)
    return None if column is None else process_key(column)


def _process_members(database: Database) -> dict[str, int | None]:
    """Processes with device work, else those with NVTX ranges or MPI calls; by device, then process."""
    work = [t for t in _WORK if database.select_rows(t, "1", then="LIMIT 1")]
    if any(not database.has_columns(table, "globalPid") for table in work):
        return {"": None}
    order: dict[int, int] = {}
    for table in work:
        device_id = database.first_column_sql(table, "deviceId")
        columns = f"{process_key('globalPid')}, CAST(min({device_id}) AS INTEGER)"
        for process, device in database.select_rows(table, columns, "globalPid IS NOT NULL", "GROUP BY 1"):
            order[process] = min(order.get(process, 1 << 31), device or 0)
    for table in () if work else (NVTX, *MPI):
        where = f"globalTid IS NOT NULL{f' AND eventType IN {RANGES}' if table == NVTX else ''}"
        rows = database.select_rows(table, f"DISTINCT {process_key('globalTid')}", where, needs=["globalTid"])
        order |= dict.fromkeys((process for (process,) in rows), 0)
    processes = sorted(order, key=lambda process: (order[process], process))
    pids = [process >> 24 & 0xFFFFFF for process in processes]
    names = pids if len(set(pids)) == len(pids) else processes
    return {str(name): process for name, process in zip(names, processes, strict=True)}


def _base_time_ns(database: Database) -> tuple[int, tuple[str, ...]]:
    rows = database.select_rows("TARGET_INFO_SESSION_START_TIME", "utcEpochNs", needs=["utcEpochNs"])
    if len(rows) == 1 and isinstance(begin := rows[0][0], int) and 0 < begin < LATEST_NS:
        return begin, ()
    return 0, ("the export does not state when the session began: times are relative to its start",)


def profiler_diagnostics(database: Database) -> list[str]:
    """Notes on the profiler's warnings: the text of those about lost events, the number of all others."""
    lost: dict[str, int] = {}
    other_counts = {2: 0, 3: 0}
    columns = "severity, CAST(substr(text, 1, 300) AS TEXT), count(*)"
    rows = database.select_rows(
        DIAGNOSTICS, columns, "severity IN (2, 3)", "GROUP BY 1, 2", needs=["severity", "text"]
    )
    for severity, text, count in rows:
        if match := LOST.search(text or ""):
            lost[match[0]] = lost.get(match[0], 0) + count
        else:
            other_counts[severity] += count
    notes = [f"the profiler warns ({count}x): {text}" for text, count in sorted(lost.items())]
    if any(other_counts.values()):
        notes.append(
            f"the profiler left {other_counts[2]} other warnings and {other_counts[3]} errors in its report"
        )
    return notes
