# SPDX-License-Identifier: Apache-2.0
"""Compiled programs in a profile: instructions, their bytes, and the devices they run on.

JAX writes the HloProto of each module to the plane `/host:metadata`; for CPU devices and GPUs it is the only
source of a collective's shapes.  Field numbers: hlo.proto and xla_data.proto of the OpenXLA project, and the
bytes that JAX 0.10 writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Final

import msgspec
import numpy as np

from cclbench.formats.xplane import hlo, proto
from cclbench.formats.xplane.fused_work import Typing, instruction_work
from cclbench.formats.xplane.hlo_products import (
    CONTRACTIONS,
    OperatorCall,
    Value,
    is_library_product,
    operator_call,
    shape_leaves,
)
from cclbench.formats.xplane.origins import InstructionOrigin, instruction_origin, line_of
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.ground.protobuf_schema import described_class
from cclbench.operators.call import COMPILED, FUSED, NoModel

_MESSAGES: Final = {
    "Shape": "element_type=2:int32 dimensions=3:int64* tuple_shapes=4:Shape*",
    "Group": "ids=1:int64*",
    "Iota": "groups=1:int64 size=2:int64 tiles=3:int64* order=4:int32*",
    "Listed": "groups=1:Group* iota=2:Iota",
    "MeshAxis": "size=2:int64",
    "Tiles": "tiles=1:int64* order=2:int32*",
    "Mesh": "axes=1:MeshAxis* devices=2:int64* iota=3:Tiles",
    "SubAxis": "before=1:int64 size=2:int64",
    "Axis": "index=1:int64 part=2:SubAxis",
    "MeshGroups": "mesh=1:Mesh axes=2:Axis*",
    "Pair": "source=1:int64 target=2:int64",
    "Metadata": "op_name=2:string source_file=3:string source_line=4:int32 stack_frame=15:int32",
    "Dot": "lhs_contracting=1:int64* rhs_contracting=2:int64* lhs_batch=3:int64* rhs_batch=4:int64*",
    "RaggedDot": "dot=1:Dot lhs_ragged=2:int64* rhs_group=3:int64*",
    "Extent": "size=1:int64 stride=2:int64 before=3:int64 dilation=5:int64 spread=6:int64",
    "Window": "dimensions=1:Extent*",
    "Convolution": "kernel_out=4:int64 kernel=6:int64* input=11:int64* output=12:int64*",
    "Precision": "operand_precision=1:int32* algorithm=2:int32",
    "Instruction": "name=1:string opcode=2:string shape=3:Shape metadata=7:Metadata parameter=9:int64"
    " window=15:Window convolution=16:Convolution channel_id=26:int64 target=28:string dot=30:Dot"
    " fft_length=32:int64* id=35:int64 operand_ids=36:int64* called_computation_ids=38:int64* config=43:bytes"
    " groups=49:Group* precision=51:Precision pairs=52:Pair* global_ids=71:bool listed=87:Listed iota=92:Iota"
    " ragged_dot=90:RaggedDot mesh=93:MeshGroups",
    "Computation": "instructions=2:Instruction* id=5:int64 root=6:int64",
    "Location": "file=1:int32 function=2:int32 line=3:int32",
    "Frame": "location=1:int32",
    "Frames": "files=1:string* functions=2:string* locations=3:Location* frames=4:Frame*",
    "Sequence": "ids=1:int64*",
    "Scheduled": "computation=1:int64 sequence=2:Sequence",
    "Schedule": "sequences=1:Scheduled*",
    "Module": "computations=3:Computation* entry=6:int64 schedule=7:Schedule stack=17:Frames",
    "Hlo": "hlo_module=1:Module",
    "Column": "ids=1:int64*",
    "Assignment": "columns=3:Column*",
    "PlacedModule": "assignment=15:Assignment",
    "Placed": "hlo_module=1:PlacedModule",
    "Named": "name=1:string computations=3:Computation* stack=17:Frames",
    "Definition": "name=2:string id=4:int64",
    "Buffer": "id=1:int64 defined_at=3:Definition",
    "Slice": "buffer=1:int64 offset=2:int64 size=3:int64",
    "Allocation": "index=1:int64 size=2:int64 thread_local=3:bool parameter=5:bool live_out=7:bool"
    " space=8:int64 slices=9:Slice* constant=12:bool",
    "HeapEvent": "kind=1:int32 buffer=2:int64 shared_with=5:int64",
    "HeapTrace": "events=1:HeapEvent*",
    "Buffers": "buffers=1:Buffer* allocations=3:Allocation* heap_traces=4:HeapTrace*",
    "Assigned": "hlo_module=1:Named buffers=3:Buffers",
    "ReadModule": "name=1:string computations=3:Computation* entry=6:int64 schedule=7:Schedule"
    " assignment=15:Assignment stack=17:Frames",
    "Program": "hlo_module=1:ReadModule buffers=3:Buffers",
}
"""See `protobuf_schema.described_class`; `Hlo`, `Placed` and `Assigned` are views of an HloProto, `Program`
is all that they read."""

_NUMBERS: Final = ("pred", "s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64", "f16", "f32", "f64")
_TYPES: Final = {
    **dict(enumerate(_NUMBERS, 1)),
    15: "c64",
    16: "bf16",
    18: "c128",
    19: "f8e5m2",
    20: "f8e4m3fn",
    23: "f8e4m3b11fnuz",
    24: "f8e5m2fnuz",
    25: "f8e4m3fnuz",
}
"""Names of PrimitiveType, without types of less than a byte."""
_LARGEST: Final = 1 << 56

_COLLECTIVE: Final = re.compile(
    r"(?:all-reduce|all-gather|all-to-all|reduce-scatter|ragged-all-to-all|collective-(?:permute|broadcast))"
    r"(?:-start|-done)?|send|send-done|recv|recv-done"
)
_MOVES: Final = re.compile(
    r"(?:dynamic-)?slice|dynamic-update-slice|bitcast(?:-convert)?|broadcast|concatenate|constant|convert|copy"
    r"|get-tuple-element|iota|pad|parameter|reshape|reverse|transpose|tuple"
)
_PRODUCT: Final = re.compile(r"dot_general|(Batch)?MatMul.*|Einsum")
_TELLING: Final = (
    ("gemm", frozenset({"dot"})),
    ("convolution", frozenset({"convolution"})),
    (None, frozenset({"custom-call"})),
    ("embedding", frozenset({"gather", "scatter"})),
    ("reduction", frozenset({"reduce", "reduce-window", "sort", "select-and-scatter"})),
)
"""Category of a fusion by the first of these opcodes that it contains; None: by its name."""


class Instruction(msgspec.Struct, frozen=True):
    """An instruction of a module; bytes of all operands and of the result, None if unknown."""

    opcode: str
    category: str | None
    """One of `schema.CATEGORIES`; None if the opcode does not determine it."""
    dtype: str | None
    in_bytes: int | None
    out_bytes: int | None
    participants: hlo.Participants | None = None
    """Participants of a collective."""
    origin: InstructionOrigin | None = None
    """None for an instruction inside a fusion."""


class HloProgram:
    """A compiled program from its HloProto; `InputError` with `where` on access if it is damaged."""

    def __init__(self, content: bytes, where: str) -> None:
        self._content, self._where = content, where

    @cached_property
    def device_ids(self) -> Int64 | None:
        """Global ids of its devices, shape (replicas, partitions); None if it does not state them."""
        columns = [list(column.ids) for column in self.parsed_as("Placed").hlo_module.assignment.columns]
        lengths = {len(column) for column in columns}
        if len(lengths) != 1 or 0 in lengths:
            return None
        ids = [i for column in columns for i in column]
        if len(ids) > hlo.MOST_DEVICES or len(set(ids)) < len(ids) or min(ids) < 0 or max(ids) >= 1 << 31:
            return None
        return np.array(columns, np.int64).T

    @cached_property
    def instructions(self) -> dict[str, Instruction]:
        """All instructions by name."""
        module = self.parsed_as("Hlo").hlo_module
        inside = {c.id: frozenset(i.opcode for i in c.instructions) for c in module.computations}
        called = {
            number: i
            for c in module.computations
            for i in c.instructions
            if i.opcode == "fusion"
            for number in i.called_computation_ids
        }
        computations = {c.id: c for c in module.computations}
        by_name = {}
        for computation in module.computations:
            shapes = {i.id: i.shape for i in computation.instructions}
            for i in computation.instructions:
                operands = [shapes.get(operand) for operand in i.operand_ids]
                present_shapes = [shape for shape in (*operands, i.shape) if shape is not None]
                types = {leaf.element_type for shape in present_shapes for leaf in shape_leaves(shape)}
                participants = None
                if _COLLECTIVE.fullmatch(i.opcode):
                    participants = hlo.Participants(
                        groups=_replica_groups(i),
                        pairs=tuple((pair.source, pair.target) for pair in i.pairs),
                        has_channel=i.channel_id > 0,
                        has_global_ids=i.global_ids,
                    )
                by_name[i.name] = Instruction(
                    opcode=i.opcode,
                    category=_instruction_category(i, inside),
                    dtype=_TYPES.get(types.pop()) if len(types) == 1 else None,
                    in_bytes=_array_bytes(operands),
                    out_bytes=_array_bytes([i.shape]),
                    participants=participants,
                    origin=None
                    if computation.id in called
                    else _instruction_origin(
                        i,
                        operands,
                        module.stack,
                        shapes,
                        computations,
                    ),
                )
        return by_name

    @cached_property
    def kernel_instructions(self) -> dict[str, str]:
        """Instructions by the kernel names that XLA derives from theirs, without those that share one."""
        names: dict[str, list[str]] = {}
        for name, instruction in self.instructions.items():
            if instruction.origin is not None:
                names.setdefault(re.sub(r"\W", "_", name), []).append(name)
        return {kernel: of_kernel[0] for kernel, of_kernel in names.items() if len(of_kernel) == 1}

    @cached_property
    def library_products(self) -> list[str]:
        """Products by a library, as they are scheduled; empty if not all are in the entry computation."""
        module = self.parsed_as("Hlo").hlo_module
        products = [
            (computation, i.id, i.name)
            for computation in module.computations
            for i in computation.instructions
            if is_library_product(i)
        ]
        scheduled = next((s for s in module.schedule.sequences if s.computation == module.entry), None)
        if scheduled is None or any(computation.id != module.entry for computation, _, _ in products):
            return []
        place = {number: at for at, number in enumerate(scheduled.sequence.ids)}
        return [name for _, number, name in sorted(products, key=lambda product: place.get(product[1], -1))]

    def parsed_as(self, view: str) -> Any:
        """The program as a message of `_MESSAGES`; `InputError` if it is damaged."""
        from google.protobuf.message import DecodeError

        try:
            return message_class(view).FromString(self._content)
        except DecodeError:
            raise InputError("an HLO module is damaged", where=self._where, hint=proto.AGAIN) from None


def plane_programs(plane: Any, where: str) -> dict[int, HloProgram]:
    """The programs in a plane `/host:metadata` by id: the stat `program_id`, or the entry's key."""
    names = proto.stat_names(plane)
    programs = {}
    for key, metadata in proto.event_metadata(plane).items():
        stats = proto.decode_stats(names, metadata.stats)
        program, number = stats.get("Hlo Proto", stats.get("hlo_proto")), stats.get("program_id", key)
        if isinstance(program, bytes) and isinstance(number, int):
            programs[number % (1 << 64)] = HloProgram(program, where)
    return programs


def _instruction_origin(
    i: Any,
    operands: list[Any | None],
    stack: Any,
    shapes: Mapping[int, Any],
    computations: Mapping[int, Any],
) -> InstructionOrigin:
    """Framework op and line of an instruction, its operands, and its attributes or its counted work.

    XLA may fuse a transposition into a product, which then may have the name of the transposition.
    """
    path = i.metadata.op_name
    values: tuple[Value, ...] = ()
    try:
        call, values = _counted_call(i, operands, shapes, computations)
        if call is not None:
            operands, path = list(call.operands), path or call.path
            scopes, _, last = path.rpartition("/")
            if not (last == call.operator or (call.operator == "dot_general" and _PRODUCT.fullmatch(last))):
                path = f"{scopes}/{call.operator}".lstrip("/")
    except NoModel as why:
        values = (COMPILED, str(why))
    except (ArithmeticError, LookupError, ValueError):
        values = (COMPILED, "its program is malformed")
    leaves = [leaf for shape in operands if shape is not None for leaf in shape_leaves(shape)]
    return instruction_origin(
        path,
        i.opcode,
        [(_type_name(leaf), tuple(leaf.dimensions)) for leaf in leaves],
        call_site_of(i.metadata, stack),
        values,
    )


def _counted_call(
    i: Any, operands: list[Any | None], shapes: Mapping[int, Any], computations: Mapping[int, Any]
) -> tuple[OperatorCall | None, tuple[Value, ...]]:
    """The operator that an instruction, or the product in a fusion, is, and its attributes; else its work."""
    if _COLLECTIVE.fullmatch(i.opcode):
        return None, ()
    typing = Typing(_array_bytes, _type_name)
    call = operator_call(i, operands, size=_array_bytes, type_name=_type_name)
    if call is not None:
        return call, call.values
    work = instruction_work(i, shapes, computations, typing)
    counted = (*map(str, work[:3]), *filter(None, work[3:]))
    inner = [op for number in i.called_computation_ids for op in computations[number].instructions]
    products = [op for op in inner if i.opcode == "fusion" and op.opcode in CONTRACTIONS]
    if not products:
        return None, (COMPILED, *counted)
    if len(products) > 1:
        raise NoModel("several products run as one fusion")
    inside = {op.id: op.shape for op in inner}
    (product,) = products
    sides = [inside.get(operand) for operand in product.operand_ids]
    call = operator_call(product, sides, size=_array_bytes, type_name=_type_name)
    if call is None:
        raise NoModel("the attributes of its product are not in its program")
    call = msgspec.structs.replace(call, path=product.metadata.op_name)
    return call, (*call.values, FUSED, *counted)


def _type_name(shape: Any) -> str:
    return _TYPES.get(shape.element_type, "")


def call_site_of(metadata: Any, stack: Any) -> str | None:
    """The line in the metadata, or the innermost frame of its stack in the module's table."""
    if metadata.source_file:
        return line_of(metadata.source_file, metadata.source_line)
    frame = _entry_numbered(stack.frames, metadata.stack_frame)
    place = frame and _entry_numbered(stack.locations, frame.location)
    if not place:
        return None
    file, function = (
        _entry_numbered(stack.files, place.file),
        _entry_numbered(stack.functions, place.function),
    )
    return line_of(file or "", place.line, function or "")


def _entry_numbered(listed: Sequence[Any], number: int) -> Any | None:
    """The entry with this number, counted from 1; None if there is none."""
    return listed[number - 1] if 0 < number <= len(listed) else None


def _replica_groups(i: Any) -> hlo.Groups | None:
    """Replica groups, from one of four fields."""
    if i.HasField("mesh"):
        described, tiled = i.mesh.mesh, i.mesh.mesh.iota
        ids = np.array(described.devices, np.int64) if described.devices else None
        if described.HasField("iota") and (ids := hlo.iota_tiles(tiled.tiles, tiled.order)) is None:
            return None
        parts = [(a.part.before, a.part.size) if a.HasField("part") else None for a in i.mesh.axes]
        axes = [(axis.index, part) for axis, part in zip(i.mesh.axes, parts, strict=True)]
        return hlo.mesh_groups([axis.size for axis in described.axes], ids, axes)
    if i.HasField("iota") or i.listed.HasField("iota"):
        tiling = i.iota if i.HasField("iota") else i.listed.iota
        return hlo.rows_of(hlo.iota_tiles(tiling.tiles, tiling.order), (tiling.groups, tiling.size))
    listed = i.listed.groups or i.groups
    return tuple(tuple(group.ids) for group in listed) if listed or i.HasField("listed") else None


def _instruction_category(instruction: Any, inside: dict[int, frozenset[str]]) -> str | None:
    if _COLLECTIVE.fullmatch(instruction.opcode):
        return "communication"
    opcodes = {instruction.opcode}
    if instruction.opcode == "fusion":
        opcodes = set().union(*(inside.get(called, ()) for called in instruction.called_computation_ids))
    for category, marks in _TELLING:
        if opcodes & marks:
            return category
    return "copy" if all(map(_MOVES.fullmatch, opcodes)) else "elementwise"


def _array_bytes(shapes: Iterable[Any | None]) -> int | None:
    """Bytes of arrays; None if a type is unknown or the size impossible."""
    total = 0
    for shape in shapes:
        if shape is None:
            return None
        for leaf in shape_leaves(shape):
            size = None
            if leaf.element_type in _TYPES and min(leaf.dimensions, default=0) >= 0:
                size = hlo.array_bytes(_TYPES[leaf.element_type], leaf.dimensions)
            if size is None:
                return None
            total += size
    return total if total < _LARGEST else None


@cache
def message_class(view: str) -> Any:
    """The class of a message of `_MESSAGES`."""
    return described_class("hlo", _MESSAGES, view)
