# SPDX-License-Identifier: Apache-2.0
"""Folders of tables that Nsight Systems exports with `--type parquetdir` or `arrowdir`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Part, Reader, Trace
from cclbench.formats.rewriting import Redactor
from cclbench.ground.errors import InputError

STRINGS: Final = "StringIds"
_EVENTS: Final = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
    "MPI_COLLECTIVES_EVENTS",
    "MPI_P2P_EVENTS",
    "MPI_START_WAIT_EVENTS",
    "MPI_OTHER_EVENTS",
)
"""Tables of events: the first that a folder has stands for all of them."""
_OTHERS: Final = (
    *(STRINGS, "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "CUPTI_ACTIVITY_KIND_DRIVER", "PROFILER_OVERHEAD"),
    *("CUPTI_ACTIVITY_KIND_OVERHEAD", "NVTX_PAYLOAD_SCHEMAS", "NVTX_PAYLOAD_SCHEMA_ENTRIES", "PROCESSES"),
    *(
        "NVTX_PAYLOAD_ENUMS",
        "NVTX_PAYLOAD_ENUM_ENTRIES",
        "MPI_RANKS",
        "MPI_COMMUNICATORS",
        "DIAGNOSTIC_EVENT",
    ),
    *("TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE", "TARGET_INFO_SESSION_START_TIME", "META_DATA_EXPORT"),
    *("EXPORT_META_DATA", "META_DATA_CAPTURE", "GPU_METRICS", "NET_NIC_METRIC", "TARGET_INFO_GPU_METRICS"),
    *("TARGET_INFO_NETWORK_METRICS", "TARGET_INFO_NIC_INFO", "NIC_ID_MAP", "TARGET_INFO_SYSTEM_ENV"),
)
ENDINGS: Final = {".parquet": b"PAR1", ".arrow": b"ARROW1"}
"""Endings of the tables' names, and how the files begin."""


class NsysTables(Reader):
    """Reader of exports of which each table is a file."""

    name = "nsys_tables"
    counts: Mapping[str, str] = {"nic": "an nsys trace with --nic-metrics"}
    precedence = 29
    description = (
        "NVIDIA Nsight Systems export as a folder of Parquet or Arrow tables, read as its SQLite export"
    )
    extensions: tuple[str, ...] = tuple(ENDINGS)
    described_by = f"{STRINGS}.parquet"
    read_with = tuple(f"{table}{ending}" for table in (*_EVENTS, *_OTHERS) for ending in ENDINGS)
    capture = "`nsys export --type parquetdir FILE.nsys-rep` (or `arrowdir`): the folder, one for each report"
    versions = "schema 2.9 (Nsight Systems 2022.2) to 3.25 (2026.2)"
    tested = "documentation: real SQLite exports, whose tables the tests write as Parquet and Arrow"

    def sniff(self, head: bytes) -> float:
        """Always 0: the tables are recognised by their names."""
        del head
        return 0.0

    def is_described(self, path: Path) -> bool:
        """Whether the file is the first table of events of a folder that has the table of texts, too."""
        if path.suffix not in ENDINGS or path.stem not in _EVENTS:
            return False
        if not path.with_name(STRINGS + path.suffix).is_file():
            return False
        first = next(name for name in _EVENTS if path.with_name(name + path.suffix).is_file())
        with path.open("rb") as file:
            return path.stem == first and file.read(8).startswith(ENDINGS[path.suffix])

    def companions(self, path: Path) -> tuple[Path, ...]:
        """The folder's other tables."""
        tables = sorted(path.parent.glob(f"*{path.suffix}"))
        return tuple(table for table in tables if table.is_file() and table.name != path.name)

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """`InputError`: a data point would contain one table of several."""
        del target, redactor
        raise InputError(
            "one table of an export cannot be redacted",
            where=str(path),
            hint="contribute the SQLite export: nsys export --type sqlite --include-blobs=true FILE.nsys-rep",
        )

    def parts(self, path: Path) -> list[Part]:
        """One part for each process that is a rank."""
        # Here and below: imports that are not needed to recognise a file.
        from cclbench.formats.nsys import reading
        from cclbench.formats.nsys_tables.tables import TableFolder

        return reading.member_parts(path, TableFolder)

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """Stream one rank's rows; of a damaged table none are read, since others refer to it."""
        from cclbench.formats.nsys import reading
        from cclbench.formats.nsys_tables.tables import TableFolder

        del allow_truncated
        trace = Trace(batches=iter(()), device_rows_in_order=False)
        trace.batches = reading.member_batches(path, part, trace, TableFolder)
        return trace


READERS.add(NsysTables.name, NsysTables(), origin=__name__)
