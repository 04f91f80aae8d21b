# SPDX-License-Identifier: Apache-2.0
"""Shared parts of layout settings: nodes that compute, and sizes from the card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from cclbench.card import Card
from cclbench.ground.errors import InputError
from cclbench.ground.intervals import Mask
from cclbench.replay import nodes as n
from cclbench.replay.change import ChangeSubject, Scale
from cclbench.replay.graph import Graph
from cclbench.replay.layout import Dimension, Relayout

ACTIVATIONS: Final[tuple[Dimension, ...]] = ("tp", "cp", "ep", "pp")
"""Dimensions that transfer activations, in proportion to tokens."""
SAME_LAYOUT: Final = "the run has that layout already"


def layout_change(subject: ChangeSubject) -> Relayout:
    """The layouts before and after a change."""
    assert subject.relayout is not None  # noqa: S101 - keys of layouts are its settings
    return subject.relayout


def compute_nodes(subject: ChangeSubject) -> Mask:
    """Nodes that compute, shape (nodes,): kernels, or gaps with operators on a CPU."""
    nodes = subject.graph.nodes
    return np.asarray((nodes.kind == n.COMPUTE) | (nodes.busy > 0))


def token_nodes(subject: ChangeSubject) -> tuple[Mask, str]:
    """Nodes whose work scales with tokens, shape (nodes,), and their name; on a CPU the optimizer's operators
    are included."""
    chosen = compute_nodes(subject)
    if subject.graph.nodes.busy.any():
        return chosen, "operators of the CPU, including the optimizer's,"
    return chosen & ~category_nodes(subject, "optimizer"), "kernels without the optimizer,"


def category_nodes(subject: ChangeSubject, *categories: str) -> Mask:
    """Mask of the kernels of these categories, shape (nodes,)."""
    nodes = subject.graph.nodes
    codes = [i for i, name in enumerate(subject.graph.categories) if name in categories]
    return np.asarray((nodes.kind == n.COMPUTE) & np.isin(nodes.category, codes))


def cuts_sequences(graph: Graph, dimensions: Mapping[str, Dimension]) -> bool:
    """Whether tensor-parallel groups gather and scatter, as with split sequences."""
    words = zip(graph.transfers.kind, graph.transfers.group, strict=True)
    return bool(
        {"all_gather", "reduce_scatter"} & {kind for kind, g in words if dimensions.get(g or "") == "tp"}
    )


def scale_nodes(chosen: Mask, factor: float) -> Scale:
    """A scale of the chosen nodes by a factor."""
    return Scale.by_factor(np.where(chosen, factor, 1.0))


def card_sizes(card: Card | None, what: str, *fields: str) -> dict[str, float]:
    """Numbers of the card by path (`model.hidden`); `InputError` with those that it lacks."""
    if lacking := missing_sizes(card, *fields):
        raise InputError(f"{what} cannot be sized", hint=f"state {', '.join(lacking)} in a card")
    return {field: float(_integer_field(card, field) or 0) for field in fields}


def missing_sizes(card: Card | None, *fields: str) -> list[str]:
    """Paths of the numbers that the card lacks."""
    return [_PLACES.get(field, f"workload.{field}") for field in fields if not _integer_field(card, field)]


_PLACES: Final = {"element": "workload.precision", "batch.global_": "workload.batch.global"}
_ELEMENTS: Final = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 2, "fp4": 2}
"""Bytes of an activation element by precision of matrix products (16 bits with fp8 and fp4)."""


def _integer_field(card: Card | None, field: str) -> float | None:
    if card is None:
        return None
    if field == "element":
        return _ELEMENTS.get(card.workload.precision or "")
    value: object = card.workload
    for name in field.split("."):
        value = getattr(value, name)
    return value if isinstance(value, int) else None


def layer_passes(subject: ChangeSubject, size: Mapping[str, float]) -> tuple[float, float]:
    """Tokens of a micro-batch on a rank in the new layout, and how often a step passes a layer of a stage
    forward; `size` has the card's micro-batch, sequence length and layers."""
    layouts = layout_change(subject)
    new, share = layouts.new.degrees, layouts.sample_share
    count = microbatch_count(subject.run.card) or 1
    several = count > 1 or new["pp"] > 1
    tokens = size["batch.micro"] * size["batch.sequence_length"] / new["cp"] * (1.0 if several else share)
    return tokens, size["model.layers"] / new["pp"] * count * (share if several else 1.0)


def microbatch_count(card: Card | None) -> int | None:
    """Micro-batches of a step on a rank: from the card, else global / (replicas x micro-batch)."""
    if card is None:
        return None
    if card.parallelism.microbatches is not None:
        return card.parallelism.microbatches
    batch, plan = card.workload.batch, card.parallelism
    if batch.global_ is None or batch.micro is None:
        return None
    count, remainder = divmod(batch.global_, batch.micro * plan.dp_replicate * plan.dp_shard)
    return None if remainder or not count else count
