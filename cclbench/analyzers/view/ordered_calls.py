# SPDX-License-Identifier: Apache-2.0
"""A rank's work in the order of a step, summed over steps: what a structural comparison aligns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from cclbench.analyzers.view.operator_calls import WorkKind
from cclbench.analyzers.view.work_keys import NO_MODULE, module_class, number_words
from cclbench.ground.intervals import Int64
from cclbench.ground.schema import PHASES
from cclbench.operators.cost import WHOLE

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

_DIGITS: Final = 12
"""Significant digits of FLOPs that must agree, since they are floating-point sums."""


class CallPlace(NamedTuple):
    """A place in a step: the `number`-th call of this work in its phase and its class of modules."""

    phase: str
    module: str
    """Path of module classes; `NO_MODULE` outside any."""
    work: str
    """Operator and shapes; of products and attention the cost model's family and FLOPs."""
    number: int


class PlacedCalls(NamedTuple):
    """The calls of one place over all steps and ranks."""

    name: str
    """The operator, or the kernel that no operator launched."""
    family: str | None
    """Of products, attention and linear algebra: family of the cost model."""
    calls: int
    time_ns: int
    position_sum: float
    """Sum over the calls of their relative position in the step, from 0 to 1."""

    @property
    def position(self) -> float:
        """Mean relative position in the step."""
        return self.position_sum / self.calls

    def with_more(self, more: PlacedCalls) -> PlacedCalls:
        """The sums with those of another rank or capture."""
        return self._replace(
            calls=self.calls + more.calls,
            time_ns=self.time_ns + more.time_ns,
            position_sum=self.position_sum + more.position_sum,
        )


def ordered_calls(view: RankView) -> dict[CallPlace, PlacedCalls]:
    """The calls of each place of a step; their times sum to that of all works."""
    works = view.works
    if not len(works):
        return {}
    window = view.window_of(works.start_ns)
    order = np.lexsort((works.start_ns, window))
    window = window[order]
    count = np.bincount(window)[window]
    position = (_number_within(window) + 0.5) / count
    names = [_work_name(kind) for kind in works.kinds]
    word, words = number_words(names, works.kind[order])
    modules = [module_class(path or NO_MODULE) for path in works.modules]
    module, paths = number_words(modules, works.module[order])
    phase = works.phase[order]
    place = (phase * np.int64(len(paths)) + module) * len(words) + word
    number = _number_within(np.unique(place * (window.max() + 1) + window, return_inverse=True)[1])
    most = int(number.max()) + 1
    _, first, key = np.unique(place * most + number, return_index=True, return_inverse=True)
    calls = np.bincount(key)
    position_sums = np.bincount(key, position)
    time_ns = np.zeros(len(first), np.int64)
    np.add.at(time_ns, key, works.time_ns[order])
    placed = {}
    for row, item in enumerate(first.tolist()):
        kind = works.kinds[works.kind[order[item]]]
        at = CallPlace(PHASES[phase[item]], paths[module[item]], words[word[item]], int(number[item]))
        placed[at] = PlacedCalls(
            kind.name, _family(kind), int(calls[row]), int(time_ns[row]), float(position_sums[row])
        )
    return placed


def merge_ordered_calls(
    parts: Sequence[Mapping[CallPlace, PlacedCalls]],
) -> dict[CallPlace, PlacedCalls]:
    """The calls of several ranks or captures by place."""
    merged: dict[CallPlace, PlacedCalls] = {}
    for part in parts:
        for place, more in part.items():
            sums = merged.get(place)
            merged[place] = more if sums is None else sums.with_more(more)
    return merged


def _family(kind: WorkKind) -> str | None:
    return kind.model_family if kind.model_family in WHOLE else None


def _work_name(kind: WorkKind) -> str:
    family = _family(kind)
    if family and kind.cost and kind.cost.flops:
        return f"{family} {kind.cost.flops:.{_DIGITS}g}"
    return kind.shaped_name


def _number_within(group: Int64) -> Int64:
    """Number of each entry within its group, from 0."""
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    first = np.searchsorted(ordered, ordered)
    number = np.empty(len(group), np.int64)
    number[order] = np.arange(len(group)) - first
    return number
