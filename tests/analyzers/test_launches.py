# SPDX-License-Identifier: Apache-2.0
"""Calls, what they launched, when streams were free, and copies that nothing hides, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.hand_made import a_rank, comm, compute, event, window

from cclbench.analyzers.view import launches
from cclbench.analyzers.view.copies import exposed_copies


def call(start: int, end: int, correlation: int | None, thread: int = 1) -> dict[str, Any]:
    return event("launch", start, end, correlation=correlation, track=thread)


def listed(calls: launches.LaunchCalls) -> list[tuple[int, ...]]:
    columns = (calls.correlations, calls.starts, calls.ends, calls.threads)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_of_calls_of_one_correlation_the_earliest_launched_and_of_those_the_longest() -> None:
    rows = [call(50, 60, 9), call(10, 12, 3, thread=4), call(70, 80, None), call(20, 25, 9, thread=2)]
    rows += [call(20, 29, 9, thread=3), call(20, 24, 9), call(5, 6, -1)]
    calls = launches.launch_calls(a_rank(rows).tables)
    assert listed(calls) == [(-1, 5, 6, 1), (3, 10, 12, 4), (9, 20, 29, 3)]
    assert len(calls) == 3
    assert listed(calls.take_calls(np.array([2, 0]))) == [(9, 20, 29, 3), (-1, 5, 6, 1)]


def test_the_call_of_a_correlation() -> None:
    calls = launches.launch_calls(a_rank([call(0, 1, 4), call(0, 1, 8)]).tables)
    absent = np.iinfo(np.int64).min
    assert calls.indices_of(np.array([3, 4, 5, 8, 9, absent])).tolist() == [-1, 0, -1, 1, -1, -1]
    batch = pa.RecordBatch.from_pydict({"correlation": pa.array([4, None], pa.int64())})
    assert calls.indices_of(launches.correlations_of(batch)).tolist() == [0, -1]
    # A rank without launches has no calls.
    none = launches.launch_calls(a_rank([call(0, 1, None)]).tables)
    assert (len(none), none.indices_of(np.array([0, 5])).tolist()) == (0, [-1, -1])


def test_device_events_are_on_streams_in_order_of_track_and_device() -> None:
    rows = [compute(0, 10, track=9, device=1, correlation=5), event("memset", 3, 4, track=9, device=0)]
    rows += [event("copy", 12, 15, track=2, device=None), event("sync", 0, 99), event("op", 0, 99)]
    rows += [comm(20, 21, track=9, device=1, correlation=6), compute(30, 31, track=2, device=3)]
    found = launches.device_events(a_rank(rows).tables)
    assert list(found.streams) == [(2, None), (2, 3), (9, 0), (9, 1)]
    assert found.stream.tolist() == [3, 2, 0, 3, 1]
    assert (found.starts.tolist(), found.ends.tolist()) == ([0, 3, 12, 20, 30], [10, 4, 15, 21, 31])
    absent = np.iinfo(np.int64).min
    assert found.correlations.tolist() == [5, absent, absent, 6, absent]
    some = found.take_events(found.starts > 3)
    assert (some.starts.tolist(), some.ends.tolist()) == ([12, 20, 30], [15, 21, 31])
    assert (some.stream.tolist(), some.correlations.tolist()) == ([0, 3, 1], [absent, 6, absent])
    assert some.streams == found.streams
    batch = pa.RecordBatch.from_pydict({"device": pa.array([1, 0, None, 1, 1], pa.int16())})
    numbers, streams = launches.stream_numbers(np.array([9, 7, 9, 7, 9]), launches.devices_of(batch))
    assert (numbers.tolist(), streams) == ([3, 0, 2, 1, 3], [(7, 0), (7, 1), (9, None), (9, 1)])


def copy(start: int, end: int, name: str = "Memcpy", direction: str | None = None) -> dict[str, Any]:
    return event("copy", start, end, name=name, copy_direction=direction, track=3)


@pytest.mark.parametrize(
    ("row", "label"),
    [
        (copy(0, 1, "Memcpy HtoD (Pageable -> Device)", "h2d"), "h2d pageable"),
        (copy(0, 1, "Memcpy DtoH (Device -> Pinned)", "d2h"), "d2h pinned"),
        (copy(0, 1, "Memcpy HtoH (Pinned -> Pageable)", "h2h"), "h2h pageable"),
        (copy(0, 1, "Memcpy DtoD", "d2d"), "d2d"),
        (copy(0, 1, "Memcpy (Pinned)"), "copy pinned"),
        (copy(0, 1), "copy"),
        (event("memset", 0, 1, name="Memset (Pinned)", copy_direction="h2d"), "memset"),
    ],
)
def test_a_label_is_the_direction_and_the_hosts_memory(row: dict[str, Any], label: str) -> None:
    (found,) = exposed_copies(a_rank([row], [window(0, 10)])).items()
    assert (found[0], found[1].length) == (label, 1)


def test_only_what_no_kernel_hides_counts_and_each_instant_once() -> None:
    """Labels in order of their names; 0-10 is two copies of one label in two batches."""
    rows = [copy(0, 10, "Memcpy (Pinned)", "h2d"), event("memset", 20, 30, track=3)]
    rows += [copy(5, 8, "Memcpy 2 (Pinned)", "h2d"), copy(28, 50, "Memcpy", "d2d"), compute(8, 25)]
    rows += [comm(40, 45), copy(60, 64, "Memcpy (Pinned)", "h2d")]
    found = exposed_copies(a_rank(rows, [window(0, 100)]))
    expected = {"d2d": [(28, 40), (45, 50)], "h2d pinned": [(0, 8), (60, 64)], "memset": [(25, 30)]}
    assert {label: list(zip(own.starts, own.ends, strict=True)) for label, own in found.items()} == expected
    assert list(found) == ["d2d", "h2d pinned", "memset"]


def test_a_cpu_copies_nothing() -> None:
    assert exposed_copies(a_rank([copy(0, 10)], [window(0, 10)], works_on="host")) == {}
