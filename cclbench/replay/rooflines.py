# SPDX-License-Identifier: Apache-2.0
"""The least time of kernels on the catalog's machine, at their own precision or on tensor cores."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from cclbench.classify.arithmetic import kernel_arithmetic
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Mask
from cclbench.hardware.accelerator import PRACTICAL, Accelerator
from cclbench.operators.chains import KINDS
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject, LayoutEffect, Scale
from cclbench.replay.graph import Graph
from cclbench.replay.kernel_costs import Float64, NodeCosts

USUAL: Final = 0.9
"""Share of the fastest product that anybody measured on a device which well-shaped products reach usually."""
_ATTENTION: Final = 0.5
"""The same of a kernel of attention, of what products reach: FlashAttention-2 runs at 50 to 73 % of an A100's
peak (Dao, arXiv:2307.08691) and at 35 to 40 % of an H100's (Shah et al., arXiv:2407.08608)."""
LEAST_KERNEL_NS: Final = 2_000
"""What a kernel that does nothing takes, as profilers measure it: less is not counted on."""
_OF_CALLS: Final = tuple(
    n.HOST_CAUSES.index(word) for word in ("operators", "launch", "python", "unrecorded")
)
_RECORD: Final = "record operators' shapes (record_shapes=True)"
_SIXTEEN_BITS: Final = ("bf16", "fp16")


def has_roofline(subject: ChangeSubject, chosen: Mask) -> Mask:
    """Which of the chosen kernels have known bytes, shape (nodes,)."""
    return np.asarray(chosen & ~np.isnan(subject.costs.node_costs.bytes))


def without_tensor_cores(subject: ChangeSubject, chosen: Mask) -> Mask:
    """Which of the chosen kernels are products of fp32 that by their names do without, shape (nodes,)."""
    names = [kernel_arithmetic(name) for name in subject.graph.names]
    plain = [told.tensor_cores is False and told.precision == "fp32" for told in names]
    return np.asarray(chosen & np.array([*plain, False], np.bool_)[subject.graph.nodes.name])


def in_chains(subject: ChangeSubject, chosen: Mask) -> Mask:
    """Which of the chosen kernels are part of a chain that one kernel could be, shape (nodes,)."""
    return np.asarray(chosen & (subject.costs.node_costs.chain[0] >= 0))


def at_roofline(subject: ChangeSubject, chosen: Mask) -> LayoutEffect:
    """What kernels take that do all that the device can, at the precision that they have.

    At least max(FLOPs / fastest rate, bytes / memory bandwidth), at most the same at usual rates (`USUAL` of
    what is attainable, `PRACTICAL` of the memory's), and never less than an empty kernel or more than they
    take.
    `InputError` where no FLOPs or no device are known.
    """
    device, costs = _subject_accelerator(subject), subject.costs.node_costs
    known = has_roofline(subject, chosen)
    if not known.any():
        raise InputError("no FLOPs and bytes of such kernels are known", hint=_RECORD)
    low, high = _roofline_bounds(device, costs)
    note = f"at the roofline: {_share_words(subject, known, chosen)}, on {device.id}"
    return _bounded_effect(subject, known, low, np.maximum(high, LEAST_KERNEL_NS), note)


def as_one_kernel(subject: ChangeSubject, chosen: Mask) -> LayoutEffect | str:
    """What chains of kernels take as one kernel that reads what goes in and writes what comes out, at the
    roofline, and threads but one call for each.  `InputError` where no sizes or no device are known."""
    chained = in_chains(subject, chosen)
    if not chained.any():
        return "no chain of calls that one kernel could be is among them"
    device, costs = _subject_accelerator(subject), subject.costs.node_costs.of_chains()
    known = chained & ~np.isnan(costs.bytes)
    if not known.any():
        raise InputError("what such chains read and write is not known", hint=_RECORD)
    low, high = _roofline_bounds(device, costs)
    high = np.where(costs.chain[0] == [*KINDS].index("attention"), high / _ATTENTION, high)
    note = f"chains as one kernel each: {_share_words(subject, known, chained)}, on {device.id}"
    found = _bounded_effect(subject, known, low, np.maximum(high, LEAST_KERNEL_NS * costs.fused[2]), note)
    return replace(found, graph=_without_launches(subject, known & (costs.chain[2] > 0)))


def _without_launches(subject: ChangeSubject, kernels: Mask) -> Graph:
    """The graph in which threads take no time in the calls of those kernels, nor from one to the next."""
    nodes = subject.graph.nodes
    launches = np.unique(nodes.feeder[kernels & (nodes.feeder >= 0)])
    held = nodes.held.copy()
    saved = np.zeros(len(nodes), np.int64)
    left = np.maximum(subject.since[launches], 0)
    for cause in _OF_CALLS:
        taken = np.minimum(held[launches, cause], left)
        held[launches, cause] -= taken
        saved[launches] += taken
        left = left - taken
    return replace(subject.graph, nodes=replace(nodes, gap=nodes.gap - saved, held=held))


def _roofline_bounds(device: Accelerator, costs: NodeCosts) -> tuple[Float64, Float64]:
    """The time at the fastest rates, and at usual ones, ns, NaN where bytes are not known."""
    best = {word: rate for word in costs.precisions if (rate := device.fastest_flops_per_s(word))}
    usual = {word: USUAL * rate for word in best if (rate := device.usable_flops_per_s(word))}
    memory = float(device.hbm_bytes_per_s or 0)
    return (
        np.fmax(costs.arithmetic_ns(best), costs.memory_ns(memory)),
        np.fmax(costs.arithmetic_ns(usual), costs.memory_ns(PRACTICAL * memory)),
    )


def on_tensor_cores(subject: ChangeSubject, chosen: Mask) -> LayoutEffect | str:
    """What products of fp32 take on tensor cores that they do without, if results may be less exact.

    At least what 16-bit types attain, with half the bytes; at most what they take now, with the arithmetic
    alone as fast as TF32 is in practice, or a 16-bit type where the device has no TF32.  Where no FLOPs are
    known all of their time is taken for arithmetic at its peak or below, so that the peaks' ratios bound it.
    `InputError` where no device is known.
    """
    device = _subject_accelerator(subject)
    now, tf32 = device.peak_flops_per_s.get("fp32"), device.peak_flops_per_s.get("tf32")
    half = next((word for word in _SIXTEEN_BITS if device.peak_flops_per_s.get(word)), None)
    if not now or half is None:
        raise InputError(f"the catalog has no peaks of {device.id} with and without tensor cores")
    peak = float(device.fastest_flops_per_s(half) or 0)
    wanted = without_tensor_cores(subject, chosen)
    if not wanted.any():
        return "no such product is known to do without tensor cores"
    costs = subject.costs.node_costs
    known = wanted & (costs.flops > 0)
    memory = float(device.hbm_bytes_per_s or 0)
    taken = subject.graph.nodes.dur
    low = np.maximum(costs.flops / peak * 1e9, costs.memory_ns(memory) / 2)
    attained = float(device.usable_flops_per_s("tf32" if tf32 else half) or 0)
    saved = costs.flops * (1 / float(now) - 1 / attained) * 1e9
    high = np.maximum(taken - saved, np.maximum(costs.memory_ns(memory), LEAST_KERNEL_NS))
    low = np.where(known, low, taken * float(now) / peak)
    high = np.where(known, high, taken * float(now) / attained)
    types = f"TF32 (high) to {half} (low)" if tf32 else half
    note = (
        f"on tensor cores, {types}, if precision allows: {_share_words(subject, wanted, wanted)},"
        f" on {device.id};"
        f" by the FLOPs of {_share_words(subject, known, wanted)}, else by the ratio of peaks"
    )
    return _bounded_effect(subject, wanted, low, high, note)


def _subject_accelerator(subject: ChangeSubject) -> Accelerator:
    answer = subject.machine.accelerator
    if answer.value is None:
        raise InputError("the least time of kernels needs a device of the catalog", hint=answer.reason)
    if answer.value.hbm_bytes_per_s is None:
        raise InputError(f"the catalog has no memory bandwidth of {answer.value.id}")
    return answer.value


def _bounded_effect(
    subject: ChangeSubject, known: Mask, low: Float64, high: Float64, note: str
) -> LayoutEffect:
    """The known kernels at bounds alone: nothing says how near to either they come."""
    taken = np.maximum(subject.graph.nodes.dur, 1)
    most = np.where(known, np.minimum(high / taken, 1.0), 1.0)
    least = np.where(known, np.minimum(low / taken, most), 1.0)
    return LayoutEffect(subject.graph, Scale(np.where(known, np.nan, 1.0), least, most), notes=(note,))


def _share_words(subject: ChangeSubject, known: Mask, chosen: Mask) -> str:
    share = subject.window_share
    return f"{share(known):.1%} of the step, of {share(chosen):.1%} in such kernels"
