# SPDX-License-Identifier: Apache-2.0
"""A schedule given as data: steps of sends, priced one by one (as TACCL and MSCCL write them).

    kind: all_gather
    ranks: 4
    steps:
      - [[0, 1, 0.25], [1, 0, 0.25], [2, 3, 0.25], [3, 2, 0.25]]   # from, to, share of S
      - [[0, 2, 0.5], [2, 0, 0.5], [1, 3, 0.5], [3, 1, 0.5]]

A step takes its latency plus the time of its bottleneck: the links from or to one accelerator, the links of
one pair, or the interfaces of one node.  Steps do not overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cclbench.ground import yaml_file
from cclbench.ground.errors import InputError
from cclbench.ground.schema import COLLECTIVE_KINDS
from cclbench.hardware.collectives.algorithm import CollectiveCall
from cclbench.hardware.collectives.cost import CollectiveCost, CollectiveSteps, Traffic
from cclbench.hardware.collectives.group import Group
from cclbench.hardware.collectives.transport import SIMPLE
from cclbench.hardware.entry import raise_problems

_MOST_RANKS: Final = 1 << 16
_MOST_SENDS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Send:
    """A share of S sent from one rank of the group to another."""

    source: int
    target: int
    share: float


@dataclass(frozen=True, slots=True)
class SendSchedule:
    """Steps of sends among ranks 0 to `ranks` − 1, numbered node by node."""

    kind: str
    ranks: int
    steps: tuple[tuple[Send, ...], ...]


def read_schedule(path: Path) -> SendSchedule:
    """Read a schedule from a YAML file; `InputError` with the line or the step if it is invalid."""
    read = yaml_file.read(path, "schedule")
    raise_problems(list(read.problems))
    return parse_schedule(read.value, where=read.file)


def parse_schedule(raw: object, *, where: str) -> SendSchedule:
    """The schedule in decoded YAML or JSON; `InputError` with the step if it is invalid."""
    if not isinstance(raw, Mapping) or set(raw) != {"kind", "ranks", "steps"}:
        raise InputError("is not a schedule: it needs kind, ranks and steps, and nothing else", where=where)
    kind, ranks, steps = raw["kind"], raw["ranks"], raw["steps"]
    if kind not in COLLECTIVE_KINDS:
        raise InputError(
            f"is a schedule of an unknown kind: {str(kind)[:40]!r}",
            where=where,
            hint="known: " + ", ".join(COLLECTIVE_KINDS),
        )
    if type(ranks) is not int or not 2 <= ranks <= _MOST_RANKS:
        raise InputError(f"must have 2 to {_MOST_RANKS:,} ranks", where=where)
    if not isinstance(steps, list) or not steps:
        raise InputError("has no list of steps", where=where)
    if sum(len(step) for step in steps if isinstance(step, list)) > _MOST_SENDS:
        raise InputError(f"has more than {_MOST_SENDS:,} sends", where=where)
    return SendSchedule(
        kind,
        ranks,
        tuple(_parse_step(step, ranks, where=f"{where}: step {at}") for at, step in enumerate(steps, 1)),
    )


def _parse_step(raw: object, ranks: int, *, where: str) -> tuple[Send, ...]:
    if not isinstance(raw, list) or not raw:
        raise InputError("has no sends", where=where)
    return tuple(_parse_send(send, ranks, where=where) for send in raw)


def _parse_send(raw: object, ranks: int, *, where: str) -> Send:
    if not isinstance(raw, list) or len(raw) != 3:
        raise InputError("has a send that is not [from, to, share of S]", where=where)
    source, target, share = raw
    if type(source) is not int or type(target) is not int or source == target:
        raise InputError("has a send that is not between two different ranks", where=where)
    if not (0 <= source < ranks and 0 <= target < ranks):
        raise InputError(f"has a send with a rank outside 0 to {ranks - 1}", where=where)
    if type(share) not in (int, float) or not 0 < share <= ranks:
        raise InputError(f"has a send whose share of S is not in (0, {ranks:,}]", where=where)
    return Send(source, target, float(share))


def schedule_cost(plan: SendSchedule, call: CollectiveCall) -> CollectiveCost | None:
    """Cost of the schedule; None if it is for another collective or another number of ranks."""
    group = call.group
    if plan.kind != call.kind or plan.ranks != group.ranks:
        return None
    far = sum(
        any(_node_of(send.source, group) != _node_of(send.target, group) for send in step)
        for step in plan.steps
    )
    s_per_byte = sum(_busiest_s_per_byte(step, group) for step in plan.steps)
    return CollectiveCost(
        "schedule",
        SIMPLE,
        (
            *call.start_steps(SIMPLE),
            CollectiveSteps(len(plan.steps) - far, call.up_s(SIMPLE), "steps in the node"),
            CollectiveSteps(far, call.net_s(SIMPLE), "steps over the network"),
        ),
        Traffic(1.0, call.assumed.rate / s_per_byte, "bottleneck of each step"),
        rendezvous=call.rendezvous_steps(far, SIMPLE),
    )


def _busiest_s_per_byte(step: tuple[Send, ...], group: Group) -> float:
    """Time per byte of S in the step, s/B: at the most loaded of links, pairs and nodes' interfaces."""
    load: dict[tuple[str, int, int], float] = {}
    for send in step:
        source, target = _node_of(send.source, group), _node_of(send.target, group)
        if source == target:
            places = [("out", send.source, 0), ("in", send.target, 0), ("pair", send.source, send.target)]
        else:
            places = [("node out", source, 0), ("node in", target, 0)]
        for place in places:
            load[place] = load.get(place, 0.0) + send.share
    rates = {
        "out": group.up_bytes_per_s,
        "in": group.up_bytes_per_s,
        "pair": group.pair_bytes_per_s,
        "node out": group.out_bytes_per_s,
        "node in": group.out_bytes_per_s,
    }
    return max(share / rates[place[0]] for place, share in load.items())


def _node_of(rank: int, group: Group) -> int:
    return rank // group.per_node
