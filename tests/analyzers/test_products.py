# SPDX-License-Identifier: Apache-2.0
"""How products are computed, by their kernels' names."""

from __future__ import annotations

import pytest
from helpers.hand_made import a_rank, comm, compute, window
from helpers.hand_values import in_ns, main, parts, reason, values

ROWS = [
    compute(0, 4_000, name="ampere_sgemm_128x128_tn", category="gemm"),
    compute(4_000, 5_000, name="ampere_sgemm_64x64_nn", category="gemm"),
    compute(5_000, 7_000, name="cutlass_80_tensorop_s1688gemm_128x128_16x4_nt_align1", category="gemm"),
    compute(7_000, 10_000, name="volta_h884gemm_64x64_ldg8_nt", category="convolution"),
    compute(10_000, 16_000, name="void gemv2T_kernel_val<int, float>()", category="gemm"),
    compute(16_000, 20_000, name="triton_poi_fused_add_0", category="elementwise"),
]


def test_products_by_what_their_names_tell() -> None:
    """16 µs of products in two steps: 5 without tensor cores, 2 misaligned, 6 told by no name."""
    rank = a_rank(ROWS, [window(0, 10_000, 1), window(10_000, 20_000, 2)])
    precisions = {"fp32": 2_500, "tf32": 1_000, "fp16": 1_500}
    expected = {("of_precision", name): ns for name, ns in precisions.items()}
    expected |= {("without_tensor_cores", "fp32"): 2_500, ("misaligned", "tf32"): 1_000}
    expected |= {("of_generation", "sm70"): 1_500, ("of_generation", "sm80"): 3_500}
    found = in_ns(parts(rank, "compute.product_time"))
    assert found == pytest.approx({None: 8_000, "unnamed": 3_000, **expected})
    reasons = {v.category: v.reason for v in values(rank, "compute.product_time")}
    assert reasons["without_tensor_cores"] == "mostly ampere_sgemm_128x128_tn"


def test_what_a_compiler_made() -> None:
    rank = a_rank(ROWS, [window(0, 20_000)])
    assert main(rank, "compute.compiled_share") == pytest.approx(4 / 20)
    alone = a_rank(ROWS[-1:], [window(0, 20_000)])
    assert reason(alone, "compute.product_time") == "no matrix product or convolution begins in the window"


def test_communication_on_streams_that_compute() -> None:
    """3 of 4 µs of communication are on the stream of 20 µs of compute; another computes for 0.5."""
    rows = [compute(0, 20_000, track=7), comm(20_000, 23_000, track=7), compute(23_000, 23_500, track=9)]
    rows += [comm(24_000, 25_000, track=9)]
    assert main(a_rank(rows, [window(0, 30_000)]), "overlap.same_stream") == pytest.approx(0.75)
    alone = a_rank(rows[:1], [window(0, 30_000)])
    assert reason(alone, "overlap.same_stream").startswith("the rank runs no communication kernels")
