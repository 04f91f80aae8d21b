# SPDX-License-Identifier: Apache-2.0
"""FLOPs of 40 kinds of GPU work on an H100, from the sizes in scripts/workloads/gpu_operators.py."""

from __future__ import annotations

from pathlib import Path

import pytest

import cclbench

CAUSAL = 1024 * 1025 // 2
"""Pairs of 1,024 queries and keys with key ≤ query."""

FLOPS = {
    ("grouped_mm", "aten::_grouped_mm"): 2 * 8192 * 1024 * 2048,
    ("scaled_grouped_mm", "aten::_scaled_grouped_mm"): 2 * 8192 * 1024 * 2048,
    ("scaled_mm_rowwise", "aten::_scaled_mm"): 2 * 4096 * 2048 * 4096,
    ("int_mm", "aten::_int_mm"): 2 * 4096 * 2048 * 4096,
    ("int4_mm", "aten::_weight_int4pack_mm"): 2 * 16 * 2048 * 4096,
    ("fp16_fp32_mm", "aten::mm"): 2 * 4096**3 + 2 * 2 * 2048**3 + 2 * 1024**3,
    ("einsum_bmm", "aten::bmm"): 2 * 64 * 512 * 512 * 256,
    ("einsum_bmm", "aten::baddbmm"): 2 * 64 * 512 * 512 * 256,
    ("einsum_bmm", "aten::mm"): 2 * 64 * 512 * 512 * 256,
    ("conv2d_nhwc", "aten::cudnn_convolution"): 2 * 32 * 28 * 28 * 256 * 128 * 9,
    ("conv2d_nhwc", "aten::convolution_backward"): 2 * 2 * 32 * 28 * 28 * 256 * 128 * 9,
    ("conv2d_nchw", "aten::cudnn_convolution"): 2 * 32 * 56 * 56 * 128 * 128 * 9,
    ("conv2d_depthwise", "aten::_conv_depthwise2d"): 2 * 16 * 56 * 56 * 256 * 49,
    ("conv_transpose2d", "aten::cudnn_convolution_transpose"): 2 * 16 * 32 * 32 * 128 * 64 * 16,
    ("conv1d_dilated", "aten::cudnn_convolution"): 2 * 16 * 4096 * 256 * 256 * 3,
    ("conv3d", "aten::cudnn_convolution"): 2 * 4 * 16 * 56 * 56 * 64 * 32 * 27,
    # 2 layers of 4 gates with 512 + 512 inputs, 32 sequences of 128
    ("lstm", "aten::_cudnn_rnn"): 2 * 32 * 128 * 2 * 4 * 512 * 1024,
    ("lstm", "aten::_cudnn_rnn_backward"): 2 * 2 * 32 * 128 * 2 * 4 * 512 * 1024,
    # products of queries and keys, of weights and values; five in the backward pass
    ("sdpa_causal", "aten::_cudnn_attention_forward"): 2 * 8 * 16 * CAUSAL * 2 * 128,
    ("sdpa_causal", "aten::_scaled_dot_product_cudnn_attention_backward"): 2 * 8 * 16 * CAUSAL * 5 * 128,
    ("sdpa_mask", "aten::_cudnn_attention_forward"): 2 * 8 * 16 * 1024**2 * 2 * 64,
    ("sdpa_gqa", "aten::_cudnn_attention_forward"): 2 * 8 * 32 * CAUSAL * 2 * 128,
    ("sdpa_fp32", "aten::_efficient_attention_forward"): 2 * 4 * 16 * (512 * 513 // 2) * 2 * 64,
    # 4,581 tokens in 8 sequences: equally long ones would have 573, three of them 572
    ("nested_attention", "aten::_flash_attention_forward"): 2 * 16 * (5 * 573**2 + 3 * 572**2) * 2 * 64,
    # LAPACK's n³/3, 2·n³/3 twice, n³ for each of four triangles, 4·n³/3 for R and for Q
    ("linalg", "aten::linalg_cholesky_ex"): 1024**3 // 3,
    ("linalg", "aten::linalg_lu_factor_ex"): 2 * (2 * 1024**3 // 3),
    ("linalg", "aten::linalg_solve_triangular"): 4 * 1024**3,
    ("linalg", "aten::linalg_qr"): 8 * 1024**3 // 3,
    # real, 2.5·log2 N for each of N = 1,024² points
    ("linalg", "aten::_fft_r2c"): 1024**2 * 25 * 20 // 10,
    ("embedding_bag", "aten::_embedding_bag"): 65536 * 128,
    ("embedding_bag", "aten::_embedding_bag_dense_backward"): 65536 * 128,
    ("upsample_bilinear", "aten::upsample_bilinear2d"): 9 * 16 * 128 * 128 * 128,
    ("cross_entropy", "aten::_log_softmax"): 5 * 8192 * 32_000,
    ("batch_norm", "aten::native_batch_norm"): 5 * 32 * 128 * 56 * 56,
    ("pooling", "aten::max_pool2d_with_indices"): 9 * 32 * 128 * 28 * 28,
    # two layers, 2 of 8 experts for 2,048 tokens: up and gate, down, and their gradients twice as much
    ("moe_eager", "aten::_grouped_mm"): 2 * 3 * 2 * 4096 * (1024 * 3584 + 1792 * 1024),
    ("compiled_mlp", "aten::addmm"): 2 * 2 * 8192 * 1024 * 4096,
    ("compiled_mlp", "aten::mm"): 4 * 2 * 8192 * 1024 * 4096,
}
"""By kind of work and operator."""

BYTES = {
    # 131,072 indices and rows of 256 numbers in bf16, of which the tensor has 65,536
    ("indexing", "aten::index"): 131072 * 8 + 65536 * 512 + 131072 * 512,
    # the mask left 33,002 rows
    ("boolean_index", "aten::index"): 33002 * 8 + 2 * 33002 * 512,
    ("scatter_gather", "aten::index_add"): 8192 * 8 + 3 * 8192 * 1024 * 4,
    ("cat_stack", "aten::cat"): 2 * 2 * 8 * 1024 * 1024 * 2,
}
"""Likewise."""

QUERY = """
SELECT substr(marks.name, 5) AS kind, work.name, sum(work.flops) AS flops, sum(work.bytes) AS bytes
FROM operator_work AS work JOIN operators USING (rank, operator) JOIN events AS marks
ON marks.kind = 'annotation' AND marks.side = 'host'
AND operators.start_ns BETWEEN marks.start_ns AND marks.start_ns + marks.dur_ns
GROUP BY ALL"""


@pytest.fixture(scope="module")
def run(repository: Path, evidence_store: Path) -> cclbench.Run:
    return cclbench.ingest(repository / "tests/golden/h100/gpu_operators.json.gz", store=evidence_store)


def test_flops_and_bytes_are_those_of_the_programs_sizes(run: cclbench.Run) -> None:
    rows = run.sql(QUERY).table.to_pylist()
    flops = {(row["kind"], row["name"]): row["flops"] for row in rows}
    moved = {(row["kind"], row["name"]): row["bytes"] for row in rows}
    assert {key: flops[key] for key in FLOPS} == FLOPS
    assert {key: moved[key] for key in BYTES} == BYTES


def test_work_without_a_cost_says_why(run: cclbench.Run) -> None:
    """A graph without its capture, blocks of a mask in device memory, a solution whose products count."""
    table = cclbench.operator_table.operator_costs(run)
    assert table.linked_share > 0.999
    assert table.modelled_share > 0.985
    assert not [row.key for row in table.rows if row.mark == "above"]
    bounds = {row.key for row in table.rows if "lower bound" in (row.assumes or "")}
    assert bounds == {"aten::_index_put_impl_", "aten::_flash_attention_forward", "aten::nonzero"}
    reasons = {row.why_not for row in table.rows if row.why_not and row.share > 0.0001}
    counted = "the operators that it calls are counted instead"
    why = {"which blocks of keys", counted, "no operator call is linked to it"}
    assert {reason.split(" its mask")[0] for reason in reasons} == why
