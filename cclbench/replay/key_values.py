# SPDX-License-Identifier: Apache-2.0
"""What ranks exchange that have parts of the same sequences: keys and values (context parallelism).

Queries of a rank's tokens need the keys and values of all earlier ones. They come by a ring of sends, each
hidden behind the attention of the part before it (Liu et al. 2023), or by an all-gather before attention
(Grattafiori et al. 2024, section 3.3.2). In backward they come again, and their gradients are scattered.
"""

from __future__ import annotations

from cclbench.card import Card
from cclbench.replay.change import CollectivePrice, TimeBounds
from cclbench.replay.rescale import card_sizes


def key_value_elements(card: Card | None) -> float:
    """Elements of a token's keys and values in a layer: heads of keys times the sum of both head sizes.

    Without numbers of heads in the card 2 · hidden, as if each query had a key of its own: the upper bound.
    """
    hidden = card_sizes(card, "the exchange of keys and values", "model.hidden")["model.hidden"]
    model = card.workload.model if card else None
    if model is None or model.heads is None:
        return 2 * hidden
    head = model.head_dim or hidden / model.heads
    return (model.kv_heads or model.heads) * ((model.query_key_dim or head) + (model.value_dim or head))


def key_value_exchange(price: CollectivePrice, ranks: tuple[int, ...], nbytes: float) -> TimeBounds:
    """Time of the exchange in a layer of training for a micro-batch, forward and backward, from hidden in
    attention to all-gathers before it.

    `nbytes`: of keys and values of whole sequences. A ring moves as many bytes as the all-gather.
    """
    gathers = price("all_gather", ranks, nbytes).times_count(2)
    exposed = TimeBounds.total([gathers, price("reduce_scatter", ranks, nbytes)])
    return exposed._replace(low=0.0, expected=None)
