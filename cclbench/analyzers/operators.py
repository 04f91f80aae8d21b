# SPDX-License-Identifier: Apache-2.0
"""Operators: distance from the roofline, recomputation, time by phase and module."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import zip_longest
from typing import Final

import numpy as np

from cclbench.analyzers.metric import NotApplicable, Unknown, Value, metric
from cclbench.analyzers.view.categories import innermost_pieces, window_shares
from cclbench.analyzers.view.columns import event_table, matching_rows, row_spans, word_codes
from cclbench.analyzers.view.operator_calls import Float64
from cclbench.analyzers.view.platform import hbm_bytes_per_s, run_accelerator
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S, parts_over_ranks, per_step
from cclbench.analyzers.view.works import Works
from cclbench.ground import intervals
from cclbench.ground.intervals import Intervals, Mask
from cclbench.ground.schema import CATEGORIES, PHASES
from cclbench.normalize.operators import is_wrapper

GEMM: Final = "matrix product"
"""Family of the cost models of matrix products."""
_FASTER: Final = "calls faster than their roofline"
_INPUTS: Final = ("events", "operators", "steps", "catalog: dense peaks, memory bandwidth")
_DERIVED: Final = "FLOPs and bytes by formula from recorded arguments; bytes are compulsory traffic only"
_NO_MODEL: Final = (
    "no operator in the window has a cost model and recorded arguments (record_shapes), or the catalog lacks"
    " the accelerator"
)


@metric(
    "compute.gemm_efficiency",
    definition="FLOPs of matrix products over what the device could compute in their kernels' time, at the"
    " dense peak of each product's precision. FLOPs are 2·M·N·K of the recorded sizes, and those of what a"
    " compiler fused to it.",
    formula="Σ FLOPs / peak / Σ time, over matrix products that begin in the window",
    unit="1",
    better="higher",
    inputs=_INPUTS,
    not_applicable=_NO_MODEL,
    version=3,
)
def gemm_efficiency(rank: RankView) -> Value:
    works, device = rank.works, run_accelerator(rank)
    products = works.of_family(GEMM) & works.computes
    ideal = works.compute_ns(device.peak_flops_per_s, None)
    return _roofline_efficiency(works, products, ideal, "matrix products")


@metric(
    "compute.roofline_efficiency",
    definition="Roofline time of the operators' FLOPs and compulsory bytes on the device, over their measured"
    " time: operators with a cost model, also by category. Near 1 only fewer FLOPs or bytes help;"
    " `cclbench ops --sort gap` lists what is below. Calls alike that are together faster than their roofline"
    " are left out and counted: a cache served them, or a formula, an element type or a peak is wrong.",
    formula="Σ max(FLOPs / peak, bytes / memory bandwidth) / Σ time",
    unit="1",
    better="higher",
    inputs=_INPUTS,
    not_applicable=_NO_MODEL,
    version=4,
)
def roofline_efficiency(rank: RankView) -> Iterator[Value]:
    works, device = rank.works, run_accelerator(rank)
    ideal = works.roofline_ns(device.peak_flops_per_s, None, hbm_bytes_per_s(rank))
    yield _roofline_efficiency(works, works.computes, ideal, "operators")
    for code in np.unique(works.category[works.computes & ~np.isnan(ideal)]).tolist():
        of_category = works.computes & (works.category == code)
        yield _roofline_efficiency(works, of_category, ideal, "operators", category=CATEGORIES[code])


def _roofline_efficiency(
    works: Works, chosen: Mask, ideal: Float64, noun: str, category: str | None = None
) -> Value:
    """Σ ideal / Σ time over the chosen operator calls with a known ideal time."""
    has_ideal = chosen & ~np.isnan(ideal)
    if not works.time_ns[has_ideal].any():
        why = "" if not chosen.any() else f": none of {int(chosen.sum())} {noun} has a cost model and a peak"
        raise NotApplicable(f"no {noun} in the window with a known roofline time{why}")
    used = has_ideal & ~works.is_faster_than(ideal)
    time = int(works.sum_amounts(works.time_ns, used))
    if not time:
        reached = works.sum_amounts(ideal, has_ideal) / works.sum_amounts(works.time_ns, has_ideal)
        why = (
            f"{reached:.3g} of the roofline: a formula, an element type or a peak is wrong, or a cache served"
        )
        return Value(value=None, status="failed", reason=f"{why} all of these {noun}", category=category)
    return Value(
        value=works.sum_amounts(ideal, used) / time,
        weight=time,
        provenance="derived",
        reason=_DERIVED,
        left_out={_FASTER: int((has_ideal & ~used).sum())},
        coverage=works.used_coverage(chosen, used),
        category=category,
    )


@metric(
    "compute.above_roofline",
    definition="Time per step of the operators' kernels above the roofline time of their FLOPs and compulsory"
    " bytes: operators with a cost model, also by category. `cclbench ops --sort gap` lists it by operator.",
    formula="Σ max(time − max(FLOPs / peak, bytes / memory bandwidth), 0) / windows",
    unit="s",
    better="lower",
    inputs=_INPUTS,
    not_applicable=_NO_MODEL,
    version=4,
)
def above_roofline(rank: RankView) -> Iterator[Value]:
    works, device = rank.works, run_accelerator(rank)
    ideal = works.roofline_ns(device.peak_flops_per_s, None, hbm_bytes_per_s(rank))
    has_ideal = works.computes & ~np.isnan(ideal)
    if not has_ideal.any():
        raise NotApplicable("no operator in the window has a known roofline time")
    used = has_ideal & ~works.is_faster_than(ideal)
    above = np.where(used, np.maximum(works.time_ns - np.nan_to_num(ideal), 0), 0)
    windows = len(rank.windows) * NS_PER_S
    coverage = works.used_coverage(works.computes, used)
    total = float(above.sum()) / windows
    left_out = {_FASTER: int((has_ideal & ~used).sum())}
    yield Value(value=total, provenance="derived", reason=_DERIVED, left_out=left_out, coverage=coverage)
    for code in np.unique(works.category[used]).tolist():
        category_s = float(above[works.category == code].sum()) / windows
        yield Value(value=category_s, provenance="derived", category=CATEGORIES[code])


@metric(
    "compute.recompute_share",
    definition="Share of compute time in forward operators that the backward pass recomputes (activation"
    " checkpointing): those that autograd records again within a node of the backward graph.",
    formula="|kernels of recomputed calls| / |C|",
    unit="1",
    inputs=("events", "operators", "steps"),
    not_applicable="the trace records no backward pass, or the CPU is the device",
)
def recompute_share(rank: RankView) -> Value:
    rank.needs_accelerator("its operators nest, so a share of their time has no meaning")
    works = rank.works
    if not (works.phase == PHASES.index("backward")).any():
        raise NotApplicable("no kernel in the window is of a backward pass")
    compute_ns = int(rank.inside(rank.compute).sum())
    if not compute_ns:
        raise NotApplicable("there is no compute time in the window")
    recomputed = intervals.intersect(works.intervals_of(works.recomputed & works.computes), rank.compute)
    return Value(value=int(rank.inside(recomputed).sum()) / compute_ns, weight=compute_ns)


@metric(
    "time.phase",
    definition="Busy time by phase (category): forward, loss, backward, optimizer, data or other, or a"
    " serving engine's prefill, decode or mixed; the row without a category is the total. Where phases"
    " overlap, the time is shared equally, so that they sum to the total. The phase of a launch is found from"
    " autograd's engine and its links to forward operators, from modules and from annotations.",
    formula="|C∪K∪M| by phase",
    unit="s",
    inputs=("events", "operators", "steps"),
    combine=parts_over_ranks,
    not_applicable="the trace does not distinguish phases",
)
def phase(rank: RankView) -> Iterator[Value]:
    if rank.facts.works_on is None:
        raise Unknown(rank.no_work)
    sets = _host_phases(rank) if rank.on_host else _device_sets(rank, "phase")
    if not set(sets) - {"other"}:
        raise NotApplicable("the trace does not distinguish phases")
    yield from _set_parts(rank, sets)


@metric(
    "time.module",
    definition="Busy time by nn.Module (category), forward and backward: modules at the first level with more"
    " than one, including deeper ones; `none` is outside any module, the row without a category the total."
    " `cclbench ops --by module` lists all modules. Where modules overlap, the time is shared equally.",
    formula="|C∪K∪M| by module",
    unit="s",
    inputs=("events", "operators", "steps"),
    combine=parts_over_ranks,
    not_applicable="the trace names no modules (with_stack records them in PyTorch, jax.named_scope in JAX),"
    " or the CPU is the device",
)
def module(rank: RankView) -> Iterator[Value]:
    rank.needs_accelerator("its operators nest, so a module's share of time has no meaning")
    sets = _device_sets(rank, "module")
    if not set(sets) - {"none"}:
        raise NotApplicable(
            "the trace names no modules: with_stack records them in PyTorch, jax.named_scope in JAX"
        )
    yield from _set_parts(rank, sets)


_MOST_SETS: Final = 60
"""Most modules that are listed, those with the most time; the rest is `others`."""


def _device_sets(rank: RankView, column: str) -> dict[str, Intervals]:
    """Busy times of device events by the word in a column."""
    table = event_table(rank.tables, ("kernel", "copy", "memset"), ("start_ns", "dur_ns", column))
    starts, ends = row_spans(table)
    numbers, words = word_codes(table, column)
    used = np.unique(numbers).tolist()
    paths = [word.split("/") for number in used if (word := words[number]) and column == "module"]
    depth = 1 + next((n for n, level in enumerate(zip_longest(*paths)) if len({*level} - {None}) > 1), 0)
    labels = [_module_label(column, words[number], depth) for number in used]
    code_of = {label: number for number, label in enumerate(sorted(set(labels)))}
    code = np.zeros(len(words), np.int64)
    code[used] = [code_of[label] for label in labels]
    labelled = code[numbers]
    sets = {
        label: intervals.union(starts[labelled == number], ends[labelled == number])
        for label, number in code_of.items()
    }
    if len(sets) <= _MOST_SETS:
        return sets
    longest = sorted(sets, key=lambda label: -sets[label].length)[:_MOST_SETS]
    others = intervals.join(*(times for label, times in sets.items() if label not in longest))
    return {label: sets[label] for label in sorted(longest)} | {"others": others}


def _module_label(column: str, word: str | None, depth: int) -> str:
    if column == "phase":
        return word or "other"
    return "/".join(word.split("/")[:depth]) if word else "none"


def _host_phases(rank: RankView) -> dict[str, Intervals]:
    """Busy times of a CPU by phase of the innermost call; transfers are `other`."""
    table = rank.operators("name", "phase", "track", "start_ns", "end_ns")
    works = ~matching_rows(table, "name", is_wrapper)
    phase, words = word_codes(table, "phase")
    track, starts, ends = (table[column].to_numpy() for column in ("track", "start_ns", "end_ns"))
    pieces: dict[str, list[Intervals]] = {"other": [rank.communication]}
    for thread in np.unique(track[works]).tolist():
        rows = np.flatnonzero(works & (track == thread))
        piece_starts, piece_ends, call = innermost_pieces(starts[rows], ends[rows])
        for code in np.unique(phase[rows][call]).tolist():
            of_phase = phase[rows][call] == code
            running = intervals.union(piece_starts[of_phase], piece_ends[of_phase])
            pieces.setdefault(words[code] or "other", []).append(intervals.intersect(running, rank.compute))
    return {word: intervals.join(*parts) for word, parts in sorted(pieces.items())}


def _set_parts(rank: RankView, sets: dict[str, Intervals]) -> Iterator[Value]:
    """Mean time per step of the union of the sets, and each set's share of it."""
    w = rank.windows
    shared = window_shares(sets, w.starts, w.ends)
    yield from per_step(rank, shared.by_window())
    for label, ns in zip(sets, shared.by_label(), strict=True):
        if ns:
            yield Value(value=float(ns / Fraction(len(w) * NS_PER_S)), category=label)
