# SPDX-License-Identifier: Apache-2.0
"""Inputs of many groups, threads and levels: eight times as many take some eight times as long, not 64.

A trace may name as many of them as it has rows.  The bound is wide, since machines are busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from cclbench.classify import CollectiveName
from cclbench.formats import Payload, StatedPayloads
from cclbench.ground import intervals
from cclbench.normalize import alignment, collectives
from cclbench.normalize.operators import Ranges
from cclbench.record.facts import TraceFacts

NAMES = [CollectiveName("all_reduce", "gloo"), CollectiveName("send", "gloo")]


def calls(
    n: int, *, threads: bool = True, name: int = 0, launched: bool = False
) -> collectives.CommunicationCalls:
    """A call each 10 ns, of 5 ns, each on a thread of its own or all on one."""
    row, none = np.arange(n), np.full(n, -1)
    start, track = 10 * row, row if threads else np.zeros(n, np.int64)
    told = {"row": row, "launch_track": track, "launch_ns": start}
    places = told if launched else dict.fromkeys(told, none)
    times = {"start_ns": start, "end_ns": start + 5, "track": track, "step": none}
    return collectives.CommunicationCalls(**times, **places, name=np.full(n, name), names=NAMES)


def groups_on_host(n: int) -> None:
    told = StatedPayloads()
    for i in range(n):
        group = {"ranks": (0, i + 1), "rows": 1, "threads": (i,)}
        payload = Payload(source="annotation", collective="all_reduce", **group)
        told.add_payload(payload, track=-5, start_ns=10 * i, end_ns=10 * i + 6, seq=0)
    owner, refused = collectives.on_host(calls(n), told, TraceFacts(world_size=n + 1))
    assert owner.tolist() == list(range(n))
    assert not refused


def transfers_on_host(n: int) -> None:
    told = StatedPayloads()
    payload = Payload(source="annotation", collective="send", ranks=(0, 1))
    for i in range(n):
        told.add_payload(payload, track=0, start_ns=10 * i, end_ns=10 * i + 6)
    owner, _ = collectives.on_host(calls(n, threads=False, name=1), told, TraceFacts())
    assert owner.tolist() == list(range(n))


def threads_of_a_device(n: int) -> None:
    told = StatedPayloads()
    for i in range(n):
        told.add_payload(Payload(source="host_op"), track=i, start_ns=10 * i - 1, end_ns=10 * i + 5)
    assert collectives.on_device(calls(n, launched=True), told).tolist() == list(range(n))


def threads_of_ranges(n: int) -> None:
    start = 10 * np.arange(n)
    ranges = Ranges(np.arange(n), start, start + 5)
    assert ranges.innermost_at(np.arange(n), start).tolist() == list(range(n))
    assert ranges.is_inside(np.arange(n), start + 5).tolist() == [False] * n


def nested_ranges(n: int) -> None:
    """Instants behind all but the outermost of n nested ranges."""
    start = np.arange(n)
    ends = np.append(10 * n, 2 * n - start[1:])
    at = np.arange(3 * n, 4 * n)
    assert intervals.innermost(start, ends, at).tolist() == [0] * n


@pytest.mark.parametrize(
    ("work", "few"),
    [
        *((groups_on_host, 4_000), (transfers_on_host, 8_000), (threads_of_a_device, 8_000)),
        *((threads_of_ranges, 8_000), (nested_ranges, 16_000)),
    ],
)
def test_work_grows_with_the_rows(work: Callable[[int], None], few: int) -> None:
    def seconds(n: int) -> float:
        began = time.process_time()
        work(n)
        return time.process_time() - began

    least = min(seconds(few) for _ in range(3))
    assert seconds(8 * few) < 18 * least + 0.3


def test_ranks_that_have_nothing_in_common_are_not_compared_without_end() -> None:
    """Each of so many differences would be looked at, and kept, for each of them."""
    one, other = np.arange(0, 40_000, 2), np.arange(1, 40_000, 2)
    rank = np.repeat([0, 1], 20_000).astype(np.int32)
    place, ambiguous = alignment.align_sequences(rank, np.concatenate([one, other]))
    assert place.tolist() == [*range(20_000), *[-1] * 20_000]
    assert ambiguous.tolist() == [False] * 20_000 + [True] * 20_000


@pytest.mark.parametrize(("length", "aligned"), [(1024, True), (1025, False)])
def test_as_many_differences_as_are_looked_for(length: int, aligned: bool) -> None:
    """A row that both have between `length` that one has, and as many that the other has."""
    a, b = [*range(length), -1], [*range(length, 2 * length), -1]
    assert alignment.longest_common_subsequence(a, b) == ([(length, length)] if aligned else None)


def test_an_instant_within_ranges_of_any_depth() -> None:
    """Around it by the definition: of those that hold it the one that began last."""
    random = np.random.default_rng(5)
    starts = np.sort(random.integers(0, 500, 300))
    ends = starts + random.integers(1, 700, 300)
    at = np.arange(-5, 1300)
    wanted = [max((i for i in range(300) if starts[i] <= t < ends[i]), default=-1) for t in at]
    assert intervals.innermost(starts, ends, at).tolist() == wanted
