# SPDX-License-Identifier: Apache-2.0
"""Redact profiles: texts are replaced inside their nested messages, and the lengths around them updated.

A plane is rewritten with only the fields of its schema.  Of these, parts without anything suspicious are kept
unchanged; all others, compiled programs included, are decoded down to their texts.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from cclbench.formats.files import WHOLE, display_path
from cclbench.formats.rewriting import ANNOTATION, CAPTURED, HOST, SOURCE_PATH, Redactor, alternation_pattern
from cclbench.formats.xplane import proto
from cclbench.ground.errors import InputError

_NOTHING: Final[Mapping[str, str]] = {}
_PLANE, _COMPLAINTS, _HOSTS, _NAME = 1, (2, 3), 4, 2
_DEEPEST: Final = 60
_SOURCE: Final = "source"
"""The stat of a source file and line."""
_PROGRAMS: Final = ("Hlo Proto", "hlo_proto")
"""Stats of compiled programs."""
_FILE: Final = object()
_SOURCE_FILES: Final[Mapping[int, Any]] = {1: {3: {2: {7: {3: _FILE}}}, 17: {1: _FILE}}}
"""Fields of an HloProto that are source files: in an instruction's metadata, and in the table of stacks."""
_RUNTIME: Final = ("end: ", "$")
_OWN_STATS: Final = ("step_num", "hlo_op", "run_id", "correlation_id", "bytes_allocated")
"""Stats of events that are a framework's own: steps, ops, executions, those of allocators."""


class ProtobufRewriter:
    """Rewrites one profile."""

    def __init__(
        self, path: Path, redactor: Redactor, *, annotations: bool, withheld: Mapping[str, str] = _NOTHING
    ) -> None:
        self._path, self._redactor, self._annotations = path, redactor, annotations
        self._withheld = withheld
        self._exact: dict[str, tuple[str, str]] = {}
        """Replacement and kind by exact text: values of known fields, and annotations."""
        self._exactly: re.Pattern[bytes] | None = None
        self._place = ""

    def rewrite_profile(self, write: Callable[[bytes], object]) -> None:
        """Write the profile, with one field of a plane in memory at a time."""
        where = display_path(self._path)
        if not self._path.stat().st_size:
            raise InputError("empty file", where=where)
        with self._path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            fields = list(proto.message_fields(data, 0, len(data), where))
            if fields and fields[-1][3] > len(data):
                raise InputError("is cut within a plane", where=where, hint=WHOLE)
            for number, _, begin, end in fields:
                if number == _HOSTS:
                    self._note_replacement(HOST, data[begin:end].decode(errors="replace"))
            for planes in proto.find_planes(self._path).planes:
                self._learn_names(planes)
            if self._exact:
                self._exactly = re.compile(alternation_pattern(self._exact).encode())
            for number, at, begin, end in fields:
                if number == _PLANE:
                    self._rewrite_plane(self._known_fields(data[begin:end], at), write)
                elif number == _HOSTS or number in _COMPLAINTS:
                    self._place = "the profile"
                    old = data[begin:end]
                    if number in _COMPLAINTS and old and not self._redactor.learns:
                        self._redactor.count(self._place, {CAPTURED: 1})
                        write(_encode_field(data[at:begin], b"", old))
                        continue
                    write(
                        _encode_field(
                            data[at:begin],
                            self._rewrite_value(old, 0) if _wire_type(data, at) == 2 else old,
                            old,
                        )
                    )

    def _learn_names(self, where: proto.PlaneRange) -> None:
        """Collect hosts, users and command lines from a plane's fields, and its annotations."""
        message = proto.parse_plane(self._path, where, lines=self._annotations and where.name == proto.HOST)
        names = proto.stat_names(message)
        if self._annotations and where.name == proto.HOST:
            for text in ranges_of_people(message, self._redactor):
                new, counts = self._redactor.redact_annotation(text)
                if counts:
                    self._exact[text] = new, ANNOTATION
        if not any(self._redactor.kind_of_field(name) for name in names.values()):
            return
        message = proto.parse_plane(self._path, where)
        events = (event for line in message.lines for event in line.events)
        entries = (metadata for metadata in proto.event_metadata(message).values())
        for holder in (message, *entries, *events):
            for name, value in proto.decode_stats(names, holder.stats).items():
                kind = self._redactor.kind_of_field(name)
                if kind is not None and isinstance(value, str | bytes):
                    self._note_replacement(
                        kind, value if isinstance(value, str) else value.decode(errors="replace")
                    )

    def _note_replacement(self, kind: str, text: str) -> None:
        new, counts = self._redactor.field(kind, text)
        if new != text:
            self._exact[text] = new, next(iter(counts), kind)

    def _known_fields(self, plane: bytes, at: int) -> bytes:
        """A plane rewritten with only the fields of its schema."""
        try:
            message = proto.message_class().FromString(plane)
        except DecodeError:
            where = f"{display_path(self._path)}: byte {at:,}"
            raise InputError("a plane is damaged", where=where, hint=WHOLE) from None
        message.DiscardUnknownFields()
        if not self._redactor.learns:
            self._empty_withheld(message)
        written: bytes = message.SerializeToString(deterministic=True)
        return written

    def _empty_withheld(self, message: Any) -> None:
        """Empty the stats that are not published; source files keep only their names."""
        names = proto.stat_names(message)
        place = f"plane {self._redactor.text(message.name)[0]}"
        for holder in (message, *(entry for entry in proto.event_metadata(message).values())):
            for stat in holder.stats:
                name = names.get(stat.metadata_id, "")
                value = stat.WhichOneof("value")
                if value is not None and (holds := self._withheld.get(name)):
                    stat.ClearField(value)
                    self._redactor.count(f"{place}: {name}", {holds: 1})
                elif name == _SOURCE and stat.str_value:
                    stat.str_value = self._file_name(stat.str_value.encode(), place).decode()
                elif name in _PROGRAMS and stat.bytes_value:
                    stat.bytes_value = self._file_names(stat.bytes_value, _SOURCE_FILES, place)

    def _file_name(self, path: bytes, place: str) -> bytes:
        name = re.split(rb"[/\\]", path)[-1]
        self._redactor.count(place, {SOURCE_PATH: int(name != path)})
        return name

    def _file_names(self, message: bytes, files: Mapping[int, Any], place: str) -> bytes:
        """A message with the file paths at these field paths reduced to file names."""
        if _message_fields(message) is None:
            return message
        parts = list[bytes]()
        for number, at, begin, end in proto.message_fields(message, 0, len(message), ""):
            subfields = files.get(number) if _wire_type(message, at) == 2 else None
            old = message[begin:end]
            if subfields is None:
                parts.append(message[at:end])
            elif subfields is _FILE:
                parts.append(_encode_field(message[at:begin], self._file_name(old, place), old))
            else:
                parts.append(_encode_field(message[at:begin], self._file_names(old, subfields, place), old))
        return b"".join(parts)

    def _rewrite_plane(self, data: bytes, write: Callable[[bytes], object]) -> None:
        """Rewrite a plane's fields one by one; unchanged fields are kept as ranges of the plane."""
        parts: list[bytes | tuple[int, int]] = []
        name = next(
            (data[b:e] for n, _, b, e in proto.message_fields(data, 0, len(data), "") if n == _NAME), b""
        )
        self._place = f"plane {self._redactor.text(name.decode(errors='replace'))[0]}"
        for _, at, first, last in proto.message_fields(data, 0, len(data), display_path(self._path)):
            old = data[first:last]
            new = self._rewrite_value(old, 0) if _wire_type(data, at) == 2 else old
            parts.append((at, last) if new is old else _encode_field(data[at:first], new, old))
        size = sum(len(part) if isinstance(part, bytes) else part[1] - part[0] for part in parts)
        write(_encode_varint(_PLANE << 3 | 2) + _encode_varint(size))
        for part in parts:
            write(part if isinstance(part, bytes) else data[part[0] : part[1]])

    def _rewrite_value(self, old: bytes, depth: int) -> bytes:
        """A field's content rewritten, be it a message, a text or bytes; the same object if unchanged."""
        exactly = self._exactly is not None and self._exactly.search(old) is not None
        if not exactly and not self._redactor.is_suspicious(old):
            return old
        text = _decode_text(old)
        fields = _message_fields(old) if depth < _DEEPEST else None
        # A text may by chance also be a valid message; one with other field types is not a text.
        if fields is not None and (text is None or all(wire == 2 for wire, _, _, _ in fields)):
            return self._rewrite_message(old, fields, depth)
        if text is not None:
            new, counts = self._rewrite_leaf(text)
            self._redactor.count(self._place, counts)
            return old if new == text else new.encode()
        masked, counts = self._redactor.mask_bytes(old)
        self._redactor.count(self._place, counts)
        return old if masked == old else masked

    def _rewrite_message(self, old: bytes, fields: list[tuple[int, int, int, int]], depth: int) -> bytes:
        parts, changed = list[bytes](), False
        for wire, at, begin, end in fields:
            value = old[begin:end]
            new = self._rewrite_value(value, depth + 1) if wire == 2 else value
            changed |= new is not value
            parts.append(old[at:end] if new is value else _encode_field(old[at:begin], new, value))
        return b"".join(parts) if changed else old

    def _rewrite_leaf(self, text: str) -> tuple[str, dict[str, int]]:
        if text in self._exact:
            new, kind = self._exact[text]
            return new, {kind: 1}
        new, counts = self._redactor.text(text)
        return new, dict(counts)


def ranges_of_people(message: Any, redactor: Redactor) -> list[str]:
    """Names of host ranges chosen by users, sorted: names of events that are not a framework's own."""
    titles = {key: metadata.name for key, metadata in proto.event_metadata(message).items()}
    names = proto.stat_names(message)
    marks = {key for key, name in names.items() if name in _OWN_STATS}
    unmarked = {
        event.metadata_id
        for line in message.lines
        for event in line.events
        if not any(stat.metadata_id in marks for stat in event.stats)
    }
    texts = {titles.get(key, "") for key in unmarked}
    ops = set(names.values())  # texts that stats refer to, among them the names of ops
    return sorted(
        text
        for text in texts - ops
        if text and not text.startswith(_RUNTIME) and not redactor.is_marker(text)
    )


def _decode_text(data: bytes) -> str | None:
    """The bytes as text, None if they are not text."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return text if all(part.isprintable() for part in text.split()) else None


def _message_fields(data: bytes) -> list[tuple[int, int, int, int]] | None:
    """(wire type, position, content's range) of each field of a message; None if it is not a message."""
    try:
        fields = list(proto.message_fields(data, 0, len(data), ""))
    except (InputError, DecodeError):
        return None
    if not fields or fields[-1][3] > len(data):
        return None
    return [(_wire_type(data, at), at, begin, end) for _, at, begin, end in fields]


def _wire_type(data: bytes | mmap.mmap, at: int) -> int:
    return data[at] & 7


def _encode_field(head: bytes, value: bytes, old: bytes) -> bytes:
    """A field with new content: the same tag, the new length."""
    if len(value) == len(old):
        return head + value
    tag = next(i for i, byte in enumerate(head) if byte < 0x80) + 1
    return head[:tag] + _encode_varint(len(value)) + value


def _encode_varint(number: int) -> bytes:
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)
