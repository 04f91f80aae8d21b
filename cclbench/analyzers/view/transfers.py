# SPDX-License-Identifier: Apache-2.0
"""Collectives of known bandwidth, and sums over them by kind, group and size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.metric import Coverage, NotApplicable, Unknown, Value, count_words, mean_over_ranks
from cclbench.analyzers.view.collectives import (
    collective_durations,
    collective_kinds,
    collective_payloads,
    group_sizes,
    label_numbers,
)
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.classify import bus_factor
from cclbench.ground.intervals import Int64, Mask
from cclbench.ground.units import whole_binary

Float64 = npt.NDArray[np.float64]

TIMES: Final = (
    "t is the transfer time of collectives matched across their ranks, from the last rank's arrival on; where"
    " none is matched, the collectives' duration on their rank, including waiting, and the reason states it;"
    " the two are never mixed. By kind, group and size (category, powers of 4). Groups of one rank and"
    " barriers are left out. Partial where collectives of unknown size or group are left out, or unmatched"
    " ones in favour of matched ones."
)
NONE: Final = "there are no collectives in the window, or none of known kind, payload and group size > 1"
WAITING: Final = "from the collective's duration, which includes waiting for other ranks"
_UNMATCHED = "not matched across their ranks"

_Key = tuple[str | None, str | None, str | None]
"""Kind, process group, range of sizes."""


@dataclass(frozen=True, slots=True, eq=False)
class TimedCollectives:
    """Collectives of known bandwidth: bytes, ns, group size, kind; arrays of shape (rows,).

    `ns` is the transfer of those `matched`, the whole duration of the others.  `unknown` are those that lack
    a kind, bytes, a group's size or a duration, so that they have no bandwidth.
    """

    table: pa.Table
    payload: Int64
    ns: Int64
    matched: Mask
    ranks: Int64
    kinds: npt.NDArray[np.str_]
    left_out: Mapping[str, int]
    unknown: pa.Table

    def keep_rows(self, rows: Mask, lacking: Mapping[str, int]) -> TimedCollectives:
        """The rows of the mask; the others become unknown, counted in `lacking` by reason."""
        return replace(
            self,
            table=self.table.filter(pa.array(rows)),
            **{name: getattr(self, name)[rows] for name in ("payload", "ns", "matched", "ranks", "kinds")},
            left_out={**self.left_out, **lacking},
            unknown=pa.concat_tables([self.unknown, self.table.filter(pa.array(~rows))]),
        )


@dataclass(frozen=True, slots=True)
class _Basis:
    """Whether a value is based on transfers or on durations, and its coverage."""

    matched: bool
    used: Coverage


def timed_collectives(rank: RankView) -> TimedCollectives:
    """The rank's collectives in the window with kind, payload and group; `NotApplicable` without any."""
    table = rank.collectives
    table = table.filter(pa.array(collective_kinds(table) != "barrier"))  # moves nothing
    size, has_size = collective_payloads(table)
    ranks, kind = group_sizes(table), collective_kinds(table)
    matched = table["transfer_ns"].is_valid().to_numpy()
    ns = np.where(matched, table["transfer_ns"].fill_null(0).to_numpy(), collective_durations(table))
    alone = ranks == 1
    measured = has_size & (size > 0) & (ns > 0) & (kind != "")
    usable = measured & (ranks > 1)
    left_out = {
        "of unknown kind, payload or duration": int((~measured & ~alone).sum()),
        "of unknown group size": int((measured & (ranks == 0)).sum()),
        "in groups of one": int(alone.sum()),
    }
    if not len(table):
        raise NotApplicable("there are no collectives in the window")
    if not usable.any():
        why = f"no collective in the window has a known bandwidth: {count_words(left_out)}"
        if alone.all():
            raise NotApplicable(why)
        raise Unknown(why, Coverage.from_rows(usable[~alone], collective_durations(table)[~alone]))
    return TimedCollectives(
        table.filter(pa.array(usable)),
        size[usable],
        ns[usable],
        matched[usable],
        ranks[usable],
        kind[usable],
        {why: number for why, number in left_out.items() if number},
        table.filter(pa.array(~usable & ~alone)),
    )


def bus_bytes(chosen: TimedCollectives) -> Float64:
    """f·S of each collective, with the factor of nccl-tests, shape (rows,)."""
    factor = np.ones(len(chosen.ns))
    for kind in np.unique(chosen.kinds).tolist():
        of_kind = chosen.kinds == kind
        sizes, size_code = np.unique(chosen.ranks[of_kind], return_inverse=True)
        factor[of_kind] = np.array([bus_factor(kind, n) for n in sizes.tolist()], np.float64)[size_code]
    return factor * chosen.payload


def transfers_before_durations(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Σ payload / Σ t over ranks; where some ranks have matched collectives, over those ranks."""
    matched_keys = {
        value.key
        for values in ranks.values()
        for value in values
        if isinstance(value.detail, _Basis) and value.detail.matched
    }
    kept: dict[int, list[Value]] = {rank: [] for rank in ranks}
    unmatched: dict[object, list[Coverage]] = {}
    for rank, values in ranks.items():
        for value in values:
            basis = value.detail
            if isinstance(basis, _Basis) and value.key in matched_keys and not basis.matched:
                unmatched.setdefault(value.key, []).append(basis.used)
            else:
                kept[rank].append(value)
    for value in mean_over_ranks(kept):
        excluded = [replace(used, rows=0, ns=0) for used in unmatched.get(value.key, ())]
        left_out_count = value.left_out.get(_UNMATCHED, 0) + sum(used.all_rows for used in excluded)
        left_out = {**value.left_out, _UNMATCHED: left_out_count}
        coverage = reduce(add, excluded, value.coverage) if value.coverage is not None else None
        yield replace(value, left_out=left_out, coverage=coverage) if excluded else value


def bandwidth_rates(timed: TimedCollectives, moved: Float64, basis: str | None = None) -> Iterator[Value]:
    """Σ moved / Σ t, t in s: of all, by kind, by kind and group, by kind, group and size.

    `basis`: what all values are based on. A value that leaves out unknown or unmatched collectives is
    partial, except one of a range of sizes, for which the number of unknown ones cannot be known.
    """
    label, labels = label_numbers(timed.table)
    exponent = np.searchsorted(4 ** np.arange(32), timed.payload, side="right") - 1
    length = collective_durations(timed.table)
    sums: dict[_Key, list[_TransferSum]] = {}
    parts, row = np.unique((label * 64 + exponent) * 2 + timed.matched, return_inverse=True)
    for number, part in enumerate(parts.tolist()):
        in_part = row == number
        part_sum = _TransferSum(
            float(moved[in_part].sum()),
            int(timed.ns[in_part].sum()),
            int(in_part.sum()),
            int(length[in_part].sum()),
        )
        pair, matched = divmod(part, 2)
        label_code, power = divmod(pair, 64)
        kind, group = labels[label_code].collective, labels[label_code].group
        for key in dict.fromkeys(
            [(None, None, None), (kind, None, None), (kind, group, None), (kind, group, size_range(power))]
        ):
            both = sums.setdefault(key, [_TransferSum(0, 0, 0, 0)] * 2)
            both[matched] = both[matched] + part_sum
    unknown = _unknown_coverage(timed.unknown)
    for (kind, group, size), (durations, transfers) in sums.items():
        matched = bool(transfers.rows)
        used, excluded = (transfers, durations) if matched else (durations, transfers)
        coverage = Coverage(used.rows, used.rows + excluded.rows, used.length, used.length + excluded.length)
        if size is None:
            coverage += unknown.get((kind, group, None), Coverage(0, 0, 0, 0))
        yield Value(
            value=used.moved * NS_PER_S / used.ns,
            collective=kind,
            group=group,
            category=size,
            weight=used.ns,
            provenance="derived",
            reason="; ".join(filter(None, [basis, None if matched else WAITING])) or None,
            left_out={
                **({_UNMATCHED: excluded.rows} if excluded.rows else {}),
                **({} if kind else timed.left_out),
            },
            coverage=coverage,
            detail=_Basis(matched, coverage),
        )


class _TransferSum(NamedTuple):
    """Bytes and time of collectives, their number, and their duration including waiting."""

    moved: float
    ns: int
    rows: int
    length: int

    def __add__(self, other: tuple[float, ...]) -> _TransferSum:  # type: ignore[override]  # sums, not longer tuples
        return _TransferSum(*(a + b for a, b in zip(self, other, strict=True)))  # type: ignore[arg-type]


def _unknown_coverage(table: pa.Table) -> dict[_Key, Coverage]:
    """Coverage of collectives of unknown bandwidth, by their known kind and group."""
    coverage: dict[_Key, Coverage] = {}
    label, labels = label_numbers(table)
    length = collective_durations(table)
    for number, label_of_rows in enumerate(labels):
        of_label = label == number
        label_coverage = Coverage(0, int(of_label.sum()), 0, int(length[of_label].sum()))
        kind, group = label_of_rows.collective, label_of_rows.group
        for key in dict.fromkeys([(None, None, None), (kind, None, None), (kind, group, None)]):
            coverage[key] = coverage.get(key, Coverage(0, 0, 0, 0)) + label_coverage
    return coverage


def size_range(exponent: int) -> str:
    """The range of sizes [4^e, 4^(e+1)) in words: `1MiB-4MiB`."""

    (low, low_unit), (high, high_unit) = whole_binary(4**exponent), whole_binary(4 ** (exponent + 1))
    return f"{low}{low_unit}-{high}{high_unit}"
