# SPDX-License-Identifier: Apache-2.0
"""Requests in a step's annotation, and what attention to their cached keys costs by their lengths."""

from __future__ import annotations

import pytest

from cclbench.classify import serving_steps
from cclbench.operators.call import NoModel, parse_call
from cclbench.operators.cost import cost_of

# A prefill of 3 queries behind 2 cached keys (q = 3, k = 5), and two requests that generate: 1 query to 4 and
# to 6 keys.  Pairs: 3 · 5 − 3 · 2 / 2 = 12 (the queries attend to 3, 4 and 5 keys), 4 and 6.
STEP = "execute_3_context_1(sq3sk5sqsq9sqsk15)_generation_2(sq2sk10sqsq2sqsk10)"


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        (STEP, (15, 22)),
        # two prefills of 2 and 3 queries to 2 and 5 keys: 3 and 12 pairs; one of 4 keys generates: 4 pairs
        ("execute_6_context_2(sq5sk7sqsq13sqsk19)_generation_1(sq1sk4sqsq1sqsk4)", (11, 19)),
        *(
            (other, None)
            for other in ("", "execute_context_1(5)_generation_2(2)", "step[DECODE bs=2]", STEP[:-3])
        ),
    ],
)
def test_sums_over_requests_are_those_of_both_phases(name: str, lengths: tuple[int, int] | None) -> None:
    assert serving_steps.request_lengths(name) == lengths


SHAPES = "[[5,4,8],[5,2,8],[5,2,8],[5,4,8],[],[],[],[0]]"
TYPES = '["c10::BFloat16","c10::BFloat16","c10::BFloat16","c10::BFloat16","","","","c10::BFloat16"]'


def test_attention_to_cached_keys() -> None:
    """22 pairs, 4 heads, 8 a head: 2 · 22 · 4 · 16 FLOP.

    5 queries and results of 64 B, 15 keys and values of 2 heads: 15 · 2 · 16 · 2 B.
    """
    cost = cost_of(parse_call("vllm::unified_attention_with_output", SHAPES, TYPES, annotation=STEP))
    assert (cost.flops, cost.precision) == (2816, "bf16")
    assert (cost.read_bytes, cost.written_bytes) == (5 * 64 + 960, 5 * 64)
    assert "annotation" in (cost.assumes or "")
    with pytest.raises(NoModel, match="lies in device memory"):
        cost_of(parse_call("vllm::unified_attention_with_output", SHAPES, TYPES))


def test_a_prefill_without_sums_has_the_fewest_pairs() -> None:
    """5 tokens of 2 requests: 2 and 3 of them have 3 + 6 pairs; 2 · 9 · 4 · 16 FLOP, 5 keys and values."""
    step = "execute_5_context_2(5)_generation_0(0)"
    assert serving_steps.prefill_lengths(step) == (5, 9)
    cost = cost_of(parse_call("vllm::unified_attention_with_output", SHAPES, TYPES, annotation=step))
    assert (cost.flops, cost.read_bytes, cost.written_bytes) == (1152, 5 * 64 + 320, 5 * 64)
    assert "lower bound" in (cost.assumes or "")


@pytest.mark.parametrize(
    "name",
    [f"execute_context_{one}" for one in ("2(5)_generation_1(1)", "0(0)_generation_0(0)", "6(5)")] + [STEP],
)
def test_keys_of_other_steps_are_not_bounded(name: str) -> None:
    assert serving_steps.prefill_lengths(name) is None


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        *((STEP, 3), ("execute_context_2(512)_generation_6(6)", 8), ("step[DECODE bs=32]", 32)),
        *(("step[DECODE]", None), ("ProfilerStep#3", None), (f"step[DECODE bs={'9' * 15}]", 10**15 - 1)),
        *((f"step[DECODE bs={'9' * 16}]", None), (f"execute_context_1_generation_{'9' * 16}", None)),
        (f"step[DECODE bs={'9' * 5000}]", None),
    ],
)
def test_the_requests_of_a_step(name: str, requests: int | None) -> None:
    assert serving_steps.batch_size(name) == requests


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("execute_context_2(512)_generation_0(0)", "prefill"),
        ("execute_6_context_0(0)_generation_6(6)", "decode"),
        *(("execute_context_10_generation_20", "mixed"), ("execute_context_00(0)_generation_0(0)", None)),
        *(("step[EXTEND bs=2 toks=512]", "prefill"), ("step[DECODE bs=2]", "decode")),
        *(("step[MIXED bs=2]", "mixed"), ("step[IDLE bs=0]", None), ("ProfilerStep#3", None)),
    ],
)
def test_the_phase_of_a_step(name: str, phase: str | None) -> None:
    assert serving_steps.serving_phase(name) == phase


def test_steps_are_known_by_the_engine_that_names_them() -> None:
    vllm, sglang, other = "execute_context_0_generation_0", "step[IDLE bs=0]", "step 3"
    assert [serving_steps.is_vllm_step(name) for name in (vllm, sglang, other)] == [True, False, False]
    assert [serving_steps.is_serving_step(name) for name in (vllm, sglang, other)] == [True, True, False]
