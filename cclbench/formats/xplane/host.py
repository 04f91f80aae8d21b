# SPDX-License-Identifier: Apache-2.0
"""Profiles of XLA on CPU devices: no device planes, ops on the threads of `/host:CPU`.

Each device ordinal is a rank and is treated like an accelerator: its ops are issued by a call of the program,
run asynchronously and may overlap, so they are the device's kernels, linked to that call by the run id.  An
op's time is from its issue to its completion; with fewer cores than devices it includes waiting for a core.
A collective is one op; its rendezvous are rows of kind sync inside it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from cclbench.formats import Cut, DeviceStep, Names, Part, Payload, Rows, Trace
from cclbench.formats.xplane.buffers import program_buffers
from cclbench.formats.xplane.collectives import DeviceMember, NamedGroups, program_payload
from cclbench.formats.xplane.hlo_proto import Instruction
from cclbench.formats.xplane.host_events import HostEvent, HostOp, HostProfile, Rendezvous, device_ordinals
from cclbench.formats.xplane.ops import CONTAINERS
from cclbench.formats.xplane.origins import origin_columns
from cclbench.formats.xplane.proto import AGAIN
from cclbench.ground.errors import InputError
from cclbench.record.facts import HOST_DEVICE, TraceFacts

_MEMBER: Final = "cpu:"
_CALLED: Final = {"collective-permute": "send_recv", "collective permute": "send_recv"}


def device_parts(profile: HostProfile, path: Path, cut: Cut | None = None, hint: str = AGAIN) -> list[Part]:
    """A part for each device that ran ops, `cpu:0`, `cpu:1`, ...; `InputError` if none did.

    `hint` is shown if the profile is cut before them.
    """
    devices = device_ordinals(profile.ops)
    if cut is not None and not devices:
        message = f"{cut.reason}, before any event of a device"
        raise InputError(message, where=f"{path}: byte {cut.byte:,}", hint=hint)
    if not devices:
        raise InputError(
            "has no device plane, and no op of a CPU device in the host plane",
            where=str(path),
            hint="trace steps that run under jax.jit",
        )
    return [Part(f"{_MEMBER}{device}") for device in devices]


def read_device(profile: HostProfile, part: Part) -> Trace:
    """Rows of a device; the lowest ordinal also gets the process's rows."""
    ordinals = device_ordinals(profile.ops)
    device = int(part.member.removeprefix(_MEMBER))
    place = ordinals.index(device)
    device_ops = sorted(
        (op for op in profile.ops if op.device == device), key=lambda op: (op.start_ns, op.end_ns)
    )
    complete = [op for op in device_ops if op.complete]
    kernels = [op for op in complete if not _is_container(profile, op)]
    first = device == ordinals[0]
    other_events = profile.others if first else []
    batches = [
        _op_rows("kernel", kernels, profile, place),
        _op_rows("annotation", [op for op in complete if _is_container(profile, op)], profile, place),
        _host_rows("sync", [row for row, of_device in profile.meetings if of_device == device], place),
        _launch_rows(profile.launches, {op.run for op in device_ops}),
        _host_rows(
            "annotation", [*profile.steps, *(row for kind, row in other_events if kind == "annotation")]
        ),
        _host_rows("other", [row for kind, row in other_events if kind == "other"]),
        *([program_buffers(profile.programs.values())] if first else []),
    ]
    trace = Trace(
        batches=iter([rows for rows in batches if len(rows)]),
        facts=_host_facts(profile, ordinals, place),
        device_steps=_module_runs(complete),
        dropped=Counter(profile.dropped if first else ()),
    )
    if missing := len(device_ops) - len(complete):
        trace.dropped["op whose end is not in the capture"] = missing
    _add_payloads(trace, kernels, _calls(profile), device)
    return trace


def _is_container(profile: HostProfile, op: HostOp) -> bool:
    """Whether the op is a loop or call that contains other ops."""
    instruction = _op_instruction(profile, op.program, op.name)
    opcode = instruction.opcode if instruction else op.name.partition(".")[0]
    return opcode in CONTAINERS


def _op_instruction(profile: HostProfile, number: int | None, name: str) -> Instruction | None:
    program = None if number is None else profile.programs.get(number)
    return program.instructions.get(name) if program else None


def _op_rows(kind: str, ops: Sequence[HostOp], profile: HostProfile, place: int) -> Rows:
    rows = _host_rows(kind, ops, place)
    numbers: dict[tuple[int | None, str], int] = {}
    number = pa.array([numbers.setdefault((op.program, op.name), len(numbers)) for op in ops], pa.int64())
    instructions = [_op_instruction(profile, program, name) for program, name in numbers]
    of_program = origin_columns(
        [None if instruction is None else instruction.origin for instruction in instructions]
    )
    categories_by_code: dict[int, set[str | None]] = defaultdict(set)
    for code, op in zip(rows.codes.tolist(), ops, strict=True):
        instruction = _op_instruction(profile, op.program, op.name)
        categories_by_code[code].add(
            "communication" if op.meeting else instruction.category if instruction else None
        )
    return dataclasses.replace(
        rows,
        correlation=[op.run for op in ops],
        program=pa.array([op.module or None for op in ops], pa.string()).dictionary_encode(),
        **{name: column.take(number) for name, column in of_program.items()},
        # Programs may use one name for different ops; it is then classified by name alone.
        name_categories={
            code: category
            for code, categories in categories_by_code.items()
            if len(categories) == 1 and (category := next(iter(categories))) is not None
        },
    )


def _host_rows(kind: str, rows: Sequence[HostEvent | HostOp], device: int | None = None) -> Rows:
    names = Names()
    start = np.array([row.start_ns for row in rows], np.int64)
    return Rows(
        kind=kind,
        side="host" if device is None else "device",
        names=names,
        codes=np.fromiter((names[row.name] for row in rows), np.int32, len(rows)),
        start_ns=start,
        dur_ns=np.array([row.end_ns for row in rows], np.int64) - start,
        track=np.array([row.track for row in rows], np.int64),
        device=None if device is None else [device] * len(rows),
        correlation=[row.run for row in rows] if kind == "launch" else None,
    )


def _launch_rows(calls: Iterable[HostEvent], runs: set[int | None]) -> Rows:
    """The outermost call that started each run."""
    outermost: dict[int, HostEvent] = {}
    for call in sorted(calls, key=lambda row: (row.start_ns, -row.end_ns)):
        if call.run is not None and call.run in runs:
            outermost.setdefault(call.run, call)
    return _host_rows("launch", list(outermost.values()))


def _module_runs(ops: Iterable[HostOp]) -> list[DeviceStep]:
    """Each run of a module on the device, from its first op's issue to its last op's completion."""
    spans: dict[tuple[int | None, str], tuple[int, int]] = {}
    for op in (op for op in ops if op.run is not None):
        start, end = spans.get((op.run, op.module), (op.start_ns, op.end_ns))
        spans[op.run, op.module] = min(start, op.start_ns), max(end, op.end_ns)
    return [DeviceStep(module, *span) for (_, module), span in spans.items()]


def _host_facts(profile: HostProfile, everywhere: Sequence[int], place: int) -> TraceFacts:
    process, version = profile.stats.get("process_id"), profile.stats.get("jax_version")
    program = {i for ids in _calls(profile).placed.values() for i in ids.ravel().tolist()}
    world = len(program) if program.issuperset(everywhere) else profile.world_size or 0
    return TraceFacts(
        producer="JAX profiler" if version else "XLA profiler",
        producer_version=str(version) if version else None,
        process_id=process if isinstance(process, int) else None,
        device_name=HOST_DEVICE,
        # Separate programs of one device each are not a world.
        world_size=world if world >= len(everywhere) else None,
        device_count=len(everywhere),
        local_rank=place,
    )


def _add_payloads(trace: Trace, kernels: Sequence[HostOp], calls: _CollectiveOps, device: int) -> None:
    """Add the payload of each collective, and its sequence number in the group."""
    named = NamedGroups(device)
    unknown: Counter[str] = Counter()
    for row, op in enumerate(kernels):
        payload = calls.op_payload(op)
        if payload is not None:
            unknown[op.module] += payload.in_bytes is None or payload.out_bytes is None
            trace.stated_payloads.add_payload(
                named.name_group(payload), row=row, seq=calls.sequence_numbers.get(id(op))
            )
    trace.facts = named.facts_with_groups(trace.facts)
    for module, count in (+unknown).items():
        trace.notes.append(
            f"payload bytes of {count} collectives unknown: the profile's HLO of {module} does not state them"
        )


class _CollectiveOps:
    """Payloads of a profile's collectives, with device ids as their `ranks`."""

    def __init__(self, profile: HostProfile) -> None:
        self.profile, self.devices = profile, set(device_ordinals(profile.ops))
        listed = ((number, program.device_ids) for number, program in profile.programs.items())
        self.placed = {number: ids for number, ids in listed if ids is not None}
        self.known: dict[tuple[int | None, str, int, Rendezvous | None], Payload | None] = {}

    def op_payload(self, op: HostOp) -> Payload | None:
        """The payload, None if the op is not a collective; its rendezvous overrides the program."""
        key = op.program, op.name, op.device, op.meeting
        if key not in self.known:
            self.known[key] = self._program_payload(op)
        return self.known[key]

    def _program_payload(self, op: HostOp) -> Payload | None:
        instruction, rendezvous = _op_instruction(self.profile, op.program, op.name), op.meeting
        payload = (
            program_payload(instruction, op.program, DeviceMember(op.device, self.placed))
            if instruction
            else None
        )
        if rendezvous is not None:
            payload = payload or Payload(
                source="kernel", collective=_CALLED.get(rendezvous.collective, rendezvous.collective)
            )
            payload = replace(payload, ranks=rendezvous.devices, group_size=len(rendezvous.devices))
        return payload and replace(payload, library="xla")

    @cached_property
    def sequence_numbers(self) -> dict[int, int]:
        """Sequence number of each collective op in its group, by `id` of the op.

        Peers run the same op of the same run for the same n-th time; collectives are numbered by their first
        arrival, which takes all devices of the group.  Channel ids are not used: JAX gives all collectives of
        a shard_map the same one.
        """
        turns: Counter[tuple[object, ...]] = Counter()
        last: Counter[tuple[int, ...]] = Counter()
        number: dict[tuple[object, ...], int] = {}
        numbers = {}
        for op in sorted(self.profile.ops, key=lambda op: op.start_ns):
            payload = self.op_payload(op)
            if payload is None or payload.ranks is None or not self.devices.issuperset(payload.ranks):
                continue
            group = tuple(sorted(payload.ranks))
            run_key = op.run, op.program, op.name
            turn = turns[(*run_key, op.device)]
            turns[(*run_key, op.device)] += 1
            if (*run_key, group, turn) not in number:
                number[*run_key, group, turn] = last[group]
                last[group] += 1
            numbers[id(op)] = number[*run_key, group, turn]
        return numbers


_calls: Final = lru_cache(maxsize=1)(_CollectiveOps)
"""Cached for the last profile, for its next device."""
