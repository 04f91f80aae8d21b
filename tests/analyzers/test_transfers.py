# SPDX-License-Identifier: Apache-2.0
"""The collectives that a bandwidth can be told of, and sums over them, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.hand_made import a_rank, collective, window

from cclbench.analyzers.metric import Coverage, NotApplicable, Unknown, Value
from cclbench.analyzers.view import transfers
from cclbench.analyzers.view.rank_view import RankView

PAIR = {"group": "0-1", "group_size": 2}
FOUR = {"group": "0-3", "group_size": 4}
WAITING = "from the collective's duration, which includes waiting for other ranks"
UNMATCHED = "not matched across their ranks"
KIND, SIZE, ALONE = ("of unknown kind, payload or duration", "of unknown group size", "in groups of one")


def call(kind: str | None, start: int, end: int, size: int | None = 8, **columns: Any) -> dict[str, Any]:
    """A collective in a pair; both sides are its size."""
    return collective(kind, start, end, **(PAIR | {"in_bytes": size, "out_bytes": size} | columns))


def rank(*calls: dict[str, Any], number: int = 0) -> RankView:
    return a_rank([], [window(0, 1000)], calls, rank=number)


USED = [call("all_reduce", 10, 60, 1000, transfer_ns=20), call("all_gather", 100, 140, 100, **FOUR)]
USED += [call("all_reduce", 150, 151, 1, transfer_ns=1)]
USELESS = [
    call("all_reduce", 200, 207, None),
    call("all_reduce", 210, 213, group_size=None),
    call("broadcast", 220, 225, group="0", group_size=1),
    call("all_reduce", 230, 239, 0),
    call(None, 240, 251),
    call("all_reduce", 260, 260),
    call("all_reduce", 270, 283, transfer_ns=0),
    call("all_reduce", 290, 307, None, group_size=None),
    call("all_reduce", 310, 329, None, group_size=1),
]


def test_a_bandwidth_takes_kind_bytes_group_and_duration() -> None:
    found = transfers.timed_collectives(rank(call("barrier", 0, 5), *USELESS[:4], *USED, *USELESS[4:]))
    assert found.payload.tolist() == [1000, 100, 1]
    assert found.ns.tolist() == [20, 40, 1]
    assert found.matched.tolist() == [True, False, True]
    assert found.ranks.tolist() == [2, 4, 2]
    assert found.kinds.tolist() == ["all_reduce", "all_gather", "all_reduce"]
    assert found.table["start_ns"].to_pylist() == [10, 100, 150]
    assert found.left_out == {KIND: 6, SIZE: 1, ALONE: 2}
    assert found.unknown["start_ns"].to_pylist() == [200, 210, 230, 240, 260, 270, 290]


def test_without_a_usable_collective_there_is_a_reason() -> None:
    with pytest.raises(NotApplicable, match="there are no collectives in the window"):
        transfers.timed_collectives(rank(call("barrier", 0, 5)))
    known = "in the window has a known bandwidth: "
    with pytest.raises(Unknown, match=f"{known}2 of unknown kind, payload or") as unknown:
        transfers.timed_collectives(rank(USELESS[0], USELESS[2], USELESS[3]))
    assert unknown.value.coverage == Coverage(0, 2, 0, 7 + 9)
    with pytest.raises(NotApplicable, match=f"{known}1 in groups of one") as alone:
        transfers.timed_collectives(rank(USELESS[2]))
    assert not isinstance(alone.value, Unknown)
    # Nothing left out is not listed.
    found = transfers.timed_collectives(rank(*USED))
    assert (found.left_out, len(found.unknown)) == ({}, 0)


def test_what_is_narrowed_away_is_unknown_from_then_on() -> None:
    found = transfers.timed_collectives(rank(USELESS[0], *USED)).keep_rows(
        np.array([True, False, True]), {"for the test": 1}
    )
    assert (found.payload.tolist(), found.ns.tolist()) == ([1000, 1], [20, 1])
    assert (found.matched.tolist(), found.ranks.tolist()) == ([True, True], [2, 2])
    assert found.kinds.tolist() == ["all_reduce", "all_reduce"]
    assert found.table["start_ns"].to_pylist() == [10, 150]
    assert found.unknown["start_ns"].to_pylist() == [200, 100]
    assert found.left_out == {KIND: 1, "for the test": 1}


def sums(found: transfers.TimedCollectives, **more: Any) -> dict[Any, Value]:
    """Rates by kind, by kind and group, and by those and size."""
    moved, made = found.payload.astype(np.float64), {}
    for value in transfers.bandwidth_rates(found, moved, **more):
        about = tuple(one for one in (value.collective, value.group, value.category) if one)
        made[(about if len(about) > 1 else about[0]) if about else None] = value
    return made


def test_rates_of_all_by_kind_group_and_size() -> None:
    """In 20, 40 and 30 ns matched all-reduces of 1000, 2000 and 300 B; unmatched 1 in 5 and 9 in 7."""
    calls = [
        call("all_reduce", 0, 50, 1000, transfer_ns=20),
        call("all_reduce", 100, 160, 2000, transfer_ns=40),
        call("all_reduce", 200, 230, 300, transfer_ns=30, **FOUR),
        *(call("all_reduce", 300, 305, 1), call("broadcast", 400, 407, 9)),
        *(call("all_reduce", 500, 511, None), call("reduce", 600, 613, None)),
        call("broadcast", 700, 701, group_size=1),
    ]
    found = sums(transfers.timed_collectives(rank(*calls)))
    everything = found[None]
    assert everything.left_out == {UNMATCHED: 2, KIND: 2, ALONE: 1}
    assert everything.coverage == Coverage(3, 7, 50 + 60 + 30, 140 + 5 + 7 + 11 + 13)
    assert everything.reason is None
    bytes_in_ns = {
        None: (3300, 90),
        "all_reduce": (3300, 90),
        ("all_reduce", "0-1"): (3000, 60),
        ("all_reduce", "0-3"): (300, 30),
        ("all_reduce", "0-1", "256B-1KiB"): (1000, 20),
        ("all_reduce", "0-1", "1KiB-4KiB"): (2000, 40),
        ("all_reduce", "0-3", "256B-1KiB"): (300, 30),
        ("all_reduce", "0-1", "1B-4B"): (1, 5),
        **dict.fromkeys(["broadcast", ("broadcast", "0-1"), ("broadcast", "0-1", "4B-16B")], (9, 7)),
    }
    assert {key: (v.value, v.weight) for key, v in found.items()} == {
        key: (pytest.approx(moved / ns * 1e9), ns) for key, (moved, ns) in bytes_in_ns.items()
    }
    assert {v.provenance for v in found.values()} == {"derived"}
    assert found["all_reduce"].coverage == Coverage(3, 5, 140, 140 + 5 + 11)
    pair = found["all_reduce", "0-1"]
    assert (pair.left_out, pair.coverage) == ({UNMATCHED: 1}, Coverage(2, 4, 110, 110 + 5 + 11))
    sized = found["all_reduce", "0-1", "256B-1KiB"]
    # Nobody knows which range of sizes the collective of unknown size belongs to.
    assert (sized.left_out, sized.coverage, sized.status) == ({}, Coverage(1, 1, 50, 50), "ok")
    whole = found["broadcast"]
    assert (whole.left_out, whole.coverage, whole.reason) == ({}, Coverage(1, 1, 7, 7), WAITING)
    # What every figure rests on stands before what this one does.
    found = sums(transfers.timed_collectives(rank(*USED)), basis="so to say")
    assert found["all_gather"].reason == f"so to say; {WAITING}"
    assert found["all_reduce"].reason == "so to say"


@pytest.mark.parametrize(
    ("size", "words"),
    [
        *((1, "1B-4B"), (3, "1B-4B"), (4, "4B-16B"), (2**18 - 1, "64KiB-256KiB"), (2**18, "256KiB-1MiB")),
        *((2**20, "1MiB-4MiB"), (4**30, "1EiB-4EiB"), (4**31, "4EiB-16EiB")),
    ],
)
def test_ranges_of_sizes_are_powers_of_four(size: int, words: str) -> None:
    calls = [call("all_gather", 0, 1, 16), call("broadcast", 0, 1, 16), call("reduce", 0, 1, size)]
    found = sums(transfers.timed_collectives(rank(*calls)))
    expected = ["reduce", ("reduce", "0-1"), ("reduce", "0-1", words)]
    assert [key for key in found if "reduce" in (key or ())] == expected


def test_over_ranks_those_with_transfers_stand_for_all() -> None:
    """Ranks 0 and 2 transfer 1000 B in 20 ns and 500 in 30; rank 1 knows durations alone, and a broadcast."""
    ranks = {
        0: rank(call("all_reduce", 0, 60, 1000, transfer_ns=20)),
        1: rank(call("all_reduce", 0, 500, 1000), call("broadcast", 600, 610, 50), number=1),
        2: rank(call("all_reduce", 0, 70, 500, transfer_ns=30), call("all_reduce", 80, 89, 5), number=2),
    }
    told = {number: [*sums(transfers.timed_collectives(view)).values()] for number, view in ranks.items()}
    every = list(transfers.transfers_before_durations(told))
    found = {(v.collective, v.group): v for v in every if v.category is None}
    reduce = found["all_reduce", "0-1"]
    assert (reduce.value, reduce.left_out) == (pytest.approx(1500 / 50e-9), {UNMATCHED: 2})
    assert reduce.coverage == Coverage(2, 4, 130, 130 + 9 + 500)
    broadcast = found["broadcast", None]
    assert (broadcast.value, broadcast.left_out) == (pytest.approx(50 / 10e-9), {})
    assert broadcast.coverage == Coverage(1, 1, 10, 10)
    assert found[None, None].left_out == {UNMATCHED: 3}
    (sized,) = [v for v in every if v.category == "256B-1KiB"]
    assert (sized.value, sized.left_out) == (pytest.approx(1500 / 50e-9), {UNMATCHED: 1})
    assert sized.coverage == Coverage(2, 3, 130, 630)
