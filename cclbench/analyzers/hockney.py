# SPDX-License-Identifier: Apache-2.0
"""Latency and inverse bandwidth of collectives: Hockney's model of transfer times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from cclbench.analyzers.metric import MATCHED, NotApplicable, Value, metric
from cclbench.analyzers.view.arrivals import PAIRS, matched_collectives
from cclbench.analyzers.view.collectives import (
    LARGE_SIDE,
    UNKNOWN,
    collective_kinds,
    collective_payloads,
    label_numbers,
)
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.ground.intervals import Int64

Float64 = npt.NDArray[np.float64]
Key = tuple[str, str]
"""Kind and process group."""
Figure = tuple[float, float]
"""A fitted parameter and half of its 95 % interval."""

LEAST_POINTS, LEAST_SIZES = 5, 2
_Z = 1.959963984540054
"""97.5 % quantile of the normal distribution."""
_ROUNDING = 1e-9
"""A latency, or time of a mean payload, below this share of the mean time is a rounding error."""


@dataclass(frozen=True, slots=True, eq=False)
class FitPoints:
    """One rank's points of the fit, arrays of shape (points,); `key` is a code into `keys`."""

    keys: list[Key]
    key: Int64
    instance: Int64
    transfer_ns: Int64
    payload: Int64


def _fit_points(rank: RankView) -> Value:
    """The rank's points: instances at which it arrives last, so that its duration is the transfer.

    All sends and receives count, since sender and receiver fit different kinds.
    """
    table, _ = matched_collectives(rank)
    size, has_size = collective_payloads(table)
    wait, transfer = table["wait_ns"].to_numpy(), table["transfer_ns"].to_numpy()
    last = (wait == 0) | np.isin(collective_kinds(table), PAIRS)
    usable = has_size & (size > 0) & (transfer > 0) & last & table["group"].is_valid().to_numpy()
    number, labels = label_numbers(table)
    keys = [(label.collective or UNKNOWN, label.group or UNKNOWN) for label in labels]
    columns = (number, table["instance"].to_numpy(), transfer, size)
    return Value(value=float(usable.sum()), detail=FitPoints(keys, *(column[usable] for column in columns)))


def _group_fits(ranks: Mapping[int, Sequence[Value]], parameter: int) -> Iterator[Value]:
    parts = [value.detail for rank in sorted(ranks) for value in ranks[rank]]
    points = [part for part in parts if isinstance(part, FitPoints)]
    key_codes: dict[Key, int] = {}
    key = np.concatenate(
        [
            np.array([key_codes.setdefault(label, len(key_codes)) for label in part.keys], np.int64)[part.key]
            for part in points
        ]
    )
    instance, transfer, size = (
        np.concatenate([getattr(part, name) for part in points])
        for name in ("instance", "transfer_ns", "payload")
    )
    order = np.lexsort((instance, key))
    rows = order[np.diff(np.stack([key, instance])[:, order], prepend=-1).any(axis=0)]
    edges = np.searchsorted(key[rows], np.arange(len(key_codes) + 1))
    no_fit, impossible = True, 0
    for (kind, group), begin, end in zip(key_codes, edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        rows_of_key = rows[begin:end]
        sizes = len(np.unique(size[rows_of_key]))
        if len(rows_of_key) < LEAST_POINTS or sizes < LEAST_SIZES:
            continue
        alpha, beta, r2 = _fit_hockney(size[rows_of_key].astype(np.float64), transfer[rows_of_key] / NS_PER_S)
        if alpha[0] < 0 or beta[0] < 0:
            impossible += 1
            continue
        no_fit = False
        figure, half = (alpha, beta)[parameter]
        fitted = partial(Value, collective=kind, group=group, provenance="derived")
        yield fitted(value=figure, reason=f"{len(rows_of_key)} collectives of {sizes} sizes")
        yield fitted(value=figure - half, stat="low")
        yield fitted(value=figure + half, stat="high")
        if r2 is not None:
            yield fitted(value=r2, stat="r2", unit="1")
    if no_fit and impossible:
        raise NotApplicable(
            f"the fits of {impossible} kinds and groups have a negative latency or inverse bandwidth: their"
            " times do not grow linearly with size"
        )
    if no_fit:
        raise NotApplicable(
            f"no kind and group has at least {LEAST_POINTS} matched instances of {LEAST_SIZES} sizes"
        )


def _fit_hockney(size: Float64, seconds: Float64) -> tuple[Figure, Figure, float | None]:
    """α and β of t = α + β·S by least squares with weights 1/t², that is, relative errors; weighted R².

    Noise is proportional to time and sizes span decades: without weights the largest sizes alone would
    decide, and α would be arbitrary. R² is None where all times are equal.
    """
    weight = seconds**-2
    mass = float(weight.sum())
    mean_size, mean_time = float((weight * size).sum() / mass), float((weight * seconds).sum() / mass)
    ds, dt = size - mean_size, seconds - mean_time
    spread = float((weight * ds * ds).sum())
    beta = float((weight * ds * dt).sum()) / spread
    if abs(beta) * mean_size < _ROUNDING * mean_time:
        beta = 0.0
    alpha = mean_time - beta * mean_size
    if abs(alpha) < _ROUNDING * mean_time:
        alpha = 0.0
    unexplained = float((weight * (dt - beta * ds) ** 2).sum())
    total = float((weight * dt * dt).sum())
    freedom = len(size) - 2
    t = t_quantile(freedom)
    variance = unexplained / freedom
    return (
        (alpha, t * (variance * (1 / mass + mean_size**2 / spread)) ** 0.5),
        (beta, t * (variance / spread) ** 0.5),
        1 - unexplained / total if np.ptp(seconds) else None,
    )


def t_quantile(freedom: int) -> float:
    """97.5 % quantile of Student's t for at least 3 degrees of freedom, to 0.15 %.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    z = _Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum((term / freedom**power for power, term in enumerate(terms, start=1)), 0.0)


def fitted_latencies(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """One fit per kind and group over the instances of all ranks."""
    return _group_fits(ranks, 0)


def inverse_bandwidths(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """One fit per kind and group over the instances of all ranks."""
    return _group_fits(ranks, 1)


_MODEL = (
    " Fitted by kind and process group to the transfer times of matched instances, one point per instance:"
    " the time of its last rank, which does not wait; least squares with weights 1/t². Stats low and high are"
    f" the 95 % interval, r2 the weighted R². {LARGE_SIDE}"
)
_TOO_FEW = (
    f"no kind and group has at least {LEAST_POINTS} matched instances of {LEAST_SIZES} sizes, or the fit is"
    " negative: times do not grow linearly with size"
)


_fit_metric = partial(
    metric, better="lower", inputs=(MATCHED, "steps"), not_applicable=_TOO_FEW, rank_rows=False
)


@_fit_metric(
    "comm.alpha",
    definition=f"Latency of collectives: time of a transfer without payload.{_MODEL}",
    formula="α of t = α + β·S",
    unit="s",
    combine=fitted_latencies,
)
def alpha(rank: RankView) -> Value:
    return _fit_points(rank)


@_fit_metric(
    "comm.beta",
    definition=f"Inverse bandwidth of collectives: time per byte of payload.{_MODEL}",
    formula="β of t = α + β·S",
    unit="s/B",
    combine=inverse_bandwidths,
)
def beta(rank: RankView) -> Value:
    return _fit_points(rank)
