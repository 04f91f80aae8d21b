# SPDX-License-Identifier: Apache-2.0
"""What the two schemas of rocpd hold, as SQL for the same columns.

Schema 2 (rocmProfileData): `rocpd_op` are rows of devices, `rocpd_api` of host threads, joined by
`rocpd_api_ops`.  Schema 3 (rocprofv3): a table for each kind of row, its name followed by the capture's id;
rows refer to an event, whose `stack_id` is the number of the call that caused it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cclbench.formats.rocprofv3.reading import member_names
from cclbench.formats.sqlite_file import SqliteFile
from cclbench.formats.trace import plausible_amount
from cclbench.record.facts import TraceFacts

LAUNCHES_WORK_ITEMS: Final = "hipExtModuleLaunchKernel"
"""The HIP call that states its grid in work items; others state groups."""
_UNREAD: Final = ("rocpd_monitor", "rocpd_barrierop")
_READ_TYPES: Final = (
    "SELECT id FROM rocpd_string WHERE string IN ('KernelExecution', 'Task') OR string LIKE 'Copy%'"
    " OR string LIKE 'Fill%'"
)


@dataclass(frozen=True, slots=True)
class RowQuery:
    """Rows of one kind: the columns `start`, `end`, `track`, `correlation`, `name` and those of the kind.

    `name` is an id of the texts (table, column); or a text itself, if that is None.
    """

    kind: str
    source: str
    columns: Mapping[str, str]
    where: str
    names: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class ProcessCapture:
    """The rows of one process, and what the file says of it."""

    facts: TraceFacts
    queries: tuple[RowQuery, ...]
    unread: Mapping[str, int]
    """Number of rows that are not read, by table."""


def find_captures(file: SqliteFile) -> dict[str, ProcessCapture]:
    """Captures of a file by name: the process id, where those differ."""
    captures = _traced_processes(file) if "rocpd_op" in file.tables else _captured_processes(file)
    names = member_names([capture.facts.process_id or 0 for capture in captures])
    return dict(zip(names, captures, strict=True))


_LINKED: Final = (
    "rocpd_op o LEFT JOIN (SELECT op_id, min(api_id) AS api_id FROM rocpd_api_ops GROUP BY op_id) l"
    " ON l.op_id = o.id LEFT JOIN rocpd_api a ON a.id = l.api_id"
    " LEFT JOIN rocpd_string t ON t.id = o.opType_id"
)


def _traced_processes(file: SqliteFile) -> list[ProcessCapture]:
    """Schema 2."""
    rows = file.select_rows("rocpd_api", "DISTINCT CAST(pid AS INTEGER)", then="ORDER BY 1 LIMIT 4096")
    pids = [int(pid) for (pid,) in rows if pid is not None]
    unread = {f"rows of {name}": file.count_rows(name) for name in _UNREAD if name in file.tables}
    unread["operations that are no kernel, copy or fill"] = len(
        file.select_rows("rocpd_op", "1", f"opType_id NOT IN ({_READ_TYPES})")
    )
    return [
        ProcessCapture(
            TraceFacts(process_id=pid, producer="rocmProfileData", vendor="amd", local_rank=place),
            _queries_of_ops(pid, alone=len(pids) == 1),
            unread if place == 0 else {},
        )
        for place, pid in enumerate(pids or [0])
    ]


def _queries_of_ops(pid: int, *, alone: bool) -> tuple[RowQuery, ...]:
    mine = "1" if alone else f"a.pid = {pid}"
    device = {
        "start": "o.start",
        "end": 'o."end"',
        "track": "o.queueId",
        "device": "o.gpuId",
        "correlation": "l.api_id",
    }
    items = f"n.string = '{LAUNCHES_WORK_ITEMS}'"
    grid = {
        f"grid_{axis.lower()}": f"CASE WHEN {items} THEN {_groups(f'k.grid{axis}', f'k.workgroup{axis}')}"
        f" ELSE CAST(k.grid{axis} AS INTEGER) END"
        for axis in "XYZ"
    }
    strings = ("rocpd_string", "string")
    call = {"start": "start", "end": '"end"', "track": "tid", "correlation": "id", "name": "apiName_id"}
    marker = "apiName_id IN (SELECT id FROM rocpd_string WHERE string = 'UserMarker')"
    of_process = f"pid = {pid}"
    return (
        RowQuery(
            "kernel",
            f"{_LINKED} LEFT JOIN rocpd_kernelapi k ON k.api_ptr_id = l.api_id"
            " LEFT JOIN rocpd_string n ON n.id = a.apiName_id",
            {**device, "name": "o.description_id", **grid},
            f"{mine} AND t.string IN ('KernelExecution', 'Task')",
            strings,
        ),
        RowQuery(
            "copy",
            f"{_LINKED} LEFT JOIN rocpd_copyapi c ON c.api_ptr_id = l.api_id",
            {**device, "name": "o.opType_id", "bytes": "CAST(c.size AS INTEGER)"},
            f"{mine} AND t.string LIKE 'Copy%'",
            strings,
        ),
        RowQuery(
            "memset", _LINKED, {**device, "name": "o.opType_id"}, f"{mine} AND t.string LIKE 'Fill%'", strings
        ),
        RowQuery("call", "rocpd_api", call, f"{of_process} AND NOT {marker}", strings),
        RowQuery(
            "annotation", "rocpd_api", {**call, "name": "args_id"}, f"{of_process} AND {marker}", strings
        ),
    )


def _groups(items: str, size: str) -> str:
    """SQL for the number of work groups of that size."""
    return f"CAST(({items} + {size} - 1) / max({size}, 1) AS INTEGER)"


def _captured_processes(file: SqliteFile) -> list[ProcessCapture]:
    """Schema 3: a capture for each id behind the tables' names, and in it each process."""
    dispatches = "rocpd_kernel_dispatch"
    ids = sorted(
        name.removeprefix(dispatches)
        for name in file.tables
        if re.fullmatch(rf"{dispatches}(_\w{{1,64}})?", name)
    )
    listed = [
        (suffix, row)
        for suffix in ids
        for row in file.select_rows(
            f"rocpd_info_process{suffix}", "id, CAST(pid AS INTEGER)", then="ORDER BY id LIMIT 4096"
        )
    ]
    return [
        ProcessCapture(
            _process_facts(file, suffix, key, pid, place),
            _queries_of_process(suffix, key),
            {
                f"rows of {name}": count
                for name in ("rocpd_memory_allocate", "rocpd_sample", "rocpd_pmc_event")
                if f"{name}{suffix}" in file.tables and (count := file.count_rows(f"{name}{suffix}"))
            }
            if place == 0
            else {},
        )
        for place, (suffix, (key, pid)) in enumerate(listed)
    ]


def _process_facts(file: SqliteFile, suffix: str, key: int, pid: int, place: int) -> TraceFacts:
    """Facts of a process and of the GPUs that it used."""
    agents = f"rocpd_info_agent{suffix}"
    used = f'id IN (SELECT agent_id FROM "rocpd_kernel_dispatch{suffix}" WHERE pid = {key})'  # noqa: S608
    names = "coalesce(product_name, name), json_extract(extdata, '$.cu_count')"
    gpus = file.select_rows(agents, names, f"type = 'GPU' AND {used}", "LIMIT 1024", needs=["extdata"])
    name, units = (set(column) for column in zip(*gpus, strict=True)) if gpus else (set(), set())
    return TraceFacts(
        process_id=pid,
        producer="rocprofv3",
        vendor="amd",
        device_name=str(name.pop())[:200] if len(name) == 1 else None,
        sm_count=plausible_amount(units.pop()) if len(units) == 1 else None,
        device_count=len(gpus) or None,
        local_rank=place,
    )


def _queries_of_process(suffix: str, key: int) -> tuple[RowQuery, ...]:
    def joined(table: str, *more: str) -> str:
        event = f'LEFT JOIN "rocpd_event{suffix}" e ON e.id = r.event_id'
        return " ".join((f'"{table}{suffix}" r', event, *more))

    def agent(alias: str, column: str) -> str:
        return f'LEFT JOIN "rocpd_info_agent{suffix}" {alias} ON {alias}.id = r.{column}'

    timed = {"start": "r.start", "end": 'r."end"', "correlation": "e.stack_id"}
    grid = {f"grid_{axis}": _groups(f"r.grid_size_{axis}", f"r.workgroup_size_{axis}") for axis in "xyz"}
    strings = (f"rocpd_string{suffix}", "string")
    thread = f'LEFT JOIN "rocpd_info_thread{suffix}" h ON h.id = r.tid'
    category = f'LEFT JOIN "rocpd_string{suffix}" g ON g.id = e.category_id'
    mine = f"r.pid = {key}"
    host = {**timed, "track": "coalesce(h.tid, r.tid)"}
    return (
        RowQuery(
            "kernel",
            joined("rocpd_kernel_dispatch", agent("a", "agent_id")),
            {**timed, "track": "r.stream_id", "device": "a.type_index", "name": "r.kernel_id", **grid},
            mine,
            (f"rocpd_info_kernel_symbol{suffix}", "display_name"),
        ),
        RowQuery(
            "copy",
            joined("rocpd_memory_copy", agent("d", "dst_agent_id"), agent("s", "src_agent_id")),
            {
                **timed,
                "track": "coalesce(r.stream_id, -1)",
                "device": "CASE WHEN d.type = 'GPU' THEN d.type_index ELSE s.type_index END",
                "name": "r.name_id",
                "bytes": "r.size",
                "peer": "d.type = 'GPU' AND s.type = 'GPU' AND d.id != s.id",
            },
            mine,
            strings,
        ),
        RowQuery(
            "call",
            joined("rocpd_region", thread, category),
            {**host, "name": "r.name_id"},
            f"{mine} AND coalesce(g.string, '') NOT LIKE '%MARKER%'",
            strings,
        ),
        RowQuery(
            "annotation",
            joined("rocpd_region", thread, category),
            {**host, "name": "CASE WHEN json_valid(e.extdata) THEN json_extract(e.extdata, '$.message') END"},
            f"{mine} AND g.string LIKE '%MARKER%'",
            None,
        ),
    )
