# SPDX-License-Identifier: Apache-2.0
"""A JAX job whose kernels run in CUDA graphs, on an H100: what they run by names and order."""

from __future__ import annotations

from pathlib import Path

import pytest

import cclbench

DATA = Path(__file__).resolve().parents[2] / "traces/tiny-jax-h100"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> cclbench.Run:
    return cclbench.ingest(DATA, store=tmp_path_factory.mktemp("store"))


def test_kernels_have_their_instructions_and_products_in_order_their_layout(run: cclbench.Run) -> None:
    """All but XLA's own copies. cuBLAS names its kernels by the layout of both operands.

    nn contracts the last dimension of the left one and the first of the right one, tn the last of both; nt is
    for a transposed left operand.  165 kernels agree, though nothing but their order joins them.
    """
    rows = run.sql(
        "SELECT sum(dur_ns) FILTER (framework_op IS NOT NULL) / sum(dur_ns) AS linked FROM events"
        " WHERE kind = 'kernel' AND side = 'device'"
    ).to_pylist()
    assert rows[0]["linked"] > 0.978
    rows = run.sql(
        """SELECT regexp_extract(name, '_f32_(nn|nt|tn)_', 1) AS layout, "values" ->> 2 AS left,
        "values" ->> 3 AS right, "values" ->> 4 AS batch, phase, shapes, count(*) AS kernels FROM events
        WHERE kind = 'kernel' AND name LIKE 'sm90_xmma_gemm%' GROUP BY ALL"""
    ).to_pylist()
    assert sum(row["kernels"] for row in rows) == 165
    for row in rows:
        contracted = (row["left"], row["right"])
        if row["phase"] == "forward":
            assert (row["layout"], contracted) == ("nn", ("[1]", "[0]"))
        elif row["layout"] == "tn":
            assert contracted == ("[1]", "[1]")
        elif row["batch"] == "[]":
            assert (row["layout"], contracted) == ("nt", ("[1]", "[0]"))
