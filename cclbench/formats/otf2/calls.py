# SPDX-License-Identifier: Apache-2.0
"""Messages and collectives of one process, with their communicator, peers, tags and sizes.

A blocking call is the row of its region.  A receive that was posted before is the call that completed it, in
which the process waits; a collective that was started before lasts from its start to its completion.  A call
that completes several messages has a row for each of the others, on tracks of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cclbench.classify import collective_name
from cclbench.formats import Names, Payload, Rows, Trace
from cclbench.formats.otf2 import archive, definitions
from cclbench.formats.otf2.definitions import Definitions, MpiProcess
from cclbench.formats.otf2.process import Block
from cclbench.formats.otf2.sizes import COMMUNICATES, KINDS, Amounts, collective_amounts
from cclbench.formats.trace import plausible_amount
from cclbench.ground.intervals import Int64

SOURCE: Final = "otf2"
"""What `Payload.source` names."""
_LIBRARY: Final = "mpi"
_TRACK_SHIFT: Final = 52
_NO_PEER: Final = "messages to or from a rank that is in no communicator of the archive"


@dataclass(slots=True)
class MessageCalls:
    """Adds the payloads of calls to the trace, and makes rows of those that no region is the row of."""

    definitions: Definitions
    member: MpiProcess
    trace: Trace
    _kept: dict[tuple[int, ...], Payload] = field(default_factory=dict)
    _lanes: list[tuple[str, ...]] = field(default_factory=list)
    """By entry of the trace's payloads: `_lane`."""
    _posted: list[int] = field(default_factory=list)
    _carries: dict[int, bool] = field(default_factory=dict)

    def convert_calls(
        self, block: Block, rows: Int64, begin: Int64, end: Int64, names: Names
    ) -> Iterator[Rows]:
        """Rows of calls, positions `rows` of the block, and their payloads."""
        spans: list[tuple[int, int, int, int]] = []
        columns = [block[name][rows].tolist() for name in _USED]
        times = begin[rows].tolist(), end[rows].tolist()
        for start, stop, location, region, nth, posted, *call in zip(*times, *columns, strict=True):
            payload = self._payload(tuple(call))
            if payload is None:
                continue
            track = location
            if nth or not self._is_row_of_call(region):
                track = location | (nth + 1) << _TRACK_SHIFT
                spans.append((names[f"mpi:{payload.collective or 'scan'}"], track, start, stop))
            self.trace.stated_payloads.add_payload(payload, track=track, start_ns=start, end_ns=stop)
            self._lanes.append(_lane(payload))
            self._posted.append(posted)
        if spans:
            codes, tracks, starts, stops = np.array(spans, np.int64).T
            yield Rows(
                kind="op",
                side="host",
                names=names,
                codes=codes.astype(np.int32),
                start_ns=starts,
                dur_ns=stops - starts,
                track=tracks,
                name_categories=dict.fromkeys(np.unique(codes).tolist(), "communication"),
            )

    def number_calls(self, *, paused: bool) -> None:
        """Number messages between two ranks with one tag, and collectives of a communicator, as started.

        MPI keeps that order on both sides.  Collectives of communicators with the same ranks get different
        numbers.  Where the tracer `paused` some may be missing: they have no number.
        """
        if paused or not self._lanes:
            return
        places = {key: place for place, key in enumerate(dict.fromkeys(self._lanes))}
        lane = np.array([places[key] for key in self._lanes], np.int64)
        order = np.lexsort((np.arange(len(lane)), np.array(self._posted, np.uint64), lane))
        first = np.flatnonzero(np.diff(lane[order], prepend=-1))
        number = np.arange(len(lane)) - np.repeat(first, np.diff(np.append(first, len(lane))))
        comms = {name: place for place, name in enumerate(self.definitions.comm_names.values())}
        for at, count in zip(order.tolist(), number.tolist(), strict=True):
            comm, *message = self._lanes[at]
            self.trace.stated_payloads.seq[at] = count if message else count * len(comms) + comms.get(comm, 0)

    def _is_row_of_call(self, region: int) -> bool:
        if region not in self._carries:
            definition = self.definitions.regions.get(region)
            self._carries[region] = (
                definition is not None
                and definition.paradigm == definitions.MPI
                and (called := collective_name(definition.name)) is not None
                and called.library == _LIBRARY
            )
        return self._carries[region]

    def _payload(self, call: tuple[int, ...]) -> Payload | None:
        """The payload of a call; None, counted, if nothing is known of it."""
        if call not in self._kept:
            kind, what, comm, peer, tag, sent, received = call
            payload = (
                self._message(what, comm, peer, tag, sent + received)
                if kind == archive.MESSAGE
                else self._collective(what, comm, peer, sent, received)
            )
            if payload is None:
                return None
            self._kept[call] = payload
        return self._kept[call]

    def _message(self, what: int, comm: int, peer: int, tag: int, size: int) -> Payload | None:
        other = self.definitions.global_rank(comm, peer, self.member.rank)
        if other is None:
            self.trace.dropped[_NO_PEER] += 1
            return None
        own_rank, amount = self.member.rank, plausible_amount(size)
        sends = what == archive.SEND
        name = self.definitions.comm_names[comm]
        return Payload(
            source=SOURCE,
            library=_LIBRARY,
            collective="send" if sends else "recv",
            group_name=name,
            channel=f"{name} tag {tag}",
            src_rank=own_rank if sends else other,
            dst_rank=other if sends else own_rank,
            in_bytes=amount if sends else None,
            out_bytes=None if sends else amount,
        )

    def _collective(self, operation: int, comm: int, root: int, sent: int, received: int) -> Payload | None:
        ranks = self.definitions.comm_ranks(comm, self.member.rank)
        if operation not in COMMUNICATES:
            return None
        kind, amounts, at_root = KINDS.get(operation), Amounts(), None
        if ranks is not None:
            at_root = self.definitions.global_rank(comm, root, self.member.rank)
            is_root = at_root is not None and at_root == self.member.rank
            amounts = collective_amounts(operation, len(ranks), sent, received, is_root=is_root)
        from_root = kind in ("broadcast", "scatter")
        return Payload(
            source=SOURCE,
            library=_LIBRARY,
            collective=kind,
            group_name=self.definitions.comm_names.get(comm),
            in_bytes=amounts.in_bytes,
            out_bytes=amounts.out_bytes,
            src_rank=at_root if from_root else None,
            dst_rank=at_root if kind in ("gather", "reduce") else None,
        )


def _lane(payload: Payload) -> tuple[str, ...]:
    """The calls among which a call's place in the order counts: the communicator; of a message more."""
    comm = payload.group_name or ""
    if payload.channel is None:
        return (comm,)
    return comm, str(payload.collective), str(payload.src_rank), str(payload.dst_rank), payload.channel


_USED: Final = (
    *("location", "region", "nth", "posted"),
    *("kind", "what", "comm", "peer", "tag", "sent", "received"),
)
