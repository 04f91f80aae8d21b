# SPDX-License-Identifier: Apache-2.0
"""Groups of blocks over time, by hand and against a cumulative sum."""

from __future__ import annotations

import numpy as np
from analyzers.test_allocator import OWNERS
from analyzers.test_snapshots import block, event, histories
from analyzers.test_traced_blocks import EVENTS, OPERATORS, history

from cclbench.analyzers.view.allocator import Owners
from cclbench.analyzers.view.memory_groups import GROUPINGS, block_groups, group_levels


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
