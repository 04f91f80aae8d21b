# SPDX-License-Identifier: Apache-2.0
"""Collectives of several ranks matched; sequences of kernels aligned, against every path."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cclbench.ground.intervals import Int64
from cclbench.normalize import matching
from cclbench.normalize.alignment import longest_common_subsequence
from cclbench.normalize.kernel_alignment import align_kernels
from cclbench.normalize.matching import CALLS, contradicting_instances, match
from cclbench.record.database import database

SEND, RECV, REDUCE, GATHER = "send", "recv", "all_reduce", "all_gather"


AMBIGUOUS, NOBODYS = "order within the group is ambiguous", "no other rank's trace has it"


def call(rank, group, kind, seq=None, size=100, step=None):
    """A call of a group of two ranks, or of which something is unknown."""
    known = {"rank": rank, "process_group": group, "size": 2, "kind": kind, "seq": seq, "bytes": size}
    return {**known, "step": step, "source": None, "target": None}


def match_calls(calls):
    """Match calls, a rank's in order of their start."""
    return insert_and_match([one | {"row": i, "start_ns": i, "end_ns": i + 1} for i, one in enumerate(calls)])


def insert_and_match(columns):
    with database() as connection:
        connection.execute(CALLS)
        if columns:
            table = pa.Table.from_pylist(columns)
            connection.register("given", table)
            rows = "SELECT * REPLACE (kind::collective_kind AS kind) FROM given"
            connection.execute(f"INSERT INTO calls BY NAME {rows}")
        return match(connection)


def matched(*made):
    return match_calls([call(*row) for row in made])


def pairs(*made):
    """Calls from (rank, kind, source, target)."""
    return match_calls(
        [call(rank, None, kind) | {"source": source, "target": target} for rank, kind, source, target in made]
    )


def instances(found):
    """Rows of each instance."""
    members = {}
    for row, instance in zip(found.row.tolist(), found.instance.tolist(), strict=True):
        members.setdefault(instance, []).append(row)
    return sorted(members.values())


def by_row(found):
    return dict(zip(found.row.tolist(), found.instance.tolist(), strict=True))


def sizes(found):
    return found.present.tolist(), found.expected.tolist()


def spoken(text):
    """Calls like `0 R #5 /7 8B @1`: a rank's reduction or gathering, by number, group, bytes and step.

    Of which a number and a step may be unknown, the group is 0 and bytes are 100.
    """
    for one in text.split(", ") if text else ():
        rank, kind, *more = one.split()
        told = {word.strip("0123456789"): int(word.strip("#/B@")) for word in more}
        kind = {"R": REDUCE, "G": GATHER}[kind]
        yield int(rank), told.get("/", 0), kind, told.get("#"), told.get("B", 100), told.get("@")


@pytest.mark.parametrize(
    ("calls", "found", "unmatched"),
    [
        # By sequence number in any order; number 0 is one, and what has none differs by its bytes.
        ("0 R #5, 0 R #6, 1 R #6, 1 R #5", [[0, 3], [1, 2]], {}),
        ("0 R #0 100B, 1 R #0 200B", [[0, 1]], {}),
        ("0 R 100B, 1 R 200B", [], {NOBODYS: 2}),
        # As all-gathers and reduce-scatters of FSDP do: each kind by its own order, on every rank.
        (
            "0 G @0, 0 R @0, 0 G @0, 0 R @0, 1 G @0, 1 G @0, 1 R @0, 1 R @0",
            *([[0, 4], [1, 6], [2, 5], [3, 7]], {}),
        ),
        # Of the reductions one rank has three, which may be any of its own; without steps all may shift.
        ("0 G @0, 0 R @0, 0 R @0, 0 R @0, 1 R @0, 1 G @0, 1 R @0", *([[0, 5]], {NOBODYS: 3, AMBIGUOUS: 2})),
        ("0 G, 0 R, 0 G, 1 R, 1 G, 1 G", [], None),
        # Groups count on their own; several kernels of one call match in turn.
        ("0 R #1, 0 R #1 /7, 1 R #1, 2 R #1 /7", [[0, 2], [1, 3]], {}),
        ("0 R #1, 0 R #1, 1 R #1, 1 R #1", [[0, 2], [1, 3]], {}),
        # A number used for two kinds, more often by one rank, or in another order is ambiguous.
        ("0 R #1, 1 G #1, 0 R #2, 1 R #2", [[2, 3]], {AMBIGUOUS: 2}),
        ("0 R #1, 0 R #1, 1 R #1, 1 R #1 /2", [], {AMBIGUOUS: 3, NOBODYS: 1}),
        ("0 R #1, 0 G #1, 1 G #1, 1 R #1", [], {AMBIGUOUS: 4}),
        # By order where no number is told; a window that begins one earlier shifts nobody.
        ("0 R, 0 G, 1 R, 1 G", [[0, 2], [1, 3]], {}),
        ("0 R 8B, 0 R 16B, 0 R 32B, 1 R 16B, 1 R 32B", [[1, 3], [2, 4]], {NOBODYS: 1}),
        # Of equal calls one is lost: ambiguous, not guessed; steps tell them apart.
        ("0 R, 0 R, 1 R", [], {NOBODYS: 2, AMBIGUOUS: 1}),
        ("0 R @1, 0 R @2, 1 R @2, 1 R @3", [[1, 2]], None),
        # Ranks 1 and 2 each have a call of 32 bytes where rank 0, which has most, has none.
        (
            "0 R #4, 1 R #4, 0 R /1 8B, 0 R /1 16B, 0 R /1 64B, 1 R /1 8B, 1 R /1 32B, 2 R /1 8B, 2 R /1 32B",
            *([[0, 1], [2, 5, 7]], {NOBODYS: 4}),
        ),
        *(("0 R", [], {NOBODYS: 1}), ("", [], {})),
    ],
)
def test_calls_that_are_one_instance(calls, found, unmatched):
    told = matched(*spoken(calls))
    assert instances(told) == found
    assert unmatched is None or told.unmatched == unmatched
    assert sizes(told) == ([len(rows) for rows in found], [2] * len(found))


def test_what_can_not_be_matched_is_counted():
    alone = call(0, 4, REDUCE) | {"size": 1}
    odd = [call(0, None, REDUCE), call(0, 3, None), alone, call(0, None, SEND)]
    known = {"its process group is unknown": 1, "its process group has one rank": 1, "its kind is unknown": 1}
    known |= {"its peer is unknown": 1}
    assert match_calls(odd).unmatched == known


def test_sends_and_receives_pair_by_lane_and_order():
    found = pairs(
        (0, SEND, 0, 1), (0, SEND, 0, 1), (1, RECV, 0, 1), (1, RECV, 0, 1), (1, SEND, 1, 0), (0, RECV, 1, 0)
    )  # fmt: skip
    assert instances(found) == [[0, 2], [1, 3], [4, 5]]
    assert found.expected.tolist() == [2, 2, 2]
    assert instances(pairs((0, SEND, 1, 0), (1, RECV, 1, 0))) == [[0, 1]]
    # Transfers the other way are others; one of which an end is unknown has no peer.
    assert pairs((0, SEND, 0, 1), (1, RECV, 1, 0)).unmatched == {NOBODYS: 2}
    for ends in ((0, None), (None, 1), (None, None)):
        assert pairs((0, SEND, *ends), (1, RECV, *ends)).unmatched == {"its peer is unknown": 2}


def test_instances_are_numbered_without_gaps():
    """Number 5 is rank 0's alone, group 1's number 6 three ranks'."""
    found = matched(
        (0, 0, REDUCE, 5), (0, 1, REDUCE, 6), (1, 1, REDUCE, 6), (2, 1, REDUCE, 6), (1, 3, GATHER, 7),
        (1, 2, GATHER, 8), (2, 2, GATHER, 8)
    )  # fmt: skip
    assert by_row(found) == {1: 0, 2: 0, 3: 0, 5: 1, 6: 1}
    assert sizes(found) == ([3, 2], [2, 2])


def test_numbered_ordered_and_paired_rows_are_matched_apart():
    """Two instances by number, two by order, two by pair; each way begins to count anew."""
    own = [(0, REDUCE, 1), (0, REDUCE, 2), (1, REDUCE, None), (1, REDUCE, None)]
    ends = {"source": 0, "target": 1}
    made = [
        one
        for rank, kind in ((0, SEND), (1, RECV))
        for one in (*(call(rank, *each) for each in own), *[call(rank, None, kind) | ends] * 2)
    ]
    found = match_calls(made)
    assert by_row(found) == dict(enumerate([0, 1, 2, 3, 4, 5] * 2))
    assert found.present.tolist() == [2] * 6
    # A number used for two kinds has no key; what is matched by order begins behind it.
    found = matched((0, 0, REDUCE, 1), (0, 1, REDUCE), (1, 0, GATHER, 1), (1, 1, REDUCE))
    assert by_row(found) == {1: 0, 3: 0}


def test_many_groups_without_numbers_of_which_a_rank_has_more_calls(monkeypatch):
    """Rank 1 has two calls of each group where rank 0 has one: nobody can tell which of them that is."""
    monkeypatch.setattr(matching, "_LANES", matching._LANES.replace(str(matching.ALIGNED_ROWS), "64"))
    groups = range(100)
    found = matched(*((0, g, REDUCE) for g in groups), *((1, g, REDUCE) for g in groups for _ in range(2)))
    assert found.unmatched == {NOBODYS: 200, AMBIGUOUS: 100}


@pytest.mark.parametrize("seed", range(3))
def test_the_order_in_which_rows_are_given_changes_nothing(seed):
    """Six ranks, in pairs and all together, some calls lost, in an order of the table that is random."""
    random = np.random.default_rng(seed)
    columns = [
        call(rank, group, REDUCE, number if number % 3 else None, int(random.integers(1, 3)), number // 50)
        | {"row": rank << 32 | place, "start_ns": 1000 * number, "end_ns": 1000 * number + 10}
        for rank in range(6)
        for place, number in enumerate(np.flatnonzero(random.random(400) > 0.01).tolist())
        for group in [rank // 2 if number % 2 else 9]
    ]
    found = [insert_and_match(order) for order in (columns, random.permutation(columns).tolist())]
    assert len(found[0].present) > 500
    for name in ("row", "instance", "start_ns", "present", "expected"):
        assert getattr(found[0], name).tolist() == getattr(found[1], name).tolist()
    assert found[0].unmatched == found[1].unmatched


@given(st.lists(st.integers(0, 3), max_size=9), st.lists(st.integers(0, 3), max_size=9))
def test_common_is_a_longest_common_subsequence(a, b):
    lengths = np.zeros((len(a) + 1, len(b) + 1), int)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            lengths[i + 1, j + 1] = lengths[i, j] + 1 if x == y else max(lengths[i, j + 1], lengths[i + 1, j])
    pairs = longest_common_subsequence(a, b)
    assert len(pairs) == lengths[-1, -1]
    assert all(a[i] == b[j] for i, j in pairs)
    assert all(i < k and j < m for (i, j), (k, m) in pairwise(pairs))


@pytest.mark.parametrize(("tolerance", "wrong"), [(0, [1]), (4, [1]), (5, [])])
def test_a_rank_that_left_before_another_came_contradicts(tolerance, wrong):
    rows = np.array([[0, 0, 1, 1], [0, 10, 0, 15], [12, 12, 10, 30]])
    assert contradicting_instances(*rows, tolerance).tolist() == wrong
    assert contradicting_instances(*rows[:, :0], tolerance).tolist() == []


SEQUENCES = st.lists(st.integers(0, 3), max_size=8)


def codes(values: list[int] | str) -> Int64:
    return np.array([ord(value) if isinstance(value, str) else value for value in values], np.int64)


def least_differences(a: list[int], b: list[int]) -> dict[tuple[int, int], int]:
    """Least differences of all pairs of beginnings, by the textbook's recurrence."""
    table: dict[tuple[int, int], int] = {}
    for i in range(len(a) + 1):
        for j in range(len(b) + 1):
            ways = [table[i - 1, j] + 1] if i else []
            ways += [table[i, j - 1] + 1] if j else []
            ways += [table[i - 1, j - 1]] if i and j and a[i - 1] == b[j - 1] else []
            table[i, j] = min(ways, default=0)
    return table


@given(SEQUENCES, SEQUENCES)
def test_a_pair_is_certain_if_all_best_alignments_have_it(a: list[int], b: list[int]) -> None:
    n, m = len(a), len(b)
    before, after = least_differences(a, b), least_differences(a[::-1], b[::-1])
    least = before[n, m]
    alignment = align_kernels(codes(a), codes(b))
    assert len(alignment.a) == (n + m - least) // 2
    assert [a[i] for i in alignment.a] == [b[j] for j in alignment.b]
    assert (np.diff(alignment.a) > 0).all()
    assert (np.diff(alignment.b) > 0).all()
    partners: dict[int, set[int | None]] = {j: set() for j in range(m)}
    for j in range(m):
        for i in range(n + 1):
            if before[i, j] + 1 + after[n - i, m - j - 1] == least:
                partners[j].add(None)
            if i < n and a[i] == b[j] and before[i, j] + after[n - i - 1, m - j - 1] == least:
                partners[j].add(i)
    certain = alignment.certain(np.arange(n))
    assert certain.tolist() == [len(partners[j]) == 1 for j in alignment.b.tolist()]
    assert align_kernels(codes(a), codes(b), least - 1) is None or not least


def test_of_equal_kernels_nobody_knows_which_is_missing() -> None:
    """q, k and v have one kernel: of the three one has no row, and the norm before is as it was."""
    alignment = align_kernels(codes("nqqqs"), codes("nqqs"))
    assert alignment.certain(np.arange(5)).tolist() == [True, False, False, True]
    assert alignment.certain(np.array([0, 1, 1, 1, 2])).tolist() == [True, True, True, True]


@pytest.mark.parametrize("a", ["equal", "periodic", "random"])
def test_long_sequences_take_bounded_work(a: str) -> None:
    length = 100_000
    kernels = {
        "equal": np.zeros(length, np.int64),
        "periodic": np.arange(length) % 20,
        "random": np.random.default_rng(0).integers(0, 50, length),
    }[a]
    alignment = align_kernels(kernels, np.delete(kernels, np.arange(0, length, length // 200)))
    assert len(alignment.a) == length - 200
    assert align_kernels(kernels, np.flip(kernels) + 1) is None
