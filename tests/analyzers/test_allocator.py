# SPDX-License-Identifier: Apache-2.0
"""What allocators held over time and whose it was, of traces and snapshots, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from helpers.hand_made import Evidence, a_rank, event

from cclbench.analyzers.view.allocator import OLDER, Blocks, History, Owners
from cclbench.analyzers.view.histories import run_histories, trace_histories


def ns(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


# Two blocks of 70 B together are older; owner 1 gets 100 B and 30 B and frees the 100, owner 2 gets 30 B and
# keeps them, owner 3 gets 5 B and frees them, and 50 of the old bytes are freed.
OWNERS = Owners(
    call_sites=(None, "a.py:1", None, "c.py:3"),
    moments=8,
    owner=ns(OLDER, OLDER, 1, 2, 1, 3),
    bytes=ns(20, 50, 100, 30, 30, 5),
    address=ns(0, 512, 1024, 2048, 4096, 8192),
    begin=ns(0, 0, 1, 2, 3, 4),
    end=ns(8, 7, 6, 8, 8, 5),
    released=ns(8, 7, 6, 8, 8, 5),
)


def a_history(**changes: Any) -> History:
    moments = {"time_ns": ns(5, 5, 6, 7), "allocated": ns(10, 40, 40, 20), "reserved": ns(50, 80, 100, 60)}
    told = History("memory_snapshot", "a.pickle", rank=0, device=1, **moments)
    return replace(told, **changes)


def test_the_peak_is_the_first_moment_of_most_bytes() -> None:
    history = a_history()
    assert (history.peak_moment, history.peak_allocated, history.peak_reserved) == (1, 40, 100)
    assert history.reserved_unused == 80 - 40
    # Without reserved memory none of it is unused; it may be used wholly.
    for reserved in (None, ns(0, 0, 0, 0)):
        assert a_history(reserved=reserved).reserved_unused is None
    assert a_history(allocated=ns(0, 1, 0, 0), reserved=ns(0, 1, 0, 0)).reserved_unused == 0


def test_there_is_a_curve_where_two_moments_were_recorded() -> None:
    assert a_history().has_changes
    assert a_history(allocated=ns(10, 10)).has_changes
    assert not a_history(allocated=ns(10)).has_changes
    assert not a_history(recorded=False).has_changes


def test_contradictions_are_told_in_words() -> None:
    assert a_history().qualifier_words is None
    assert "1,234 blocks contradict the events" in (a_history(contradictions=1234).qualifier_words or "")


def test_a_history_at_some_moments_keeps_what_is_known() -> None:
    chosen = np.array([True, False, True, False])
    some = a_history(contradictions=3).at_moments(chosen)
    columns = (some.time_ns, some.allocated, some.reserved)
    assert [column.tolist() for column in columns if column is not None] == [[5, 6], [10, 40], [50, 100]]
    assert (some.rank, some.device, some.contradictions) == (0, 1, 3)
    untold = a_history(time_ns=None, reserved=None).at_moments(chosen)
    assert (untold.time_ns, untold.reserved) == (None, None)


def test_the_inactive_share_is_of_what_is_reserved() -> None:
    assert Blocks(reserved=1000, inactive=250).inactive_share == 0.25
    assert Blocks(reserved=1, inactive=1).inactive_share == 1
    assert Blocks(reserved=0, inactive=0).inactive_share is None


def memory(at: int, held: int | None, reserved: int | None = None, device: int | None = 0) -> dict[str, Any]:
    return event("other", at, at, name="[memory]", bytes=held, reserved=reserved, device=device)


ROWS = [
    *(memory(30, 300, 1000), memory(10, 100, 500), event("other", 15, 15, name="else", bytes=9, device=0)),
    *(memory(20, None, 700), memory(20, 40, device=None), memory(25, 200, 700, device=1)),
    *(memory(35, 250, device=1), memory(5, 60, 80, device=None)),
    event("op", 12, 12, name="[memory]", bytes=7, device=0),
]


def test_each_device_has_its_events_in_order_of_time_and_the_cpu_comes_first() -> None:
    found = list(trace_histories(a_rank(ROWS).tables, rank=4, source="kineto"))
    assert [(h.source, h.file, h.rank, h.device) for h in found] == [
        ("kineto", None, 4, device) for device in (None, 0, 1)
    ]
    assert [h.allocated.tolist() for h in found] == [[60, 40], [100, 300], [200, 250]]
    assert [h.time_ns.tolist() for h in found if h.time_ns is not None] == [[5, 20], [10, 30], [25, 35]]
    # One event that does not state what is reserved leaves it unknown.
    assert [None if h.reserved is None else h.reserved.tolist() for h in found] == [None, [500, 1000], None]
    # A trace without allocator events has no history.
    for rows in ([], [event("other", 1, 2, name="else", bytes=9)]):
        assert list(trace_histories(a_rank(rows).tables, rank=0)) == []


def a_run() -> Any:
    """Ranks 0 and 1 on accelerators, 2 on its CPU; a snapshot of an unknown rank."""
    block = {"source": "memory_snapshot", "file": "a", "device": 0, "segment": 1, "address": 1, "size": 77}
    told = Evidence(memory_blocks=[block | {"state": "active_allocated"}])
    ranks = {n: a_rank(ROWS, works_on="host" if n == 2 else "device").tables for n in range(3)}
    return SimpleNamespace(ranks=(0, 1, 2), rank=ranks.__getitem__, reader="kineto", evidence=told.evidence)


def test_a_run_tells_of_its_ranks_own_devices_and_then_of_snapshots() -> None:
    found = [(h.source, h.rank, h.device, h.allocated.tolist()) for h in run_histories(a_run())]
    own = [(0, [100, 300]), (1, [200, 250])]
    expected = [*(("kineto", rank, *one) for rank in (0, 1) for one in own), ("kineto", 2, None, [60, 40])]
    expected += [("memory_snapshot", None, 0, [77])]
    assert found == expected
    assert [h.rank for h in run_histories(a_run(), traced=[1])] == [1, 1, None]
    assert [h.rank for h in run_histories(a_run(), traced=[])] == [None]
