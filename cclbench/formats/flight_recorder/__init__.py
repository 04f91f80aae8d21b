# SPDX-License-Identifier: Apache-2.0
"""PyTorch Flight Recorder: the ring buffer of a rank's collectives, as pickle or JSON.

Layouts follow torch/csrc/distributed/c10d/FlightRecorder*.hpp: the watchdog and `_dump_nccl_trace` write
pickles, `_dump_nccl_trace_json` JSON.  Stack frames contain paths and are not read.

S is the larger of the input and output sizes, by shapes and element types; of all_gather, reduce_scatter,
gather and scatter only if both sides are stated.  `duration_ms`, from CUDA events, needs
TORCH_NCCL_ENABLE_TIMING=1.
`start_ns` is null: the recorder states when the call was enqueued and when the watchdog noticed its start,
neither of which is the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from cclbench.classify import collective_name, element_bytes, kind_of
from cclbench.formats import READERS, Evidence, EvidenceReader
from cclbench.formats.pickled import BEGIN, MOST_FILE_BYTES, NotPlainError, load_plain
from cclbench.formats.rewriting import SOURCE_PATH
from cclbench.formats.texts import damaged_error, read_whole, reason_of, strip_decoration
from cclbench.formats.timing_rows import MOST_BYTES, Timings, exact_nanoseconds
from cclbench.ground.schema import group_id
from cclbench.record.facts import ProcessGroup

_MOST_RANKS: Final = 1 << 20
_MOST_DIMENSIONS: Final = 64
"""PyTorch's limit; bounds the number of digits of a shape's product."""
_UNEVEN: Final = ("all_gather", "reduce_scatter", "gather", "scatter")
_STATES: Final = ("scheduled", "started", "completed")
_RANK = re.compile(r"(rank)?[_.-]?(\d{1,7})$", re.ASCII | re.IGNORECASE)
_SUFFIX = re.compile(r"\.(?:json|pkl|pickle|gz|bin|trace)$", re.IGNORECASE)
_TRANSFER = re.compile(r"(?:send|recv) (\d{1,7})(->|<-)(\d{1,7})$", re.ASCII)
_RANKS = re.compile(r"\[\s*(?:\d{1,10}\s*(?:,\s*\d{1,10}\s*)*)?\]", re.ASCII)

Shape = Annotated[
    list[Annotated[int, msgspec.Meta(ge=0, le=MOST_BYTES)]], msgspec.Meta(max_length=_MOST_DIMENSIONS)
]


class _Entry(msgspec.Struct):
    profiling_name: str = ""
    process_group: tuple[str, ...] = ()
    collective_seq_id: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] | None = None
    p2p_seq_id: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] | None = None
    is_p2p: bool = False
    state: str | None = None
    retired: bool = False
    duration_ms: Annotated[float, msgspec.Meta(ge=0, le=1e11)] | None = None
    input_sizes: tuple[Shape, ...] = ()
    output_sizes: tuple[Shape, ...] = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()


class _DumpedGroup(msgspec.Struct):
    desc: str = ""
    ranks: str | None = None


class _Dump(msgspec.Struct):
    version: str | None = None
    nccl_version: str | None = None
    comm_lib_version: str | None = None
    pg_config: dict[str, _DumpedGroup] = {}
    entries: list[_Entry] = []


class _PickledDump(_Dump):
    """Entries are converted one by one: in a pickle they may share objects."""

    entries: list[Any] = []


class FlightRecorder(EvidenceReader):
    """Reader of one rank's dump."""

    name = "flight_recorder"
    description = "PyTorch Flight Recorder dumps: the last collectives of a rank, with their state"
    extensions: tuple[str, ...] = (".json", ".pkl", ".pickle")
    capture = "PyTorch's dumps, JSON or pickle; pickles are read as data, never run"
    versions = "2.10 (torch 2.13) seen; from 2.0 (torch 2.4) on as documented"
    lists_calls = True
    tested = (
        "real: gloo of torch 2.13, pickle and JSON; documentation: NCCL, by PyTorch's tutorial and source"
    )

    figures = re.compile(r"ranks")
    withheld: Mapping[str, str] = {"frames": SOURCE_PATH}

    def sniff(self, head: bytes) -> float:
        """Sure of the recorder's own keys; in a pickle the groups' ranks may fill the whole beginning."""
        head = strip_decoration(head)
        groups, calls = b"pg_config" in head, b"collective_seq_id" in head
        if head[:1] == BEGIN:
            return 0.9 if groups or calls else 0.0
        has_keys = (calls and b"profiling_name" in head) or (groups and b"pg_status" in head)
        return 0.9 if has_keys and head.lstrip()[:1] == b"{" else 0.0

    def read(self, path: Path) -> Evidence:
        """A row for each entry of the ring buffer; `InputError` for a pickle of more than plain data."""
        dump = _decode_dump(path)
        listed = {text: _parse_ranks(text) for text in {group.ranks for group in dump.pg_config.values()}}
        groups = {name: listed[group.ranks] for name, group in dump.pg_config.items()}
        timings, rank = Timings(path), _rank_in_name(path, listed.values())
        group_ids = {text: group_id(ranks) for text, ranks in listed.items() if ranks}
        ids = {name: group_ids.get(group.ranks) for name, group in dump.pg_config.items()}
        notes = _Notes()
        for at, entry in enumerate(_decode_entries(dump, path), 1):
            notes.count_entry(entry)
            name = entry.process_group[0] if entry.process_group else None
            ranks, milliseconds = groups.get(name or ""), entry.duration_ms
            timings.add_row(
                rank=rank,
                kind=_kind(entry.profiling_name),
                library=_collective_library(entry.profiling_name),
                group=ids.get(name or ""),
                group_size=len(ranks) if ranks else None,
                seq=entry.p2p_seq_id if entry.is_p2p else entry.collective_seq_id,
                **_point_to_point_ends(entry.profiling_name, ranks),
                dtype=_common_dtype(entry),
                bytes=_payload_bytes(entry, path, at),
                # Exactly the number that the recorder writes in single precision.
                dur_ns=None
                if milliseconds is None
                else exact_nanoseconds(Decimal(milliseconds), per_unit=10**6),
                state=_call_state(entry),
            )
        version = dump.comm_lib_version or dump.nccl_version
        versions = {"flight_recorder_version": dump.version, "library_version": version}
        facts: dict[str, str | int | float | list[str]] = {k: v[:60] for k, v in versions.items() if v}
        listed_groups = [
            ProcessGroup(name=name, description=group.desc[:60] or None, ranks=groups[name])
            for name, group in dump.pg_config.items()
            if groups[name]
        ]
        return Evidence(
            timings=timings.timing_table(), groups=listed_groups, facts=facts, notes=notes.note_lines()
        )


def _decode_dump(path: Path) -> _Dump:
    data = read_whole(path, MOST_FILE_BYTES)
    try:
        if data[:1] == BEGIN:
            return msgspec.convert(load_plain(data), type=_PickledDump)
        return msgspec.json.decode(data, type=_Dump)
    except NotPlainError as error:
        raise damaged_error(
            path, str(error), hint="remove it; a Flight Recorder dump is data alone"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise damaged_error(path, reason_of(error)) from None


def _decode_entries(dump: _Dump, path: Path) -> Iterator[_Entry]:
    if not isinstance(dump, _PickledDump):
        yield from dump.entries
        return
    try:
        for entry in dump.entries:
            yield msgspec.convert(entry, _Entry)
    except msgspec.ValidationError as error:
        raise damaged_error(path, reason_of(error)) from None


def _parse_ranks(listed: str | None) -> tuple[int, ...] | None:
    """The ranks of a group from text such as `[0, 1]`; None if it is cut or empty."""
    if listed is None or not _RANKS.fullmatch(listed):
        return None
    ranks = tuple(int(rank) for rank in re.findall(r"\d+", listed))
    return ranks if ranks and len(ranks) <= _MOST_RANKS and max(ranks) < 1 << 31 else None


def _rank_in_name(path: Path, groups: Iterable[tuple[int, ...] | None]) -> int | None:
    """The number at the end of a name (`nccl_trace_rank_3`), if `rank` precedes it or a group contains it."""
    name = path.name
    while (shorter := _SUFFIX.sub("", name)) != name:
        name = shorter
    match = _RANK.search(name)
    if match is None:
        return None
    rank = int(match[2])
    return rank if match[1] or any(rank in ranks for ranks in groups if ranks) else None


_kind = lru_cache(1 << 12)(kind_of)  # few names, many entries


@lru_cache(1 << 12)
def _collective_library(profiling_name: str) -> str | None:
    collective = collective_name(profiling_name)
    return None if collective is None else collective.library


def _point_to_point_ends(profiling_name: str, ranks: tuple[int, ...] | None) -> dict[str, int]:
    """Sender and receiver of `send 0->1` or `recv 1<-0`, whose numbers are ranks in the group."""
    match = _TRANSFER.search(profiling_name)
    if match is None or ranks is None or max(int(match[1]), int(match[3])) >= len(ranks):
        return {}
    rank, peer = ranks[int(match[1])], ranks[int(match[3])]
    ends = (rank, peer) if match[2] == "->" else (peer, rank)
    return dict(zip(("src_rank", "dst_rank"), ends, strict=True))


def _common_dtype(entry: _Entry) -> str | None:
    """The element type, if it is the same for all tensors."""
    dtypes = {*entry.input_dtypes, *entry.output_dtypes}
    only = dtypes.pop() if len(dtypes) == 1 else None
    return only if element_bytes(only) is not None else None


def _payload_bytes(entry: _Entry, path: Path, at: int) -> int | None:
    sides = (
        _side_bytes(entry.input_sizes, entry.input_dtypes),
        _side_bytes(entry.output_sizes, entry.output_dtypes),
    )
    sizes = [side for side in sides if side is not None]
    if not sizes or (len(sizes) < 2 and _kind(entry.profiling_name) in _UNEVEN):
        return None
    if max(sizes) > MOST_BYTES:
        raise damaged_error(path, f"entry {at:,} has tensors of an impossible size")
    return max(sizes)


def _side_bytes(shapes: Sequence[Shape], dtypes: Sequence[str]) -> int | None:
    """Bytes of the input or output tensors; None if there are none or an element type is unknown."""
    sizes = [element_bytes(dtype) for dtype in dtypes]
    if not shapes or len(sizes) != len(shapes):
        return None
    total = 0
    for shape, size in zip(shapes, sizes, strict=True):
        if size is None:
            return None
        total += prod(shape) * size
    return total


def _call_state(entry: _Entry) -> str | None:
    """State of the call; None if it was retired without having been watched, as gloo's are."""
    unwatched = entry.retired and entry.state != "completed"
    return entry.state if entry.state in _STATES and not unwatched else None


class _Notes:
    """Counts what entries lack, for the notes."""

    def __init__(self) -> None:
        self._entries = self._unfinished = self._unwatched = self._untimed = self._unsized = 0

    def count_entry(self, entry: _Entry) -> None:
        """Count an entry."""
        state = _call_state(entry)
        self._entries += 1
        self._unfinished += state in _STATES[:2]
        self._unwatched += state is None
        self._untimed += entry.duration_ms is None and entry.state == "completed"
        self._unsized += (
            not entry.input_dtypes and not entry.output_dtypes and _kind(entry.profiling_name) != "barrier"
        )

    def note_lines(self) -> list[str]:
        """A note for each thing that some entries lack."""
        notes, count = [], f"{self._entries:,}"
        if not self._entries:
            notes.append("holds no collectives: was TORCH_FR_BUFFER_SIZE (TORCH_NCCL_TRACE_BUFFER_SIZE) set?")
        if self._unfinished:
            notes.append(f"{self._unfinished:,} of {count} collectives had not completed when it was written")
        if self._unwatched:
            notes.append(f"{self._unwatched:,} of {count} collectives have no state: the backend states none")
        if self._untimed:
            notes.append(
                f"{self._untimed:,} completed collectives have no duration: set TORCH_NCCL_ENABLE_TIMING=1"
            )
        if self._unsized:
            notes.append(f"{self._unsized:,} entries state no tensors: their payload is unknown")
        return notes


READERS.add(FlightRecorder.name, FlightRecorder(), origin=__name__)
