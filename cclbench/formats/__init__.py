# SPDX-License-Identifier: Apache-2.0
"""Formats, one folder each: recognise a file, read it, and rewrite its texts.

A reader turns a profiler's file into batches of rows, nothing more.  A row's category, its step and a
collective's process group are determined later, in `cclbench.normalize`, in the same way for every format.

A `Reader` reads traces, whose rows are a rank's events; an `ExecutionTraceReader` reads files that describe
the collectives of a trace; an `EvidenceReader` reads everything else: a serving benchmark of a client,
sweeps of collectives, hardware counters, logs.
Captures contain environments, user and host names and command lines: no reader passes those on.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import msgspec
import pyarrow as pa

from cclbench.formats.rewriting import Redactor
from cclbench.formats.trace import (
    Column,
    Cut,
    DeviceStep,
    Names,
    Part,
    Payload,
    Rows,
    StatedPayloads,
    Trace,
    several_processes,
)
from cclbench.ground.errors import InputError, UsageError
from cclbench.ground.registry import Registry, plugin_code
from cclbench.record.facts import ProcessGroup

__all__ = [
    "FURTHER_BYTES",
    "HEAD_BYTES",
    "READERS",
    "SURE",
    "AnyReader",
    "BackendCall",
    "Column",
    "Cut",
    "DeviceStep",
    "Evidence",
    "EvidenceReader",
    "ExecutionTrace",
    "ExecutionTraceReader",
    "Format",
    "LoggedCommunicator",
    "Names",
    "Part",
    "Payload",
    "Reader",
    "Rows",
    "StatedPayloads",
    "Trace",
    "confidence",
    "execution_trace_reader",
    "recognise_format",
    "several_processes",
    "sort_by_precedence",
    "trace_reader",
]

HEAD_BYTES = 1 << 16
"""Bytes of a file's (decompressed) beginning by which readers recognise it."""
FURTHER_BYTES = (1 << 20, 1 << 24)
"""Bytes of a text that are searched, in two steps, if no reader is sure of its beginning."""
SURE = 0.6
"""Confidence from which no more of a file is searched."""


class Format(Protocol):
    """A file format: what `cclbench list readers` shows, how to recognise a file and rewrite its texts.

    A format is an instance of a subclass of `Reader`, `EvidenceReader` or `ExecutionTraceReader`.
    """

    name: str
    description: str
    """What it reads, in a few words."""
    extensions: tuple[str, ...]
    versions: str
    """Supported versions of the producer or its schema."""
    tested: str
    """The evidence it was tested on: `real: ...`, `documentation: ...`, or both."""
    capture: str = ""
    """How to capture such a file: Markdown, commands in backticks."""
    counts: Mapping[str, str] = {}
    """How to capture byte counters in this format, by kind of port: nic, nvlink."""
    benchmark: bool = False
    """Whether its timings are a benchmark's, of collectives run alone, not a job's."""
    lists_calls: bool = False
    """Whether its timings list a job's calls one by one, without a gap from the first to the last."""
    precedence: int = 0
    """If several formats state the same fact of a run, the one with the highest precedence is used."""
    after_other_text: bool = False
    """Whether its files may begin with any amount of unrelated text."""
    derived_from: str | None = None
    """The format that its files are converted from; a file next to its original is not read."""
    frameworks: Mapping[str, str] = {}
    """Framework, as workload cards name it, by the `producer` in the format's facts."""
    withheld: Mapping[str, str] = {}
    """Parts of its files that no metric needs and that are not published.  Key: the part, a table, a column,
    a key, a field or a line; value: what it contains (captured output, command lines, environments, facts
    about the system).  Keys may contain wildcards; one that begins with `!` is an exception."""

    published_keys: Collection[str] | None = None
    """Keys of the outermost JSON object whose values are published; None if all are."""

    figures: re.Pattern[str] | None = None
    """Matches the names of columns and keys, and the parts of lines, whose numbers it reads from texts: in a
    data point only these have numbers of more than four digits in a text."""

    described_by: str | None = None
    """Name of a file that lists which files of its folder are of this format, if needed to recognise them."""

    read_with: tuple[str, ...] = ()
    """Endings of files that are read with one of its own, of the same stem before `extensions[0]`."""

    def companions(self, path: Path) -> tuple[Path, ...]:
        """Files next to this one that are read with it, and not on their own."""
        if self.described_by is not None:
            return (path.with_name(self.described_by),)
        stem = path.name.removesuffix(self.extensions[0])
        return tuple(file for ending in self.read_with if (file := path.with_name(stem + ending)).is_file())

    def is_described(self, path: Path) -> bool:
        """Whether the file `described_by` lists this one; `InputError` if that file is invalid."""
        del path
        return False

    def sniff(self, head: bytes) -> float:
        """Confidence, 0 to 1, that a file that begins with these (decompressed) bytes is of this format."""
        ...

    def refuse(self, path: Path) -> None:
        """`UnreadFormatError` if the file is in the producer's own format and must be exported first."""
        del path

    def withheld_line(self, line: str) -> str | None:
        """The kind of private content in a line of text; None if the line is published."""
        del line
        return None

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor) -> bool:
        """Write the file to `target` with redacted texts; without a target, only count the replacements.

        False if the file is plain text without structure: the caller then rewrites it line by line.

        The default handles JSON and pickles, which are read as plain data.
        """
        from cclbench.formats.json_text import rewrite_json
        from cclbench.formats.pickled import BEGIN, rewrite_pickle
        from cclbench.formats.texts import read_beginning

        if read_beginning(path, 1) == BEGIN:
            rewrite_pickle(path, target, redactor, withheld=self.withheld)
            return True
        return rewrite_json(path, target, redactor, withheld=self.withheld, outer=self.published_keys)


class Reader(Format, Protocol):
    """A format of traces.

    class Lines(Reader):
        name, description, extensions = "lines", "kernels as lines of text", (".lines",)
        versions, tested, capture = "the only one", "real: a job's", "`my-profiler`"

        def sniff(self, head: bytes) -> float:
            return float(head.startswith(b"name,stream,start_ns,dur_ns"))

        def read(self, path: Path, *, part: Part, allow_truncated: bool) -> Trace:
            return Trace(batches=batches_of(path), facts=TraceFacts(rank=0, rank_source="the file"))

    READERS.add(Lines.name, Lines(), origin=__name__)
    """

    reads: Literal["trace"] = "trace"

    def parts(self, path: Path) -> list[Part]:
        """The parts of a file that can be read in parallel: at least one a member, a member's parts in order.

        By default the file is one part.
        """
        del path
        return [Part()]

    def inflate_parts(self, path: Path, folder: Path) -> Iterator[Part]:
        """Inflate a compressed file once; yield each part as soon as its bytes are in `folder`.

        Called for parts with `stream`.  `InputError` if the stream is damaged.
        """
        del folder
        raise InputError(f"{self.name} reads no parts of compressed files", where=str(path))

    def read(self, path: Path, *, part: Part, allow_truncated: bool) -> Trace:
        """Open a part of the file; `InputError` with file and position if it is damaged.

        The batches hold the part's events.  The facts of a member are the union over its parts; the
        `Trace.base_ns` of one part is added to the times of all.
        """
        ...


class LoggedCommunicator(msgspec.Struct, frozen=True, kw_only=True):
    """A communicator as one process's log describes it; None for what the log does not state.

    `host` and `process` identify a process; `rank` is its rank in the communicator.  `id` is the same on all
    ranks.  If it was split from another: `parent` is that communicator's index in the file, `split` the
    number of that split, `color` the color that its ranks passed.
    """

    host: str
    process: str
    process_id: int
    size: int
    rank: int | None = None
    device: int | None = None
    id: str | None = None
    parent: int | None = None
    split: int | None = None
    color: int | None = None


class Evidence(msgspec.Struct, kw_only=True):
    """The content of a file that is not a trace: tables of `schema`, and facts about the system.

    If it has `communicators`, the column `communicator` of its timings holds indices into them, and ranks of
    transfers are ranks in that communicator.  Mapping them to the job's ranks takes the files of all
    processes.
    """

    requests: pa.Table | None = None
    request_stages: pa.Table | None = None
    serving: pa.Table | None = None
    timings: pa.Table | None = None
    counters: pa.Table | None = None
    allocations: pa.Table | None = None
    memory_blocks: pa.Table | None = None
    allocator_annotations: pa.Table | None = None
    program_buffers: pa.Table | None = None
    log_steps: pa.Table | None = None
    server_metrics: pa.Table | None = None
    request_trace: pa.Table | None = None
    storage: pa.Table | None = None
    io_calls: pa.Table | None = None
    agent_calls: pa.Table | None = None
    phase_times: pa.Table | None = None
    stated_parts: pa.Table | None = None
    communicators: list[LoggedCommunicator] = []
    groups: list[ProcessGroup] = []
    """Process groups listed in the file."""
    facts: dict[str, str | int | float | list[str]] = {}
    """Provenance by name: library_version, transport, channels, ...; never a host, user or command line."""
    left_out: dict[str, int] = {}
    """Number of entries that became no row, by reason."""
    notes: list[str] = []


class EvidenceReader(Format, Protocol):
    """A format of evidence other than traces."""

    reads: Literal["evidence"] = "evidence"

    def read(self, path: Path) -> Evidence:
        """Read the file; `InputError` with file and line if it is damaged."""
        ...


class BackendCall(msgspec.Struct, frozen=True):
    """A call of a communication backend, such as `nccl:all_reduce`.

    `in_bytes` is the size of the call's own tensors, `payload` what the enclosing call states; None if
    unknown.
    """

    name: str
    in_bytes: int | None = None
    payload: Payload | None = None
    seq: int | None = None


@dataclass(frozen=True, slots=True)
class ExecutionTrace:
    """The communication calls of one process, in order, and its process groups."""

    process_id: int
    calls: tuple[BackendCall, ...]
    groups: tuple[ProcessGroup, ...]


class ExecutionTraceReader(Format, Protocol):
    """A format without times that describes the collectives of the trace next to it."""

    reads: Literal["execution_trace"] = "execution_trace"

    def process_of(self, path: Path) -> int | None:
        """The process id stated at the file's beginning."""
        ...

    def read(self, path: Path) -> ExecutionTrace:
        """Read the file; `InputError` if it is damaged."""
        ...


AnyReader: TypeAlias = Reader | EvidenceReader | ExecutionTraceReader


def require_described(reader: AnyReader) -> None:
    """`UsageError` where `cclbench list readers` could not show the reader."""
    lacking = [
        word
        for word in ("name", "description", "extensions", "versions", "tested")
        if not hasattr(reader, word)
    ]
    if lacking:
        raise UsageError(f"the reader {type(reader).__name__} does not state its {', '.join(lacking)}")


READERS: Registry[AnyReader] = Registry(
    "reader", home="cclbench.formats", group="cclbench.readers", validate=require_described
)


def trace_reader(name: str) -> Reader:
    """The reader of traces with this name."""
    reader = READERS.get(name)
    assert reader.reads == "trace"  # noqa: S101 - sources sort their files by it
    return reader


def execution_trace_reader(name: str) -> ExecutionTraceReader:
    """The reader of execution traces with this name."""
    reader = READERS.get(name)
    assert reader.reads == "execution_trace"  # noqa: S101 - sources sort their files by it
    return reader


def sort_by_precedence(names: Iterable[str]) -> list[str]:
    """Names of formats, highest precedence first; names that are not registered come last."""
    precedences = {name: READERS.get(name).precedence for name in READERS}
    return sorted(names, key=lambda name: (-precedences.get(name, -1), name))


def confidence(reader: AnyReader, head: bytes) -> float:
    """How sure a reader is of a file that begins with `head`, 0 to 1."""
    with plugin_code(type(reader).__module__):
        vote = reader.sniff(head)
        if not isinstance(vote, float | int) or not 0 <= vote <= 1:
            raise ValueError(f"sniff of the reader {reader.name} returned {vote!r}, not a number from 0 to 1")
    return vote


def recognise_format(path: Path, head: bytes, among: Iterable[str] | None = None) -> AnyReader | None:
    """The most confident reader for a file, None if none recognises it; `InputError` on a tie."""
    names = READERS if among is None else among
    votes: Mapping[str, float] = {name: confidence(READERS.get(name), head) for name in names}
    best = max(votes.values(), default=0.0)
    if best <= 0:
        return None
    winners = [name for name, vote in votes.items() if vote == best]
    if len(winners) > 1:
        raise InputError(
            f"could be {' or '.join(winners)}", where=str(path), hint="remove one of the plug-ins"
        )
    return READERS.get(winners[0])
