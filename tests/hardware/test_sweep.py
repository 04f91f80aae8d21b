# SPDX-License-Identifier: Apache-2.0
"""Sweeps at their bounds, in words, without a size, and merged."""

from __future__ import annotations

from typing import Any

import pytest

from cclbench.ground.errors import InputError, UsageError
from cclbench.hardware.sweep import Sweep, group_words, merge_sweeps

GOOD: dict[str, Any] = {"kind": "all_reduce", "ranks": 4, "nodes": 2, "bytes": (8, 16, 32)}
GOOD["seconds"] = (1e-5, 2e-5, 3e-5)


@pytest.mark.parametrize(
    "fields",
    [
        {"ranks": 2, "nodes": 2},
        {"ranks": 1 << 20},
        {"nodes": 1},
        {"nodes": 4},
        {"bytes": (1, 2, 1 << 50)},
        {"seconds": (1e-12, 1.0, 1e6)},
    ],
)
def test_what_is_a_sweep_still(fields: dict[str, Any]) -> None:
    assert Sweep(**GOOD | fields).ranks >= 2


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        *(({"ranks": 1}, "impossible group"), ({"nodes": 5}, "impossible group")),
        *(({"bytes": (8, 8, 16)}, "do not ascend"), ({"bytes": (0, 8, 16)}, "1 B and 1 PiB")),
        *(({"seconds": (seconds, 1.0, 1.0)}, "above 0 s") for seconds in (0.0, float("nan"), float("inf"))),
        ({"ranks": (1 << 20) + 1}, "among 1,048,577 ranks on 2 nodes: impossible group"),
        ({"nodes": 0}, "on 0 nodes: impossible group"),
        ({"bytes": (), "seconds": ()}, "0 sizes and 0 times"),
        ({"bytes": (8, 16)}, "2 sizes and 3 times"),
        ({"bytes": (8, 32, 16)}, "sizes do not ascend"),
        ({"bytes": (8, 16, (1 << 50) + 1)}, "sizes are not between 1 B and 1 PiB"),
        ({"seconds": (1.0, 1.0, 1e6 + 1)}, "times are not above 0 s and at most 1,000,000 s"),
        ({"kind": "x" * 41}, f"sweep of {'x' * 40} among 4 ranks: unknown collective; known: all_reduce"),
    ],
)
def test_what_is_no_sweep_any_more(fields: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError) as raised:
        Sweep(**GOOD | fields)
    assert what in str(raised.value)


def test_a_sweep_in_words() -> None:
    assert Sweep(**GOOD).display_name == "a sweep"
    own = Sweep(**GOOD, source="a.csv")
    assert (own.display_name, own.group_words) == ("a.csv", "all_reduce, 4 ranks on 2 nodes")
    assert own.without_origin == Sweep(**GOOD)
    assert group_words("all_gather", 1024, 1) == "all_gather, 1,024 ranks on 1 node"
    # sizes that one of them has alone are kept; another group or collective stays apart
    other = Sweep(**GOOD | {"bytes": (4, 8), "seconds": (1e-6, 3e-5)}, source="b")
    third = Sweep(**GOOD | {"bytes": (8,), "seconds": (9e-5,)})
    apart = [Sweep(**GOOD | change) for change in ({"nodes": 1}, {"ranks": 8}, {"kind": "all_gather"})]
    found = merge_sweeps([Sweep(**GOOD, source="a"), other, *apart, third])
    assert found[1:] == apart
    assert found[0] == Sweep("all_reduce", 4, 2, (4, 8, 16, 32), (1e-6, 3e-5, 2e-5, 3e-5))
    # sweeps of two releases are not merged
    with pytest.raises(UsageError) as raised:
        merge_sweeps([Sweep(**GOOD, library_version="2.27.3", source="a"), Sweep(**GOOD, source="b")])
    assert str(raised.value) == (
        "a and b both measure all_reduce, 4 ranks on 2 nodes, with releases 2.27.3 and unknown; "
        "a calibration covers one release: give one of them"
    )


@pytest.mark.parametrize(("at", "left"), [(0, (16, 32)), (1, (8, 32)), (2, (8, 16))])
def test_a_sweep_without_one_of_its_sizes(at: int, left: tuple[int, ...]) -> None:
    found = Sweep(**GOOD).without_size(at)
    assert found.bytes == left
    assert found.seconds == tuple(
        dict(zip(GOOD["bytes"], GOOD["seconds"], strict=True))[size] for size in left
    )
