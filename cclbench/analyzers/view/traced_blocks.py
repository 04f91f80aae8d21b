# SPDX-License-Identifier: Apache-2.0
"""The blocks of a trace's [memory] events, with the operators that allocated them.

An event states the address and the bytes that were allocated or freed. A block lives from its event to the
next one of its address; what is freed without having been allocated is older than the recording, and so is
what the first total holds besides. A block belongs to the innermost operator around its event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.view.allocator import OLDER, RECOMPUTED, Calls, Owners
from cclbench.ground.intervals import Int64
from cclbench.normalize.operators import Ranges

if TYPE_CHECKING:
    from cclbench.record.rank import Rank

_COLUMNS: Final = (
    *("operator", "name", "track", "start_ns", "end_ns", "phase", "module", "call_site", "recomputed"),
)


def traced_owners(events: pa.Table, tables: Rank) -> tuple[Owners | None, int]:
    """The blocks of one device's events, and the number of events that contradict the totals.

    `events` has rows of `EVENTS` with track, start_ns, bytes, change and address, in order of time. None
    where changes or addresses are not stated, or contradict the totals: some events were not recorded.
    """
    if events["change"].null_count or events["address"].null_count:
        return None, 0
    change, address, total = (events[name].to_numpy() for name in ("change", "address", "bytes"))
    before = int(total[0] - change[0])
    begin, end, size, at, contradictions = _paired_events(change, address)
    rest = before - int(size[begin < 0].sum())
    contradictions += int((np.cumsum(change) + before != total).sum()) + (rest < 0)
    if contradictions:
        return None, contradictions
    if rest:
        begin, end, size, at = (
            np.append(column, value)
            for column, value in zip((begin, end, size, at), (-1, len(events), rest, 0), strict=True)
        )
    order = np.argsort(begin, kind="stable")
    begin, end, size, at = begin[order], end[order], size[order], at[order]
    sites, owner, calls = _allocating_calls(events, begin, tables)
    return (
        Owners(
            sites,
            len(events),
            owner=owner,
            bytes=size,
            address=at,
            begin=np.maximum(begin, 0),
            end=end,
            released=end,
            calls=calls,
        ),
        0,
    )


def _paired_events(change: Int64, address: Int64) -> tuple[Int64, Int64, Int64, Int64, int]:
    """Begin (−1: older), end, bytes and address of blocks, by index of event; contradicting events."""
    order = np.lexsort((np.arange(len(change)), address))
    order = order[change[order] != 0]
    block_address, signed = address[order], change[order]
    follows = np.append(False, block_address[1:] == block_address[:-1])
    allocates = signed > 0
    after_allocation = follows & np.append(False, allocates[:-1])
    frees = ~allocates & after_allocation
    wrong = frees & (signed != -np.append(0, signed[:-1])) | allocates & after_allocation
    wrong |= ~allocates & follows & ~after_allocation
    born = np.flatnonzero(allocates)
    freed = np.append(frees, False)[born + 1]
    end = np.where(freed, np.append(order, 0)[born + 1], len(change))
    older = ~allocates & ~follows
    return (
        np.append(order[born], np.full(int(older.sum()), -1)),
        np.append(end, order[older]),
        np.append(signed[born], -signed[older]),
        np.append(block_address[born], block_address[older]),
        int(wrong.sum()),
    )


def _allocating_calls(
    events: pa.Table, begin: Int64, tables: Rank
) -> tuple[tuple[str | None, ...], Int64, Calls]:
    """Call sites, index of each block's among them, and the operator calls that allocated the blocks."""
    import pyarrow.compute as pc  # imported late: metrics are listed without it

    operators = tables.operators(_COLUMNS)
    track, start, end, number = (
        operators[name].to_numpy() for name in ("track", "start_ns", "end_ns", "operator")
    )
    order = Ranges.order_of(track, start, end, number)
    ranges = Ranges(track[order], start[order], end[order])
    born = begin >= 0
    events = events.take(begin[born])
    range_index = ranges.innermost_at(events["track"].to_numpy(), events["start_ns"].to_numpy())
    call = np.full(len(begin), -1, np.int64)
    call[born] = np.where(range_index >= 0, np.append(order, -1)[range_index], -1)
    words = {name: operators[name].cast(pa.string()) for name in ("name", "phase", "module", "call_site")}
    phase = pc.if_else(operators["recomputed"], RECOMPUTED, words["phase"])
    # A call without a line of Python is named alone.
    site = pc.coalesce(pc.binary_join_element_wise(words["name"], words["call_site"], " < "), words["name"])
    (modules, module), (phases, of_phase), (sites, of_site) = (
        _coded(column, call) for column in (words["module"], phase, site)
    )
    owner = np.where(born, of_site + 2, OLDER)  # 1 is what no operator allocated
    return (None, None, *sites), owner, Calls(modules, module, phases, of_phase)


def _coded(column: pa.ChunkedArray, rows: Int64) -> tuple[tuple[str, ...], Int64]:
    """The words of a column, and the index of each row's among them; −1 for a null, and for row −1."""
    encoded = column.combine_chunks().dictionary_encode()
    codes = np.append(encoded.indices.fill_null(-1).to_numpy(), -1).astype(np.int64)
    return tuple(encoded.dictionary.to_pylist()), codes[rows]
