# SPDX-License-Identifier: Apache-2.0
"""Ranks made by hand, in µs, and the step that their replay takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.simulate import NodeTimes, simulate_nodes
from cclbench.replay.tables import UNSTATED, GraphInput, RankCollectives, RankRows, StatedSyncs

US = 1_000
DEVICE, HOST = (0, 7), (-1, 1)
Item = dict[str, Any]
Lane = tuple[int, int]


def item(name: str, start: float, end: float, corr: int = -1, lane: Lane | None = None, **more: Any) -> Item:
    """A row: `corr`elation, `lane` (device, track), `call` (row of the rank's collectives), `step`."""
    told = {"name": name, "start": start, "end": end, "corr": corr, **more}
    return told | {"lane": lane} if lane else told


def launch(at: float, corr: int, name: str = "cudaLaunchKernel", lane: Lane = HOST, took: float = 2) -> Item:
    return item(name, at, at + took, corr, lane)


def kernel(start: float, end: float, corr: int = -1, lane: Lane = DEVICE, **more: Any) -> Item:
    return item(more.pop("name", "gemm"), start, end, corr, lane, **more)


def rows(items: Sequence[Item], lane: Lane = HOST) -> RankRows:
    """Rows in order of start, times in µs."""
    items = sorted(items, key=lambda i: (i["start"], -i["end"]))
    names = sorted({i["name"] for i in items})
    categories = sorted({i.get("category", "other") for i in items})
    lanes = sorted({i.get("lane", lane) for i in items})

    def column(key: str, default: Any = -1, kind: Any = np.int64) -> Any:
        return np.array([i.get(key, default) for i in items], kind)

    def place(of: list[Any], key: str, default: Any) -> Any:
        return np.array([of.index(i.get(key, default)) for i in items], np.int32)

    given: dict[str, Any] = {"lane": place(lanes, "lane", lane), "name": place(names, "name", None)}
    given["category"] = place(categories, "category", "other")
    given |= {key: np.array([round(i[key] * US) for i in items], np.int64) for key in ("start", "end")}
    given |= {"correlation": column("corr"), "step": column("step", 0), "row": column("call")}
    given |= {"blocks": column("blocks"), "copy": column("copy", False, np.bool_)}
    given["direction"] = column("direction", -1, np.int8)
    return RankRows(**given, names=tuple(names), categories=tuple(categories), lanes=tuple(lanes))


def rank(
    number: int,
    *,
    work: Sequence[Item] = (),
    launches: Sequence[Item] = (),
    syncs: Sequence[Item] = (),
    runtime: Sequence[Item] = (),
    ops: Sequence[Item] = (),
    notes: Sequence[Item] = (),
    instances: Sequence[int] = (),
    nbytes: Sequence[int] = (),
    size: int = 2,
    on_host: bool = False,
    windows: Sequence[tuple[int | None, float, float]] = (),
    policy: str = "device",
    marks: Sequence[Item] = (),
    processors: int | None = None,
    stated: StatedSyncs | None = None,
) -> GraphInput:
    """A rank; `instances` are those of its collectives, all all-reduces of group 0-(size−1)."""
    host = rows([*({**o, "op": True} for o in ops), *notes])
    annotation = np.array(
        [name in {i["name"] for i in notes} for name in (host.names[n] for n in host.name)], np.bool_
    )
    computing = np.array(["::" in host.names[n] and "c10d" not in host.names[n] for n in host.name], np.bool_)
    count = len(instances)
    called: dict[str, Any] = {"instance": np.array(instances, np.int64), "kind": ("all_reduce",) * count}
    called |= {"complete": np.array([i >= 0 for i in instances], np.bool_), "size": np.full(count, size)}
    called |= {"bytes": np.array(nbytes or [1024] * count, np.int64), "group": (f"0-{size - 1}",) * count}
    calls = RankCollectives(**called, may_leave=np.zeros(count, np.bool_))
    given: dict[str, Any] = {"rank": number, "on_host": on_host, "has_python": False, "policy": policy}
    given |= {"work": rows(work, DEVICE), "launches": rows(launches), "syncs": rows(syncs)}
    given |= {"runtime": rows(runtime), "marks": rows(marks, DEVICE), "host": host, "calls": calls}
    given |= {"computing": computing & ~annotation, "annotation": annotation, "processors": processors}
    made = tuple((step, round(begin * US), round(end * US)) for step, begin, end in windows)
    return GraphInput(**given, windows=made, stated=stated)


def alone(*work: Item, launches: Sequence[Item] = (), begin: float = 0, **more: Any) -> GraphInput:
    """Rank 0 with those rows, and a window of step 0 up to the end of the last."""
    end = max(one["end"] for one in work)
    return rank(0, work=work, launches=launches, **{"windows": [(0, begin, end)], **more})


def syncs(*told: tuple[int, float, int, int, int, float | None]) -> StatedSyncs:
    """What is stated: (what, when called, stream, call, the event's stream, when it was recorded)."""
    what, time, stream, call, of, recorded = zip(*told, strict=True)
    at = [UNSTATED if r is None else round(r * US) for r in recorded]
    columns = [[round(t * US) for t in time], what, [0] * len(told), stream, call, of, at]
    return StatedSyncs(*(np.array(column, np.int64) for column in columns))


def replayed(*ranks: GraphInput) -> tuple[Graph, NodeTimes]:
    graph = build_graph(ranks)
    return graph, simulate_nodes(graph.nodes, graph.cut)


def end_of(graph: Graph, times: NodeTimes, number: int) -> float:
    """When the rank's last node ends, µs."""
    return float(times.end[graph.nodes.rank == number].max() / US)


def with_durations(graph: Graph, dur: np.ndarray) -> NodeTimes:
    """The replay of nodes that take so long, ns."""
    return simulate_nodes(replace(graph.nodes, dur=dur), graph.cut)


def scaled(graph: Graph, kind: int, factor: float, number: int | None = None) -> NodeTimes:
    """The replay with nodes of a kind (of a rank) that take so many times as long."""
    nodes = graph.nodes
    chosen = (nodes.kind == kind) & ((nodes.rank == number) | (number is None))
    return with_durations(graph, np.where(chosen, np.rint(nodes.dur * factor), nodes.dur).astype(np.int64))


def lengthened(graph: Graph, longer: Mapping[int, float]) -> NodeTimes:
    """The replay with nodes that take so much longer, µs."""
    dur = graph.nodes.dur.copy()
    for node, more in longer.items():
        dur[node] += round(more * US)
    return with_durations(graph, dur)
