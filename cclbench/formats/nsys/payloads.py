# SPDX-License-Identifier: Apache-2.0
"""Payloads of NVTX ranges: the integers that a range's binary data holds, by the schema in the export."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from cclbench.formats.nsys.database import Database

_ENTRIES: Final = ("NVTX_PAYLOAD_SCHEMA_ENTRIES", "NVTX_PAYLOAD_ENTRIES")
_FORMATS: Final = {5: "<i", 6: "<I", 10: "<Q", 15: "<i", 16: "<I", 17: "<q", 18: "<Q", 22: "<Q"}
"""Integers among NVTX's payload entry types (nvToolsExtPayload.h)."""
_HEADER: Final = struct.Struct("<QQQQ")
"""Of `binaryData`: domain, schema, size of the payload, its offset."""
LONGEST_BLOB: Final = 4096
"""Bytes of a range's binary data that are worth reading: NCCL's payloads have some tens."""

Layout = dict[tuple[int, int], dict[str, tuple[int, str]]]
"""Offset and format of each field, by domain and schema."""


def layout_of(database: Database, names: Sequence[str]) -> Layout:
    """Where the fields of these names lie; schemas that contradict themselves are left out."""
    table = next(
        (t for t in _ENTRIES if database.has(t, "domainId", "schemaId", "name", "type", "offset")), None
    )
    if table is None:
        return {}
    columns = "DISTINCT domainId, schemaId, name, type, coalesce(offset, 0)"
    listed = ", ".join(f"'{name}'" for name in names)
    layout: Layout = defaultdict(dict)
    contradicted = set()
    for domain, schema, name, kind, offset in database.select(
        table, columns, f"name IN ({listed})", "LIMIT 65536"
    ):
        place = (offset, _FORMATS.get(kind, ""))
        if layout[domain, schema].setdefault(name, place) != place or not place[1]:
            contradicted.add((domain, schema))
    return {key: fields for key, fields in layout.items() if key not in contradicted}


def decode(payload: str, domain: int, layout: Layout) -> dict[str, int]:
    """The fields of a payload; none where it is not what its schema says."""
    blob = bytes.fromhex(payload)
    if len(blob) < _HEADER.size:
        return {}
    _, schema, size, offset = _HEADER.unpack_from(blob)
    if offset < _HEADER.size or offset + size > len(blob):
        return {}
    fields = {}
    for name, (at, form) in layout.get((domain, schema), {}).items():
        if at >= 0 and at + struct.calcsize(form) <= size:
            (fields[name],) = struct.unpack_from(form, blob, offset + at)
    return fields
