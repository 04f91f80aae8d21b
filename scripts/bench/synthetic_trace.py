# SPDX-License-Identifier: Apache-2.0
"""Write the Kineto trace of one rank of a simulated training job, of any size.

Layout, order of sections and mix of rows are those of the PyTorch profiler with shapes, stacks and memory
enabled. The same arguments give the same bytes. Memory does not grow with the file.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from random import Random

from kineto_rows import SECTIONS, SM_COUNT, Recorder, microseconds, process_names
from llama_step import AUTOGRAD_THREAD, COMPUTE, Group, Trainer, process_groups

GPUS_PER_NODE = 8
BASE_TIME_NS = 1_743_465_600_000_000_000
START_NS = 2_345_678_901_234_567  # since the base time
FIRST_STEP = 10


def opening(rank: int, world_size: int, groups: dict[str, Group]) -> str:
    """The trace up to its first row."""
    device = (
        '    {{\n      "id": {}, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85097971712,\n'
        '      "computeMajor": 8, "computeMinor": 0,\n'
        '      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,\n'
        '      "regsPerBlock": 65536, "warpSize": 32,\n      "sharedMemPerBlock": 49152, "numSms": {}\n'
        '    , "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 166912, '
        '"sharedMemPerMultiprocessor": 167936\n    }}'
    )
    devices = ",\n".join(device.format(number, SM_COUNT) for number in range(GPUS_PER_NODE))
    configuration = [
        {"pg_name": group.name, "pg_desc": group.description, "backend_config": "cuda:nccl",
         "pg_size": len(group.ranks), "ranks": list(group.ranks)} for group in groups.values()
    ]  # fmt: skip
    distributed = {"backend": "nccl", "rank": rank, "world_size": world_size, "pg_count": len(groups),
                   "pg_config": configuration, "nccl_version": "2.21.5"}  # fmt: skip
    return (
        f'{{\n  "schemaVersion": 1,\n  "deviceProperties": [\n{devices}\n  ],\n  "cupti_version": 22,\n'
        f'  "cuda_runtime_version": 12040,\n  "with_flops": 0,\n  "record_shapes": 1,\n'
        f'  "cuda_driver_version": 12040,\n'
        f'  "profile_memory": 1,\n  "with_stack": 1,\n'
        f'  "distributedInfo": {json.dumps(distributed)},\n  "traceEvents": [\n'
    )


def closing(recorder: Recorder, groups: dict[str, Group], rank: int) -> str:
    """The end of the trace, from the rows that name processes and threads."""
    pid, device = recorder.pid, recorder.device
    processes = [(pid, "python3", "CPU", pid)]
    processes += [(gpu, "python3", f"GPU {gpu}", 5_000_000 + gpu) for gpu in range(GPUS_PER_NODE)]
    threads = [
        (device, stream, f"stream {stream} ")
        for stream in (COMPUTE, *(group.stream for group in groups.values()))
    ]
    threads += [(pid, tid, f"thread {tid} (python3)") for tid in (pid, pid + AUTOGRAD_THREAD)]
    return process_names(processes, threads, START_NS) + (
        f'  {{\n    "ph": "X", "cat": "Trace", "ts": {microseconds(START_NS)}, '
        f'"dur": {microseconds(recorder.now - START_NS)},\n'
        '    "pid": "Spans", "tid": "PyTorch Profiler",\n    "name": "PyTorch Profiler (0)",\n'
        '    "args": {\n      "Op count": 0\n    }\n  },\n'
        '  {\n    "name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g",\n'
        f'    "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": {microseconds(START_NS)}\n  }},\n'
        '  {\n    "name": "Record Window End", "ph": "i", "s": "g",\n'
        f'    "pid": "", "tid": "", "ts": {microseconds(recorder.now)}\n  }}\n  ],\n'
        f'  "traceName": "rank{rank}_trace.json",\n  "displayTimeUnit": "ms",\n'
        f'  "baseTimeNanoseconds": {BASE_TIME_NS}\n}}\n'
    )


def write_trace(path: Path, megabytes: float, rank: int = 0, world_size: int = 8, seed: int = 0) -> int:
    """Write whole steps to `path` until it has `megabytes` (of 1e6 bytes); the number of steps.

    The profiler writes the rows of a section for all steps together; all sections but the first are therefore
    kept in temporary files next to `path` until the end.
    """
    random = Random(f"{seed} {rank}")  # noqa: S311 - durations, not secrets
    groups = process_groups(rank, world_size)
    recorder = Recorder(random, pid=2_000_000 + rank, device=rank % GPUS_PER_NODE, start=START_NS + 10_000)
    trainer = Trainer(recorder, random, groups)
    steps, written, target = 0, 0, int(megabytes * 1e6)
    with ExitStack() as files:
        trace = files.enter_context(path.open("w", encoding="ascii"))
        later = [
            files.enter_context(tempfile.TemporaryFile("w+", encoding="ascii", dir=path.parent))
            for _ in SECTIONS[1:]
        ]
        sections = dict(zip(SECTIONS, (trace, *later), strict=True))
        written += trace.write(opening(rank, world_size, groups))
        while written < target or not steps:
            trainer.step(FIRST_STEP + steps)
            steps += 1
            written += sum(file.write(recorder.drain(section)) for section, file in sections.items())
        for file in later:
            file.seek(0)
            shutil.copyfileobj(file, trace, 1 << 20)
        trace.write(closing(recorder, groups, rank))
    return steps


def main() -> None:
    """Write a trace."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT", help="the .json file to write")
    parser.add_argument(
        "--megabytes", type=float, required=True, help="write whole steps until the file has this size"
    )
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world-size", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if not 0 <= asked.rank < asked.world_size:
        parser.error(f"--rank {asked.rank} is not a rank of a world of {asked.world_size}")
    steps = write_trace(asked.out, asked.megabytes, asked.rank, asked.world_size, asked.seed)
    print(f"{asked.out}: {steps} steps, {asked.out.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
