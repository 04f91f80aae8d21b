# SPDX-License-Identifier: Apache-2.0
"""Whether a layout fits into the devices' memory: parameters, gradients, optimizer state, activations.

Of P parameters a rank holds P / (tp · pp), and where replicas share them (`dp_shard`) one part of that.  Adam
keeps two moments of 4 bytes for each, and in 16 bits a copy of the parameter in 4 (Rajbhandari et al. 2020,
section 3.1).  Of a layer of a decoder a micro-batch of b sequences of length s, hidden size h, leaves s · b
· h · (10 + 24 / tp) bytes in 16 bits, s · b · h · 34 / tp where sequences are cut too, plus 5 · a · s² · b
/ tp of a heads where scores are kept (Korthikanti et al. 2022, sections 4 and 5.1); the first of p stages
holds those of min(p, m) micro-batches (1F1B).
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
"""Bytes of an optimizer's state for each parameter."""
_COPY: Final = 4
"""Of a parameter kept in fp32 beside one in 16 bits."""
_OPTIMIZER: Final = re.compile(r"Optimizer\.step#(\w+)\.step")
_FIELDS: Final = ("model.parameters", "model.hidden", "model.layers", "batch.micro", "batch.sequence_length")


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes of the fullest device, of what, and what it has."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    device: int

    @property
    def total_bytes(self) -> float:
        """All together."""
        return self.parameters + self.gradients + self.optimizer + self.activations

    @property
    def is_enough(self) -> bool:
        """Whether that is no more than the device has."""
        return self.total_bytes <= self.device


@dataclass(frozen=True, slots=True)
class HeldState:
    """What a run's trace says of what its ranks hold: optimizer, whether scores are kept, sequences cut,
    whether activations are computed again."""

    optimizer: str | None
    scores: bool
    sequences: bool
    recomputed: bool


def held_state(run: Run, sequences: bool) -> HeldState:
    """What the first rank's trace shows."""
    files = run.rank(run.ranks[0])
    names: set[str] = set()
    for batch in files.events(("annotation", "op"), ("name",)):
        names.update(batch["name"].dictionary.to_pylist())
    steps = {match[1].lower() for name in names if (match := _OPTIMIZER.search(name))}
    calls = files.operators()
    fused = any("_scaled_dot_product_" in name or "flash" in name.lower() for name in names)
    again = bool(len(calls)) and any(calls["recomputed"].to_pylist())
    return HeldState(steps.pop() if len(steps) == 1 else None, not fused, sequences, again)


def memory_of(run: Run, known: HeldState, change: Relayout, accelerator: Accelerator | None) -> MemoryNeed:
    """What a layout needs; `InputError` with what is not known, where it cannot be examined."""
    size = card_sizes(run.card, "memory", *_FIELDS, "element")
    card = run.card
    assert card is not None  # noqa: S101 - it has the sizes
    if accelerator is None or accelerator.hbm_bytes is None:
        of = "the device" if accelerator is None else accelerator.id
        raise InputError(f"the memory of {of} is not known", hint="a hardware file can state hbm_bytes")
    if known.optimizer not in _STATE:
        found = f"the state of {known.optimizer}" if known.optimizer else "the optimizer"
        raise InputError(f"{found} is not known", hint="traces with annotations of an Adam's steps tell it")
    if card.workload.model.moe:
        raise InputError("which parameters of a mixture of experts a rank holds is not known")
    if known.recomputed:
        raise InputError("activations are computed again: which are kept is not known")
    heads = card.workload.model.heads
    if known.scores and heads is None:
        raise InputError(
            "heads, whose scores are kept, are not known", hint="a card has to state workload.model.heads"
        )
    new = change.new.degrees
    own = size["model.parameters"] / (new["tp"] * new["pp"] * _state_shards(card, change))
    element = size["element"]
    count = microbatch_count(card) or 1
    several = count > 1 or new["pp"] > 1
    batch = size["batch.micro"] * (1 if several else change.sample_share)
    length = size["batch.sequence_length"] / new["cp"]
    each = 34 / new["tp"] if known.sequences else 10 + 24 / new["tp"]
    kept = length * batch * size["model.hidden"] * each
    if known.scores:
        kept += 5 * (heads or 0) * length * size["batch.sequence_length"] * batch / new["tp"]
    layers = size["model.layers"] / new["pp"] * min(new["pp"], max(count * change.sample_share, 1))
    return MemoryNeed(
        own * element,
        own * element,
        own * (_STATE[known.optimizer] + (_COPY if element < _COPY else 0)),
        kept * layers * element / 2,
        accelerator.hbm_bytes,
    )


def _state_shards(card: Card, change: Relayout) -> float:
    """Among how many ranks a replica's state is cut: those of `dp_shard`, which grow where no replicas do."""
    told = card.parallelism
    return told.dp_shard * (
        change.degree_growth("dp") if told.dp_replicate == 1 and told.dp_shard > 1 else 1.0
    )
