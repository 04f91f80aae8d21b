# SPDX-License-Identifier: Apache-2.0
"""Order of a rank's tasks on the resources of an ASTRA-sim NPU, each of which runs one node at a time.

Threads share the CPU, streams the accelerator.  A task that ran while another did occupies its resource only
for the time that it ran on alone, so that the resource is busy for as long as it was, and what runs on
another resource runs beside it.  Sources: astra-sim/workload/{Workload,HardwareResource}.cc of
github.com/astra-sim/astra-sim at 518bd513ae110428cd62eb60efc0f3993fd53c70.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cclbench.export.tasks import BY_CPU, Task
from cclbench.replay import nodes as n

_US: Final = 1000
_TRANSFER: Final = n.KINDS[n.TRANSFER]


def share_resources(tasks: Sequence[Task], communications: Mapping[int, bool]) -> None:
    """Set `alone` and `behind` of the tasks, which are in topological order.

    `communications`: by node, whether the communication is one at a time; a receive is not.
    """
    cpu, accelerator, network = list[Task](), list[Task](), list[Task]()
    for task in tasks:
        if task.role == _TRANSFER and task.node in communications:
            if communications[task.node]:
                network.append(task)
        else:
            (cpu if task.role in BY_CPU else accelerator).append(task)
    _share_by_end(cpu)
    _share_by_end(accelerator)
    _share_by_start(network)


def _share_by_end(tasks: list[Task]) -> None:
    """Each task follows those that began and ended during it.

    So all end when they did: a task is alone from the last end before its own.  Those that only began before
    it hold the resource when it is ready, whatever their order.
    """
    tasks.sort(key=lambda task: (task.end, task.id))
    for at, task in enumerate(tasks):
        before = at - 1
        if before >= 0:
            task.alone = max(task.start, tasks[before].end)
        while before >= 0 and tasks[before].end > task.start:
            # as many turns as there are lanes: of each, one task began before this one and ended during it
            if tasks[before].start // _US >= task.start // _US:
                task.behind.append(tasks[before])
                break
            before -= 1


def _share_by_start(tasks: list[Task]) -> None:
    """Communications follow one another in the order in which they began, which all ranks have in common.

    Two ranks that began with different ones would wait for one another forever.  This adds no cycle, because
    no task begins before those that it depends on have ended, and communications that began together stay as
    they are.
    """
    tasks.sort(key=lambda task: (task.start, task.id))
    busy = 0
    for at, task in enumerate(tasks):
        task.alone = min(max(task.start, busy), task.end)
        busy = max(busy, task.end)
        if at and tasks[at - 1].start < task.start:
            task.behind.append(tasks[at - 1])
