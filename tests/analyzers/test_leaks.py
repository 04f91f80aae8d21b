# SPDX-License-Identifier: Apache-2.0
"""Leaks and what looks like them: recordings of steps that allocate, keep and free blocks by plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from analyzers.test_snapshots import event, histories

from cclbench.analyzers.view.leaks import SiteGrowth, growth_by_site
from cclbench.ground.evidence_schema import ALLOCATOR_ANNOTATIONS

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
