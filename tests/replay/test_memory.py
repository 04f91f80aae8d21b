# SPDX-License-Identifier: Apache-2.0
"""What layouts need of a device's memory: as published of GPT-3, and what is not known is said."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import traced
from synthetic import Collective, Compute, Layout, Program, simulate

from cclbench.errors import InputError
from cclbench.hardware import catalog
from cclbench.replay.answer import Replay
from cclbench.replay.layout import relayout
from cclbench.replay.memory import Held, Memory, held, memory_of

MODEL: dict[str, Any] = {"parameters": 175_000_000_000, "hidden": 12288, "layers": 96, "heads": 96}
BATCH = {"micro": 1, "sequence_length": 2048}
TRUTH = simulate(
    Layout(dp=8), Program((Compute(100_000), Collective("all_reduce", "dp", 1 << 20)), closing=True)
)
KEPT = Held("adamw", scores=True, sequences=False, recomputed=False)


def needed(replay: Replay, known: Held, **degrees: int) -> Memory:
    asked = {f"parallelism.{name}": size for name, size in degrees.items()}
    accelerator = catalog.accelerator("nvidia-a100-sxm-80gb")
    return memory_of(replay.run, known, relayout(replay.layout, asked), accelerator)


def test_gpt3_as_published() -> None:
    """tp 8, pp 8: 16 bytes of 175e9 / 64 parameters; s·b·h·L (10 + 24/8 + 5·96·2048 / (12288·8)) of
    activations, which do not fit 80 GB, and s·b·h·L·34/8 with sequences cut and scores computed again,
    which do (Korthikanti et al. 2022, figure 1)."""
    with traced(TRUTH, model=MODEL, batch=BATCH, microbatches=64) as replay:
        plain = needed(replay, KEPT, tp=8, pp=8)
        assert plain.parameters + plain.gradients + plain.optimizer == pytest.approx(16 * 175e9 / 64)
        assert plain.activations == pytest.approx(2048 * 12288 * 96 * 23)
        assert not plain.fits
        cut = needed(replay, Held("adamw", scores=False, sequences=True, recomputed=False), tp=8, pp=8)
        assert cut.activations == pytest.approx(2048 * 12288 * 96 * 34 / 8)
        assert cut.fits


def test_few_micro_batches_leave_less_behind() -> None:
    """A stage of 8 holds 12 layers of min(8, m) micro-batches."""
    with traced(TRUTH, model=MODEL, batch=BATCH, microbatches=2) as replay:
        assert needed(replay, KEPT, tp=8, pp=8).activations == pytest.approx(2048 * 12288 * 12 * 2 * 23)


def test_replicas_that_share_a_model_hold_a_part_each() -> None:
    layout = {"dp_replicate": 1, "dp_shard": 8}
    with traced(TRUTH, model=MODEL, batch=BATCH, **layout) as replay:
        own, half = (needed(replay, KEPT, dp=size) for size in (8, 16))
        assert own.optimizer == pytest.approx(12 * 175e9 / 8)
        assert half.optimizer == pytest.approx(own.optimizer / 2)
        assert half.activations == own.activations


def test_what_is_not_known_is_said() -> None:
    with traced(TRUTH, model=MODEL, batch=BATCH) as replay:
        assert held(replay.run, sequences=False).optimizer is None
        for known, what in {
            Held(None, False, False, False): "the optimizer is not known",
            Held("lamb", False, False, False): "the state of lamb is not known",
            Held("adam", False, False, True): "computed again",
        }.items():
            with pytest.raises(InputError, match=what):
                needed(replay, known)
    with (
        traced(TRUTH, model={"parameters": 7}) as replay,
        pytest.raises(InputError, match="sized") as refused,
    ):
        needed(replay, KEPT)
    assert "workload.model.hidden" in str(refused.value.hint)
