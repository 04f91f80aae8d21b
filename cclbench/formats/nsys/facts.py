# SPDX-License-Identifier: Apache-2.0
"""Rank, device and versions of a member of a capture.

Of the environments, command lines and names in captures, only integers that state a rank are used.
"""

from __future__ import annotations

import re
from typing import Any, Final

from cclbench.formats.nsys.capture import GRAPHS, NVTX, THREAD_NAME, CapturedProcesses, process_key
from cclbench.formats.nsys.database import Database
from cclbench.formats.nsys.launcher import launched_world
from cclbench.formats.trace import plausible_amount
from cclbench.record.facts import TraceFacts

_CAPTURE: Final = ("META_DATA_EXPORT", "EXPORT_META_DATA")
"""Table with facts about the export, since schema 3 and before."""
RANK_VARIABLES: Final = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def member_facts(capture: CapturedProcesses, member: str) -> TraceFacts:
    """Facts that the file states about a member."""
    database, pid = capture.database, capture.process_id(member)
    rank, world, source = _stated_rank(database, capture.members[member], alone=len(capture.members) == 1)
    gpus = _process_gpus(capture, member)
    return TraceFacts(
        rank=rank,
        rank_source=source,
        process_id=pid,
        world_size=world or launched_world(database, len(capture.members)),
        producer="Nsight Systems",
        producer_version=_export_version(database),
        vendor="nvidia",
        device_name=_short_text(_common_value(gpus, "name")),
        device_memory_bytes=plausible_amount(_common_value(gpus, "totalMemory")),
        hbm_bytes_per_s=plausible_amount(_common_value(gpus, "memoryBandwidth")),
        sm_count=plausible_amount(_common_value(gpus, "smCount")),
        device_count=len(cuda_devices(database, pid)) or None,
        local_rank=list(capture.members).index(member),
        whole_graphs=capture.count_rows(member, GRAPHS) or None,
    )


def _process_gpus(capture: CapturedProcesses, member: str) -> list[dict[str, Any]]:
    """The GPUs of a process: those its CUDA devices are mapped to, else all of the host."""
    database, devices = capture.database, capture.device_ordinals(member)
    names = ("id", "name", "totalMemory", "memoryBandwidth", "smCount")
    listed = ", ".join(database.first_column_sql("TARGET_INFO_GPU", name) for name in names)
    rows = database.select_rows("TARGET_INFO_GPU", listed, then="LIMIT 1024", needs=["id"])
    gpus = [dict(zip(names, row, strict=True)) for row in rows]
    mapped = {
        gpu for cuda, gpu in cuda_devices(database, capture.process_id(member)).items() if cuda in devices
    }
    return [gpu for gpu in gpus if gpu["id"] in mapped] or gpus


def cuda_devices(database: Database, pid: int | None) -> dict[int, int]:
    """Index into TARGET_INFO_GPU of each CUDA device of a process."""
    mine, needs = "0" if pid is None else f"pid = {pid}", ["pid", "cudaId", "gpuId"]
    return dict(
        database.select_rows("TARGET_INFO_CUDA_DEVICE", "cudaId, gpuId", mine, "LIMIT 1024", needs=needs)
    )


def _common_value(gpus: list[dict[str, Any]], name: str) -> Any:
    """The value that all GPUs share; None if they differ or do not state it."""
    values = {gpu[name] for gpu in gpus}
    return values.pop() if len(values) == 1 else None


def _short_text(value: object) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= 200 else None


def _export_version(database: Database) -> str | None:
    """Product and schema, as in `2026.2.1.210 (schema 3.25.0)`."""
    for table in _CAPTURE:
        where = "name IN ('EXPORT_PRODUCT_VERSION', 'EXPORT_SCHEMA_VERSION')"
        values = dict(
            database.select_rows(table, "name, CAST(value AS TEXT)", where, needs=["name", "value"])
        )
        product, schema = (values.get(f"EXPORT_{part}_VERSION") for part in ("PRODUCT", "SCHEMA"))
        if product and schema and re.fullmatch(r"[\w.\- ]{1,64}", product + schema):
            return f"{product} (schema {schema})"
    return None


def _stated_rank(
    database: Database, process: int | None, *, alone: bool
) -> tuple[int | None, int | None, str | None]:
    """Rank, world size, and their source: MPI's table, its thread's name, or the launcher's variables.

    The variables belong to the process that nsys started, which is the rank only in a capture of one.
    """
    if process is not None:
        if database.has_columns("MPI_RANKS", "globalTid", "rank"):
            mine = f"{process_key('globalTid')} = {process}"
            rows = database.select_rows("MPI_RANKS", "DISTINCT rank", mine, "LIMIT 2")
        else:
            rows = _named_thread(database, process)
        ranks = [rank for (rank,) in rows]
        if len(ranks) == 1 and isinstance(ranks[0], int) and 0 <= ranks[0] < 1 << 31:
            return ranks[0], None, "MPI"
    if alone:
        variables = _launcher_variables(database)
        for rank, world in RANK_VARIABLES:
            if rank in variables:
                return variables[rank], variables.get(world) or None, "environment"
    return None, None, None


def _named_thread(database: Database, process: int) -> list[tuple[int]]:
    """The rank in `MPI Rank 3`, the name that an MPI tracer gives its thread."""
    mine = f"eventType = {THREAD_NAME} AND {process_key('globalTid')} = {process}"
    where = f"{mine} AND text GLOB 'MPI Rank [0-9]*'"
    needs = ["globalTid", "text", "eventType"]
    rows = database.select_rows(NVTX, "DISTINCT text", where, "LIMIT 2", needs=needs)
    matches = [re.fullmatch(r"MPI Rank (\d{1,9})", str(text)) for (text,) in rows]
    return [(int(match[1]),) for match in matches if match]


def _launcher_variables(database: Database) -> dict[str, int]:
    """Integer variables of launchers that state a rank or the number of ranks."""
    names = [name for pair in RANK_VARIABLES for name in pair]
    globs = " OR ".join(f"value GLOB '{name}=[0-9]*' OR value GLOB '{name}=\"[0-9]*\"'" for name in names)
    where = f"name LIKE '%:ENVIRONMENT_VARIABLE' AND ({globs})"
    needs = ["name", "value"]
    rows = database.select_rows("META_DATA_CAPTURE", "DISTINCT value", where, "LIMIT 64", needs=needs)
    matches = [re.fullmatch(r'(\w+)=("?)(\d{1,9})\2', str(value)) for (value,) in rows]
    return {match[1]: int(match[3]) for match in matches if match}
