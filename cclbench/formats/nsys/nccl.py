# SPDX-License-Identifier: Apache-2.0
"""Payloads of NCCL kernels from NVTX ranges: the call, and its bytes if the export has them.

A kernel is launched in the call itself or, if calls are grouped, in the `ncclGroupEnd` that ends the group.
"Message size" is the count argument of NCCL's functions, in bytes: one rank's share in all_gather,
reduce_scatter, gather and scatter, the share for one peer in all_to_all.  Peers are ranks in the
communicator, whose global ranks are not stated; they are not recorded.  A communicator's id is the same in
all its processes; its size and the process's rank are stated by the calls that create and destroy it.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cclbench.classify import kind_of
from cclbench.formats import Payload, StatedPayloads
from cclbench.formats.nsys.capture import NVTX, RANGES
from cclbench.formats.nsys.database import Database
from cclbench.formats.nsys.rows import Columns, TableReader, thread_numbers
from cclbench.ground.intervals import Int64
from cclbench.record.facts import Communicator

_CALL: Final = re.compile(
    r"nccl(?:AllReduce|AllGather|ReduceScatter|Broadcast|Bcast|Reduce|AlltoAll|AllToAll|Gather|Scatter|Send|Recv)"
)
_LARGEST_BYTES: Final = 1 << 56
_MOST_RANKS: Final = 1 << 24
_FIELDS: Final = ("NCCL communicator ID", "Message size [bytes]", "No. of ranks", "Rank")
_COMMUNICATOR, _SIZE, _RANKS, _RANK = _FIELDS
_SCHEMAS: Final = ("NVTX_PAYLOAD_SCHEMA_ENTRIES", "NVTX_PAYLOAD_ENTRIES")
_FORMATS: Final = {5: "<i", 6: "<I", 10: "<Q", 15: "<i", 16: "<I", 17: "<q", 18: "<Q", 22: "<Q"}
"""Integers among NVTX's payload entry types (nvToolsExtPayload.h)."""
_HEADER: Final = struct.Struct("<QQQQ")
"""Header of `binaryData`: domain, schema, size of the payload, its offset."""
_LONGEST_BLOB: Final = 4096
"""Most bytes of a range's binary data that are read: NCCL's payloads have some tens."""

_Layout = dict[tuple[int, int], dict[str, tuple[int, str]]]
"""Offset and format of each field, by domain and schema."""


@dataclass(frozen=True, slots=True)
class _Range:
    name: str
    track: int
    start_ns: int
    end_ns: int
    communicator: str | None = None
    size: int | None = None


def add_nccl_payloads(reader: TableReader, stated: StatedPayloads) -> tuple[Communicator, ...]:
    """The member's communicators; adds the payloads of NCCL's and PyTorch's ranges to `stated`.

    All launches must have been read before.
    """
    if not reader.database.has_columns(NVTX, "domainId", "eventType", "textId"):
        return ()
    calls, communicators = _nccl_calls(reader)
    ranks = _communicator_sizes(communicators)
    enclosing = _pytorch_ranges(reader)
    for track, listed in enclosing.items():
        for r in listed:
            annotated = Payload(source="annotation", collective=r.name.partition(":")[2])
            stated.add_payload(annotated, track=track, start_ns=r.start_ns, end_ns=r.end_ns)
    launches = _kernel_launches(reader.launches)
    for track, listed in calls.items():
        for place, members in _launched_in(listed):
            launched = launches.get(track, np.empty(0, np.int64))
            first, last = np.searchsorted(launched, [place.start_ns, place.end_ns])
            if len(members) > 1 and last - first != 1:
                continue  # ambiguous: which kernel belongs to which calls
            payload = _kernel_payload(
                members, ranks, _innermost_kind(enclosing.get(track, []), place.start_ns)
            )
            if payload is not None:
                stated.add_payload(payload, track=track, start_ns=place.start_ns, end_ns=place.end_ns)
    sized = [r.size is not None for listed in calls.values() for r in listed if _CALL.fullmatch(r.name)]
    if sized and not all(sized):
        reader.notes.append(
            f"payload bytes unavailable for {sized.count(False)} of {len(sized)} NCCL calls: the export does"
            " not include them; re-export with nsys export --type sqlite --include-blobs=true"
        )
    used = {r.communicator for listed in calls.values() for r in listed if r.communicator}
    if unknown := len(used.difference(r.name for r in communicators)):
        reader.notes.append(
            f"the ranks of {unknown} of {len(used)} NCCL communicators are unknown: the capture contains"
            " neither their creation nor their destruction"
        )
    return communicators


def _nccl_calls(reader: TableReader) -> tuple[dict[int, list[_Range]], tuple[Communicator, ...]]:
    """NCCL's ranges by thread, in order, and the communicators that they state."""
    database, layout = reader.database, payload_layout(reader.database)
    blob = "NULL"
    if layout and database.has_columns(NVTX, "binaryData"):
        blob = f"hex(substr(binaryData, 1, {_LONGEST_BLOB}))"
    is_call = "GLOB 'nccl[A-Z]*'"
    registered = database.select_rows("StringIds", "id", f"value {is_call}", "LIMIT 500")
    ids = ", ".join(str(i) for (i,) in registered)
    where = (
        f"eventType IN {RANGES} AND domainId <> 0"
        f" AND ({database.first_column_sql(NVTX, 'text')} {is_call} OR textId IN ({ids}))"
    )
    calls: dict[int, list[_Range]] = defaultdict(list)
    communicators: dict[Communicator, None] = {}
    for call, domain, payload in _select_ranges(reader, where, blob):
        fields = _decode_payload(payload, domain, layout) if payload else {}
        # NCCL's id of 0 means a call without a communicator.
        communicator = f"{fields[_COMMUNICATOR]:#x}" if fields.get(_COMMUNICATOR) else None
        rank, count, size = fields.get(_RANK, -1), fields.get(_RANKS, 0), fields.get(_SIZE, -1)
        if communicator and 0 <= rank < count < _MOST_RANKS:
            communicators[Communicator(communicator, rank, count)] = None
        valid_size = size if 0 <= size < _LARGEST_BYTES else None
        calls[call.track].append(
            _Range(call.name, call.track, call.start_ns, call.end_ns, communicator, valid_size)
        )
    for listed in calls.values():
        listed.sort(key=lambda call: call.start_ns)
    return calls, tuple(communicators)


def _communicator_sizes(communicators: Sequence[Communicator]) -> dict[str, int]:
    """Number of ranks of each communicator, without those for which two sizes are stated."""
    sizes_by_name = defaultdict[str, set[int]](set)
    for communicator in communicators:
        sizes_by_name[communicator.name].add(communicator.size)
    return {name: sizes.pop() for name, sizes in sizes_by_name.items() if len(sizes) == 1}


def _pytorch_ranges(reader: TableReader) -> dict[int, list[_Range]]:
    """PyTorch's ranges around its NCCL calls, `nccl:all_to_all`, by thread and in order."""
    ranges: dict[int, list[_Range]] = defaultdict(list)
    if reader.database.has_columns(NVTX, "text"):
        where = f"eventType IN {RANGES} AND coalesce(domainId, 0) = 0 AND text GLOB 'nccl:*'"
        for r, _, _ in _select_ranges(reader, where, "NULL"):
            ranges[r.track].append(r)
    for listed in ranges.values():
        listed.sort(key=lambda r: r.start_ns)
    return ranges


def _select_ranges(reader: TableReader, where: str, blob: str) -> list[tuple[_Range, int, str]]:
    """Ranges that match the SQL condition, with their domain and their payload in hexadecimal digits."""
    texts = {
        "text": f"coalesce({reader.database.first_column_sql(NVTX, 'text')}, '')",
        "blob": f"coalesce({blob}, '')",
    }
    columns: Columns = {"name": ("textId",), "track": ("globalTid",), "domain": ("domainId",)}
    base = reader.capture.base_ns
    selected = []
    for batch in reader.member_batches(NVTX, columns, where, texts=texts, counted=False):
        ids = [i for i in batch["name"].unique().to_pylist() if i is not None]
        registered = reader.database.string_ids(ids)
        columns_of = (batch[c].to_pylist() for c in ("text", "name", "start", "end", "domain", "blob"))
        for track, text, name, start, end, domain, payload in zip(
            thread_numbers(batch["track"]).tolist(), *columns_of, strict=True
        ):
            title = re.split(r", (?:seq|op_id) = ", text or registered.get(name, ""))[0]
            selected.append((_Range(title, track, start + base, end + base), domain or 0, payload))
    return selected


def _launched_in(listed: Sequence[_Range]) -> list[tuple[_Range, list[_Range]]]:
    """The range in which each call or group of calls of a thread is launched, with these calls."""
    launches = []
    depth, group = 0, list[_Range]()
    for call in listed:
        if call.name == "ncclGroupStart":
            group = [] if depth == 0 else group
            depth += 1
        elif call.name == "ncclGroupEnd":
            if depth == 1 and group:
                launches.append((call, group))
            depth = max(depth - 1, 0)
        elif _CALL.fullmatch(call.name):
            if depth:
                group.append(call)
            else:
                launches.append((call, [call]))
    return launches


def _kernel_payload(
    calls: Sequence[_Range], ranks: dict[str, int], enclosing_kind: str | None
) -> Payload | None:
    """The payload of one kernel for these calls; None if they differ in kind or communicator."""
    communicators = {call.communicator for call in calls}
    kinds = {kind_of(call.name) or "broadcast" for call in calls}
    if len(communicators) > 1 or (len(kinds) > 1 and kinds != {"send", "recv"}):
        return None
    communicator = communicators.pop()
    count = ranks.get(communicator) if communicator is not None else None
    sizes = [(kind_of(call.name) or "broadcast", call.size) for call in calls]
    if kinds <= {"send", "recv"}:
        all_sized = all(size is not None for _, size in sizes)
        if len(calls) > 1 and not all_sized:
            return None
        sent = [size or 0 for kind, size in sizes if kind == "send"]
        received = [size or 0 for kind, size in sizes if kind == "recv"]
        collective = kinds.pop() if len(kinds) == 1 else enclosing_kind or "send_recv"
        in_bytes = sum(sent) if sent and all_sized else None
        out_bytes = sum(received) if received and all_sized else None
    else:
        collective = kinds.pop()
        known_sizes = [size for _, size in sizes if size is not None]
        total = sum(known_sizes) if len(known_sizes) == len(calls) else None
        in_bytes, out_bytes = _payload_sides(collective, total, count)
    return Payload(
        source="host_op",
        collective=collective,
        in_bytes=in_bytes,
        out_bytes=out_bytes,
        group_name=communicator,
        group_size=count,
    )


def _payload_sides(kind: str, size: int | None, ranks: int | None) -> tuple[int | None, int | None]:
    """Input and output bytes of a call by its message size."""
    all_ranks = None if size is None or ranks is None else size * ranks
    return {
        "all_gather": (size, all_ranks),
        "reduce_scatter": (all_ranks, size),
        "gather": (size, all_ranks),
        "scatter": (all_ranks, size),
        "all_to_all": (all_ranks, all_ranks),
        "all_reduce": (size, size),
        "broadcast": (size, size),
    }.get(kind, (size, None))


def _innermost_kind(ranges: Sequence[_Range], instant: int) -> str | None:
    """The kind of collective in the name of the range around an instant."""
    at = bisect_right(ranges, instant, key=lambda r: r.start_ns) - 1
    if at < 0 or ranges[at].end_ns <= instant:
        return None
    return kind_of(ranges[at].name.partition(":")[2])


def _kernel_launches(read: Sequence[tuple[Int64, Int64]]) -> dict[int, Int64]:
    """Start times of kernel launches by thread, in order."""
    if not read:
        return {}
    track, start = (np.concatenate(column) for column in zip(*read, strict=True))
    return {int(thread): np.sort(start[track == thread]) for thread in np.unique(track)}


def payload_layout(database: Database) -> _Layout:
    """Offsets of the fields; contradictory schemas are left out."""
    table = next(
        (t for t in _SCHEMAS if database.has_columns(t, "domainId", "schemaId", "name", "type", "offset")),
        None,
    )
    if table is None:
        return {}
    columns = "DISTINCT domainId, schemaId, name, type, coalesce(offset, 0)"
    listed = ", ".join(f"'{name}'" for name in _FIELDS)
    layout: _Layout = defaultdict(dict)
    contradicted = set()
    for domain, schema, name, kind, offset in database.select_rows(
        table, columns, f"name IN ({listed})", "LIMIT 65536"
    ):
        place = (offset, _FORMATS.get(kind, ""))
        # A SQLite column may contain values of any type.
        is_integer = bool(place[1]) and isinstance(offset, int)
        if layout[domain, schema].setdefault(name, place) != place or not is_integer:
            contradicted.add((domain, schema))
    return {key: fields for key, fields in layout.items() if key not in contradicted}


def published_payload(blob: bytes, layout: _Layout) -> bytes:
    """A range's binary data with zeros for all that is not read; empty unless its schema is in `layout`."""
    if len(blob) < _HEADER.size:
        return b""
    _, schema, size, offset = _HEADER.unpack_from(blob)
    places = {place for (_, key), fields in layout.items() if key == schema for place in fields.values()}
    if not places or offset < _HEADER.size or offset + size > len(blob):
        return b""
    published = bytearray(len(blob))
    published[8 : _HEADER.size] = blob[8 : _HEADER.size]
    for at, form in places:
        begin, end = offset + at, offset + at + struct.calcsize(form)
        if at >= 0 and end <= offset + size:
            published[begin:end] = blob[begin:end]
    return bytes(published)


def _decode_payload(payload: str, domain: int, layout: _Layout) -> dict[str, int]:
    """The fields of a payload; empty if it does not match its schema."""
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
