# SPDX-License-Identifier: Apache-2.0
"""Collectives from HLO: kind, payload by shape and type, and participants as global device ids.

Replica groups number replicas, partitions or both, depending on the opcode and its attributes; the program's
device assignment maps them to devices (openxla.org/xla/operation_semantics).  Without the assignment the size
of the group is known, but not its ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np

from cclbench.formats import Payload
from cclbench.formats.xplane import hlo
from cclbench.formats.xplane.hlo_proto import Instruction
from cclbench.ground.intervals import Int64
from cclbench.ground.schema import group_id
from cclbench.record.facts import Communicator, ProcessGroup, TraceFacts

_AS_OURS: Final = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send", "recv")
_KINDS: Final = {
    **{opcode: opcode.replace("-", "_") for opcode in _AS_OURS},
    "ragged-all-to-all": "all_to_all",
    "collective-permute": "send_recv",
    "collective-broadcast": "broadcast",
}
_NAMELESS: Final = "unknown"
_BY_PARTITION: Final = ("all-to-all", "ragged-all-to-all", "collective-permute", "collective-broadcast")


class DeviceMember(msgspec.Struct, frozen=True):
    """A device in its programs."""

    device: int | None
    """Its global id."""
    programs: Mapping[int, Int64] = {}
    """Global device ids by program, shape (replicas, partitions)."""


def names_collective(category: str) -> bool:
    """Whether a category of ops is a collective: `all-reduce`, `all-reduce-scatter fusion`."""
    return any(opcode in category for opcode in _KINDS)


def collective_payload(instruction: hlo.HloText, program: int | None, member: DeviceMember) -> Payload | None:
    """The payload that an instruction's text states; None if it is not a collective."""
    opcode = instruction.opcode.removesuffix("-start")
    if opcode not in _KINDS:
        return None
    operands = hlo.parse_shapes(" ".join(instruction.operands))
    # A start's result is (operand, result, ...), that of all-reduce-start only the result.
    paired = opcode != instruction.opcode and opcode != "all-reduce" and len(instruction.results) > 1
    results = hlo.parse_shapes(instruction.results[1] if paired else " ".join(instruction.results))
    return Payload(
        source="kernel",
        library="xla",
        collective=_KINDS[opcode],
        in_bytes=hlo.total_bytes(operands),
        out_bytes=hlo.total_bytes(results),
        dtype=next((array.dtype for array in (*operands, *results) if array.bytes), None),
        **collective_members(opcode, hlo.parse_participants(instruction.attributes), program, member),
    )


def program_payload(instruction: Instruction, program: int | None, member: DeviceMember) -> Payload | None:
    """The payload that a program's HLO states, if the trace has only the instruction's name."""
    opcode = instruction.opcode.removesuffix("-start")
    if opcode not in _KINDS or instruction.participants is None:
        return None
    out = instruction.out_bytes
    if opcode != instruction.opcode and opcode != "all-reduce" and out is not None:
        out = (
            None if instruction.in_bytes is None else out - instruction.in_bytes
        )  # a start also returns its operand
    return Payload(
        source="hlo",
        collective=_KINDS[opcode],
        in_bytes=instruction.in_bytes,
        out_bytes=out,
        dtype=instruction.dtype,
        **collective_members(opcode, instruction.participants, program, member),
    )


def collective_members(
    opcode: str, participants: hlo.Participants, program: int | None, member: DeviceMember
) -> dict[str, Any]:
    """Size and devices of this device's group, and its peers, as fields of `Payload`."""
    if opcode in ("send", "recv"):
        return {"group_size": 2}
    ids = None if program is None else member.programs.get(program % (1 << 64))
    groups = _connected_pairs(participants.pairs) if participants.pairs else participants.groups
    if groups is None:
        return {}
    numbered = None if ids is None else _group_devices(opcode, participants, ids, member.device)
    if numbered is None:
        ambiguous = (
            participants.has_channel and not participants.has_global_ids and opcode not in _BY_PARTITION
        )
        sizes = {len(group) for group in groups}
        return {"group_size": sizes.pop() if len(sizes) == 1 and not ambiguous else None}
    for group in groups or (tuple(range(len(numbered))),):
        if all(0 <= i < len(numbered) for i in group):
            devices = tuple(device for i in group for device in numbered[i])
            if member.device in devices:
                partners = _permute_partners(participants.pairs, numbered, member.device)
                return {"group_size": len(devices), "ranks": devices, **partners}
    return {}


class NamedGroups:
    """Replaces device ids, which are not ranks, by named groups; ingestion matches them across ranks."""

    def __init__(self, device: int | None) -> None:
        self.device = device
        self.communicators: dict[str, Communicator] = {}
        self.unknown = False

    def name_group(self, payload: Payload) -> Payload:
        """The payload with its group's name instead of its devices."""
        if payload.ranks is None or self.device not in payload.ranks:
            self.unknown = True
            name = _NAMELESS
        else:
            devices = sorted(payload.ranks)
            name = f"devices {group_id(payload.ranks)}"
            place = Communicator(name, devices.index(self.device), len(devices))
            self.communicators[name] = place
        return msgspec.structs.replace(payload, ranks=None, src_rank=None, dst_rank=None, group_name=name)

    def facts_with_groups(self, facts: TraceFacts) -> TraceFacts:
        """Facts with all named groups, so that no other group is identified with one of them."""
        names = [*self.communicators, *([_NAMELESS] if self.unknown else [])]
        groups = tuple(map(ProcessGroup, names))
        communicators = tuple(self.communicators.values())
        return msgspec.structs.replace(facts, groups=groups, communicators=communicators)


def _connected_pairs(pairs: tuple[tuple[int, int], ...]) -> hlo.Groups:
    """Connected components of the pairs of a collective-permute."""
    group: dict[int, set[int]] = {}
    for source, target in pairs:
        smaller, larger = sorted((group.setdefault(i, {i}) for i in (source, target)), key=len)
        if smaller is not larger:
            larger |= smaller
            group.update(dict.fromkeys(smaller, larger))
    return tuple({tuple(sorted(linked)) for linked in group.values()})


def _group_devices(
    opcode: str, participants: hlo.Participants, ids: Int64, device: int | None
) -> list[list[int]] | None:
    """Devices for each number in a replica group, as seen from this device; None if it is not assigned."""
    position = np.argwhere(ids == device)
    if device is None or len(position) != 1:
        return None
    replica, partition = position[0].tolist()
    if participants.has_global_ids:
        numbered = ids.reshape(-1, 1)
    elif not participants.has_channel:
        numbered = ids[:, partition].reshape(-1, 1)
    elif opcode in _BY_PARTITION:
        numbered = ids[replica].reshape(-1, 1)
    else:
        numbered = ids
    return [list(row) for row in numbered.tolist()]


def _permute_partners(
    pairs: tuple[tuple[int, int], ...], numbered: list[list[int]], device: int | None
) -> dict[str, int]:
    """Source and destination of this device in a collective-permute; itself if there is none."""
    number = next(i for i, devices in enumerate(numbered) if device in devices)
    sources = [source for source, target in pairs if target == number]
    targets = [target for source, target in pairs if source == number]
    if not (sources or targets):
        return {}
    source, target = (ends[0] if ends else number for ends in (sources, targets))
    return {"src_rank": numbered[source][0], "dst_rank": numbered[target][0]}
