# SPDX-License-Identifier: Apache-2.0
"""Threads of a host that hand over, and their calls of the runtime: what allocates, loads, waits."""

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
"""A call is long from so many times the median of its function's calls."""
LEAST_COLD_NS: Final = 100_000
"""A cold call takes at least that."""
_LEAST_ALLOCATION_NS: Final = 20_000_000
"""What an allocation takes at least that creates a context: others take up to some ms each time."""
_FEW: Final = 5
"""Calls of a function from which on its own median counts, else that of all calls."""
_OPERATOR_NS: Final = 20_000
"""What an operator takes its host where it is called too seldom to tell."""
_WAITING: Final = re.compile(
    r"c10d::|nccl:|gloo:|record_param_comms|enumerate\(|\w*(?:[wW]ait|[aA]ll2[aA]ll)"
)
"""Names of operators that wait for other ranks or for data."""

_TOGETHER: Final = 0.01
"""Share of a thread's activity up to which another's may overlap where the two take turns."""


def take_turns(active: Sequence[Intervals]) -> Mask:
    """Which threads are hardly ever active at the same time, shape (threads, threads); none with itself.

    Such threads hand over to one another, as a main thread and that of autograd do: together they are one
    sequence of calls.
    """
    lengths = [one.length for one in active]
    found = np.zeros((len(active), len(active)), np.bool_)
    for one in range(len(active)):
        for other in range(one):
            shared = intervals.intersect(active[one], active[other]).length
            found[one, other] = found[other, one] = shared <= _TOGETHER * min(lengths[one], lengths[other])
    return found


def blocks(
    returned: Int64, begun: Int64, ended: Int64, hosted: Mask, pinned: Mask, asynchronous: Mask
) -> Mask:
    """Which calls that launch a copy wait for it, shape (copies,).

    That is a copy between host and device (`hosted`) whose call returns after its end: by a synchronous call,
    or by an `asynchronous` one where the memory is not known to be `pinned`.  What runs within the device, or
    asynchronously from pinned memory, may have ended by chance.  From pageable memory the call itself feeds
    the copy, through a buffer that is pinned, and returns while the last buffer is copied: it waits, too,
    where it returns in the second half of the copy.  Times in ns; the copies take from `begun` to `ended`.
    """
    staged = returned - begun > ended - returned
    return np.asarray(hosted & ((returned >= ended) | (staged & ~pinned)) & ~(pinned & asynchronous))


def cold_calls(
    function: Int64, kernel: Int64, start: Int64, dur: Int64, allocates: Mask, loads: Mask, until: int | None
) -> Mask:
    """Which calls of a rank's runtime take long because they are the first, shape (calls,).

    `function` and `kernel` are codes of the called function and of the kernel that it launches (−1 for none),
    times in ns, `until` the begin of the second step, None where there is one.  A call that loads by its name
    is cold.  Any other is where it takes long beside its function's usual time, and is either the first of
    its function and kernel, or, with all other such calls of its function, over before the second step: what
    is loaded once never comes back.
    """
    cold = loads.copy()
    long = dur >= np.where(allocates, _LEAST_ALLOCATION_NS, LEAST_COLD_NS)
    if not long.any():
        return cold
    of_all = float(np.median(dur))
    for one in np.unique(function[long]).tolist():
        own = np.flatnonzero(function == one)
        usual = float(np.median(dur[own])) if len(own) >= _FEW else of_all
        unusual = own[long[own] & (dur[own] >= _TIMES * usual)]
        if until is not None and (start[unusual] + dur[unusual] <= until).all():
            cold[unusual] = True
            continue
        by_start = own[np.argsort(start[own], kind="stable")]
        firsts = by_start[np.unique(kernel[by_start], return_index=True)[1]]
        cold[np.intersect1d(unusual, firsts)] = True
    return cold


def may_be_cold(name: str) -> bool:
    """Whether a call of an operator that takes long may do so because it is the first."""
    return _WAITING.match(name) is None


def cold_operators(
    operators: tuple[Int64, Int64, Int64, Int64], calls: tuple[Int64, Int64, Int64], until: int | None
) -> Mask:
    """Which calls of operators take their thread long because they are the first, shape (operators,).

    `operators` are codes of their names, threads, begins and ends; `calls` threads, begins and ends of calls
    of the runtime, which stand for themselves; times in ns, `until` as in `cold_calls`.  Libraries that
    operators use create handles, build plans and compile kernels without a row of their own.  So cold is
    where an operator takes, outside of the operators and calls in it, 50 times what its name's calls usually
    take in all, and no call of its name does so after the second step begins; of a single step the first,
    where its name is called often enough to tell.
    """
    name, thread, start, end = operators
    dur = end - start
    cold = np.zeros(len(name), np.bool_)
    inner = [np.concatenate(pair) for pair in zip((thread, start, end), calls, strict=True)]
    order = np.lexsort((-inner[2], inner[1], inner[0]))
    inner = [column[order] for column in inner]
    place = np.argsort(order)
    for one in np.unique(name[dur >= LEAST_COLD_NS]).tolist():
        own = np.flatnonzero(name == one)
        if until is None and len(own) < _FEW:
            continue
        usual = float(np.median(dur[own])) if len(own) >= _FEW else _OPERATOR_NS
        least = max(_TIMES * usual, LEAST_COLD_NS)
        unusual = [at for at in own[dur[own] >= least].tolist() if _own_ns(inner, int(place[at])) >= least]
        if until is None:
            cold[[at for at in unusual if start[at] == start[own].min()]] = True
        elif all(end[at] <= until for at in unusual):
            cold[unusual] = True
    return cold


def _own_ns(rows: Sequence[Int64], at: int) -> int:
    """How long a row of (threads, begins, ends), in that order, lasts outside of those in it."""
    thread, start, end = rows
    stop = int(np.searchsorted(thread, thread[at], side="right"))
    inside = np.arange(at + 1, at + int(np.searchsorted(start[at:stop], end[at])))
    inside = inside[end[inside] <= end[at]]
    return int(end[at] - start[at]) - intervals.union(start[inside], end[inside]).length
