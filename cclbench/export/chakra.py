# SPDX-License-Identifier: Apache-2.0
"""Write Chakra execution traces; `cclbench.formats.chakra` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO, Final

from cclbench.formats.chakra.messages import (
    COLLECTIVE,
    COLLECTIVES,
    COMPUTE,
    RECV,
    SEND,
    VERSION,
    Attributes,
    message_attributes,
    message_class,
    read_messages,
)

__all__ = [
    "COLLECTIVE",
    "COLLECTIVES",
    "COMPUTE",
    "RECV",
    "SEND",
    "Attributes",
    "message_attributes",
    "message_class",
    "read_messages",
    "write_metadata",
    "write_node",
]

_FIELDS: Final[Mapping[str, str]] = {
    # the types that readers ask for: src/feeder of Chakra, and src/feeder_v3 of github.com/astra-sim/chakra
    "is_cpu_op": "bool_val",
    "comm_type": "int64_val",
    "comm_size": "int64_val",
    "comm_src": "int32_val",
    "comm_dst": "int32_val",
    "comm_tag": "int32_val",
}


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
