# SPDX-License-Identifier: Apache-2.0
"""Bytes from rank to rank, worked out on paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hand_made import collective

from cclbench.analyzers.view.exchanged import Exchanged, exchanged
from cclbench.schema import COLLECTIVES

GROUPS = {"0-2": (0, 1, 2), "0-1": (0, 1)}


def found(*ranks: list[dict[str, Any]]) -> Exchanged:
    tables = {
        rank: pa.Table.from_pylist(
            [{"collective": i, "rank": rank, "library": "nccl", **row} for i, row in enumerate(rows)],
            schema=COLLECTIVES,
        )
        for rank, rows in enumerate(ranks)
    }
    return exchanged(tables, GROUPS)


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
    np.testing.assert_allclose(told.rates[0, 1:], 200 / 40e-9)
    assert told.left_out == {}


def test_sends_go_where_they_went_and_once() -> None:
    send = call("send", 64, src_rank=0, dst_rank=1, wait_ns=0, transfer_ns=100)
    recv = call("recv", 64, src_rank=0, dst_rank=1, wait_ns=0, transfer_ns=100)
    told = found([send], [recv, recv])
    assert told.sent_bytes[:2, :2].tolist() == [[0, 64], [0, 0]]
    # nobody has rank 2's trace: what is received from it counts
    lone = found([], [call("recv", 8, src_rank=2, dst_rank=1)])
    assert lone.sent_bytes[2].tolist() == [0, 8, 0]
    assert np.isnan(lone.rates).all()


def test_what_is_not_told_is_counted() -> None:
    told = found([call("all_reduce", None, "0-1"), call("broadcast", 8, "0-1"), call("all_reduce", 8)])
    assert not told.sent_bytes.any()
    assert told.left_out == {"whose payload is not told": 1, "whose ranks or root are not told": 2}
