# SPDX-License-Identifier: Apache-2.0
"""When ASTRA-sim's workload layer runs the nodes of an export, with their recorded durations.

An NPU runs one CPU node, one compute node and one communication at a time; a receive occupies none of them.
When a node ends, those that are free of dependencies begin in the order of their ids, each if its resource
is idle.  Durations are whole microseconds, of which zero is one nanosecond.  A send does not wait for its
receive.  ASTRA-sim simulates the messages of a collective; here, its parts begin with the last one.  Source:
astra-sim/workload/{Workload,HardwareResource}.cc at 518bd513ae110428cd62eb60efc0f3993fd53c70.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count as count_up
from typing import Final

from cclbench.export import chakra
from cclbench.export.check import Schedule, Workload
from cclbench.ground.errors import InputError

_RESOURCES: Final = 3
"""Of each rank: CPU, compute, communication."""


class _Messages:
    """Communications that were begun, and when they end."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._parts: dict[int | None, list[int]] = defaultdict(list)
        self._sent: dict[int | None, int] = {}
        for at, instance in enumerate(workload.instance):
            if workload.kind[at] == chakra.COLLECTIVE and instance is not None:
                self._parts[instance].append(at)
        self._absent = {instance: len(parts) for instance, parts in self._parts.items()}
        self._receiving: dict[int | None, int] = {}

    def begin(self, at: int, now: int) -> Sequence[tuple[int, int]]:
        """End and node of the nodes whose end is known now that node `at` has begun."""
        kind, instance = self._workload.kind[at], self._workload.instance[at]
        end = now + self._lasts(at)
        if instance is None or kind == chakra.COMPUTE:
            return [(end, at)]
        if kind == chakra.COLLECTIVE:
            self._absent[instance] -= 1
            parts = [] if self._absent[instance] else self._parts[instance]
            return [(now + self._lasts(part), part) for part in parts]
        if kind == chakra.SEND:
            self._sent[instance] = end
            receive = self._receiving.pop(instance, None)
            return [(end, at)] + ([] if receive is None else [(end, receive)])
        if instance in self._sent:
            return [(max(now, self._sent[instance]), at)]
        self._receiving[instance] = at
        return []

    def _lasts(self, at: int) -> int:
        return max(self._workload.duration[at], 1)


@dataclass(slots=True, eq=False)
class _Resources:
    """Nodes that wait for a resource, by number, and the resources in use."""

    resource_of: list[int]
    """Each node's; −1: none."""
    waiting: dict[int, list[int]]
    busy: set[int]

    def next_nodes(self, ready: Sequence[int], released: int) -> Sequence[int]:
        """The nodes that begin after `ready` became free of dependencies and `released` became idle."""
        self.busy.discard(released)
        begun = [at for at in ready if self.resource_of[at] < 0]
        tried = {released}
        for at in ready:
            if self.resource_of[at] >= 0:
                heapq.heappush(self.waiting[self.resource_of[at]], at)
                tried.add(self.resource_of[at])
        for resource in tried:
            if resource >= 0 and resource not in self.busy and self.waiting[resource]:
                self.busy.add(resource)
                begun.append(heapq.heappop(self.waiting[resource]))
        return sorted(begun)


def issue_workload(workload: Workload) -> Schedule:
    """The schedule under these rules; `InputError` if ranks wait for one another forever."""
    count = len(workload.after)
    before = [{*a, *b} for a, b in zip(workload.after, workload.behind, strict=True)]
    followers: dict[int, list[int]] = defaultdict(list)
    for at, nodes in enumerate(before):
        for each in nodes:
            followers[each].append(at)
    missing = [len(nodes) for nodes in before]
    start, end = [0] * count, [-1] * count
    messages = _Messages(workload)
    resources = _Resources(_resource_numbers(workload), defaultdict(list), set())
    ending: list[tuple[int, int, int]] = []
    turn = count_up()  # nodes that end together do so in the order in which their ends became known

    def begin(nodes: Sequence[int], now: int) -> None:
        for at in nodes:
            start[at] = now
            for ns, node in messages.begin(at, now):
                heapq.heappush(ending, (ns, next(turn), node))

    begin(resources.next_nodes([at for at in range(count) if not missing[at]], -1), 0)
    while ending:
        now, _, at = heapq.heappop(ending)
        end[at] = now
        for follower in followers[at]:
            missing[follower] -= 1
        ready = [follower for follower in followers[at] if not missing[follower]]
        begin(resources.next_nodes(ready, resources.resource_of[at]), now)
    if -1 in end:
        raise InputError(
            f"{end.count(-1):,} nodes never begin: ranks wait for one another",
            hint="export the run again with this version of cclbench",
        )
    met = [max((end[each] for each in nodes), default=0) for nodes in workload.after]
    return Schedule(met, start, end)


def _resource_numbers(workload: Workload) -> list[int]:
    numbers = []
    ends = [*workload.first[1:], len(workload.after)]
    for rank, (first, last) in enumerate(zip(workload.first, ends, strict=True)):
        for at in range(first, last):
            kind = workload.kind[at]
            place = 0 if workload.by_cpu[at] else 1 if kind == chakra.COMPUTE else 2
            numbers.append(-1 if kind == chakra.RECV else rank * _RESOURCES + place)
    return numbers
