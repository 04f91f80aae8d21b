# SPDX-License-Identifier: Apache-2.0
"""Redact profiles: planes are written anew with the fields that are read, and their texts rewritten.

Of a stat's bytes only compiled programs and the numbers of two messages are read; of a program, the fields
that `hlo_proto` reads.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from cclbench.formats.files import WHOLE, display_path
from cclbench.formats.rewriting import CAPTURED, HOST, UNREAD, Redactor
from cclbench.formats.xplane import proto
from cclbench.formats.xplane.hlo_products import redact_config
from cclbench.formats.xplane.hlo_proto import message_class
from cclbench.ground.errors import InputError
from cclbench.ground.protobuf_schema import described_class

_NOTHING: Final[Mapping[str, str]] = {}
_PLANE, _COMPLAINTS, _HOSTS = 1, (2, 3), 4
_NUMBERS: Final = {
    "CoreDetails": "local_chip=4:int64 global_chip=5:int64 global_core=6:int64 sparse=7:int64",
    "Access": "mode=1:int64 space=2:int64 bytes=3:int64",
    "Breakdown": "accesses=1:Access*",
}


@cache
def _numbers_class(message: str) -> Any:
    return described_class("xplane_numbers", _NUMBERS, message)


_BY_STAT: Final[Mapping[str, Callable[[], Any]]] = {
    "Hlo Proto": partial(message_class, "Program"),
    "hlo_proto": partial(message_class, "Program"),
    "core_details": partial(_numbers_class, "CoreDetails"),
    "memory_access_breakdown": partial(_numbers_class, "Breakdown"),
}
"""Messages in the bytes of a stat, as far as they are read."""


class ProtobufRewriter:
    """Rewrites one profile."""

    def __init__(self, path: Path, redactor: Redactor, *, withheld: Mapping[str, str] = _NOTHING) -> None:
        self._path, self._redactor, self._withheld = path, redactor, withheld
        self._known: dict[str, str] = {}
        """Replacements by exact text, of hosts and of values of known fields."""
        self._place = ""

    def rewrite_profile(self, write: Callable[[bytes], object]) -> None:
        """Write the profile, with one plane in memory at a time."""
        where = display_path(self._path)
        if not self._path.stat().st_size:
            raise InputError("empty file", where=where)
        with self._path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            fields = list(proto.message_fields(data, 0, len(data), where))
            if fields and fields[-1][3] > len(data):
                raise InputError("is cut within a plane", where=where, hint=WHOLE)
            hosts = [
                data[begin:end].decode(errors="replace")
                for number, at, begin, end in fields
                if number == _HOSTS and data[at] & 7 == 2
            ]
            for host in hosts:
                self._known[host] = self._redactor.text(host)[0]
            for number, at, begin, end in fields:
                if number == _PLANE:
                    _write_field(write, number, self._rewritten_plane(data[begin:end], at))
                elif number in _COMPLAINTS:  # their number is read
                    self._place = "the profile"
                    if end > begin:
                        self._redactor.count(self._place, {CAPTURED: 1})
                    _write_field(write, number, b"")
            for host in hosts:
                _write_field(write, _HOSTS, self._known[host].encode())
                self._redactor.count("the profile", {HOST: int(self._known[host] != host)})

    def _rewritten_plane(self, plane: bytes, at: int) -> bytes:
        """A plane with only the fields of its schema, and their texts rewritten."""
        try:
            message = proto.message_class().FromString(plane)
        except DecodeError:
            where = f"{display_path(self._path)}: byte {at:,}"
            raise InputError("a plane is damaged", where=where, hint=WHOLE) from None
        message.DiscardUnknownFields()
        names = proto.stat_names(message)
        self._place = f"plane {self._redactor.text(message.name)[0]}"
        self._rewrite_fields(message, "name")
        self._rewrite_stats(message, names)
        for entry in message.event_metadata:
            self._rewrite_fields(entry.value, "name", "display_name")
            entry.value.metadata = b""
            self._rewrite_stats(entry.value, names)
        for line in message.lines:
            self._rewrite_fields(line, "name", "display_name")
            for event in line.events:
                self._rewrite_stats(event, names)
        for entry in message.stat_metadata:  # last: stats are known by their names
            self._rewrite_fields(entry.value, "name", "description")
        written: bytes = message.SerializeToString(deterministic=True)
        return written

    def _rewrite_fields(self, holder: Any, *fields: str) -> None:
        for field in fields:
            if old := getattr(holder, field):
                setattr(holder, field, self._rewrite_text(old))

    def _rewrite_text(self, text: str) -> str:
        if text in self._known:
            self._redactor.count(self._place, {HOST: int(self._known[text] != text)})
            return self._known[text]
        new, counts = self._redactor.text(text)
        self._redactor.count(self._place, counts)
        return new

    def _rewrite_stats(self, holder: Any, names: Mapping[int, str]) -> None:
        for stat in holder.stats:
            value = stat.WhichOneof("value")
            name = names.get(stat.metadata_id, "")
            holds = self._withheld.get(name)
            if holds is None and not self._redactor.publishes(name):
                holds = UNREAD
            if holds is not None and value is not None and not self._redactor.reveals(name):
                stat.ClearField(value)
                self._redactor.count(self._place, {holds: 1})
            elif value == "str_value":
                self._rewrite_fields(stat, value)
            elif value == "bytes_value":
                stat.bytes_value = self._rewrite_bytes(stat.bytes_value, name)

    def _rewrite_bytes(self, old: bytes, name: str) -> bytes:
        """Of bytes, the message that is read in the copy, where the stat may have another name."""
        try:
            message = _BY_STAT[self._redactor.text(name)[0]]().FromString(old)
        except (DecodeError, KeyError):
            self._redactor.count(self._place, {UNREAD: int(bool(old))})
            return b""
        message.DiscardUnknownFields()
        self._rewrite_message(message)
        new: bytes = message.SerializeToString(deterministic=True)
        return new

    def _rewrite_message(self, message: Any) -> None:
        """Rewrite all texts of a message and of those in it."""
        for field, value in message.ListFields():
            if field.type == field.TYPE_MESSAGE:
                for inner in value if field.is_repeated else (value,):
                    self._rewrite_message(inner)
            elif field.type == field.TYPE_STRING and field.is_repeated:
                value[:] = [self._rewrite_text(text) for text in value]
            elif field.type == field.TYPE_STRING:
                setattr(message, field.name, self._rewrite_text(value))
            elif field.type == field.TYPE_BYTES:  # the configuration of a custom call
                setattr(message, field.name, redact_config(value, self._rewrite_text))
                self._redactor.count(self._place, {UNREAD: int(getattr(message, field.name) != value)})


def _write_field(write: Callable[[bytes], object], number: int, value: bytes) -> None:
    write(_encode_varint(number << 3 | 2) + _encode_varint(len(value)) + value)


def _encode_varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)
