# SPDX-License-Identifier: Apache-2.0
"""FLOPs of 35 kinds of JAX's GPU work on an H100, from the sizes in scripts/workloads/jax_operators.py.

A convolution counts the positions of its kernel that are not padding: of 56 positions with 3 each and one of
padding at both ends 166 = 3·56 − 2.  Factorisations and solutions ran on a CPU: of m by n and the
smaller k LU of a tall matrix m·k² − k³/3, R of QR 2·m·k² − 2·k³/3 (of a wide one 2·n·k² − 2·k³/3), Q of it
4·m·n·k − 2·(m + n)·k² + 4·k³/3; a triangle n an element.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import cclbench
import cclbench.operator_table

PAIRS = 4 * 16 * 2048 * 2049 // 2
"""Pairs of queries and keys with key ≤ query, over batch and heads."""

FLOPS = {
    ("conv2d_nhwc", "conv_general_dilated"): 2 * 16 * 256 * 128 * 166**2,
    # outputs 0 to 55 at 2·o − 1: one position of padding before, none after
    ("conv2d_nchw_stride2", "conv_general_dilated"): 2 * 16 * 128 * 64 * (3 * 56 - 1) ** 2,
    ("conv2d_f32", "conv_general_dilated"): 2 * 8 * 28**2 * 256 * 512,
    # dilated by 2: two positions of padding at each end, of two of the outputs
    ("conv2d_dilated", "conv_general_dilated"): 2 * 8 * 64 * 64 * (3 * 64 - 4) ** 2,
    ("conv2d_grouped", "conv_general_dilated"): 2 * 8 * 256 * 32 * 166**2,
    ("conv2d_depthwise", "conv_general_dilated"): 2 * 8 * 128 * 166**2,
    # the program pads by itself
    ("conv1d", "conv_general_dilated"): 2 * 16 * 2048 * 256 * 256 * 4,
    # 2 of 2 positions; 31 outputs at 2·o − 1 of 60, 53 of 104: one of padding at both ends
    ("conv3d", "conv_general_dilated"): 2 * 2 * 512 * 16 * 32 * (2 * 31 - 2) * (2 * 53 - 2),
    # the program spreads its input by itself
    ("conv_transposed", "conv_general_dilated"): 2 * 8 * 56**2 * 128 * 128 * 9,
    ("conv2d_grad", "conv_general_dilated"): 2 * 2 * 16 * 256 * 128 * 166**2,
    ("conv_bias_relu", "conv_general_dilated"): 2 * 16 * 256 * 256 * (3 * 28 - 2) ** 2,
    ("matmul_bf16", "dot_general"): 2 * 4096 * 4096 * 2048,
    ("matmul_f32", "dot_general"): 2 * 2048 * 2048 * 1024,
    ("matmul_f32_highest", "dot_general"): 2 * 2048 * 2048 * 1024,
    ("matmul_batched", "dot_general"): 2 * 32 * 512 * 512 * 256,
    ("matmul_int8", "dot_general"): 2 * 4096**3,
    ("matmul_fp8", "dot_general"): 2 * 4096 * 4096 * 2048,
    ("matmul_bias_gelu", "dot_general"): 2 * 4096 * 4096 * 1024,
    # in 8 parts, which are added
    ("gemv", "dot_general"): 2 * 4096 * 4096 + 8 * 4096,
    # all pairs: scores, scaled as they are made, and sums of values
    ("attention_xla", "dot_general"): 2 * 2 * 64 * 2048**2 * 64 + 64 * 2048**2,
    ("attention_cudnn", "dot_product_attention_fwd"): 2 * PAIRS * 2 * 64,
    ("attention_cudnn_grad", "dot_product_attention_fwd"): 2 * PAIRS * 2 * 64,
    ("attention_cudnn_grad", "dot_product_attention_bwd"): 2 * PAIRS * 5 * 64,
    ("sort", "sort"): 0,
    ("fft", "fft"): 5 * 1024 * 4096 * 12,
    ("scatter_add", "scatter-add"): 8192 * 256,
    ("cholesky", "cholesky"): 1024**3 // 3,
    ("cholesky", "dot_general"): 2 * 1024**3,
    ("triangular_solve", "triangular_solve"): 1024 * 1024 * 512,
    # the program multiplies each row with zeros for the other seven groups
    ("ragged_dot", "dot_general"): 2 * 4096 * 8 * 1024 * 1024,
    ("scan_matmul", "dot_general"): 16 * (2 * 1024**3 + 1024**2),
}
"""By kind of work and operator."""

BYTES = {
    # a row of 256 numbers in bf16 for each of 65,536 indices, of 50,000 rows
    ("gather", "gather"): 65536 * 4 + (50_000 + 65536) * 512,
    # updates, and the rows that they are added to, before and after
    ("scatter_add", "scatter-add"): 8192 * 4 + 3 * 8192 * 1024,
    # sorted with the place of each
    ("sort", "sort"): 1024 * 8192 * 4 * 3,
    ("conv_bias_relu", "conv_general_dilated"): 2 * (2 * 16 * 28**2 * 256 + 9 * 256 * 256 + 256),
    ("attention_cudnn", "dot_product_attention_fwd"): 4 * 4 * 2048 * 16 * 64 * 2,
}
"""Likewise."""

QUERY = """
SELECT substr(marks.name, 5) AS kind, work.name, count(*) AS calls, sum(work.flops)::BIGINT AS flops,
  sum(work.bytes)::BIGINT AS bytes, list(DISTINCT work.precision) AS precisions
FROM operator_work AS work JOIN operators USING (rank, operator) JOIN events AS marks
ON marks.side = 'host' AND starts_with(marks.name, 'zoo:')
AND operators.start_ns BETWEEN marks.start_ns AND marks.start_ns + marks.dur_ns
GROUP BY ALL"""


@pytest.fixture(scope="module")
def profile(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The profile, inflated."""
    path = tmp_path_factory.mktemp("jax") / "jax_operators.xplane.pb"
    packed = repository / "tests/golden/h100/jax_operators.xplane.pb.gz"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


@pytest.fixture(scope="module")
def run(profile: Path, evidence_store: Path) -> cclbench.Run:
    return cclbench.ingest(profile, store=evidence_store)


@pytest.fixture(scope="module")
def works(run: cclbench.Run) -> dict[tuple[str, str], dict[str, Any]]:
    """By kind of work and operator."""
    rows = run.sql(QUERY).table.to_pylist()
    return {(row["kind"], row["name"]): row for row in rows}


def test_flops_and_bytes_are_those_of_the_programs_sizes(works) -> None:
    assert {key: works[key]["flops"] for key in FLOPS} == FLOPS
    assert {key: works[key]["bytes"] for key in BYTES} == BYTES


def test_kernels_of_one_execution_are_one_call(works, run) -> None:
    """Twelve of a grouped convolution in four streams; three and a copy of a sort, annotated apart."""
    convolution, product = "conv_general_dilated", "dot_general"
    calls = {("conv2d_grouped", convolution): 1, ("sort", "sort"): 1, ("scan_matmul", product): 16}
    calls |= {("triangular_solve", "triangular_solve"): 2}  # it transposes the result in a fusion
    assert {key: works[key]["calls"] for key in calls} == calls
    table = run.operators().to_pandas()
    assert sorted(table[table["name"] == convolution]["kernels"])[-3:] == [2, 5, 12]
    assert table["kernels"].sum() == 171 + 4 * 3  # events of five streams
    precisions = {("matmul_f32", product): "tf32", ("matmul_f32_highest", product): "fp32"}
    precisions |= {("matmul_int8", product): "int8", ("matmul_fp8", product): "fp8"}
    precisions |= {("conv2d_f32", convolution): "tf32"}
    assert {key: works[key]["precisions"] for key in precisions} == {k: [p] for k, p in precisions.items()}


def test_all_work_has_a_cost(run: cclbench.Run) -> None:
    table = cclbench.operator_table.operator_costs(run)
    assert table.linked_share == table.modelled_share == 1
    assert {row.assumes for row in table.rows} >= {"no index occurs twice", None}


def test_xprof_installed_agrees(profile, tmp_path) -> None:
    """Products and convolutions, where it is installed, but for what it counts in another way.

    It counts an instruction once for each of its kernels, the gradient of a kernel as a convolution with the
    result's gradient as the kernel, a tangent as 196 operations, and attention and solutions not at all.
    """
    convert = pytest.importorskip("xprof.convert.raw_to_tool_data")
    copy = tmp_path / profile.name  # xprof writes beside it
    copy.write_bytes(profile.read_bytes())
    shown, _ = convert.xspace_to_tool_data([str(copy)], "hlo_stats", {})
    table = json.loads(shown)
    columns = [column["id"] for column in table["cols"]]
    theirs = defaultdict[str, float](float)
    for row in table["rows"]:
        cells = dict(zip(columns, (cell.get("v") for cell in row["c"]), strict=True))
        op = cells["hlo_op_expression"].partition("=")[0]
        product = any(word in cells["hlo_op_name"] for word in ("dot", "cudnn-conv", "cublas", "custom-call"))
        if product and "bw-filter" not in op:
            name = cells["tf_op_name"].partition("/")[0].removeprefix("jit(").removesuffix(")")
            flops = cells["model_flop_rate"] * cells["total_self_time"] * 1e3
            theirs[name] += flops / cells["occurrences"]
    compared = {key: FLOPS[key] for key in FLOPS if key[1] in ("conv_general_dilated", "dot_general")}
    ours = {kind: flops // (2 if kind == "conv2d_grad" else 1) for (kind, _), flops in compared.items()}
    del ours["scan_matmul"], ours["gemv"]  # the latter has no path in the program
    assert {kind: theirs[kind] for kind in ours} == pytest.approx(ours, rel=0.01)


ALGEBRA = "linear algebra"
ALGEBRA_OPERATORS = ("lu", "geqrf", "householder_product", "triangular_solve", "eigh", "svd")
ALGEBRA_FLOPS = {
    "lu(fp32[3,96,64])": 3 * 96 * 64**2 - 64**3,
    "geqrf(fp32[160,48])": 2 * 160 * 48**2 - 2 * 48**3 // 3,
    "householder_product(fp32[160,48], fp32[48])": 4 * 160 * 48**2 - 2 * 208 * 48**2 + 4 * 48**3 // 3,
    "geqrf(fp32[2,48,80])": 2 * (2 * 80 * 48**2 - 2 * 48**3 // 3),
    "householder_product(fp32[2,48,48], fp32[2,48])": 2 * 4 * 48**3 // 3,
    "lu(fp32[64,64])": 2 * 64**3 // 3,
    # two triangles, each of 64 rows
    "triangular_solve(fp32[64,64], fp32[64,8])": 2 * 64 * 64 * 8,
    "triangular_solve(fp32[64,64], fp32[24,64])": 64 * 24 * 64,
}


def test_flops_are_those_of_the_programs_sizes(repository: Path, tmp_path: Path) -> None:
    packed = repository / "tests/golden/jax_linear_algebra_cpu.xplane.pb.gz"
    profile = tmp_path / "linear_algebra.xplane.pb"
    profile.write_bytes(gzip.decompress(packed.read_bytes()))
    run = cclbench.ingest(profile, store=tmp_path / "runs")
    table = cclbench.operator_table.operator_costs(run, "shape", window="trace")
    rows = {row.key: row for row in table.rows if row.operator in ALGEBRA_OPERATORS and row.family == ALGEBRA}
    assert {key: row.flops for key, row in rows.items() if row.flops is not None} == ALGEBRA_FLOPS
    assert rows["lu(fp32[64,64])"].precision == "fp32"
    assert {row.why_not for row in table.rows if row.why_not} == {
        f"the number of iterations of {name} depends on the values of its matrix" for name in ("eigh", "svd")
    }
