# SPDX-License-Identifier: Apache-2.0
"""Blocks of a trace's [memory] events, by hand: their lives, operators, modules and categories."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import a_rank, event

from cclbench.analyzers.view.allocator import History, Site
from cclbench.analyzers.view.histories import trace_histories
from cclbench.analyzers.view.memory_categories import bytes_by_category


def memory(at: int, held: int, change: int | None, address: int | None = 7) -> dict[str, Any]:
    return event("other", at, at, name="[memory]", bytes=held, change=change, address=address, track=1)


def operator(start: int, end: int, name: str, phase: str, **columns: Any) -> dict[str, Any]:
    row = {"rank": 0, "operator": start, "track": 1, "recomputed": False, "kernels": 0, "device_ns": 0}
    return row | {"start_ns": start, "end_ns": end, "name": name, "phase": phase} | columns


def history(events: list[dict[str, Any]], operators: list[dict[str, Any]] = []) -> History:  # noqa: B006
    windows = [{"rank": 0, "step": 0, "start_ns": 0, "end_ns": 65, "source": "annotation", "open": False}]
    windows.append(windows[0] | {"step": 1, "start_ns": 65, "end_ns": 900, "open": True})
    tables = a_rank(events, windows, operators=operators, works_on="host").tables
    (found,) = trace_histories(tables, rank=0, with_owners=True)
    return found


# 1,000 B are older: 300 of them are freed, 700 stay. An address is used twice.
EVENTS = [
    memory(10 * n, held, change, address)
    for n, (held, change, address) in enumerate(
        [
            *((1_010, 10, 1), (1_110, 100, 2), (810, -300, 9), (1_810, 1_000, 3), (1_710, -100, 2)),
            *((1_717, 7, 2), (1_718, 1, 4), (1_719, 1, 5), (719, -1_000, 3)),
        ],
        start=1,
    )
]

OPERATORS = [
    operator(5, 15, "aten::randint", "forward", call_site="a.py(1): train"),
    operator(18, 29, "aten::linear", "forward", module="Net_0/Linear_0", call_site="a.py(2): forward"),
    operator(19, 28, "aten::mm", "forward", module="Net_0/Linear_0", call_site="a.py(2): forward"),
    operator(38, 48, "aten::mm", "backward", module="Net_0/Linear_0"),
    operator(58, 62, "aten::zeros_like", "optimizer"),
    operator(78, 82, "aten::mm", "backward", recomputed=True),
]


def test_blocks_live_from_their_event_to_the_next_of_their_address() -> None:
    told = history(EVENTS, OPERATORS)
    owners = told.owners
    assert owners is not None
    assert owners.allocated().tolist() == told.allocated.tolist()
    assert list(zip(owners.begin.tolist(), owners.end.tolist(), owners.bytes.tolist(), strict=True)) == [
        *((0, 2, 300), (0, 9, 700), (0, 9, 10), (1, 4, 100)),
        *((3, 8, 1_000), (5, 9, 7), (6, 9, 1), (7, 9, 1)),
    ]
    older, sites = owners.owners_at(4)
    assert older == Site(None, 700, 1)
    expected = [Site("aten::mm", 1_000, 1), Site("aten::randint < a.py(1): train", 10, 1)]
    assert [site for _, site in sites] == expected
    assert owners.calls is not None
    assert [owners.calls.modules[n] if n >= 0 else None for n in owners.calls.module] == [
        *(None, None, None, "Net_0/Linear_0", "Net_0/Linear_0", None, None, None)
    ]
    assert told.step_ends is not None
    assert told.step_ends.tolist() == [5]


def test_categories_follow_the_phases_of_operators() -> None:
    told = history(EVENTS, OPERATORS)
    assert told.owners is not None
    held = {"activations": 100, "inputs": 10, "gradients": 1_000, "unknown": 700}
    assert bytes_by_category(told.owners, 3) == held
    # 1 B without an operator; a recomputed call is a forward one.
    assert bytes_by_category(told.owners, 8) == {"optimizer states": 7, "inputs": 10, "unknown": 702}
    # Without operators nobody is known.
    alone = history(EVENTS).owners
    assert alone is not None
    assert alone.call_sites == (None, None)
    assert bytes_by_category(alone, 3) == {"unknown": 1_810}


@pytest.mark.parametrize(
    ("events", "contradictions"),
    [
        ([memory(1, 5, 5, 1), memory(2, 9, 5, 2)], 1),  # a total that the changes do not make
        ([memory(1, 5, 5, 1), memory(2, 10, 5, 1)], 1),  # its free is missing
        ([memory(1, 5, 5, 1), memory(2, 2, -3, 1)], 1),  # another size is freed
        ([memory(1, 5, 5, 1), memory(2, 0, -5, 1), memory(3, -5, -5, 1)], 1),  # twice
        ([memory(1, 5, 5, 1), memory(2, 2, -3, 2)], 1),  # more older bytes than there were
        ([memory(1, 5, None, 1)], 0),
        ([memory(1, 5, 5, None)], 0),
    ],
)
def test_events_that_do_not_fit_have_no_owners(events: list[dict[str, Any]], contradictions: int) -> None:
    told = history(events)
    assert (told.owners, told.contradictions) == (None, contradictions)
    assert told.allocated.tolist() == [row["bytes"] for row in events]
