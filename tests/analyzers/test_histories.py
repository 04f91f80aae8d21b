# SPDX-License-Identifier: Apache-2.0
"""What a trace's allocator events tell of each device over time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from helpers.hand_made import Evidence, a_rank, event

from cclbench.analyzers.view.histories import of_run, of_trace


def memory(at: int, held: int | None, reserved: int | None = None, device: int | None = 0) -> dict[str, Any]:
    return event("other", at, at, name="[memory]", bytes=held, reserved=reserved, device=device)


ROWS = [
    *(memory(30, 300, 1000), memory(10, 100, 500), event("other", 15, 15, name="else", bytes=9, device=0)),
    *(memory(20, None, 700), memory(20, 40, device=None), memory(25, 200, 700, device=1)),
    *(memory(35, 250, device=1), memory(5, 60, 80, device=None)),
    event("op", 12, 12, name="[memory]", bytes=7, device=0),
]


def test_each_device_has_its_events_in_order_of_time_and_the_cpu_comes_first() -> None:
    found = list(of_trace(a_rank(ROWS).tables, rank=4, source="kineto"))
    assert [(h.source, h.file, h.rank, h.device) for h in found] == [
        ("kineto", None, 4, device) for device in (None, 0, 1)
    ]
    assert [h.allocated.tolist() for h in found] == [[60, 40], [100, 300], [200, 250]]
    assert [h.time_ns.tolist() for h in found if h.time_ns is not None] == [[5, 20], [10, 30], [25, 35]]
    # One event that does not state what is reserved leaves it unknown.
    assert [None if h.reserved is None else h.reserved.tolist() for h in found] == [None, [500, 1000], None]
    # A trace without allocator events has no history.
    for rows in ([], [event("other", 1, 2, name="else", bytes=9)]):
        assert list(of_trace(a_rank(rows).tables, rank=0)) == []


def a_run() -> Any:
    """Ranks 0 and 1 on accelerators, 2 on its CPU; a snapshot of an unknown rank."""
    block = {"source": "memory_snapshot", "file": "a", "device": 0, "segment": 1, "address": 1, "size": 77}
    told = Evidence(memory_blocks=[block | {"state": "active_allocated"}])
    ranks = {n: a_rank(ROWS, works_on="host" if n == 2 else "device").tables for n in range(3)}
    return SimpleNamespace(ranks=(0, 1, 2), rank=ranks.__getitem__, reader="kineto", evidence=told.evidence)


def test_a_run_tells_of_its_ranks_own_devices_and_then_of_snapshots() -> None:
    found = [(h.source, h.rank, h.device, h.allocated.tolist()) for h in of_run(a_run())]
    own = [(0, [100, 300]), (1, [200, 250])]
    assert found == [
        *(("kineto", rank, *one) for rank in (0, 1) for one in own),
        ("kineto", 2, None, [60, 40]),
        ("memory_snapshot", None, 0, [77]),
    ]
    assert [h.rank for h in of_run(a_run(), traced=[1])] == [1, 1, None]
    assert [h.rank for h in of_run(a_run(), traced=[])] == [None]
