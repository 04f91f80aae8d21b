# SPDX-License-Identifier: Apache-2.0
"""What an allocator held over time and whose it was, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cclbench.analyzers.view.allocator import OLDER, Blocks, History, Owners, Site


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


def test_bytes_over_time_of_all_and_of_some_owners() -> None:
    assert OWNERS.allocated().tolist() == [70, 170, 200, 230, 235, 230, 130, 80]
    assert OWNERS.allocated([OLDER]).tolist() == [70] * 7 + [20]
    assert OWNERS.allocated([1]).tolist() == [0, 100, 100, 130, 130, 130, 30, 30]
    assert OWNERS.allocated([OLDER, 2]).tolist() == [70, 70, 100, 100, 100, 100, 100, 50]
    assert OWNERS.allocated([]).tolist() == [0] * 8


def test_what_is_held_at_a_moment_with_most_bytes_first() -> None:
    assert OWNERS.owners_at(0) == (Site(None, 70, 2), [])
    older, others = OWNERS.owners_at(4)
    assert older == Site(None, 70, 2)
    assert others == [(1, Site("a.py:1", 130, 2)), (2, Site(None, 30, 1)), (3, Site("c.py:3", 5, 1))]
    # At the end both hold 30 B, and owner 3 nothing any more.
    older, others = OWNERS.owners_at(7)
    assert older == Site(None, 20, 1)
    assert others == [(2, Site(None, 30, 1)), (1, Site("a.py:1", 30, 1))]


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
    assert a_history(contradictions=1234).qualifier_words == (
        "1,234 blocks contradict the events: some were not recorded, or memory changed between the last event"
        " and the snapshot"
    )


@pytest.mark.parametrize(("device", "label"), [(1, "device 1"), (0, "device 0"), (None, "cpu")])
def test_the_label_names_the_device_and_on_request_the_file(device: int | None, label: str) -> None:
    history = a_history(device=device)
    assert (history.device_label(), history.device_label(with_file=True)) == (label, f"a.pickle, {label}")
    assert replace(history, file=None).device_label(with_file=True) == label


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
