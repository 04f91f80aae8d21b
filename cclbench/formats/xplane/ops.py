# SPDX-License-Identifier: Apache-2.0
"""TPU ops from the metadata of their events: HLO text, category, FLOPs, bytes, payload."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from cclbench import classify
from cclbench.formats import Payload
from cclbench.formats.xplane import collectives, hlo, proto
from cclbench.formats.xplane.origins import InstructionOrigin, text_origin

CONTAINERS: Final = ("while", "conditional", "call")
"""Opcodes whose rows contain the rows of the computations they call."""
_HBM: Final = 1
_FEEDS: Final = ("infeed", "outfeed")
"""Opcodes that take data from the host or hand it over, for which the core waits."""
_MOVES: Final = re.compile(r"(?:copy|slice|dynamic-slice|dynamic-update-slice)-start")
_CATEGORIES: Final = {
    "loop fusion": "elementwise",
    "non-fusion elementwise": "elementwise",
    "reduce": "reduction",
    "reduce-window": "reduction",
    **dict.fromkeys(("data formatting", "broadcast", "copy", "pad", "concatenate", "slice"), "copy"),
    **dict.fromkeys(("dynamic-slice", "dynamic-update-slice"), "copy"),
}
"""Category by XLA's `hlo_category`; ops of other categories are classified by name.

XLA:TPU runs every matrix product as a `convolution`: it is a convolution if the framework's op is, else a
product.
"""


class TpuOp(msgspec.Struct, frozen=True):
    """An op; its role is work, container, issue (`-start`), wait (`-done`), transfer or mark."""

    name: str
    role: str
    program: int | None = None
    category: str | None = None
    flops: float | None = None
    hbm_bytes: int | None = None
    bytes: int | None = None
    copy_direction: str | None = None
    payload: Payload | None = None
    origin: InstructionOrigin | None = None
    waits_for: str | None = None
    """For a wait: the name of the op that issued the awaited transfer."""

    @property
    def row_kind(self) -> str:
        """The kind of row: a transfer without a collective is a copy."""
        moves = self.role == "transfer" and self.payload is None and self.category == "copy"
        return "copy" if moves else {"issue": "sync", "wait": "sync"}.get(self.role, "kernel")


def parse_op(
    text: str, display: str, stats: proto.Stats, member: collectives.DeviceMember, where: str
) -> TpuOp:
    """Parse an op of the line `XLA Ops`."""
    instruction = hlo.parse_instruction(text)
    program = _as_integer(stats.get("program_id"))
    if instruction is None:
        return TpuOp(display or text[:200], "work", program)
    category = str(stats.get("hlo_category", ""))
    payload = collectives.collective_payload(instruction, program, member)
    issues = instruction.opcode.endswith("-start") or instruction.opcode in ("send", "recv")
    waits = instruction.opcode.endswith("-done") or instruction.opcode in _FEEDS
    moves = _MOVES.fullmatch(instruction.opcode) is not None
    size, direction = _copied_bytes(instruction) if moves else (None, None)
    default_role = "container" if instruction.opcode in CONTAINERS else "work"
    return TpuOp(
        name=_op_name(instruction, category, payload),
        role="issue" if issues else "wait" if waits else default_role,
        program=program,
        category="communication" if payload else "copy" if moves else _op_category(category, stats),
        flops=_op_flops(instruction.opcode, stats),
        hbm_bytes=_hbm_bytes(stats, where),
        bytes=size,
        copy_direction=direction,
        payload=payload,
        origin=text_origin(instruction, stats),
        waits_for=instruction.first_operand if waits else None,
    )


def transfer_op(issued: TpuOp, awaited: TpuOp | None) -> TpuOp:
    """The transfer that an op issued, which runs asynchronously until it is awaited."""
    parts = [part.hbm_bytes for part in (issued, awaited) if part is not None and part.hbm_bytes is not None]
    return msgspec.structs.replace(issued, role="transfer", hbm_bytes=sum(parts) if parts else None)


def _op_name(instruction: hlo.HloText, category: str, payload: Payload | None) -> str:
    """The instruction's name, with a prefix if it would be misclassified; of infeeds the opcode."""
    if instruction.opcode in _FEEDS:
        return instruction.opcode
    communicates = payload is not None or collectives.names_collective(category)
    if (
        communicates == (classify.collective_name(instruction.name) is not None)
        or instruction.opcode == "custom-call"
    ):
        return instruction.name
    prefix = category.split(" ")[0] if communicates and payload is None else instruction.opcode
    return f"{prefix}.{instruction.name}"


def _copied_bytes(instruction: hlo.HloText) -> tuple[int | None, str | None]:
    """Bytes and direction: (to, from, ...) = copy-start(from); ((from, ...), to, ...) = slice-start(from)."""
    to = hlo.parse_shapes(
        "".join(instruction.results[:1] if instruction.opcode == "copy-start" else instruction.results[1:2])
    )
    source = hlo.parse_shapes("".join(instruction.operands[:1]))
    if not to or not source:
        return None, None
    ends = source[0].space == hlo.HOST_MEMORY, to[0].space == hlo.HOST_MEMORY
    return hlo.total_bytes(to), {(True, False): "h2d", (False, True): "d2h", (False, False): "d2d"}.get(ends)


def _op_category(category: str, stats: proto.Stats) -> str | None:
    if category.startswith("convolution"):
        return "convolution" if "conv_general" in str(stats.get("tf_op", "")) else "gemm"
    if collectives.names_collective(category):
        return "communication"
    return _CATEGORIES.get(category)


def _op_flops(opcode: str, stats: Mapping[str, object]) -> float | None:
    """FLOPs of the op; unknown for a custom call."""
    flops = _as_integer(stats.get("model_flops", stats.get("flops")))
    if flops is None or flops < 0 or (flops == 0 and opcode == "custom-call"):
        return None
    return float(flops)


def _hbm_bytes(stats: proto.Stats, where: str) -> int | None:
    """HBM traffic: by the breakdown into memory spaces if stated, else `bytes_accessed`."""
    accesses = stats.get("memory_access_breakdown")
    if not isinstance(accesses, bytes):
        size = _as_integer(stats.get("bytes_accessed"))
        return size if size is not None and 0 <= size < 1 << 62 else None
    total = 0
    for _, _, begin, end in proto.message_fields(accesses, 0, len(accesses), where):
        access = proto.integer_fields(accesses, begin, min(end, len(accesses)), where)
        total += access.get(3, 0) if access.get(2) == _HBM else 0
    return total if total < 1 << 62 else None


def _as_integer(value: object) -> int | None:
    """An integer, which some producers write as text."""
    text = str(value)
    return int(text) if re.fullmatch(r"-?\d{1,19}|1\d{19}", text) else None
