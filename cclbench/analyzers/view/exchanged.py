# SPDX-License-Identifier: Apache-2.0
"""How many bytes each rank sends to each other one, and how fast, as far as payloads and groups tell."""

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
"""Kinds in which every rank sends as much as any other; their bytes are spread evenly over the group."""
_NS_PER_S: Final = 10**9


@dataclass(frozen=True, slots=True, eq=False)
class ExchangedBytes:
    """Bytes from the rank of a row to that of a column, arrays of shape (ranks, ranks).

    `timed_bytes` are those of calls whose transfer is told from waiting, `seconds` Σ these transfers.
    """

    ranks: Int64
    sent_bytes: Float
    timed_bytes: Float
    seconds: Float
    left_out: Mapping[str, int]
    """Rows of collectives whose bytes, or whose ranks, nobody knows."""

    @property
    def pair_rates(self) -> Float:
        """Bytes/s of each pair while the calls that carry its bytes transfer; NaN where that is not known."""
        known = self.seconds > 0
        return np.where(known, self.timed_bytes / np.where(known, self.seconds, 1.0), np.nan)


def exchanged_bytes(tables: Mapping[int, pa.Table], members: Mapping[str, tuple[int, ...]]) -> ExchangedBytes:
    """Of each rank's rows of `schema.COLLECTIVES` and the ranks of each process group.

    A send counts S from its source to its target, a receive only where the source has no trace.  Of an
    all_reduce, all_gather, reduce_scatter or all_to_all each rank sends S times nccl-tests' factor, spread
    evenly over the others: which algorithm carried it, no trace tells.
    """
    everyone = sorted({*tables, *(rank for group in members.values() for rank in group)})
    place = {rank: i for i, rank in enumerate(everyone)}
    sums = np.zeros((3, len(everyone), len(everyone)))
    left_out: Counter[str] = Counter()
    for rank, table in tables.items():
        for others, shares, row in _receiver_shares(rank, table, members, set(tables), left_out):
            sums[:, place[row], [place[other] for other in others]] += shares[:, None]
    np.einsum("kii->ki", sums)[:] = 0
    return ExchangedBytes(np.array(everyone, np.int64), sums[0], sums[1], sums[2], +left_out)


def _receiver_shares(
    rank: int,
    table: pa.Table,
    members: Mapping[str, tuple[int, ...]],
    traced: set[int],
    left_out: Counter[str],
) -> list[tuple[tuple[int, ...], Float, int]]:
    """Receivers, the bytes, timed bytes and seconds of each of them, and who sends them."""
    size, known = collective_payloads(table)
    kind, ranks = collective_kinds(table), group_sizes(table)
    transfer = table["transfer_ns"].fill_null(-1).to_numpy()
    group, names = word_codes(table, "group")
    spread = np.isin(kind, SPREAD)
    pair = np.isin(kind, ("send", "recv"))
    source, target = (table[name].fill_null(-1).to_numpy() for name in ("src_rank", "dst_rank"))
    several = (ranks != 1) & (kind != "barrier")
    has_group = np.array([name in members for name in names], np.bool_)[group] if len(names) else spread
    usable = known & np.where(pair, (source >= 0) & (target >= 0), spread & has_group)
    left_out["whose payload is not told"] += int((several & ~known).sum())
    left_out["whose ranks or root are not told"] += int((several & known & ~usable).sum())
    found = []
    for one in np.unique(group[usable & spread]).tolist():
        for what in SPREAD:
            own = usable & (group == one) & (kind == what)
            ranked = members[str(names[one])]
            if own.any() and len(ranked) > 1:
                each = bus_factor(what, len(ranked)) / (len(ranked) - 1)
                found.append((ranked, _byte_sums(size, transfer, own, each), rank))
    for sends in (True, False):
        own = usable & pair & (kind == ("send" if sends else "recv"))
        for other in np.unique((target if sends else source)[own]).tolist():
            to_other = own & ((target if sends else source) == other)
            if sends:
                found.append(((other,), _byte_sums(size, transfer, to_other, 1.0), rank))
            elif other not in traced:
                found.append(((rank,), _byte_sums(size, transfer, to_other, 1.0), other))
    return found


def _byte_sums(size: Int64, transfer: Int64, own: Mask, each: float) -> Float:
    """Bytes, bytes of those whose transfer is known, and their transfers in s, of the chosen rows."""
    timed = own & (transfer >= 0)
    return np.array([size[own].sum() * each, size[timed].sum() * each, transfer[timed].sum() / _NS_PER_S])
