# SPDX-License-Identifier: Apache-2.0
"""Host threads that take turns, and their runtime calls: which allocate, load code, wait."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from cclbench.ground import intervals
from cclbench.ground.intervals import Int64, Intervals, Mask

ALLOCATES: Final = re.compile(r"(cu|cuda|hip)(Mem)?(Malloc|Free|Alloc|HostAlloc|Host(Un)?[rR]egister)")
"""Names of calls that allocate or free memory of the device, or pinned memory."""
LOADS: Final = re.compile(
    r"(cu|hip)(Module|Library)(Load|GetFunction)|(cuda|hip)Library|(cuda|hip)?(cu)?DevicePrimaryCtx"
    r"|(cu|hip)CtxCreate|ncclCommInit|(cu|hip)Init$"
)
"""Names of calls that load code, create a context, or initialise a communicator."""
PINNED: Final = re.compile("[Pp]inned")
"""Names of copies from or to pinned memory."""
ASYNCHRONOUS: Final = "Async"
"""Part of the names of calls that need not wait for what they launch."""
_TIMES: Final = 50
"""A call is long from this multiple of the median of its function's calls on."""
LEAST_COLD_NS: Final = 100_000
"""Least duration of a cold call."""
_LEAST_ALLOCATION_NS: Final = 20_000_000
"""Least duration of an allocation that creates a context: others take up to some ms each time."""
_FEW: Final = 5
"""Least number of calls of a function to use its own median, not that of all calls."""
_OPERATOR_NS: Final = 20_000
"""Assumed host time of an operator that has too few calls for a median."""
_WAITING: Final = re.compile(
    r"c10d::|nccl:|gloo:|record_param_comms|enumerate\(|\w*(?:[wW]ait|[aA]ll2[aA]ll)"
)
"""Names of operators that wait for other ranks or for data."""

_TOGETHER: Final = 0.01
"""Greatest share of a thread's activity that overlaps with that of a thread it takes turns with."""


def take_turns(active: Sequence[Intervals]) -> Mask:
    """Which threads are hardly ever active at the same time, shape (threads, threads); False on the diagonal.

    Such threads hand over to one another, as a main thread and that of autograd do: together they are one
    sequence of calls.
    """
    lengths = [spans.length for spans in active]
    takes_turns = np.zeros((len(active), len(active)), np.bool_)
    for a in range(len(active)):
        for b in range(a):
            shared = intervals.intersect(active[a], active[b]).length
            takes_turns[a, b] = takes_turns[b, a] = shared <= _TOGETHER * min(lengths[a], lengths[b])
    return takes_turns


def blocks(
    returned: Int64, begun: Int64, ended: Int64, hosted: Mask, pinned: Mask, asynchronous: Mask
) -> Mask:
    """Which calls that launch a copy wait for it, shape (copies,).

    A call waits if it returns after the end of a copy between host and device (`hosted`), unless it is
    `asynchronous` and the memory is known to be `pinned`: a copy within the device, or asynchronously from
    pinned memory, may have ended by chance.  From pageable memory the call itself feeds the copy through a
    pinned buffer and returns while the last buffer is copied: it also waits if it returns in the second half
    of the copy.  Times in ns; the copies take from `begun` to `ended`.
    """
    staged = returned - begun > ended - returned
    return np.asarray(hosted & ((returned >= ended) | (staged & ~pinned)) & ~(pinned & asynchronous))


def cold_calls(
    function: Int64, kernel: Int64, start: Int64, dur: Int64, allocates: Mask, loads: Mask, until: int | None
) -> Mask:
    """Which runtime calls of a rank are long because they are the first, shape (calls,).

    `function` and `kernel` are codes of the called function and of the kernel that it launches (−1 for none),
    times in ns, `until` the begin of the second step, None if there is only one.  A call that
    loads by its name is cold.  Any other is cold if it is long compared with its function's median, and is
    either the first of its function and kernel or, with all other such calls of its function, over before the
    second step: loading happens once.
    """
    cold = loads.copy()
    long = dur >= np.where(allocates, _LEAST_ALLOCATION_NS, LEAST_COLD_NS)
    if not long.any():
        return cold
    of_all = float(np.median(dur))
    for code in np.unique(function[long]).tolist():
        rows = np.flatnonzero(function == code)
        usual = float(np.median(dur[rows])) if len(rows) >= _FEW else of_all
        unusual = rows[long[rows] & (dur[rows] >= _TIMES * usual)]
        if until is not None and (start[unusual] + dur[unusual] <= until).all():
            cold[unusual] = True
            continue
        by_start = rows[np.argsort(start[rows], kind="stable")]
        firsts = by_start[np.unique(kernel[by_start], return_index=True)[1]]
        cold[np.intersect1d(unusual, firsts)] = True
    return cold


def may_be_cold(name: str) -> bool:
    """Whether a long call of the operator may be long because it is the first."""
    return _WAITING.match(name) is None


def cold_operators(
    operators: tuple[Int64, Int64, Int64, Int64], calls: tuple[Int64, Int64, Int64], until: int | None
) -> Mask:
    """Which operator calls are long because they are the first, shape (operators,).

    `operators` are codes of their names, threads, begins and ends; `calls` threads, begins and ends of
    runtime calls, which are judged separately; times in ns, `until` as in `cold_calls`.  Libraries that
    operators use create handles, build plans and compile kernels without a row of their own.  A call is cold
    if, outside of the operators and calls in it, it takes 50 times the median of its name's calls, and no
    call of its name does so after the second step begins; with a single step, if it is the first of a name
    with enough calls for a median.
    """
    name, thread, start, end = operators
    dur = end - start
    cold = np.zeros(len(name), np.bool_)
    inner = [np.concatenate(pair) for pair in zip((thread, start, end), calls, strict=True)]
    order = np.lexsort((-inner[2], inner[1], inner[0]))
    inner = [column[order] for column in inner]
    place = np.argsort(order)
    for code in np.unique(name[dur >= LEAST_COLD_NS]).tolist():
        rows = np.flatnonzero(name == code)
        if until is None and len(rows) < _FEW:
            continue
        usual = float(np.median(dur[rows])) if len(rows) >= _FEW else _OPERATOR_NS
        least = max(_TIMES * usual, LEAST_COLD_NS)
        unusual = [at for at in rows[dur[rows] >= least].tolist() if _own_ns(inner, int(place[at])) >= least]
        if until is None:
            cold[[at for at in unusual if start[at] == start[rows].min()]] = True
        elif all(end[at] <= until for at in unusual):
            cold[unusual] = True
    return cold


def _own_ns(rows: Sequence[Int64], at: int) -> int:
    """Duration of row `at` of (threads, begins, ends), ordered by these, outside of the rows in it, ns."""
    thread, start, end = rows
    stop = int(np.searchsorted(thread, thread[at], side="right"))
    inside = np.arange(at + 1, at + int(np.searchsorted(start[at:stop], end[at])))
    inside = inside[end[inside] <= end[at]]
    return int(end[at] - start[at]) - intervals.union(start[inside], end[inside]).length
