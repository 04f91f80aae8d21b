# SPDX-License-Identifier: Apache-2.0
"""What layouts need of a device's memory: as published of GPT-3, and what is not known is said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from helpers.replay_jobs import traced
from helpers.replay_subjects import card, degrees
from helpers.synthetic import Collective, Compute, Layout, Program, simulate

from cclbench.ground.errors import InputError
from cclbench.hardware import catalog
from cclbench.replay.answer import Replay
from cclbench.replay.layout import target_relayout
from cclbench.replay.memory import HeldState, MemoryNeed, held_state, memory_of

MODEL: dict[str, Any] = {"parameters": 175_000_000_000, "hidden": 12288, "layers": 96, "heads": 96}
BATCH = {"micro": 1, "sequence_length": 2048}
TRUTH = simulate(
    Layout(dp=8), Program((Compute(100_000), Collective("all_reduce", "dp", 1 << 20)), closing=True)
)
KEPT = HeldState("adamw", scores=True, sequences=False, recomputed=False)


def needed(replay: Replay, known: HeldState, **degrees: int) -> MemoryNeed:
    asked = {f"parallelism.{name}": size for name, size in degrees.items()}
    accelerator = catalog.accelerator("nvidia-a100-sxm-80gb")
    return memory_of(replay.run, known, target_relayout(replay.layout, asked), accelerator)


def test_gpt3_as_published() -> None:
    """tp 8, pp 8: 16 bytes of 175e9 / 64 parameters; s·b·h·L (10 + 24/8 + 5·96·2048 / (12288·8)) of
    activations, which do not fit 80 GB, and s·b·h·L·34/8 with sequences cut and scores computed again,
    which do (Korthikanti et al. 2022, figure 1)."""
    with traced(TRUTH, model=MODEL, batch=BATCH, microbatches=64) as replay:
        plain = needed(replay, KEPT, tp=8, pp=8)
        assert plain.parameters + plain.gradients + plain.optimizer == pytest.approx(16 * 175e9 / 64)
        assert plain.activations == pytest.approx(2048 * 12288 * 96 * 23)
        assert not plain.is_enough
        cut = needed(replay, HeldState("adamw", scores=False, sequences=True, recomputed=False), tp=8, pp=8)
        assert cut.activations == pytest.approx(2048 * 12288 * 96 * 34 / 8)
        assert cut.is_enough
    # A stage of 8 holds 12 layers of min(8, m) micro-batches
    with traced(TRUTH, model=MODEL, batch=BATCH, microbatches=2) as replay:
        assert needed(replay, KEPT, tp=8, pp=8).activations == pytest.approx(2048 * 12288 * 12 * 2 * 23)


def test_replicas_that_share_a_model_hold_a_part_each() -> None:
    layout = {"dp_replicate": 1, "dp_shard": 8}
    with traced(TRUTH, model=MODEL, batch=BATCH, **layout) as replay:
        own, half = (needed(replay, KEPT, dp=size) for size in (8, 16))
        assert own.optimizer == pytest.approx(12 * 175e9 / 8)
        assert half.optimizer == pytest.approx(own.optimizer / 2)
        assert half.activations == own.activations
    # those of `dp_shard`; more of them where there are no other replicas
    more = {"parallelism.dp": 8}
    assert small(old=degrees(dp=4), dp_replicate=2, dp_shard=2).parameters == 2e6 / 2
    assert small(old=degrees(dp=4), settings=more, dp_replicate=2, dp_shard=2).parameters == 2e6 / 2
    assert small(old=degrees(dp=4), settings=more, dp_shard=4).parameters == 2e6 / 8
    assert small(old=degrees(dp=1), settings=more).parameters == 2e6


def test_what_is_not_known_is_said() -> None:
    with traced(TRUTH, model=MODEL, batch=BATCH) as replay:
        assert held_state(replay.run, sequences=False).optimizer is None
        for known, what in {
            HeldState(None, False, False, False): "the optimizer is unknown",
            HeldState("lamb", False, False, False): "the state of lamb is unknown",
            HeldState("adam", False, False, True): "activations are recomputed",
        }.items():
            with pytest.raises(InputError, match=what):
                needed(replay, known)
    with traced(TRUTH, model={"parameters": 7}) as few, pytest.raises(InputError, match="sized") as refused:
        needed(few, KEPT)
    assert "workload.model.hidden" in str(refused.value.hint)


SMALL = {"parameters": 1_000_000, "hidden": 100, "layers": 8, "heads": 10}
FEW = {"micro": 2, "sequence_length": 50}
PLAIN = HeldState("adamw", scores=False, sequences=False, recomputed=False)


def small(known: HeldState = KEPT, old: Any = None, settings: Any = None, **more: Any) -> MemoryNeed:
    """Of a million parameters; micro-batches of two sequences of 50; `more` are of the model and the card."""
    model, precision = {**SMALL, **more.pop("model", {})}, more.pop("precision", "bf16")
    run = SimpleNamespace(card=card(model, FEW, precision, **more))
    change = target_relayout(old or degrees(), settings or {})
    return memory_of(run, known, change, catalog.accelerator("nvidia-a100-sxm-80gb"))  # type: ignore[arg-type]


def test_what_parameters_and_activations_take() -> None:
    """2 bytes each for parameters and gradients, 8 for Adam's moments and 4 for a copy; none beside fp32."""
    half, whole = small(), small(precision="fp32")
    assert (half.parameters, half.gradients, half.optimizer) == (2e6, 2e6, 12e6)
    assert (whole.parameters, whole.gradients, whole.optimizer) == (4e6, 4e6, 8e6)
    assert half.total_bytes == 16e6 + half.activations
    assert half.device == catalog.accelerator("nvidia-a100-sxm-80gb").hbm_bytes
    cut = small(old=degrees(tp=2, pp=4), tp=2, pp=4)
    assert cut.parameters == 2e6 / 8
    assert small(HeldState("adam", False, False, False)).optimizer == 12e6
    # s · b · h · L · 34 of a device alone, 5 · a · s² · b · L more where scores are kept; twice in fp32
    each = 50 * 2 * 100 * 8
    assert small(PLAIN).activations == each * 34
    assert small(PLAIN, precision="fp32").activations == each * 34 * 2
    assert small(KEPT).activations == each * 34 + 5 * 10 * 50 * 50 * 2 * 8
    assert small(PLAIN, degrees(tp=2), tp=2).activations == each * (10 + 24 / 2)
    assert small(KEPT, degrees(tp=2), tp=2).activations == each * 22 + 5 * 10 * 50 * 50 * 2 * 8 / 2
    assert small(PLAIN, degrees(cp=2), cp=2).activations == each / 2 * 34
    assert small(KEPT, degrees(cp=2), cp=2).activations == each / 2 * 34 + 5 * 10 * 25 * 50 * 2 * 8
    cut = HeldState("adamw", scores=False, sequences=True, recomputed=False)
    assert small(cut, degrees(tp=2), tp=2).activations == each * 17


@pytest.mark.parametrize(
    ("stages", "count", "held_at_once"), [(1, 4, 1), (2, 1, 1), (2, 4, 2), (4, 3, 3), (4, 8, 4)]
)
def test_the_first_stage_holds_a_micro_batch_a_stage(stages: int, count: int, held_at_once: int) -> None:
    found = small(PLAIN, degrees(pp=stages), pp=stages, microbatches=count)
    assert found.activations == 50 * 2 * 100 * 34 * 8 / stages * held_at_once


@pytest.mark.parametrize(("count", "stages", "factor"), [(1, 1, 0.5), (2, 1, 1.0), (8, 2, 1.0), (2, 2, 0.5)])
def test_a_batch_among_twice_the_replicas_is_halved(count: int, stages: int, factor: float) -> None:
    """One micro-batch is half as large; of several there are half as many, and as many of them are held."""
    old, settings = degrees(dp=2, pp=stages), {"parallelism.dp": 4, "batch": 1}
    before, after = (
        small(PLAIN, old, one, dp_replicate=2, pp=stages, microbatches=count) for one in ({}, settings)
    )
    assert after.activations == factor * before.activations


def test_the_largest_that_fits_is_all_that_the_device_has() -> None:
    assert MemoryNeed(10, 20, 30, 40, 100).is_enough
    assert not MemoryNeed(10, 20, 30, 40.5, 100).is_enough
    # a device of unknown memory is said
    run = SimpleNamespace(card=card(SMALL, FEW))
    change = target_relayout(degrees(), {})
    for accelerator, of in ((None, "the device"), (catalog.accelerator("generic-cpu"), "generic-cpu")):
        with pytest.raises(InputError, match=f"the memory of {of} is unknown"):
            memory_of(run, KEPT, change, accelerator)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known", "model", "says"),
    [
        (KEPT, {"moe": True}, "a mixture of experts"),
        (*(KEPT, {"heads": None}),
         "the number of heads, whose scores are kept, is unknown; state workload.model.heads in a card"),
        (*(HeldState(None, True, False, False), {}),
         "the optimizer is unknown; it needs a trace with annotated steps of Adam"),
    ],
)  # fmt: skip
def test_what_of_the_model_is_not_known_is_said(known: HeldState, model: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as refused:
        small(known, model=model)
    assert says in str(refused.value)
    assert small(PLAIN, model={"heads": None}).parameters == 2e6
