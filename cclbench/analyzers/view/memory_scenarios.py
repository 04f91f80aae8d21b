# SPDX-License-Identifier: Apache-2.0
"""The peak of memory under other settings, modelled by changing sizes and lives of recorded blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow.compute as pc

from cclbench.analyzers.view.allocator import History
from cclbench.analyzers.view.columns import with_words
from cclbench.analyzers.view.memory_changes import (
    MemoryAccount,
    with_batch,
    with_checkpoints,
    with_sharded_states,
)
from cclbench.ground.errors import InputError, UsageError, near
from cclbench.ground.units import humanise
from cclbench.record.run import Run

SETTINGS: Final = ("batch", "optimizer.shards", "checkpoint")
_LEAST_SHARE: Final = 0.9
"""Least share of the activations that has to be a multiple of the batch size."""
_INDICES: Final = {"aten::embedding": 1}
"""Place of the argument with a batch, where it is not the first one."""


@dataclass(frozen=True, slots=True)
class MemoryPrediction:
    """A device's modelled peak under settings."""

    settings: tuple[str, ...]
    recorded: int
    """Bytes at the recorded peak."""
    peak: int
    by_category: dict[str, int]
    assumed: tuple[str, ...]


def predict_memory(run: Run, history: History, settings: Sequence[str]) -> MemoryPrediction:
    """The peak under all of the settings, `KEY=VALUE` with keys of `SETTINGS`.

    `UsageError` for another setting, `InputError` with what the recording lacks.
    """
    if history.owners is None or not history.recorded:
        raise InputError(
            "the allocations of this recording have no owners",
            hint="record a trace with profile_memory=True, or a memory snapshot with a history",
        )
    account = MemoryAccount.from_owners(history.owners)
    assumed: list[str] = []
    for key, value in sorted((_split(text) for text in settings), key=lambda pair: SETTINGS.index(pair[0])):
        account, words = _apply(run, history, account, key, value)
        assumed.append(words)
    allocated = account.owners.allocated()
    moment = int(np.argmax(allocated))
    by_category = account.by_category(moment)
    if unknown := by_category.get("unknown"):
        assumed.append(f"{humanise(unknown, 'B')} of unknown use stay as they are")
    return MemoryPrediction(
        tuple(settings),
        history.peak_allocated,
        int(allocated[moment]),
        by_category,
        tuple(assumed),
    )


def _split(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or key not in SETTINGS:
        raise UsageError(f"unknown setting {text!r}", hint=f"KEY=VALUE with {near(key, SETTINGS)}")
    return key, value


def _apply(
    run: Run, history: History, account: MemoryAccount, key: str, value: str
) -> tuple[MemoryAccount, str]:
    if key == "checkpoint":
        account, calls = with_checkpoints(account, value)
        return account, (
            f"{calls} calls of {value} keep nothing for their backward passes but their input, and are"
            " recomputed whole; their output is the last block that they leave; states of random number"
            " generators that are kept with it (5,056 B a call on CPUs) are not modelled"
        )
    number = _count(key, value)
    if key == "optimizer.shards":
        return with_sharded_states(account, number), (
            f"{number} ranks share the optimizer's states evenly; what their collectives need is not modelled"
        )
    batch, source = _recorded_batch(run, history)
    account, share = with_batch(account, batch, number)
    if share < _LEAST_SHARE:
        raise InputError(
            f"only {humanise(share, '1')} of the activations are multiples of a batch of {batch} ({source})",
            hint="state workload.batch.micro in a card",
        )
    return account, (
        f"batch {number} instead of {batch} ({source}); {humanise(share, '1')} of the activations grow with"
        " it, as what autograd uses meanwhile; kernels stay the same"
    )


def _count(key: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and 0 < int(value) <= 1 << 30):
        raise UsageError(f"{key}={value}: not a whole number from 1", hint=f"{key}=8")
    return int(value)


def _recorded_batch(run: Run, history: History) -> tuple[int, str]:
    """Samples of a forward pass on a rank, and where that is stated; `InputError` where it is not."""
    if run.card is not None and run.card.workload.batch.micro:
        return run.card.workload.batch.micro, "by the card"
    if history.rank is not None and history.rank in run.ranks:
        calls = run.rank(history.rank).operators(("name", "shapes", "module", "phase", "start_ns"))
        calls = with_words(calls, "phase", ("forward",))
        calls = calls.filter(pc.and_(calls["module"].is_valid(), calls["shapes"].is_valid()))
        for call in calls.take(pc.select_k_unstable(calls, 1, [("start_ns", "ascending")])).to_pylist():
            sizes = msgspec.json.decode(call["shapes"])
            shape = (sizes[_INDICES.get(call["name"], 0) :] or [[]])[0]
            if isinstance(shape, list) and shape and type(shape[0]) is int and shape[0] > 0:
                return shape[0], f"by the sizes of {call['name']}"
    raise InputError(
        "the batch size is unknown",
        hint="state workload.batch.micro in a card, or record with record_shapes=True and with_stack=True",
    )
