# SPDX-License-Identifier: Apache-2.0
"""What a format of traces hands on: parts of a file, batches of rows, payloads, marked steps, facts."""

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
"""A column of integers with gaps, one entry a row."""
LATEST_NS: Final = 1 << 61
"""Of a time that is believed: the year 2043, and as long before 1970."""
NO_GRID: Final = (0, 0, 0)
"""Of a kernel whose grid is not stated."""
_MOST_BLOCKS: Final = float(1 << 62)


class Names(dict[str, int]):
    """Codes of names, in order of first appearance: `names[name]` numbers a new name."""

    def __missing__(self, name: str) -> int:
        code = self[name] = len(self)
        return code


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Rows:
    """Rows of one kind, column-wise, in the file's order; absent columns are null throughout."""

    kind: str
    side: str
    names: Names
    """All names of this kind so far; the same object for each batch of a trace."""
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
    name_categories: Mapping[int, str] | None = None
    """`schema.CATEGORIES` by code of a name, where the producer knows better than the taxonomy of names."""

    def __len__(self) -> int:
        return len(self.codes)

    def take_rows(self, places: Int64) -> Rows:
        """The rows at those places, in that order."""
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
    """The columns of `Rows` for grids of shape (kernels, 3); null where a dimension is 0.

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
    """What a trace says of a collective call, wherever it says it; equal ones are kept once.

    `source` is kernel, hlo, host_op, execution_trace, annotation, or the reader of a file that lists calls;
    `library` is who does it, where names
    do not tell.  On a CPU the call owns the next `rows`
    rows of the communication threads `threads`.
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
    rows: int = 1
    threads: tuple[int, ...] = ()


class StatedPayloads:
    """All that a trace tells of its collectives, column-wise; entry i is about payload `code[i]`.

    It belongs to the kernel of ordinal `row[i]` where that is not −1, else to the kernels launched on
    thread `track[i]` within [start_ns[i], end_ns[i]).  `seq[i]` is −1 where no number is told.
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
        """Append entries of kernels: their payloads among these, ordinals and numbers, shape (rows,)."""
        codes = np.array([self.payloads.setdefault(one, len(self.payloads)) for one in payloads], np.int64)
        self.code.frombytes(codes[code].tobytes())
        self.row.frombytes(row.astype(np.int64).tobytes())
        self.seq.frombytes(seq.astype(np.int64).tobytes())
        self.track.extend([-1] * len(row))
        for column in (self.start_ns, self.end_ns):
            column.extend([0] * len(row))

    def extend_with(self, other: StatedPayloads, kernels_before: int) -> None:
        """Append another part's entries, whose kernels are counted from `kernels_before`."""
        own = [self.payloads.setdefault(payload, len(self.payloads)) for payload in other.payloads]
        code, row = (np.asarray(column, np.int64) for column in (other.code, other.row))
        self.code.frombytes(np.array(own, np.int64)[code].tobytes())
        self.row.frombytes(np.where(row >= 0, row + kernels_before, row).tobytes())
        for name in ("track", "start_ns", "end_ns", "seq"):
            getattr(self, name).extend(getattr(other, name))


class Part(msgspec.Struct, frozen=True):
    """A share of a file that is read on its own: one member's rows, all of them or a range.

    A file may hold several ranks (the processes of a capture, the devices of a profile): `member` names
    one of them within the file and is empty where there is but one.  The range, [begin, end), is in the
    reader's own unit; both are None where the part is all of the member's.
    """

    member: str = ""
    begin: int | None = None
    end: int | None = None
    stream: bool = False
    """Whether it is all of a compressed file, whose parts `Reader.inflated` gives."""
    inflated: str | None = None
    """The file that holds the part's bytes, for as long as it is not read."""

    @property
    def is_whole(self) -> bool:
        """Whether it is all that the file has of the member."""
        return self.begin is None and not self.stream

    def remove_inflated(self) -> None:
        """Delete its bytes where they lie inflated."""
        if self.inflated is not None:
            Path(self.inflated).unlink()


class DeviceStep(msgspec.Struct, frozen=True):
    """A step as the device's own rows mark it: an XLA `Steps` row, or a run of the module or graph `name`."""

    name: str
    start_ns: int
    end_ns: int
    number: int | None = None
    """Of a `Steps` row; None on runs of modules, of which normalization chooses the dominant one."""
    closed: bool = False
    """Whether it ends where it says, not where the next one begins."""
    source: str = "module"
    """What marks it, one of `schema.WINDOW_SOURCES`."""


class Cut(msgspec.Struct, frozen=True):
    """Where a damaged file ends for us: everything before `byte` was used, nothing after."""

    file: str
    byte: int
    reason: str
    rows_whole: bool = False
    """Whether only what follows the rows is damaged."""


def plausible_amount(value: object) -> int | None:
    """A number of things or bytes that a device can have; an absurd one says nothing."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 < value < 1 << 48 else None


def impossible_value(what: str, where: object, hint: str = "is the file damaged?") -> InputError:
    """The error of a value that no file of a program's own can hold."""
    return InputError(f"impossible {what}", where=str(where), hint=hint)


def several_processes(path: Path, processes: Iterable[object]) -> InputError:
    """The error of a file that holds the rows of these processes as if they were one rank's."""
    pids = " and ".join(f"{pid!s:.40}" for pid in sorted(processes, key=str)[:2])
    return InputError(
        f"holds the rows of several processes, {pids}: traces of several ranks merged into one",
        where=str(path),
        hint="give each rank's own file",
    )


@dataclass(slots=True)
class Trace:
    """A part of a file being read: iterate `batches` to the end, then the rest is complete.

    A batch is rows, or a table of `schema.COUNTERS` with what the file samples of the hardware.
    """

    batches: Iterator[Rows | pa.Table]
    facts: TraceFacts = field(default_factory=TraceFacts)
    told: StatedPayloads = field(default_factory=StatedPayloads)
    dropped: Counter[str] = field(default_factory=Counter)
    cut: Cut | None = None
    base_ns: int | None = 0
    """What is still to be added to all its times: the file's end tells; None where another part holds it."""
    device_rows_in_order: bool = True
    """Whether the device's rows came in order of their start: then nothing is missing before the last."""
    device_steps: list[DeviceStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What people should know of the capture: events the profiler dropped, bytes an export left out."""
