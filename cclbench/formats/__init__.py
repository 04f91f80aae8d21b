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
    "by_precedence",
    "execution_trace_reader",
    "recognise_format",
    "several_processes",
    "trace_reader",
]

HEAD_BYTES = 1 << 16
"""How much of a file's (decompressed) beginning readers look at to recognise it."""
FURTHER_BYTES = (1 << 20, 1 << 24)
"""How much of a text is looked at, step by step, where no reader is sure of its beginning."""
SURE = 0.6
"""Confidence from which no more of a file is looked at."""


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
    lists_calls: bool = False
    """Whether its timings are a job's calls one by one, none left out between the first and the last."""
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

    withheld: Mapping[str, str] = {}
    """Parts of its files that no metric needs and that are not published: what they hold (captured output,
    command lines, environments, facts about the system), by the place where they stand: a table, a column,
    a key, a field, a line.  Names may hold wildcards; a place that begins with `!` is none."""

    published_keys: Collection[str] | None = None
    """Keys of the outermost object of its JSON whose values are published; None where all are."""

    named_by_people: Collection[str] = ()
    """Categories of its JSON's events whose names people chose."""

    described_by: str | None = None
    """Name of the file in the same folder that says which files are of the format, where they do not."""

    def described(self, path: Path) -> bool:
        """Whether the file `described_by` names this one; `InputError` where that file is wrong."""
        del path
        return False

    def sniff(self, head: bytes) -> float:
        """Confidence, 0 to 1, that a file which begins with these (decompressed) bytes is of this format."""
        ...

    def refuse(self, path: Path) -> None:
        """`UnreadFormatError` where the file is the producer's own, which has to be exported to be read."""
        del path

    def withheld_line(self, line: str) -> str | None:
        """What a line of a text holds that is not published; None where it is published."""
        del line
        return None

    def rewrite(self, path: Path, target: Path | None, redactor: Redactor, *, annotations: bool) -> bool:
        """Write the file to `target` with its texts as the redactor has them; without one, only count.

        `annotations` has ranges renamed that people named.  False where the file is a text in which no
        part means more than another: then it is rewritten line by line, and refused where it is none.

        This one does for JSON, for pickles, which it takes as the data they are, and for such texts.
        """
        from cclbench.formats.json_text import rewrite_json
        from cclbench.formats.pickled import BEGIN, rewrite_pickle
        from cclbench.formats.texts import read_beginning

        if read_beginning(path, 1) == BEGIN:
            rewrite_pickle(path, target, redactor, withheld=self.withheld)
            return True
        return rewrite_json(
            path,
            target,
            redactor,
            categories=self.named_by_people if annotations else (),
            withheld=self.withheld,
            outer=self.published_keys,
        )


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
        """What can be read side by side: at least one part for each member, a member's parts in order.

        All of a file is one part unless a format says otherwise.
        """
        del path
        return [Part()]

    def inflated(self, path: Path, folder: Path) -> Iterator[Part]:
        """The parts of a compressed file that is a `stream`, each once its bytes lie in `folder`.

        The file is inflated once.  `InputError` where its stream is damaged.
        """
        del folder
        raise InputError(f"{self.name} reads no parts of compressed files", where=str(path))

    def read(self, path: Path, *, part: Part, allow_truncated: bool) -> Trace:
        """Open; `InputError` with file and place where the file is damaged.

        Batches are those of the part's events.  A member's facts are complete in its parts together, and
        what a part's `Trace.base_ns` tells is to be added to the times in all of them.
        """
        ...


class LoggedCommunicator(msgspec.Struct, frozen=True, kw_only=True):
    """A communicator as the log of one of its processes tells it; null where that says nothing.

    `host` and `process` stand for a host and a process on it; `rank` is the one within the communicator.
    `id` is the same on all its ranks; one that was split from another has the index of its `parent` among
    the file's, which `split` of it that was, and the `color` that its ranks gave.
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
    """What a file that is no trace tells: rows of `schema`'s tables, and facts about the system.

    Where it names `communicators`, `communicator` of its timings are indices into them, and the ranks of
    transfers are those within them: which ranks of the job that are, all processes' files tell together.
    """

    requests: pa.Table | None = None
    serving: pa.Table | None = None
    timings: pa.Table | None = None
    counters: pa.Table | None = None
    allocations: pa.Table | None = None
    memory_blocks: pa.Table | None = None
    communicators: list[LoggedCommunicator] = []
    groups: list[ProcessGroup] = []
    """Process groups that it lists."""
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


class BackendCall(msgspec.Struct, frozen=True):
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
    calls: tuple[BackendCall, ...]
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
    return sorted(names, key=lambda name: (-known.get(name, -1), name))


def _vote(reader: AnyReader, head: bytes) -> float:
    with plugin_code(type(reader).__module__):
        return reader.sniff(head)


def recognise_format(path: Path, head: bytes, among: Iterable[str] | None = None) -> AnyReader | None:
    """The reader most confident about the file, None where none is; a tie names both."""
    names = READERS if among is None else among
    votes: Mapping[str, float] = {name: _vote(READERS.get(name), head) for name in names}
    best = max(votes.values(), default=0.0)
    if best <= 0:
        return None
    winners = [name for name, vote in votes.items() if vote == best]
    if len(winners) > 1:
        raise InputError(
            f"could be {' or '.join(winners)}", where=str(path), hint="remove one of the plug-ins"
        )
    return READERS.get(winners[0])
