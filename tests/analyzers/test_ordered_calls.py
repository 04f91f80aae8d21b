# SPDX-License-Identifier: Apache-2.0
"""A rank's work by its place in the step, worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import a_rank, compute, window

from cclbench.analyzers.view.ordered_calls import CallPlace, PlacedCalls, ordered_calls

MM = {"name": "aten::mm", "shapes": "[[10,10],[10,10]]", "dtypes": '["float","float"]'}
ADD = {"name": "aten::add", "shapes": "[[10]]", "dtypes": '["float"]'}


def test_places_of_two_steps() -> None:
    """Step 1: mm, add, add; step 2: mm, add.  The second add of step 1 is a place of its own.

    mm of 10 x 10 x 10 is 2,000 FLOPs; it is at 1/6 of step 1 and 1/4 of step 2.
    """
    operators: list[dict[str, Any]] = [
        {"operator": number, **kind} for number, kind in enumerate((MM, ADD, ADD, MM, ADD), start=1)
    ]
    layers = ("Net_0/Layer_0", "Net_0/Layer_0", "Net_0/Layer_1", "Net_0/Layer_0", "Net_0/Layer_0")
    spans = ((0, 10), (20, 25), (30, 37), (100, 112), (120, 121))
    rows = [
        compute(*span, operator=number, name="k", phase="forward", module=layer)
        for number, (span, layer) in enumerate(zip(spans, layers, strict=True), start=1)
    ]
    found = ordered_calls(a_rank(rows, [window(0, 99, 1), window(100, 199, 2)], operators=operators))
    layer = "Net_*/Layer_*"
    assert found == {
        CallPlace("forward", layer, "matrix product 2000", 0): PlacedCalls(
            "aten::mm", "matrix product", 2, 22, pytest.approx(1 / 6 + 1 / 4)
        ),
        CallPlace("forward", layer, "aten::add(fp32[10])", 0): PlacedCalls(
            "aten::add", None, 2, 6, pytest.approx(1 / 2 + 3 / 4)
        ),
        CallPlace("forward", layer, "aten::add(fp32[10])", 1): PlacedCalls(
            "aten::add", None, 1, 7, pytest.approx(5 / 6)
        ),
    }


def test_a_kernel_without_a_call_or_no_work() -> None:
    """It has its own name, and no module."""
    (item,) = ordered_calls(a_rank([compute(0, 5, name="alone")], [window(0, 9, 1)])).items()
    assert item == (CallPlace("other", "none", "alone", 0), PlacedCalls("alone", None, 1, 5, 0.5))
    # No work.
    assert ordered_calls(a_rank([], [window(0, 9, 1)])) == {}
