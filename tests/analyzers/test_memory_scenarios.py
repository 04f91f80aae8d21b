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
    batch = SimpleNamespace(workload=SimpleNamespace(batch=SimpleNamespace(micro=micro)))
    tables, told = a_rank(operators=operators).tables, history(EVENTS, operators)
    return SimpleNamespace(card=batch if micro else None, ranks=(0,), rank=lambda _: tables, told=told)


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
    assert prediction.by_category["activations"] == 163
    assert source in prediction.assumed[0]


@pytest.mark.parametrize(
    ("run", "why"),
    [
        *(
            (a_run(shapes), "the batch size is unknown")
            for shapes in (None, "[[1000, 4]]", "[]", "[3, 4]", '[[], ["a"]]', "[[1], [[2, 3]]]")
        ),
        # A batch that does not divide the activations, and a recording without owners.
        (a_run("[[7, 2]]", "aten::mm"), "only 0"),
        (SimpleNamespace(told=replace(a_run().told, owners=None)), "have no owners"),
    ],
)
def test_what_cannot_be_predicted_is_refused(run: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        predict_memory(run, run.told, ["batch=16"])
