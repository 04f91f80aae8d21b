# SPDX-License-Identifier: Apache-2.0
"""Structural difference of two runs: their calls aligned in the order of a step, and what lies between.

Calls of equal work are anchors: the same operator and shapes, or a product or attention of the same FLOPs.
What lies between two anchors in the one run takes the place of what lies between them in the other: the
`mul`, `sub` and `cat` of a rotary embedding against the one kernel that a compiler makes of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import takewhile
from typing import Final

import numpy as np
import numpy.typing as npt

from cclbench.analyzers.view.ordered_calls import CallPlace, PlacedCalls, merge_ordered_calls
from cclbench.analyzers.view.values import NS_PER_S
from cclbench.analyzers.view.work_keys import NO_MODULE
from cclbench.comparison.attribution import round_to_total
from cclbench.comparison.comparison import CallCount, ReplacedCalls
from cclbench.ground.intervals import Int64
from cclbench.operator_table import OperatorTable

_MOST_CELLS: Final = 2 * 10**8
"""Most pairs of calls that an alignment weighs; longer steps are aligned by distinct work."""
_SAME_WORK: Final = 2
_SAME_MODULE: Final = 1
"""Added for the same phase and class of modules: equal work is aligned within them rather than across."""

PlacedCall = tuple[CallPlace, PlacedCalls]
Calls = Sequence[PlacedCall]
"""In the order of a step."""
Match = tuple[int, int]
"""Indices of two aligned calls."""
Key = tuple[str | None, str | None, tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]
"""Phase, module, and the operators of both sides with their number of places."""


def replaced_calls(before: OperatorTable, after: OperatorTable, change_ns: int) -> tuple[ReplacedCalls, ...]:
    """All calls of `before` against those of `after` in their place, per step and rank.

    Alike pairs, as of each layer, are one row.  The rows' changes sum to `change_ns`.
    """
    sides = before.calls_in_order, after.calls_in_order
    if np.prod([len(side) for side in sides], dtype=np.float64) > _MOST_CELLS:
        sides = _by_distinct_work(sides[0]), _by_distinct_work(sides[1])
    base, other = (sorted(side.items(), key=lambda call: (call[1].position, call[0])) for side in sides)
    rows: dict[Key, tuple[list[PlacedCall], list[PlacedCall]]] = {}
    for a, b in _aligned_parts(base, other):
        key = (*_parent([*a, *b]), _composition(a), _composition(b))
        row = rows.setdefault(key, ([], []))
        row[0].extend(a)
        row[1].extend(b)
    steps = before.windows, after.windows
    times = [(_step_ns(a, steps[0]), _step_ns(b, steps[1])) for a, b in rows.values()]
    rounded = round_to_total([b - a for a, b in times], change_ns)
    changes = (
        ReplacedCalls(
            phase=phase,
            module=module,
            before=_call_counts(a, steps[0]),
            after=_call_counts(b, steps[1]),
            before_s=float(before_ns) / NS_PER_S,
            after_s=float(after_ns) / NS_PER_S,
            change_ns=ns,
        )
        for ((phase, module, *_), (a, b)), (before_ns, after_ns), ns in zip(
            rows.items(), times, rounded, strict=True
        )
    )
    return tuple(sorted(changes, key=lambda change: -abs(change.change_ns)))


def _by_distinct_work(calls: Mapping[CallPlace, PlacedCalls]) -> dict[CallPlace, PlacedCalls]:
    return merge_ordered_calls([{place._replace(number=0): sums} for place, sums in calls.items()])


def _step_ns(calls: Iterable[PlacedCall], steps: int) -> Fraction:
    return Fraction(sum(sums.time_ns for _, sums in calls), steps)


def _composition(calls: Iterable[PlacedCall]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter(sums.name for _, sums in calls).items()))


def _call_counts(calls: Iterable[PlacedCall], steps: int) -> tuple[CallCount, ...]:
    counts, times = Counter[str](), Counter[str]()
    for _, sums in calls:
        counts[sums.name] += sums.calls
        times[sums.name] += sums.time_ns
    return tuple(CallCount(name, counts[name] / steps) for name, _ in times.most_common())


def _parent(calls: Calls) -> tuple[str | None, str | None]:
    """The phase of all calls, and the innermost path of module classes of those within modules."""
    phases = {place.phase for place, _ in calls}
    paths = [place.module.split("/") for place, _ in calls if place.module != NO_MODULE]
    shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*paths, strict=False))
    return (phases.pop() if len(phases) == 1 else None), "/".join(parts[0] for parts in shared) or None


def _aligned_parts(base: Calls, other: Calls) -> Iterator[tuple[Calls, Calls]]:
    """The two steps in parts that take each other's place, in order: aligned calls, and what lies between.

    Products and attention are aligned first: those of equal FLOPs, between them those of other sizes; then
    the calls between them.
    """
    for a, b in _parts(base, other, _equal_work(base, other, of_families=True)):
        for between in _parts(a, b, _equal_families(a, b)):
            yield from _parts(*between, _equal_work(*between))


def _parts(base: Calls, other: Calls, matches: Iterable[Match]) -> Iterator[tuple[Calls, Calls]]:
    """Each match, and the calls before, between and after them."""
    i = j = 0
    for next_i, next_j in matches:
        if next_i > i or next_j > j:
            yield base[i:next_i], other[j:next_j]
        i, j = next_i + 1, next_j + 1
        yield base[next_i:i], other[next_j:j]
    if i < len(base) or j < len(other):
        yield base[i:], other[j:]


def _equal_families(base: Calls, other: Calls) -> list[Match]:
    """Products and attention, in their order, where both have as many of each family in the same order."""
    a, b = ([i for i, (_, sums) in enumerate(calls) if sums.family] for calls in (base, other))
    same = [base[i][1].family for i in a] == [other[j][1].family for j in b]
    return list(zip(a, b, strict=True)) if same else []


def _equal_work(base: Calls, other: Calls, *, of_families: bool = False) -> list[Match]:
    """The calls of equal work that the heaviest common subsequence pairs; only those of families if so."""
    shared = {place.work for place, _ in base} & {place.work for place, _ in other}
    chosen = [
        [
            i
            for i, (place, sums) in enumerate(calls)
            if place.work in shared and (sums.family or not of_families)
        ]
        for calls in (base, other)
    ]
    works: dict[str, int] = {}
    modules: dict[tuple[str, str], int] = {}
    a, b = (
        np.array(
            [
                (
                    works.setdefault(place.work, len(works)),
                    modules.setdefault((place.phase, place.module), len(modules)),
                )
                for place, _ in (calls[index] for index in indices)
            ],
            np.int64,
        ).reshape(-1, 2)
        for calls, indices in zip((base, other), chosen, strict=True)
    )
    return [(chosen[0][i], chosen[1][j]) for i, j in _heaviest_common_subsequence(a, b)]


def _heaviest_common_subsequence(a: Int64, b: Int64, i: int = 0, j: int = 0) -> Iterator[Match]:
    """Pairs of rows of `a` and `b`, shape (calls, 2), by Hirschberg's divide and conquer in linear memory."""
    if not len(a) or not len(b):
        return
    if len(a) == 1:
        gains = _gains(a[0], b)
        best = int(gains.argmax())
        if gains[best]:
            yield i, j + best
        return
    half = len(a) // 2
    weights = _weights(a[:half], b) + _weights(a[half:][::-1], b[::-1])[::-1]
    cut = int(weights.argmax())
    yield from _heaviest_common_subsequence(a[:half], b[:cut], i, j)
    yield from _heaviest_common_subsequence(a[half:], b[cut:], i + half, j + cut)


def _weights(a: Int64, b: Int64) -> Int64:
    """Weight of the heaviest common subsequence of `a` and each beginning of `b`, shape (len(b) + 1,)."""
    weights = np.zeros(len(b) + 1, np.int64)
    for call in a:
        weights[1:] = np.maximum(weights[1:], weights[:-1] + _gains(call, b))
        np.maximum.accumulate(weights, out=weights)
    return weights


def _gains(call: Int64, others: Int64) -> npt.NDArray[np.int64]:
    same = others == call
    return np.asarray(same[:, 0] * (_SAME_WORK + _SAME_MODULE * same[:, 1]), np.int64)
