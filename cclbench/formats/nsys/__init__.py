# SPDX-License-Identifier: Apache-2.0
"""NVIDIA Nsight Systems: SQLite exports of reports, with one rank for each process that uses a device."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from cclbench.formats import READERS, Part, Reader, Trace
from cclbench.formats.files import replace_atomically, require_uncompressed
from cclbench.formats.rewriting import CAPTURED, COMMAND_LINE, SOURCE_PATH, SYSTEM, Redactor
from cclbench.formats.sqlite_file import MAGIC
from cclbench.formats.unread import UnreadFormatError


class Nsys(Reader):
    """Reader of Nsight Systems SQLite exports."""

    name = "nsys"
    counts: Mapping[str, str] = {"nic": "an nsys trace with --nic-metrics"}
    precedence = 30
    description = "NVIDIA Nsight Systems SQLite export: CUDA, NVTX, MPI, GPU and network metrics"
    extensions: tuple[str, ...] = (".sqlite",)
    capture = (
        "`nsys profile -t cuda,nvtx,mpi --cuda-graph-trace=node ...`, then `nsys export --type sqlite"
        " --include-blobs=true FILE.nsys-rep`"
    )
    versions = "schema 2.9 (Nsight Systems 2022.2) to 3.25 (2026.2)"
    tested = (
        "real: 2x H100 with torchrun (3.25), A100 with MPI (2.9);"
        " documentation: MPI tables, NCCL payloads, graph traces, GPU and network metrics"
    )

    withheld: Mapping[str, str] = {
        "ProcessStreams": CAPTURED,
        "ANALYSIS_FILE": CAPTURED,
        "PROCESSES": COMMAND_LINE,
        "TARGET_INFO_PROCESS": COMMAND_LINE,
        "TARGET_INFO_SYSTEM_ENV": SYSTEM,
        "TARGET_INFO_COMPONENTS": SYSTEM,
        "META_DATA_*": SYSTEM,
        "EXPORT_META_DATA": SYSTEM,
        "DIAGNOSTIC_EVENT": CAPTURED,
        "*_CALLCHAINS": SOURCE_PATH,
        "ThreadNames": SYSTEM,
        "GENERIC_EVENT*": CAPTURED,
        "ETW_EVENTS*": CAPTURED,
    }

    def sniff(self, head: bytes) -> float:
        """Sure of a database whose beginning names the tool's tables; any other SQLite file may be one."""
        if not head.startswith(MAGIC):
            return 0.0
        return (
            0.9 if b"CUPTI_ACTIVITY_KIND" in head or b"NVTX_EVENTS" in head or b"StringIds" in head else 0.2
        )

    def refuse(self, path: Path) -> None:
        """`UnreadFormatError` for reports that are not exported."""
        if path.suffix.lower() in (".nsys-rep", ".qdrep"):
            hint = f"export it: nsys export --type sqlite --include-blobs=true {shlex.quote(path.name)}"
            message = "is a report that only Nsight Systems can read"
            raise UnreadFormatError(message, where=str(path), hint=hint)

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Copy the database and rewrite every table."""
        from cclbench.formats.nsys.rewriting import DatabaseRewriter

        database = DatabaseRewriter(require_uncompressed(path), redactor, withheld=self.withheld)
        if target is None:
            database.rewrite_into(None)
        else:
            with replace_atomically(path, target) as scratch:
                database.rewrite_into(scratch)
        return True

    def parts(self, path: Path) -> list[Part]:
        """One part for each process that is a rank."""
        # Here and below: imports that are not needed to recognise a file.
        from cclbench.formats.nsys import reading

        return reading.member_parts(path)

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """Stream one rank's rows; a damaged database has none, since its pages are unordered."""
        from cclbench.formats.nsys import reading

        del allow_truncated  # rows before the damage cannot be identified
        trace = Trace(batches=iter(()), device_rows_in_order=False)
        trace.batches = reading.member_batches(path, part, trace)
        return trace


READERS.add(Nsys.name, Nsys(), origin=__name__)
