# SPDX-License-Identifier: Apache-2.0
"""Roofline times of kernels on the catalog's device, at their own precision or on tensor cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from cclbench.classify.arithmetic import kernel_arithmetic
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Mask
from cclbench.hardware.accelerator import PRACTICAL, USUAL_ATTENTION, Accelerator
from cclbench.operators.chains import KINDS, NEIGHBOURS
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject, LayoutEffect, Scale
from cclbench.replay.graph import Graph
from cclbench.replay.kernel_costs import Float64, NodeCosts

USUAL: Final = 0.9
"""Share of the fastest measured product that well-shaped products usually reach."""
_UNDER_CAUSAL_MASK: Final = 0.5
"""Share of attention's FLOPs that a fused kernel needs under a causal mask: it skips what is masked."""
LEAST_KERNEL_NS: Final = 2_000
"""Duration of an empty kernel, as profilers measure it: the lower bound of predictions."""
_OF_CALLS: Final = tuple(
    n.HOST_CAUSES.index(word) for word in ("operators", "launch", "python", "unrecorded")
)
_RECORD: Final = "record operators' shapes (record_shapes=True)"
_SIXTEEN_BITS: Final = ("bf16", "fp16")


def has_roofline(subject: ChangeSubject, chosen: Mask) -> Mask:
    """Mask of the chosen kernels with known bytes, shape (nodes,)."""
    return np.asarray(chosen & ~np.isnan(subject.costs.node_costs.bytes))


def without_tensor_cores(subject: ChangeSubject, chosen: Mask) -> Mask:
    """Mask of the chosen kernels that are fp32 products without tensor cores, by name, shape (nodes,)."""
    names = [kernel_arithmetic(name) for name in subject.graph.names]
    plain = [arithmetic.tensor_cores is False and arithmetic.precision == "fp32" for arithmetic in names]
    return np.asarray(chosen & np.array([*plain, False], np.bool_)[subject.graph.nodes.name])


def in_chains(subject: ChangeSubject, chosen: Mask) -> Mask:
    """Mask of the chosen kernels in chains that one kernel could replace, shape (nodes,)."""
    return np.asarray(chosen & (subject.costs.node_costs.chain[0] >= 0))


def at_roofline(subject: ChangeSubject, chosen: Mask) -> LayoutEffect:
    """Kernels at the roofline of their precision.

    Bounds: max(FLOPs / fastest rate, bytes / memory bandwidth), and the same at usual rates (`USUAL` of the
    attainable, `PRACTICAL` of the memory's, and `USUAL_ATTENTION` of both for attention); never less than an
    empty kernel or more than measured.
    `InputError` where FLOPs or device are unknown.
    """
    device, costs = _subject_accelerator(subject), subject.costs.node_costs
    has_cost = has_roofline(subject, chosen)
    if not has_cost.any():
        raise InputError("FLOPs and bytes of such kernels are unknown", hint=_RECORD)
    low, high = _roofline_bounds(device, costs)
    attention = np.array([*(word == "attention" for word in subject.graph.categories), False], np.bool_)
    high = np.where(attention[subject.graph.nodes.category], high / USUAL_ATTENTION, high)
    note = f"at the roofline: {_share_words(subject, has_cost, chosen)}, on {device.id}"
    return _bounded_effect(subject, has_cost, low, np.maximum(high, LEAST_KERNEL_NS), note)


def as_one_kernel(subject: ChangeSubject, chosen: Mask) -> LayoutEffect | str:
    """Chains of kernels as one kernel that reads the inputs and writes the outputs, at the roofline, with a
    single call each (neighbours with all their calls). Attention takes half of its FLOPs at the lower bound,
    since the trace does not show whether its mask is causal. `InputError` where sizes or device are unknown.
    """
    chained = in_chains(subject, chosen)
    if not chained.any():
        return "none of them is in a chain of calls that one kernel could replace"
    device, costs = _subject_accelerator(subject), subject.costs.node_costs.chain_costs()
    has_bytes = chained & ~np.isnan(costs.bytes)
    if not has_bytes.any():
        raise InputError("what such chains read and write is unknown", hint=_RECORD)
    is_attention = costs.chain[0] == [*KINDS].index("attention")
    flops = np.where(is_attention, _UNDER_CAUSAL_MASK * costs.flops, costs.flops)
    (low, _), (_, high) = (_roofline_bounds(device, each) for each in (replace(costs, flops=flops), costs))
    high = np.where(is_attention, high / USUAL_ATTENTION, high)
    note = f"chains as one kernel each: {_share_words(subject, has_bytes, chained)}, on {device.id}"
    effect = _bounded_effect(
        subject, has_bytes, low, np.maximum(high, LEAST_KERNEL_NS * costs.fused[2]), note
    )
    # of neighbours only the kernels' time is at stake: which of their calls would go is not known
    without = has_bytes & (costs.chain[2] > 0) & (costs.chain[0] != [*KINDS].index(NEIGHBOURS))
    return replace(effect, graph=without_launches(subject, without))


def without_launches(subject: ChangeSubject, kernels: Mask) -> Graph:
    """The graph without host time in and between the calls of these kernels."""
    nodes = subject.graph.nodes
    launches = np.unique(nodes.feeder[kernels & (nodes.feeder >= 0)])
    held = nodes.held.copy()
    saved = np.zeros(len(nodes), np.int64)
    remaining = np.maximum(subject.since[launches], 0)
    for cause in _OF_CALLS:
        saved_ns = np.minimum(held[launches, cause], remaining)
        held[launches, cause] -= saved_ns
        saved[launches] += saved_ns
        remaining = remaining - saved_ns
    return replace(subject.graph, nodes=replace(nodes, gap=nodes.gap - saved, held=held))


def _roofline_bounds(device: Accelerator, costs: NodeCosts) -> tuple[Float64, Float64]:
    """Time at the fastest and at usual rates, ns, NaN where bytes are unknown."""
    best = {word: rate for word in costs.precisions if (rate := device.fastest_flops_per_s(word))}
    usual = {word: USUAL * rate for word in best if (rate := device.usable_flops_per_s(word))}
    memory = float(device.hbm_bytes_per_s or 0)
    return (
        np.fmax(costs.arithmetic_ns(best), costs.memory_ns(memory)),
        np.fmax(costs.arithmetic_ns(usual), costs.memory_ns(PRACTICAL * memory)),
    )


def on_tensor_cores(subject: ChangeSubject, chosen: Mask) -> LayoutEffect | str:
    """fp32 products on tensor cores, if less precision is acceptable.

    Bounds: the time of 16-bit types, with half the bytes; and the present time with only the arithmetic as
    fast as TF32 in practice (a 16-bit type on devices without TF32). With unknown FLOPs all time counts as
    arithmetic, and the ratios of the peaks are the bounds.
    `InputError` where the device is unknown.
    """
    device = _subject_accelerator(subject)
    fp32_peak, tf32 = device.peak_flops_per_s.get("fp32"), device.peak_flops_per_s.get("tf32")
    half = next((word for word in _SIXTEEN_BITS if device.peak_flops_per_s.get(word)), None)
    if not fp32_peak or half is None:
        raise InputError(f"the catalog lacks peaks of {device.id} with or without tensor cores")
    peak = float(device.fastest_flops_per_s(half) or 0)
    products = without_tensor_cores(subject, chosen)
    if not products.any():
        return "no such product is known to run without tensor cores"
    costs = subject.costs.node_costs
    has_flops = products & (costs.flops > 0)
    memory = float(device.hbm_bytes_per_s or 0)
    measured_ns = subject.graph.nodes.dur
    low = np.maximum(costs.flops / peak * 1e9, costs.memory_ns(memory) / 2)
    attained = float(device.usable_flops_per_s("tf32" if tf32 else half) or 0)
    saved = costs.flops * (1 / float(fp32_peak) - 1 / attained) * 1e9
    high = np.maximum(measured_ns - saved, np.maximum(costs.memory_ns(memory), LEAST_KERNEL_NS))
    low = np.where(has_flops, low, measured_ns * float(fp32_peak) / peak)
    high = np.where(has_flops, high, measured_ns * float(fp32_peak) / attained)
    types = f"TF32 (high) to {half} (low)" if tf32 else half
    note = (
        f"on tensor cores, {types}, if precision allows: {_share_words(subject, products, products)},"
        f" on {device.id};"
        f" by the FLOPs of {_share_words(subject, has_flops, products)}, else by the ratio of peaks"
    )
    return _bounded_effect(subject, products, low, high, note)


def _subject_accelerator(subject: ChangeSubject) -> Accelerator:
    answer = subject.machine.accelerator
    if answer.value is None:
        raise InputError("roofline times need a device of the catalog", hint=answer.reason)
    if answer.value.hbm_bytes_per_s is None:
        raise InputError(f"the catalog has no memory bandwidth of {answer.value.id}")
    return answer.value


def _bounded_effect(
    subject: ChangeSubject, has_bounds: Mask, low: Float64, high: Float64, note: str
) -> LayoutEffect:
    """The kernels that have bounds at these, without an expected value."""
    measured_ns = np.maximum(subject.graph.nodes.dur, 1)
    most = np.where(has_bounds, np.minimum(high / measured_ns, 1.0), 1.0)
    least = np.where(has_bounds, np.minimum(low / measured_ns, most), 1.0)
    return LayoutEffect(subject.graph, Scale(np.where(has_bounds, np.nan, 1.0), least, most), notes=(note,))


def _share_words(subject: ChangeSubject, subset: Mask, chosen: Mask) -> str:
    share = subject.window_share
    return f"{share(subset):.1%} of the step, of {share(chosen):.1%} in such kernels"
