# SPDX-License-Identifier: Apache-2.0
"""Bytes that each rank sends to each other rank, and their rates, from payloads and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.view.collectives import collective_kinds, collective_payloads, group_sizes
from cclbench.analyzers.view.columns import word_codes
from cclbench.classify import bus_factor
from cclbench.ground.intervals import Int64, Mask

Float = npt.NDArray[np.float64]

SPREAD: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Kinds in which all ranks send the same amount, which is spread evenly over the group."""
_NS_PER_S: Final = 10**9


@dataclass(frozen=True, slots=True, eq=False)
class ExchangedBytes:
    """Bytes from the rank of a row to that of a column; arrays of shape (ranks, ranks).

    `timed_bytes`: of calls with a known transfer time; `seconds`: sum of these times.
    """

    ranks: Int64
    sent_bytes: Float
    timed_bytes: Float
    seconds: Float
    left_out: Mapping[str, int]
    """Counts of collectives of unknown payload or ranks, by reason."""

    @property
    def pair_rates(self) -> Float:
        """Bytes/s of each pair during the transfers that carry its bytes; NaN where unknown."""
        has_time = self.seconds > 0
        return np.where(has_time, self.timed_bytes / np.where(has_time, self.seconds, 1.0), np.nan)


def exchanged_bytes(tables: Mapping[int, pa.Table], members: Mapping[str, tuple[int, ...]]) -> ExchangedBytes:
    """Exchanged bytes from each rank's rows of `schema.COLLECTIVES` and the ranks of each process group.

    A send counts S from source to target, a receive only where the source has no trace. In an all_reduce,
    all_gather, reduce_scatter or all_to_all each rank sends S times the factor of nccl-tests, spread evenly
    over the others, since no trace states the algorithm.
    """
    all_ranks = sorted({*tables, *(rank for group in members.values() for rank in group)})
    index_of = {rank: i for i, rank in enumerate(all_ranks)}
    sums = np.zeros((3, len(all_ranks), len(all_ranks)))
    left_out: Counter[str] = Counter()
    for rank, table in tables.items():
        for receivers, shares, row in _receiver_shares(rank, table, members, set(tables), left_out):
            sums[:, index_of[row], [index_of[receiver] for receiver in receivers]] += shares[:, None]
    np.einsum("kii->ki", sums)[:] = 0
    return ExchangedBytes(np.array(all_ranks, np.int64), sums[0], sums[1], sums[2], +left_out)


def _receiver_shares(
    rank: int,
    table: pa.Table,
    members: Mapping[str, tuple[int, ...]],
    traced: set[int],
    left_out: Counter[str],
) -> list[tuple[tuple[int, ...], Float, int]]:
    """Receivers; bytes, timed bytes and seconds of each; and the sender."""
    size, has_size = collective_payloads(table)
    kind, ranks = collective_kinds(table), group_sizes(table)
    transfer = table["transfer_ns"].fill_null(-1).to_numpy()
    group, names = word_codes(table, "group")
    spread = np.isin(kind, SPREAD)
    pair = np.isin(kind, ("send", "recv"))
    source, target = (table[name].fill_null(-1).to_numpy() for name in ("src_rank", "dst_rank"))
    several = (ranks != 1) & (kind != "barrier")
    has_group = np.array([name in members for name in names], np.bool_)[group] if len(names) else spread
    usable = has_size & np.where(pair, (source >= 0) & (target >= 0), spread & has_group)
    left_out["of unknown payload"] += int((several & ~has_size).sum())
    left_out["of unknown ranks or root"] += int((several & has_size & ~usable).sum())
    shares = []
    for group_code in np.unique(group[usable & spread]).tolist():
        for spread_kind in SPREAD:
            chosen = usable & (group == group_code) & (kind == spread_kind)
            ranked = members[str(names[group_code])]
            if chosen.any() and len(ranked) > 1:
                share = bus_factor(spread_kind, len(ranked)) / (len(ranked) - 1)
                shares.append((ranked, _byte_sums(size, transfer, chosen, share), rank))
    for sends in (True, False):
        chosen = usable & pair & (kind == ("send" if sends else "recv"))
        for peer in np.unique((target if sends else source)[chosen]).tolist():
            to_other = chosen & ((target if sends else source) == peer)
            if sends:
                shares.append(((peer,), _byte_sums(size, transfer, to_other, 1.0), rank))
            elif peer not in traced:
                shares.append(((rank,), _byte_sums(size, transfer, to_other, 1.0), peer))
    return shares


def _byte_sums(size: Int64, transfer: Int64, chosen: Mask, share: float) -> Float:
    """Bytes, bytes with a known transfer time, and these times in s, of the chosen rows."""
    timed = chosen & (transfer >= 0)
    return np.array(
        [size[chosen].sum() * share, size[timed].sum() * share, transfer[timed].sum() / _NS_PER_S]
    )
