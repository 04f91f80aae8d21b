# SPDX-License-Identifier: Apache-2.0
"""Infer a process group that no trace states from the timing of all ranks' collectives, or say why not.

The only group ever inferred is that of all ranks, for all collectives of a run at once:

- R0, a world of two ranks: their collectives are the same in order, and all overlap in time;
- R1, a larger world: also, no instances overlap if one rank's sequence is shifted by one or more (beyond the
  spread of an instance's ends), ends agree within SPREAD_NS after one offset per rank, there are at least
  LEAST_INSTANCES, and ranks wait for one another.

Balanced subgroups in lockstep meet all conditions but the last: none waits for another one's late rank.  Let
an instance's last rank arrive g later than any other, and its ranks' ends differ by s.  Subgroups without the
last rank would have left g before its own, if their transfers took as long, so that s ≥ g; if g > 2·s, all
ranks waited for the last one.  Independent subgroups show that by chance in up to 14 % of instances (two
groups whose transfers differ by as much as their arrivals; 3 to 16 ranks).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cclbench.ground.intervals import Int64, Mask
from cclbench.ground.schema import COLLECTIVE_KINDS
from cclbench.normalize.matching import Int32

Float = npt.NDArray[np.float64]

HOST_LIBRARIES: Final = ("gloo", "mpi", "ucc", "c10d", "xla")
"""Libraries that run on CPUs, where a collective's ends spread over milliseconds."""
LEAST_INSTANCES: Final = 8
SPREAD_NS: Final = 50_000
WAITING: Final = 0.75
"""Least share of instances in which all ranks wait for the last one: 6 of 8 by chance in 1.6e-4."""

_SEND, _RECV, _SEND_RECV = (COLLECTIVE_KINDS.index(kind) for kind in ("send", "recv", "send_recv"))


@dataclass(frozen=True, slots=True, eq=False)
class JobCalls:
    """All ranks' collectives, of which none states its group; arrays of shape (rows,), −1 for unknown.

    Rows are in rank order and each rank's in order of start.  `kind` is a code into COLLECTIVE_KINDS, `size`
    the stated number of ranks in the group, `libraries` the communication libraries, `names` the groups or
    communicators that each rank's calls name.
    """

    rank: Int32
    kind: npt.NDArray[np.int8]
    size: Int32
    starts: Int64
    ends: Int64
    libraries: Sequence[str]
    names: Sequence[frozenset[str]]


@dataclass(frozen=True, slots=True)
class Inference:
    """The rule by which all calls are collectives of all ranks, None if neither holds; and the reason."""

    rule: str | None
    reason: str


def infer_group(calls: JobCalls, ranks: Sequence[int], world: int | None) -> Inference:
    """Whether the calls are collectives of all ranks.

    `ranks` have a trace, ascending; `world` is the number of the job's ranks, None if not stated.
    """
    failed = next(_failed_conditions(calls, ranks, world), None)
    if failed is not None:
        return Inference(None, failed)
    if world == 2:
        return Inference("R0", "a world of 2 ranks has no other group")
    instances = len(calls.rank) // len(ranks)
    return Inference("R1", f"all {world} ranks run one sequence of {instances} collectives in step")


def _failed_conditions(calls: JobCalls, ranks: Sequence[int], world: int | None) -> Iterator[str]:
    """Conditions that fail; a later one may presuppose an earlier one."""
    yield from _objection(calls, ranks, world)
    yield from _first_difference(calls, ranks)
    # One row per instance, one column per rank.
    starts, ends = (times.reshape(len(ranks), -1).T for times in (calls.starts, calls.ends))
    if len(ranks) > 2 and len(starts) < LEAST_INSTANCES:
        yield f"{len(starts)} instances, fewer than {LEAST_INSTANCES}"
    apart = np.flatnonzero(starts.max(axis=1) >= ends.min(axis=1))
    if len(apart):
        yield f"instance {apart[0] + 1} does not overlap in time across ranks"
    if len(ranks) > 2:
        yield from _out_of_step(starts, ends)


def _objection(calls: JobCalls, ranks: Sequence[int], world: int | None) -> Iterator[str]:
    """Failed conditions that need no times."""
    if world is None:
        yield "nothing states the world size"
    elif world < 2:
        yield "the world has one rank"
    elif list(ranks) != list(range(world)):
        yield f"{len(ranks)} of {world} ranks {'has' if len(ranks) == 1 else 'have'} a trace"
    for library in calls.libraries:
        if library in HOST_LIBRARIES:
            yield f"library {library}, whose calls do not end together"
    other = calls.size[(calls.size >= 0) & (calls.size != world)]
    if len(other):
        yield f"{len(other)} collectives are stated to be of {other[0]} ranks"
    if len(set(calls.names)) > 1:
        yield "the ranks' collectives name different process groups"
    if world == 2:
        return
    if unknown := int((calls.kind < 0).sum()):
        yield f"{unknown} collectives are of unknown kind"
    if unnamed := int(np.isin(calls.kind, (_SEND, _RECV, _SEND_RECV)).sum()):
        yield f"nothing says that {unnamed} sends and receives are a collective of all ranks"


def _first_difference(calls: JobCalls, ranks: Sequence[int]) -> Iterator[str]:
    """First difference of a rank's kinds from the first rank's; of two ranks, a send matches a receive."""
    kind = calls.kind
    if len(ranks) == 2:
        peers = np.where(kind == _SEND, _RECV, np.where(kind == _RECV, _SEND, kind))
        kind = np.where(calls.rank == ranks[1], peers, kind)
    first, *others = np.split(kind, np.searchsorted(calls.rank, ranks[1:]))
    for rank, other in zip(ranks[1:], others, strict=True):
        both = min(len(first), len(other))
        differing = np.flatnonzero(first[:both] != other[:both])
        if len(differing) or len(first) != len(other):
            at = int(differing[0]) if len(differing) else both
            difference = f"{_kind_name(first, at)} on rank {ranks[0]}, {_kind_name(other, at)} on rank {rank}"
            yield f"kind sequences differ at instance {at + 1}: {difference}"


def _kind_name(kinds: npt.NDArray[np.integer[Any]], at: int) -> str:
    if at >= len(kinds):
        return "none"
    return COLLECTIVE_KINDS[kinds[at]] if kinds[at] >= 0 else "an unknown one"


def _out_of_step(starts: Int64, ends: Int64) -> Iterator[str]:
    """Failed conditions on all ranks running each instance together; shapes (instances, ranks), ns."""
    left, offset = _ends_agreement(ends)
    spread = np.ptp(left, axis=1)
    # Starts are in order: an overlap with a later instance implies one with the next.
    shifted = ends[:-1].max(axis=1) - starts[1:].min(axis=1)
    if (shifted > spread[:-1]).any():
        yield "a shift by one also overlaps"
    if spread.max() > SPREAD_NS:
        yield f"ends spread {spread.max() / 1000:.0f} µs around their offsets"
    waited = _waited_instances(starts, offset, spread)
    if waited.mean() < WAITING:
        yield (
            f"in {waited.sum()} of {len(waited)} instances all ranks are seen to wait for the last one: the"
            " others could be of subgroups in lockstep"
        )
    elif spread.max() > (most := spread[waited].max()):
        yield (
            f"ends spread {spread.max() / 1000:.0f} µs where no rank is seen to wait for the last one, and at"
            f" most {most / 1000:.0f} µs where all do: the others could be of subgroups in lockstep"
        )


def _ends_agreement(ends: Int64) -> tuple[Float, Float]:
    """Deviation of ends from their instance's median and their rank's offset, and these offsets, ns.

    A rank's offset is the median over instances; shapes (instances, ranks) and (ranks,).
    """
    left = (ends - ends.min()).astype(np.float64)
    left -= np.median(left, axis=1, keepdims=True)
    offset = np.median(left, axis=0)
    return left - offset, offset


def _waited_instances(starts: Int64, offset: Float, spread: Float) -> Mask:
    """Instances whose last rank arrives later than any other by more than twice the spread of the ends.

    A rank's offset may come from its clock or from a subgroup that always leaves later: the gap must exist,
    with the same last rank, with the offset and without it.
    """
    plain = (starts - starts.min()).astype(np.float64)
    gaps, last = [], []
    for arrival in (plain, plain - offset):
        second, first = np.sort(arrival, axis=1)[:, -2:].T
        gaps.append(first - second)
        last.append(arrival.argmax(axis=1))
    return np.asarray((last[0] == last[1]) & (np.minimum(*gaps) > 2 * spread))
