# SPDX-License-Identifier: Apache-2.0
"""Bytes from rank to rank, worked out on paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.hand_made import collective, collectives_table

from cclbench.analyzers.view.exchanged import ExchangedBytes, exchanged_bytes

GROUPS = {"0-2": (0, 1, 2), "0-1": (0, 1)}


def found(*ranks: list[dict[str, Any]]) -> ExchangedBytes:
    tables = {
        rank: collectives_table(*(row | {"rank": rank} for row in rows)) for rank, rows in enumerate(ranks)
    }
    return exchanged_bytes(tables, GROUPS)


def call(kind: str, nbytes: int | None, group: str | None = None, **more: Any) -> dict[str, Any]:
    size = {"in_bytes": nbytes, "out_bytes": nbytes} if nbytes is not None else {}
    named = {"group": group, "group_size": len(GROUPS[group])} if group else {}
    return collective(kind, 0, 100, **named, **size, **more)


def test_collectives_are_spread_over_their_group() -> None:
    """An all-reduce of 300 among 3 sends 2 · 2/3 · 300 = 400 a rank, an all-to-all of 100 among 2 half."""
    rows = [call("all_reduce", 300, "0-2", wait_ns=60, transfer_ns=40), call("all_to_all", 100, "0-1")]
    told = found(rows, rows, rows[:1])
    assert told.sent_bytes.tolist() == [[0, 250, 200], [250, 0, 200], [200, 200, 0]]
    # only the all-reduce's transfer is known: 200 bytes in 40 ns
    np.testing.assert_allclose(told.pair_rates[0, 1:], 200 / 40e-9)
    assert told.left_out == {}


def test_sends_go_where_they_went_and_once() -> None:
    send = call("send", 64, src_rank=0, dst_rank=1, wait_ns=0, transfer_ns=100)
    recv = call("recv", 64, src_rank=0, dst_rank=1, wait_ns=0, transfer_ns=100)
    told = found([send], [recv, recv])
    assert told.sent_bytes[:2, :2].tolist() == [[0, 64], [0, 0]]
    # nobody has rank 2's trace: what is received from it counts
    lone = found([], [call("recv", 8, src_rank=2, dst_rank=1)])
    assert lone.sent_bytes[2].tolist() == [0, 8, 0]
    assert np.isnan(lone.pair_rates).all()


@pytest.mark.parametrize(
    ("kind", "each"), [("all_reduce", 600), ("all_gather", 300), ("reduce_scatter", 300), ("all_to_all", 300)]
)
def test_bytes_of_each_kind_by_nccl_tests_factors(kind: str, each: int) -> None:
    """Of 3 ranks each sends 4/3 of S, or 2/3, half of it to either other; S is the large side."""
    told = found([call(kind, None, "0-2", in_bytes=300, out_bytes=900)])
    assert told.sent_bytes.tolist() == [[0, each, each], [0, 0, 0], [0, 0, 0]]
    assert told.left_out == {}


def exchange(size: int, group: str = "0-1", **more: Any) -> dict[str, Any]:
    return call("all_to_all", size, group, **more)


def test_only_calls_whose_transfer_is_known_are_timed() -> None:
    told = found([exchange(100, transfer_ns=10), exchange(40, transfer_ns=30), exchange(7)])
    assert (told.sent_bytes[0, 1], told.timed_bytes[0, 1]) == ((100 + 40 + 7) / 2, 70)
    assert told.seconds[0, 1] == pytest.approx(40e-9)
    assert told.pair_rates[0, 1] == pytest.approx(70 / 40e-9)
    assert np.isnan(told.pair_rates[1, 0])
    # A transfer of no time is known and has no rate.
    instant = exchange(100, transfer_ns=0)
    told = found([instant])
    assert (told.timed_bytes[0, 1], told.seconds[0, 1]) == (50, 0)
    assert np.isnan(told.pair_rates[0, 1])
    assert found([instant, exchange(60, transfer_ns=20)]).pair_rates[0, 1] == pytest.approx(80 / 20e-9)


def test_several_groups_and_kinds_of_a_rank_add_up() -> None:
    rows = [
        exchange(100),
        call("all_gather", 100, "0-1"),
        exchange(300, "0-2"),
        call("all_reduce", 30, "0-2"),
    ]
    assert found(rows).sent_bytes[0].tolist() == [0, 50 + 50 + 100 + 20, 120]


def test_ranks_are_those_of_traces_and_of_groups_in_order() -> None:
    sends = [call("send", size, src_rank=9, dst_rank=to) for size, to in ((6, 2), (8, 4))]
    told = exchanged_bytes({9: collectives_table(*sends), 4: collectives_table()}, {"2,4": (2, 4)})
    assert told.ranks.tolist() == [2, 4, 9]
    assert told.sent_bytes.tolist() == [[0, 0, 0], [0, 0, 0], [6, 8, 0]]


def test_a_receive_counts_where_its_source_has_no_trace() -> None:
    """Ranks 0 and 1 have traces; each receives from the other and from 2."""
    from_two = [call("recv", n, src_rank=2, dst_rank=0, transfer_ns=ns) for n, ns in ((7, 14), (8, 6))]
    first = [call("recv", 5, src_rank=1, dst_rank=0), *from_two]
    told = found(first, [call("recv", 9, src_rank=2, dst_rank=1)])
    assert told.sent_bytes.tolist() == [[0, 0, 0], [0, 0, 0], [15, 9, 0]]
    assert told.pair_rates[2, 0] == pytest.approx(15 / 20e-9)


def test_what_a_rank_sends_to_itself_is_no_exchange_nor_is_a_group_of_one() -> None:
    told = found([call("send", 5, src_rank=0, dst_rank=0, transfer_ns=5), exchange(10, transfer_ns=3)])
    for array in (told.sent_bytes, told.timed_bytes, told.seconds):
        assert (array[0, 0], array[0, 1] > 0) == (0, True)
    # A group of one rank exchanges nothing.
    table = collectives_table(call("all_reduce", 8) | {"group": "0"})
    assert exchanged_bytes({0: table}, {"0": (0,)}).sent_bytes.tolist() == [[0]]


NO_RANKS = "of unknown ranks or root"
ALONE = {"group": "0", "group_size": 1}


@pytest.mark.parametrize(
    ("row", "left_out"),
    [
        (call("all_reduce", 8, "0-1"), {}),
        (call("all_reduce", 8, "0-1", src_rank=0, dst_rank=1), {}),
        (call("all_reduce", None, "0-1"), {"of unknown payload": 1}),
        # A transfer without its target or source; ranks are numbered from 0 on.
        *((call("send", 8, src_rank=0), {NO_RANKS: 1}), (call("recv", 8, dst_rank=0), {NO_RANKS: 1})),
        (call("send", None, src_rank=0, dst_rank=1), {"of unknown payload": 1}),
        (call("send", 8, src_rank=1, dst_rank=0), {}),
        # A group whose ranks nobody lists, or no group, or a root.
        (call("all_reduce", 8) | {"group": "0-7", "group_size": 8}, {NO_RANKS: 1}),
        *((call("all_reduce", 8), {NO_RANKS: 1}), (call("broadcast", 8, "0-1"), {NO_RANKS: 1})),
        (call("reduce", 8, "0-1"), {NO_RANKS: 1}),
        # Nothing is exchanged in a barrier or in a group of one.
        *((call("barrier", size, "0-1"), {}) for size in (None, 8)),
        *((call("all_reduce", size) | ALONE, {}) for size in (None, 8)),
    ],
)
def test_what_is_left_out_by_why(row: dict[str, Any], left_out: dict[str, int]) -> None:
    told = found([row])
    assert told.left_out == left_out
    assert not (left_out and told.sent_bytes.any())
    assert found([row, row]).left_out == {why: 2 * number for why, number in left_out.items()}
