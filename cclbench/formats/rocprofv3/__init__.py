# SPDX-License-Identifier: Apache-2.0
"""AMD's rocprofv3: JSON output, with one rank for each process.

Of the same tool's database, see `cclbench.formats.rocpd`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cclbench.formats import READERS, Part, Reader, Trace
from cclbench.formats.rewriting import COMMAND_LINE, SOURCE_PATH, SYSTEM


class Rocprof(Reader):
    """Reader of rocprofv3's JSON."""

    name = "rocprofv3"
    precedence = 30
    description = "AMD rocprofv3 JSON: kernels, copies, HIP, HSA and RCCL calls, roctx ranges"
    extensions: tuple[str, ...] = (".json", ".json.gz")
    capture = (
        "`rocprofv3 --runtime-trace --output-format json -- ...`; of long runs `--output-format rocpd`, which"
        " is read in less memory"
    )
    versions = "rocprofiler-sdk 0.5 to 1.1 (ROCm 6.3 to 7.1)"
    tested = (
        "real: a process of a training on MI350X, kernels only; documentation: copies, calls, roctx ranges"
    )

    withheld: Mapping[str, str] = {
        "node": SYSTEM,
        "config": SYSTEM,
        "command": COMMAND_LINE,
        "uri": SOURCE_PATH,
        "att_filenames": SOURCE_PATH,
        "code_object_snapshot_filenames": SOURCE_PATH,
    }

    def sniff(self, head: bytes) -> float:
        """Sure of the tool's outermost key."""
        return 0.95 if b'"rocprofiler-sdk-tool"' in head else 0.0

    def parts(self, path: Path) -> list[Part]:
        """One part for each process."""
        # Here and below: imports that are not needed to recognise a file.
        from cclbench.formats.rocprofv3.reading import process_members

        return [Part(member) for member in process_members(path)]

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """Read one process; a cut file has none, since names stand apart from the rows."""
        from cclbench.formats.rocprofv3.reading import read_process

        del allow_truncated
        return read_process(path, part.member)


READERS.add(Rocprof.name, Rocprof(), origin=__name__)
