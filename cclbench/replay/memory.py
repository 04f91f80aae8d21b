# SPDX-License-Identifier: Apache-2.0
"""Memory of a layout: parameters, gradients, optimizer state, activations.

A rank holds P / (tp · pp) of P parameters, or its shard of that (`dp_shard`). Adam keeps two moments of 4
bytes per parameter, and with 16-bit parameters a copy of 4 bytes (Rajbhandari et al. 2020, section 3.1). A
decoder layer keeps s · b · h · (10 + 24 / tp) bytes of activations in 16 bits for a micro-batch of b
sequences of length s and hidden size h, or s · b · h · 34 / tp with split sequences, plus 5 · a · s² · b / tp
for the scores of a heads if kept (Korthikanti et al. 2022, sections 4 and 5.1); the first of p stages holds
min(p, m) micro-batches (1F1B).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from cclbench.card import Card
from cclbench.ground.errors import InputError
from cclbench.hardware.accelerator import Accelerator
from cclbench.record.run import Run
from cclbench.replay.layout import Relayout
from cclbench.replay.rescale import card_sizes, microbatch_count

_STATE: Final = {"adam": 8, "adamw": 8}
"""Bytes of optimizer state per parameter."""
_COPY: Final = 4
"""Bytes of the fp32 copy of a 16-bit parameter."""
_OPTIMIZER: Final = re.compile(r"Optimizer\.step#(\w+)\.step")
_FIELDS: Final = ("model.parameters", "model.hidden", "model.layers", "batch.micro", "batch.sequence_length")


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes that the fullest device needs, by use, and its capacity."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    device: int

    @property
    def total_bytes(self) -> float:
        """Total need."""
        return self.parameters + self.gradients + self.optimizer + self.activations

    @property
    def is_enough(self) -> bool:
        """Whether the device has enough memory."""
        return self.total_bytes <= self.device


@dataclass(frozen=True, slots=True)
class HeldState:
    """What ranks keep, by a run's trace: optimizer, whether scores are kept, sequences are split, and
    activations recomputed."""

    optimizer: str | None
    scores: bool
    sequences: bool
    recomputed: bool


def held_state(run: Run, sequences: bool) -> HeldState:
    """What the first rank keeps, by its trace."""
    files = run.rank(run.ranks[0])
    names: set[str] = set()
    for batch in files.events(("annotation", "op"), ("name",)):
        names.update(batch["name"].dictionary.to_pylist())
    steps = {match[1].lower() for name in names if (match := _OPTIMIZER.search(name))}
    calls = files.operators()
    fused = any("_scaled_dot_product_" in name or "flash" in name.lower() for name in names)
    recomputed = bool(len(calls)) and any(calls["recomputed"].to_pylist())
    return HeldState(steps.pop() if len(steps) == 1 else None, not fused, sequences, recomputed)


def memory_of(
    run: Run,
    state: HeldState,
    change: Relayout,
    accelerator: Accelerator | None,
    *,
    shards: bool = False,
) -> MemoryNeed:
    """The memory need of a layout, whose replicas share the state if `shards`; `InputError` if unknown."""
    size = card_sizes(run.card, "memory", *_FIELDS, "element")
    card = run.card
    assert card is not None  # noqa: S101 - it has the sizes
    if accelerator is None or accelerator.hbm_bytes is None:
        device = "the device" if accelerator is None else accelerator.id
        raise InputError(f"the memory of {device} is unknown", hint="state hbm_bytes in a hardware file")
    if state.optimizer not in _STATE:
        unknown_state = f"the state of {state.optimizer}" if state.optimizer else "the optimizer"
        raise InputError(
            f"{unknown_state} is unknown", hint="it needs a trace with annotated steps of Adam or AdamW"
        )
    if card.workload.model.moe:
        raise InputError("which parameters of a mixture of experts a rank holds is unknown")
    if state.recomputed:
        raise InputError("activations are recomputed: which are kept is unknown")
    heads = card.workload.model.heads
    if state.scores and heads is None:
        raise InputError(
            "the number of heads, whose scores are kept, is unknown",
            hint="state workload.model.heads in a card",
        )
    new = change.new.degrees
    shared = change.new.degrees["dp"] if shards else _state_shards(card, change)
    parameters = size["model.parameters"] / (new["tp"] * new["pp"] * shared)
    element = size["element"]
    count = microbatch_count(card) or 1
    several = count > 1 or new["pp"] > 1
    batch = size["batch.micro"] * (1 if several else change.sample_share)
    length = size["batch.sequence_length"] / new["cp"]
    bytes_per_element = 34 / new["tp"] if state.sequences else 10 + 24 / new["tp"]
    activations = length * batch * size["model.hidden"] * bytes_per_element
    if state.scores:
        activations += 5 * (heads or 0) * length * size["batch.sequence_length"] * batch / new["tp"]
    layers = size["model.layers"] / new["pp"] * min(new["pp"], max(count * change.sample_share, 1))
    return MemoryNeed(
        parameters * element,
        parameters * element,
        parameters * (_STATE[state.optimizer] + (_COPY if element < _COPY else 0)),
        activations * layers * element / 2,
        accelerator.hbm_bytes,
    )


def _state_shards(card: Card, change: Relayout) -> float:
    """Number of ranks that share a replica's state: `dp_shard`, which grows unless there are replicas."""
    plan = card.parallelism
    return plan.dp_shard * (
        change.degree_growth("dp") if plan.dp_replicate == 1 and plan.dp_shard > 1 else 1.0
    )
