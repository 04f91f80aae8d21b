# SPDX-License-Identifier: Apache-2.0
"""Messages of Chakra execution traces, each preceded by its length as a varint: a GlobalMetadata, then nodes.

Field numbers: schema/protobuf/et_def.proto of github.com/mlcommons/chakra at commit
21585d8f2d65603d791d2121e3d4632351120262; fields that are not used are left out.  Enums are numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
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
_LONGEST_VARINT: Final = 5
_LONGEST_MESSAGE: Final = 1 << 26
Attributes = dict[str, bool | int | float | str]


@cache
def message_class(name: str) -> Any:
    """The class of one of `MESSAGES`."""
    return described_class("chakra", MESSAGES, name)


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
            if length > _LONGEST_MESSAGE:
                raise InputError(f"a message of {length:,} bytes", where=f"{path}: byte {at:,}")
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
