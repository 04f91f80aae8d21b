# SPDX-License-Identifier: Apache-2.0
"""What is true of simulated runs, as the rows that the metrics should have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

import cclbench
from cclbench.ground.schema import group_id
from helpers.synthetic import Instance, RankTruth, Truth

NS = 10**9
PARTS = 2
CASES = 8
"""Layouts of each part."""

Key = tuple[str, int | None, str | None, str | None, str | None, str | None]
"""Metric, rank, kind, group, category, stat."""
Values = dict[Key, float]
NONE = (None,) * 4


def values_of(run: cclbench.Run) -> Values:
    """The numbers that span all steps."""
    keys = ("metric", "rank", "collective", "group", "category", "stat")
    rows = (row for row in run.rows if row["step"] is None and row["value"] is not None)
    return {tuple(row[key] for key in keys): row["value"] for row in rows}  # type: ignore[misc]


def sums_of(metric: str, rank: int, truth: RankTruth, parts: Iterable[tuple[Any, Fraction | int]]) -> Values:
    """Per-step means in s by kind, kind and group, dimension; `parts` are of `Key`s."""
    sums: dict[Key, Fraction | int] = defaultdict(int)
    for key, ns in parts:
        for place in places(key.kind, key.group, key.dimension):
            sums[metric, rank, *place, None] += ns
    return {key: float(Fraction(ns) / (NS * len(truth.steps))) for key, ns in sums.items()}


def places(kind: str, group: tuple[int, ...], dimension: str | None) -> list[tuple[str | None, ...]]:
    """Kind, group and category of the rows in which a collective counts."""
    own = (kind, group_id(group), None)
    return [(None, None, None), (kind, None, None), own, (None, None, dimension)]


def mean_over_ranks(metric: str, found: Values) -> Values:
    """The run's rows: means over the ranks that have one."""
    rows: dict[Key, list[float]] = defaultdict(list)
    for key, value in found.items():
        if key[0] == metric:
            rows[metric, None, *key[2:]].append(value)
    return {key: sum(own) / len(own) for key, own in rows.items()}


def own_instances(truth: Truth, rank: int) -> list[Instance]:
    return [truth.instances[row.instance] for row in truth.ranks[rank].rows if row.instance is not None]


def true_sums(truth: Truth) -> Values:
    """comm.wait, comm.transfer, time.exposed_wait, time.exposed_transfer, overlap.exposed_by."""
    found: Values = {}
    for r, rank in truth.ranks.items():
        own = own_instances(truth, r)
        # A collective that is hidden altogether is there too, with nothing exposed.
        exposed: list[tuple[Any, Fraction, Fraction]] = [(i.key_on(r), Fraction(0), Fraction(0)) for i in own]
        exposed += [(key, *both) for step in rank.steps for key, both in step.exposed.items()]
        for metric, parts in (
            ("time.exposed_wait", [(key, wait) for key, wait, _ in exposed]),
            ("time.exposed_transfer", [(key, transfer) for key, _, transfer in exposed]),
            ("overlap.exposed_by", [(key, wait + transfer) for key, wait, transfer in exposed]),
        ):
            found |= sums_of(metric, r, rank, parts)
        labels = {label for i in own if len(i.members) > 1 for label in i.key_on(r).wider()}
        for kind, group, dimension in labels:
            place = (r, kind, group and group_id(group), dimension, None)
            for metric in ("wait", "transfer"):
                ns = sum(getattr(s, f"{metric}_ns").get((kind, group, dimension), 0) for s in rank.steps)
                found[f"comm.{metric}", *place] = ns / (NS * len(rank.steps))
    for metric in sorted({key[0] for key in found}):
        found |= mean_over_ranks(metric, found)
    return found


def true_ratios(truth: Truth) -> Values:
    """comm.time, comm.fraction, comm.count, comm.volume, overlap.ratio, overlap.efficiency, the bubble."""
    found: Values = {}
    fractions: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for r, rank in truth.ranks.items():
        steps = rank.steps
        compute, both = sum(s.compute_ns for s in steps), sum(s.overlapped_ns for s in steps)
        communication = sum(s.communication_ns for s in steps)
        found["comm.time", r, *NONE] = communication / (NS * len(steps))
        found["comm.count", r, *NONE] = sum(sum(s.count.values()) for s in steps) / len(steps)
        found["comm.volume", r, *NONE] = sum(sum(s.volume.values()) for s in steps) / len(steps)
        shorter = sum(min(s.compute_ns, s.communication_ns) for s in steps)
        for metric, part, whole in (
            ("comm.fraction", communication, compute + communication - both),
            ("overlap.ratio", both, communication),
            ("overlap.efficiency", both, shorter),
        ):
            fractions[metric].append((part, whole))
            found[metric, r, *NONE] = part / whole
        if truth.layout.pp > 1:
            bubble = sum((s.bubble_ns for s in steps if s.bubble_ns is not None), Fraction(0))
            found["overlap.pipeline_bubble", r, *NONE] = float(bubble / rank.window_ns)
    for metric in ("comm.time", "comm.count", "comm.volume"):
        found |= mean_over_ranks(metric, found)
    for metric, pairs in fractions.items():
        found[metric, None, *NONE] = sum(a for a, _ in pairs) / sum(b for _, b in pairs)
    if truth.bubble is not None:
        found["overlap.pipeline_bubble", None, *NONE] = truth.bubble
    return found


def size_word(exponent: int) -> str:
    """Of payloads in [4^e, 4^(e+1)): `1KiB-4KiB`."""
    bounds = []
    for power in (exponent, exponent + 1):
        nbytes, unit = 4**power, 0
        while nbytes >= 1024:
            nbytes, unit = nbytes // 1024, unit + 1
        bounds.append(f"{nbytes}{('B', 'KiB', 'MiB', 'GiB')[unit]}")
    return "-".join(bounds)


def true_bandwidths(truth: Truth) -> Values:
    found: Values = {}
    for r, of in [(None, truth.bandwidth), *((r, rank.bandwidth) for r, rank in truth.ranks.items())]:
        for (kind, group, exponent), both in of.items():
            place = (kind, group and group_id(group), None if exponent is None else size_word(exponent), None)
            found["comm.algbw", r, *place], found["comm.busbw", r, *place] = both.algbw, both.busbw
    return found


def true_skews(instances: Iterable[Instance]) -> Values:
    """comm.skew of the run, over those instances."""
    by: dict[tuple[str | None, ...], dict[int, int]] = defaultdict(dict)
    for i in instances:
        for r in i.members:
            for place in places(i.kind_on(r), i.group, i.dimension):
                by[place][i.index] = i.skew_ns
    found = {("comm.skew", None, *place, None): sum(of.values()) / (NS * len(of)) for place, of in by.items()}
    every = list(by[None, None, None].values())
    stats = {"p50": np.percentile(every, 50), "max": max(every)}
    if len(every) >= 20:
        stats["p95"] = np.percentile(every, 95)
    for stat, value in stats.items():
        found["comm.skew", None, None, None, None, stat] = float(value) / NS
    return found


def true_phases(truth: Truth) -> Values:
    found: Values = {}
    every: dict[tuple[str | None, str | None], list[tuple[float, int]]] = defaultdict(list)
    for r, rank in truth.ranks.items():
        for dimension in [None, *sorted({str(p.dimension) for p in rank.phases})]:
            own = [p for p in rank.phases if dimension in (None, p.dimension)]
            gaps = [p.gap_ns for p in own if p.gap_ns is not None]
            figures: list[tuple[str | None, float, int]] = [(None, len(own) / len(rank.steps), 1)]
            figures.append(("phase", sum(p.end_ns - p.start_ns for p in own) / (NS * len(own)), len(own)))
            if gaps:
                figures.append(("gap", sum(gaps) / (NS * len(gaps)), len(gaps)))
                figures.append(("gap_max", max(gaps) / NS, len(gaps)))
                figures.append(("gap_p50", float(np.percentile(gaps, 50)) / NS, len(gaps)))
            for stat, value, weight in figures:
                found["comm.windows", r, None, None, dimension, stat] = value
                every[dimension, stat].append((value, weight))
    for (dimension, stat), own in every.items():
        mean = sum(value * weight for value, weight in own) / sum(weight for _, weight in own)
        found["comm.windows", None, None, None, dimension, stat] = mean
    return found


def true_balance(truth: Truth) -> Values:
    told = {"load_imbalance": truth.load_imbalance, "straggler_delay": truth.straggler_delay}
    return {(f"balance.{name}", None, *NONE): value for name, value in told.items() if value is not None}
