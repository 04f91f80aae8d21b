# SPDX-License-Identifier: Apache-2.0
"""What a subject says of itself: its window and steps, what it worked on, and on what."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.compared_subjects import card, row, steps_of, subject

from cclbench.analyzers.view.values import ALL_OPEN
from cclbench.comparison.subject import ComparisonSubject, WorkFacts

STEP = [row("time.step", 1.0)]


def workload(**known: Any) -> WorkFacts:
    """Of a tiny model on four H100s, less what is None."""
    told: dict[str, Any] = {"model": "Tiny-Llama", "phase": "training", "accelerator": "nvidia-h100-sxm"}
    told |= {"devices": 4, "batch": 16, "sequence_length": 128, "framework": None, "plan": None}
    return WorkFacts(**(told | known))


@pytest.mark.parametrize(
    ("rows", "published", "window"),
    [
        (STEP, None, "steps"),
        ([STEP[0] | {"window": "trace"}], None, "trace"),
        ([row("time.step", None)], None, None),
        ([row("time.step", 1.0, status="partial")], None, None),
        ([], None, None),
        (STEP, {"source": "x"}, None),
    ],
)
def test_the_window_is_that_of_a_step_time_measured_here(
    rows: list[dict[str, Any]], published: dict[str, Any] | None, window: str | None
) -> None:
    assert subject("A", rows, published=published).window_policy == window


def test_steps_are_those_of_the_step_time() -> None:
    rows = [*steps_of("time.step", [1.0, 2.0]), *steps_of("throughput.tokens", [1.0] * 3, "1/s")]
    assert subject("A", rows).step_count == 2
    assert subject("A", STEP).step_count == 0

    # a step time of an open step says so first
    def all_open(reason: str | None) -> bool:
        return subject("A", [row("time.step", 1.0, reason=reason)]).all_open

    assert all_open(f"{ALL_OPEN}; besides")
    assert not all_open(f"besides, {ALL_OPEN}")
    assert not all_open(None)
    assert not subject("A", []).all_open
    # its place follows from its letter
    assert [subject(letter, []).index for letter in ("A", "C", "Z")] == [0, 2, 25]


METADATA = {"model_family": "tiny-llama", "phase": "training", "hardware_model": "nvidia_a100"}
METADATA |= {"batch_size": 64, "seq_len": 1024, "total_count": 8, "framework": "torchtitan-v2.1"}
METADATA |= {"dp": 2, "fsdp": 1, "tp": 4, "dp_replicate": 2, "dp_shard": 1, "precision": ""}


def published(of: dict[str, Any] | None = None) -> ComparisonSubject:
    return subject("B", STEP, of, published={"metadata": METADATA})


def test_published_metadata_tell_what_ran() -> None:
    found = published().workload
    assert (found.model, found.phase, found.accelerator) == ("tiny-llama", "training", "nvidia_a100")
    assert (found.devices, found.batch, found.sequence_length) == (8, 64, 1024)
    assert (found.framework, found.plan) == ("torchtitan", "dp2 x tp4")
    assert published().card_field("workload.precision") is None
    assert published().published_field("software.framework.name") is None
    assert published().device_count == 8
    # a card made of published metadata lacks names alone
    lacking = card(
        workload__model__name=None, hardware__accelerator=None, workload__precision=None, hardware__count=None
    )
    made = published(lacking)
    names = [made.card_field(path) for path in ("workload.model.name", "hardware.accelerator")]
    assert names == ["tiny-llama", "nvidia_a100"]
    assert made.card_field("hardware.count") is None
    assert subject("A", STEP, lacking).card_field("workload.model.name") is None


def test_a_card_tells_what_ran_and_the_trace_the_device() -> None:
    own = card(
        workload__model__name=None,
        hardware__accelerator=None,
        parallelism={"dp_shard": 2, "tp": 2, "pp": 1},
        software={"framework": {"name": "megatron", "version": "1"}},
    )
    own["workload"]["model"]["family"] = "llama"
    found = subject("A", STEP, own).workload
    assert (found.model, found.accelerator, found.devices) == ("llama", "H100", 4)
    assert (found.framework, found.plan) == ("megatron", "fsdp2 x tp2")
    assert subject("A", STEP, card(parallelism={"tp": 1})).workload.plan == "unsplit"
    assert subject("A", STEP, card(parallelism=None)).workload.plan is None
    assert subject("A", STEP, card()).workload.accelerator == "nvidia-h100-sxm"
    # a field is the cards by its path
    one = subject("A", STEP, card())
    assert one.card_field("workload.batch.global") == 16
    assert one.card_field("workload.batch.global.more") is None
    assert one.card_field("workload.nothing.here") is None
    assert one.card_field("workload.batch") == {"global": 16, "sequence_length": 128}
    assert subject("A", STEP).card_field("workload.phase") is None


@pytest.mark.parametrize(
    ("accelerator", "kind"),
    [("google-tpu-v5e", "TPU"), ("CPU", "CPU"), ("nvidia_a100", "GPU"), ("", None), (None, None)],
)
def test_the_kind_of_a_device_is_in_its_name(accelerator: str | None, kind: str | None) -> None:
    assert workload(accelerator=accelerator).accelerator_kind == kind


def test_work_is_equal_where_model_phase_batch_and_length_are() -> None:
    assert workload().work_key == ("tiny-llama", "training", 16, 128)
    assert workload(model="TINY-LLAMA", devices=8, plan="tp2").work_key == workload().work_key
    for name in ("model", "phase", "batch", "sequence_length"):
        assert workload(**{name: None}).work_key is None
    # both are four H100s
    metadata = {**METADATA, "hardware_model": "nvidia-h100-sxm", "total_count": 4}
    other = subject("B", STEP, published={"metadata": metadata})
    assert subject("A", STEP, card()).hardware_key == (False, "nvidia-h100-sxm", 4)
    assert other.hardware_key == (True, "nvidia-h100-sxm", 4)
    unknown = {key: value for key, value in metadata.items() if key != "total_count"}
    assert subject("B", STEP, published={"metadata": unknown}).hardware_key is None
    # devices are what the traces call them
    assert subject("A", STEP, card()).devices == ("H100",)
    assert published().devices == ("nvidia_a100",)
    nameless = {key: value for key, value in METADATA.items() if key != "hardware_model"}
    assert subject("B", STEP, published={"metadata": nameless}).devices == ()
