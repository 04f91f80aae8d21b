# SPDX-License-Identifier: Apache-2.0
"""The measured allocation that made a peak, matched to a program by its size alone where that is unique."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cclbench.analyzers.view.allocator import History
from cclbench.present.program_memory import peak_allocation

HISTORY = History(
    source="xplane",
    file=None,
    rank=0,
    device=0,
    time_ns=np.array([1, 2, 3, 4]),
    allocated=np.array([1024, 2048, 3072 + 5120, 1024]),
    reserved=None,
)
"""The peak is reached by an allocation of 6144 B."""


def program(module: str, **largest: int) -> dict[str, Any]:
    return {"module": module, "largest": largest}


@pytest.mark.parametrize("assigned", [6144, 6143, 5889])
def test_sizes_are_rounded_up_to_256_bytes(assigned: int) -> None:
    other = program("jit_g", temporary=5888, output=6145, parameter=6144)
    found = peak_allocation(HISTORY, [program("jit_f", temporary=assigned, output=8), other])
    assert found == {"module": "jit_f", "kind": "temporary", "bytes": 6144, "assigned": assigned}


def test_no_program_is_named_where_the_size_does_not_tell() -> None:
    f, g = program("jit_f", temporary=6144), program("jit_g", output=6144)
    assert peak_allocation(HISTORY, [f, g]) is None
    assert peak_allocation(HISTORY, [program("jit_f", temporary=6144, output=6144)]) is None
    assert peak_allocation(HISTORY, [program("jit_f", parameter=6144)]) is None
    assert peak_allocation(HISTORY, []) is None
    assert peak_allocation(replace(HISTORY, source="kineto"), [f]) is None
    # The first event is the peak: what it allocated is unknown.
    assert peak_allocation(replace(HISTORY, allocated=np.array([6144, 0, 0, 0])), [f]) is None
    # Allocations of 256 B or less are too many to be told apart.
    small = replace(HISTORY, allocated=np.array([0, 256, 0, 0]))
    assert peak_allocation(small, [program("jit_f", output=4)]) is None
