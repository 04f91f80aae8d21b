# SPDX-License-Identifier: Apache-2.0
"""Collectives of several ranks matched, by number, by order, by pair; what is left, and why."""

from __future__ import annotations

from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.normalize.alignment import common
from cclbench.normalize.call_keys import Rows
from cclbench.normalize.matching import contradictions, match

SEND, RECV, REDUCE, GATHER = 8, 9, 0, 1


def rows(*made):
    """Rows from (rank, group, kind[, seq[, bytes[, step]]]); groups have two ranks, rank order kept."""
    full = [(*row, *(-1, 100, -1)[len(row) - 3 :]) for row in made]
    rank, group, kind, seq, size, step = (np.array(column) for column in zip(*full, strict=True))
    return Rows(
        rank=rank.astype(np.int32),
        group=group.astype(np.int32),
        size=np.full(len(full), 2, np.int32),
        kind=kind.astype(np.int8),
        seq=seq.astype(np.int64),
        step=step.astype(np.int32),
        bytes=size.astype(np.int64),
        source=np.full(len(full), -1, np.int32),
        target=np.full(len(full), -1, np.int32),
    )


def instances(found):
    """Rows of each instance, as a set of sets of row numbers."""
    members = {}
    for row, instance in enumerate(found.instance.tolist()):
        if instance >= 0:
            members.setdefault(instance, set()).add(row)
    return sorted(map(sorted, members.values()))


def matched(*made):
    return match(rows(*made), (SEND, RECV))


def test_by_sequence_number_in_any_order():
    found = matched((0, 0, REDUCE, 5), (0, 0, REDUCE, 6), (1, 0, REDUCE, 6), (1, 0, REDUCE, 5))
    assert instances(found) == [[0, 3], [1, 2]]
    assert (found.present.tolist(), found.expected.tolist(), found.counts()) == ([2, 2], [2, 2], {})


def in_step(rank, *kinds, step=0):
    return [(rank, 0, kind, -1, 100, step) for kind in kinds]


def test_streams_of_a_group_begin_in_another_order_on_each_rank():
    """As all-gathers and reduce-scatters of FSDP do: each kind by its own order, on every rank."""
    first = in_step(0, GATHER, REDUCE, GATHER, REDUCE)
    second = in_step(1, GATHER, GATHER, REDUCE, REDUCE)
    found = matched(*first, *second)
    assert instances(found) == [[0, 4], [1, 6], [2, 5], [3, 7]]
    assert found.counts() == {}


def test_what_not_all_ranks_have_alike_in_a_step_is_aligned():
    """Of the reductions one rank has three, which may be any of its own; without steps all may shift."""
    uneven = matched(*in_step(0, GATHER, REDUCE, REDUCE, REDUCE), *in_step(1, REDUCE, GATHER, REDUCE))
    assert instances(uneven) == [[0, 5]]
    assert uneven.counts() == {
        "no other rank's trace has it": 3,
        "order within the group is ambiguous": 2,
    }
    unknown = matched(
        *in_step(0, GATHER, REDUCE, GATHER, step=-1), *in_step(1, REDUCE, GATHER, GATHER, step=-1)
    )
    assert instances(unknown) == []


def test_number_0_is_a_number():
    """Without numbers these differ, by their bytes."""
    assert instances(matched((0, 0, REDUCE, 0, 100), (1, 0, REDUCE, 0, 200))) == [[0, 1]]
    assert instances(matched((0, 0, REDUCE, -1, 100), (1, 0, REDUCE, -1, 200))) == []


def test_groups_count_on_their_own():
    found = matched((0, 0, REDUCE, 1), (0, 7, REDUCE, 1), (1, 0, REDUCE, 1), (2, 7, REDUCE, 1))
    assert instances(found) == [[0, 2], [1, 3]]


def test_several_kernels_of_one_call_match_in_turn():
    found = matched((0, 0, REDUCE, 1), (0, 0, REDUCE, 1), (1, 0, REDUCE, 1), (1, 0, REDUCE, 1))
    assert instances(found) == [[0, 2], [1, 3]]


def test_a_number_used_for_two_kinds_is_ambiguous():
    found = matched((0, 0, REDUCE, 1), (1, 0, GATHER, 1), (0, 0, REDUCE, 2), (1, 0, REDUCE, 2))
    assert instances(found) == [[2, 3]]
    assert found.counts() == {"order within the group is ambiguous": 2}


def test_by_order_where_no_number_is_told():
    found = matched((0, 0, REDUCE), (0, 0, GATHER), (1, 0, REDUCE), (1, 0, GATHER))
    assert instances(found) == [[0, 2], [1, 3]]


def test_a_window_that_begins_one_earlier_shifts_nobody():
    found = matched(
        (0, 0, REDUCE, -1, 8),
        (0, 0, REDUCE, -1, 16),
        (0, 0, REDUCE, -1, 32),
        (1, 0, REDUCE, -1, 16),
        (1, 0, REDUCE, -1, 32),
    )
    assert instances(found) == [[1, 3], [2, 4]]
    assert found.counts() == {"no other rank's trace has it": 1}


def test_equal_calls_of_which_one_is_lost_are_ambiguous_not_guessed():
    found = matched((0, 0, REDUCE), (0, 0, REDUCE), (1, 0, REDUCE))
    assert instances(found) == []
    assert found.counts() == {"no other rank's trace has it": 2, "order within the group is ambiguous": 1}


def test_steps_tell_equal_calls_apart():
    """Both ranks have two equal calls, but rank 1's capture begins and ends a step later."""
    found = matched(
        (0, 0, REDUCE, -1, 8, 1), (0, 0, REDUCE, -1, 8, 2), (1, 0, REDUCE, -1, 8, 2), (1, 0, REDUCE, -1, 8, 3)
    )
    assert instances(found) == [[1, 2]]


def test_what_can_not_be_matched_is_counted():
    odd = rows((0, -1, REDUCE), (0, 3, -1), (0, 4, REDUCE), (0, -1, SEND))
    odd.size[2] = 1
    assert match(odd, (SEND, RECV)).counts() == {
        "its process group is unknown": 1,
        "its process group has one rank": 1,
        "its kind is unknown": 1,
        "its peer is unknown": 1,
    }


def test_sends_and_receives_pair_by_lane_and_order():
    pairs = rows((0, -1, SEND), (0, -1, SEND), (1, -1, RECV), (1, -1, RECV), (1, -1, SEND), (0, -1, RECV))
    pairs.source[:] = [0, 0, 0, 0, 1, 1]
    pairs.target[:] = [1, 1, 1, 1, 0, 0]
    found = match(pairs, (SEND, RECV))
    assert instances(found) == [[0, 2], [1, 3], [4, 5]]
    assert found.expected.tolist() == [2, 2, 2]


@pytest.mark.parametrize(("source", "target"), [(0, -1), (-1, 1), (-1, -1)])
def test_a_transfer_of_which_one_end_is_unknown_has_no_peer(source, target):
    pair = rows((0, -1, SEND), (1, -1, RECV))
    pair.source[:], pair.target[:] = source, target
    assert match(pair, (SEND, RECV)).counts() == {"its peer is unknown": 2}
    pair.source[:], pair.target[:] = 1, 0
    assert instances(match(pair, (SEND, RECV))) == [[0, 1]]


def test_transfers_the_other_way_are_others():
    pair = rows((0, -1, SEND), (1, -1, RECV))
    pair.source[:], pair.target[:] = [0, 1], [1, 0]
    assert match(pair, (SEND, RECV)).counts() == {"no other rank's trace has it": 2}


def test_instances_are_numbered_without_gaps():
    """Number 5 is rank 0's alone, group 1's number 6 three ranks'."""
    found = matched(
        (0, 0, REDUCE, 5), (0, 1, REDUCE, 6), (1, 1, REDUCE, 6), (2, 1, REDUCE, 6), (1, 3, GATHER, 7),
        (1, 2, GATHER, 8), (2, 2, GATHER, 8),
    )  # fmt: skip
    assert found.instance.tolist() == [-1, 0, 0, 0, -1, 1, 1]
    assert (found.present.tolist(), found.expected.tolist()) == ([3, 2], [2, 2])


def test_numbered_ordered_and_paired_rows_are_matched_apart():
    """Two instances by number, two by order, two by pair; each way begins to count anew."""
    made = rows(
        *((0, 0, REDUCE, 1), (0, 0, REDUCE, 2), (0, 1, REDUCE), (0, 1, REDUCE), (0, -1, SEND), (0, -1, SEND)),
        *((1, 0, REDUCE, 1), (1, 0, REDUCE, 2), (1, 1, REDUCE), (1, 1, REDUCE), (1, -1, RECV), (1, -1, RECV)),
    )
    pair = np.isin(made.kind, (SEND, RECV))
    made.source[pair], made.target[pair] = 0, 1
    found = match(made, (SEND, RECV))
    assert found.instance.tolist() == [0, 1, 2, 3, 4, 5] * 2
    assert found.present.tolist() == [2] * 6


def test_ambiguous_numbers_before_rows_in_order():
    """A number used for two kinds has no key; what is matched by order begins behind it."""
    found = matched((0, 0, REDUCE, 1), (0, 1, REDUCE), (1, 0, GATHER, 1), (1, 1, REDUCE))
    assert found.instance.tolist() == [-1, 0, -1, 0]


def test_what_no_other_rank_has_is_nobodys_though_two_such_rows_are_alike():
    """Ranks 1 and 2 each have a call of 32 bytes where rank 0, which has most, has none."""
    found = matched(
        *((0, 0, REDUCE, 4), (1, 0, REDUCE, 4)),
        *((0, 1, REDUCE, -1, 8), (0, 1, REDUCE, -1, 16), (0, 1, REDUCE, -1, 64)),
        *((1, 1, REDUCE, -1, 8), (1, 1, REDUCE, -1, 32)),
        *((2, 1, REDUCE, -1, 8), (2, 1, REDUCE, -1, 32)),
    )
    assert instances(found) == [[0, 1], [2, 5, 7]]
    assert found.counts() == {"no other rank's trace has it": 4}


def test_a_number_used_more_often_by_one_rank_is_ambiguous():
    found = matched((0, 0, REDUCE, 1), (0, 0, REDUCE, 1), (1, 0, REDUCE, 1), (1, 2, REDUCE, 1))
    assert instances(found) == []
    assert found.counts() == {
        "order within the group is ambiguous": 3,
        "no other rank's trace has it": 1,
    }


def test_kernels_of_one_call_need_the_same_kinds_in_the_same_order():
    found = matched((0, 0, REDUCE, 1), (0, 0, GATHER, 1), (1, 0, GATHER, 1), (1, 0, REDUCE, 1))
    assert found.counts() == {"order within the group is ambiguous": 4}


def test_no_rows():
    found = matched((0, 0, REDUCE))
    assert (instances(found), found.counts()) == ([], {"no other rank's trace has it": 1})
    assert (found.instance.tolist(), found.present.tolist(), found.expected.tolist()) == ([-1], [], [])
    nothing = np.empty(0, np.int64)
    none = match(Rows(*[nothing] * 9), (SEND, RECV))
    assert (none.counts(), none.present.tolist(), none.expected.tolist()) == ({}, [], [])


@given(st.lists(st.integers(0, 3), max_size=9), st.lists(st.integers(0, 3), max_size=9))
def test_common_is_a_longest_common_subsequence(a, b):
    lengths = np.zeros((len(a) + 1, len(b) + 1), int)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            lengths[i + 1, j + 1] = lengths[i, j] + 1 if x == y else max(lengths[i, j + 1], lengths[i + 1, j])
    pairs = common(a, b)
    assert len(pairs) == lengths[-1, -1]
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in pairwise(pairs))


def test_common_is_longest_of_all_short_sequences():
    """Of two kinds of calls, up to five of each rank."""
    short = [list(one) for length in range(6) for one in product((0, 1), repeat=length)]
    parts = [{tuple(p) for k in range(len(s) + 1) for p in combinations(s, k)} for s in short]
    for a, of_a in zip(short, parts, strict=True):
        for b, of_b in zip(short, parts, strict=True):
            pairs = common(a, b)
            assert len(pairs) == max(map(len, of_a & of_b))
            assert all(a[i] == b[j] for i, j in pairs)


@pytest.mark.parametrize(
    ("a", "b", "pairs"),
    [
        ([], [], []),
        ([1], [], []),
        ([], [1, 2], []),
        ([1], [2], []),
        ([1, 2, 3], [1, 2, 3], [(0, 0), (1, 1), (2, 2)]),
        ([1, 2, 3], [2, 3], [(1, 0), (2, 1)]),
        ([2, 3], [1, 2, 9, 3], [(0, 1), (1, 3)]),
        ([7, 1, 2], [1, 2, 8], [(1, 0), (2, 1)]),
        ([1, 2, 3, 4, 5, 6], [1, 3, 4, 6, 9], [(0, 0), (2, 1), (3, 2), (5, 3)]),
    ],
)
def test_the_only_longest_common_subsequence_is_found(a, b, pairs):
    assert common(a, b) == pairs


def test_of_no_collectives_none_contradict():
    nothing = np.empty(0, np.int64)
    assert contradictions(nothing, nothing, nothing, 5).tolist() == []


@pytest.mark.parametrize(("tolerance", "wrong"), [(0, [1]), (4, [1]), (5, [])])
def test_a_rank_that_left_before_another_came_contradicts(tolerance, wrong):
    instance = np.array([0, 0, 1, 1])
    starts, ends = np.array([0, 10, 0, 15]), np.array([12, 12, 10, 30])
    assert contradictions(instance, starts, ends, tolerance).tolist() == wrong
