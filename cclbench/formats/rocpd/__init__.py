# SPDX-License-Identifier: Apache-2.0
"""AMD's rocpd databases: of rocprofv3, and of rocmProfileData (`.rpd`); one rank for each process."""

from __future__ import annotations

from pathlib import Path

from cclbench.formats import READERS, Part, Reader, Trace
from cclbench.formats.rewriting import Redactor
from cclbench.formats.sqlite_file import MAGIC
from cclbench.ground.errors import InputError


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
        """`InputError`: the texts of these databases are not published."""
        del target, redactor
        raise InputError(
            "texts of rocpd databases cannot be redacted",
            where=str(path),
            hint="contribute the run as JSON: rocpd convert -i FILE --output-format json",
        )

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
