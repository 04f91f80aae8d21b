# SPDX-License-Identifier: Apache-2.0
"""What settings of the layout have in common: which nodes compute, and what a card has to say."""

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
"""Dimensions whose transfers are of activations, as large as there are tokens."""
SAME_LAYOUT: Final = "the run has that layout already"


def asked_layouts(subject: ChangeSubject) -> Relayout:
    """The layouts before and after, of a scenario that changes them."""
    assert subject.relayout is not None  # noqa: S101 - keys of layouts are its settings
    return subject.relayout


def compute_nodes(subject: ChangeSubject) -> Mask:
    """Nodes that compute, shape (nodes,): kernels, or of a CPU the gaps that hold operators."""
    nodes = subject.graph.nodes
    return np.asarray((nodes.kind == n.COMPUTE) | (nodes.busy > 0))


def token_nodes(subject: ChangeSubject) -> tuple[Mask, str]:
    """Nodes whose work goes with tokens, shape (nodes,), and what they are called: of a CPU the optimizer's
    operators cannot be told from others."""
    chosen = compute_nodes(subject)
    if subject.graph.nodes.busy.any():
        return chosen, "operators of the CPU, the optimizer's too,"
    return chosen & ~of_categories(subject, "optimizer"), "kernels without the optimizer,"


def of_categories(subject: ChangeSubject, *categories: str) -> Mask:
    """Kernels of those categories, shape (nodes,)."""
    nodes = subject.graph.nodes
    codes = [i for i, name in enumerate(subject.graph.categories) if name in categories]
    return np.asarray((nodes.kind == n.COMPUTE) & np.isin(nodes.category, codes))


def cuts_sequences(graph: Graph, dimensions: Mapping[str, Dimension]) -> bool:
    """Whether groups of tensors gather and scatter, as they do where sequences are cut as well."""
    words = zip(graph.transfers.kind, graph.transfers.group, strict=True)
    return bool(
        {"all_gather", "reduce_scatter"} & {kind for kind, g in words if dimensions.get(g or "") == "tp"}
    )


def scale_nodes(chosen: Mask, factor: float) -> Scale:
    """That factor of chosen nodes."""
    return Scale.by_factor(np.where(chosen, factor, 1.0))


def card_sizes(card: Card | None, what: str, *fields: str) -> dict[str, float]:
    """Numbers of the card by their places (`model.hidden`); `InputError` with those that it lacks."""
    found = {field: _integer_field(card, field) for field in fields}
    lacking = [_PLACES.get(field, f"workload.{field}") for field, value in found.items() if not value]
    if lacking:
        raise InputError(f"{what} cannot be sized", hint=f"a card has to state {', '.join(lacking)}")
    return {field: float(value) for field, value in found.items() if value}


_PLACES: Final = {"element": "workload.precision"}
_ELEMENTS: Final = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 2}
"""Bytes of an activation where matrix products have that precision (those of fp8 stay in 16 bits)."""


def _integer_field(card: Card | None, field: str) -> float | None:
    if card is None:
        return None
    if field == "element":
        return _ELEMENTS.get(card.workload.precision or "")
    value: object = card.workload
    for name in field.split("."):
        value = getattr(value, name)
    return value if isinstance(value, int) else None


def microbatch_count(card: Card | None) -> int | None:
    """Micro-batches of a step on a rank: as the card states them, else global / (replicas x micro-batch)."""
    if card is None:
        return None
    if card.parallelism.microbatches is not None:
        return card.parallelism.microbatches
    batch, told = card.workload.batch, card.parallelism
    if batch.global_ is None or batch.micro is None:
        return None
    count, rest = divmod(batch.global_, batch.micro * told.dp_replicate * told.dp_shard)
    return None if rest or not count else count
