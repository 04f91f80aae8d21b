# SPDX-License-Identifier: Apache-2.0
"""Random parallel layouts of 3 to 32 ranks as traces without process groups show them: when each ran what.

A collective ends on the ranks of a group some time after the last of them arrived.  Subgroups are balanced:
all do the same, at about the same time, and differ by compute jitter, stragglers, and what their transfers
differ by.  Scales are drawn from 0.1 µs up, so that many are in lockstep within a microsecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from cclbench.ground.schema import COLLECTIVE_KINDS
from cclbench.normalize.inferred_groups import JobCalls

NS = 1000
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
DEGREES = [d for d in product((1, 2, 4, 8), (1, 2), (1, 2, 3, 4, 8), (1, 2)) if 3 <= np.prod(d) <= 32]
"""Tensor, context, data and pipeline parallel."""

Blocks = Any
"""The number of each rank's group, shape (ranks,)."""
Program = list[tuple[str, Blocks]]


@dataclass(frozen=True, slots=True)
class Layout:
    """What the traces show, and whether every collective is of all ranks."""

    calls: JobCalls
    ranks: int
    whole: bool


def layout(*seed: int) -> Layout:
    """The layout of that seed."""
    random = np.random.default_rng(seed)
    degrees = DEGREES[random.integers(len(DEGREES))]
    blocks = _blocks(random.permutation(degrees))
    step = _step(random, blocks)
    program = step * int(random.integers(1, 6))
    starts, ends = _run(random, program, len(step))
    order = np.argsort(starts, axis=0, kind="stable")
    kinds = np.array([COLLECTIVE_KINDS.index(kind) for kind, _ in program], np.int8)
    ranks = starts.shape[1]
    calls = JobCalls(
        rank=np.repeat(np.arange(ranks, dtype=np.int32), len(program)),
        kind=kinds[order].T.ravel(),
        size=np.full(starts.size, -1, np.int32),
        starts=np.take_along_axis(starts, order, axis=0).T.ravel(),
        ends=np.take_along_axis(ends, order, axis=0).T.ravel(),
        libraries=("nccl",),
        names=[frozenset[str]()] * ranks,
    )
    return Layout(calls, ranks, all(not groups.any() for _, groups in program))


def _blocks(degrees: Any) -> list[Blocks]:
    """The groups of each combination of the mesh's dimensions; the last is of all ranks."""
    place = np.stack(np.unravel_index(np.arange(np.prod(degrees)), degrees))
    found = {}
    for spanned in product((False, True), repeat=len(degrees)):
        others = place[~np.array(spanned)]
        number = np.zeros(place.shape[1], int)
        if len(others):
            number = np.unique(others, axis=1, return_inverse=True)[1].ravel()
        if len(number) > number.max() + 1:
            found[tuple(number)] = number
    return list(found.values())


def _step(random: np.random.Generator, blocks: list[Blocks]) -> Program:
    """One step of a few collectives: layers and gradients, one dimension, a mixture, a few among many."""
    *subgroups, world = blocks

    def some(least: int, most: int) -> int:
        return int(random.integers(least, most))

    def one(of: list[Blocks]) -> Blocks:
        return of[some(0, len(of))]

    def kind(most: int = 4) -> str:
        return KINDS[some(0, most)]

    style = random.choice(
        ["world", "layers", "alone", "mixed", "few", "pipeline"], p=[0.2, 0.2, 0.2, 0.2, 0.15, 0.05]
    )
    if style == "world" or not subgroups:
        step = [(kind(), world) for _ in range(some(2, 20))]
    elif style == "layers":
        step = [(kind(), one(subgroups))] * some(1, 12) + [(kind(), one(blocks))] * some(1, 5)
    elif style == "alone":
        step = [(kind(), one(subgroups))] * some(1, 20)
    elif style == "mixed":
        step = [(kind(5), one(blocks)) for _ in range(some(3, 16))]
    elif style == "few":
        own, groups = kind(), one(subgroups)
        step = [(own, world)] * some(2, 16)
        for _ in range(some(1, 4)):
            step.insert(some(0, len(step) + 1), (own if random.random() < 0.5 else kind(5), groups))
    else:
        step = [("send_recv", one(subgroups)), (kind(), world)] * some(1, 8)
    return step


def _run(random: np.random.Generator, program: Program, step: int) -> tuple[Any, Any]:
    """Begins and ends of the program's collectives, ns, shape (instances, ranks)."""

    def scale(least: float, most: float) -> float:
        return float(np.exp(random.uniform(np.log(least), np.log(most))))

    ranks = len(program[0][1])
    work = [scale(1, 2000) for _ in range(step)]
    transfer = [scale(5, 1000) for _ in range(step)]
    jitter = scale(0.1, 300) * (random.random() > 0.05)
    relative = random.random() < 0.5
    slow = 1 + (random.random(ranks) < 0.2) * random.exponential(0.03, ranks) * (random.random() < 0.4)
    late, how_late = random.choice([0, 0, 0.05, 0.3]), scale(5, 3000)
    differing = scale(0.05, 30)
    lasting = random.random() < 0.3
    noise = scale(0.1, 5) * (random.random() > 0.2)
    offset = random.normal(0, scale(0.5, 20), ranks) * (random.random() < 0.4)
    synchronised = random.random() < 0.6
    resolution = random.choice([1, NS])
    clock, starts, ends = np.zeros(ranks), [], []
    own: dict[tuple[int, int], float] = {}
    for place, (_, groups) in enumerate(program):
        site = place % step
        if site == 0 and synchronised:
            clock = clock.max() + random.exponential(scale(0.1, 20), ranks)
        spread = jitter * work[site] / 200 if relative else jitter
        clock = clock + np.maximum(work[site] * slow + random.normal(0, spread, ranks), 0)
        if random.random() < late:
            clock[random.integers(ranks)] += random.exponential(how_late)
        arrival = clock + 1
        last = np.zeros(groups.max() + 1)
        np.maximum.at(last, groups, arrival)
        takes = transfer[site] + np.abs(random.normal(0, differing, len(last)))
        if lasting:
            takes += [own.setdefault((site, group), random.uniform(0, 30)) for group in range(len(last))]
        clock = (last + takes)[groups] + random.exponential(1, ranks) * noise
        starts.append(arrival + offset)
        ends.append(clock + offset)
    begin, end = (
        np.floor((np.array(times) + 1000) * NS / resolution) * resolution for times in (starts, ends)
    )
    return begin.astype(np.int64), np.maximum(end, begin + 1).astype(np.int64)
