# SPDX-License-Identifier: Apache-2.0
"""What HLO says of a collective: kind, payload from shape and type, and who takes part, as global device ids.

Replica groups number replicas, partitions or both, by the opcode and its attributes; the program's device
assignment says which device each is (openxla.org/xla/operation_semantics).  Without the assignment the
size of the group is known and its ranks are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np

from cclbench.errors import InputError
from cclbench.intervals import Int64
from cclbench.readers import Payload, hlo
from cclbench.readers.xplane import proto
from cclbench.readers.xplane.hlo_proto import Instruction

_KINDS: Final = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all",
    "ragged-all-to-all": "all_to_all",
    "collective-permute": "send_recv",
    "collective-broadcast": "broadcast",
    "send": "send",
    "recv": "recv",
}
_BY_PARTITION: Final = ("all-to-all", "ragged-all-to-all", "collective-permute", "collective-broadcast")
_MODULE, _ASSIGNMENT = 1, 15


class Member(msgspec.Struct, frozen=True):
    """A device as its programs know it."""

    device: int | None
    """Its global id."""
    assignments: Mapping[int, Any] = {}
    """Global device ids by program, shape (replicas, partitions)."""


def named(category: str) -> bool:
    """Whether a category of ops names a collective: `all-reduce`, `all-reduce-scatter fusion`."""
    return any(opcode in category for opcode in _KINDS)


def payload(instruction: hlo.Instruction, program: int | None, member: Member) -> Payload | None:
    """What an instruction says of the collective it is; None where it is none."""
    opcode = instruction.opcode.removesuffix("-start")
    if opcode not in _KINDS:
        return None
    operands = hlo.shapes(" ".join(instruction.operands))
    # A start's result is (operand, result, ...), but that of all-reduce-start is the result.
    paired = opcode != instruction.opcode and opcode != "all-reduce" and len(instruction.results) > 1
    results = hlo.shapes(instruction.results[1] if paired else " ".join(instruction.results))
    ids = None if program is None else member.assignments.get(program)
    size, ranks = _participants(instruction, opcode, ids, member.device)
    source, target = _partners(instruction, ids, member.device)
    return Payload(
        source="kernel",
        collective=_KINDS[opcode],
        in_bytes=hlo.total_bytes(operands),
        out_bytes=hlo.total_bytes(results),
        dtype=next((array.dtype for array in (*operands, *results) if array.bytes), None),
        group_size=size,
        ranks=ranks,
        src_rank=source,
        dst_rank=target,
    )


def of_program(known: Instruction) -> Payload | None:
    """What a program's HLO says of the collective an instruction is, where only its name is in the trace.

    Who takes part is not told there.
    """
    opcode = known.opcode.removesuffix("-start")
    if opcode not in _KINDS:
        return None
    out = known.out_bytes
    if opcode != known.opcode and opcode != "all-reduce" and out is not None:
        out = None if known.in_bytes is None else out - known.in_bytes  # a start gives its operand back too
    return Payload(
        source="kernel",
        collective=_KINDS[opcode],
        in_bytes=known.in_bytes,
        out_bytes=out,
        dtype=known.dtype,
    )


def programs(message: Any) -> dict[int, bytes]:
    """The HloProto of each program in a `/host:metadata` plane, by the program's id."""
    names = proto.stat_names(message)
    found = {}
    for key, metadata in proto.event_metadata(message).items():
        stated = proto.stats(names, metadata.stats)
        program = stated.get("Hlo Proto", stated.get("hlo_proto"))
        if isinstance(program, bytes):
            found[key % (1 << 64)] = program
    return found


def assignment(program: bytes, where: str) -> Int64 | None:
    """Global device ids of an HloProto's module, shape (replicas, partitions); None where it tells none."""
    for number, begin, end in _inside(program, 0, len(program), where):
        if number != _MODULE:
            continue
        for field, first, last in _inside(program, begin, end, where):
            if field == _ASSIGNMENT:
                return _ids(program, first, last, where)
    return None


def _ids(program: bytes, begin: int, end: int, where: str) -> Int64 | None:
    columns: list[list[int]] = []
    for number, first, last in _inside(program, begin, end, where):
        if number == 3:
            packed = [(a, b) for field, a, b in _inside(program, first, last, where) if field == 1]
            columns.append([i for a, b in packed for i in proto.varints(program, a, b, where)])
    if not columns or not columns[0] or len({len(column) for column in columns}) > 1:
        return None
    if sum(map(len, columns)) > hlo.MOST_DEVICES or max(map(max, columns)) >= 1 << 31:
        return None
    return np.array(columns, np.int64).T


def _inside(data: bytes, begin: int, end: int, where: str) -> list[tuple[int, int, int]]:
    """Number and range of each field of an embedded message."""
    found = [(number, first, last) for number, _, first, last in proto.fields(data, begin, end, where)]
    if found and found[-1][2] > end:
        raise InputError("ends too early", where=where, hint="is the file damaged?")
    return found


def _participants(
    instruction: hlo.Instruction, opcode: str, ids: Int64 | None, device: int | None
) -> tuple[int | None, tuple[int, ...] | None]:
    """Size of this device's group and its ranks."""
    if opcode in ("send", "recv"):
        return 2, None
    pairs = hlo.source_target_pairs(instruction.attributes)
    groups = _connected(pairs) if pairs else hlo.replica_groups(instruction.attributes)
    if groups is None:
        return None, None
    spaces = None if ids is None or device is None else _spaces(instruction, opcode, ids, device)
    if spaces is None:
        across = instruction.has_channel and not instruction.has_global_ids and opcode not in _BY_PARTITION
        sizes = {len(group) for group in groups}
        return (sizes.pop() if len(sizes) == 1 and not across else None), None
    for group in groups or (tuple(range(len(spaces))),):
        if all(i < len(spaces) for i in group):
            ranks = [rank for i in group for rank in spaces[i]]
            if device in ranks:
                return len(ranks), tuple(ranks)
    return None, None


def _connected(pairs: tuple[tuple[int, int], ...]) -> hlo.Groups:
    """Those that a collective-permute links with one another, directly or through others."""
    group: dict[int, set[int]] = {}
    for source, target in pairs:
        one, other = sorted((group.setdefault(i, {i}) for i in (source, target)), key=len)
        if one is not other:
            other |= one
            group.update(dict.fromkeys(one, other))
    return tuple({tuple(sorted(linked)) for linked in group.values()})


def _spaces(instruction: hlo.Instruction, opcode: str, ids: Int64, device: int) -> list[list[int]] | None:
    """Devices each number of a replica group means, seen from this one; None where it runs nothing."""
    own = np.argwhere(ids == device)
    if len(own) != 1:
        return None
    replica, partition = own[0].tolist()
    if instruction.has_global_ids:
        numbered = ids.reshape(-1, 1)
    elif not instruction.has_channel:
        numbered = ids[:, partition].reshape(-1, 1)
    elif opcode in _BY_PARTITION:
        numbered = ids[replica].reshape(-1, 1)
    else:
        numbered = ids
    return [list(row) for row in numbered.tolist()]


def _partners(
    instruction: hlo.Instruction, ids: Int64 | None, device: int | None
) -> tuple[int | None, int | None]:
    """Who sends to this device in a collective-permute and to whom it sends; itself where nobody does."""
    pairs = hlo.source_target_pairs(instruction.attributes)
    if not pairs or ids is None or device is None:
        return None, None
    spaces = _spaces(instruction, "collective-permute", ids, device)
    if spaces is None or max(map(max, pairs)) >= len(spaces):
        return None, None
    own = next((i for i, (rank,) in enumerate(spaces) if rank == device), None)
    sources = [source for source, target in pairs if target == own]
    targets = [target for source, target in pairs if source == own]
    if own is None or not (sources or targets):
        return None, None
    return spaces[sources[0] if sources else own][0], spaces[targets[0] if targets else own][0]
