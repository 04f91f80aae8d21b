# SPDX-License-Identifier: Apache-2.0
"""Calls that NCCL and RCCL log with NCCL_DEBUG_SUBSYS=COLL, and their communicators.

One line for each call: `AllGather: opCount 0 sendbuff 0x.. recvbuff 0x.. count 4 datatype 7 op 0 root 0 comm
0x.. [nranks=8] stream 0x..` (ncclEnqueueCheck in enqueue.cc; RCCL also has `acc` and `task`).  `count` is the
call's argument, in elements: one rank's part in all_gather, reduce_scatter, all_to_all, gather and scatter,
where S = n·count·size.  `root` of Send and Recv is the peer.  opCount is not used: it counts launched
kernels, and stays 0 if nothing waits for them.

Pointers are unique in a process.  `commId` is the same on all ranks of a communicator; one made by
ncclCommSplit has none since NCCL 2.23 and is identified by its parent, the number of the split, and its
color.  A pointer may be reused once its communicator is destroyed.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.classify import element_bytes, kind_of
from cclbench.formats import LoggedCommunicator
from cclbench.formats.timing_rows import MOST_BYTES
from cclbench.ground.evidence_schema import TIMINGS
from cclbench.ground.intervals import occurrence
from cclbench.ground.schema import COLLECTIVE_KINDS

DATATYPES: Final = (
    *("int8", "uint8", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"),
)
"""ncclDataType_t, by number."""
_OF_EACH_RANK: Final = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
"""Kinds whose count is of one rank's part."""
_UNEVEN: Final = ("alltoallv",)
"""Functions whose counts are arrays, which are not logged."""
_PAIRS: Final = ("send", "recv")
_MOST_RANKS: Final = 1 << 20
_MOST_CACHED: Final = 1 << 16
_MOST_COMMUNICATORS: Final = 1 << 20
"""Most communicators in one file: 10,000 processes with 100 each."""
_BLOCK: Final = 1 << 18

_OF_PROCESS: Final = rb"([\w.-]{1,255}:\d{1,10}):\d{1,10} \[\d{1,4}\] (?:\d{1,20} )?"
"""Host, process, thread and device; in old RCCL also the time."""
CALL: Final = b": opCount "
"""Contained in the line of every call."""
_CALL = re.compile(
    _OF_PROCESS + rb"NCCL INFO (\w{1,60}): opCount [0-9a-fA-F]+ sendbuff \S+ recvbuff \S+"
    rb" (?:acc \S+ )?(count \d{1,19} datatype \d{1,3} op \d+ root -?\d{1,9} comm 0x[0-9a-fA-F]+"
    rb" \[nranks=\d{1,7}\])"
)
_PROCESS = re.compile(_OF_PROCESS + rb"$")
_COMMUNICATOR = re.compile(rb"\bcomm (0x[0-9a-fA-F]+) rank (\d{1,7}) n[rR]anks (\d{1,7})\b(.*)")
_DEVICE = re.compile(rb" cudaDev (\d{1,4})\b")
_ID = re.compile(rb" commId (0x[0-9a-fA-F]{1,16})\b")
_SPLIT = re.compile(rb" parent (0x[0-9a-fA-F]+)(?: \w+Count (\d{1,9}))? color (-?\d{1,10})\b")
_OF_RCCL: Final = b" globalrank "


@dataclass(slots=True)
class _Communicator:
    """What the lines so far state about a communicator of one process."""

    process: bytes
    size: int
    rank: int | None = None
    device: int | None = None
    id: str | None = None
    parent: int | None = None
    split: int | None = None
    color: int | None = None
    started: bool = False
    completed: bool = False
    called: bool = False

    def may_begin(self, *, started: bool) -> bool:
        """Whether a line of its initialisation may still follow; `started`: a start line."""
        return not (self.called or self.completed or (started and self.started))


class LogReading:
    """Calls and communicators of the lines read so far, in their order.

    Equal calls are stored once, and a number for each call: memory grows by 4 bytes a call.
    """

    def __init__(self) -> None:
        self.torn = 0
        """Number of calls whose line is interleaved with another or cut."""
        self.of_rccl = False
        self._communicators: list[_Communicator] = []
        self._live: dict[tuple[bytes, bytes], int] = {}
        """Live communicators, by process and pointer."""
        self._known: dict[tuple[bytes, ...], int] = {}
        """Numbers of calls by the text of their lines, until a pointer may be reused."""
        self._communicator, self._peer, self._calls = array("i"), array("i"), array("i")
        self._kind, self._dtype, self._bytes = array("b"), array("b"), array("q")

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def has_calls(self) -> bool:
        """Whether any line was a call's."""
        return bool(self._calls or self.torn)

    def missing_notes(self) -> list[str]:
        """A note if calls have no size."""
        numbers = np.bincount(np.asarray(self._calls, np.int64), minlength=len(self._bytes))
        unsized = int(numbers[np.asarray(self._bytes) < 0].sum())
        return [f"{unsized:,} calls are of unknown size: their function or datatype is not known"] * (
            unsized > 0
        )

    def see_calls(self, line: bytes) -> None:
        """Read the calls in a line that contains `CALL`: several if lines of processes are interleaved."""
        complete = 0
        for call in _CALL.finditer(line):
            text = call.groups()
            number = self._known.get(text)
            if number is None:
                number = self._call_number(*text)
            if number >= 0:
                self._calls.append(number)
                complete += 1
        self.torn += line.count(CALL) - complete
        if _OF_RCCL in line:
            self.of_rccl = True

    def _call_number(self, process: bytes, function: bytes, text: bytes) -> int:
        """A new number for a call with these arguments; −1 if one of them is impossibly large."""
        _, count, _, datatype, _, _, _, root, _, pointer, ranks = text.split()
        size = int(ranks[len(b"[nranks=") : -1])
        name = function.decode()
        kind = kind_of(name)
        dtype = DATATYPES[int(datatype)] if int(datatype) < len(DATATYPES) else None
        element = element_bytes(dtype)
        has_payload = element is not None and kind is not None and name.lower() not in _UNEVEN
        parts = size if kind in _OF_EACH_RANK else 1
        payload = int(count) * (element or 0) * parts if has_payload else -1
        if payload > MOST_BYTES or not 0 < size <= _MOST_RANKS:
            return -1
        index = self._live.get((process, pointer))
        if index is None or self._communicators[index].size != size:
            if self._is_full:
                return -1
            index = self._open_communicator(process, pointer, size)
        self._communicators[index].called = True
        if len(self._known) >= _MOST_CACHED:
            self._known.clear()
        self._communicator.append(index)
        self._kind.append(-1 if kind is None else COLLECTIVE_KINDS.index(kind))
        self._dtype.append(-1 if dtype is None else DATATYPES.index(dtype))
        self._bytes.append(payload)
        self._peer.append(int(root) if kind in _PAIRS and 0 <= int(root) < size else -1)
        number = self._known[process, function, text] = len(self._communicator) - 1
        return number

    @property
    def _is_full(self) -> bool:
        return len(self._communicators) >= _MOST_COMMUNICATORS

    def _open_communicator(self, process: bytes, pointer: bytes, size: int) -> int:
        index = self._live[process, pointer] = len(self._communicators)
        self._communicators.append(_Communicator(process, size))
        return index

    def see_communicator(self, line: bytes) -> None:
        """Read a communicator's initialisation or destruction from a line, if it states one."""
        prefix, _, message = line.rpartition(b"NCCL INFO ")
        process_match, match = _PROCESS.search(prefix), _COMMUNICATOR.search(message)
        if process_match is None or match is None:
            return
        process, pointer, rank, size, details = (
            process_match[1],
            match[1],
            int(match[2]),
            int(match[3]),
            match[4],
        )
        started, completed = b"- Init START" in details, b"- Init COMPLETE" in details
        ends = b"Destroy COMPLETE" in details or b"Abort COMPLETE" in details
        begins = started or completed or (message.startswith(b"comm ") and b" nNodes " in details)
        if rank >= size or size > _MOST_RANKS or not (begins or ends) or self._is_full:
            return
        self._known.clear()
        index = self._live.get((process, pointer))
        communicator = None if index is None else self._communicators[index]
        if (
            communicator is None
            or (communicator.size, communicator.rank) not in ((size, rank), (size, None))
            or (begins and not communicator.may_begin(started=started))
        ):
            communicator = self._communicators[self._open_communicator(process, pointer, size)]
        communicator.rank = rank
        communicator.started, communicator.completed = (
            communicator.started or started,
            communicator.completed or completed,
        )
        if device := _DEVICE.search(details):
            communicator.device = int(device[1])
        if begins and (named_id := _ID.search(details)) and int(named_id[1], 16):
            communicator.id = named_id[1].decode()
        if begins and communicator.color is None and (split := _SPLIT.search(details)):
            communicator.parent = self._live.get((process, split[1]))
            communicator.split, communicator.color = (
                None if split[2] is None else int(split[2]),
                int(split[3]),
            )
        if ends:
            del self._live[process, pointer]

    def logged_communicators(self) -> list[LoggedCommunicator]:
        """All communicators that lines mention, in order of first appearance."""
        return [
            LoggedCommunicator(
                host=_name_digest(c.process.rpartition(b":")[0]),
                process=_name_digest(c.process),
                process_id=int(c.process.rpartition(b":")[2]),
                size=c.size,
                rank=c.rank,
                device=c.device,
                id=c.id,
                parent=c.parent,
                split=c.split,
                color=c.color,
            )
            for c in self._communicators
        ]

    def timing_table(self, library: str) -> pa.Table:
        """Rows of `TIMINGS`, one for each call, in order.

        `communicator` is an index into `logged_communicators`; the ranks of a transfer are ranks in it.
        `seq` counts the collectives of a communicator, and the transfers of a pair of its ranks, from 0;
        it is null if the log does not contain the communicator's initialisation.
        """
        communicator, kind, peer = map(np.asarray, (self._communicator, self._kind, self._peer))
        ranks = np.array([-1 if c.rank is None else c.rank for c in self._communicators], np.int32)
        sizes = np.array([c.size for c in self._communicators], np.int32)
        from_beginning = np.array([c.started or c.completed for c in self._communicators], np.bool_)
        send, recv = (kind == COLLECTIVE_KINDS.index(pair) for pair in _PAIRS)
        rank = ranks[communicator]
        lanes = communicator.astype(np.int64) << 24 | (send + 2 * recv) << 22 | (peer + 1)
        lane = np.unique(lanes, return_inverse=True)[1]
        constant = pa.array([library], pa.string())
        columns = {
            "kind": _dictionary_column(kind, COLLECTIVE_KINDS, "kind"),
            "library": _dictionary_column(np.zeros(len(kind), np.int8), constant, "library"),
            "group_size": pa.array(sizes[communicator]),
            "communicator": pa.array(communicator.astype(np.int32)),
            "src_rank": _number_column(np.select([send, recv], [rank, peer], -1).astype(np.int32)),
            "dst_rank": _number_column(np.select([send, recv], [peer, rank], -1).astype(np.int32)),
            "dtype": _dictionary_column(np.asarray(self._dtype), DATATYPES, "dtype"),
            "bytes": _number_column(np.asarray(self._bytes)),
        }
        missing = {
            field.name: pa.nulls(min(_BLOCK, len(self)), field.type)
            for field in TIMINGS
            if field.name not in columns
        }
        done, blocks = np.zeros(lane.max(initial=-1) + 1, np.int64), []
        for first in range(0, len(self), _BLOCK):
            numbers = np.asarray(self._calls[first : first + _BLOCK])
            sequence = done[lane[numbers]] + occurrence(lane[numbers])
            done += np.bincount(lane[numbers], minlength=len(done))
            seq = pa.array(sequence, mask=~from_beginning[communicator[numbers]])
            of_block = {name: column.take(pa.array(numbers)) for name, column in columns.items()}
            of_block |= {name: column[: len(numbers)] for name, column in missing.items()} | {"seq": seq}
            blocks.append(pa.record_batch([of_block[name] for name in TIMINGS.names], schema=TIMINGS))
        return pa.Table.from_batches(blocks, TIMINGS)


def _name_digest(name: bytes) -> str:
    """A digest that replaces the name of a host or process."""
    return sha256(name).hexdigest()[:16]


def _dictionary_column(codes: npt.NDArray[np.int8], words: object, column: str) -> pa.Array:
    kind = TIMINGS.field(column).type
    numbers = pa.array(codes, kind.index_type, mask=codes < 0)
    return pa.DictionaryArray.from_arrays(numbers, pa.array(words, pa.string()))


def _number_column(values: npt.NDArray[np.signedinteger]) -> pa.Array:
    return pa.array(values, mask=values < 0)
