# SPDX-License-Identifier: Apache-2.0
"""A graph in another layout: joint effect of its settings, and what they add to a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cclbench.ground.intervals import Int64, Mask
from cclbench.replay import nodes as n
from cclbench.replay.change import AddedCommunication, LayoutEffect, PlacedTransfer
from cclbench.replay.crowd import Delays, crowd_delays, expected_maximum, maximum_limit
from cclbench.replay.graph import Graph
from cclbench.replay.layout import Dimension, Relayout
from cclbench.replay.placed import HOST_BOUND_SPREAD, SPREAD, Case, RankSpread, graph_with_transfers
from cclbench.replay.pricing import Float, TimeRatios
from cclbench.replay.regroup import RegroupedGroup, regroup_all
from cclbench.replay.windows import StepPace

STAGE = ("tp", "cp", "ep")
"""Dimensions whose transfers are part of a stage's work on a micro-batch."""


def scale_ratios(ratios: TimeRatios, effects: Sequence[LayoutEffect]) -> TimeRatios:
    """The ratios times those of the settings, with their basis."""
    for scale in (effect.scale for effect in effects):
        if scale is not None:
            ratios = replace(
                ratios,
                expected=ratios.expected * scale.expected,
                low=ratios.low * scale.low,
                high=ratios.high * scale.high,
            )
    return replace(ratios, basis=(*(note for effect in effects for note in effect.notes), *ratios.basis))


@dataclass(frozen=True, slots=True, eq=False)
class RelaidGraph:
    """The joint effects of settings of the layout."""

    change: Relayout
    groups: Mapping[str, tuple[int, ...]]
    dimensions: Mapping[str, Dimension]
    effects: tuple[LayoutEffect, ...] = ()
    host_bound: bool = False
    """Whether the host bounds the traced step."""

    def regrouped_groups(self) -> dict[str | None, RegroupedGroup]:
        """The groups that change."""
        payload: dict[Dimension | None, float] = {}
        repeats: dict[Dimension | None, float] = {}
        for effect in self.effects:
            for total, factors in ((payload, effect.payload), (repeats, effect.repeats)):
                for dimension, factor in factors.items():
                    total[dimension] = total.get(dimension, 1.0) * factor
        return regroup_all(self.groups, self.dimensions, self.change, payload, repeats)

    @property
    def added_communication(self) -> tuple[AddedCommunication, ...]:
        """Communication that is not in the graph."""
        return tuple(communication for effect in self.effects for communication in effect.added)

    @property
    def pipeline_fill_share(self) -> float:
        """Extra time of filling and draining the pipeline, as a share of a stage's work."""
        return sum(effect.fill for effect in self.effects)

    @property
    def placed_transfers(self) -> tuple[PlacedTransfer, ...]:
        """Added transfers with places in the graph, by rank."""
        placed = [transfer for communication in self.added_communication for transfer in communication.placed]
        return tuple(sorted(placed, key=lambda transfer: transfer.rank))

    def place_transfers(self, graph: Graph, case: Case) -> Graph:
        """The graph with the added transfers that have a place."""
        return graph_with_transfers(graph, self.placed_transfers, case) if self.placed_transfers else graph

    @property
    def slowest_rank_shares(self) -> RankSpread:
        """By how much of a step the slowest rank is later, where ranks communicate that did not before.

        The slowest of N ranks is expected s · d(N) behind the traced one (`crowd.expected_maximum`), and sets
        the pace of all; the upper bound is its 90 % limit (`crowd.maximum_limit`), since the same rank may be
        slow in all steps. What one rank cannot show, s, is that of other jobs (`placed.SPREAD`), with a wider
        bound where the host bounds the step.
        """
        count = self.change.new.world_size // self.change.old.world_size if self.added_communication else 1
        late, latest = (expected_maximum(count), maximum_limit(count)) if count > 1 else (0.0, 0.0)
        spread = HOST_BOUND_SPREAD if self.host_bound else SPREAD
        return RankSpread(spread.low * late, spread.expected * late, spread.high * latest)

    @property
    def spread_notes(self) -> tuple[str, ...]:
        """What is assumed of the slowest rank."""
        share = self.slowest_rank_shares
        if not share.high:
            return ()
        return (
            f"the traces do not show how ranks differ: the slowest is assumed {share.expected:.1%} behind"
            f" ({share.low:.0%} to {share.high:.1%}), by the spread in jobs with traces of several ranks"
            + (" where the host bounds the step" if self.host_bound else ""),
        )

    def added_step_ns(self, case: Case, graph: Graph, ratio: Float, pace: StepPace, since: Int64) -> float:
        """Time added to a step, ns: of transfers without a place, and of filling the pipeline."""
        fill = self.pipeline_fill_share
        total = sum(
            (getattr(communication.time, case) or 0.0) * (1 + fill * communication.in_stage)
            for communication in self.added_communication
            if not communication.placed
        )
        if fill:
            total += fill * self._busiest_stage_ns(graph, ratio, pace, since)
        hops = sum(effect.hops for effect in self.effects)
        return total + (hops * self._stage_hop_ns(graph, ratio, since) if hops else 0.0)

    def _stage_hop_ns(self, graph: Graph, ratio: Float, since: Int64) -> float:
        """Mean time of a transfer between stages, ns."""
        nodes = graph.nodes
        between = [self.dimensions.get(group or "") == "pp" for group in graph.transfers.group]
        hop = (nodes.kind == n.TRANSFER) & np.array([*between, False], np.bool_)[nodes.call] & (since >= 0)
        return float((nodes.dur * ratio)[hop].mean()) if hop.any() else 0.0

    def _busiest_stage_ns(self, graph: Graph, ratio: Float, pace: StepPace, since: Int64) -> float:
        """Time of the busiest stage in a step, without optimizer, gradients and waiting, ns."""
        nodes = graph.nodes
        of_group = {group: self.dimensions.get(group or "") in STAGE for group in graph.transfers.group}
        inner = np.array([*(of_group[group] for group in graph.transfers.group), False], np.bool_)
        optimizer = [i for i, name in enumerate(graph.categories) if name == "optimizer"]
        works = (nodes.kind == n.COMPUTE) & ~np.isin(nodes.category, optimizer)
        works |= (nodes.kind == n.TRANSFER) & inner[nodes.call]
        node_ns = np.where(works & (since >= 0), nodes.dur, 0) + np.where(since >= 0, nodes.busy, 0)
        return max(
            float((node_ns * ratio)[nodes.rank == rank].sum()) / count
            for rank, (count, _, _) in pace.ranks.items()
        )

    def meeting_delays(self, graph: Graph, start: Int64, inside: Mask) -> Delays:
        """Extra waits of groups that grow."""
        layouts = self.change.old, self.change.new
        return crowd_delays(graph, start, inside, self.regrouped_groups(), self.groups, layouts)

    def priced_notes(self, graph: Graph, since: Int64, window_ns: int) -> tuple[str, ...]:
        """Notes on transfers modelled in other groups, with their share of the windows."""
        nodes, calls = graph.nodes, graph.transfers
        shares: dict[tuple[str, str, int, int], int] = {}
        regrouped = self.regrouped_groups()
        at = np.flatnonzero((nodes.kind == n.TRANSFER) & (since >= 0))
        words = list(zip(calls.kind, calls.group, strict=True))
        code_of = {word: i for i, word in enumerate(dict.fromkeys(words))}
        of_call = np.array([code_of[word] for word in words], np.int64)
        label_ns = np.bincount(of_call[nodes.call[at]], nodes.dur[at], len(code_of))
        stays = sum(
            label_ns[i]
            for (_, group), i in code_of.items()
            if group not in regrouped
            and len(self.groups.get(group or "", (0, 1))) > 1
            and group not in self.dimensions
        )
        for (kind, group), i in code_of.items():
            new_group = regrouped.get(group)
            if new_group is None or not new_group.members or not label_ns[i]:
                continue
            size = len(self.groups.get(group or "", ()))
            key = (kind or "collective", new_group.dimension or "all ranks", size, len(new_group.members))
            shares[key] = shares.get(key, 0) + int(label_ns[i])
        share = stays / max(window_ns, 1)
        unchanged_note = f"collectives of groups of unknown dimension, {share:.1%} of the step: as measured"
        return (
            *([unchanged_note] if stays else []),
            *(
                f"{kind} of {name}, {ns / max(window_ns, 1):.1%} of the step: modelled among {new:,} ranks in"
                f" place of {old:,}"
                for (kind, name, old, new), ns in shares.items()
            ),
        )
