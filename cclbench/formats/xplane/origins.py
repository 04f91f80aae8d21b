# SPDX-License-Identifier: Apache-2.0
"""Origin of an instruction of a compiled program: framework op, line of Python, operands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from cclbench.formats.xplane import hlo, proto
from cclbench.operators.call import COMPILED

Array = tuple[str, tuple[int, ...]]
"""HLO element type, and sizes."""

_SOURCE: Final = re.compile(r"(.+):(\d{1,9})")
_COLUMNS: Final = ("framework_op", "call_site", "shapes", "dtypes", "values")


class InstructionOrigin(msgspec.Struct, frozen=True):
    """An instruction's origin; fields as the columns of the same name in `schema.EVENTS`."""

    framework_op: str
    call_site: str | None = None
    shapes: str | None = None
    dtypes: str | None = None
    values: str | None = None


def instruction_origin(
    path: str,
    opcode: str,
    operands: Iterable[Array],
    call_site: str | None = None,
    values: Sequence[str | list[int]] = (),
) -> InstructionOrigin:
    """The origin of an instruction with this `path` in its metadata, which may be empty.

    `values` are further arguments of the call, after the operands.
    """
    listed = list(operands)
    texts = [value if isinstance(value, str) else _json_text(value) for value in values]
    return InstructionOrigin(
        framework_op=path or opcode,
        call_site=call_site,
        shapes=_json_text([sizes for _, sizes in listed]) if listed else None,
        dtypes=_json_text([dtype for dtype, _ in listed]) if listed else None,
        values=_json_text([*[""] * len(listed), *texts]) if texts else None,
    )


def uncounted(origin: InstructionOrigin, why: str) -> InstructionOrigin:
    """The origin with the reason why it has no cost in place of its attributes."""
    operands = msgspec.json.decode(origin.shapes) if origin.shapes else []
    return replace(origin, values=_json_text([*[""] * len(operands), COMPILED, why]))


def text_origin(instruction: hlo.HloText, stats: proto.Stats) -> InstructionOrigin:
    """The origin of a TPU op from its HLO text and its stats `tf_op` and `source`: `file.py:31`."""
    source = _SOURCE.fullmatch(str(stats.get("source", "")))
    return instruction_origin(
        # XLA appends a colon and the op's type, which is empty from JAX.
        path=str(stats.get("tf_op", "")).rpartition(":")[0] or str(stats.get("tf_op", "")),
        opcode=instruction.opcode,
        operands=hlo.parse_arrays(", ".join(instruction.operands)),
        call_site=line_of(source[1], int(source[2])) if source else None,
    )


def line_of(file: str, line: int, function: str = "") -> str | None:
    """A line of Python as PyTorch's profiler writes it, `file.py(31): f`; None without a file.

    The file's folders are left out: they may name the machine and its user.
    """
    name = re.split(r"[/\\]", file)[-1]
    return f"{name}({line}){f': {function}' if function else ''}" if name else None


def origin_columns(origins: Sequence[InstructionOrigin | None]) -> dict[str, pa.Array]:
    """Columns of `Rows`, null without an origin."""
    return {
        name: pa.array(
            [origin and getattr(origin, name) for origin in origins], pa.string()
        ).dictionary_encode()
        for name in _COLUMNS
    }


def _json_text(listed: list[Any]) -> str:
    return msgspec.json.encode(listed).decode()
