# SPDX-License-Identifier: Apache-2.0
"""Work of pipeline stages by layers and head, and what a schedule makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cclbench.card import Card
from cclbench.replay.rescale import card_sizes, missing_sizes
from cclbench.replay.schedules import Float64, PartTimes, Schedule, schedule_orders, simulate_schedule

_BACKWARD: Final = 2 / 3
"""Share of a layer's work in backward: two products for each of forward."""
HEAVY_HEAD: Final = 2.0
"""Work of the head, with a loss in 32 bits, over that by its FLOPs: the upper bound."""
_SHORT: Final = 1e-6
"""Time of a send relative to a part's that no imbalance hides."""
_HEAD_FIELDS: Final = ("model.vocabulary", "model.hidden", "batch.sequence_length")


def head_layers(card: Card | None) -> float | None:
    """Work of the output projection in layers, V / (12 h + 2 s); None where the card lacks a size.

    By products of matrices: 2 h V FLOPs of a token and 24 h² + 4 s h of a layer (Narayanan et al. 2021,
    appendix), so a layer with an MLP of 4 h is assumed.
    """
    if missing_sizes(card, *_HEAD_FIELDS):
        return None
    vocabulary, hidden, length = card_sizes(card, "the head", *_HEAD_FIELDS).values()
    return vocabulary / (12 * hidden + 2 * length)


@dataclass(frozen=True, slots=True)
class LayerPipeline:
    """Stages, micro-batches and schedule; `turns`: parts of each stage; `layers`: of the whole model."""

    stages: int
    microbatches: int
    layers: int
    turns: int = 1
    schedule: Schedule = "1f1b"

    def part_layers(self, head: float | Float64 = 0.0) -> Float64:
        """Work of each part in layers; the last has the head.

        Layers that cannot be split evenly are one more on each of the first parts, so that the last one, with
        the head, has the fewest. `head`: in layers, of one case or several; shape (parts, cases).
        """
        heads = np.atleast_1d(np.asarray(head, np.float64))
        parts = self.stages * self.turns
        each, extra = divmod(self.layers, parts)
        work = np.repeat(each + (np.arange(parts) < extra)[:, None], len(heads), axis=1).astype(np.float64)
        work[-1] += heads
        return work

    def stage_layers(self, head: float) -> Float64:
        """Work of each stage in layers, shape (stages,)."""
        return np.asarray(self.part_layers(head).reshape(self.turns, self.stages).sum(axis=0))

    def span(self, part: Float64, transfer: float | Float64 = 0.0) -> Float64:
        """Time from the first operation of a step to the last, shape (cases,).

        `part`: time of forward and backward of a micro-batch on each part, shape (parts, cases); `transfer`:
        of a send between stages. Weights have half of backward where the schedule separates them.
        """
        times = PartTimes(
            forward=part[:, None] * (1 - _BACKWARD),
            backward=part[:, None] * _BACKWARD,
            transfer=np.atleast_1d(np.asarray(transfer, np.float64)),
        )
        if self.schedule == "zero_bubble":
            half = times.backward / 2
            times = times._replace(backward=half, weights=half)
        orders = schedule_orders(self.schedule, self.stages, self.microbatches, self.turns)
        return np.asarray(simulate_schedule(orders, times).max(axis=0))

    def fill_share(self, head: float) -> float:
        """Time of filling and draining, as a share of the busiest stage's work in a step."""
        busiest = float(self.stage_layers(head).max()) * self.microbatches
        return float(self.span(self.part_layers(head))[0]) / busiest - 1

    def exposed_sends(self, head: float) -> float:
        """Number of sends that lengthen a step, each being short: those on its critical path."""
        part = np.repeat(self.part_layers(head), 2, axis=1)
        short = self.layers * _SHORT
        without, extra = self.span(part, np.array([0.0, short]))
        return float((extra - without) / short)
