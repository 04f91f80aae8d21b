# SPDX-License-Identifier: Apache-2.0
"""What a reader of traces returns: parts of a file, batches of rows, payloads, marked steps, facts."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64
from cclbench.record.facts import TraceFacts

Column: TypeAlias = list[int | None] | pa.Array
"""A nullable column of integers, one entry a row."""
ALLOCATOR_EVENT: Final = "[memory]"
"""Name of rows that state what an allocator holds after an event, as PyTorch names them."""
LATEST_NS: Final = 1 << 61
"""The largest plausible time, in the year 2043; the same distance before 1970 is the smallest."""
NO_GRID: Final = (0, 0, 0)
"""The grid of a kernel for which none is stated."""
_LARGEST_DEVICE: Final = (1 << 15) - 1
_MOST_BLOCKS: Final = float(1 << 62)


class Names(dict[str, int]):
    """Codes of names, in order of first appearance: `names[name]` assigns the next code to a new name."""

    def __missing__(self, name: str) -> int:
        code = self[name] = len(self)
        return code


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Rows:
    """Rows of one kind, column-wise, in the file's order; an absent column is all null."""

    kind: str
    side: str
    names: Names
    """All names of this kind so far; the same object in every batch of a trace."""
    codes: npt.NDArray[np.int32]
    start_ns: Int64
    dur_ns: Int64
    track: Int64
    device: Column | None = None
    correlation: Column | None = None
    bytes: Column | None = None
    copy_direction: list[str | None] | pa.Array | None = None
    flops: list[float | None] | pa.Array | None = None
    hbm_bytes: Column | None = None
    grid_x: Column | None = None
    grid_y: Column | None = None
    grid_z: Column | None = None
    blocks: Column | None = None
    occupancy: pa.Array | None = None
    operator: Column | None = None
    framework_op: pa.DictionaryArray | None = None
    program: pa.DictionaryArray | None = None
    awaited_ns: Column | None = None
    call_site: pa.DictionaryArray | None = None
    shapes: pa.DictionaryArray | None = None
    dtypes: pa.DictionaryArray | None = None
    strides: pa.DictionaryArray | None = None
    values: pa.DictionaryArray | None = None
    launched: pa.DictionaryArray | None = None
    sequence: Column | None = None
    forward_thread: Column | None = None
    event_stream: Column | None = None
    event_record: Column | None = None
    reserved: Column | None = None
    change: Column | None = None
    address: Column | None = None
    name_categories: Mapping[int, str] | None = None
    """Category (`schema.CATEGORIES`) by code of a name, if the producer states it; overrides the taxonomy."""

    def __len__(self) -> int:
        return len(self.codes)

    def take_rows(self, places: Int64) -> Rows:
        """The rows at these positions, in this order."""
        changes: dict[str, Any] = {}
        for column in fields(self):
            value = getattr(self, column.name)
            if isinstance(value, np.ndarray):
                changes[column.name] = value[places]
            elif isinstance(value, list):
                changes[column.name] = [value[i] for i in places.tolist()]
            elif isinstance(value, pa.Array):
                changes[column.name] = value.take(pa.array(places))
        return replace(self, **changes)


def grid_columns(
    grids: npt.ArrayLike, where: str, *, hint: str = "is the file damaged?"
) -> dict[str, pa.Array]:
    """The grid columns of `Rows` for grids of shape (kernels, 3); null if a dimension is 0.

    `InputError` for a negative dimension, and for more than 2^62 blocks.
    """
    sides = np.asarray(grids, np.float64).reshape(-1, 3)
    sizes = sides.prod(axis=1)
    wrong = (sides < 0).any(axis=1) | (np.maximum(sides.max(axis=1), sizes) > _MOST_BLOCKS)
    if wrong.any():
        x, y, z = sides[np.argmax(wrong)]
        raise impossible_value(f"grid of {x:g} × {y:g} × {z:g} blocks", where, hint)
    exact = np.asarray(grids, np.int64).reshape(-1, 3)
    columns = (*exact.T, exact.prod(axis=1))
    return {
        name: pa.array(column, mask=sizes == 0)
        for name, column in zip(("grid_x", "grid_y", "grid_z", "blocks"), columns, strict=True)
    }


class Payload(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """What a trace states about a collective call; equal payloads are stored once.

    `source` is where it is stated: kernel, hlo, host_op, execution_trace, annotation, or the reader of a file
    that lists calls.  `library` is the library that runs it, if names do not show it.  `channel` is what a
    message and its receive have in common, communicator and tag, within which the sequence number counts;
    `src_rank` is also the root of a broadcast or scatter, `dst_rank` of a gather or reduce.  On a CPU the
    call owns the next `rows` rows of the communication threads `threads`.
    """

    source: str
    collective: str | None = None
    library: str | None = None
    in_elements: int | None = None
    out_elements: int | None = None
    in_bytes: int | None = None
    out_bytes: int | None = None
    dtype: str | None = None
    group_name: str | None = None
    group_description: str | None = None
    group_size: int | None = None
    ranks: tuple[int, ...] | None = None
    src_rank: int | None = None
    dst_rank: int | None = None
    channel: str | None = None
    rows: int = 1
    threads: tuple[int, ...] = ()


class StatedPayloads:
    """All payloads that a trace states, column-wise; entry i has payload `code[i]`.

    It belongs to kernel number `row[i]`, or if that is −1, to the kernels launched on thread `track[i]`
    within [start_ns[i], end_ns[i]).  `seq[i]` is the sequence number, −1 if none is stated.
    """

    __slots__ = ("code", "end_ns", "payloads", "row", "seq", "start_ns", "track")

    def __init__(self) -> None:
        self.payloads: dict[Payload, int] = {}
        self.code, self.row, self.track = array("q"), array("q"), array("q")
        self.start_ns, self.end_ns, self.seq = array("q"), array("q"), array("q")

    def __len__(self) -> int:
        return len(self.code)

    def add_payload(
        self,
        payload: Payload,
        *,
        row: int = -1,
        track: int = -1,
        start_ns: int = 0,
        end_ns: int = 0,
        seq: int | None = None,
    ) -> None:
        """Append an entry."""
        self.code.append(self.payloads.setdefault(payload, len(self.payloads)))
        self.row.append(row)
        self.track.append(track)
        self.start_ns.append(start_ns)
        self.end_ns.append(end_ns)
        self.seq.append(-1 if seq is None else seq)

    def add_rows(self, payloads: Sequence[Payload], code: Int64, row: Int64, seq: Int64) -> None:
        """Append entries of kernels: indices into `payloads`, kernel and sequence numbers, shape (rows,)."""
        codes = np.array(
            [self.payloads.setdefault(payload, len(self.payloads)) for payload in payloads], np.int64
        )
        self.code.frombytes(codes[code].tobytes())
        self.row.frombytes(row.astype(np.int64).tobytes())
        self.seq.frombytes(seq.astype(np.int64).tobytes())
        self.track.extend([-1] * len(row))
        for column in (self.start_ns, self.end_ns):
            column.extend([0] * len(row))

    def extend_with(self, other: StatedPayloads, kernels_before: int) -> None:
        """Append another part's entries; its kernels are numbered from `kernels_before`."""
        codes = [self.payloads.setdefault(payload, len(self.payloads)) for payload in other.payloads]
        code, row = (np.asarray(column, np.int64) for column in (other.code, other.row))
        self.code.frombytes(np.array(codes, np.int64)[code].tobytes())
        self.row.frombytes(np.where(row >= 0, row + kernels_before, row).tobytes())
        for name in ("track", "start_ns", "end_ns", "seq"):
            getattr(self, name).extend(getattr(other, name))


class Part(msgspec.Struct, frozen=True):
    """A part of a file that is read on its own: all rows of one member, or a range of them.

    A file may contain several ranks (the processes of a capture, the devices of a profile): `member` names
    one of them and is empty if there is only one.  The range [begin, end) is in the reader's own unit; both
    are None if the part is the whole member.
    """

    member: str = ""
    begin: int | None = None
    end: int | None = None
    stream: bool = False
    """Whether it is a whole compressed file, whose parts `Reader.inflate_parts` yields."""
    inflated: str | None = None
    """The file with the part's inflated bytes; deleted once it is read."""
    calls_only: bool = False
    """Whether only the host's calls and launches are needed, with names and times of its other rows: a
    reader may leave out uninformative Python rows, and all that states devices, synchronisation, collectives
    and allocations."""

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole member."""
        return self.begin is None and not self.stream

    def remove_inflated(self) -> None:
        """Delete the file of inflated bytes, if there is one."""
        if self.inflated is not None:
            Path(self.inflated).unlink()


class DeviceStep(msgspec.Struct, frozen=True):
    """A step marked by the device's own rows: an XLA `Steps` row, or a run of the module or graph `name`."""

    name: str
    start_ns: int
    end_ns: int
    number: int | None = None
    """Number of a `Steps` row; None for runs of modules, of which normalization chooses the dominant one."""
    closed: bool = False
    """Whether `end_ns` is its end; otherwise it ends where the next step begins."""
    source: str = "module"
    """What marks the step, one of `schema.WINDOW_SOURCES`."""


class Cut(msgspec.Struct, frozen=True):
    """Where a damaged file was cut off: everything before `byte` was used, nothing after it."""

    file: str
    byte: int
    reason: str
    rows_whole: bool = False
    """Whether all rows were read and only the part behind them is damaged."""


def plausible_amount(value: object) -> int | None:
    """The value if it is a plausible count or number of bytes of a device, None otherwise."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value < 1 << 48 else None


def impossible_value(what: str, where: object, hint: str = "is the file damaged?") -> InputError:
    """The error for a value that no undamaged file contains."""
    return InputError(f"impossible {what}", where=str(where), hint=hint)


def check_devices(device: pa.Array, where: object) -> None:
    """`InputError` for an index of a device that no column of devices can hold."""
    numbers = np.asarray(device.drop_null(), np.int64)
    wrong = numbers[(numbers < 0) | (numbers > _LARGEST_DEVICE)]
    if len(wrong):
        raise impossible_value(f"device {wrong[0]}", where)


def several_processes(path: Path, processes: Iterable[object]) -> InputError:
    """The error for a file in which the rows of several processes are mixed."""
    pids = " and ".join(f"{pid!s:.40}" for pid in sorted(processes, key=str)[:2])
    return InputError(
        f"contains rows of several processes, {pids}: it was merged from traces of several ranks",
        where=str(path),
        hint="pass the original file of each rank",
    )


@dataclass(slots=True)
class Trace:
    """A part of a file being read: the other fields are complete once `batches` is exhausted.

    A batch is `Rows`, or a table of `EVIDENCE`: counters sampled in the trace, buffers of compiled programs.
    """

    batches: Iterator[Rows | pa.Table]
    facts: TraceFacts = field(default_factory=TraceFacts)
    stated_payloads: StatedPayloads = field(default_factory=StatedPayloads)
    dropped: Counter[str] = field(default_factory=Counter)
    cut: Cut | None = None
    base_ns: int | None = 0
    """Offset still to be added to all times, stated at the file's end; None if another part contains it."""
    device_rows_in_order: bool = True
    """Whether the device's rows are sorted by start: then none is missing before the last one."""
    device_steps: list[DeviceStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Notes on the capture for the user: events the profiler dropped, bytes an export omitted."""
