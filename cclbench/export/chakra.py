# SPDX-License-Identifier: Apache-2.0
"""Chakra execution traces on disk: a GlobalMetadata and nodes, each preceded by its length as a varint.

Field numbers: schema/protobuf/et_def.proto of github.com/mlcommons/chakra at commit
21585d8f2d65603d791d2121e3d4632351120262; fields not written here are left out.  Enums are numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final

from cclbench.ground.errors import InputError
from cclbench.ground.protobuf_schema import described_class

MESSAGES: Final = {
    "AttributeProto": "name=1:string double_val=3:double? int32_val=7:int32? int64_val=9:int64?"
    " uint64_val=13:uint64? bool_val=27:bool? string_val=29:string?",
    "GlobalMetadata": "version=1:string attr=2:AttributeProto*",
    "Node": "id=1:uint64 name=2:string type=3:int32 ctrl_deps=4:uint64* data_deps=5:uint64*"
    " start_time_micros=6:uint64 duration_micros=7:uint64 attr=10:AttributeProto*",
}
VERSION: Final = "0.0.4"
"""Version of the schema, as in ASTRA-sim's own generators."""
COMPUTE, SEND, RECV, COLLECTIVE = 4, 5, 6, 7
"""NodeType: COMP_NODE, COMM_SEND_NODE, COMM_RECV_NODE, COMM_COLL_NODE."""
COLLECTIVES: Final = {
    "all_reduce": 0,
    "reduce": 1,
    "all_gather": 2,
    "gather": 3,
    "scatter": 4,
    "broadcast": 5,
    "all_to_all": 6,
    "reduce_scatter": 7,
    "barrier": 9,
}
"""CollectiveCommType by cclbench's kind."""
_FIELDS: Final[Mapping[str, str]] = {
    # the types that readers ask for: src/feeder of Chakra, and src/feeder_v3 of github.com/astra-sim/chakra
    "is_cpu_op": "bool_val",
    "comm_type": "int64_val",
    "comm_size": "int64_val",
    "comm_src": "int32_val",
    "comm_dst": "int32_val",
    "comm_tag": "int32_val",
}
_LONGEST_VARINT: Final = 5
Attributes = dict[str, bool | int | float | str]


@cache
def message_class(name: str) -> Any:
    """The class of one of `MESSAGES`."""
    return described_class("chakra", MESSAGES, name)


def write_metadata(file: BinaryIO, attributes: Attributes) -> None:
    """The file's first message."""
    message = message_class("GlobalMetadata")(version=VERSION)
    _add_attributes(message, attributes)
    _write_message(file, message)


def write_node(
    file: BinaryIO,
    number: int,
    name: str,
    kind: int,
    after: list[int],
    behind: list[int],
    times: tuple[int, int, int],
    more: Attributes,
) -> None:
    """Write a node; `after` are the ids it depends on, `behind` those that only precede it.

    `times`: begin, begin of the time that readers simulate, and end, in ns since the trace's begin.  Readers
    use whole µs; both ends are rounded down, so that adjacent nodes stay adjacent.
    """
    start, begin, end = times
    begin_us = begin // 1000
    message = message_class("Node")(
        id=number,
        name=name,
        type=kind,
        ctrl_deps=behind,
        data_deps=after,
        start_time_micros=begin_us,
        duration_micros=end // 1000 - begin_us,
    )
    _add_attributes(message, {"start_ns": start, "duration_ns": end - start, **more})
    _write_message(file, message)


def _add_attributes(message: Any, attributes: Attributes) -> None:
    for name, value in attributes.items():
        kinds = {bool: "bool_val", int: "int64_val", float: "double_val", str: "string_val"}
        message.attr.add(name=name, **{_FIELDS.get(name, kinds[type(value)]): value})


def _write_message(file: BinaryIO, message: Any) -> None:
    text: bytes = message.SerializeToString()
    left = len(text)
    prefix = bytearray()
    while left > 0x7F:
        prefix.append(0x80 | left & 0x7F)
        left >>= 7
    prefix.append(left)
    file.write(bytes(prefix) + text)


def message_attributes(message: Any) -> Attributes:
    """A message's attributes by name."""
    return {each.name: getattr(each, each.WhichOneof("value") or "string_val") for each in message.attr}


def read_messages(path: Path) -> Iterator[Any]:
    """The file's GlobalMetadata, then its nodes; `InputError` if it is not such a file or is truncated."""
    from google.protobuf.message import DecodeError

    name = "GlobalMetadata"
    with path.open("rb") as file:
        while (length := _read_length(file, path)) is not None:
            at = file.tell()
            text = file.read(length)
            if len(text) < length:
                raise InputError("ends within a message", where=f"{path}: byte {at:,}", hint="write it again")
            try:
                yield message_class(name).FromString(text)
            except DecodeError:
                raise InputError(f"no {name} of Chakra", where=f"{path}: byte {at:,}") from None
            name = "Node"


def _read_length(file: BinaryIO, path: Path) -> int | None:
    """The length before the next message, None at the end of the file."""
    value = 0
    for place in range(_LONGEST_VARINT):
        byte = file.read(1)
        if not byte:
            if place:
                raise InputError("ends within a length", where=str(path), hint="write it again")
            return None
        value |= (byte[0] & 0x7F) << (7 * place)
        if byte[0] < 0x80:
            return value
    raise InputError("no length of a message", where=f"{path}: byte {file.tell():,}")
