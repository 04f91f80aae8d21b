# SPDX-License-Identifier: Apache-2.0
"""`ranks.remove=3`, `ranks.replace=3:8`: a failed rank removed, or replaced by a spare elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import numpy as np

from cclbench.ground.errors import UsageError
from cclbench.ground.text import first_few
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject, LayoutEffect, change
from cclbench.replay.changes.data_parallel import replicas
from cclbench.replay.graph import Graph
from cclbench.replay.rescale import layout_change
from cclbench.replay.simulate import cut_pieces

_SHOWN: Final = 8


def _ranks(text: str, value: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d{1,9}(?:\+\d{1,9})*", value):
        raise UsageError(f"{text}: {value!r} is not a rank", hint="such as 3, or 3+11")
    return tuple(sorted({int(rank) for rank in value.split("+")}))


def _places(text: str, value: str) -> tuple[tuple[int, int], ...]:
    if not re.fullmatch(r"\d{1,9}:\d{1,9}(?:\+\d{1,9}:\d{1,9})*", value):
        raise UsageError(f"{text}: {value!r} is not RANK:PLACE", hint="such as 3:8, or 3:8+11:9")
    pairs = [tuple(map(int, pair.split(":"))) for pair in value.split("+")]
    if len({rank for rank, _ in pairs}) < len(pairs) or len({place for _, place in pairs}) < len(pairs):
        raise UsageError(f"{text}: a rank has one place, and a place one rank")
    return tuple((rank, place) for rank, place in pairs)


@change(
    "ranks.remove",
    values="3, 3+11",
    definition="these ranks are removed, each with its whole replica, which cannot continue without it; the"
    " others continue in smaller groups; see batch= for its samples",
    read=_ranks,
)
def remove(subject: ChangeSubject, _: tuple[int, ...]) -> LayoutEffect | str:
    """No rank waits for removed ones, which are in no step."""
    layouts = layout_change(subject)
    effect = replicas(subject, None)
    assert isinstance(effect, LayoutEffect)  # noqa: S101 - a replica is gone
    lost = first_few([str(rank) for rank in sorted(layouts.removed)], _SHOWN)
    note = f"rank {lost} removed: {layouts.old.degrees['dp']} replicas become {layouts.new.degrees['dp']}"
    if not layouts.fixed_batch:
        remaining = layouts.degree_growth("dp")
        note += f"; each replica's batch stays, so a step has {remaining:.3g} of the samples (batch=rank)"
    # the notes on the number of replicas and the batch are replaced
    other_notes = effect.notes[1 if layouts.fixed_batch else 2 :]
    return replace(effect, graph=_without(subject.graph, layouts.removed), notes=(note, *other_notes))


def _without(graph: Graph, removed: frozenset[int]) -> Graph:
    """The graph in which no other rank, and no rendezvous, waits for the removed ranks."""
    nodes, cut = graph.nodes, graph.cut
    is_removed = np.isin(nodes.rank, [*removed])
    is_wait = ~cut.in_lane
    source, target, lag = cut.source[is_wait], cut.head[cut.target[is_wait]], cut.lag[is_wait]
    keep = ~is_removed[source] | is_removed[target]
    return replace(
        graph,
        cut=cut_pieces(nodes, source[keep], target[keep], lag[keep]),
        windowed=tuple(rank for rank in graph.windowed if rank.rank not in removed),
    )


@change(
    "ranks.replace",
    values="3:8",
    definition="a spare at another place does the work of that rank at the same speed; places are devices"
    " counted node by node, those of the job being its ranks",
    read=_places,
)
def spare(subject: ChangeSubject, pairs: tuple[tuple[int, int], ...]) -> LayoutEffect | str:
    """Only groups change: the rank's collectives reach the spare's node."""
    spares = first_few([f"rank {rank} at place {place}" for rank, place in pairs], _SHOWN)
    speed = "a spare at another place computes as fast as the rank that it replaces"
    if not (subject.graph.nodes.kind == n.TRANSFER).any():
        return "the run has no collectives"
    return LayoutEffect(subject.graph, notes=(f"{spares}: {speed} (rank[N].kernels.time changes that)",))
