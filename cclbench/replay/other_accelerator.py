# SPDX-License-Identifier: Apache-2.0
"""New over old times of kernels on another accelerator, by recorded shapes and attainable rates.

With t = c · (e + r / s) on each (`hardware.kernel_rates`), a kernel's time changes by the factor
(e' + r' / s') / (e + r / s).  Where r is unknown, s · (t − e) is taken for it, of arithmetic or of memory by
the kernel's family.  Accelerators with the same peaks and as many processors run the same kernels, so that
only their memory matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Int64, Mask
from cclbench.hardware.accelerator import Accelerator
from cclbench.hardware.kernel_rates import PairRates, kernel_rates, pair_rates, usable_rates
from cclbench.replay import nodes as n
from cclbench.replay.graph import Graph
from cclbench.replay.kernel_costs import Float64, KernelCosts, NodeCosts

_ARITHMETIC: Final = ("gemm", "attention", "convolution")
_MEMORY: Final = ("normalization", "elementwise", "reduction", "optimizer", "embedding", "copy")


class KernelRatios(NamedTuple):
    """New over old time of each node, 1 where none computes, shape (nodes,): expected (NaN if unknown) and
    bounds; by which factor the host may be faster or slower; and their basis."""

    expected: Float64
    low: Float64
    high: Float64
    host_factor: float
    basis: tuple[str, ...]


def kernel_ratios(
    graph: Graph, costs: KernelCosts, old: Accelerator, new: Accelerator, precision: str | None
) -> KernelRatios:
    """Ratios of all kernels; `precision`: of products whose own is unknown. `InputError` where they have no
    common rate, or the new one lacks the precision of a product."""
    rates = {
        dtype: rate / other
        for dtype, rate in usable_rates(old).items()
        if (other := usable_rates(new).get(dtype)) and precision in (None, dtype)
    }
    if not rates or not old.hbm_bytes_per_s or not new.hbm_bytes_per_s:
        what = f"{precision} peak" if precision else "peak"
        raise InputError(f"accelerator: {old.id} and {new.id} have no common {what} or no memory bandwidth")
    memory = old.hbm_bytes_per_s / new.hbm_bytes_per_s
    if runs_same_kernels(old, new):
        return _by_memory(graph, memory, old, new)
    _require_precisions(graph, costs.node_costs, old, new)
    rooflines = [_roofline_ns(costs.node_costs, device) for device in (old, new)]
    families = []
    for code, category in enumerate(graph.categories):
        chosen = np.flatnonzero((graph.nodes.kind == n.COMPUTE) & (graph.nodes.category == code))
        if len(chosen):
            pair = pair_rates(kernel_rates(), category, old, new)
            arithmetic = [*rates.values()] if category not in _MEMORY else []
            by_memory = [] if category in _ARITHMETIC and precision else [memory]
            before, after = (roofline[chosen] for roofline in rooflines)
            measured_ns = np.maximum(graph.nodes.dur[chosen], 1).astype(np.float64)
            ends = _model_ratios(pair, before, after, measured_ns, [*arithmetic, *by_memory])
            families.append(_Family(category, chosen, measured_ns, *ends, pair))
    expected, low, high = (np.ones(len(graph.nodes)) for _ in range(3))
    kept = _kept_width(families)
    for family in families:
        expected[family.chosen] = np.where(family.least == family.most, family.least, np.nan)
        factor = family.pair.factor**kept
        low[family.chosen], high[family.chosen] = family.least / factor, family.most * factor
    notes = _notes(graph, rooflines, families, old, new)
    return KernelRatios(expected, low, high, kernel_rates().host_factor, notes)


class _Family(NamedTuple):
    """A family's kernels: nodes, measured times, ns, modelled ratios, shape (kernels,); and its rates."""

    name: str
    chosen: Int64
    measured_ns: Float64
    least: Float64
    most: Float64
    pair: PairRates

    @property
    def expected_ns(self) -> float:
        """Time on the new accelerator, in the middle of the modelled ratios."""
        return float((self.measured_ns * np.sqrt(self.least * self.most)).sum())


def _model_ratios(
    pair: PairRates, before: Float64, after: Float64, measured_ns: Float64, factors: Sequence[float]
) -> tuple[Float64, Float64]:
    """Least and most ratio of kernels with these roofline times and measured times, ns, shape (kernels,); an
    unknown roofline time may change by any of the factors."""
    shaped = ~np.isnan(before) & ~np.isnan(after)
    assumed = np.maximum(measured_ns - pair.small_ns[0], 0) * pair.share[0]
    old_ns = np.where(
        shaped,
        pair.small_ns[0] + before / pair.share[0],
        np.maximum(pair.small_ns[0] + assumed / pair.share[0], measured_ns),
    )
    least, most = (
        (pair.small_ns[1] + np.where(shaped, after, assumed * factor) / pair.share[1]) / old_ns
        for factor in (min(factors), max(factors))
    )
    return least, most


def _kept_width(families: Sequence[_Family]) -> float:
    """Width of the bounds of all kernels together, as a share of that if all families deviate alike.

    Families deviate independently: widths w = time · log(factor) add as sqrt(Σ w²).
    """
    widths = np.array([family.expected_ns * np.log(family.pair.factor) for family in families], np.float64)
    return float(np.sqrt((widths**2).sum()) / widths.sum()) if len(widths) else 1.0


def runs_same_kernels(old: Accelerator, new: Accelerator) -> bool:
    """Whether both have the same processors, by their peaks and number."""
    return old.sm_count == new.sm_count and dict(old.peak_flops_per_s) == dict(new.peak_flops_per_s)


def _by_memory(graph: Graph, memory: float, old: Accelerator, new: Accelerator) -> KernelRatios:
    """Arithmetic takes its time, memory-bound families scale by bandwidth, and both bound others."""
    by_category = [1.0 if c in _ARITHMETIC else memory if c in _MEMORY else np.nan for c in graph.categories]
    computes = graph.nodes.kind == n.COMPUTE
    expected = np.where(computes, np.array([*by_category, np.nan])[graph.nodes.category], 1.0)
    low, high = (np.where(computes, bound, 1.0) for bound in (min(memory, 1.0), max(memory, 1.0)))
    basis = f"{old.id} and {new.id} differ in memory alone: kernels bound by it scale with its bandwidth"
    return KernelRatios(expected, low, high, 1.0, (basis,))


def _roofline_ns(costs: NodeCosts, device: Accelerator) -> Float64:
    """Arithmetic or memory time of each kernel, whichever is longer, ns; NaN where unknown."""
    memory = costs.memory_ns(float(device.hbm_bytes_per_s or np.nan))
    return np.maximum(costs.arithmetic_ns(usable_rates(device)), memory)


def _require_precisions(graph: Graph, costs: NodeCosts, old: Accelerator, new: Accelerator) -> None:
    """Raise `InputError` for products in a precision that only the old accelerator has."""
    products = np.array([*(word in _ARITHMETIC for word in graph.categories), False], np.bool_)
    products = products[graph.nodes.category] & (graph.nodes.kind == n.COMPUTE) & (costs.flops > 0)
    lacking = [
        word
        for code, word in enumerate(costs.precisions)
        if word in usable_rates(old)
        and word not in usable_rates(new)
        and (products & (costs.precision == code)).any()
    ]
    if lacking:
        raise InputError(
            f"accelerator: {new.id} has no {lacking[0]} rate in the catalog, which products of the run need"
        )


def _notes(
    graph: Graph,
    rooflines: Sequence[Float64],
    families: Sequence[_Family],
    old: Accelerator,
    new: Accelerator,
) -> tuple[str, ...]:
    """What kernels' times are based on, and what bounds them."""
    nodes = graph.nodes
    computes = nodes.kind == n.COMPUTE
    shaped: Mask = computes & ~np.isnan(rooflines[0]) & ~np.isnan(rooflines[1])
    share = nodes.dur[shaped].sum() / max(nodes.dur[computes].sum(), 1)
    with_captures, without_captures = (
        [
            f"{family.name} {family.pair.factor:.2g}" + (f" ({family.pair.captures})" if is_captured else "")
            for family in families
            if bool(family.pair.captures) == is_captured
        ]
        for is_captured in (True, False)
    )
    others = f"not known of {new.id}, by captures of other accelerators: {', '.join(without_captures)}"
    by_captures = f"by captures on {new.id}, of which so many have it: {', '.join(with_captures)}"
    return (
        f"kernels scale from {old.id} to {new.id} by FLOPs and bytes ({share:.1%} of their time, the rest by"
        " peak or memory bandwidth), at the rates that shipped captures attain",
        *(
            [f"factor by which a family's kernels may be faster or slower, {by_captures}"]
            if with_captures
            else []
        ),
        *([f"factor of families {others}"] if without_captures else []),
        "families deviate independently, and so does the host of another accelerator: its calls may be"
        f" {kernel_rates().host_factor:.2g} times as fast or as slow, as between captures",
        "not scaled: memory copies, communication, waits for data",
    )
