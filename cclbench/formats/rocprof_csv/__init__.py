# SPDX-License-Identifier: Apache-2.0
"""AMD's CSV tables: of rocprofv3, a table for each kind of row; of rocprof, one of kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cclbench.formats import READERS, Part, Reader, Trace
from cclbench.formats.csv_tables import heading_of
from cclbench.formats.rewriting import Redactor
from cclbench.ground.errors import InputError

_KERNELS: Final = {"Kernel_Name", "Agent_Id", "Queue_Id", "Start_Timestamp", "End_Timestamp"}
_ROCPROF: Final = {"KernelName", "gpu-id", "queue-id", "BeginNs", "EndNs"}


class RocprofCsv(Reader):
    """Reader of tables of kernels; the tables beside one of rocprofv3 are read with it."""

    name = "rocprof_csv"
    precedence = 25
    description = (
        "AMD rocprofv3 and rocprof CSV: kernels; beside them copies, HIP, HSA and RCCL calls, ranges"
    )
    extensions: tuple[str, ...] = ("kernel_trace.csv", ".csv")
    read_with = (
        "agent_info.csv",
        "memory_copy_trace.csv",
        "hip_api_trace.csv",
        "hsa_api_trace.csv",
        "rccl_api_trace.csv",
        "marker_api_trace.csv",
        "memory_allocation_trace.csv",
        "scratch_memory_trace.csv",
        "rocdecode_api_trace.csv",
        "rocjpeg_api_trace.csv",
    )
    capture = (
        "`rocprofv3 --runtime-trace --output-format csv -- ...`: the folder, since the tables of "
        "calls and copies are read with `kernel_trace.csv`; `rocprof --timestamp on ...`"
    )
    versions = "rocprofiler-sdk 0.4 to 1.1 (ROCm 6.2 to 7.1); rocprof of ROCm 3 to 6"
    tested = "documentation: the tables of rocprofv3 and rocprof"

    def sniff(self, head: bytes) -> float:
        """Sure of the columns of kernels and their times; other tables of the tools have others."""
        names = heading_of(head)
        is_kernels = "Kind" in names[:2] and names.count("Counter_Name") == 0 and set(names) >= _KERNELS
        return 0.95 if is_kernels or set(names) >= _ROCPROF else 0.0

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """`InputError`: one process lies in several files, of which a data point would contain one."""
        del target, redactor
        raise InputError(
            "tables of rocprof cannot be redacted",
            where=str(path),
            hint="contribute the run as JSON: rocprofv3 --output-format json",
        )

    def parts(self, path: Path) -> list[Part]:
        """One part for each process: rocprofv3 writes its tables apart, rocprof has them in one."""
        # Here and below: imports that are not needed to recognise a file.
        from cclbench.formats.rocprof_csv.reading import process_members

        return [Part(member) for member in process_members(path)]

    def read(self, path: Path, *, part: Part, allow_truncated: bool = False) -> Trace:
        """Stream one process's rows; a cut table has none, since the tables belong together."""
        from cclbench.formats.rocprof_csv.reading import read_process

        del allow_truncated
        return read_process(path, part.member, self.companions(path))


READERS.add(RocprofCsv.name, RocprofCsv(), origin=__name__)
