# SPDX-License-Identifier: Apache-2.0
"""Chains of a CPU's operators, and the precision of its arithmetic, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import a_rank, reason, values, window

from cclbench.analyzers.view.rank_view import RankView

NS = 1e-9
FLOAT, DOUBLE = "float", "double"


def call(name: str, ns: int, *shapes: str, dtype: str = FLOAT) -> dict[str, Any]:
    """A call of so many ns on tensors of those shapes, `""` for a number."""
    types = ",".join(f'"{dtype}"' if one else '"Scalar"' for one in shapes)
    listed = ",".join(one or "[]" for one in shapes)
    return {"name": f"aten::{name}", "device_ns": ns, "shapes": f"[{listed}]", "dtypes": f"[{types}]"}


def a_cpu(*calls: dict[str, Any]) -> RankView:
    rows = [{"operator": n, "start_ns": n, "end_ns": n + 1, **one} for n, one in enumerate(calls)]
    return a_rank([], [window(0, 1_000)], operators=rows, works_on="host")


def parts(rank: RankView, metric: str) -> dict[tuple[str | None, str | None], float]:
    """ns by category and stat."""
    return {(one.category, one.stat): (one.value or 0) / NS for one in values(rank, metric)}


V = "[1000]"

UPDATE = [
    *(call("mul_", 1_000, V, ""), call("copy_", 5, "[]", "[]", ""), call("lerp_", 1_000, V, V, "")),
    *(
        call("mul_", 1_000, V, ""),
        call("addcmul_", 1_000, V, V, V, ""),
        {"name": "aten::item", "device_ns": 5},
    ),
    *(
        call("sqrt", 1_000, V),
        call("div", 1_000, V, ""),
        call("detach", 5, V),
        call("add_", 1_000, V, "", ""),
    ),
    call("addcdiv_", 1_000, V, V, V, ""),
]


def test_an_update_in_passes_moves_three_times_what_one_kernel_moves() -> None:
    """84 kB: 8, 12, 8, 16, 8, 8, 8 and 16; one kernel reads 16 kB and writes 12."""
    found = parts(a_cpu(*UPDATE), "compute.unfused")
    assert found[None, None] == found["optimizer", None] == pytest.approx(8_000)
    assert found["optimizer", "fused"] == pytest.approx(8_000 * 28 / 84)
    # What moves unknown bytes gains nothing.
    unknown = [{**one, "shapes": None, "dtypes": None} for one in UPDATE if one["name"] != "aten::copy_"]
    unknown = [one for one in unknown if one["name"] != "aten::detach"]
    found = parts(a_cpu(*unknown), "compute.unfused")
    assert found["optimizer", "fused"] == found["optimizer", None] == pytest.approx(8_000)
    # An operator between breaks the chain.
    broken = [*UPDATE[:4], call("mm", 50, "[10,10]", "[10,10]"), *UPDATE[4:]]
    assert parts(a_cpu(*broken), "compute.unfused") == {(None, None): 0.0}


def test_the_time_of_a_precision_is_that_of_operators_whose_types_are_recorded() -> None:
    rank = a_cpu(
        call("mm", 300, "[10,10]", "[10,10]", dtype=DOUBLE),
        call("mm", 100, "[10,10]", "[10,10]"),
        call("view", 10, V, dtype=DOUBLE),
        {"name": "mine::sort_of", "device_ns": 50},
    )
    assert parts(rank, "compute.precision_time") == pytest.approx(
        {(None, None): 400.0, ("fp64", None): 300.0, ("fp32", None): 100.0}
    )
    untyped = a_cpu({"name": "aten::mm", "device_ns": 50})
    assert "record_shapes" in reason(untyped, "compute.precision_time")
