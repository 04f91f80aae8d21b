# SPDX-License-Identifier: Apache-2.0
"""Write an Nsight Systems SQLite export of a simulated training job, of any number of rows.

Tables, columns and mix of rows are those of schema 3.25 for PyTorch under emit_nvtx: 8.3 rows have about 1
kernel, 0.3 copies, 2 CUDA calls and 5 NVTX ranges, each with its own text.  The same arguments give the same
rows.
"""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

EPOCH_NS = 1_750_000_000_000_000_000
FIRST_PID = 4000
UNIT = 10  # kernels between two copies: 10 kernels, 3 copies, 20 calls and 50 ranges
ROWS_OF_UNIT = 83
KERNELS = (
    "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_128x256>(T1::Params)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, T2, T3)",
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>(Flash_fwd_params)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)
CALLS = ("cudaLaunchKernel_v7000", "cudaMemcpyAsync_v3020", "cudaEventRecord_v3020")
OPERATORS = ("aten::mm", "aten::add_", "aten::empty", "aten::copy_", "aten::view")
TABLES = {
    "StringIds": "id INTEGER PRIMARY KEY, value TEXT NOT NULL",
    "META_DATA_EXPORT": "name TEXT, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,"
    " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER,"
    " gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER,"
    " graphNodeId INTEGER",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,"
    " streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER,"
    " srcKind INTEGER, dstKind INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,"
    " correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER",
    "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, rangeId INTEGER, category INTEGER,"
    " color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER,"
    " binaryData TEXT",
}
Rows = Iterator[tuple[Any, ...]]


def kernels(units: int, pid: int, device: int) -> Rows:
    """Kernels of one process, each launched by the call of its correlation."""
    for i in range(units * UNIT):
        start, name = i * 10_000 + 4_000, 1 + i % len(KERNELS)
        yield (
            *(start, start + 7_000 + i % 977, device, 1, 20 if name == 4 else 7, 2 * i + 1, pid << 24),
            *(name, name, 64 + i % 64, 2, 1, 256, 1, 1, None),
        )


def copies(units: int, pid: int, device: int) -> Rows:
    """Copies of one process, to the device and back."""
    for i in range(units * 3):
        start = i * 33_000 + 500
        yield start, start + 3_000, device, 1, 21, None, pid << 24, 1 << 20, 1 + i % 2, 1, 2


def calls(units: int, pid: int) -> Rows:
    """CUDA calls of one process: a launch and another one for each kernel."""
    for i in range(units * UNIT):
        start, thread = i * 10_000, pid << 24 | pid
        yield start, start + 1_500, 0, thread, 2 * i + 1, 1 + len(KERNELS), 0, None
        yield start + 1_600, start + 2_000, 0, thread, 2 * i + 2, 2 + len(KERNELS) + i % 2, 0, None


def ranges(units: int, pid: int) -> Rows:
    """NVTX ranges of one process: a step for each thousand operators, and operators with a number each."""
    thread = pid << 24 | pid
    for i in range(units * 50):
        start = i * 2_000
        name = f"{OPERATORS[i % len(OPERATORS)]}, op_id = {300_000 + i}"
        end = start + 1_900
        if i % 1000 == 0:
            name, end = f"step {i // 1000}", start + 1000 * 2_000 - 100
        yield start, end, 59, None, None, None, name, thread, None, None, 0, None


def write_export(path: Path, rows: int, ranks: int = 2) -> int:
    """Write about `rows` rows of `ranks` processes to `path`; returns their number."""
    units = max(rows // ranks // ROWS_OF_UNIT, 1)
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = OFF")
        for table, columns in TABLES.items():
            quoted = columns.replace(" end ", ' "end" ')
            connection.execute(f"CREATE TABLE {table} ({quoted})")
        _insert(connection, "StringIds", enumerate((*KERNELS, *CALLS), 1))
        versions = (("EXPORT_PRODUCT_VERSION", "2026.2.1.210"), ("EXPORT_SCHEMA_VERSION", "3.25.0"))
        _insert(connection, "META_DATA_EXPORT", iter(versions))
        _insert(connection, "TARGET_INFO_SESSION_START_TIME", iter([(EPOCH_NS, "", "")]))
        for rank in range(ranks):
            pid = FIRST_PID + rank
            _insert(connection, "CUPTI_ACTIVITY_KIND_KERNEL", kernels(units, pid, rank))
            _insert(connection, "CUPTI_ACTIVITY_KIND_MEMCPY", copies(units, pid, rank))
            _insert(connection, "CUPTI_ACTIVITY_KIND_RUNTIME", calls(units, pid))
            _insert(connection, "NVTX_EVENTS", ranges(units, pid))
    return units * ranks * ROWS_OF_UNIT


def _insert(connection: sqlite3.Connection, table: str, rows: Rows | Iterator[Any]) -> None:
    marks = ", ".join("?" * len(connection.execute(f"PRAGMA table_info({table})").fetchall()))
    connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608 - own tables


def main() -> None:
    """Write one export."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--ranks", type=int, default=2)
    asked = parser.parse_args()
    if asked.rows < 1 or asked.ranks < 1:
        parser.error("--rows and --ranks must be positive")
    print(f"{asked.output}: {write_export(asked.output, asked.rows, asked.ranks):,} rows")


if __name__ == "__main__":
    main()
