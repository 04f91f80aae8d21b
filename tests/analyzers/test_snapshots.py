# SPDX-License-Identifier: Apache-2.0
"""Memory snapshots replayed from a few events and blocks, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from cclbench.analyzers.view.allocator import Blocks, History, Site
from cclbench.analyzers.view.snapshots import of_snapshots
from cclbench.ground.evidence_schema import ALLOCATIONS, ALLOCATOR_ANNOTATIONS, MEMORY_BLOCKS

Told = tuple[str, int | None, int]
"""Action, address and bytes of an event."""


def _told(names: Sequence[str]) -> dict[str, Any]:
    return dict.fromkeys(names) | {"source": "memory_snapshot", "file": "a", "device": 0}


def event(action: str, address: int | None, size: int, **columns: Any) -> dict[str, Any]:
    own = {"event": 0, "action": action, "address": address, "size": size}
    return _told(ALLOCATIONS.names) | own | columns


def block(address: int, size: int, state: str = "active_allocated", **columns: Any) -> dict[str, Any]:
    own = {"segment": 0, "address": address, "size": size, "state": state}
    return _told(MEMORY_BLOCKS.names) | own | columns


def histories(
    events: Sequence[dict[str, Any]],
    blocks: Sequence[dict[str, Any]],
    annotations: Sequence[dict[str, Any]] = (),
) -> list[History]:
    return of_snapshots(
        pa.Table.from_pylist(list(events), schema=ALLOCATIONS),
        pa.Table.from_pylist(list(blocks), schema=MEMORY_BLOCKS),
        pa.Table.from_pylist(list(annotations), schema=ALLOCATOR_ANNOTATIONS),
    )


def replayed(events: Sequence[Told], *blocks: dict[str, Any]) -> History:
    (history,) = histories([event(*one) for one in events], blocks)
    return history


@pytest.mark.parametrize(
    ("events", "blocks", "allocated", "contradictions"),
    [
        # What comes and stays, and what was there before and is there still.
        ([("alloc", 1, 10)], [(1, 10), (2, 7)], [7, 17], 0),
        # What the first event frees was there before.
        ([("free_requested", 1, 10)], [], [10, 0], 0),
        # A block that is freed, comes again and stays, though its first event frees it.
        ([("free_requested", 1, 10), ("alloc", 1, 4)], [(1, 4)], [10, 0, 4], 0),
        # Completion of a free, and an event that only allocators know of, change nothing.
        ([("alloc", 1, 10), ("free_requested", 1, 10), ("free_completed", 1, 10)], [], [0, 10, 0, 0], 0),
        ([("oom", None, 999), ("snapshot", 3, 5)], [(3, 5)], [5, 5, 5], 0),
        # A second alloc at an address: the first block was freed, unseen.
        ([("alloc", 1, 10), ("alloc", 1, 4)], [(1, 4)], [0, 10, 4], 1),
        # A second free of an address frees nothing.
        ([("free_requested", 1, 10), ("free_requested", 1, 10)], [], [10, 0, 0], 1),
        # What the last event allocates is not there, or what it frees is.
        ([("alloc", 1, 10)], [], [0, 10], 1),
        ([("free_requested", 1, 10)], [(1, 10)], [10, 0], 1),
        # Both kinds of contradiction add up.
        ([("alloc", 1, 10), ("alloc", 1, 4), ("alloc", 2, 1)], [], [0, 10, 4, 5], 3),
    ],
)
def test_bytes_allocated_after_each_event(
    events: list[Told], blocks: list[tuple[int, int]], allocated: list[int], contradictions: int
) -> None:
    history = replayed(events, *(block(*one) for one in blocks))
    assert history.allocated.tolist() == allocated
    assert history.contradictions == contradictions
    assert history.recorded


def test_a_block_counts_what_the_program_asked_for_where_that_is_told() -> None:
    blocks = [block(1, 512, requested=300), block(2, 512), block(3, 2048, "inactive", requested=9)]
    history = replayed([("oom", None, 0)], *blocks, block(4, 64, "active_pending_free", requested=50))
    assert history.allocated.tolist() == [812, 812]
    assert history.end == Blocks(reserved=512 + 512 + 2048 + 64, inactive=2048)
    assert history.owners.owners_at(1) == (Site(None, 812, 2), [])


def test_bytes_are_their_call_sites() -> None:
    """An old block of 7 B, two of site a, of which one is replaced by one of b; a's other is freed."""
    told = [(1, 10, "a"), (2, 20, "b"), (3, 30, "a"), (1, 5, "b"), (5, 1, None)]
    events = [event("alloc", address, size, call_site=site) for address, size, site in told]
    (history,) = histories([*events, event("free_requested", 3, 30), event("free_requested", 4, 7)], [])
    owners = history.owners
    assert owners.call_sites == (None, "a", "b", None)
    older, sites = owners.owners_at(3)
    assert older == Site(None, 7, 1)
    assert sites == [(1, Site("a", 40, 2)), (2, Site("b", 20, 1))]
    older, sites = owners.owners_at(7)
    assert older == Site(None, 0, 0)
    assert sites == [(2, Site("b", 25, 2)), (3, Site(None, 1, 1))]
    assert history.allocated.tolist() == [7, 17, 37, 67, 62, 63, 33, 26]


def test_reserved_bytes_follow_backwards_from_the_segments_at_the_end() -> None:
    """At the end 100 B: 60 of an expandable segment and 40 beside it."""
    events = [("segment_alloc", 1, 40), ("segment_map", 100, 80), ("segment_unmap", 100, 20)]
    events += [("segment_alloc", 500, 16), ("alloc", 1, 30), ("segment_free", 500, 16)]
    history = replayed(events, block(1, 40), block(100, 60, "inactive"))
    assert history.reserved.tolist() == [0, 40, 120, 100, 116, 116, 100]


@pytest.mark.parametrize(("size", "known"), [(10, True), (11, False)])
def test_reserved_bytes_are_told_where_they_hold_what_is_allocated(size: int, *, known: bool) -> None:
    events = [("segment_alloc", 1, 10), ("alloc", 1, size), ("free_requested", 1, size)]
    history = replayed(events, block(1, 10, "inactive"))
    assert (history.reserved is not None) is known


def test_each_moment_has_a_time_where_all_events_have() -> None:
    timed = [event("alloc", 1, 10, time_ns=500), event("free_requested", 1, 10, time_ns=800)]
    (history,) = histories(timed, [])
    assert history.time_ns.tolist() == [500, 500, 800]
    (untold,) = histories([timed[0], event("free_requested", 1, 10)], [])
    assert untold.time_ns is None
    (at_the_end,) = histories([], [block(1, 10)])
    assert at_the_end.time_ns is None
    assert (at_the_end.allocated.tolist(), at_the_end.recorded) == ([10], False)


def test_a_device_without_blocks_has_reserved_nothing_at_its_end() -> None:
    history = replayed([("segment_alloc", 1, 10), ("segment_free", 1, 10)])
    assert history.end == Blocks(0, 0)
    assert history.reserved.tolist() == [0, 10, 0]
    # One whose blocks are all in use has none inactive.
    assert replayed([("oom", None, 0)], block(1, 10), block(11, 20)).end == Blocks(reserved=30, inactive=0)


def test_each_file_rank_and_device_has_a_history_of_its_own() -> None:
    """Unknown ranks come first; a device counts as recorded where its process recorded another."""
    places = [("b", 2, 0), ("a", None, 0), ("b", 2, 1), ("b", 2, 3), ("b", 1, 0), ("b", None, 0)]
    told = [({"file": file, "rank": rank, "device": device}) for file, rank, device in places]
    events = [event("alloc", 1, 10 * n, **of) for n, of in enumerate(told[:3], start=1)]
    found = histories(events, [block(1, 10 * n, **of) for n, of in enumerate(told, start=1)])
    assert {history.source for history in found} == {"memory_snapshot"}
    assert [(h.file, h.rank, h.device) for h in found] == [
        *(("a", None, 0), ("b", None, 0), ("b", 1, 0), ("b", 2, 0), ("b", 2, 1), ("b", 2, 3))
    ]
    assert [h.allocated.tolist() for h in found] == [[0, 20], [60], [50], [0, 10], [0, 30], [40]]
    assert [h.recorded for h in found] == [True, False, False, True, True, True]
    assert [h.contradictions for h in found] == [0] * 6
