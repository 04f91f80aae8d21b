# SPDX-License-Identifier: Apache-2.0
"""Memory: copies and device-memory traffic; for allocated memory see `allocation`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import pyarrow as pa

from cclbench.analyzers.metric import Coverage, Failed, NotApplicable, Unknown, Value, metric
from cclbench.analyzers.view.columns import has_values, has_word, row_spans, word_codes
from cclbench.analyzers.view.platform import hbm_bytes_per_s, peak_flops_per_s, run_accelerator
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S, per_step, share_values
from cclbench.ground import intervals
from cclbench.ground.schema import COPY_DIRECTIONS

_NO_COPIES_ON_HOST = "there are no copies to it"


@metric(
    "memory.copy_bandwidth",
    definition="Copied bytes over the duration of the copies, of all and by direction (category). Copies"
    " whose size the trace does not state are left out and counted; the value is then partial.",
    formula="Σ bytes / Σ duration over copies that begin in the window",
    unit="B/s",
    better="higher",
    not_applicable="there are no copies in the window, or none states its size",
)
def copy_bandwidth(rank: RankView) -> Iterator[Value]:
    rank.needs_accelerator(_NO_COPIES_ON_HOST)
    # by direction; the last entry is for copies of unknown direction
    moved, copy_ns = np.zeros((2, len(COPY_DIRECTIONS) + 1), np.int64)
    coverage = Coverage(0, 0, 0, 0)
    for batch, _ in rank.begun(("copy",), "bytes", "copy_direction"):
        lasting = batch.filter(pa.array(batch["dur_ns"].to_numpy() > 0))
        coverage += Coverage.from_rows(
            lasting["bytes"].is_valid().to_numpy(zero_copy_only=False), lasting["dur_ns"].to_numpy()
        )
        sized_copies = lasting.filter(lasting["bytes"].is_valid())
        numbers, words = word_codes(sized_copies, "copy_direction")
        direction = np.array([COPY_DIRECTIONS.index(word) if word else -1 for word in words], np.int64)[
            numbers
        ]
        np.add.at(moved, direction, sized_copies["bytes"].to_numpy())
        np.add.at(copy_ns, direction, sized_copies["dur_ns"].to_numpy())
    if not coverage.all_rows:
        raise NotApplicable("there are no copies in the window")
    if not coverage.rows:
        raise Unknown(f"none of the {coverage.all_rows} copies in the window states its size", coverage)
    all_ns = int(copy_ns.sum())
    yield Value(
        value=int(moved.sum()) * NS_PER_S / all_ns,
        weight=all_ns,
        left_out={"of unknown bytes": coverage.all_rows - coverage.rows},
        coverage=coverage,
    )
    for word, size, ns in zip(COPY_DIRECTIONS, moved.tolist(), copy_ns.tolist(), strict=False):
        if ns:
            yield Value(value=size * NS_PER_S / ns, weight=ns, category=word)


@metric(
    "memory.copy_time",
    definition="Time in which copies or memsets run, alone or with other work.",
    formula="|M|",
    unit="s",
    better="lower",
    not_applicable="the CPU is the device, or the rank has no work in the window",
)
def copy_time(rank: RankView) -> Iterator[Value]:
    rank.needs_accelerator(_NO_COPIES_ON_HOST)
    yield from per_step(rank, rank.inside(rank.copies))


@metric(
    "memory.transfer_overhead",
    definition="Share of the window in which only copies and memsets run.",
    formula="|M \\ (C∪K)| / W",
    unit="1",
    better="lower",
    not_applicable="the CPU is the device, or the rank has no work in the window",
)
def transfer_overhead(rank: RankView) -> Iterator[Value]:
    rank.needs_accelerator(_NO_COPIES_ON_HOST)
    yield from share_values(rank, rank.parts.exposed_copy, rank.parts.window, noun="time")


@metric(
    "memory.hbm_utilization",
    definition="Device-memory traffic of the events that begin in the window, over what the memory could move"
    " in it at peak bandwidth, as the trace states it, else by the catalog. The traffic is stated by the"
    " trace, else it is the compulsory traffic of the launching operators, by formula from their recorded"
    " arguments: a lower bound, since data that is read twice counts once.",
    formula="Σ hbm_bytes / (W · peak)",
    unit="1",
    better="higher",
    inputs=("events", "steps", "card: hardware.accelerator", "catalog: memory bandwidth"),
    not_applicable="the trace states no device-memory traffic and no operator has a cost model and recorded"
    " arguments, or the catalog lacks the peak",
    version=5,
)
def hbm_utilization(rank: RankView) -> Value:
    rank.needs_accelerator("the trace states no memory traffic for it")
    moved, coverage = 0, Coverage(0, 0, 0, 0)
    for batch, _ in rank.begun(("kernel", "copy", "memset"), "hbm_bytes"):
        stated = batch["hbm_bytes"].is_valid().to_numpy(zero_copy_only=False)
        coverage += Coverage.from_rows(stated, batch["dur_ns"].to_numpy())
        moved += int(batch["hbm_bytes"].drop_null().to_numpy().sum())
    provenance: Literal["measured", "derived"] = "measured"
    if not coverage.rows:
        works, provenance = rank.works, "derived"
        # what a cache serves does not cross the memory's pins
        cached = works.is_faster_than(works.bytes / hbm_bytes_per_s(rank) * NS_PER_S)
        counted = works.computes & ~np.isnan(works.bytes) & ~cached
        if not counted.any():
            raise NotApplicable(
                "the trace states no device-memory traffic, and no operator has a cost model and recorded"
                " arguments"
            )
        moved = int(works.sum_amounts(works.bytes, counted))
        coverage = works.used_coverage(works.computes, counted)
    could = rank.windows.total / NS_PER_S * hbm_bytes_per_s(rank)
    if moved > could:
        raise Failed(f"the traffic is {moved / could:.3g} of the peak of the accelerator's memory")
    silent = {"device rows of unknown traffic": coverage.all_rows - coverage.rows}
    return Value(
        value=moved / could,
        weight=could,
        provenance=provenance,
        reason=None if provenance == "measured" else "a lower bound: compulsory traffic of operators",
        left_out=silent,
        coverage=coverage,
    )


@metric(
    "memory.bound_share",
    definition="Share of compute time in memory-bound kernels: those with an arithmetic intensity below the"
    " roofline's ridge point (dense peak over memory bandwidth). From the FLOPs and traffic that the trace"
    " states, at the peak of the card's precision; else from those of the launching operators, by formula"
    " from their recorded arguments, at the peak of their own precision.",
    formula="|kernels with flops / hbm_bytes < peak FLOP/s / peak B/s| / |C|",
    unit="1",
    inputs=(
        "events",
        "steps",
        "card: workload.precision, hardware.accelerator",
        "catalog: dense peak, memory bandwidth",
    ),
    not_applicable="no kernel states both FLOPs and memory traffic and no operator has a cost model and"
    " recorded arguments, or the catalog lacks a peak",
    version=4,
)
def bound_share(rank: RankView) -> Iterator[Value]:
    rank.needs_accelerator("the trace states no memory traffic for it")
    parts, coverage = list[intervals.Intervals](), Coverage(0, 0, 0, 0)
    for batch in rank.tables.events(("kernel",), ("start_ns", "dur_ns", "category", "flops", "hbm_bytes")):
        batch = batch.filter(pa.array(~has_word(batch, "category", "communication")))
        stated = has_values(batch, "flops", "hbm_bytes")
        coverage += Coverage.from_rows(stated, batch["dur_ns"].to_numpy())
        kernels = batch.filter(pa.array(stated))
        if len(kernels):
            ridge = peak_flops_per_s(rank) / hbm_bytes_per_s(rank)
            left = kernels["flops"].to_numpy() < ridge * kernels["hbm_bytes"].to_numpy()
            parts.append(intervals.union(*row_spans(kernels.filter(pa.array(left)))))
    bound = intervals.join(*parts)
    if not coverage.rows:
        bound, coverage = _derived_bound(rank)
    p = rank.parts
    bound = intervals.intersect(bound, rank.compute)
    silent = {"kernels of unknown FLOPs or traffic": coverage.all_rows - coverage.rows}
    for value in share_values(rank, rank.inside(bound), p.compute_only + p.overlapped, noun="compute time"):
        if value.step is None:
            value = replace(value, left_out=silent, coverage=coverage)
        yield replace(value, provenance="derived")


def _derived_bound(rank: RankView) -> tuple[intervals.Intervals, Coverage]:
    """Times of kernels whose operators' bytes take longer than their FLOPs; and the coverage."""
    works, memory = rank.works, hbm_bytes_per_s(rank)
    peaks = run_accelerator(rank).peak_flops_per_s

    computing, moving = works.compute_ns(peaks, None), works.bytes / memory * NS_PER_S
    counted = works.computes & ~np.isnan(computing) & ~np.isnan(moving)
    if not counted.any():
        raise NotApplicable(
            "no kernel states both FLOPs and memory traffic, and no operator has a cost model and recorded"
            " arguments"
        )
    with np.errstate(invalid="ignore"):
        bound = works.intervals_of(counted & (computing < moving))
    return bound, works.used_coverage(works.computes, counted)
