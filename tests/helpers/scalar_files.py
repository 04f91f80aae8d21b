# SPDX-License-Identifier: Apache-2.0
"""Event files of TensorBoard and logs of W&B, written a byte at a time."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping

from helpers.xplane_files import hlo_field as field
from helpers.xplane_files import varint

Scalar = tuple[float, int, str, float]
"""Wall time, step, tag, value."""


def crc32c(text: bytes) -> int:
    """CRC-32C, a bit at a time."""
    crc = 0xFFFFFFFF
    for byte in text:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def tensorflow_record(content: bytes) -> bytes:
    def masked(text: bytes) -> bytes:
        crc = crc32c(text)
        return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(content))
    return length + masked(length) + content + masked(content)


def event(wall: float, step: int, *values: bytes, version: str = "") -> bytes:
    """An event, whose values are messages `Summary.Value`."""
    message = b"\x09" + struct.pack("<d", wall) + b"\x10" + varint(step)
    message += field(3, version.encode()) if version else b""
    return message + (field(5, b"".join(field(1, value) for value in values)) if values else b"")


def scalar(tag: str, value: float) -> bytes:
    return field(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def event_file(scalars: Iterable[Scalar]) -> bytes:
    events = [event(wall, step, scalar(tag, value)) for wall, step, tag, value in scalars]
    return b"".join(map(tensorflow_record, [event(1.0, 0, version="brain.Event:2"), *events]))


def wandb_record(number: int, content: bytes) -> bytes:
    return b"\x08\x01" + field(number, content)


def history(values: Mapping[str, object]) -> bytes:
    items = [field(2, key.encode()) + field(16, json.dumps(value).encode()) for key, value in values.items()]
    return wandb_record(2, b"".join(field(1, item) for item in items))


def wandb_file(*records: bytes) -> bytes:
    """A log of an offline run; records are split where a block of 32 KiB ends."""
    text = b":W&B\xe1\xbe\x00"
    for record in records:
        begun = False
        while record or not begun:
            room = 32768 - len(text) % 32768
            if room < 7:
                text += bytes(room)
                continue
            part, record = record[: room - 7], record[room - 7 :]
            kind = (3 if begun else 2) if record else (4 if begun else 1)
            crc = zlib.crc32(bytes([kind]) + part)
            text, begun = text + struct.pack("<IHB", crc, len(part), kind) + part, True
    return text
