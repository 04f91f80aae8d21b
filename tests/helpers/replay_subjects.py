# SPDX-License-Identifier: Apache-2.0
"""What changes act on, made by hand: a graph, a card, a layout before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from cclbench.card import Card
from cclbench.card.model import card_of
from cclbench.machine import Machine
from cclbench.record.facts import TraceFacts
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject, TimeBounds
from cclbench.replay.graph import Graph, build_graph
from cclbench.replay.kernel_costs import NodeCosts
from cclbench.replay.layout import DIMENSIONS, Layout, Relayout, target_relayout
from helpers.hand_made import Tables
from helpers.replay_rows import item, rank

Told = Mapping[str, Any]


def degrees(*, nested: bool = False, **sizes: int) -> Layout:
    return Layout({name: sizes.get(name, 1) for name in DIMENSIONS}, nested)


def card(
    model: Told | None = None, batch: Told | None = None, precision: str | None = "bf16", **parallelism: int
) -> Card:
    workload = {"phase": "training", "model": model or {}, "batch": batch or {}, "precision": precision}
    stated = {"version": 2, "id": "c", "description": "d", "workload": workload, "parallelism": parallelism}
    return card_of(stated, Path())


def price(kind: str, ranks: tuple[int, ...], nbytes: float) -> TimeBounds:
    """Of n ranks from 0 on n µs a MB, of a send three times that; a half and twice that at the bounds."""
    ns = 1_000 * len(ranks) * nbytes / 1e6 * (3 if kind == "send_recv" else 1) * (1 + ranks[0])
    return TimeBounds(ns / 2, ns, ns * 2)


def a_run(of_card: Card | None = None, events: Sequence[Told] = (), operators: Sequence[Told] = ()) -> Any:
    """A run with those rows on each rank, whose clock is the common one."""
    record = SimpleNamespace(clocks=SimpleNamespace(ranks=[], reference_ns=0), ranks=[])
    told = {"rank": lambda _: Tables(events, (), (), TraceFacts(), operators=operators), "record": record}
    return SimpleNamespace(id="a run", card=of_card, ranks=[0], **told)


def subject(
    graph: Graph,
    *,
    machine: Machine | None = None,
    groups: Mapping[str, tuple[int, ...]] | None = None,
    since: Sequence[int] | None = None,
    old: Layout | None = None,
    settings: Told | None = None,
    dimensions: Told | None = None,
    of_card: Card | None = None,
    window_ns: int = 1_000_000,
    costs: NodeCosts | None = None,
    run: Any = None,
) -> ChangeSubject:
    """All nodes are in a window that began long before, unless `since` says otherwise."""
    wanted: Relayout | None = None if old is None else target_relayout(old, settings or {})
    count = len(graph.nodes)
    given: dict[str, Any] = {"graph": graph, "placed": {}, "run": run or a_run(of_card), "price": price}
    given |= {"machine": machine or Machine(), "groups": groups or {}, "relayout": wanted}
    given |= {"dimensions": dimensions or {}, "settings": settings or {}, "window_ns": window_ns}
    given |= {"costs": SimpleNamespace(costs=costs), "step": np.zeros(count, np.int64)}
    return ChangeSubject(since=np.array([1 << 40] * count if since is None else since, np.int64), **given)


def changed(found: Any) -> Graph:
    assert isinstance(found, Graph), found
    return found


def reduced(*calls: tuple[float, float, int, int], late: float = 0) -> Graph:
    """All-reduces of two ranks, (begin, end, bytes, step), one behind the other on one stream."""
    made = []
    for r in (0, 1):
        work = [
            item("nccl", at + (late if r else 0), end, lane=(0, 9), call=i, step=step)
            for i, (at, end, _, step) in enumerate(calls)
        ]
        sizes = [size for *_, size, _ in calls]
        made.append(rank(r, work=work, instances=[*range(len(calls))], nbytes=sizes, windows=[(0, 0, 900)]))
    return build_graph(made)


def transfers_of(graph: Graph, number: int = 0) -> np.ndarray:
    return np.flatnonzero((graph.nodes.kind == n.TRANSFER) & (graph.nodes.rank == number))


PAIR = {"0-1": (0, 1)}
