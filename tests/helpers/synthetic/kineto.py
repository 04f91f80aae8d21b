# SPDX-License-Identifier: Apache-2.0
"""Writes a simulated run as Kineto traces, one a rank, with the distortions of real ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any, Literal

from helpers.synthetic.program import ELEMENT_BYTES, Layout
from helpers.synthetic.truth import Instance, Row, StreamWait, Truth

BASE_NS = 1_700_000_000_000_000_000
PID = 4_000
THREAD = 4_001
_KERNEL = {"all_reduce": "AllReduce_Sum_bf16_RING_LL", "all_gather": "AllGather_RING_LL"}
_KERNEL |= {"reduce_scatter": "ReduceScatter_Sum_bf16_RING_LL", "broadcast": "Broadcast_RING_LL"}
_CALLED = {
    "all_reduce": ("allreduce", "allreduce_coalesced"),
    "all_gather": ("_allgather_base", "allgather_into_tensor_coalesced"),
    "reduce_scatter": ("_reduce_scatter_base", "reduce_scatter_tensor_coalesced"),
    "all_to_all": ("all_to_allv",) * 2,
    "send_recv": ("coalesced",) * 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Distortion:
    """How the traces differ from the truth. A rank's clock shows t + offset_ns + drift_ppm · 1e-6 · (t − t0),
    rounded to ns.  Collective kernels end up to `jitter_ns` before the collective's end.  `lost` is the share
    of all collective kernels that are missing; `late` the number of collectives that a rank launched before
    its capture began. `metadata`: on the kernel and its host op, on the host op alone, or nowhere."""

    offset_ns: Mapping[int, int] = field(default_factory=dict)
    drift_ppm: Mapping[int, int] = field(default_factory=dict)
    jitter_ns: int = 0
    lost: Fraction | float = 0
    late: Mapping[int, int] = field(default_factory=dict)
    missing: frozenset[int] = frozenset()
    """Ranks without a trace."""
    metadata: Literal["kernel", "host_op", "none"] = "kernel"
    seq: bool = True
    peers: bool = True
    """Whether transfers tell their source and destination."""
    listed_groups: bool = True
    """Whether `distributedInfo` lists the process groups."""
    group_ranks: bool = True
    """Whether the metadata spells out the group's ranks."""
    described: bool = True
    """Whether groups tell what they are for (`mesh_dp`); else `undefined`."""
    events: bool = False
    """Whether records of events and waits for them are traced."""
    seed: int = 0

    def local_ns(self, rank: int, t: int, t0: int) -> int:
        """What the rank's clock shows at true time `t`."""
        drift = round(Fraction(self.drift_ppm.get(rank, 0)) * (t - t0) / 10**6)
        return t + self.offset_ns.get(rank, 0) + drift


@dataclass(frozen=True, slots=True)
class Written:
    """The traces of the ranks that have one, and the (instance, rank) that none of them shows."""

    files: dict[int, Path]
    lost: frozenset[tuple[int, int]]

    def members(self, instance: Instance) -> tuple[int, ...]:
        """The ranks whose trace shows the instance."""
        return tuple(r for r in instance.members if (instance.index, r) not in self.lost)


def write(truth: Truth, folder: Path, distortion: Distortion | None = None) -> Written:
    """`rank{r}_trace.json` of each rank, into `folder`."""
    d = distortion or Distortion()
    begins = {rank: _capture_begin(truth, rank, d) for rank in truth.ranks}
    shown = [
        (row.instance, rank)
        for rank in truth.ranks
        for row in truth.ranks[rank].rows
        if row.instance is not None and rank not in d.missing and row.op_start_ns >= begins[rank]
    ]
    dropped = set(Random(d.seed).sample(sorted(shown), round(d.lost * len(shown))))  # noqa: S311 - wants repeating, not guessing
    kept = set(shown) - dropped
    every = {(i.index, rank) for i in truth.instances for rank in i.members}
    files = {}
    folder.mkdir(parents=True, exist_ok=True)
    for rank in truth.ranks:
        if rank not in d.missing:
            files[rank] = folder / f"rank{rank}_trace.json"
            trace = _Trace(truth, rank, d, begins[rank], kept).whole()
            files[rank].write_text(json.dumps(trace), encoding="utf-8")
    return Written(files, frozenset(every - kept))


def _capture_begin(truth: Truth, rank: int, d: Distortion) -> int:
    calls = sorted(row.op_start_ns for row in truth.ranks[rank].rows if row.instance is not None)
    return calls[d.late[rank]] if d.late.get(rank) else 0


class _Trace:
    """One rank's file."""

    def __init__(
        self, truth: Truth, rank: int, d: Distortion, begin: int, kept: set[tuple[int, int]]
    ) -> None:
        self.truth, self.rank, self.d, self.begin, self.kept = truth, rank, d, begin, kept
        self.device = rank % truth.layout.gpus_per_host
        self.random = Random(f"{d.seed}/{rank}")  # noqa: S311

    def whole(self) -> dict[str, Any]:
        device = {"name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000, "warpSize": 32}
        count = _devices(self.truth.layout, self.rank)
        properties = [{"id": n, **device, "numSms": 132} for n in range(count)]
        document = {"schemaVersion": 1, "deviceProperties": properties, "displayTimeUnit": "ms"}
        document |= {"distributedInfo": self._distributed(), "baseTimeNanoseconds": BASE_NS}
        return document | {"traceEvents": list(self._events())}

    def _distributed(self) -> dict[str, Any]:
        layout = self.truth.layout
        info: dict[str, Any] = {"backend": "nccl", "rank": self.rank, "world_size": layout.world}
        info |= {"nccl_version": "2.26.2"}
        if self.d.listed_groups:
            own = [
                {"pg_name": name, "pg_size": len(ranks), "ranks": list(ranks), "backend_config": "cuda:nccl"}
                | {"pg_desc": self._description(None if dimension == "world" else dimension)}
                for (dimension, ranks), name in layout.process_groups().items()
                if self.rank in ranks
            ]
            info |= {"pg_count": len(own), "pg_config": own}
        return info

    def _description(self, dimension: str | None) -> str:
        if dimension is None:
            return "default_pg"
        return f"mesh_{dimension}" if self.d.described else "undefined"

    def _events(self) -> Iterator[dict[str, Any]]:
        truth = self.truth.ranks[self.rank]
        for number, begin, end in truth.annotations:
            if end > self.begin:
                name = f"ProfilerStep#{number}"
                yield self._row("user_annotation", name, PID, THREAD, max(begin, self.begin), end, {})
        for row in truth.rows:
            if row.op_start_ns >= self.begin:
                yield from self._of(row)
        for held in self.truth.host.get(self.rank, ()):
            if held.start_ns >= self.begin:
                yield self._row(held.category, held.name, PID, THREAD, held.start_ns, held.end_ns, {})
        if self.d.events:
            for number, wait in enumerate(self.truth.waits[self.rank]):
                if wait.at_ns >= self.begin:
                    yield from self._wait(wait, (1 << 20) + 2 * number)

    def _wait(self, wait: StreamWait, correlation: int) -> Iterator[dict[str, Any]]:
        """The calls that record an event and let a stream wait for it, and the wait as the device has it."""
        record, asked = wait.recorded_ns, wait.at_ns
        for call, at, own in (
            ("cudaEventRecord", record, correlation),
            ("cudaStreamWaitEvent", asked, correlation + 1),
        ):
            yield self._row("cuda_runtime", call, PID, THREAD, at, at, {"correlation": own})
        told = {"cuda_sync_kind": "Stream Wait Event", "wait_on_stream": wait.other}
        told |= {"wait_on_cuda_event_record_corr_id": correlation, "stream": wait.stream}
        told |= {"correlation": correlation + 1, "device": self.device}
        yield self._row("cuda_sync", told["cuda_sync_kind"], self.device, wait.stream, asked, asked, told)

    def _row(
        self, category: str, name: str, pid: int, tid: int, begin: int, end: int, args: dict[str, Any]
    ) -> dict[str, Any]:
        begin, end = (self.d.local_ns(self.rank, t, self.truth.t0_ns) for t in (begin, end))
        row = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "args": args}
        return row | {"ts": begin / 1000, "dur": (end - begin) / 1000}

    def _of(self, row: Row) -> Iterator[dict[str, Any]]:
        """A device event, its launch, and the host op around that."""
        ids: dict[str, Any] = {"External id": row.correlation, "correlation": row.correlation}
        place: dict[str, Any] = {"device": self.device, "context": 1, "stream": row.stream}
        if row.kind == "copy":
            call, category, name = "cudaMemcpyAsync", "gpu_memcpy", "Memcpy HtoD (Pinned -> Device)"
            args = ids | place | {"bytes": row.nbytes}
        elif row.instance is None:
            call, category = "cudaLaunchKernel", "kernel"
            name = row.name or "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
            args = ids | place | {"grid": [132, 1, 1], "block": [256, 1, 1]}
        else:
            yield from self._communication(row, self.truth.instances[row.instance], ids, place)
            return
        yield self._row("cuda_runtime", call, PID, THREAD, row.launch_ns, row.launch_end_ns, ids)
        yield self._row(category, name, self.device, row.stream, row.start_ns, row.end_ns, args)

    def _communication(
        self, row: Row, i: Instance, ids: dict[str, Any], place: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        told = {} if self.d.metadata == "none" else self._metadata(i)
        op = "record_param_comms"
        yield self._row("cpu_op", op, PID, THREAD, row.op_start_ns, row.op_end_ns, told)
        launch = "cudaLaunchKernelExC"
        yield self._row("cuda_runtime", launch, PID, THREAD, row.launch_ns, row.launch_end_ns, ids)
        if (i.index, self.rank) in self.kept:
            name = f"ncclDevKernel_{_KERNEL.get(i.kind, 'SendRecv')}(ncclDevKernelArgsStorage<4096ul>)"
            args: dict[str, Any] = ids | place | {"grid": [24, 1, 1], "block": [640, 1, 1]}
            args |= told if self.d.metadata == "kernel" else {}
            end = max(row.start_ns + 1, row.end_ns - self.random.randint(0, self.d.jitter_ns))
            yield self._row("kernel", name, self.device, row.stream, row.start_ns, end, args)

    def _metadata(self, i: Instance) -> dict[str, Any]:
        called = i.kind_on(self.rank) if i.source is not None else _CALLED[i.kind][i.coalesced > 1]
        told: dict[str, Any] = {"Collective name": called, "dtype": "BFloat16", "Group size": len(i.group)}
        told |= {"In msg nelems": i.in_bytes // ELEMENT_BYTES, "Out msg nelems": i.out_bytes // ELEMENT_BYTES}
        told |= {"Process Group Name": i.group_name}
        told["Process Group Description"] = self._description(i.dimension)
        if self.d.group_ranks:
            told["Process Group Ranks"] = str(list(i.group))
        if self.d.seq:
            told["Seq"] = i.seq
        if self.d.peers and i.source is not None:
            told |= {"Src Rank": i.source, "Dst Rank": i.target}
        return told


def _devices(layout: Layout, rank: int) -> int:
    """Accelerators of the rank's host that ranks use."""
    return sum(layout.host(other) == layout.host(rank) for other in range(layout.world))
