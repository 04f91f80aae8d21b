# SPDX-License-Identifier: Apache-2.0
"""Histories of allocators' snapshots, their groups, categories and leaks, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from analyzers.test_allocator import OWNERS
from analyzers.test_traced_blocks import EVENTS, OPERATORS, history

from cclbench.analyzers.view.allocator import Blocks, History, Owners, Site
from cclbench.analyzers.view.leaks import SiteGrowth, growth_by_site
from cclbench.analyzers.view.memory_groups import GROUPINGS, block_groups, group_levels
from cclbench.analyzers.view.snapshots import snapshot_histories
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
    return snapshot_histories(
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


def test_each_call_site_has_its_own_peak() -> None:
    levels = group_levels(OWNERS, block_groups(OWNERS, "call_site"))
    assert levels.names == (None, "a.py:1", None, "c.py:3")
    assert levels.peak.tolist() == [70, 130, 30, 5]
    assert levels.peak_moment.tolist() == [0, 3, 2, 4]
    assert levels.at(7).tolist() == [20, 30, 30, 0]
    assert levels.over(np.array([0, 4])).tolist() == [[70, 70], [0, 130], [0, 30], [0, 5]]
    # No blocks have no levels.
    none = np.zeros(0, np.int64)
    owners = Owners((None,), 3, none, none, none, none, none, none)
    levels = group_levels(owners, block_groups(owners, "call_site"))
    assert (levels.peak.tolist(), levels.at(1).tolist()) == ([0], [0])


def test_levels_are_those_of_a_cumulative_sum() -> None:
    generator = np.random.default_rng(0)
    begin = np.sort(generator.integers(0, 50, 200))
    end = begin + generator.integers(0, 30, 200)
    owner = generator.integers(0, 5, 200)
    size, unused = generator.integers(1, 100, 200), np.zeros(200, np.int64)
    owners = Owners(
        (None, "a", "b", "c", "d", "none"), 60, owner, size, unused, begin, np.minimum(end, 60), unused
    )
    levels = group_levels(owners, block_groups(owners, "call_site"))
    whole = levels.over(np.arange(60))
    for group in range(6):
        expected = owners.allocated([group])
        assert whole[group].tolist() == expected.tolist()
        assert (levels.peak[group], levels.peak_moment[group]) == (expected.max(), expected.argmax())


def test_modules_of_a_trace_and_of_a_snapshot() -> None:
    owners = history(EVENTS, OPERATORS).owners
    assert owners is not None
    levels = group_levels(owners, block_groups(owners, "module"))
    assert dict(zip(levels.names, levels.at(3).tolist(), strict=True)) == {"Net_0/Linear_0": 1_100, None: 710}
    assert levels.peak_moment.tolist() == [3, 0]
    site = "forward torch/nn/modules/linear.py:1 < forward net.py:2 < forward net.py:9 < main a.py:1"
    events = [event("alloc", 1, 5, call_site=site), event("alloc", 2, 7, call_site="main a.py:1")]
    (told,) = histories(events, [block(1, 5), block(2, 7), block(3, 9)])
    levels = group_levels(told.owners, block_groups(told.owners, "module"))
    assert dict(zip(levels.names, levels.peak.tolist(), strict=True)) == {"forward net.py:2": 5, None: 16}


def test_all_groupings_hold_all_bytes() -> None:
    told = history(EVENTS, OPERATORS)
    assert told.owners is not None
    moments = np.arange(len(told.allocated))
    for grouping in GROUPINGS:
        levels = group_levels(told.owners, block_groups(told.owners, grouping))
        assert levels.over(moments).sum(axis=0).tolist() == told.allocated.tolist()


Plan = Callable[[int], dict[int, int]]
"""The blocks that a call site holds at the end of a step: bytes by name."""
NS_PER_STEP = 1000
LEAK = "append train.py:9"


def recording(steps: int, *plans: Plan, within: int = 0) -> Any:
    """A history of steps: each call site frees what it no longer holds, then allocates what is new.

    In each step `within` blocks come and go at the last call site.
    """
    events: list[dict[str, Any]] = []
    marks = []
    held: list[dict[int, int]] = [{} for _ in plans]

    def add(action: str, site: int, name: int, size: int, step: int) -> None:
        at = step * NS_PER_STEP + 1 + len(events) % 500
        address = (site + 1 << 40) + (name << 20)
        where = LEAK if site == 0 else f"site {site}"
        events.append(event(action, address, size, time_ns=at, call_site=where))

    for step in range(steps):
        for site, plan in enumerate(plans):
            wanted = plan(step)
            for name in held[site].keys() - wanted.keys():
                add("free_requested", site, name, held[site].pop(name), step)
            for name in wanted.keys() - held[site].keys():
                add("alloc", site, name, wanted[name], step)
            held[site] = wanted
        for name in range(within):
            add("alloc", len(plans), name, 1 << 20, step)
        for name in range(within):
            add("free_requested", len(plans), name, 1 << 20, step)
        for number, one in enumerate(events):
            one["event"] = number
        begin = step * NS_PER_STEP
        mark = dict.fromkeys(ALLOCATOR_ANNOTATIONS.names) | {"source": "memory_snapshot", "file": "a"}
        name = f"ProfilerStep#{step}"
        marks.append(mark | {"device": 0, "name": name, "start_ns": begin, "end_ns": begin + NS_PER_STEP - 1})
    events.sort(key=lambda one: one["time_ns"])
    (history,) = histories(events, [], marks)
    return history


def leaking(*arguments: Any, **options: Any) -> list[str | None]:
    growth = growth_by_site(recording(*arguments, **options))
    assert growth is not None
    return [site.call_site for site in growth if site.leaks]


def every(step: int, period: int = 1, until: int = 1 << 30) -> dict[int, int]:
    """A block of 512 B from every `period`-th step on, none after `until`."""
    return {name: 512 for name in range(min(step, until) + 1) if name % period == 0}


def blocks(first: int, end: int) -> dict[int, int]:
    return dict.fromkeys(range(first, end), 512)


STEADY: Plan = lambda _: {0: 1 << 30}  # noqa: E731


def test_what_each_step_leaves_by_hand() -> None:
    """Seven step ends: 512 B at the first one, 512 B more at each: 6 · 512 B in 6 steps."""
    growth = growth_by_site(recording(7, every, STEADY, within=3))
    assert growth == [SiteGrowth(LEAK, first=512, last=7 * 512, bytes_per_step=512, leaks=True)]
    # A leak of varying sizes beside steps of varying length is one.
    sizes = np.random.default_rng(1).integers(256, 4096, 40).tolist()
    grows: Plan = lambda step: {name: sizes[name] for name in range(step + 1)}  # noqa: E731
    varies: Plan = lambda step: {100 + step: sizes[step] << 10}  # noqa: E731
    assert leaking(30, grows, varies) == [LEAK]


@pytest.mark.parametrize("period", [1, 2, 3, 5])
def test_a_leak_in_every_few_steps_is_one(period: int) -> None:
    assert leaking(24, lambda step: every(step, period), STEADY, within=2) == [LEAK]


INNOCENT: dict[str, Plan] = {
    "warm-up": lambda step: every(step, until=3),
    "all at first": lambda _: blocks(0, 9),
    "a cache that fills and is full": lambda step: every(step, until=15),
    "a cache that fills ever more slowly": lambda step: blocks(0, int(16 * (1 - 0.8 ** (step + 1)))),
    "a buffer of the last five steps": lambda step: blocks(max(step - 4, 0), step + 1),
    "a buffer of two steps less than all": lambda step: blocks(max(step - 21, 0), step + 1),
    "input of the next step": lambda step: {step: 512, step + 1: 512},
    "garbage that is collected in every tenth step": lambda step: blocks(step // 10 * 10, step + 1),
    "garbage that was collected once": lambda step: blocks(6 if step > 5 else 0, step + 1),
    "longer input in later steps": lambda step: {step: 512 * (step + 1)},
    "one more at the last step": lambda step: {0: 512} | ({1: 512} if step == 23 else {}),
    "one from each half": lambda step: blocks(0, 1 + (step > 6) + (step > 18)),
    "a buffer that doubles": lambda step: {int(np.log2(step + 1)): 512 << int(np.log2(step + 1))},
}


@pytest.mark.parametrize("name", INNOCENT)
def test_what_is_no_leak(name: str) -> None:
    assert leaking(24, INNOCENT[name], STEADY, within=2) == []


def test_too_few_steps_are_listed_and_not_judged_and_without_marks_of_steps_nothing_is_known() -> None:
    growth = growth_by_site(recording(5, every))
    assert growth == [SiteGrowth(LEAK, first=512, last=5 * 512, bytes_per_step=512, leaks=False)]
    assert growth_by_site(recording(1, every)) is None
    # Without marks of steps nothing is known.
    (history,) = histories([event("alloc", 1, 10, time_ns=5)], [])
    assert history.step_ends is None
    assert growth_by_site(history) is None
