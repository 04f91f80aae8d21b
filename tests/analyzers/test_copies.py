# SPDX-License-Identifier: Apache-2.0
"""Copies that no kernel hides, by where they move bytes from and to."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.hand_made import a_rank, comm, compute, event, window

from cclbench.analyzers.view.copies import exposed_copies


def copy(start: int, end: int, name: str = "Memcpy", direction: str | None = None) -> dict[str, Any]:
    return event("copy", start, end, name=name, copy_direction=direction, track=3)


@pytest.mark.parametrize(
    ("row", "label"),
    [
        (copy(0, 1, "Memcpy HtoD (Pageable -> Device)", "h2d"), "h2d pageable"),
        (copy(0, 1, "Memcpy DtoH (Device -> Pinned)", "d2h"), "d2h pinned"),
        (copy(0, 1, "Memcpy HtoH (Pinned -> Pageable)", "h2h"), "h2h pageable"),
        (copy(0, 1, "Memcpy DtoD", "d2d"), "d2d"),
        (copy(0, 1, "Memcpy (Pinned)"), "copy pinned"),
        (copy(0, 1), "copy"),
        (event("memset", 0, 1, name="Memset (Pinned)", copy_direction="h2d"), "memset"),
    ],
)
def test_a_label_is_the_direction_and_the_hosts_memory(row: dict[str, Any], label: str) -> None:
    (found,) = exposed_copies(a_rank([row], [window(0, 10)])).items()
    assert (found[0], found[1].length) == (label, 1)


def test_only_what_no_kernel_hides_counts_and_each_instant_once() -> None:
    """Labels in order of their names; 0-10 is two copies of one label in two batches."""
    rows = [
        copy(0, 10, "Memcpy (Pinned)", "h2d"),
        event("memset", 20, 30, track=3),
        copy(5, 8, "Memcpy 2 (Pinned)", "h2d"),
        copy(28, 50, "Memcpy", "d2d"),
        compute(8, 25),
        comm(40, 45),
        copy(60, 64, "Memcpy (Pinned)", "h2d"),
    ]
    found = exposed_copies(a_rank(rows, [window(0, 100)]))
    assert {label: list(zip(own.starts, own.ends, strict=True)) for label, own in found.items()} == {
        "d2d": [(28, 40), (45, 50)],
        "h2d pinned": [(0, 8), (60, 64)],
        "memset": [(25, 30)],
    }
    assert list(found) == ["d2d", "h2d pinned", "memset"]


def test_a_cpu_copies_nothing() -> None:
    assert exposed_copies(a_rank([copy(0, 10)], [window(0, 10)], works_on="host")) == {}
