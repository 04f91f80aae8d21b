# SPDX-License-Identifier: Apache-2.0
"""GPU planes: kernels and copies of the streams; all other lines are derived from them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from cclbench import classify
from cclbench.formats import Payload, Rows, Trace
from cclbench.formats.trace import NO_GRID, grid_columns, plausible_amount
from cclbench.formats.xplane import origins, proto
from cclbench.formats.xplane.collectives import DeviceMember, NamedGroups, program_payload
from cclbench.formats.xplane.executions import (
    StreamExecution,
    find_executions,
    row_origins,
    run_instruction,
)
from cclbench.formats.xplane.hlo_proto import HloProgram
from cclbench.formats.xplane.rows import DERIVED, LineEvents, kind_rows, marked_steps
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64

_LINKS: Final = ("correlation_id", "program_id", "cuda_graph_node_id", "scope_range_id")
_DETAILS: Final = ("kernel_details", "memcpy_details", "memset_details", "hlo_op", "hlo_module")
_AMD: Final = ".kd"
"""End of the names of AMD's kernels: kernel descriptor."""
_DIRECTIONS: Final = (
    ("h2d", re.compile(r"HtoD|H2D|HostToDevice")),
    ("d2h", re.compile(r"DtoH|D2H|DeviceToHost")),
    ("p2p", re.compile(r"PtoP|P2P|PeerToPeer")),
    ("d2d", re.compile(r"DtoD|D2D|DeviceToDevice")),
)


def gpu_facts(stats: proto.Stats) -> dict[str, Any]:
    """Facts about the device from its plane, as fields of `TraceFacts`.

    `memory_bandwidth`, in B/s, is 2 · memory clock · bus width, which holds for NVIDIA; the MI300X achieves
    twice that in its traces, so AMD's figure is not used.
    """
    text = str(stats.get("device_vendor")).lower()
    vendor = text if text in ("nvidia", "amd") else None
    bandwidth = plausible_amount(stats.get("memory_bandwidth"))
    name = stats.get("gpu_device_name")
    return {
        "vendor": vendor,
        "device_name": name if isinstance(name, str) else None,
        "sm_count": plausible_amount(stats.get("core_count")),
        "device_memory_bytes": plausible_amount(stats.get("memory_size")),
        "hbm_bytes_per_s": float(bandwidth) if bandwidth and vendor == "nvidia" else None,
    }


def stream_correlations(message: Any) -> set[int]:
    """Correlation ids of all that ran on the plane's streams."""
    keys = {key for key, name in proto.stat_names(message).items() if name == "correlation_id"}
    ids = (
        stat.uint64_value or stat.int64_value
        for line in message.lines
        if line.name.startswith("Stream")
        for event in line.events
        for stat in event.stats
        if stat.metadata_id in keys
    )
    return {i for i in ids if 0 < i < 1 << 63}


def gpu_batches(
    trace: Trace,
    message: Any,
    path: Path,
    device: int,
    epoch_ns: int,
    member: DeviceMember,
    programs: Mapping[int, HloProgram],
) -> Iterator[Rows]:
    """All rows of a GPU's plane; `programs` state payload and participants of collectives."""
    names = {key: metadata.name for key, metadata in proto.event_metadata(message).items()}
    stat_names = proto.stat_names(message)
    keys = {key for key, name in stat_names.items() if name in _LINKS + _DETAILS}
    lines: list[LineEvents] = []
    codes: dict[StreamExecution, int] = {}
    for line in message.lines:
        name = line.name or line.display_name
        if not name.startswith("Stream"):
            _add_marks(trace, line, names, path, epoch_ns)
            continue
        start, dur = proto.event_times(line, line.events, path, epoch_ns)
        code = np.empty(len(start), np.int64)
        for i, event in enumerate(line.events):
            stats = proto.decode_stats(stat_names, (stat for stat in event.stats if stat.metadata_id in keys))
            grid, copy, fill, op, module = (str(stats.get(detail, "")) for detail in _DETAILS)
            title = names.get(event.metadata_id, f"unnamed {event.metadata_id}")
            correlation, program = _positive_number(stats.get("correlation_id")), stats.get("program_id")
            program = program % (1 << 64) if isinstance(program, int) else None
            node, scope = (
                _positive_number(stats.get(name)) or 0 for name in ("cuda_graph_node_id", "scope_range_id")
            )
            run = StreamExecution(title, correlation, grid, copy, fill, op, program, node, scope, module)
            code[i] = codes.setdefault(run, len(codes))
        lines.append(LineEvents(name, line.id, code, start, dur))
    runs, where = list(name_instructions(list(codes), programs)), str(path)
    kinds = np.array([run.row_kind for run in runs], np.str_)
    counts = np.bincount(np.concatenate([[], *(line.code for line in lines)]).astype(np.int64))
    executions = find_executions(runs, programs, counts.tolist())
    origins_of = row_origins(runs, programs, executions)
    for kind in ("kernel", "copy", "memset"):
        columns = {"correlation": pa.array([run.correlation for run in runs], pa.int64())}
        if kind == "kernel":
            columns |= grid_columns([_grid_size(run.grid) for run in runs], where, hint=proto.AGAIN)
        else:
            columns["bytes"] = pa.array(
                [_copy_bytes(run.copy or run.fill, where) for run in runs], pa.int64()
            )
        if kind == "copy":
            texts = [f"{run.name} {run.copy}" for run in runs]
            ways = [
                next((way for way, pattern in _DIRECTIONS if pattern.search(text)), None) for text in texts
            ]
            columns["copy_direction"] = pa.array(ways, pa.string())
        columns |= origins.origin_columns(origins_of)
        columns["operator"] = pa.array(executions.numbers, pa.int64())
        columns["program"] = pa.array([run.module or None for run in runs], pa.string()).dictionary_encode()
        chosen = [line.take_events(kinds[line.code] == kind) for line in lines if len(line)]
        result = kind_rows(
            kind,
            "device",
            chosen,
            [run.name for run in runs],
            device=device,
            columns=columns,
            categories=[_program_category(run, programs) for run in runs] if kind == "kernel" else (),
        )
        if result is None:
            continue
        if kind == "kernel":
            _add_payloads(trace, result[1], runs, programs, member)
        yield result[0]


def name_instructions(
    runs: Sequence[StreamExecution], programs: Mapping[int, HloProgram]
) -> Iterator[StreamExecution]:
    """The executions, those in a graph with the instruction that they run as their `op`.

    A graph's executions state the graph as their op.  A kernel that XLA generates has the name of its
    instruction; products by a library follow one another as the program schedules them, if there are as many.
    """
    in_graph = defaultdict[tuple[int, int | None], list[int]](list)
    ops = [run.op for run in runs]
    for index, run in enumerate(runs):
        if run.program is None or run.program not in programs or run.row_kind != "kernel":
            continue
        program = programs[run.program]
        if run.op in program.instructions:
            continue
        if instruction := program.kernel_instructions.get(run.name.removesuffix(_AMD)):
            ops[index] = instruction
        elif run.node and classify.kernel_category(run.name) == "gemm":
            in_graph[run.program, run.correlation].append(index)
    for (number, _), indices in in_graph.items():
        products = programs[number].library_products
        if len(indices) == len(products):
            for index, product in zip(
                sorted(indices, key=lambda index: runs[index].node), products, strict=True
            ):
                ops[index] = product
    for run, op in zip(runs, ops, strict=True):
        yield run._replace(op=op)


def _add_payloads(
    trace: Trace,
    codes: Int64,
    ran: Sequence[StreamExecution],
    programs: Mapping[int, HloProgram],
    member: DeviceMember,
) -> None:
    """Add the payloads of collectives among the kernels with these codes, from the programs."""
    named = NamedGroups(member.device)
    unknown = alone = 0
    for row, run in enumerate(ran[code] for code in codes.tolist()):
        by_name = _is_collective(run.name)
        if not by_name and _program_category(run, programs) != "communication":
            continue
        instruction = run_instruction(run, programs)
        payload = program_payload(instruction, run.program, member) if instruction is not None else None
        unknown += payload is None
        alone += payload is not None and payload.ranks is None
        payload = named.name_group(payload or Payload(source="kernel"))
        trace.stated_payloads.add_payload(payload if by_name else replace(payload, library="xla"), row=row)
    trace.facts = named.facts_with_groups(trace.facts)
    if unknown:
        trace.notes.append(
            f"payload of {unknown} collectives unknown: the profile has no HLO of their program"
        )
    if alone:
        trace.notes.append(
            f"process group of {alone} collectives unknown: the profile does not state which of the program's"
            " devices this GPU is"
        )


def _program_category(run: StreamExecution, programs: Mapping[int, HloProgram]) -> str | None:
    """A kernel's category from its program, None if its name is classified."""
    if _is_classified(run.name):
        return None
    instruction = run_instruction(run, programs)
    return instruction.category if instruction is not None else None


@lru_cache(maxsize=1 << 12)
def _is_classified(name: str) -> bool:
    return classify.kernel_category(name) is not None


@lru_cache(maxsize=1 << 12)
def _is_collective(name: str) -> bool:
    return classify.collective_name(name) is not None


def _add_marks(trace: Trace, line: Any, names: dict[int, str], path: Path, epoch_ns: int) -> None:
    """Read step marks and runs of modules from a line that is not a stream; count all others as dropped."""
    name = line.name or line.display_name
    if name in ("Steps", "XLA Modules"):
        start, dur = proto.event_times(line, line.events, path, epoch_ns)
        code = np.array([event.metadata_id for event in line.events], np.int64)
        titles = defaultdict(str, names)
        trace.device_steps += marked_steps(
            LineEvents(name, line.id, code, start, dur), titles, numbered=name == "Steps"
        )
        reason = "mark of a step or of a module's run"
    else:
        reason = "row derived from others" if name in DERIVED else "row of a line of unknown meaning"
    if line.events:
        trace.dropped[reason] += len(line.events)


def _grid_size(details: str) -> tuple[int, ...]:
    """Thread blocks along x, y and z from `grid:160,1,1`."""
    grid = re.search(r"grid:(\d{1,19}),(\d{1,19}),(\d{1,19})", details)
    return tuple(map(int, grid.groups())) if grid else NO_GRID


@lru_cache(maxsize=1 << 12)
def _copy_bytes(details: str, where: str) -> int | None:
    """Bytes from `kind:... size:4 dest:1`; None for 0, which the profiler writes if it is unknown."""
    size = re.search(r"\b(?:size|num_bytes):(\d{1,40})\b", details)
    if size and int(size[1]) >= 1 << 62:
        raise InputError(f"impossible copy of {size[1]} bytes", where=where, hint=proto.AGAIN)
    return int(size[1]) or None if size else None


def _positive_number(value: object) -> int | None:
    return value if isinstance(value, int) and 0 < value < 1 << 64 else None
