# SPDX-License-Identifier: Apache-2.0
"""Formats: one folder each, which recognises its files, reads them, and rewrites their texts.

Reading turns a profiler's file into batches of rows, nothing more.  What a row does (category), which step
holds it and which process group a collective belongs to are decided later, in `cclbench.normalize`, the
same way for every format.

`Reader`s read traces, whose rows are ranks' events; `ExecutionTraceReader`s what tells more of their
collectives; `EvidenceReader`s what else lies beside traces or stands alone: a client's benchmark of a
server, sweeps of collectives, hardware counters, logs.
Captures carry environments, user and host names and command lines: no reader hands those on.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.errors import InputError
from cclbench.formats.rewriting import Redactor
from cclbench.intervals import Int64
from cclbench.record.facts import ProcessGroup, TraceFacts
from cclbench.registry import Registry

HEAD_BYTES = 1 << 16
"""How much of a file's (decompressed) beginning readers look at to recognise it."""
FURTHER_BYTES = (1 << 20, 1 << 24)
"""How much of a text is looked at, step by step, where no reader is sure of its beginning."""
SURE = 0.6
"""Confidence from which no more of a file is looked at."""

Column: TypeAlias = list[int | None] | pa.Array
"""A column of integers with gaps, one entry a row."""


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
    operator: Column | None = None
    shapes: pa.DictionaryArray | None = None
    event_stream: Column | None = None
    event_record: Column | None = None
    name_categories: Mapping[int, str] | None = None
    """`schema.CATEGORIES` by code of a name, where the producer knows better than the taxonomy of names."""

    def __len__(self) -> int:
        return len(self.codes)


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """What a trace says of a collective call, wherever it says it; equal ones are kept once.

    `source` is kernel, hlo, host_op, execution_trace or annotation; `library` is who does it, where names
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

    def add(
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

    def extend(self, other: StatedPayloads, kernels_before: int) -> None:
        """Append another part's entries, whose kernels are counted from `kernels_before`."""
        codes = [self.payloads.setdefault(payload, len(self.payloads)) for payload in other.payloads]
        self.code.extend(codes[c] for c in other.code)
        self.row.extend(r + kernels_before if r >= 0 else r for r in other.row)
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

    @property
    def whole(self) -> bool:
        """Whether it is all that the file has of the member."""
        return self.begin is None


class DeviceStep(msgspec.Struct, frozen=True):
    """A step as the device's own rows mark it: an XLA `Steps` row, or a run of the module `name`."""

    name: str
    start_ns: int
    end_ns: int
    number: int | None = None
    """Of a `Steps` row; None on runs of modules, of which normalization chooses the dominant one."""


class Cut(msgspec.Struct, frozen=True):
    """Where a damaged file ends for us: everything before `byte` was used, nothing after."""

    file: str
    byte: int
    reason: str
    rows_whole: bool = False
    """Whether only what follows the rows is damaged."""


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
    device_rows_in_order: bool = True
    """Whether the device's rows came in order of their start: then nothing is missing before the last."""
    device_steps: list[DeviceStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What people should know of the capture: events the profiler dropped, bytes an export left out."""


class Format(Protocol):
    """What `cclbench list readers` shows, how a file is recognised, and how its texts are rewritten.

    A format is an instance of a subclass of `Reader`, `EvidenceReader` or `ExecutionTraceReader`.
    """

    name: str
    description: str
    """The formats it reads."""
    extensions: tuple[str, ...]
    versions: str
    """Of the producer or its schema: those that were seen."""
    tested: str
    """On which evidence: `real: ...` or `documentation: ...`, or both."""
    capture: str = ""
    """How to capture it: Markdown, commands in backticks."""
    counts: Mapping[str, str] = {}
    """How to capture counters of bytes with it, by the ports they are of: nic, nvlink."""
    benchmark: bool = False
    """Whether its timings are of collectives by themselves, not of a job's."""
    precedence: int = 0
    """Where several formats tell the same of a run, the one with the highest counts."""
    after_other_text: bool = False
    """Whether its files may begin with any amount of other text."""
    derived_from: str | None = None
    """The format that its files are converted from: one beside its original is not read."""
    frameworks: Mapping[str, str] = {}
    """Frameworks, as cards call them, by the `producer` in its facts that is their own profiler."""
    host_in_name: re.Pattern[str] | None = None
    """Names of files into which the producer puts a host's, as the group `host`."""

    def sniff(self, head: bytes) -> float:
        """Confidence, 0 to 1, that a file which begins with these (decompressed) bytes is of this format."""
        ...

    def refuse(self, path: Path) -> None:
        """`UnreadFormatError` where the file is the producer's own, which has to be exported to be read."""
        del path

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor, *, annotations: bool) -> bool:
        """Write the file to `target` with its texts as the redactor has them; without one, only count.

        `annotations` has ranges renamed that people named.  False where the file is a text in which no
        part means more than another: then it is rewritten line by line, and refused where it is none.
        """
        from cclbench.formats.json_text import rewrite_json

        del annotations
        return rewrite_json(path, target, redactor)


class Reader(Format, Protocol):
    """A format of traces."""

    reads: Literal["trace"] = "trace"

    def parts(self, path: Path) -> list[Part]:
        """What can be read side by side: at least one part for each member, a member's parts in order."""
        ...

    def read(self, path: Path, *, part: Part, allow_truncated: bool) -> Trace:
        """Open; `InputError` with file and place where the file is damaged.

        Batches are those of the part's events.  A member's facts are complete in its parts together.
        """
        ...


class Evidence(msgspec.Struct, kw_only=True):
    """What a file that is no trace tells: rows of `schema`'s tables, and facts about the system."""

    requests: pa.Table | None = None
    serving: pa.Table | None = None
    timings: pa.Table | None = None
    counters: pa.Table | None = None
    facts: dict[str, str | int | float | list[str]] = {}
    """Provenance by name: library_version, transport, channels, ...; never host, user or command line."""
    left_out: dict[str, int] = {}
    """Entries of the file that became no row, by reason."""
    notes: list[str] = []


class EvidenceReader(Format, Protocol):
    """A format of evidence other than traces."""

    reads: Literal["evidence"] = "evidence"

    def read(self, path: Path) -> Evidence:
        """All of the file; `InputError` with file and line where it is damaged."""
        ...


class Call(msgspec.Struct, frozen=True):
    """A call of a communication backend, such as `nccl:all_reduce`, in order.

    `in_bytes` is the size of the call's own tensors, `payload` what the call around it tells; None where
    unknown.
    """

    name: str
    in_bytes: int | None = None
    payload: Payload | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class ExecutionTrace:
    """One process's communication."""

    process_id: int
    calls: tuple[Call, ...]
    groups: tuple[ProcessGroup, ...]


class ExecutionTraceReader(Format, Protocol):
    """A format without times, which tells more of the collectives in the traces beside it."""

    reads: Literal["execution_trace"] = "execution_trace"

    def process_of(self, path: Path) -> int | None:
        """The process that the file says it is of, by its beginning."""
        ...

    def read(self, path: Path) -> ExecutionTrace:
        """All of the file; `InputError` where it is damaged."""
        ...


AnyReader: TypeAlias = Reader | EvidenceReader | ExecutionTraceReader
READERS: Registry[AnyReader] = Registry("reader", home="cclbench.formats", group="cclbench.readers")


def trace_reader(name: str) -> Reader:
    """The reader of traces of that name."""
    reader = READERS.get(name)
    assert reader.reads == "trace"  # noqa: S101 - sources sort their files by it
    return reader


def execution_trace_reader(name: str) -> ExecutionTraceReader:
    """The reader of execution traces of that name."""
    reader = READERS.get(name)
    assert reader.reads == "execution_trace"  # noqa: S101 - sources sort their files by it
    return reader


def by_precedence(names: Iterable[str]) -> list[str]:
    """Names of formats, the one that tells most first; those that are no longer known here come last."""
    known = {name: READERS.get(name).precedence for name in READERS}
    return sorted(names, key=lambda name: (-known.get(name, 0), name))


def recognise(path: Path, head: bytes, among: Iterable[str] | None = None) -> AnyReader | None:
    """The reader most confident about the file, None where none is; a tie names both."""
    names = READERS if among is None else among
    votes: Mapping[str, float] = {name: READERS.get(name).sniff(head) for name in names}
    best = max(votes.values(), default=0.0)
    if best <= 0:
        return None
    winners = [name for name, vote in votes.items() if vote == best]
    if len(winners) > 1:
        raise InputError(
            f"could be {' or '.join(winners)}", where=str(path), hint="remove one of the plug-ins"
        )
    return READERS.get(winners[0])


def recognise_further(path: Path, head: bytes) -> AnyReader | None:
    """The same among readers with `after_other_text`, whose files may begin with any amount of it.

    No others are asked about more than `HEAD_BYTES`: a job's log may hold what they know their files by.
    """
    return recognise(path, head, [name for name in READERS if READERS.get(name).after_other_text])
