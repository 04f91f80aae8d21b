# SPDX-License-Identifier: Apache-2.0
"""Compute: how busy the device is, with what, and how well it is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import Coverage, Failed, NotApplicable, Value, metric
from cclbench.analyzers.view.categories import kernels_by_category
from cclbench.analyzers.view.columns import is_category, word_codes
from cclbench.analyzers.view.model_flops import flops_per_step
from cclbench.analyzers.view.platform import card_field, peak_flops_per_s, run_accelerator
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import (
    NS_PER_S,
    per_step,
    rate_at_slowest_rank,
    rate_per_step,
    share_values,
    spread_over_ranks,
    time_distribution,
)
from cclbench.classify import base_name
from cclbench.ground import intervals
from cclbench.ground.intervals import Int64

_NO_KERNELS = "the rank ran no kernels in the window, or the CPU is the device"


@metric(
    "compute.time",
    definition="Time in which kernels that are not communication run. Partial where CUDA graphs were traced"
    " whole: their launches count as compute.",
    formula="|C|",
    unit="s",
    graphs="as compute",
)
def time(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.parts.compute_only + rank.parts.overlapped)


@metric(
    "compute.busy",
    definition="Share of the window in which kernels that are not communication run. Partial where CUDA"
    " graphs were traced whole: their launches count as compute, so that it is at most that.",
    formula="|C| / W",
    unit="1",
    better="higher",
    graphs="as compute",
)
def busy(rank: RankView) -> Iterator[Value]:
    p = rank.parts
    yield from share_values(rank, p.compute_only + p.overlapped, p.window, of="time")


@metric(
    "compute.mfu",
    definition="Model FLOPs utilisation: the model's FLOPs of a step over what all devices could do in the"
    " step time at the dense peak of the card's precision. Idle time counts, on every accelerator alike."
    " N_mm: parameters that a token is multiplied by, those of the model (the active ones of a mixture of"
    " experts) − embedding tables + output head, where the head shares the table (vocabulary · hidden);"
    " L layers, H query heads, Q and V the dimensions of query and key, and of value, per head; S sequence"
    " length (an inference request's input length), for whose last token alone inference computes the head."
    " Attention is counted over all S·S pairs of tokens, as PaLM does; the rows of stat causal and window"
    " count S(S+1)/2, or w(w+1)/2 + (S−w)w with w tokens in the window, where the card states such attention."
    " Above 1 the card and the trace disagree, and the result is a failed one.",
    formula="FLOPs per step / (time.step · devices · peak); of a sequence"
    " training 6·N_mm·S + 6·L·H·(Q+V)·S², inference 2(N_mm − head)·S + 2·head + 2·L·H·(Q+V)·S²",
    unit="1",
    better="higher",
    inputs=(
        "events",
        "steps",
        "card: workload.phase, workload.model, workload.precision, workload.batch, hardware.count",
        "catalog: dense peak",
    ),
    not_applicable="there is no card or it lacks a field, the catalog lacks the peak, the trace marks no"
    " steps, or a step serves a part of many requests",
    version=2,
    combine=rate_at_slowest_rank,
    rank_rows=False,
    graphs="counted",
)
def mfu(rank: RankView) -> list[Value]:
    peak = peak_flops_per_s(rank) * int(card_field(rank, "hardware.count"))
    needed = flops_per_step(rank)
    values = [
        replace(v, stat=stat) for stat, flops in needed.items() for v in rate_per_step(rank, flops / peak)
    ]
    most = {stat: max(v.value or 0.0 for v in values if v.stat == stat) for stat in needed}
    if most[None] > 1:
        counted = "".join(f", {share:.3g} by {stat} attention" for stat, share in most.items() if stat)
        why = "card and trace disagree" if min(most.values()) > 1 else "attention is not the full square"
        raise Failed(f"the card's model would need {most[None]:.3g} of the devices' peak{counted}: {why}")
    return values


@metric(
    "compute.achieved_flops",
    definition="FLOPs of kernels beginning in the window, communication aside, over the window: as the trace"
    " states them, else of the operators that launched them, by formula from their recorded arguments.",
    formula="Σ flops / W",
    unit="FLOP/s",
    better="higher",
    not_applicable="no kernel states its FLOPs, and no operator has a cost model and recorded arguments",
    version=3,
)
def achieved_flops(rank: RankView) -> Value:
    return _executed_flops(rank)


def _executed_flops(rank: RankView) -> Value:
    flops, coverage = 0.0, Coverage(0, 0, 0, 0)
    for batch, _ in () if rank.on_host else rank.begun(("kernel",), "flops", "category"):
        batch = batch.filter(pa.array(~is_category(batch, "communication")))
        stated = batch["flops"].is_valid().to_numpy(zero_copy_only=False)
        coverage += Coverage.of_rows(stated, batch["dur_ns"].to_numpy())
        flops += float(batch["flops"].drop_null().to_numpy().sum())
    if not coverage.rows:
        return _derived_flops(rank)
    return Value(
        value=flops * NS_PER_S / rank.windows.total,
        weight=rank.windows.total,
        left_out={"kernels of unknown FLOPs": coverage.all_rows - coverage.rows},
        coverage=coverage,
    )


def _derived_flops(rank: RankView) -> Value:
    works = rank.works
    counted = works.computes & ~np.isnan(works.flops)
    if not counted.any():
        raise NotApplicable(
            "no kernel of the trace states its FLOPs, and no operator has a cost model and recorded arguments"
        )
    return Value(
        value=works.sum_amounts(works.flops, counted) * NS_PER_S / rank.windows.total,
        weight=rank.windows.total,
        provenance="derived",
        reason="by formula from the operators' recorded arguments",
        coverage=works.used_coverage(works.computes, counted),
    )


@metric(
    "compute.hfu",
    definition="Hardware FLOPs utilisation: the FLOPs that ran, recomputation included"
    " (compute.achieved_flops), over what the device could do in the window at the dense peak of the card's"
    " precision. compute.mfu counts what the model needs instead. Above 1 the card's precision and the trace"
    " disagree, and the result is a failed one.",
    formula="Σ flops / (W · peak)",
    unit="1",
    better="higher",
    inputs=("events", "operators", "steps", "card: workload.precision", "catalog: dense peak"),
    not_applicable="no kernel states its FLOPs, and no operator has a cost model and recorded arguments; or"
    " there is no card or it lacks a field, or the catalog lacks the peak",
)
def hfu(rank: RankView) -> Value:
    peak = peak_flops_per_s(rank)
    achieved = _executed_flops(rank)
    assert achieved.value is not None  # noqa: S101 - else it does not apply
    share_of_peak = achieved.value / peak
    if share_of_peak > 1:
        raise Failed(
            f"the FLOPs that ran would take {share_of_peak:.3g} of the device's peak: not its precision"
        )
    return replace(achieved, value=share_of_peak)


@metric(
    "compute.category_share",
    definition="Share of kernel time in which a kernel of the category runs; stat `classified` is the share"
    " in which any kernel with a known one does (all but 'other'). Overlapping categories each count,"
    " so shares may sum to more than 1.",
    formula="|kernels of the category| / |C∪K|",
    unit="1",
    not_applicable=_NO_KERNELS,
    version=2,
)
def category_share(rank: RankView) -> Iterator[Value]:
    rank.needs_accelerator("its ops nest, so a category's share of their time says nothing")
    kernel_time = _kernel_time(rank)
    total = int(kernel_time.sum())
    if not total:
        raise NotApplicable("there is no kernel time in the window")
    by_category = kernels_by_category(rank)
    named = intervals.join(*(s for name, s in by_category.items() if name != "other"))
    yield Value(value=int(rank.inside(named).sum()) / total, weight=total, stat="classified")
    for name, pieces in sorted(by_category.items()):
        yield Value(value=int(rank.inside(pieces).sum()) / total, weight=total, category=name)


def _kernel_time(rank: RankView) -> Int64:
    """|C∪K| of each window, ns."""
    return rank.parts.compute_only + rank.parts.overlapped + rank.parts.exposed_comm


@metric(
    "compute.dominant_kernel",
    definition="Largest share of the summed kernel durations that one kernel has, by base name, in steady"
    " steps (those not longer than twice the median step). The category row names the kernel.",
    formula="max over names of Σ duration / Σ duration of all kernels",
    unit="1",
    not_applicable=_NO_KERNELS,
)
def dominant_kernel(rank: RankView) -> Iterator[Value]:
    w = rank.windows
    steady = w.ends - w.starts <= 2 * np.median(w.ends - w.starts)
    by_name: dict[str, int] = {}
    for batch, window in rank.kernels("name"):
        numbers, words = word_codes(batch, "name")
        durations = np.where(steady[window], batch["dur_ns"].to_numpy(), 0)
        # Sums of ns stay far below 2^53, so the floats of bincount are exact.
        sums = np.bincount(numbers, weights=durations, minlength=len(words))
        for number in np.flatnonzero(sums).tolist():
            by_name[words[number] or ""] = by_name.get(words[number] or "", 0) + int(sums[number])
    by_base: dict[str, int] = {}
    for name, ns in by_name.items():
        by_base[base_name(name)] = by_base.get(base_name(name), 0) + ns
    if not by_base:
        raise NotApplicable("the kernels in the window have no duration")
    total = sum(by_base.values())
    most, ns = min(by_base.items(), key=lambda item: (-item[1], item[0]))
    yield Value(value=ns / total, weight=total, reason=most)
    yield Value(value=ns / total, weight=total, category=most)


@metric(
    "compute.moe_share",
    definition="Share of kernel time in which a mixture-of-experts kernel runs (routing, permutation,"
    " grouped expert products), of a model that the card calls one.",
    formula="|kernels of category moe| / |C∪K|",
    unit="1",
    inputs=("events", "steps", "card: workload.model.moe"),
    not_applicable="the card does not say moe: true, or there are no kernels",
)
def moe_share(rank: RankView) -> Iterator[Value]:
    if not card_field(rank, "workload.model.moe"):
        raise NotApplicable("the card says workload.model.moe: false")
    rank.needs_accelerator("it runs ops, no kernels")
    moe = rank.inside(kernels_by_category(rank).get("moe", intervals.EMPTY))
    yield from share_values(rank, moe, _kernel_time(rank), of="kernel time")


@metric(
    "compute.sm_coverage",
    definition="Duration-weighted mean over kernels of the share of the device's multiprocessors that their"
    " grid can occupy. SMs: of the trace, else the catalog.",
    formula="Σ duration · min(blocks / SMs, 1) / Σ duration",
    unit="1",
    better="higher",
    inputs=("events", "steps", "card: hardware.accelerator", "catalog: multiprocessors"),
    not_applicable="the trace states no grids, or nothing says how many multiprocessors the device has",
)
def sm_coverage(rank: RankView) -> Value:
    covered = total = 0
    coverage = Coverage(0, 0, 0, 0)
    for batch, _ in rank.kernels("blocks"):
        stated = batch["blocks"].is_valid().to_numpy(zero_copy_only=False)
        coverage += Coverage.of_rows(stated, batch["dur_ns"].to_numpy())
        known = batch.filter(pa.array(stated))
        if len(known):
            sms, durations = _sm_count(rank), known["dur_ns"].to_numpy()
            covered += int((durations * np.minimum(known["blocks"].to_numpy(), sms)).sum())
            total += int(durations.sum()) * sms
    if not total:
        raise NotApplicable("the trace states no kernel's grid")
    return Value(
        value=covered / total,
        weight=total,
        left_out={"kernels of unknown grid": coverage.all_rows - coverage.rows},
        coverage=coverage,
    )


@metric(
    "compute.occupancy",
    definition="Mean share of the device's warps that a kernel keeps resident, by duration, communication"
    ' aside, as the profiler states it: Kineto\'s "est. achieved occupancy %" of CUDA kernels, an estimate'
    " from grid, registers and shared memory in whole percent. Kineto cannot estimate kernels with more"
    " shared memory than a block has by default (48 KiB) and writes 0 for them, which is no figure: they are"
    " left out and counted, and the mean is partial.",
    formula="Σ duration · occupancy / Σ duration",
    unit="1",
    better="higher",
    not_applicable="no kernel's occupancy is stated: of traces that are read, Kineto's state it, on CUDA",
)
def occupancy(rank: RankView) -> Value:
    filled, coverage = 0.0, Coverage(0, 0, 0, 0)
    for batch, _ in rank.kernels("occupancy", "category"):
        batch = batch.filter(pa.array(~is_category(batch, "communication")))
        stated = batch["occupancy"].is_valid().to_numpy(zero_copy_only=False)
        durations = batch["dur_ns"].to_numpy()
        coverage += Coverage.of_rows(stated, durations)
        filled += float(durations[stated] @ batch["occupancy"].drop_null().to_numpy())
    if not coverage.ns:
        raise NotApplicable("the trace states no kernel's occupancy (Kineto does, on CUDA)")
    return Value(
        value=filled / coverage.ns,
        weight=coverage.ns,
        left_out={"kernels of unknown occupancy": coverage.all_rows - coverage.rows},
        coverage=coverage,
    )


def _sm_count(rank: RankView) -> int:
    if rank.facts.sm_count is not None:
        return rank.facts.sm_count
    device = run_accelerator(rank)
    if device.sm_count is None:
        raise NotApplicable(f"neither the trace nor the catalog has the multiprocessor count of {device.id}")
    return int(device.sm_count)


@metric(
    "compute.kernel_count",
    definition="Kernels per step, communication included: those that begin in the window.",
    formula="n",
    unit="count",
    better="lower",
    not_applicable=_NO_KERNELS,
)
def kernel_count(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, _counts_and_durations(rank)[0], unit=1)


@metric(
    "compute.mean_kernel",
    definition="Mean duration of the kernels that begin in the window, communication included.",
    formula="Σ duration / n",
    unit="s",
    not_applicable=_NO_KERNELS,
)
def mean_kernel(rank: RankView) -> Iterator[Value]:
    counts, durations = _counts_and_durations(rank)
    yield from share_values(rank, durations, counts * NS_PER_S, of="kernel")


@metric(
    "compute.kernel_time",
    definition="Duration of the kernels that begin in the window, communication included: their median, with"
    " p95 (from 20 on) and max, of all and by category. What one kernel takes is one value, however many run"
    " at once; the mean is compute.mean_kernel.",
    formula="median of durations",
    unit="s",
    not_applicable=_NO_KERNELS,
    combine=spread_over_ranks,
)
def kernel_time(rank: RankView) -> Iterator[Value]:
    by_category: dict[str, list[Int64]] = {}
    for batch, _ in rank.kernels("category"):
        numbers, words = word_codes(batch, "category")
        durations = batch["dur_ns"].to_numpy()
        for number in np.unique(numbers).tolist():
            by_category.setdefault(words[number] or "other", []).append(durations[numbers == number])
    own = {name: np.concatenate(parts) for name, parts in sorted(by_category.items())}
    for name, ns in [(None, np.concatenate(list(own.values()))), *own.items()]:
        for value in time_distribution(ns):
            yield replace(value, category=name, stat=None if value.stat == "p50" else value.stat)


def _counts_and_durations(rank: RankView) -> tuple[Int64, Int64]:
    """Number and summed duration (ns) of the kernels that begin in each window."""
    counts = np.zeros(len(rank.windows), np.int64)
    durations = np.zeros(len(rank.windows), np.int64)
    for batch, window in rank.kernels():
        counts += np.bincount(window, minlength=len(counts))
        durations += np.bincount(window, batch["dur_ns"].to_numpy(), len(counts)).astype(np.int64)
    return counts, durations
