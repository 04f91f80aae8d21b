# SPDX-License-Identifier: Apache-2.0
"""The folder that `cclbench export` writes: a trace per rank, process groups, a README."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from cclbench import __version__
from cclbench.engine import Progress
from cclbench.export import chakra
from cclbench.export.astra_sim import SIMULATED, MachineFiles, machine_files
from cclbench.export.chakra import Attributes
from cclbench.export.check import read_folder, schedule_workload, step_ns
from cclbench.export.issue import issue_workload
from cclbench.export.resources import share_resources
from cclbench.export.tasks import (
    BY_CPU,
    REST,
    RankTasks,
    Task,
    behind_transfers,
    graph_dependencies,
    rank_tasks,
)
from cclbench.ground.destination import new_folder
from cclbench.ground.intervals import Int64
from cclbench.machine import Machine
from cclbench.record.run import Run
from cclbench.replay import nodes as n
from cclbench.replay.answer import Replay
from cclbench.replay.graph import Graph
from cclbench.replay.simulate import simulate_nodes
from cclbench.replay.windows import RankWindow

Format = Literal["chakra", "astra-sim"]
PREFIX: Final = "workload"
"""Traces are `<PREFIX>.<rank>.et`."""
GROUPS: Final = "comm_groups.json"
_MEASURED: Final = "durations of kernels, copies, operators; times of threads and streams between them"
_DERIVED: Final = (
    "what waits for what; transfers: from the last rank's arrival to the end; latencies of launches, fitted"
)
_TIMES: Final = (
    "ns from the first node on, as a replay of the graph has them: attributes start_ns and duration_ns; whole"
    " microseconds are rounded down at both ends of a node"
)


@dataclass(frozen=True, slots=True)
class ExportedFolder:
    """What was written: tasks by role, notes, and step times in ns: measured, replayed, read back."""

    steps_ns: Mapping[str, float]
    tasks: Mapping[str, int]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Call:
    """A rank's part of a collective as a Chakra node: its type and attributes."""

    kind: int
    says: Attributes


def write_folder(
    run: Run,
    folder: Path,
    form: Format,
    *,
    machine: Machine,
    ranks: Sequence[int] | None = None,
    check: bool = False,
    progress: Progress | None = None,
) -> ExportedFolder:
    """Export the run's graph, whole or not at all; `check` replays what was written.

    `InputError` if the run cannot be replayed, or properties that ASTRA-sim requires are unknown;
    `UsageError` if the folder exists.
    """
    simulated = form == "astra-sim"
    with new_folder(folder) as unfinished:
        machine_texts = machine_files(machine, run, ranks) if simulated else MachineFiles({}, ())
        replay = Replay(run, machine=machine, ranks=ranks)
        groups = {name: number for number, name in enumerate(replay.groups, 1)}
        exported = _write_traces(run, replay, groups, unfinished, simulated, progress)
        members = {str(number): list(replay.groups[name]) for name, number in groups.items()}
        texts = {GROUPS: json.dumps(members, indent=1) + "\n", **machine_texts.texts}
        texts["README.txt"] = _readme_text(run, form, replay.graph, exported, machine_texts)
        for name, text in texts.items():
            (unfinished / name).write_text(text, encoding="utf-8")
        if check:
            workload = read_folder(unfinished, micros=simulated)
            times = issue_workload(workload) if simulated else schedule_workload(workload)
            steps = {**exported.steps_ns, "read back": step_ns(workload, times)}
            exported = replace(exported, steps_ns=steps)
    return exported


def _write_traces(
    run: Run,
    replay: Replay,
    groups: Mapping[str, int],
    folder: Path,
    simulated: bool,
    progress: Progress | None,
) -> ExportedFolder:
    graph = behind_transfers(replay.graph) if simulated else replay.graph
    times = simulate_nodes(graph.nodes, graph.cut)
    needed = graph_dependencies(graph)
    roles, notes = Counter[str](), Counter[str]()
    offset = 0
    for place, windowed in enumerate(graph.windowed):
        rank_windows = [w for w in replay.windows if w.rank == windowed.rank]
        edges = [_window_edges(graph.nodes.lane, times.start, times.end, w) for w in rank_windows]
        bounds = {node for pair in edges for nodes in pair for node in nodes}
        tasks = rank_tasks(graph, times, needed, place, bounds, simulated=simulated)
        calls = _collective_calls(run, replay, windowed.rank, offset, groups, simulated, notes)
        offset += len(calls)
        if simulated:
            share_resources(tasks.tasks, _communications(graph.nodes, windowed.rank, calls))
        steps = _window_tasks(rank_windows, edges, tasks)
        metadata: Attributes = {
            "cclbench_version": __version__,
            "run": run.id,
            "rank": windowed.rank,
            "ranks": json.dumps([w.rank for w in graph.windowed]),
            "measured": _MEASURED,
            "derived": _DERIVED,
            "times": _TIMES,
            **({"caveat": replay.caveat} if replay.caveat is not None else {}),
            "measured_step_ns": float(replay.measured_ns),
            "replayed_step_ns": float(replay.unchanged.step_ns),
            "steps": json.dumps(steps),
        }
        _write_rank(folder / f"{PREFIX}.{windowed.rank}.et", metadata, tasks, replay, calls)
        roles.update(task.role for task in tasks.tasks)
        notes["waits that end before what they wait for begins, by the ranks' clocks"] += tasks.clipped
        if progress:
            progress("ranks written", place + 1, len(graph.windowed))
    sentences = tuple(f"{number:,} {what}" for what, number in sorted((+notes).items()))
    if replay.caveat is not None:
        sentences = (replay.caveat, *sentences)
    steps_ns = {"measured": float(replay.measured_ns), "replayed": float(replay.unchanged.step_ns)}
    return ExportedFolder(steps_ns, dict(sorted(roles.items())), sentences)


def _window_edges(lane: Int64, start: Int64, end: Int64, window: RankWindow) -> tuple[list[int], list[int]]:
    """For each lane, the window's node that begins first and the one that ends last."""

    def first_of_lanes(chosen: Int64, key: Int64) -> list[int]:
        order = chosen[np.lexsort((key[chosen], lane[chosen]))]
        firsts: list[int] = order[np.diff(lane[order], prepend=-1) != 0].tolist()
        return firsts

    return first_of_lanes(window.openers, start), first_of_lanes(window.members, -end)


def _window_tasks(
    windows: Sequence[RankWindow], edges: Sequence[tuple[list[int], list[int]]], own_tasks: RankTasks
) -> list[dict[str, Any]]:
    """The rank's windows in terms of its tasks' ids.

    A window begins `before_ns` after the dependencies of the first of `begin` have ended (a collective's own
    arrival), and ends `behind_ns` after the last end of `end`, or where the next begins.
    """
    rows = []
    for window, (openers, members) in zip(windows, edges, strict=True):
        begin = {_task_of(own_tasks.first, node).id for node in openers}
        end = {_task_of(own_tasks.last, node).id for node in members}
        rows.append(
            {
                "step": window.step,
                "begin": sorted(begin),
                "before_ns": window.before,
                "end": sorted(end),
                "behind_ns": window.behind,
                "until_next": window.joined,
                "counts": not window.open,
            }
        )
    return rows


def _task_of(tasks: Mapping[int, Task], node: int) -> Task:
    """The task of a node; for an arrival, that of its transfer."""
    return tasks[node] if node in tasks else tasks[node + 1]


def _collective_calls(
    run: Run,
    replay: Replay,
    rank: int,
    first: int,
    groups: Mapping[str, int],
    simulated: bool,
    notes: Counter[str],
) -> dict[int, _Call]:
    """The rank's parts of collectives by their number in the graph, which continues from `first`."""
    transfers = replay.graph.transfers
    columns = ("in_bytes", "out_bytes", "src_rank", "dst_rank")
    calls = {}
    for call, row in enumerate(run.rank(rank).collectives().select(columns).to_pylist(), first):
        kind, group = transfers.kind[call], transfers.group[call]
        attributes: Attributes = {"comm_kind": kind or "unknown"}
        if transfers.is_split[call]:
            attributes["instance"] = int(transfers.instance[call])
        size = _sent_bytes(kind, row)
        missing = [*_missing_reasons(kind, group, row, groups)]
        if simulated:
            missing += _not_simulated(kind, size, bool(transfers.is_split[call]))
        if missing:
            notes[f"parts of collectives are compute nodes, which wait for no other rank: {missing[0]}"] += 1
            calls[call] = _Call(chakra.COMPUTE, attributes)
            continue
        assert kind is not None  # noqa: S101  (else something is missing)
        if size is not None:
            attributes["comm_size"] = size
        if kind in chakra.COLLECTIVES:
            attributes |= {"comm_type": chakra.COLLECTIVES[kind], "pg_name": str(groups[str(group)])}
            calls[call] = _Call(chakra.COLLECTIVE, attributes)
        else:
            tag = int(transfers.instance[call]) if transfers.is_split[call] else call
            attributes |= {"comm_src": row["src_rank"], "comm_dst": row["dst_rank"], "comm_tag": tag}
            calls[call] = _Call(chakra.SEND if kind == "send" else chakra.RECV, attributes)
    return calls


def _sent_bytes(kind: str | None, row: Mapping[str, Any]) -> int | None:
    """Bytes that the rank, or the sender of a receive, passes in; None if unknown."""
    in_bytes, out_bytes = row["in_bytes"], row["out_bytes"]
    same = kind in ("all_reduce", "broadcast", "all_to_all", "recv")
    size: int | None = out_bytes if same and not in_bytes else in_bytes
    return size


def _missing_reasons(
    kind: str | None, group: str | None, row: Mapping[str, Any], groups: Mapping[str, int]
) -> Iterator[str]:
    """Why a part of a collective cannot be a Chakra communication node."""
    if kind in ("send", "recv"):
        if row["src_rank"] is None or row["dst_rank"] is None:
            yield f"the trace does not state the peer of a {kind}"
    elif kind not in chakra.COLLECTIVES:
        yield f"Chakra has no {kind}" if kind else "the trace does not state what they do"
    elif group not in groups:
        yield "the trace does not state the process group"


def _not_simulated(kind: str | None, size: int | None, is_matched: bool) -> Iterator[str]:
    """Why ASTRA-sim cannot simulate a communication."""
    if not is_matched:
        yield "they are not matched across ranks"
    if kind not in SIMULATED:
        yield f"ASTRA-sim simulates no {kind}"
    if not size:
        yield "the trace does not state their bytes"


def _communications(nodes: n.Nodes, rank: int, calls: Mapping[int, _Call]) -> dict[int, bool]:
    """The rank's communications by transfer, and whether they run one at a time, as all but receives do."""
    transfers = np.flatnonzero((nodes.rank == rank) & (nodes.kind == n.TRANSFER))
    kinds = {
        at: calls[call].kind
        for at, call in zip(transfers.tolist(), nodes.call[transfers].tolist(), strict=True)
    }
    return {at: kind != chakra.RECV for at, kind in kinds.items() if kind != chakra.COMPUTE}


def _write_rank(
    path: Path, metadata: Attributes, own_tasks: RankTasks, replay: Replay, calls: Mapping[int, _Call]
) -> None:
    nodes, graph = replay.graph.nodes, replay.graph
    with path.open("wb") as file:
        chakra.write_metadata(file, metadata)
        for task in own_tasks.tasks:
            at, kind, name = task.node, chakra.COMPUTE, task.role
            attributes: Attributes = {"is_cpu_op": task.role in BY_CPU, "role": task.role}
            if at >= 0:
                if nodes.step[at] >= 0:
                    attributes["step"] = int(nodes.step[at])
                if nodes.category[at] >= 0:
                    attributes["category"] = graph.categories[nodes.category[at]] or "other"
                if nodes.name[at] >= 0:
                    name = graph.names[nodes.name[at]]
                call = calls.get(int(nodes.call[at])) if nodes.kind[at] == n.TRANSFER else None
                if call is not None and task.role != REST:
                    kind, attributes = call.kind, attributes | call.says
            after, behind = ([each.id for each in tasks] for tasks in (task.after, task.behind))
            times = (task.start, task.start if task.alone is None else task.alone, task.end)
            chakra.write_node(file, task.id, name, kind, after, behind, times, attributes)


def _readme_text(run: Run, form: Format, graph: Graph, folder: ExportedFolder, beside: MachineFiles) -> str:
    """The README of the folder."""
    roles = ", ".join(f"{number:,} {role}" for role, number in folder.tasks.items())
    lines = [
        f"Run {run.id}, written by cclbench {__version__} (cclbench export --to {form}).",
        "",
        f"{PREFIX}.<rank>.et  Chakra execution traces, one a rank: {roles}",
        f"{GROUPS}  process groups: the pg_name of nodes, and its ranks",
        "",
        f"Measured: {_MEASURED}.",
        f"Derived: {_DERIVED}.",
        f"Times: {_TIMES}.",
        f"A step: {', '.join(f'{ns / 1e6:,.3f} ms {how}' for how, ns in folder.steps_ns.items())}.",
        *(f"Traced: {number:,} {what}." for what, number in sorted((+graph.traced).items())),
        *(f"Inferred from times: {number:,} {what}." for what, number in sorted((+graph.inferred).items())),
        *(f"Note: {note}." for note in folder.notes),
        "",
        *beside.words,
    ]
    return "\n".join(lines).strip() + "\n"
