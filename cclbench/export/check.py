# SPDX-License-Identifier: Apache-2.0
"""Read the exported files back, and replay them from their dependencies."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cclbench.export import chakra
from cclbench.ground.errors import InputError


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """The concatenated nodes of all ranks; `after` are indices into these lists, times in ns.

    `behind` are control dependencies; `kind` is a NodeType; `instance` is that of a matched collective, whose
    parts begin together, None for other nodes; `metadata` is per rank, `first` the index of its first node.
    """

    after: list[list[int]] = field(default_factory=list)
    behind: list[list[int]] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    by_cpu: list[bool] = field(default_factory=list)
    duration: list[int] = field(default_factory=list)
    instance: list[int | None] = field(default_factory=list)
    metadata: list[chakra.Attributes] = field(default_factory=list)
    first: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """Times at which each node's dependencies have ended, it begins, and it ends, ns."""

    met: list[int]
    start: list[int]
    end: list[int]


def read_folder(folder: Path, *, micros: bool = False) -> Workload:
    """The traces of a folder; with `micros`, durations are whole µs, as Chakra readers use them."""
    workload = Workload()
    for path in sorted(folder.glob("*.et")):
        stream = chakra.read_messages(path)
        header = next(stream, None)
        if header is None:
            raise InputError("empty file", where=str(path))
        workload.metadata.append(chakra.message_attributes(header))
        first = len(workload.after)
        workload.first.append(first)
        numbers: dict[int, int] = {}
        for node in stream:
            attributes = chakra.message_attributes(node)
            numbers[node.id] = len(workload.after)
            workload.after.append(list(node.data_deps))
            workload.behind.append(list(node.ctrl_deps))
            workload.kind.append(node.type)
            workload.by_cpu.append(bool(attributes["is_cpu_op"]))
            ns = node.duration_micros * 1000 if micros else int(attributes["duration_ns"])
            workload.duration.append(ns)
            workload.instance.append(int(attributes["instance"]) if "instance" in attributes else None)
        for at in range(first, len(workload.after)):
            for edges in (workload.after, workload.behind):
                edges[at] = [numbers[number] for number in edges[at]]
    if not workload.first:
        raise InputError("contains no execution traces (*.et)", where=str(folder))
    return workload


def schedule_workload(workload: Workload) -> Schedule:
    """Begin each node when its data dependencies have ended, parts of a collective when the last is ready."""
    count = len(workload.after)
    followers: dict[int, list[int]] = defaultdict(list)
    parts: dict[int, list[int]] = defaultdict(list)
    for at in range(count):
        for each in workload.after[at]:
            followers[each].append(at)
        instance = workload.instance[at]
        if instance is not None:
            parts[instance].append(at)
    missing = [len(after) for after in workload.after]
    absent = {instance: len(members) for instance, members in parts.items()}
    met, start, end = [0] * count, [0] * count, [-1] * count
    ready = deque(at for at in range(count) if not missing[at])
    while ready:
        at = ready.popleft()
        met[at] = max((end[each] for each in workload.after[at]), default=0)
        together = [at]
        instance = workload.instance[at]
        if instance is not None:
            absent[instance] -= 1
            together = [] if absent[instance] else parts[instance]
        begin = max((met[each] for each in together), default=0)
        for each in together:
            start[each], end[each] = begin, begin + workload.duration[each]
            for follower in followers[each]:
                missing[follower] -= 1
                if not missing[follower]:
                    ready.append(follower)
    if -1 in end:
        raise InputError("the dependencies of the traces have a cycle")
    return Schedule(met, start, end)


def step_ns(workload: Workload, times: Schedule) -> float:
    """Mean over steps of the maximum over ranks, ns."""
    longest: dict[int | None, int] = {}
    for metadata, first in zip(workload.metadata, workload.first, strict=True):
        windows: list[dict[str, Any]] = json.loads(str(metadata["steps"]))
        begins = [min(times.met[first + at] for at in w["begin"]) + w["before_ns"] for w in windows]
        for place, window in enumerate(windows):
            end = max(times.end[first + at] for at in window["end"]) + window["behind_ns"]
            if window["until_next"]:
                end = begins[place + 1]
            if window["counts"]:
                longest[window["step"]] = max(longest.get(window["step"], 0), end - begins[place])
    return sum(longest.values()) / len(longest) if longest else 0.0
