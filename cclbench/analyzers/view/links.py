# SPDX-License-Identifier: Apache-2.0
"""The devices that meet in each collective, as the machine numbers them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from cclbench.analyzers.view.columns import codes
from cclbench.analyzers.view.rank_view import RankView
from cclbench.hardware.system import System
from cclbench.intervals import Int64
from cclbench.schema import group_id

_RANGE: Final = re.compile(r"(\d{1,9})-(\d{1,9})(?::(\d{1,9}))?")
_LIST: Final = re.compile(r"\d{1,9}(?:,\d{1,9})*")


def devices_of(rank: RankView, table: pa.Table, system: System) -> tuple[list[Sequence[int] | str], Int64]:
    """The devices that meet in each collective, once each: a group's, or a transfer's two; and which it is.

    A text says why they are not known.
    """
    group, names = codes(table, "group")
    pair = np.stack(
        [table[end].cast(pa.int64()).fill_null(-1).to_numpy() for end in ("src_rank", "dst_rank")]
    )
    pair[:, (pair < 0).any(axis=0)] = -1
    group = np.where(pair[0] < 0, group, -1)
    keys, row = np.unique(np.stack([group, *pair]), axis=1, return_inverse=True)
    listed = {group_id(g.ranks): g.ranks for g in rank.facts.groups if g.ranks}
    found: list[Sequence[int] | str] = []
    for number, source, target in keys.T.tolist():
        ranks = (source, target) if source >= 0 else _ranks(names[number], listed)
        devices = rank.machine.numbered_in(system, ranks) if ranks else None
        found.append(devices or ("whose nodes are not known" if ranks else "whose ranks are not known"))
    return found, row.reshape(-1)


def _ranks(name: str | None, listed: dict[str, tuple[int, ...]]) -> Sequence[int]:
    """The ranks of a group's id (see `schema.group_id`); none where it only abbreviates them."""
    if name is None or name in listed:
        return listed.get(name or "", ())
    if match := _RANGE.fullmatch(name):
        return range(int(match[1]), int(match[2]) + 1, int(match[3] or 1))
    return tuple(map(int, name.split(","))) if _LIST.fullmatch(name) else ()
