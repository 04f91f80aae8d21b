# SPDX-License-Identifier: Apache-2.0
"""Communication: how long, how often, how much, how fast; as far as one rank can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cclbench.analyzers.labels import Label, labels
from cclbench.analyzers.metric import NotApplicable, Value, metric, unanswered
from cclbench.analyzers.values import NS_PER_S, per_step, share
from cclbench.analyzers.view import RankView, codes
from cclbench.intervals import Int64, Mask

Float64 = npt.NDArray[np.float64]

_INPUTS = ("events", "collectives", "steps")
_LARGE_SIDE = (
    "S is the payload's larger side: of all_gather what a rank ends with, of reduce_scatter what it brings."
)


@metric(
    "comm.time",
    definition="Time in which communication runs, on any number of streams, hidden or not.",
    formula="|K|",
    unit="s",
    better="lower",
)
def time(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.parts.overlapped + rank.parts.exposed_comm)


@metric(
    "comm.fraction",
    definition="Share of kernel time in which communication runs.",
    formula="|K| / |C∪K|",
    unit="1",
    better="lower",
)
def fraction(rank: RankView) -> Iterator[Value]:
    p = rank.parts
    communication = p.overlapped + p.exposed_comm
    yield from share(rank, communication, p.compute_only + communication, of="kernel time")


@metric(
    "comm.count",
    definition="Collectives and transfers per step and rank that begin in the window; by kind, by process"
    " group, by parallel dimension (category).",
    formula="n",
    unit="count",
    better=None,
    inputs=_INPUTS,
)
def count(rank: RankView) -> Iterator[Value]:
    table = rank.collectives
    alone = int((_group_sizes(table) == 1).sum())
    reason = f"{alone} are in groups of one, which move nothing" if alone else None
    yield from _per_step_and_label(rank, table, np.ones(len(table), np.int64), reason)


@metric(
    "comm.volume",
    definition="Payload bytes per step and rank of the collectives that begin in the window; by kind, by"
    f" process group, by parallel dimension (category). {_LARGE_SIDE}",
    formula="Σ S",
    unit="B",
    better=None,
    inputs=_INPUTS,
    not_applicable="none of the window's collectives states its bytes",
)
def volume(rank: RankView) -> Iterator[Value]:
    table = rank.collectives
    table = table.filter(pc.fill_null(pc.not_equal(table["kind"].cast(pa.string()), "barrier"), True))
    payload, known = _payload(table)
    silent = int((~known).sum())
    if len(table) and silent == len(table):
        raise NotApplicable(f"none of the {silent} collectives in the window states its bytes")
    reason = f"{silent} of {len(table)} collectives state no bytes and are left out" if silent else None
    yield from _per_step_and_label(rank, table.filter(pa.array(known)), payload[known], reason)


def _per_step_and_label(
    rank: RankView, table: pa.Table, amounts: Int64, reason: str | None
) -> Iterator[Value]:
    window = rank.window_of(table["start_ns"].to_numpy())
    each = np.zeros(len(rank.windows), np.int64)
    np.add.at(each, window, amounts)
    yield from per_step(rank, each, unit=1, reason=reason)
    label, known = labels(table)
    sums: dict[Label, int] = {}
    for number, one in enumerate(known):
        for key in one.wider():
            sums[key] = sums.get(key, 0) + int(amounts[label == number].sum())
    for key, amount in sums.items():
        yield Value(
            value=amount / len(rank.windows),
            collective=key.collective,
            group=key.group,
            category=key.dimension,
        )


def _payload(table: pa.Table) -> tuple[Int64, Mask]:
    """S of each collective in bytes, and where it is known, shape (rows,).

    Of all_gather and reduce_scatter one side alone does not tell which one it is.
    """
    sides = [table[side] for side in ("in_bytes", "out_bytes")]
    given = [side.is_valid().to_numpy() for side in sides]
    large = np.maximum(*(side.fill_null(0).to_numpy() for side in sides))
    uneven = np.isin(_kinds(table), ["all_gather", "reduce_scatter"])
    return large, np.where(uneven, given[0] & given[1], given[0] | given[1])


def _kinds(table: pa.Table) -> npt.NDArray[np.str_]:
    """The kind of each collective, shape (rows,); empty where nobody knows."""
    numbers, words = codes(table, "kind")
    return np.array([word or "" for word in words])[numbers]


def _group_sizes(table: pa.Table) -> Int64:
    """Ranks of each collective's group, shape (rows,); 0 where nobody knows."""
    return np.asarray(table["group_size"].cast(pa.int64()).fill_null(0).to_numpy())


@dataclass(frozen=True, slots=True, eq=False)
class _Timed:
    """The collectives a bandwidth can be told of: bytes, ns, group size, kind, all of shape (rows,)."""

    table: pa.Table
    payload: Int64
    ns: Int64
    ranks: Int64
    kinds: npt.NDArray[np.str_]
    reason: str


def _timed(rank: RankView) -> _Timed:
    table = rank.collectives
    payload, known = _payload(table)
    ranks, kinds = _group_sizes(table), _kinds(table)
    ns = (table["end_ns"].to_numpy() - table["start_ns"].to_numpy()).astype(np.int64)
    measured = known & (payload > 0) & (ns > 0) & (kinds != "")
    usable = measured & (ranks > 1)
    left_out = [
        f"{number} {why}"
        for number, why in (
            (int((~measured).sum()), "of unknown kind, bytes or duration"),
            (int((measured & (ranks == 0)).sum()), "of unknown group size"),
            (int((measured & (ranks == 1)).sum()), "in groups of one"),
        )
        if number
    ]
    if not len(table):
        raise NotApplicable("there are no collectives in the window")
    if not usable.any():
        raise NotApplicable(f"no bandwidth can be told of the window's collectives: {', '.join(left_out)}")
    reason = "from the collective's own duration, which includes waiting for other ranks"
    return _Timed(
        table.filter(pa.array(usable)),
        payload[usable],
        ns[usable],
        ranks[usable],
        kinds[usable],
        reason + (f"; left out: {', '.join(left_out)}" if left_out else ""),
    )


_T = (
    "t is the collective's own duration on its rank, waiting for other ranks included, since collectives are"
    " not matched across ranks. By kind, group and size (category, powers of 4); groups of one and"
    " collectives of unknown size are left out. 1 GB = 1e9 bytes."
)


@metric(
    "comm.algbw",
    definition=f"Algorithm bandwidth: payload over time. {_LARGE_SIDE} {_T}",
    formula="Σ S / Σ t",
    unit="B/s",
    better="higher",
    inputs=_INPUTS,
    not_applicable="there are no collectives in the window, or none of known kind, bytes and group size > 1",
)
def algbw(rank: RankView) -> Iterator[Value]:
    timed = _timed(rank)
    yield from _bandwidths(timed, timed.payload.astype(np.float64))


# Bus traffic per payload byte of a group of n, as nccl-tests defines it (doc/PERFORMANCE.md).
_BUS_FACTOR: Final[Mapping[str, Callable[[Int64], Float64]]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
}


@metric(
    "comm.busbw",
    definition="Bus bandwidth: algorithm bandwidth times nccl-tests' factor f, which makes it comparable"
    " with a link's rate: all_reduce 2(n−1)/n; all_gather, reduce_scatter, all_to_all (n−1)/n; others 1,"
    f" n ranks in the group. {_LARGE_SIDE} {_T}",
    formula="Σ f·S / Σ t",
    unit="B/s",
    better="higher",
    inputs=_INPUTS,
    not_applicable="there are no collectives in the window, or none of known kind, bytes and group size > 1",
)
def busbw(rank: RankView) -> Iterator[Value]:
    timed = _timed(rank)
    factor = np.ones(len(timed.ns))
    for kind, of_ranks in _BUS_FACTOR.items():
        here = timed.kinds == kind
        factor[here] = of_ranks(timed.ranks[here])
    yield from _bandwidths(timed, factor * timed.payload)


def _bandwidths(timed: _Timed, moved: Float64) -> Iterator[Value]:
    """Σ moved / Σ t: of all, by kind, by kind and group, by kind, group and size."""
    label, known = labels(timed.table)
    exponent = np.searchsorted(4 ** np.arange(31), timed.payload, side="right") - 1
    sums: dict[tuple[str | None, str | None, str | None], tuple[float, int]] = {}
    pairs, row = np.unique(label * 64 + exponent, return_inverse=True)
    for number, pair in enumerate(pairs.tolist()):
        here = row == number
        own = float(moved[here].sum()), int(timed.ns[here].sum())
        kind, group = known[pair // 64].collective, known[pair // 64].group
        for key in dict.fromkeys(
            [(None, None, None), (kind, None, None), (kind, group, None), (kind, group, _size(pair % 64))]
        ):
            before = sums.get(key, (0.0, 0))
            sums[key] = before[0] + own[0], before[1] + own[1]
    for (kind, group, size), (total, ns) in sums.items():
        yield Value(
            value=total * NS_PER_S / ns,
            collective=kind,
            group=group,
            category=size,
            weight=ns,
            provenance="derived",
            reason=timed.reason,
        )


def _size(exponent: int) -> str:
    """The range of sizes [4^e, 4^(e+1)) in words: `1MiB-4MiB`."""

    def word(power_of_two: int) -> str:
        unit, rest = divmod(power_of_two, 10)
        return f"{2**rest}{('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB')[unit]}"

    return f"{word(2 * exponent)}-{word(2 * exponent + 2)}"


for _name, _definition, _formula in (
    (
        "wait",
        "Time in collectives before the last rank arrives.",
        "latest arrival − own arrival",
    ),
    ("transfer", "Time of collectives after the last rank has arrived.", "end − latest arrival"),
    ("skew", "How far apart the ranks arrive at collectives.", "latest arrival − earliest arrival"),
):
    unanswered(
        f"comm.{_name}",
        definition=_definition,
        formula=_formula,
        unit="s",
        better="lower",
        needs="collectives matched across ranks",
        reason="waiting can be told from transfer only when collectives are matched across ranks",
    )
