# SPDX-License-Identifier: Apache-2.0
"""A rank's work by what it computes, not by which kernels do it: what runs on two vendors' devices share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from cclbench.analyzers.view.collectives import collective_kinds, collective_payloads, group_sizes
from cclbench.analyzers.view.operator_calls import Float64, WorkKind
from cclbench.analyzers.view.works import Works
from cclbench.ground.intervals import Int64, Mask
from cclbench.ground.schema import CATEGORIES
from cclbench.ground.units import humanise
from cclbench.operators.call import COMPILED
from cclbench.operators.cost import WHOLE

if TYPE_CHECKING:
    from cclbench.analyzers.view.rank_view import RankView

_DIGITS: Final = 12
"""Significant digits of FLOPs that must agree, since they are floating-point sums."""
_LIBRARY: Final = re.compile(r"(?<=::)_?(?:cudnn|miopen|mkldnn|native)_")
"""The library that runs an operator of PyTorch, in its name."""
_NO_SHAPES: Final = "its shapes are not recorded"
_NO_PAYLOAD: Final = "its kind, payload or group is not recorded, or it is several collectives"


class WorkKey(NamedTuple):
    """What is computed, and why it cannot be compared with that of another run; None where it can."""

    work: str
    """Equal where the work is: the cost model's family and FLOPs of products, convolutions and attention, a
    collective's kind, bytes and ranks, otherwise operator, types and sizes.  Of work that cannot be compared
    its name."""
    why_not: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class WorkTimes:
    """The calls of one key over all ranks and steps."""

    name: str
    """Operator and shapes, collective and payload, or kernel."""
    model: str | None
    """Family of the cost model; None without one."""
    category: str
    """Of the longest kernel: one of `CATEGORIES`."""
    computes: bool
    """Whether any call runs a compute kernel, or on the CPU."""
    calls: int
    step_ns: Int64
    """Device time of each step, summed over ranks, shape (steps,)."""
    roofline_ns: float
    """Roofline time of the calls that have one."""
    rooflined_ns: int
    """Device time of those calls."""


@dataclass(frozen=True, slots=True, eq=False)
class EqualWork:
    """All work of a capture by its key; `step_ns` of all sum to its device time."""

    steps: tuple[int | None, ...]
    """Numbers of the steps, in order; None for the whole trace."""
    ranks: int
    windows: int
    """Number of steps, summed over ranks."""
    works: Mapping[WorkKey, WorkTimes]


def equal_work(view: RankView, rooflined: Mask, roofline_ns: Float64) -> EqualWork:
    """A rank's work by key; `rooflined`: mask of the works that are compared with their `roofline_ns`."""
    works, windows = view.works, len(view.windows)
    window = view.window_of(works.start_ns)
    code, keys = _work_codes(view, works)
    step_ns = np.zeros((len(keys), windows), np.int64)
    np.add.at(step_ns, (code, window), works.time_ns)
    calls = np.bincount(code, minlength=len(keys))
    roofline = np.bincount(code, np.where(rooflined, roofline_ns, 0.0), len(keys))
    rooflined_ns = np.zeros(len(keys), np.int64)
    np.add.at(rooflined_ns, code, np.where(rooflined, works.time_ns, 0))
    computes = np.bincount(code, works.computes, len(keys)) > 0
    _, first = np.unique(code, return_index=True)
    sums = {
        key: WorkTimes(
            name=name,
            model=works.kinds[works.kind[item]].model_family,
            category=CATEGORIES[works.category[item]],
            computes=bool(computes[row]),
            calls=int(calls[row]),
            step_ns=step_ns[row],
            roofline_ns=float(roofline[row]),
            rooflined_ns=int(rooflined_ns[row]),
        )
        for row, ((key, name), item) in enumerate(zip(keys.items(), first.tolist(), strict=True))
    }
    return EqualWork(view.windows.steps, 1, windows, sums)


def merge_equal_work(parts: Sequence[EqualWork]) -> EqualWork:
    """The work of several ranks, by step and key."""
    steps = sorted(
        {step for part in parts for step in part.steps}, key=lambda step: -1 if step is None else step
    )
    works: dict[WorkKey, WorkTimes] = {}
    for part in parts:
        places = [steps.index(step) for step in part.steps]
        for key, more in part.works.items():
            step_ns = np.zeros(len(steps), np.int64)
            np.add.at(step_ns, places, more.step_ns)
            sums = works.get(key)
            works[key] = (
                replace(more, step_ns=step_ns)
                if sums is None
                else replace(
                    sums,
                    computes=sums.computes or more.computes,
                    calls=sums.calls + more.calls,
                    step_ns=sums.step_ns + step_ns,
                    roofline_ns=sums.roofline_ns + more.roofline_ns,
                    rooflined_ns=sums.rooflined_ns + more.rooflined_ns,
                )
            )
    return EqualWork(
        tuple(steps), sum(part.ranks for part in parts), sum(part.windows for part in parts), works
    )


def _work_codes(view: RankView, works: Works) -> tuple[Int64, dict[WorkKey, str]]:
    """Number of each work item's key, shape (items,), and the keys that occur with the name of the first."""
    names: dict[WorkKey, str] = {}
    numbers: dict[WorkKey, int] = {}
    code = np.empty(len(works), np.int64)
    collectives = _collectives(view, works)
    # communication has a key for each item, all else one for each kind
    of_kind = np.full(len(works.kinds), -1, np.int64)
    communicates = works.is_communication & (not view.on_host)
    for kind in np.unique(works.kind[~communicates]).tolist():
        key = _kind_key(works.kinds[kind])
        names.setdefault(key, works.kinds[kind].shaped_name)
        of_kind[kind] = numbers.setdefault(key, len(numbers))
    code[~communicates] = of_kind[works.kind[~communicates]]
    for item in np.flatnonzero(communicates).tolist():
        key = collectives.get(item) or WorkKey(works.kinds[works.kind[item]].name, _NO_PAYLOAD)
        names.setdefault(key, key.work)
        code[item] = numbers.setdefault(key, len(numbers))
    return code, names


def _kind_key(kind: WorkKind) -> WorkKey:
    name, shaped = kind.name, kind.shaped_name
    if not kind.linked:
        return WorkKey(name, kind.why_not)
    cost = kind.cost
    flops = f"{cost.flops:.{_DIGITS}g} FLOP" if cost else ""
    if cost and cost.flops and kind.model_family in WHOLE:
        return WorkKey(f"{kind.model_family} {flops}")
    if shaped == name:
        return WorkKey(name, _NO_SHAPES)
    if kind.call.counted_work(COMPILED) is not None:
        return WorkKey(f"{shaped} {flops}")  # a fusion is named by its root alone
    any_library = _LIBRARY.sub("", name)
    if any_library == name:
        return WorkKey(shaped)
    # libraries differ in their buffers: the cost has only what the operator itself needs
    work = f"{flops} {cost.bytes} B" if cost else shaped.removeprefix(name)
    return WorkKey(f"{any_library} {work}")


def _collectives(view: RankView, works: Works) -> dict[int, WorkKey]:
    """Key of each work item that is one collective of known kind, payload and group."""
    if view.on_host:
        return {}
    table = view.collectives
    starts = table["start_ns"].to_numpy()
    rows = works.rows
    of_communication = np.flatnonzero(works.is_communication[rows.work])
    order = of_communication[np.argsort(rows.starts[of_communication], kind="stable")]
    place = np.searchsorted(rows.starts[order], starts)
    inside = np.flatnonzero(place < len(order))
    inside = inside[rows.starts[order[place[inside]]] == starts[inside]]
    item = rows.work[order[place[inside]]]
    rows_of_item = np.bincount(rows.work[order], minlength=len(works))
    sole = (rows_of_item == 1) & (np.bincount(item, minlength=len(works)) == 1)
    payload, is_stated = collective_payloads(table)
    kind, ranks = collective_kinds(table), group_sizes(table)
    is_stated &= (kind != "") & (ranks > 0)
    return {
        work: WorkKey(
            f"{kind[row]} of {humanise(payload[row], 'B')} ({payload[row]} B) on {ranks[row]} ranks"
        )
        for work, row in zip(item.tolist(), inside.tolist(), strict=True)
        if is_stated[row] and sole[work]
    }
