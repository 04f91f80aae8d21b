# SPDX-License-Identifier: Apache-2.0
"""AMD's rocpd databases: of rocprofv3, and of rocmProfileData (`.rpd`); one rank for each process."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Part, Reader, Trace
from cclbench.formats.files import read_head
from cclbench.formats.rewriting import Redactor
from cclbench.formats.sqlite_file import MAGIC
from cclbench.ground.errors import InputError

_READ: Final = {
    "rocpd_string": ("id", "string"),
    "rocpd_op": ("id", "gpuId", "queueId", "start", "end", "description_id", "opType_id"),
    "rocpd_api": ("id", "pid", "tid", "start", "end", "apiName_id", "args_id"),
    "rocpd_api_ops": ("api_id", "op_id"),
    "rocpd_kernelapi": (
        "api_ptr_id",
        *(f"{level}{axis}" for level in ("grid", "workgroup") for axis in "XYZ"),
    ),
    "rocpd_copyapi": ("api_ptr_id", "size"),
    **dict.fromkeys(("rocpd_monitor", "rocpd_barrierop"), ()),
}
"""Columns of tables of rocmProfileData."""


class Rocpd(Reader):
    """Reader of rocpd databases."""

    name = "rocpd"
    precedence = 30
    description = "AMD rocpd databases, of rocprofv3 and rocmProfileData: kernels, copies, calls, ranges"
    extensions: tuple[str, ...] = (".rpd",)
    capture = "`rocprofv3 --runtime-trace --output-format rocpd -- ...`, or `runTracer.sh -o job.rpd ...`"
    versions = "schema 2 (rocmProfileData), schema 3 (rocprofv3 of ROCm 7)"
    tested = "real: an .rpd of matrix products; documentation: schema 3"

    def sniff(self, head: bytes) -> float:
        """Sure of a database whose beginning names the schema's tables."""
        return 0.95 if head.startswith(MAGIC) and b"rocpd_" in head else 0.0

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """The tables and columns of rocmProfileData that are read; `InputError` for rocprofv3's."""
        from cclbench.formats.sqlite_rewriting import rewrite_database

        if b"rocpd_info_" in read_head(path):
            raise InputError(
                "texts of rocprofv3's databases cannot be redacted",
                where=str(path),
                hint="contribute the run as JSON: rocpd convert -i FILE --output-format json",
            )
        rewrite_database(path, target, redactor, _READ, hint="write it again: runTracer.sh -o job.rpd")
        return True

    def parts(self, path: Path) -> list[Part]:
        """One part for each process."""
        # Here and below: imports that are not needed to recognise a file.
        from cclbench.formats.rocpd.reading import open_captures

        with open_captures(path) as captures:
            return [Part(member) for member in captures]

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """Stream one process's rows; a damaged database has none, since its pages are unordered."""
        from cclbench.formats.rocpd.reading import read_member

        del allow_truncated
        return read_member(path, part.member)


READERS.add(Rocpd.name, Rocpd(), origin=__name__)
