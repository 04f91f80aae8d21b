# SPDX-License-Identifier: Apache-2.0
"""The attribution: whole nanoseconds that sum to the difference, whatever the floats."""

from __future__ import annotations

from fractions import Fraction

import pytest
from helpers.compared_subjects import parts_of, row, subject
from hypothesis import given
from hypothesis import strategies as st

from cclbench.comparison.attribution import change_of_step, part_changes, round_to_total


@pytest.mark.parametrize(
    ("exact", "total", "expected"),
    [
        (["1/2", "1/2"], 1, [1, 0]),  # a tie: the first
        (["1/3", "1/3", "1/3"], 1, [1, 0, 0]),
        (["5/2", "-3/4", "1/4"], 2, [3, -1, 0]),  # floors 2, -1, 0; remainders 1/2, 1/4, 1/4
        (["3", "-1"], 2, [3, -1]),
        (["29999999999/10000000000", "-1"], 2, [3, -1]),  # a float just below a whole number
        ([], 0, []),
    ],
)
def test_whole_numbers_by_largest_remainder(exact: list[str], total: int, expected: list[int]) -> None:
    assert round_to_total([Fraction(number) for number in exact], total) == expected


@given(st.lists(st.fractions(min_value=-1000, max_value=1000), min_size=1, max_size=7))
def test_they_sum_and_each_is_near(exact: list[Fraction]) -> None:
    total = round(sum(exact))
    found = round_to_total(exact, total)
    assert sum(found) == total
    assert all(abs(n - number) <= 1 for n, number in zip(found, exact, strict=True))


def test_a_difference_by_part_and_what_moved() -> None:
    base = subject("A", parts_of(compute=0.4, compute__gemm=0.3, compute__copy=0.1, idle_other=0.1))
    within = {"compute__gemm": 0.25, "compute__copy": 0.1, "compute__moe": 0.1}
    other = subject("B", parts_of(compute=0.45, **within, idle_host=0.02, idle_other=0.03))
    change_ns = change_of_step(base, other)
    assert change_ns == 0
    compute, host, idle = part_changes(base, other, change_ns)
    assert [c.part for c in (compute, host, idle)] == ["compute", "idle_host", "idle_other"]
    assert [c.change_ns for c in (compute, host, idle)] == [50_000_000, 20_000_000, -70_000_000]
    assert (compute.before_s, compute.after_s) == (0.4, 0.45)
    moved = [(m.dimension, m.name, m.before_s, m.after_s) for m in compute.movers]
    assert moved == [("category", "moe", 0.0, 0.1), ("category", "gemm", 0.3, 0.25)]
    assert (host.untold, idle.untold) == (("A",), ())
    compute, host, idle = part_changes(other, base, 0)
    assert [c.change_ns for c in (compute, host, idle)] == [-50_000_000, -20_000_000, 70_000_000]
    assert (host.before_s, host.after_s, host.untold) == (0.02, 0.0, ("A",))
    moved = [(m.name, m.before_s, m.after_s) for m in compute.movers]
    assert moved == [("moe", 0.1, 0.0), ("gemm", 0.25, 0.3)]

    # movers are told apart by collective group and dimension
    def rows(gather: float, reduce: float) -> list:
        found = parts_of(exposed_wait=gather + reduce)
        for kind, s in (("all_gather", gather), ("all_reduce", reduce)):
            keys = {"stat": "exposed_wait", "collective": kind}
            found += [row("time.step_parts", s, **keys), row("time.step_parts", s, **keys, group="0-1")]
        return [*found, row("time.step_parts", gather, stat="exposed_wait", category="dp")]

    base, other = subject("A", rows(0.1, 0.2)), subject("B", rows(0.4, 0.2))
    (wait,) = part_changes(base, other, change_of_step(base, other) or 0)
    moved = [(m.dimension, m.name, round(m.change_s, 9)) for m in wait.movers]
    assert moved == [("collective", "all_gather", 0.3), ("group", "0-1", 0.3), ("dimension", "dp", 0.3)]


@pytest.mark.parametrize("other_first", [False, True])
def test_graphs_of_one_of_the_two_stand_for_its_unknown_busy_time(other_first: bool) -> None:
    eager = subject(
        "A", parts_of(compute=0.6, exposed_wait=0.1, exposed_copy=0.05, idle_host=0.2, idle_other=0.05)
    )
    graphs = subject("B", parts_of(compute=0.1, graphs=0.5, idle_host=0.1, idle_other=0.1))
    base, other = (graphs, eager) if other_first else (eager, graphs)
    found = part_changes(base, other, change_of_step(base, other))
    sign = -1 if other_first else 1
    assert [(one.part, sign * one.change_ns) for one in found] == [
        ("busy", -150_000_000),  # 0.1 + 0.5 against 0.6 + 0.1 + 0.05
        ("idle_host", -100_000_000),
        ("idle_other", 50_000_000),
    ]
    assert [one.movers for one in found] == [(), (), ()]
    parts = [one.part for one in part_changes(graphs, graphs, 0)]
    assert parts == ["compute", "graphs", "idle_host", "idle_other"]


def test_a_part_without_time_is_told_all_the_same() -> None:
    """Zero is no unknown: neither run waits, and B hides all copies."""
    base = subject("A", parts_of(compute=1.0, exposed_wait=0.0, exposed_copy=0.5))
    other = subject("B", parts_of(compute=1.0, exposed_wait=0.0, exposed_copy=0.0))
    found = part_changes(base, other, -500_000_000)
    assert [(c.part, c.before_s, c.after_s, c.change_ns, c.untold) for c in found] == [
        *(("compute", 1.0, 1.0, 0, ()), ("exposed_wait", 0.0, 0.0, 0, ())),
        ("exposed_copy", 0.5, 0.0, -500_000_000, ()),
    ]
    # without parts there is a difference and no attribution
    base, other = subject("A", parts_of(compute=1.0)), subject("B", [row("time.step", 1.5)])
    assert change_of_step(base, other) == 500_000_000
    assert part_changes(base, other, 500_000_000) == ()
    assert change_of_step(base, subject("C", [row("time.step", None)])) is None


def test_rows_of_one_place_add_up() -> None:
    """A category on two streams: 0.1 and 0.2 s of it."""
    rows = parts_of(compute=0.5)
    rows += [row("time.step_parts", s, stat="compute", category="gemm") for s in (0.1, 0.2)]
    rows += [row("time.step_parts", 0.2, stat="exposed_wait", category="gemm")]
    (compute,) = part_changes(subject("A", parts_of(compute=0.5)), subject("B", rows), 0)
    assert [(m.name, m.before_s, round(m.after_s, 9)) for m in compute.movers] == [("gemm", 0.0, 0.3)]
    # what moves most comes first whether it rises or falls
    before = parts_of(compute=0.7, compute__gemm=0.4, compute__copy=0.2, compute__moe=0.1)
    after = parts_of(compute=0.55, compute__gemm=0.1, compute__copy=0.15, compute__moe=0.3)
    base, other = subject("A", before), subject("B", after)
    (compute,) = part_changes(base, other, change_of_step(base, other) or 0)
    moved = [(m.name, round(m.change_s, 9)) for m in compute.movers]
    assert moved == [("gemm", -0.3), ("moe", 0.2), ("copy", -0.05)]
