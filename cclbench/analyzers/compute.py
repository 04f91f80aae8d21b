# SPDX-License-Identifier: Apache-2.0
"""Compute: busy time, its categories, FLOPs, occupancy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import Coverage, Failed, NotApplicable, Value, mean_over_ranks, metric
from cclbench.analyzers.view.categories import kernels_by_category
from cclbench.analyzers.view.columns import has_word, word_codes
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

_MOST_NAMED = 3
"""Kernels of a run that `compute.dominant_kernel` names."""
_NO_KERNELS = "the rank runs no kernels in the window, or the CPU is the device"


@metric(
    "compute.time",
    definition="Time in which compute kernels run, all but communication. Partial where CUDA graphs were"
    " traced as a whole: their launches count as compute.",
    formula="|C|",
    unit="s",
    graphs="as compute",
)
def time(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, rank.parts.compute_only + rank.parts.overlapped)


@metric(
    "compute.busy",
    definition="Share of the window in which compute kernels run, all but communication. Partial where CUDA"
    " graphs were traced as a whole: their launches count as compute, so it is an upper bound.",
    formula="|C| / W",
    unit="1",
    better="higher",
    graphs="as compute",
)
def busy(rank: RankView) -> Iterator[Value]:
    p = rank.parts
    yield from share_values(rank, p.compute_only + p.overlapped, p.window, noun="time")


@metric(
    "compute.mfu",
    definition="Model FLOPs utilisation: the model's FLOPs of a step over what all devices could compute in"
    " the step time at the dense peak of the card's precision, idle time included."
    " N_mm: parameters in matrix products, those of the model (the active ones of a mixture of experts)"
    " − embedding tables + output head, where the head shares the table (vocabulary · hidden);"
    " L layers; H query heads; Q and V the dimensions per head of query and key, and of value; S sequence"
    " length (for inference the input length, with the head computed only for the last token)."
    " Attention counts all S·S pairs of tokens, as in PaLM; the stats causal and window count S(S+1)/2, or"
    " w(w+1)/2 + (S−w)w with a window of w tokens, where the card states such attention."
    " Failed above 1: the card and the trace disagree.",
    formula="FLOPs per step / (time.step · devices · peak); FLOPs of a sequence:"
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
    " steps, or a step serves parts of many requests",
    version=2,
    combine=rate_at_slowest_rank,
    rank_rows=False,
    graphs="counted",
)
def mfu(rank: RankView) -> list[Value]:
    peak = peak_flops_per_s(rank) * int(card_field(rank, "hardware.count"))
    needed = flops_per_step(rank)
    values = [
        replace(value, stat=stat)
        for stat, flops in needed.items()
        for value in rate_per_step(rank, flops / peak)
    ]
    most = {stat: max(value.value or 0.0 for value in values if value.stat == stat) for stat in needed}
    if most[None] > 1:
        counted = "".join(f", {share:.3g} by {stat} attention" for stat, share in most.items() if stat)
        why = "card and trace disagree" if min(most.values()) > 1 else "attention is not over all pairs"
        raise Failed(f"the card's model would need {most[None]:.3g} of the devices' peak{counted}: {why}")
    return values


@metric(
    "compute.achieved_flops",
    definition="FLOPs of the compute kernels that begin in the window, over the window: as the trace states"
    " them, else those of the operators that launched them, by formula from their recorded arguments.",
    formula="Σ flops / W",
    unit="FLOP/s",
    better="higher",
    not_applicable="no kernel states its FLOPs, and no operator has a cost model and recorded arguments",
    version=4,
)
def achieved_flops(rank: RankView) -> Value:
    return _executed_flops(rank)


def _executed_flops(rank: RankView) -> Value:
    flops, coverage = 0.0, Coverage(0, 0, 0, 0)
    for batch, _ in () if rank.on_host else rank.begun(("kernel",), "flops", "category"):
        batch = batch.filter(pa.array(~has_word(batch, "category", "communication")))
        stated = batch["flops"].is_valid().to_numpy(zero_copy_only=False)
        coverage += Coverage.from_rows(stated, batch["dur_ns"].to_numpy())
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
            "no kernel states its FLOPs, and no operator has a cost model and recorded arguments"
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
    definition="Hardware FLOPs utilisation: executed FLOPs, including recomputation"
    " (compute.achieved_flops), over what the device could compute in the window at the dense peak of the"
    " card's precision. compute.mfu counts what the model needs instead. Failed above 1: the card's precision"
    " and the trace disagree.",
    formula="Σ flops / (W · peak)",
    unit="1",
    better="higher",
    inputs=("events", "operators", "steps", "card: workload.precision", "catalog: dense peak"),
    not_applicable="no kernel states its FLOPs, and no operator has a cost model and recorded arguments; or"
    " there is no card or it lacks a field, or the catalog lacks the peak",
    version=2,
)
def hfu(rank: RankView) -> Value:
    peak = peak_flops_per_s(rank)
    achieved = _executed_flops(rank)
    assert achieved.value is not None  # noqa: S101 - else it does not apply
    peak_share = achieved.value / peak
    if peak_share > 1:
        raise Failed(f"the executed FLOPs are {peak_share:.3g} of the device's peak: the precision is wrong")
    return replace(achieved, value=peak_share)


@metric(
    "compute.category_share",
    definition="Share of kernel time in which a kernel of the category runs; stat `classified` is the share"
    " in which a kernel of any known category runs (all but 'other'). Overlapping categories each count, so"
    " shares may sum to more than 1.",
    formula="|kernels of the category| / |C∪K|",
    unit="1",
    not_applicable=_NO_KERNELS,
    version=2,
)
def category_share(rank: RankView) -> Iterator[Value]:
    rank.needs_accelerator("its operators nest, so a category's share of time has no meaning")
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
    """|C∪K| by window, ns."""
    return rank.parts.compute_only + rank.parts.overlapped + rank.parts.exposed_comm


def longest_of_all_ranks(ranks: Mapping[int, Sequence[Value]]) -> Iterable[Value]:
    """Mean over ranks by weight; three kernels' shares of all ranks' kernel durations, longest first."""
    rank_shares = {
        rank: [v for v in values if v.has_value and v.category is None] for rank, values in ranks.items()
    }
    yield from mean_over_ranks(rank_shares)
    durations: Counter[str] = Counter()
    for value in (value for values in rank_shares.values() for value in values):
        assert isinstance(value.detail, dict)  # noqa: S101 - by `dominant_kernel`
        durations.update(value.detail)
    total = durations.total()
    for name, ns in durations.most_common(_MOST_NAMED):
        yield Value(value=ns / total, category=name)


@metric(
    "compute.dominant_kernel",
    definition="Largest share of one kernel, by base name, of the summed kernel durations in steady steps"
    " (at most twice the median step). The category row of a rank names the kernel; those of the run are the"
    " three kernels with the longest sums over all ranks, as shares of all ranks' durations. Of kernels with"
    " equal sums the first to run comes first.",
    formula="max over names of Σ duration / Σ duration of all kernels",
    unit="1",
    not_applicable=_NO_KERNELS,
    combine=longest_of_all_ranks,
    version=3,
)
def dominant_kernel(rank: RankView) -> Iterator[Value]:
    w = rank.windows
    steady = w.ends - w.starts <= 2 * np.median(w.ends - w.starts)
    by_name: dict[str, int] = {}
    begins: dict[str, int] = {}
    for batch, window in rank.kernels("name"):
        numbers, words = word_codes(batch, "name")
        durations = np.where(steady[window], batch["dur_ns"].to_numpy(), 0)
        # sums of ns stay far below 2^53: the floats of bincount are exact
        sums = np.bincount(numbers, weights=durations, minlength=len(words))
        first = np.full(len(words), np.iinfo(np.int64).max)
        np.minimum.at(first, numbers, batch["start_ns"].to_numpy())
        for number in np.flatnonzero(sums).tolist():
            name = words[number] or ""
            by_name[name] = by_name.get(name, 0) + int(sums[number])
            begins[name] = min(begins.get(name, int(first[number])), int(first[number]))
    by_base: dict[str, int] = {}
    for name in sorted(by_name, key=begins.__getitem__):
        by_base[base_name(name)] = by_base.get(base_name(name), 0) + by_name[name]
    if not by_base:
        raise NotApplicable("the kernels in the window have no duration")
    total = sum(by_base.values())
    most, ns = max(by_base.items(), key=lambda item: item[1])  # of equal ones the first
    yield Value(value=ns / total, weight=total, reason=most, detail=by_base)
    yield Value(value=ns / total, weight=total, category=most)


@metric(
    "compute.moe_share",
    definition="Share of kernel time in which mixture-of-experts kernels run (routing, permutation, grouped"
    " expert products), for models that the card declares as such.",
    formula="|kernels of category moe| / |C∪K|",
    unit="1",
    inputs=("events", "steps", "card: workload.model.moe"),
    not_applicable="the card does not state moe: true, or there are no kernels",
)
def moe_share(rank: RankView) -> Iterator[Value]:
    if not card_field(rank, "workload.model.moe"):
        raise NotApplicable("the card states workload.model.moe: false")
    rank.needs_accelerator("it runs operators, not kernels")
    moe = rank.inside(kernels_by_category(rank).get("moe", intervals.EMPTY))
    yield from share_values(rank, moe, _kernel_time(rank), noun="kernel time")


@metric(
    "compute.sm_coverage",
    definition="Share of the device's multiprocessors that a kernel's grid can occupy, mean over kernels"
    " weighted by duration. SMs: from the trace, else from the catalog.",
    formula="Σ duration · min(blocks / SMs, 1) / Σ duration",
    unit="1",
    better="higher",
    inputs=("events", "steps", "card: hardware.accelerator", "catalog: multiprocessors"),
    not_applicable="the trace states no grids, or the number of multiprocessors is unknown",
)
def sm_coverage(rank: RankView) -> Value:
    covered = total = 0
    coverage = Coverage(0, 0, 0, 0)
    for batch, _ in rank.kernels("blocks"):
        stated = batch["blocks"].is_valid().to_numpy(zero_copy_only=False)
        coverage += Coverage.from_rows(stated, batch["dur_ns"].to_numpy())
        kernels = batch.filter(pa.array(stated))
        if len(kernels):
            sms, durations = _sm_count(rank), kernels["dur_ns"].to_numpy()
            covered += int((durations * np.minimum(kernels["blocks"].to_numpy(), sms)).sum())
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
    definition="Share of the device's warps that compute kernels keep resident, mean weighted by duration, as"
    ' the profiler states it: Kineto\'s "est. achieved occupancy %" of CUDA kernels, an estimate from grid,'
    " registers and shared memory in whole percent. Kineto writes 0 for kernels with more than the default"
    " shared memory of a block (48 KiB), which it cannot estimate: they are left out and counted, and the"
    " mean is partial.",
    formula="Σ duration · occupancy / Σ duration",
    unit="1",
    better="higher",
    not_applicable="the trace states no occupancy: only Kineto's traces do, on CUDA",
)
def occupancy(rank: RankView) -> Value:
    filled, coverage = 0.0, Coverage(0, 0, 0, 0)
    for batch, _ in rank.kernels("occupancy", "category"):
        batch = batch.filter(pa.array(~has_word(batch, "category", "communication")))
        stated = batch["occupancy"].is_valid().to_numpy(zero_copy_only=False)
        durations = batch["dur_ns"].to_numpy()
        coverage += Coverage.from_rows(stated, durations)
        filled += float(durations[stated] @ batch["occupancy"].drop_null().to_numpy())
    if not coverage.ns:
        raise NotApplicable("the trace states no occupancy (Kineto's do, on CUDA)")
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
        raise NotApplicable(f"neither the trace nor the catalog states the number of SMs of {device.id}")
    return int(device.sm_count)


@metric(
    "compute.kernel_count",
    definition="Number of kernels that begin in the window, per step, including communication.",
    formula="n",
    unit="count",
    better="lower",
    not_applicable=_NO_KERNELS,
)
def kernel_count(rank: RankView) -> Iterator[Value]:
    yield from per_step(rank, _counts_and_durations(rank)[0], unit=1)


@metric(
    "compute.mean_kernel",
    definition="Mean duration of the kernels that begin in the window, including communication.",
    formula="Σ duration / n",
    unit="s",
    not_applicable=_NO_KERNELS,
)
def mean_kernel(rank: RankView) -> Iterator[Value]:
    counts, durations = _counts_and_durations(rank)
    yield from share_values(rank, durations, counts * NS_PER_S, noun="kernel")


@metric(
    "compute.kernel_time",
    definition="Duration of the kernels that begin in the window, including communication: median, p95 (from"
    " 20 kernels) and max, of all and by category. The mean is compute.mean_kernel.",
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
    durations_by = {name: np.concatenate(parts) for name, parts in sorted(by_category.items())}
    for name, ns in [(None, np.concatenate(list(durations_by.values()))), *durations_by.items()]:
        for value in time_distribution(ns):
            yield replace(value, category=name, stat=None if value.stat == "p50" else value.stat)


def _counts_and_durations(rank: RankView) -> tuple[Int64, Int64]:
    """Number and total duration (ns) of the kernels that begin in each window; shape (windows,)."""
    counts = np.zeros(len(rank.windows), np.int64)
    durations = np.zeros(len(rank.windows), np.int64)
    for batch, window in rank.kernels():
        counts += np.bincount(window, minlength=len(counts))
        durations += np.bincount(window, batch["dur_ns"].to_numpy(), len(counts)).astype(np.int64)
    return counts, durations
