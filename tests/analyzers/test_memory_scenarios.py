# SPDX-License-Identifier: Apache-2.0
"""Settings of a modelled peak: the batch size of the recording, and what cannot be modelled."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from analyzers.test_traced_blocks import history, memory, operator
from helpers.hand_made import a_rank

from cclbench.analyzers.view.memory_scenarios import predict_memory
from cclbench.ground.errors import InputError

# An activation of 80 B, 16 B of autograd, and 3 B that no batch of 8 divides.
EVENTS = [memory(10, 80, 80, 1), memory(20, 83, 3, 2), memory(30, 99, 16, 3), memory(40, 19, -80, 1)]
FORWARD = {"module": "Net_0", "phase": "forward"}


def a_run(shapes: str | None = None, name: str = "aten::embedding", micro: int | None = None) -> Any:
    operators = [
        operator(25, 35, "aten::mm", "backward", module="Net_0", shapes="[[5, 5]]"),
        operator(8, 22, name, **FORWARD, shapes=shapes),
        operator(1, 2, "aten::randint", "forward", shapes="[[77]]"),
    ]
    card = (
        None
        if micro is None
        else SimpleNamespace(workload=SimpleNamespace(batch=SimpleNamespace(micro=micro)))
    )
    tables = a_rank(operators=operators).tables
    return SimpleNamespace(card=card, ranks=(0,), rank=lambda _: tables, told=history(EVENTS, operators))


@pytest.mark.parametrize(
    ("run", "source"),
    [
        (a_run("[[1000, 4], [8, 24]]"), "by the sizes of aten::embedding"),
        (a_run("[[8, 3, 32, 32], [3]]", "aten::conv2d"), "by the sizes of aten::conv2d"),
        (a_run("[[5, 5]]", "aten::mm", micro=8), "by the card"),
    ],
)
def test_the_batch_is_the_cards_or_that_of_the_first_call_of_a_module(run: Any, source: str) -> None:
    prediction = predict_memory(run, run.told, ["batch=16"])
    assert (prediction.recorded, prediction.peak) == (99, 2 * 80 + 3 + 2 * 16)
    assert (
        prediction.by_category == {"activations": 163, "gradients": 0}
        or prediction.by_category["activations"] == 163
    )
    assert source in prediction.assumed[0]


@pytest.mark.parametrize("shapes", [None, "[[1000, 4]]", "[]", "[3, 4]", '[[], ["a"]]', "[[1], [[2, 3]]]"])
def test_a_batch_that_nothing_states_is_refused(shapes: str | None) -> None:
    run = a_run(shapes)
    with pytest.raises(InputError, match="the batch size is unknown"):
        predict_memory(run, run.told, ["batch=16"])


def test_a_batch_that_does_not_divide_the_activations_is_refused() -> None:
    run = a_run("[[7, 2]]", "aten::mm")
    with pytest.raises(InputError, match="only 0"):
        predict_memory(run, run.told, ["batch=16"])


def test_a_recording_without_owners_is_refused() -> None:
    run = a_run()
    with pytest.raises(InputError, match="have no owners"):
        predict_memory(run, replace(run.told, owners=None), ["batch=16"])
