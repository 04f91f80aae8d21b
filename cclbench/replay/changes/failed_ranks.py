# SPDX-License-Identifier: Apache-2.0
"""`ranks.remove=3`, `ranks.replace=3:8`: a failed rank taken out, or a spare elsewhere in its place."""

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
from cclbench.replay.rescale import asked_layouts
from cclbench.replay.simulate import cut_pieces

_SHOWN: Final = 8


def _ranks(text: str, value: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d{1,9}(?:\+\d{1,9})*", value):
        raise UsageError(f"{text}: {value!r} is no rank", hint="such as 3, or 3+11")
    return tuple(sorted({int(rank) for rank in value.split("+")}))


def _places(text: str, value: str) -> tuple[tuple[int, int], ...]:
    if not re.fullmatch(r"\d{1,9}:\d{1,9}(?:\+\d{1,9}:\d{1,9})*", value):
        raise UsageError(f"{text}: {value!r} is no RANK:PLACE", hint="such as 3:8, or 3:8+11:9")
    pairs = [tuple(map(int, pair.split(":"))) for pair in value.split("+")]
    if len({rank for rank, _ in pairs}) < len(pairs) or len({place for _, place in pairs}) < len(pairs):
        raise UsageError(f"{text}: a rank has one place, and a place one rank")
    return tuple((rank, place) for rank, place in pairs)


@change(
    "ranks.remove",
    values="3, 3+11",
    definition="those ranks are taken out, and with each all of its replica, which cannot go on without"
    " it; others go on in smaller groups; batch= says what becomes of its samples",
    read=_ranks,
)
def remove(subject: ChangeSubject, _: tuple[int, ...]) -> LayoutEffect | str:
    """Nobody waits for what is taken out, and it is in no step."""
    wanted = asked_layouts(subject)
    effect = replicas(subject, None)
    assert isinstance(effect, LayoutEffect)  # noqa: S101 - a replica is gone
    lost = first_few([str(rank) for rank in sorted(wanted.removed)], _SHOWN)
    said = f"rank {lost} taken out: {wanted.old.degrees['dp']} replicas become {wanted.new.degrees['dp']}"
    if not wanted.fixed_batch:
        kept = wanted.degree_growth("dp")
        said += f"; each replica's batch stays, so that a step has {kept:.3g} of the samples (batch=rank)"
    # what replicas say of their number and of the batch is said already
    other = effect.notes[1 if wanted.fixed_batch else 2 :]
    return replace(effect, graph=_without(subject.graph, wanted.removed), notes=(said, *other))


def _without(graph: Graph, removed: frozenset[int]) -> Graph:
    """The graph in which no other rank, and no meeting, waits for those."""
    nodes, cut = graph.nodes, graph.cut
    gone = np.isin(nodes.rank, [*removed])
    known = ~cut.own
    source, target, lag = cut.source[known], cut.head[cut.target[known]], cut.lag[known]
    kept = ~gone[source] | gone[target]
    return replace(
        graph,
        cut=cut_pieces(nodes, source[kept], target[kept], lag[kept]),
        windowed=tuple(rank for rank in graph.windowed if rank.rank not in removed),
    )


@change(
    "ranks.replace",
    values="3:8",
    definition="a spare at another place does what that rank does, as fast; places are devices counted"
    " node by node, those of the job being its ranks",
    read=_places,
)
def spare(subject: ChangeSubject, pairs: tuple[tuple[int, int], ...]) -> LayoutEffect | str:
    """Groups alone change: all that the rank takes part in reaches the spare's node."""
    said = first_few([f"rank {rank} at place {place}" for rank, place in pairs], _SHOWN)
    alone = "a spare at another place computes as fast as the rank that it replaces"
    if not (subject.graph.nodes.kind == n.TRANSFER).any():
        return "the run has no collectives"
    return LayoutEffect(subject.graph, notes=(f"{said}: {alone} (rank[N].kernels.time changes that)",))
