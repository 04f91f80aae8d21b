# SPDX-License-Identifier: Apache-2.0
"""Operators: how near each comes to what the device could do, what is done twice, what the time goes to."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import zip_longest
from typing import Final

import numpy as np

from cclbench.analyzers.metric import NotApplicable, Unknown, Value, metric
from cclbench.analyzers.view.categories import innermost_pieces, window_shares
from cclbench.analyzers.view.columns import event_table, row_spans, word_codes
from cclbench.analyzers.view.model_flops import flops_per_step
from cclbench.analyzers.view.operator_calls import Float64
from cclbench.analyzers.view.platform import card_field, hbm_bytes_per_s, run_accelerator
from cclbench.analyzers.view.rank_view import RankView
from cclbench.analyzers.view.values import NS_PER_S, parts_over_ranks, per_step
from cclbench.analyzers.view.works import Works
from cclbench.ground import intervals
from cclbench.ground.intervals import Intervals, Mask
from cclbench.ground.schema import CATEGORIES, PHASES
from cclbench.normalize.operators import is_wrapper
from cclbench.operators.cost import PRODUCTS

GEMM: Final = "matrix product"
"""The family of cost models that matrix products have."""
_MOST: Final = 1.05
"""Of a device's rates, above which what it is held against is wrong."""
_INPUTS: Final = ("events", "operators", "steps", "catalog: dense peaks, memory bandwidth")
_DERIVED: Final = "FLOPs and bytes by formula from the recorded arguments: bytes are compulsory traffic alone"
_NO_MODEL: Final = (
    "no operator in the window has a cost model and recorded arguments (record them with record_shapes), or"
    " the catalog lacks the accelerator"
)


@metric(
    "compute.gemm_efficiency",
    definition="Matrix products' FLOPs over what the device could do in their kernels' time, at the dense"
    " peak of each one's own precision. FLOPs are 2·M·N·K by the recorded sizes.",
    formula="Σ FLOPs / peak / Σ time, over calls of matrix products that begin in the window",
    unit="1",
    better="higher",
    inputs=_INPUTS,
    not_applicable=_NO_MODEL,
)
def gemm_efficiency(rank: RankView) -> Value:
    works, device = rank.works, run_accelerator(rank)
    products = works.of_family(GEMM) & works.computes
    ideal = works.compute_ns(device.peak_flops_per_s, None)
    return _roofline_efficiency(works, products, ideal, "matrix products")


@metric(
    "compute.roofline_efficiency",
    definition="The least time that the operators' FLOPs and compulsory bytes take on the device, over the"
    " time that they took: of operators that have a cost model, by category too. Near 1 nothing is to be"
    " gained but by fewer FLOPs or bytes; what lies below shows in `cclbench ops --sort gap`. Above 1.05 it"
    " is failed: nothing is faster than the device.",
    formula="Σ max(FLOPs / peak, bytes / memory bandwidth) / Σ time",
    unit="1",
    better="higher",
    inputs=_INPUTS,
    not_applicable=_NO_MODEL,
)
def roofline_efficiency(rank: RankView) -> Iterator[Value]:
    works, device = rank.works, run_accelerator(rank)
    ideal = works.roofline_ns(device.peak_flops_per_s, None, hbm_bytes_per_s(rank))
    yield _roofline_efficiency(works, works.computes, ideal, "operators")
    for code in np.unique(works.category[works.computes & ~np.isnan(ideal)]).tolist():
        own = works.computes & (works.category == code)
        yield _roofline_efficiency(works, own, ideal, "operators", category=CATEGORIES[code])


def _roofline_efficiency(
    works: Works, chosen: Mask, ideal: Float64, what: str, category: str | None = None
) -> Value:
    """Σ ideal / Σ time of the chosen works whose ideal time is known."""
    used = chosen & ~np.isnan(ideal)
    time = int(works.sum_amounts(works.time_ns, used))
    if not time:
        why = "" if not chosen.any() else f": of {int(chosen.sum())} {what} none has a cost model and a peak"
        raise NotApplicable(f"no {what} in the window whose least time is known{why}")
    reached = works.sum_amounts(ideal, used) / time
    if reached > _MOST:
        why = f"{reached:.3g} of the roofline: a formula, an element type or a peak is wrong"
        return Value(value=None, status="failed", reason=why, category=category)
    return Value(
        value=reached,
        weight=time,
        provenance="derived",
        reason=_DERIVED,
        coverage=works.used_coverage(chosen, used),
        category=category,
    )


@metric(
    "compute.above_roofline",
    definition="What the operators' kernels take beyond the least time that their FLOPs and compulsory bytes"
    " need on the device, a step: of operators that have a cost model, by category too. What lies above for"
    " each operator shows in `cclbench ops --sort gap`.",
    formula="Σ (time − max(FLOPs / peak, bytes / memory bandwidth)) / windows, of calls whose time is longer",
    unit="s",
    better="lower",
    inputs=_INPUTS,
    not_applicable=_NO_MODEL,
)
def above_roofline(rank: RankView) -> Iterator[Value]:
    works, device = rank.works, run_accelerator(rank)
    ideal = works.roofline_ns(device.peak_flops_per_s, None, hbm_bytes_per_s(rank))
    used = works.computes & ~np.isnan(ideal)
    if not used.any():
        raise NotApplicable("no operator in the window has a known least time")
    above = np.where(used, np.maximum(works.time_ns - np.nan_to_num(ideal), 0), 0)
    windows = len(rank.windows) * NS_PER_S
    coverage = works.used_coverage(works.computes, used)
    whole = float(above.sum()) / windows
    yield Value(value=whole, provenance="derived", reason=_DERIVED, coverage=coverage)
    for code in np.unique(works.category[used]).tolist():
        own = float(above[works.category == code].sum()) / windows
        yield Value(value=own, provenance="derived", category=CATEGORIES[code])


@metric(
    "compute.recompute_share",
    definition="Share of compute time in kernels of forward operators that the backward pass runs again"
    " (activation checkpointing): operators that autograd records anew within a node of the backward graph.",
    formula="|kernels of recomputed calls| / |C|",
    unit="1",
    inputs=("events", "operators", "steps"),
    not_applicable="the trace records no backward pass, or the CPU is the device",
)
def recompute_share(rank: RankView) -> Value:
    rank.needs_accelerator("its ops nest, so a part of their time says nothing")
    works = rank.works
    if not (works.phase == PHASES.index("backward")).any():
        raise NotApplicable("no kernel in the window is of a backward pass")
    whole = int(rank.inside(rank.compute).sum())
    if not whole:
        raise NotApplicable("there is no compute time in the window")
    again = intervals.intersect(works.intervals_of(works.recomputed & works.computes), rank.compute)
    return Value(value=int(rank.inside(again).sum()) / whole, weight=whole)


@metric(
    "compute.model_flops_share",
    definition="Share of the operators' FLOPs that the card's model needs: what compute.mfu counts over what"
    " ran. Below 1 the rest is recomputed, padded, or not part of the model as the card states it; above 1"
    " operators are missing that have no cost model. Stats: recomputed, the share of FLOPs that the backward"
    " pass runs again; without_model, the share of compute time in operators without FLOPs. Elementwise work,"
    " which a model's count leaves out, is left out here, too.",
    formula="FLOPs of the card's model per step and device / Σ FLOPs of matrix products, convolutions and"
    " attention per step of the rank",
    unit="1",
    inputs=("events", "operators", "steps", "card: workload.model, workload.batch, hardware.count"),
    not_applicable="no operator has a cost model and recorded arguments, or the card lacks a field",
)
def model_flops_share(rank: RankView) -> Iterator[Value]:
    needed = flops_per_step(rank)[None] / int(card_field(rank, "hardware.count"))
    works = rank.works
    products = works.computes & ~np.isnan(works.flops) & np.isin(works.kind, _product_kinds(works))
    ran = works.sum_amounts(works.flops, products)
    if not ran:
        raise NotApplicable("no matrix product, convolution or attention has recorded arguments")
    if rank.windows.policy == "trace":
        raise NotApplicable("FLOPs per step need steps: the window is the whole trace")
    again = works.sum_amounts(works.flops, products & works.recomputed) / ran
    silent = works.computes & np.isnan(works.flops)
    time = int(works.sum_amounts(works.time_ns, works.computes))
    without = int(works.sum_amounts(works.time_ns, silent)) / time if time else 0.0
    yield Value(
        value=needed * len(rank.windows) / ran,
        provenance="derived",
        reason=f"operators' FLOPs a step: {ran / len(rank.windows):.4g}, of which {again:.1%} recomputed;"
        f" {without:.1%} of compute time is in operators without FLOPs",
    )
    yield Value(value=again, stat="recomputed", provenance="derived")
    yield Value(value=without, stat="without_model", provenance="derived")


def _product_kinds(works: Works) -> list[int]:
    """The kinds that a model's FLOPs are of."""
    return [n for n, kind in enumerate(works.kinds) if kind.model_family in PRODUCTS]


@metric(
    "time.phase",
    definition="Busy time by what its launch was made for (category): forward, loss, backward, optimizer,"
    " data or other, or a serving engine's prefill, decode or mixed; the row without a category is all of it."
    " Where phases run at once, an instant is shared among them, so that they sum to it exactly. A phase is"
    " told by autograd's engine and its links to forward operators, by modules, by annotations.",
    formula="|C∪K∪M| by phase",
    unit="s",
    inputs=("events", "operators", "steps"),
    combine=parts_over_ranks,
    not_applicable="nothing in the trace tells one phase from another",
)
def phase(rank: RankView) -> Iterator[Value]:
    if rank.facts.works_on is None:
        raise Unknown(rank.no_work)
    sets = _host_phases(rank) if rank.on_host else _device_sets(rank, "phase")
    if not set(sets) - {"other"}:
        raise NotApplicable("nothing in the trace tells one phase from another")
    yield from _set_parts(rank, sets)


@metric(
    "time.module",
    definition="Busy time by the nn.Module (category) whose forward launched it, or whose backward belongs to"
    " that forward: modules down to the first level at which there are several, deeper ones within them;"
    " `none` is what no module launched, the row without a category all of it. `cclbench ops --by module` has"
    " all modules. Where modules run at once, an instant is shared among them.",
    formula="|C∪K∪M| by module",
    unit="s",
    inputs=("events", "operators", "steps"),
    combine=parts_over_ranks,
    not_applicable="the trace names no modules (with_stack records them in PyTorch, jax.named_scope in JAX),"
    " or the CPU is the device",
)
def module(rank: RankView) -> Iterator[Value]:
    rank.needs_accelerator("its ops nest, so a module's share of their time says nothing")
    sets = _device_sets(rank, "module")
    if not set(sets) - {"none"}:
        raise NotApplicable(
            "the trace names no modules: with_stack records them in PyTorch, jax.named_scope in JAX"
        )
    yield from _set_parts(rank, sets)


_MOST_SETS: Final = 60
"""Modules that are told apart, those with most time; the rest is `others`."""


def _device_sets(rank: RankView, column: str) -> dict[str, Intervals]:
    """When device rows run, by a word of theirs."""
    table = event_table(rank.tables, ("kernel", "copy", "memset"), ("start_ns", "dur_ns", column))
    starts, ends = row_spans(table)
    numbers, words = word_codes(table, column)
    used = np.unique(numbers).tolist()
    paths = [word.split("/") for number in used if (word := words[number]) and column == "module"]
    depth = 1 + next((n for n, at in enumerate(zip_longest(*paths)) if len({*at} - {None}) > 1), 0)
    labels = [_module_label(column, words[number], depth) for number in used]
    place = {label: number for number, label in enumerate(sorted(set(labels)))}
    code = np.zeros(len(words), np.int64)
    code[used] = [place[label] for label in labels]
    labelled = code[numbers]
    sets = {
        label: intervals.union(starts[labelled == number], ends[labelled == number])
        for label, number in place.items()
    }
    if len(sets) <= _MOST_SETS:
        return sets
    first = sorted(sets, key=lambda label: -sets[label].length)[:_MOST_SETS]
    rest = intervals.join(*(own for label, own in sets.items() if label not in first))
    return {label: sets[label] for label in sorted(first)} | {"others": rest}


def _module_label(column: str, word: str | None, depth: int) -> str:
    if column == "phase":
        return word or "other"
    return "/".join(word.split("/")[:depth]) if word else "none"


def _host_phases(rank: RankView) -> dict[str, Intervals]:
    """When a CPU computes, by phase of the innermost call; its transfers are of no phase that is known."""
    table = rank.operators("name", "phase", "track", "start_ns", "end_ns")
    name, names = word_codes(table, "name")
    works = ~np.array([is_wrapper(word or "") for word in names], np.bool_)[name]
    phase, words = word_codes(table, "phase")
    track, starts, ends = (table[column].to_numpy() for column in ("track", "start_ns", "end_ns"))
    pieces: dict[str, list[Intervals]] = {"other": [rank.communication]}
    for thread in np.unique(track[works]).tolist():
        own = np.flatnonzero(works & (track == thread))
        begun, ended, call = innermost_pieces(starts[own], ends[own])
        for code in np.unique(phase[own][call]).tolist():
            here = phase[own][call] == code
            running = intervals.union(begun[here], ended[here])
            pieces.setdefault(words[code] or "other", []).append(intervals.intersect(running, rank.compute))
    return {word: intervals.join(*parts) for word, parts in sorted(pieces.items())}


def _set_parts(rank: RankView, sets: dict[str, Intervals]) -> Iterator[Value]:
    """Mean time per step of the sets together, and of each its exact part."""
    w = rank.windows
    shared = window_shares(sets, w.starts, w.ends)
    yield from per_step(rank, shared.by_window())
    for label, ns in zip(sets, shared.by_label(), strict=True):
        if ns:
            yield Value(value=float(ns / Fraction(len(w) * NS_PER_S)), category=label)
