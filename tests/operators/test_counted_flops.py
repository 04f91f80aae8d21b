# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own count, FlopCounterMode, of the operators that it counts: exactly ours.

scripts/workloads/count_flops.py made counted_flops.json: models run on a CPU, forward and backward.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cclbench.operators.call import NoModel, parse_call
from cclbench.operators.cost import cost_of, model_of

COUNTED = json.loads(Path(__file__).with_name("counted_flops.json").read_text())["models"]
FAMILIES = ("matrix product", "convolution", "attention")

KINDS = {
    "matrix product": ("aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm"),
    "convolution": ("aten.convolution",),
    "convolution, backward": ("aten.convolution_backward",),
    "attention": ("aten._scaled_dot_product_flash_attention_for_cpu",),
    "attention, backward": ("aten._scaled_dot_product_flash_attention_for_cpu_backward",),
}

# Causal: 24·25/2 of 24·24 pairs are computed, FlopCounterMode counts all.
CAUSAL = (25, 48)
DIFFERENT: dict[tuple[str, str], tuple[int, int]] = {
    ("causal_attention", "attention"): CAUSAL,
    ("causal_attention", "attention, backward"): CAUSAL,
    # The weight's gradient of a convolution of g groups: FlopCounterMode counts it g times
    # (conv_backward_flop passes all channels of the input as the batch).  With 4 groups 1 + 4 become 2.
    ("grouped_convolution", "convolution, backward"): (2, 5),
}
"""Ours as a fraction of FlopCounterMode's, where it counts what is not computed."""


def family(operator: str) -> str | None:
    """The family of its model, of those that FlopCounterMode counts."""
    model = model_of(operator)
    return model.family if model and model.family in FAMILIES else None


def ours(calls: list[list[Any]]) -> Counter[str]:
    """FLOPs by kind: of each call within which no other is counted."""
    total: Counter[str] = Counter()
    for name, *recorded, inside, count in calls:
        own = family(name)
        if own is None or any(map(family, inside)):
            continue
        call = parse_call(name, *(json.dumps(one) for one in recorded))
        total[own + (", backward" if "backward" in name else "")] += count * cost_of(call).flops
    return total


def theirs(flops: dict[str, int]) -> Counter[str]:
    """FLOPs by kind as FlopCounterMode has them."""
    known = {operator: kind for kind, operators in KINDS.items() for operator in operators}
    total: Counter[str] = Counter()
    for operator, count in flops.items():
        total[known[operator]] += count
    return total


@pytest.mark.parametrize("name", COUNTED)
def test_flops_are_those_of_flop_counter_mode(name: str) -> None:
    found, counted = ours(COUNTED[name]["calls"]), theirs(COUNTED[name]["flops"])
    assert set(found) == set(counted)
    for kind, flops in counted.items():
        part, whole = DIFFERENT.get((name, kind), (1, 1))
        if name == "depthwise_convolution" and kind == "convolution, backward":
            continue  # below: it has a convolution with groups and one without
        assert found[kind] * whole == flops * part, kind


def test_the_depthwise_convolution_counts_each_gradient_once() -> None:
    """By hand: 2·(2·16·14²)·9 = 112,896 with 16 groups and 2·(2·32·14²)·16 = 401,408 without, twice each.

    FlopCounterMode counts the first one's weight gradient 16 times: 112,896·17 + 401,408·2 = 2,722,048.
    """
    model = COUNTED["depthwise_convolution"]
    assert ours(model["calls"])["convolution, backward"] == 2 * (112_896 + 401_408)
    assert theirs(model["flops"])["convolution, backward"] == 112_896 * 17 + 401_408 * 2


def test_all_models_are_there_and_both_ways() -> None:
    assert len(COUNTED) >= 16
    kinds = {kind for model in COUNTED.values() for kind in theirs(model["flops"])}
    assert kinds == set(KINDS)


def test_what_else_these_models_call_has_a_cost_or_a_reason() -> None:
    """No other exception, and of what moves data no more than these are without a model."""
    without = set()
    for model in COUNTED.values():
        for name, *recorded, _, _ in model["calls"]:
            try:
                cost_of(parse_call(name, *(json.dumps(one) for one in recorded)))
            except NoModel as reason:
                without.add(f"{name}: {reason}")
    assert not [one for one in without if "do not fit its model" in one or "are implausible" in one]
