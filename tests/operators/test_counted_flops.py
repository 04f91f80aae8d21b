# SPDX-License-Identifier: Apache-2.0
"""FLOPs of operators as PyTorch's FlopCounterMode and TraceLens count them.

scripts/workloads/count_flops.py made counted_flops.json: models run on a CPU, forward and backward.
"""

from __future__ import annotations

import ast
import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cclbench.operators.call import Call, NoModel, parse_call
from cclbench.operators.cost import Cost, cost_of, model_of

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


TOLERANCE = 0.005

EXPLAINED = {
    "aten::copy_ flops": "ours: it counts an operation an element, but a copy or cast computes nothing",
    "aten::add_ flops": "ours: it counts additions of int64 as floating-point operations",
    "aten::neg flops": "ours: it counts negations of int64 as floating-point operations",
    "aten::cumsum flops": "ours: it counts additions of int32 as floating-point operations",
    "aten::silu flops": "ours: x/(1 + exp(-x)) takes 4 operations, as its own silu_and_mul has it, not 1",
    "aten::convolution_backward flops": "ours: it counts two products also where the output mask asks one",
    "aten::convolution_backward bytes": "ours: it doubles the forward's, though both read one gradient",
    "aten::_scaled_dot_product_flash_attention bytes": "ours: it leaves out the statistics, a float a query",
    "aten::mean bytes": "ours: it takes the result for one element whatever dimensions are reduced",
    "aten::sum bytes": "ours: it takes the result for one element whatever dimensions are reduced",
    "aten::cumsum bytes": "ours: PyTorch sums int32 to int64",
    "aten::div bytes": "ours: it counts each element of an expanded operand, and bytes of a number",
    "sgl_kernel::rotary_embedding bytes": "ours: it leaves out positions, cosines and sines",
    "triton_poi_fused__to_copy_1 bytes": "ours: float is read and bfloat16 written, 6 bytes, not 2",
    "triton_poi_fused_constant_pad_nd_moe_forward_0 bytes": "ours: the tensors have 380,928 bytes together",
}
"""Operator and figure: what the other tool has otherwise."""

WITHOUT = {"pseudo_op::moe_triton_unfused_up": "it makes this operator up, with the model's sizes"}
WITHOUT |= {"pseudo_op::moe_triton_unfused_down": "it makes this operator up, with the model's sizes"}
"""Operators for which it has figures and we have none, because no argument of theirs has what is needed."""

MATRIX = ("GEMM", "CONV_fwd", "CONV_bwd", "SDPA_fwd")


def listed(value: Any) -> Any:
    """Tuples as JSON has them."""
    return [listed(one) for one in value] if isinstance(value, tuple) else value


def recorded(row: dict[str, str]) -> Call:
    """The call of a row, with strides where the row has those of each operand."""
    dims, types, values = (
        listed(ast.literal_eval(row[column])) if row[column] else []
        for column in ("input_dims", "input_types", "concrete_inputs")
    )
    further = ast.literal_eval(row["perf_params"]) if row["perf_params"] else {}
    strides = [listed(further[key]) for key in ("stride_input1", "stride_input2") if key in further]
    annotation = None
    if "g_sqsk" in further:
        context, generation = (
            "".join(f"{name}{further[f'{part}_{name}']}" for name in ("sq", "sk", "sqsq", "sqsk"))
            for part in "cg"
        )
        annotation = f"execute_1_context_1({context})_generation_1({generation})"
    texts = [json.dumps(one) for one in (dims, types, strides, values)]
    return parse_call(row["name"], *texts, annotation=annotation)


def rows(folder: Path) -> Iterator[tuple[dict[str, str], Cost | NoModel]]:
    """Each row with a figure, and our answer."""
    for path in sorted((folder / "expected" / "operators").glob("*.csv")):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if row["gflop"] or row["bytes"]:
                    try:
                        yield row, cost_of(recorded(row))
                    except NoModel as reason:
                        yield row, reason


def differing(row: dict[str, str], cost: Cost) -> set[str]:
    """The figures that differ by more than the tolerance."""
    theirs = {"flops": float(row["gflop"] or "nan") * 1e9, "bytes": float(row["bytes"] or "nan")}
    ours = {"flops": cost.flops, "bytes": cost.bytes}
    return {key for key, value in theirs.items() if abs(ours[key] - value) > TOLERANCE * value}


def test_figures_agree_or_are_explained(test_data: Path) -> None:
    compared, explained, without = 0, set(), set()
    for row, answer in rows(test_data):
        if isinstance(answer, NoModel):
            without.add(row["name"])
            continue
        compared += 1
        explained |= {f"{row['name']} {figure}" for figure in differing(row, answer)}
    assert explained == set(EXPLAINED)
    assert without == set(WITHOUT)
    assert compared == 184


def test_matrix_products_convolutions_and_attention_agree_in_flops(test_data: Path) -> None:
    """All but the one whose output mask leaves a gradient out: half of what the other tool has."""
    differ, agree = [], 0
    for row, answer in rows(test_data):
        if row["category"] in MATRIX:
            assert isinstance(answer, Cost), row["name"]
            if "flops" in differing(row, answer):
                differ.append((row["name"], answer.flops / float(row["gflop"]) / 1e9))
            else:
                agree += 1
    assert differ == [("aten::convolution_backward", pytest.approx(0.5))]
    assert agree == 49


def test_convolution_and_batch_norm_cost_the_same_by_their_inner_operators(test_data: Path) -> None:
    """The other tool has them at the outer operator; kernels belong to the inner one."""
    found = 0
    for row, answer in rows(test_data):
        call = recorded(row)
        inner = None
        if row["name"] == "aten::convolution":
            x, weight, bias, stride, padding, dilation, _, _, groups = call.arguments
            inner = Call("aten::miopen_convolution", (x, weight, bias, padding, stride, dilation, groups))
        if row["name"] == "aten::batch_norm":
            inner = Call("aten::native_batch_norm", call.arguments[:8])
        if inner is not None:
            assert cost_of(inner) == answer
            found += 1
    assert found == 30
