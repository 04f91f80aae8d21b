# SPDX-License-Identifier: Apache-2.0
"""Write each rank's history as a torch.profiler trace (Kineto's JSON)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from cclbench.selftest.program import AUTOGRAD, RECOMPUTE_OFFSET, Collective, Copy, Kernel, Program
from cclbench.selftest.simulation import DeviceWork, HostRow, RankHistory

_BASE_NS: Final = 4_458_676_000_000_000
"""Times are relative to `baseTimeNanoseconds`, so that a float represents nanoseconds."""
_PID: Final = 4_000
_KINDS: Final = {
    "all_reduce": ("allreduce", "nccl:all_reduce", "AllReduce_Sum_bf16_RING_LL"),
    "all_gather": ("_allgather_base", "nccl:_all_gather_base", "AllGather_RING_LL"),
    "reduce_scatter": ("_reduce_scatter_base", "nccl:_reduce_scatter_base", "ReduceScatter_Sum_bf16_RING_LL"),
    "all_to_all": ("all_to_all", "nccl:all_to_all", "SendRecv"),
    "send": ("send", "nccl:send", "SendRecv"),
    "recv": ("recv", "nccl:recv", "SendRecv"),
}
"""Torch's names of a collective and its range, and NCCL's name of its kernel."""
_PROPERTIES: Final = {
    "NVIDIA A100-SXM4-80GB": {"totalGlobalMem": 85_049_540_608, "computeMajor": 8, "numSms": 108},
    "NVIDIA H100 80GB HBM3": {"totalGlobalMem": 85_028_765_696, "computeMajor": 9, "numSms": 132},
}


def write_traces(program: Program, histories: Sequence[RankHistory], folder: Path) -> None:
    """Write `rank<N>.pt.trace.json` for each rank."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, history in enumerate(histories):
        document = _trace_document(program, rank, history)
        text = json.dumps(document, separators=(",", ":"))
        (folder / f"rank{rank}.pt.trace.json").write_text(text, encoding="utf-8")


def _trace_document(program: Program, rank: int, history: RankHistory) -> dict[str, Any]:
    device = rank % 8
    configurations = [
        {
            "pg_name": name,
            "pg_desc": description,
            "backend_config": "cuda:nccl",
            "pg_size": len(ranks),
            "ranks": list(ranks),
        }
        for name, description, ranks in program.groups
        if rank in ranks
    ]
    shift_ns = _BASE_NS + (program.clock_offsets_ns[rank] if program.clock_offsets_ns else 0)
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": device, "name": program.device, **_PROPERTIES[program.device]}],
        "distributedInfo": {
            "backend": "nccl",
            "rank": rank,
            "world_size": program.rank_count,
            "pg_count": len(configurations),
            "pg_config": configurations,
            "nccl_version": "2.21.5",
        },
        "traceEvents": list(_trace_events(program, rank, history, device, shift_ns)),
        "traceName": f"rank{rank}.pt.trace.json",
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
    }


def _trace_events(
    program: Program, rank: int, history: RankHistory, device: int, shift_ns: int
) -> Iterator[dict[str, Any]]:
    process = _PID + rank

    def trace_event(
        category: str, name: str, pid: int, tid: int, span: tuple[int, int], **args: Any
    ) -> dict[str, Any]:
        start, end = span
        return {
            "ph": "X",
            "cat": category,
            "name": name,
            "pid": pid,
            "tid": tid,
            "ts": (start + shift_ns) / 1_000,
            "dur": (end - start) / 1_000,
            "args": args,
        }

    for pid, name in ((process, "python"), (device, "python")):
        yield {"name": "process_name", "ph": "M", "ts": 0, "pid": pid, "tid": 0, "args": {"name": name}}
    for number, row in enumerate(history.host):
        yield from _host_events(program, process, number, row, trace_event)
    for item in history.device:
        yield _device_event(program, device, item, trace_event)
    if program.sync_events:
        for time_ns, stream, awaited in history.waits:
            yield trace_event(
                "cuda_sync",
                "Stream Wait Event",
                device,
                stream,
                (time_ns, time_ns + 1_000),
                cuda_sync_kind="Stream Wait Event",
                wait_on_stream=awaited.work.stream,
                stream=stream,
                device=device,
                context=1,
            )


def _host_events(
    program: Program, process: int, number: int, row: HostRow, event: Any
) -> Iterator[dict[str, Any]]:
    thread = process + (0 if row.thread != AUTOGRAD else 50)
    span = (row.start_ns, row.end_ns)
    call = row.call
    if row.kind == "annotation":
        yield event("user_annotation", row.name, process, thread, span, **{"External id": number})
        return
    if row.kind == "runtime":
        correlation = row.work.correlation if row.work is not None else 10_000_000 + number
        yield event("cuda_runtime", row.name, process, thread, span, correlation=correlation)
        return
    args: dict[str, Any] = {"External id": number}
    if call is None:
        yield event("cpu_op", row.name, process, thread, span, **args)
        return
    if call.dims:
        args |= {"Input Dims": call.dims, "Input type": [call.dtype] * len(call.dims)}
    if call.sequence is not None:
        args |= {"Sequence number": call.sequence, "Fwd thread id": 0 if call.node is None else 1}
    if call.node is not None:
        wrapper = f"autograd::engine::evaluate_function: {call.node}"
        # A node that recomputes forward operators has a different number from those autograd records in it.
        recomputes = call.node.startswith("Checkpoint")
        node_args = {
            "Sequence number": (call.sequence or 0) - (RECOMPUTE_OFFSET if recomputes else 0),
            "Fwd thread id": 1,
        }
        yield event("cpu_op", wrapper, process, thread, (span[0] - 1_000, span[1] + 800), **node_args)
        yield event("cpu_op", call.node, process, thread, (span[0] - 500, span[1] + 400), **node_args)
        if recomputes:
            args["Fwd thread id"] = 0
        else:
            args.pop("Sequence number", None)
            args.pop("Fwd thread id", None)
    collectives = [work for work in call.works if isinstance(work, Collective)]
    if collectives:
        args |= _collective_arguments(program, process - _PID, collectives[0])
        title = _KINDS[collectives[0].kind][1]
        yield event("user_annotation", title, process, thread, (span[0] + 200, span[1] - 200))
    yield event("cpu_op", row.name, process, thread, span, **args)


def _device_event(program: Program, device: int, item: DeviceWork, event: Any) -> dict[str, Any]:
    work, span = item.work, (item.start_ns, item.end_ns)
    args: dict[str, Any] = {
        "device": device,
        "context": 1,
        "stream": work.stream,
        "correlation": item.correlation,
    }
    if isinstance(work, Copy):
        memory = "Pinned" if work.pinned else "Pageable"
        direction = {"HtoD": f"{memory} -> Device", "DtoH": f"Device -> {memory}", "DtoD": "Device -> Device"}
        name = f"Memcpy {work.direction} ({direction[work.direction]})"
        seconds = max(1, span[1] - span[0]) / 1e9
        args |= {"bytes": work.size, "memory bandwidth (GB/s)": work.size / seconds / 1e9}
        copy: dict[str, Any] = event("gpu_memcpy", name, device, work.stream, span, **args)
        return copy
    if isinstance(work, Kernel):
        args |= {"grid": [max(1, work.grid), 1, 1], "block": [256, 1, 1], "registers per thread": 64}
        kernel: dict[str, Any] = event("kernel", work.name, device, work.stream, span, **args)
        return kernel
    args |= {"grid": [24, 1, 1], "block": [544, 1, 1], **_collective_arguments(program, item.rank, work)}
    name = f"ncclDevKernel_{_KINDS[work.kind][2]}(ncclDevKernelArgsStorage<4096ul>)"
    transfer: dict[str, Any] = event("kernel", name, device, work.stream, span, **args)
    return transfer


def _collective_arguments(program: Program, rank: int, work: Collective) -> dict[str, Any]:
    size = len(work.ranks)
    # For an all-gather and a reduce-scatter, `elements` counts the larger side.
    shard = work.elements // size
    input_elements = shard if work.kind == "all_gather" else work.elements
    output_elements = shard if work.kind == "reduce_scatter" else work.elements
    description = next(text for name, text, _ in program.groups if name == work.group)
    args: dict[str, Any] = {
        "Collective name": _KINDS[work.kind][0],
        "In msg nelems": input_elements,
        "Out msg nelems": output_elements,
        "Group size": size,
        "dtype": "BFloat16",
        "In split size": "[]",
        "Out split size": "[]",
        "Process Group Name": work.group,
        "Process Group Description": description,
        "Process Group Ranks": str(list(work.ranks)),
    }
    if work.peer is not None:
        sender, receiver = (rank, work.peer) if work.kind == "send" else (work.peer, rank)
        args |= {"Src Rank": sender, "Dst Rank": receiver}
    return args
