# SPDX-License-Identifier: Apache-2.0
"""Perfetto's protobuf traces, as AMD's profilers write them: rocprofv3, rocpd and rocprof-sys.

Of any other tool's trace nothing says which slices are kernels: it is refused.
"""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Part, Reader, Trace
from cclbench.formats.recognition import head_of
from cclbench.formats.rewriting import Redactor
from cclbench.ground.errors import InputError

_PACKETS: Final = re.compile(
    rb"\n[\x80-\xff]{0,4}[\x01-\x7f](?:[\x18\x28\x32\x40\x50\x5a\x62\x6a\x8a\x9a\xa2\xca\xd0\xda\xe2\xea]"
    rb".*?P[\x01-\x7f].*?\n|\x92\x03[\x80-\xff]{0,4}[\x01-\x7f]\x78)",
    re.DOTALL,
)
"""Packets: a field of TracePacket first, and somewhere `trusted_packet_sequence_id`; or compressed ones."""
_BEGINNING: Final = 1 << 12


class Perfetto(Reader):
    """Reader of Perfetto traces with kernels."""

    name = "perfetto"
    precedence = 22
    description = "Perfetto protobuf of AMD's rocprofv3 and rocprof-sys: kernels, copies, calls, roctx ranges"
    extensions: tuple[str, ...] = (".pftrace", ".pftrace.gz", ".perfetto-trace")
    capture = "`rocprofv3 --runtime-trace --agent-index type-relative --output-format pftrace -- ...`"
    versions = "rocprofiler-sdk 0.5 to 1.0 (ROCm 6.3 to 7.0), rocprof-sys of ROCm 7"
    tested = "documentation: Perfetto's schema, the source of rocprofv3's and rocpd's writers"

    def sniff(self, head: bytes) -> float:
        """Sure of packets; whether they hold kernels shows `refuse`."""
        return 0.92 if _PACKETS.match(head) else 0.0

    def refuse(self, path: Path) -> None:
        """`UnreadFormatError` for a trace without kernels: of Android, Chrome, any user of the SDK."""
        try:
            if not _PACKETS.match(head_of(path, _BEGINNING)):
                return
        except zlib.error:
            return
        # Here and below: imports that are not needed to recognise a file.
        from cclbench.formats.perfetto.survey import refuse_without_kernels

        refuse_without_kernels(path)

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """`InputError`: a trace holds command lines and descriptions of the machine among its packets."""
        del target, redactor
        raise InputError(
            "texts of Perfetto traces cannot be redacted",
            where=str(path),
            hint="contribute the run as JSON: rocprofv3 --output-format json",
        )

    def parts(self, path: Path) -> list[Part]:
        """One part for each process with kernels."""
        from cclbench.formats.perfetto.survey import survey_of

        return [Part(member) for member in survey_of(path).processes()]

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """Stream one process's rows; a cut file has none, since its rows are in no order of time."""
        from cclbench.formats.perfetto.reading import read_process

        del allow_truncated
        return read_process(path, part.member)


READERS.add(Perfetto.name, Perfetto(), origin=__name__)
