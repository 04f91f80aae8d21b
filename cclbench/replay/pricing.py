# SPDX-License-Identifier: Apache-2.0
"""New over old times of transfers and kernels: ratios, never absolute modelled times.

A transfer takes measured × model(new) / model(old), so that the model's bias cancels. The model is that of
the catalog's machine; without one, factors act on the run's Hockney fit; without a fit, bounds assume as much
latency as the shortest transfer allows, and none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from cclbench.classify import bus_factor
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64, Mask
from cclbench.hardware import catalog
from cclbench.hardware.collectives import NoPrice, Prediction, price_collective
from cclbench.hardware.collectives.p2p import PAIRS
from cclbench.hardware.collectives.ratio import time_ratio as time_ratio
from cclbench.hardware.system import System
from cclbench.machine import Machine, Tier
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph
from cclbench.replay.kernel_costs import KernelCosts
from cclbench.replay.other_accelerator import kernel_ratios
from cclbench.replay.other_system import changed_system
from cclbench.replay.regroup import STAYS, RegroupedGroup, even_ranks
from cclbench.replay.scenario import TIERS, Scenario

Float = npt.NDArray[np.float64]

_LEAST_POINTS, _LEAST_SIZES = 5, 2


@dataclass(frozen=True, slots=True, eq=False)
class TimeRatios:
    """New over old time of each node, shape (nodes,): expected (NaN if unknown) and bounds; and the factor by
    which hosts may be faster or slower."""

    expected: Float
    low: Float
    high: Float
    basis: tuple[str, ...]
    host_factor: float = 1.0


def time_ratios(
    graph: Graph,
    change: Scenario,
    machine: Machine,
    groups: dict[str, tuple[int, ...]],
    *,
    costs: KernelCosts | None = None,
    precision: str | None = None,
    library_version: str | None = None,
    regrouped: Mapping[str | None, RegroupedGroup] | None = None,
) -> TimeRatios:
    """Ratios of all nodes under a change. `costs`, `precision`: of the kernels, for another accelerator;
    `regrouped`: new groups."""
    ones = np.ones(len(graph.nodes))
    ratios = TimeRatios(ones, ones.copy(), ones.copy(), ())
    if change.moves_communication or regrouped:
        ratios = _price_transfers(graph, change, machine, groups, library_version, regrouped or {}, ratios)
    if (accelerator := change.changes.get("accelerator")) is not None:
        ratios = _price_kernels(graph, accelerator, machine, costs, precision, ratios)
    return _widen_hidden_transfers(graph, ratios)


def _widen_hidden_transfers(graph: Graph, ratios: TimeRatios) -> TimeRatios:
    """Widen the bounds of transfers that ended before their wait, which may have taken any shorter time."""
    hidden = graph.nodes.slack > 0
    if not hidden.any():
        return ratios
    expected, low = np.where(hidden, np.nan, ratios.expected), np.where(hidden, 0.0, ratios.low)
    why = "transfers that ended before their wait have bounds only"
    return replace(ratios, expected=expected, low=low, basis=(*ratios.basis, why))


def _price_transfers(
    graph: Graph,
    change: Scenario,
    machine: Machine,
    groups: dict[str, tuple[int, ...]],
    library_version: str | None,
    regrouped: Mapping[str | None, RegroupedGroup],
    ratios: TimeRatios,
) -> TimeRatios:
    nodes, calls = graph.nodes, graph.transfers
    at = np.flatnonzero(nodes.kind == n.TRANSFER)
    call = nodes.call[at]
    words: dict[tuple[str | None, str | None], int] = {}
    each = [words.setdefault(word, len(words)) for word in zip(calls.kind, calls.group, strict=True)]
    label = np.array(each, np.int64)[call]
    bases: set[str] = set()
    refused: set[str] = set()
    for (kind, group), code in words.items():
        of_label = label == code
        if not of_label.any():
            continue
        rows, is_split = at[of_label], calls.is_split[call[of_label]]
        members = groups.get(group or "")
        new = regrouped.get(group, STAYS)
        if members is not None and len(members) < 2:
            continue  # a group of one rank moves nothing
        if not change.moves_communication and new == STAYS:
            continue
        if kind is None or members is None:
            low, high = _unknown_bounds(change)
            expected = np.full(len(rows), np.nan)
            lows, highs = np.full(len(rows), low), np.full(len(rows), high)
            refused.add("collectives of unknown kind or group have bounds only")
        else:
            once = np.zeros(len(rows), np.bool_)
            once[np.unique(calls.instance[call[of_label]], return_index=True)[1]] = True
            parts = _TransferParts(
                kind, members, calls.bytes[call[of_label]], nodes.dur[rows], is_split, once & is_split, new
            )
            expected, lows, highs, basis = _price_parts(change, machine, library_version, parts)
            bases.update(basis)
        # a part that is not split into wait and transfer may be either
        lows, highs = (
            np.where(is_split, lows, np.minimum(lows, 1)),
            np.where(is_split, highs, np.maximum(highs, 1)),
        )
        expected = np.where(is_split | (lows == highs), expected, np.nan)
        ratios.expected[rows], ratios.low[rows], ratios.high[rows] = expected, lows, highs
        if not is_split.all():
            refused.add("collectives that are not split into wait and transfer have bounds only")
    return replace(ratios, basis=(*sorted(bases), *sorted(refused)))


def _unknown_bounds(change: Scenario) -> tuple[float, float]:
    """Bounds of an unknown transfer: any tier's factors may act on it, or none."""
    if change.needs_system:
        raise InputError(
            f"{change.needs_system}: collectives of unknown kind or group cannot be modelled",
            hint="use factors such as x2, which give bounds",
        )
    factors = [1.0]
    for tier in TIERS:
        factors.append(1 / _factor(change, tier, "bandwidth"))
        factors.append(_factor(change, tier, "latency"))
    return min(factors), max(factors)


@dataclass(frozen=True, slots=True, eq=False)
class _TransferParts:
    """Ranks' parts of transfers of one kind and group; arrays of shape (parts,). `is_split`: into wait
    and transfer; `once`: one such part of each instance."""

    kind: str
    members: tuple[int, ...]
    size: Int64
    transfer_ns: Int64
    is_split: Mask
    once: Mask
    new: RegroupedGroup


def _price_parts(
    change: Scenario, machine: Machine, library_version: str | None, parts: _TransferParts
) -> tuple[Float, Float, Float, tuple[str, ...]]:
    """Expected, lowest and highest ratio of transfers of one kind and group, and what they rest on."""
    kind, members, size = parts.kind, parts.members, parts.size
    needed = change.needs_system
    new = parts.new
    goes_to = new.members or members
    tier, other = machine.tier_of(members), machine.tier_of(goes_to)
    if tier.value is None or other.value is None:
        raise InputError(tier.reason or other.reason or "", hint="give --per-node N, or --system ID")
    if len(goes_to) < 2:
        nothing = np.zeros(len(size))
        return nothing, nothing, nothing, ("groups of one rank move nothing",)
    named = machine.named_system
    if named.reason is not None:
        raise InputError(named.reason)
    system = named.value
    if system is None:
        if needed:
            raise InputError(f"{needed} needs a named machine", hint="give --system ID")
        if tier.value != other.value:
            what = f"{kind} of {len(goes_to):,} ranks leaves {tier.value}, and no other links were measured"
            raise InputError(what, hint="give --system ID")
        return _by_fit(change, tier.value, parts)
    chosen_algorithm = change.changes.get(f"collective.{kind}")
    algorithm = chosen_algorithm and chosen_algorithm.algorithm
    priced = "send_recv" if kind in ("send", "recv") else kind
    sizes, size_code = np.unique(size, return_inverse=True)
    is_sized = sizes >= 0
    new_system = changed_system(system, change)
    pairs = []
    for priced_on, chosen, ranks, factor in (
        (new_system, algorithm, goes_to, new.payload),
        (system, None, members, 1.0),
    ):
        pairs.append(
            on_system(
                priced,
                np.asarray(sizes[is_sized] * factor, np.float64),
                ranks,
                machine,
                system,
                priced_on,
                library_version,
                chosen,
                uneven=new != STAYS,
            )
        )
    (new_price, factors), (old_price, as_before) = pairs
    by_size = np.full((3, len(sizes)), np.nan)
    by_size[:, is_sized] = np.array(time_ratio(new_price, old_price)) * new.repeats
    by_size *= (np.array(factors) / as_before[0])[:, None]
    ratio, low, high = (row[size_code] for row in by_size)
    if not is_sized.all():
        least, most = _unknown_bounds(change)
        low, high = (np.where(np.isnan(b), edge, b) for b, edge in ((low, least), (high, most)))
    most_s = np.full(len(sizes), np.nan)
    most_s[is_sized] = old_price.high_s * as_before[2]
    basis = f"times scale as those of {system.id} in the catalog's model"
    unexplained = _unexplained_times(parts, most_s[size_code] * 1e9)
    return ratio, low, high, (basis, *unexplained, *old_price.all_marks, *new_price.all_marks)


def _unexplained_times(parts: _TransferParts, most_ns: Float) -> tuple[str, ...]:
    """Why bounds are wide: parts that are not split into wait and transfer, and take longer than `most_ns`,
    the upper end of the modelled band."""
    longer = ~parts.is_split & (parts.transfer_ns > most_ns)
    if not longer.any():
        return ()
    times = float(parts.transfer_ns[longer].sum() / most_ns[longer].sum())
    return (
        f"{parts.kind} of {len(parts.members)} ranks takes {times:,.1f} times the upper end of its modelled"
        " band: it waits for other ranks, or links are slower than described; bounds hold for either, and"
        " traces of all ranks tell which",
    )


def on_system(
    kind: str,
    sizes: Float,
    ranks: tuple[int, ...],
    machine: Machine,
    system: System,
    priced_on: System,
    library_version: str | None,
    algorithm: str | None,
    *,
    uneven: bool,
) -> tuple[Prediction, tuple[float, float, float]]:
    """Modelled time on a machine of ranks numbered as on `system`; and factors on it, expected and bounds,
    where nodes hold unequal parts of the group (`even_ranks`)."""
    devices = machine.numbered_in(system, ranks)
    assert devices is not None  # noqa: S101 - the group's tier is known
    numbered = devices if priced_on.per_node == system.per_node else ranks
    even, factors = even_ranks(kind, numbered, priced_on) if uneven else (numbered, (1.0, 1.0, 1.0))
    answer = price_collective(
        kind, sizes, even, priced_on, library_version=library_version, algorithm=algorithm
    )
    if isinstance(answer, NoPrice):
        raise InputError(
            f"{kind} of {len(ranks)} ranks cannot be modelled: {answer.reason}", where=priced_on.id
        )
    return answer, factors


def ring_growth(kind: str, ranks: int, new_kind: str, new_ranks: int) -> tuple[float, float]:
    """Growth of latency and traffic from a ring of one kind to another: its steps, and a rank's share of the
    payload; a send is one step."""
    old, new = bus_factor(kind, ranks), bus_factor(new_kind, new_ranks)
    steps = 1.0 if kind in PAIRS else old * ranks
    return (1.0 if new_kind in PAIRS else new * new_ranks) / steps, new / old


def _by_fit(
    change: Scenario, tier: Tier, parts: _TransferParts
) -> tuple[Float, Float, Float, tuple[str, ...]]:
    """Ratios by factors: on α and β of the run's fit, else on any split that the shortest transfer allows."""
    new = parts.new
    steps, moves = ring_growth(parts.kind, len(parts.members), parts.kind, len(new.members or parts.members))
    rate = _factor(change, tier, "bandwidth") / (moves * new.payload * new.repeats)
    delay = _factor(change, tier, "latency") * steps * new.repeats
    usable = parts.once & (parts.size > 0) & (parts.transfer_ns > 0)
    fit = hockney_line(parts.size[usable], parts.transfer_ns[usable])
    times = np.maximum(parts.transfer_ns, 1).astype(np.float64)
    if fit is None:
        most = float((times[usable] if usable.any() else times).min())
        shares = np.array([np.zeros(len(times)), np.minimum(most / times, 1.0)])
        ends = shares * delay + (1 - shares) / rate
        low, high = ends.min(axis=0), ends.max(axis=0)
        why = "the share of latency is unknown: bounds by the shortest transfer"
        return np.where(low == high, low, np.nan), low, high, (why,)
    alpha, beta, error = fit
    sized = parts.size > 0
    moved = np.where(sized, np.maximum(alpha + beta * np.maximum(parts.size, 0), 1.0), times)
    shares = np.clip(np.array([alpha, alpha - error, alpha + error])[:, None] / moved, 0, 1)
    shares[1] = np.where(sized, shares[1], 0)
    ends = shares * delay + (1 - shares) / rate
    expected = np.where(sized, ends[0], np.nan)
    return (
        expected,
        ends[1:].min(axis=0),
        ends[1:].max(axis=0),
        ("factors act on the run's fit t = α + β·S by kind and group; bounds are the 95 % interval of α",),
    )


def _factor(change: Scenario, tier: Tier, what: Literal["bandwidth", "latency"]) -> float:
    quantity = change.quantity(tier, what)
    return (quantity and quantity.factor) or 1.0


def hockney_line(size: Int64, time_ns: Int64) -> tuple[float, float, float] | None:
    """α ns and β ns a byte of t = α + β·S, weights 1/t², and half of α's 95 % interval.

    None with too few points or a negative parameter. The interval uses 1.96·(1 + 2/ν) for Student's t, at
    most 6 % too wide.
    """
    if len(size) < _LEAST_POINTS or len(np.unique(size)) < _LEAST_SIZES:
        return None
    s, t = size.astype(np.float64), time_ns.astype(np.float64)
    weight = t**-2
    mass = weight.sum()
    mean_s, mean_t = (weight * s).sum() / mass, (weight * t).sum() / mass
    spread = (weight * (s - mean_s) ** 2).sum()
    beta = float((weight * (s - mean_s) * (t - mean_t)).sum() / spread)
    alpha = float(mean_t - beta * mean_s)
    if -1e-9 * mean_t < alpha < 0:
        alpha = 0.0
    if alpha < 0 or beta < 0:
        return None
    freedom = len(s) - 2
    variance = float((weight * (t - alpha - beta * s) ** 2).sum()) / freedom
    error = 1.96 * (1 + 2 / freedom) * (variance * (1 / mass + mean_s**2 / spread)) ** 0.5
    return alpha, beta, float(error)


def _price_kernels(
    graph: Graph,
    new_id: str,
    machine: Machine,
    costs: KernelCosts | None,
    precision: str | None,
    ratios: TimeRatios,
) -> TimeRatios:
    """Ratios of kernels on another accelerator."""
    if any(rank.on_host for rank in graph.windowed):
        raise InputError("accelerator: the run has none, the CPU is the device")
    old = machine.accelerator.value
    if old is None:
        raise InputError(
            "accelerator: neither a card nor the traces state the run's accelerator",
            hint="give --system ID, or a card",
        )
    assert costs is not None  # noqa: S101 - a replay has them
    kernels = kernel_ratios(graph, costs, old, catalog.accelerator(new_id), precision)
    return TimeRatios(
        ratios.expected * kernels.expected,
        ratios.low * kernels.low,
        ratios.high * kernels.high,
        (*ratios.basis, *kernels.basis),
        kernels.host_factor,
    )
