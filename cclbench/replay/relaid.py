# SPDX-License-Identifier: Apache-2.0
"""A scenario of another layout on a graph: what its settings do together, and what that adds to a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cclbench.intervals import Int64, Mask
from cclbench.replay import nodes as n
from cclbench.replay.change import Added, Effect
from cclbench.replay.crowd import Delays, delays
from cclbench.replay.graph import Graph
from cclbench.replay.layout import Dimension, Relayout
from cclbench.replay.pricing import Float, Ratios
from cclbench.replay.regroup import Regrouped, regrouped
from cclbench.replay.windows import Pace

STAGE = ("tp", "cp", "ep")
"""Dimensions whose transfers are part of what a stage does with a micro-batch."""


def scaled(found: Ratios, effects: Sequence[Effect]) -> Ratios:
    """Ratios with those of the settings, and what they rest on."""
    for scale in (effect.scale for effect in effects):
        if scale is not None:
            found = replace(
                found,
                expected=found.expected * scale.expected,
                low=found.low * scale.low,
                high=found.high * scale.high,
            )
    return replace(found, basis=(*(note for effect in effects for note in effect.notes), *found.basis))


@dataclass(frozen=True, slots=True, eq=False)
class Relaid:
    """The effects of settings of the layout, one on top of the other."""

    change: Relayout
    groups: Mapping[str, tuple[int, ...]]
    dimensions: Mapping[str, Dimension]
    effects: tuple[Effect, ...] = ()

    def regrouped(self) -> dict[str | None, Regrouped]:
        """What becomes of groups."""
        payload: dict[Dimension | None, float] = {}
        repeats: dict[Dimension | None, float] = {}
        for effect in self.effects:
            for total, own in ((payload, effect.payload), (repeats, effect.repeats)):
                for dimension, factor in own.items():
                    total[dimension] = total.get(dimension, 1.0) * factor
        return regrouped(self.groups, self.dimensions, self.change, payload, repeats)

    @property
    def added(self) -> tuple[Added, ...]:
        """Communication that is not in the graph."""
        return tuple(one for effect in self.effects for one in effect.added)

    @property
    def fill(self) -> float:
        """Share of a stage's work by which filling and draining its pipeline takes longer."""
        return sum(effect.fill for effect in self.effects)

    def addition(self, which: str, graph: Graph, ratio: Float, pace: Pace, since: Int64) -> float:
        """What is added to a step, ns: `low`, `expected` or `high`."""
        total = sum(getattr(one.time, which) or 0.0 for one in self.added)
        if self.fill:
            total += self.fill * self._stage(graph, ratio, pace, since)
        hops = sum(effect.hops for effect in self.effects)
        return total + (hops * self._hop(graph, ratio, since) if hops else 0.0)

    def _hop(self, graph: Graph, ratio: Float, since: Int64) -> float:
        """What a transfer between stages takes, the mean, ns."""
        nodes = graph.nodes
        between = [self.dimensions.get(group or "") == "pp" for group in graph.transfers.group]
        hop = (nodes.kind == n.TRANSFER) & np.array([*between, False], np.bool_)[nodes.call] & (since >= 0)
        return float((nodes.dur * ratio)[hop].mean()) if hop.any() else 0.0

    def _stage(self, graph: Graph, ratio: Float, pace: Pace, since: Int64) -> float:
        """What the busiest stage does in a step, but for its optimizer, its gradients and waiting, ns."""
        nodes = graph.nodes
        of_group = {group: self.dimensions.get(group or "") in STAGE for group in graph.transfers.group}
        inner = np.array([*(of_group[group] for group in graph.transfers.group), False], np.bool_)
        optimizer = [i for i, name in enumerate(graph.categories) if name == "optimizer"]
        works = (nodes.kind == n.COMPUTE) & ~np.isin(nodes.category, optimizer)
        works |= (nodes.kind == n.TRANSFER) & inner[nodes.call]
        taken = np.where(works & (since >= 0), nodes.dur, 0) + np.where(since >= 0, nodes.busy, 0)
        return max(
            float((taken * ratio)[nodes.rank == rank].sum()) / count
            for rank, (count, _, _) in pace.ranks.items()
        )

    def delays(self, graph: Graph, start: Int64, inside: Mask) -> Delays:
        """By how much longer meetings of groups that grow wait."""
        layouts = self.change.old, self.change.new
        return delays(graph, start, inside, self.regrouped(), self.groups, layouts)

    def said(self, graph: Graph, since: Int64, window_ns: int) -> tuple[str, ...]:
        """Which transfers are priced in other groups, with their share of the windows."""
        nodes, calls = graph.nodes, graph.transfers
        shares: dict[tuple[str, str, int, int], int] = {}
        found = self.regrouped()
        at = np.flatnonzero((nodes.kind == n.TRANSFER) & (since >= 0))
        words = list(zip(calls.kind, calls.group, strict=True))
        number = {word: i for i, word in enumerate(dict.fromkeys(words))}
        of_call = np.array([number[word] for word in words], np.int64)
        taken = np.bincount(of_call[nodes.call[at]], nodes.dur[at], len(number))
        stays = sum(
            taken[i]
            for (_, group), i in number.items()
            if group not in found
            and len(self.groups.get(group or "", (0, 1))) > 1
            and group not in self.dimensions
        )
        for (kind, group), i in number.items():
            one = found.get(group)
            if one is None or not one.members or not taken[i]:
                continue
            size = len(self.groups.get(group or "", ()))
            key = (kind or "collective", one.dimension or "all ranks", size, len(one.members))
            shares[key] = shares.get(key, 0) + int(taken[i])
        share = stays / max(window_ns, 1)
        kept = f"collectives of groups of no known dimension, {share:.1%} of the step: as measured"
        return (
            *([kept] if stays else []),
            *(
                f"{kind} of {name}, {ns / max(window_ns, 1):.1%} of the step: priced among {new:,} ranks in"
                f" place of {old:,}"
                for (kind, name, old, new), ns in shares.items()
            ),
        )
