# SPDX-License-Identifier: Apache-2.0
"""The collectives that a bandwidth can be told of, and sums over them by kind, group and size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cclbench.analyzers.labels import labels
from cclbench.analyzers.metric import NotApplicable, Value, counts, mean_over_ranks
from cclbench.analyzers.payloads import group_sizes, kinds, payload
from cclbench.analyzers.values import NS_PER_S
from cclbench.analyzers.view import RankView
from cclbench.classify import bus_factor
from cclbench.intervals import Int64, Mask

Float64 = npt.NDArray[np.float64]

TIMES: Final = (
    "t is the transfer time of collectives that are matched across their ranks, from the last rank's arrival"
    " on; where a figure has none, the collectives' own duration on their rank, waiting for others included,"
    " and the reason says so: the two are never mixed. By kind, group and size (category, powers of 4);"
    " groups of one and collectives of unknown size are left out."
)
NONE: Final = "there are no collectives in the window, or none of known kind, bytes and group size > 1"
_WAITING = "from the collective's own duration, which includes waiting for other ranks"
_UNMATCHED = "not matched across their ranks"

_Key = tuple[str | None, str | None, str | None]
"""Kind, process group, range of sizes."""


@dataclass(frozen=True, slots=True, eq=False)
class Timed:
    """The collectives a bandwidth can be told of: bytes, ns, group size, kind, all of shape (rows,).

    `ns` is the transfer of those `matched`, the whole duration of the others.
    """

    table: pa.Table
    payload: Int64
    ns: Int64
    matched: Mask
    ranks: Int64
    kinds: npt.NDArray[np.str_]
    left_out: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Basis:
    """Whether a figure rests on transfers alone, or on whole durations, and of how many collectives."""

    matched: bool
    collectives: int


def timed(rank: RankView) -> Timed:
    """The rank's collectives in the window that state kind, bytes and group; not applicable without any."""
    table = rank.collectives
    size, known = payload(table)
    ranks, kind = group_sizes(table), kinds(table)
    matched = table["transfer_ns"].is_valid().to_numpy()
    whole = table["end_ns"].to_numpy() - table["start_ns"].to_numpy()
    ns = np.where(matched, table["transfer_ns"].fill_null(0).to_numpy(), whole)
    measured = known & (size > 0) & (ns > 0) & (kind != "")
    usable = measured & (ranks > 1)
    left_out = {
        "of unknown kind, bytes or duration": int((~measured).sum()),
        "of unknown group size": int((measured & (ranks == 0)).sum()),
        "in groups of one": int((measured & (ranks == 1)).sum()),
    }
    if not len(table):
        raise NotApplicable("there are no collectives in the window")
    if not usable.any():
        raise NotApplicable(f"no bandwidth can be told of the window's collectives: {counts(left_out)}")
    return Timed(
        table.filter(pa.array(usable)),
        size[usable],
        ns[usable],
        matched[usable],
        ranks[usable],
        kind[usable],
        {why: number for why, number in left_out.items() if number},
    )


def bus_bytes(chosen: Timed) -> Float64:
    """f·S of each collective, with nccl-tests' factor, shape (rows,)."""
    factor = np.ones(len(chosen.ns))
    for kind in np.unique(chosen.kinds).tolist():
        here = chosen.kinds == kind
        sizes, at = np.unique(chosen.ranks[here], return_inverse=True)
        factor[here] = np.array([bus_factor(kind, n) for n in sizes.tolist()])[at]
    return factor * chosen.payload


def transfers_before_durations(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Σ payload / Σ t over the ranks; of what some ranks have matched, over those ranks alone."""
    known = {
        value.key
        for values in ranks.values()
        for value in values
        if isinstance(value.detail, _Basis) and value.detail.matched
    }
    kept: dict[int, list[Value]] = {rank: [] for rank in ranks}
    unmatched: dict[object, int] = {}
    for rank, values in ranks.items():
        for value in values:
            basis = value.detail
            if isinstance(basis, _Basis) and value.key in known and not basis.matched:
                unmatched[value.key] = unmatched.get(value.key, 0) + basis.collectives
            else:
                kept[rank].append(value)
    for value in mean_over_ranks(kept):
        more = unmatched.get(value.key, 0)
        yield replace(value, left_out=_with(value.left_out, _UNMATCHED, more)) if more else value


def _with(left_out: Mapping[str, int], why: str, number: int) -> dict[str, int]:
    return {**left_out, why: left_out.get(why, 0) + number}


def rates(timed: Timed, moved: Float64, basis: str | None = None) -> Iterator[Value]:
    """Σ moved / Σ t, t in s: of all, by kind, by kind and group, by kind, group and size.

    `basis` is what every figure rests on besides.
    """
    label, known = labels(timed.table)
    exponent = np.searchsorted(4 ** np.arange(31), timed.payload, side="right") - 1
    sums: dict[_Key, list[tuple[float, int, int]]] = {}
    parts, row = np.unique((label * 64 + exponent) * 2 + timed.matched, return_inverse=True)
    for number, part in enumerate(parts.tolist()):
        here = row == number
        own = (float(moved[here].sum()), int(timed.ns[here].sum()), int(here.sum()))
        pair, matched = divmod(part, 2)
        kind, group = known[pair // 64].collective, known[pair // 64].group
        for key in dict.fromkeys(
            [(None, None, None), (kind, None, None), (kind, group, None), (kind, group, _size(pair % 64))]
        ):
            both = sums.setdefault(key, [(0.0, 0, 0), (0.0, 0, 0)])
            total, ns, rows = both[matched]
            both[matched] = total + own[0], ns + own[1], rows + own[2]
    for (kind, group, size), (durations, transfers) in sums.items():
        matched = bool(transfers[2])
        total, ns, rows = transfers if matched else durations
        left_out = {_UNMATCHED: durations[2]} if matched and durations[2] else {}
        yield Value(
            value=total * NS_PER_S / ns,
            collective=kind,
            group=group,
            category=size,
            weight=ns,
            provenance="derived",
            reason="; ".join(filter(None, [basis, None if matched else _WAITING])) or None,
            left_out={**left_out, **({} if kind else timed.left_out)},
            detail=_Basis(matched, rows),
        )


def _size(exponent: int) -> str:
    """The range of sizes [4^e, 4^(e+1)) in words: `1MiB-4MiB`."""

    def word(power_of_two: int) -> str:
        unit, rest = divmod(power_of_two, 10)
        return f"{2**rest}{('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB')[unit]}"

    return f"{word(2 * exponent)}-{word(2 * exponent + 2)}"
