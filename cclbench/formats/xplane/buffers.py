# SPDX-License-Identifier: Apache-2.0
"""Memory that compiled programs need, from the buffer assignment beside each one in a profile.

The compiler assigns buffers to allocations: one for each parameter, constant and output, and one that all
temporaries share, with a trace of the heap simulation that laid them out.  These are the compiler's figures,
not measured ones.  Field numbers: hlo.proto of the OpenXLA project, and the bytes that JAX 0.10 writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, Final

import pyarrow as pa

from cclbench.formats.xplane.hlo_proto import HloProgram, call_site_of
from cclbench.ground.evidence_schema import PROGRAM_BUFFERS

_ALLOC, _FREE, _SHARE_WITH = range(3)
"""Kinds of heap events."""
_MOST_ENTRIES: Final = 1 << 20
"""Most allocations, buffers, slices and heap events of a program; more are taken for damage."""
_MOST_BYTES: Final = 1 << 48
NO_PROGRAMS: Final = "the profile contains no compiled programs"
NO_ASSIGNMENT: Final = "the profile contains no buffer assignment of the program"
IMPOSSIBLE: Final = "its buffer assignment is damaged, or too large to be one"
NO_HEAP_TRACE: Final = "its heap trace is not in the profile"
CONTRADICTION: Final = "its heap trace contradicts its layout"

Extent = tuple[int, int]
"""Offset in an allocation, and bytes."""
_Row = dict[str, Any]


def program_buffers(programs: Iterable[HloProgram]) -> pa.Table:
    """Rows of `PROGRAM_BUFFERS` of all programs in a file, or one with a reason if there are none.

    `InputError` if a program is damaged.
    """
    rows: list[_Row] = [
        {"program": number, **row}
        for number, program in enumerate(programs)
        for row in _program_rows(program.parsed_as("Assigned"))
    ] or [{"program": 0, "reason": NO_PROGRAMS}]
    columns = {name: [row.get(name) for row in rows] for name in PROGRAM_BUFFERS.names}
    return pa.table(columns, PROGRAM_BUFFERS)


def _program_rows(program: Any) -> list[_Row]:
    """Rows of one program; one row with a reason if its allocations are unknown."""
    module, assigned = program.hlo_module, program.buffers
    shared = {"module": module.name or None}
    if not assigned.allocations:
        return [shared | {"reason": NO_ASSIGNMENT}]
    if not _is_possible(assigned):
        return [shared | {"reason": IMPOSSIBLE}]
    instructions = {i.id: i for computation in module.computations for i in computation.instructions}
    by_name = {i.name: i for i in instructions.values()}
    owners: dict[int, Any] = {}
    for buffer in assigned.buffers:
        place = buffer.defined_at
        # Older XLA states a definition by its name, newer by its id.
        owner = by_name.get(place.name) if place.name else instructions.get(place.id)
        if owner is not None:
            owners[buffer.id] = owner
    rows = []
    heaps = _heap_events(assigned)
    for number, allocation in enumerate(assigned.allocations):
        about = shared | {
            "allocation": allocation.index,
            "kind": _buffer_kind(allocation),
            "memory_space": allocation.space,
        }
        for part, size, owner, reason in _allocation_parts(allocation, heaps.get(number, []), owners):
            row = {"part": part, "bytes": size, "reason": reason}
            if owner is not None:
                row |= {
                    "instruction": owner.name,
                    "framework_op": owner.metadata.op_name or None,
                    "call_site": call_site_of(owner.metadata, module.stack),
                }
            rows.append(about | row)
    return rows


def _is_possible(assigned: Any) -> bool:
    """Whether numbers of entries are bounded, and slices within their allocations."""
    slices = sum(len(allocation.slices) for allocation in assigned.allocations)
    events = sum(len(trace.events) for trace in assigned.heap_traces)
    if max(len(assigned.allocations), len(assigned.buffers), slices, events) > _MOST_ENTRIES:
        return False
    return sum(max(allocation.size, 0) for allocation in assigned.allocations) < _MOST_BYTES and all(
        allocation.size >= 0
        and all(
            0 <= piece.offset <= piece.offset + piece.size <= allocation.size for piece in allocation.slices
        )
        for allocation in assigned.allocations
    )


def _buffer_kind(allocation: Any) -> str:
    """One of `BUFFER_KINDS`."""
    if allocation.parameter:
        return "parameter_output" if allocation.live_out else "parameter"
    if allocation.constant:
        return "constant"
    if allocation.thread_local:
        return "thread_local"
    return "output" if allocation.live_out else "temporary"


def _heap_events(assigned: Any) -> dict[int, list[list[Any]]]:
    """Events of each heap trace by place of the allocation that has their buffers.

    The allocation that a trace names is the one before XLA merged allocations; only buffers identify it.
    """
    place_of = {
        piece.buffer: place
        for place, allocation in enumerate(assigned.allocations)
        for piece in allocation.slices
    }
    heaps: dict[int, list[list[Any]]] = {}
    for trace in assigned.heap_traces:
        by_place: dict[int, list[Any]] = {}
        for event in trace.events:
            if event.buffer in place_of:
                by_place.setdefault(place_of[event.buffer], []).append(event)
        for place, events in by_place.items():
            heaps.setdefault(place, []).append(events)
    return heaps


def _allocation_parts(
    allocation: Any, heaps: Sequence[Sequence[Any]], owners: Mapping[int, Any]
) -> Iterator[tuple[str, int, Any | None, str | None]]:
    """Parts of an allocation: one of `BUFFER_PARTS`, bytes, defining instruction, and a reason.

    Temporaries are split at the peak of their heap; Σ bytes is the allocation's size.
    """
    extents = {piece.buffer: (piece.offset, piece.size) for piece in allocation.slices}
    defining = [owners[buffer] for buffer in extents if buffer in owners]
    if _buffer_kind(allocation) != "temporary" or not allocation.size:
        parameters = [i for i in defining if i.opcode == "parameter" and allocation.parameter]
        yield "whole", allocation.size, next(iter(parameters or defining), None), None
        return
    traced: set[int] = set()
    live: list[int] | None = []
    for events in heaps:
        # XLA copies a trace to each of several allocations, which it may merge later.
        if traced.isdisjoint(event.buffer for event in events):
            traced |= {event.buffer for event in events}
            at_peak = _live_at_peak(events, extents)
            live = None if at_peak is None or live is None else live + at_peak
    if not traced or live is None:
        yield "whole", allocation.size, None, CONTRADICTION if traced else NO_HEAP_TRACE
        return
    untraced = _merged([extent for buffer, extent in extents.items() if buffer not in traced])
    held = sorted([*untraced, *(extents[buffer] for buffer in live)])
    if any(offset + size > after for (offset, size), (after, _) in pairwise(held)):
        yield "whole", allocation.size, None, CONTRADICTION
        return
    for buffer in sorted(live, key=lambda buffer: -extents[buffer][1]):
        if extents[buffer][1]:
            yield "live", extents[buffer][1], owners.get(buffer), None
    apart = sum(size for _, size in untraced)
    if apart:
        yield "untraced", apart, None, None
    yield "unused", allocation.size - sum(size for _, size in held), None, None


def _live_at_peak(events: Sequence[Any], extents: Mapping[int, Extent]) -> list[int] | None:
    """Buffers that hold memory when the live bytes are first at their maximum; None if events contradict.

    Buffers that share memory count once, by the last one.
    """
    peak = place = 0
    for number, state in enumerate(_heap_states(events, extents), 1):
        if state is None:
            return None
        if state[0] > peak:
            peak, place = state[0], number
    states = islice(_heap_states(events, extents), max(place - 1, 0), place)
    return [next(reversed(users)) for state in states if state for users in state[1].values() if users]


def _heap_states(
    events: Sequence[Any], extents: Mapping[int, Extent]
) -> Iterator[tuple[int, Mapping[int, dict[int, None]]] | None]:
    """Live bytes, and the live users of each block of memory, after each event; None at a contradiction."""
    block_of: dict[int, int] = {}
    users: dict[int, dict[int, None]] = {}
    live = 0
    for event in events:
        buffer = event.buffer
        size = extents[buffer][1]
        if event.kind == _FREE and buffer in block_of:
            block = block_of.pop(buffer)
            del users[block][buffer]
            live -= 0 if users[block] else size
        elif event.kind in (_ALLOC, _SHARE_WITH) and buffer not in block_of:
            # A block is known by its offset: a freed buffer, too, passes its memory on.
            block = block_of[buffer] = extents[buffer][0] if size else -1 - buffer
            shares = event.kind == _SHARE_WITH
            if extents.get(event.shared_with) != extents[buffer] if shares else users.get(block):
                yield None
                return
            live += 0 if users.get(block) else size
            users.setdefault(block, {})[buffer] = None
        else:
            yield None
            return
        yield live, users


def _merged(extents: Iterable[Extent]) -> list[Extent]:
    """Union of extents, as disjoint ones in order."""
    merged: list[Extent] = []
    for offset, size in sorted(extents):
        begin, length = merged[-1] if merged else (offset, 0)
        if merged and offset <= begin + length:
            merged[-1] = begin, max(length, offset + size - begin)
        else:
            merged.append((offset, size))
    return merged
