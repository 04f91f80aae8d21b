# SPDX-License-Identifier: Apache-2.0
"""Bytes from rank to rank, worked out on paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers.hand_made import collective

from cclbench.analyzers.view.exchanged import ExchangedBytes, exchanged_bytes
from cclbench.ground.schema import COLLECTIVES

GROUPS = {"0-2": (0, 1, 2), "0-1": (0, 1)}


def found(*ranks: list[dict[str, Any]]) -> ExchangedBytes:
    tables = {
        rank: pa.Table.from_pylist(
            [{"collective": i, "rank": rank, "library": "nccl", **row} for i, row in enumerate(rows)],
            schema=COLLECTIVES,
        )
        for rank, rows in enumerate(ranks)
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


def test_what_is_not_told_is_counted() -> None:
    told = found([call("all_reduce", None, "0-1"), call("broadcast", 8, "0-1"), call("all_reduce", 8)])
    assert not told.sent_bytes.any()
    assert told.left_out == {"of unknown payload": 1, "of unknown ranks or root": 2}


def test_bytes_of_each_kind_by_nccl_tests_factors() -> None:
    """Of 3 ranks each sends 4/3 of S, or 2/3, half of it to either other; S is the large side."""
    sides = {"in_bytes": 300, "out_bytes": 900}
    for kind, each in (
        ("all_reduce", 600),
        ("all_gather", 300),
        ("reduce_scatter", 300),
        ("all_to_all", 300),
    ):
        told = found([call(kind, None, "0-2", **sides)])
        assert told.sent_bytes.tolist() == [[0, each, each], [0, 0, 0], [0, 0, 0]], kind
        assert told.left_out == {}


def test_only_calls_whose_transfer_is_known_are_timed() -> None:
    rows = [
        call("all_to_all", 100, "0-1", transfer_ns=10),
        call("all_to_all", 40, "0-1", transfer_ns=30),
        call("all_to_all", 7, "0-1"),
    ]
    told = found(rows)
    assert told.sent_bytes[0, 1] == (100 + 40 + 7) / 2
    assert told.timed_bytes[0, 1] == 70
    assert told.seconds[0, 1] == pytest.approx(40e-9)
    assert told.pair_rates[0, 1] == pytest.approx(70 / 40e-9)
    assert np.isnan(told.pair_rates[1, 0])


def test_a_transfer_of_no_time_is_known_and_has_no_rate() -> None:
    rows = [call("all_to_all", 100, "0-1", transfer_ns=0)]
    told = found(rows)
    assert (told.timed_bytes[0, 1], told.seconds[0, 1]) == (50, 0)
    assert np.isnan(told.pair_rates[0, 1])
    more = found([*rows, call("all_to_all", 60, "0-1", transfer_ns=20)])
    assert more.pair_rates[0, 1] == pytest.approx(80 / 20e-9)


def test_several_groups_and_kinds_of_a_rank_add_up() -> None:
    rows = [
        call("all_to_all", 100, "0-1"),
        call("all_gather", 100, "0-1"),
        call("all_to_all", 300, "0-2"),
        call("all_reduce", 30, "0-2"),
    ]
    assert found(rows).sent_bytes[0].tolist() == [0, 50 + 50 + 100 + 20, 120]


def test_ranks_are_those_of_traces_and_of_groups_in_order() -> None:
    def of(*rows: dict[str, Any]) -> pa.Table:
        given = {"collective": 0, "rank": 0, "library": "nccl"}
        return pa.Table.from_pylist([given | row for row in rows], schema=COLLECTIVES)

    sends = of(call("send", 6, src_rank=9, dst_rank=2), call("send", 8, src_rank=9, dst_rank=4))
    told = exchanged_bytes({9: sends, 4: of()}, {"2,4": (2, 4)})
    assert told.ranks.tolist() == [2, 4, 9]
    assert told.sent_bytes.tolist() == [[0, 0, 0], [0, 0, 0], [6, 8, 0]]


def test_a_receive_counts_where_its_source_has_no_trace() -> None:
    """Ranks 0 and 1 have traces; each receives from the other and from 2."""
    pair = [
        call("recv", 5, src_rank=1, dst_rank=0),
        call("recv", 7, src_rank=2, dst_rank=0, transfer_ns=14),
        call("recv", 8, src_rank=2, dst_rank=0, transfer_ns=6),
    ]
    told = found(pair, [call("recv", 9, src_rank=2, dst_rank=1)])
    assert told.sent_bytes.tolist() == [[0, 0, 0], [0, 0, 0], [15, 9, 0]]
    assert told.pair_rates[2, 0] == pytest.approx(15 / 20e-9)


def test_what_a_rank_sends_to_itself_is_no_exchange() -> None:
    rows = [
        call("send", 5, src_rank=0, dst_rank=0, transfer_ns=5),
        call("all_to_all", 10, "0-1", transfer_ns=3),
    ]
    told = found(rows)
    for array in (told.sent_bytes, told.timed_bytes, told.seconds):
        assert (array[0, 0], array[0, 1] > 0) == (0, True)


@pytest.mark.parametrize(
    ("row", "left_out"),
    [
        (call("all_reduce", 8, "0-1"), {}),
        (call("all_reduce", 8, "0-1", src_rank=0, dst_rank=1), {}),
        # A transfer without its target or source.
        (call("send", 8, src_rank=0), {"of unknown ranks or root": 1}),
        (call("recv", 8, dst_rank=0), {"of unknown ranks or root": 1}),
        (call("send", None, src_rank=0, dst_rank=1), {"of unknown payload": 1}),
        # Ranks are numbered from 0 on.
        (call("send", 8, src_rank=1, dst_rank=0), {}),
        # A group whose ranks nobody lists, or no group.
        (call("all_reduce", 8) | {"group": "0-7", "group_size": 8}, {"of unknown ranks or root": 1}),
        (call("reduce", 8, "0-1"), {"of unknown ranks or root": 1}),
        # Nothing is exchanged in a barrier or in a group of one.
        (call("barrier", None, "0-1"), {}),
        (call("barrier", 8, "0-1"), {}),
        (call("all_reduce", None) | {"group": "0", "group_size": 1}, {}),
        (call("all_reduce", 8) | {"group": "0", "group_size": 1}, {}),
    ],
)
def test_what_is_left_out_by_why(row: dict[str, Any], left_out: dict[str, int]) -> None:
    assert found([row]).left_out == left_out
    assert found([row, row]).left_out == {why: 2 * number for why, number in left_out.items()}


def test_a_group_of_one_rank_exchanges_nothing() -> None:
    table = pa.Table.from_pylist(
        [{"collective": 0, "rank": 0, "library": "nccl", **call("all_reduce", 8)} | {"group": "0"}],
        schema=COLLECTIVES,
    )
    assert exchanged_bytes({0: table}, {"0": (0,)}).sent_bytes.tolist() == [[0]]
