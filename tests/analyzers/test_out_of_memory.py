# SPDX-License-Identifier: Apache-2.0
"""Free blocks and failed requests, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from analyzers.test_snapshots import block, event, histories

from cclbench.analyzers.view.allocator import Site
from cclbench.analyzers.view.out_of_memory import OutOfMemory, failed_requests

MIB = 1 << 20
HOLDER = "forward model.py:7"


def failure(events: list[dict[str, Any]], blocks: list[dict[str, Any]]) -> OutOfMemory:
    (history,) = histories(events, blocks)
    return failed_requests(history)[-1]


def large(address: int, size: int, state: str = "active_allocated", **columns: Any) -> dict[str, Any]:
    return block(address, size, state, pool="large", stream=0, requested=size, **columns)


def oom(size: int, **columns: Any) -> dict[str, Any]:
    return event("oom", None, size, stream=0, call_site="ask model.py:9", device_free=MIB) | columns


SCATTERED = [large(0, 4 * MIB, "inactive"), large(4 * MIB, 8 * MIB, call_site=HOLDER)]
SCATTERED += [large(12 * MIB, 6 * MIB, "inactive")]
"""One segment of 18 MiB: 4 and 6 MiB are free, beside 8 MiB of a call site."""


def test_scattered_memory_is_fragmentation() -> None:
    """9 MiB are asked for; 10 are free in two blocks, and the device has 1 MiB."""
    one = failure([oom(9 * MIB)], SCATTERED)
    assert (one.reserved, one.free.bytes, one.usable.largest) == (18 * MIB, 10 * MIB, 6 * MIB)
    assert (one.missing, one.largest_served, one.limit) == (0, 6 * MIB, None)
    assert one.free.fragmentation == 1 - 6 / 10
    assert one.sites == (Site(HOLDER, 8 * MIB, 1),)
    assert (one.sites_to_free, one.request.call_site) == ((), "ask model.py:9")
    assert one.verdict == "fragmentation: enough is free, but no block is large enough"


def test_what_is_missing_is_held_by_the_largest_call_sites() -> None:
    """20 MiB: of 10 MiB free and 1 MiB of the device, 9 are missing; the holder has 8, an older block 2."""
    one = failure(
        [oom(20 * MIB)], [*SCATTERED, large(64 * MIB, 2 * MIB, segment=64 * MIB, call_site="g model.py:3")]
    )
    assert (one.missing, one.largest_served) == (9 * MIB, 6 * MIB)
    assert [site.call_site for site in one.sites_to_free] == [HOLDER, "g model.py:3"]
    assert one.verdict == "too much is held: all free memory together is too small"


def test_blocks_of_other_streams_and_pools_serve_no_request() -> None:
    others = [large(64 * MIB, 32 * MIB, "inactive", segment=64 * MIB) | {"stream": 7}]
    others += [large(128 * MIB, 16 * MIB, "inactive", segment=128 * MIB) | {"pool": "large 1.0"}]
    one = failure([oom(20 * MIB)], [*SCATTERED, *others])
    assert (one.free.bytes, one.usable.bytes) == (58 * MIB, 10 * MIB)
    assert one.verdict == "enough is free, but in blocks of other streams or pools"
    # A block that is large enough is said.
    assert failure([oom(5 * MIB)], SCATTERED).verdict.startswith("a free block was large enough")


def test_a_limit_of_the_process_lies_between_what_it_allowed_and_what_not() -> None:
    """40 MiB were reserved once, 18 are now, and 30 more were refused although the device has 500."""
    passing = [event(f"segment_{action}", 1 << 40, 22 * MIB, stream=0) for action in ("alloc", "free")]
    one = failure([*passing, oom(30 * MIB, device_free=500 * MIB)], SCATTERED)
    assert one.limit == (40 * MIB, 48 * MIB)
    assert (one.largest_served, one.missing) == (22 * MIB, 0)
    assert failure([oom(30 * MIB, device_free=29 * MIB)], SCATTERED).limit is None
    # Without the device's memory what is missing is unknown.
    one = failure([oom(20 * MIB, device_free=None)], SCATTERED)
    assert (one.missing, one.sites_to_free, one.free.bytes) == (None, (), 10 * MIB)
    assert one.verdict == "the snapshot does not state what was free"


def freed(address: int, size: int) -> list[dict[str, Any]]:
    return [event(f"free_{what}", address, size) for what in ("requested", "completed")]


def test_what_came_after_the_failure_is_undone() -> None:
    """Then, a second segment of 4 MiB was there, 3 MiB of it in use, and of the first all but 4 MiB."""
    then = {"stream": 0, "call_site": "then"}
    events = [event("alloc", 12 * MIB, 6 * MIB, **then), event("alloc", 64 * MIB, 3 * MIB, **then)]
    events += [oom(9 * MIB), *freed(64 * MIB, 3 * MIB), event("segment_free", 64 * MIB, 4 * MIB, stream=0)]
    events += [*freed(12 * MIB, 6 * MIB), event("segment_alloc", 96 * MIB, 20 * MIB, stream=0)]
    one = failure(events, [*SCATTERED, large(96 * MIB, 20 * MIB, "inactive", segment=96 * MIB)])
    # The last MiB of the second segment may never have been split off its block, and then was not free.
    assert (one.reserved, one.free.sizes.tolist()) == (22 * MIB, [4 * MIB])
    assert [site.bytes for site in one.sites] == [9 * MIB, 8 * MIB]


def test_memory_that_another_stream_still_uses_is_not_free() -> None:
    requested, completed = freed(4 * MIB, 8 * MIB)
    pending = [SCATTERED[0], SCATTERED[1] | {"state": "active_pending_free"}, SCATTERED[2]]
    for events, blocks in (
        ([requested, oom(9 * MIB), completed], [large(0, 18 * MIB, "inactive")]),
        ([requested, oom(9 * MIB)], pending),
        ([oom(9 * MIB)], pending),
    ):
        assert failure(events, blocks).free.sizes.tolist() == [4 * MIB, 6 * MIB]


@pytest.mark.parametrize(
    ("after", "free"),
    [
        # Mapped after the failure: 2 of the 6 MiB at the end were not there.
        (("segment_map", 16 * MIB, 2 * MIB), [4 * MIB, 4 * MIB]),
        # Unmapped after it: 4 MiB more were there, next to those that are free at the end.
        (("segment_unmap", 18 * MIB, 4 * MIB), [4 * MIB, 10 * MIB]),
    ],
)
def test_expandable_segments_change_at_their_end(after: tuple[str, int, int], free: list[int]) -> None:
    assert failure([oom(9 * MIB), event(*after, stream=0)], SCATTERED).free.sizes.tolist() == free


def test_small_requests_are_served_by_the_small_pool() -> None:
    small = [block(64 * MIB, 2 * MIB, "inactive", segment=64 * MIB, pool="small", stream=0)]
    assert failure([oom(1 * MIB)], [*SCATTERED, *small]).usable.sizes.tolist() == [2 * MIB]
    assert failure([oom(1 * MIB + 1)], [*SCATTERED, *small]).usable.bytes == 10 * MIB
