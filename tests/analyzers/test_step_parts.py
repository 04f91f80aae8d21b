# SPDX-License-Identifier: Apache-2.0
"""Parts of steps, and settings of a replay, by hand."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from helpers.hand_made import Evidence, a_rank, collective, comm, compute, event, job_values, launch, window
from helpers.hand_values import in_ns, rows_of, told
from helpers.synthetic import Collective, Compute, Layout, Link, Network, Program, simulate, write
from hypothesis import given
from hypothesis import strategies as st

import cclbench
from cclbench.analyzers.metric import Value
from cclbench.analyzers.rows import Row
from cclbench.analyzers.step_parts import PARTS
from cclbench.analyzers.view import categories
from cclbench.analyzers.view.rank_view import RankView
from cclbench.record.rows import builtins
from cclbench.record.selection import Selection
from cclbench.results import NOT_REPLAYED, full_results


def parts(*views: RankView) -> dict[Any, float]:
    """ns by step and what a part is of: its kind, group, category, and its own name last."""
    rows = rows_of("time.step_parts", *views)
    assert {row["status"] for row in rows} == {"ok"}
    assert {row["rank"] for row in rows} == {None}
    return in_ns(told(rows))


def by_step(found: dict[Any, float]) -> dict[Any, float]:
    """Those of single steps."""
    return {
        about: ns for about, ns in found.items() if isinstance(about, tuple) and isinstance(about[0], int)
    }


# Step 1, rank 0: 0..100. gemm 0-30, attention 20-40 beside it from 20 on; all-reduce (dp) 35-60, the last
# rank arrives at 50; copy 60-65; gemm 80-100, launched at 75 on a stream free since 30.
# Step 2, rank 1: 100..180, of which nobody matched an all-gather 100-130, and comm of no collective 130-140;
# gemm 150-180 on the same stream, launched before.
ROWS_0 = [compute(0, 30, correlation=1), compute(20, 40, category="attention", track=8, correlation=2)]
ROWS_0 += [comm(35, 60, correlation=3), event("copy", 60, 65, track=9, correlation=4)]
ROWS_0 += [compute(80, 100, correlation=5), launch(75, 5), *(launch(-10, number) for number in (1, 2, 3, 4))]


ROWS_1 = [comm(100, 140, correlation=1), compute(150, 180, track=20, correlation=2), launch(0, 1)]
ROWS_1 += [launch(1, 2)]


def two_ranks() -> list:
    reduce = collective("all_reduce", 35, 60, group="0-1", dimension="dp", wait_ns=15, transfer_ns=10)
    gather = collective("all_gather", 100, 130, group="0-1", dimension="tp")
    return [
        a_rank(ROWS_0, [window(0, 100, 1), window(100, 170, 2)], [reduce], rank=0),
        a_rank(ROWS_1, [window(0, 90, 1), window(100, 180, 2)], [gather], rank=1),
    ]


def collective_parts(part: str, kind: str, dimension: str, ns: float) -> dict[Any, float]:
    """A part's time by kind, by kind and group, and by dimension."""
    return {(kind, part): ns, (kind, "0-1", part): ns, (dimension, part): ns}


def test_each_step_is_its_slowest_ranks() -> None:
    found = parts(*two_ranks())
    steps = by_step(found)
    half = {about: ns * 2 for about, ns in found.items() if about not in steps}
    # 20-30 is shared: gemm 0-20, half of it, 80-100 and rank 1's 30
    expected = {("gemm", "compute"): 20 + 5 + 20 + 30, ("attention", "compute"): 5 + 10}
    expected |= {None: 180, "compute": 60 + 30, "exposed_copy": 5, "idle_host": 15, "idle_other": 10}
    expected |= {"exposed_wait": 10, "exposed_transfer": 10, "exposed_unmatched": 40}
    expected |= collective_parts("exposed_wait", "all_reduce", "dp", 10)
    expected |= collective_parts("exposed_transfer", "all_reduce", "dp", 10)
    expected |= collective_parts("exposed_unmatched", "all_gather", "tp", 30)
    assert half == pytest.approx(expected | {("unknown", "exposed_unmatched"): 10})
    first = {"compute": 60, "exposed_wait": 10, "exposed_transfer": 10, "exposed_copy": 5, "idle_host": 15}
    # rank 1 cannot tell waiting from transfer: no row of either in step 2
    second = {"compute": 30, "exposed_unmatched": 40, "exposed_copy": 0, "idle_host": 0, "idle_other": 10}
    of_steps = {(1, part): 0 for part in PARTS if part != "graphs"}
    for step, own in ((1, first), (2, second)):
        of_steps |= {(step, part): ns for part, ns in own.items()}
    assert steps == pytest.approx(of_steps)
    assert "matched across ranks" in plain(*two_ranks(), part="exposed_unmatched")["reason"]


def plain(*views: RankView, part: str) -> dict[str, Any]:
    """The row of the part over all steps, of no kind or category."""
    keys = ("step", "collective", "group", "category")
    rows = [row for row in rows_of("time.step_parts", *views) if row["stat"] == part]
    (own,) = (row for row in rows if all(row[key] is None for key in keys))
    return own


def test_the_run_is_that_of_time_step_where_the_trace_of_a_rank_is_its_window() -> None:
    """That rank is left out of both: two steps of 10 and 30 ns remain."""
    ranks = [a_rank([compute(0, 7)], [window(0, 10, 1), window(10, 40, 2)], rank=0)]
    ranks += [a_rank([compute(0, 5)], [window(0, 33, source="whole_trace")], rank=1)]
    (whole, *_) = rows_of("time.step", *ranks)
    found = parts(*ranks)
    assert found[None] == pytest.approx(whole["value"] * 1e9) == pytest.approx((10 + 30) / 2)
    assert found["compute"] == pytest.approx((7 + 0) / 2)
    assert {about[0] for about in by_step(found)} == {1, 2}


def test_of_ranks_without_step_numbers_the_one_with_the_longest_mean_window_counts() -> None:
    """Windows of 10 and 30 ns, 25 and 5 of them computing, on one rank; of 15 and 16 on the others."""
    ranks = [
        a_rank([compute(0, 15)], [window(0, 15)], rank=0),
        a_rank([compute(2, 7), compute(12, 37)], [window(0, 10), window(10, 40)], rank=1),
        a_rank([compute(0, 1)], [window(0, 16)], rank=2),
    ]
    found = parts(*ranks)
    assert (found[None], found["compute"], found["idle_other"]) == pytest.approx((20, 15, 5))
    assert not by_step(found)


def test_what_one_of_the_slowest_ranks_tells_is_told() -> None:
    """Launches tell rank 0's step of its idle time, and nothing tells rank 1's."""
    ranks = [
        a_rank([compute(5, 9, correlation=1), launch(3, 1)], [window(0, 20, 1), window(20, 30, 2)], rank=0),
        a_rank([compute(4, 9)], [window(0, 10, 1), window(10, 40, 2)], rank=1),
    ]
    found = parts(*ranks)
    assert (found["idle_host"], found["idle_other"]) == pytest.approx((5 / 2, (11 + 30) / 2))
    assert (found[1, "idle_host"], found[2, "idle_other"]) == pytest.approx((5, 30))
    assert (2, "idle_host") not in found
    why = "no launch in the trace is linked to device work: all idle time is unknown"
    assert plain(*ranks, part="idle_other")["reason"] == why


def test_a_rank_that_exposes_no_communication_waits_for_none() -> None:
    found = parts(a_rank([compute(0, 30), comm(10, 20)], [window(0, 40, 1)]))
    assert (found[1, "exposed_wait"], found[1, "exposed_transfer"], found["exposed_unmatched"]) == (0, 0, 0)
    # Of equally slow ranks the lowest counts.
    ranks = [a_rank([compute(0, n)], [window(0, 40, 1)], rank=n) for n in (9, 3)]
    assert parts(*ranks)["compute"] == pytest.approx(3)
    # Nothing at all is not applicable.
    (row,) = rows_of("time.step_parts", a_rank([event("op", 0, 1)], [window(0, 2, 1)], works_on=None))
    assert (row["status"], row["value"]) == ("not_applicable", None)


def test_a_cpu_has_no_host_bound_idle_time_and_says_why() -> None:
    rows = [
        event("op", 0, 30, track=1, name="aten::linear", category="gemm"),
        event("op", 5, 10, track=1, name="aten::copy_", category="copy"),
        event("op", 20, 26, track=1, name="c10d::allreduce_", category="communication"),
        event("op", 28, 40, track=3, name="aten::add_", category="elementwise"),
        event("op", 22, 50, track=2, name="gloo:all_reduce", category="communication", collective=0),
    ]
    rank = a_rank(rows, [window(0, 60, 1)], works_on="host")
    found = parts(rank)
    assert "idle_host" not in found
    assert found["idle_other"] == pytest.approx(2 + 10)  # 20-22, 50-60
    # 0-5, 10-20, 26-28 on thread 1, 28-30 shared with thread 3; gloo's thread does not compute
    computed = {"gemm": 5 + 10 + 2 + 1, "copy": 5, "elementwise": 1 + 10}
    assert {name: found[name, "compute"] for name in computed} == pytest.approx(computed)
    assert found["compute"] == pytest.approx(34)
    assert "the CPU is the device" in plain(rank, part="idle_other")["reason"]


SPANS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


@given(SPANS)
def test_the_innermost_at_each_instant_is_what_began_last(spans: list[tuple[int, int]]) -> None:
    starts, ends = (np.array([span[n] for span in spans], np.int64) for n in (0, 1))
    found = dict.fromkeys(range(40))
    for start, end, index in zip(
        *(a.tolist() for a in categories.innermost_pieces(starts, ends)), strict=True
    ):
        assert start < end
        for instant in range(start, end):
            assert found[instant] is None
            found[instant] = spans[index]
    for instant, span in found.items():
        running = [s for s in spans if s[0] <= instant < s[1]]
        assert span == max(running, key=lambda s: (s[0], -s[1]), default=None)


@given(st.lists(SPANS, min_size=1, max_size=4))
def test_shares_are_exact(sets: list[list[tuple[int, int]]]) -> None:
    instants = [{t for start, end in spans for t in range(start, end)} for spans in sets]
    pieces = {
        str(n): categories.intervals.union(*(np.array([s[k] for s in spans], np.int64) for k in (0, 1)))
        for n, spans in enumerate(sets)
    }
    windows = [(3, 11), (11, 20), (25, 39)]
    edges = [np.array(edge, np.int64) for edge in zip(*windows, strict=True)]
    expected = [
        sum(
            (
                Fraction(1, sum(t in other for other in instants))
                for start, end in windows
                for t in range(start, end)
                if t in own
            ),
            Fraction(0),
        )
        for own in instants
    ]
    shared = categories.window_shares(pieces, *edges)
    assert (shared.by_label() or [Fraction(0)] * len(sets)) == expected
    assert sum(shared.by_window()) == sum(expected)


NAME = "whatif.scale_up_bandwidth_x2"


class Found(NamedTuple):
    """A replay's answer."""

    ratio: float | None
    low: float
    high: float
    basis: tuple[str, ...] = ("a fit",)


def values(found: Found | None) -> list[Value]:
    return job_values(NAME, Evidence(), replayed=None if found is None else lambda _: found)


def test_the_value_has_its_bounds_and_basis() -> None:
    value, low, high = values(Found(0.75, 0.7, 0.8))
    assert (value.value, value.stat, value.reason) == (0.75, None, "a fit")
    assert [(v.stat, v.value) for v in (low, high)] == [("low", 0.7), ("high", 0.8)]
    assert {v.provenance for v in (value, low, high)} == {"modelled"}
    # Known within bounds only is no value, nor is no model.
    value, low, high = values(Found(None, 0.5, 0.9))
    assert (value.value, value.status) == (None, "not_applicable")
    assert value.reason == "only bounds are known: 50.0 % to 90.0 %; a fit"
    assert (low.value, high.value) == (0.5, 0.9)
    (value,) = values(None)
    assert value.status == "not_applicable"
    assert "models are disabled" in str(value.reason)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of one node: kernels of 20 µs between all-reduces of 1 to 5 MiB, 1 ms a MiB."""
    ops = [op for i in range(1, 6) for op in (Compute(20_000), Collective("all_reduce", "dp", i << 20))]
    folder = tmp_path_factory.mktemp("whatif") / "traces"
    program = Program((*ops, Compute(20_000)), steps=2)
    write(simulate(Layout(dp=2, gpus_per_host=2), program, Network(Link(0, 1_000))), folder)
    return folder


def rows(traces: Path, store: Path, **options: object) -> list[Row]:
    run = cclbench.run(traces, store=store, **options)  # type: ignore[arg-type]
    return [row for row in run.rows if row["metric"] == NAME]


def test_a_step_bound_by_its_network(traces: Path, tmp_path: Path) -> None:
    """15 transfers of 1.024 ms each step, whose halves are saved."""
    found = rows(traces, tmp_path, metrics=[NAME])
    step = next(row["value"] for row in cclbench.run(traces, store=tmp_path, metrics=["time.step"]).rows)
    assert found[0]["value"] == pytest.approx(1 - 15 * 1.024e-3 / 2 / step, rel=1e-3)
    assert [row["stat"] for row in found] == [None, "high", "low"]
    assert {(row["provenance"], row["status"], row["unit"]) for row in found} == {("modelled", "ok", "1")}
    (alias, *_) = cclbench.run(traces, store=tmp_path, metrics=["scale_up_bw_utility"]).rows
    assert alias["value"] == found[0]["value"]


def test_a_run_is_replayed_only_where_that_is_asked_for(traces: Path, tmp_path: Path) -> None:
    asked = rows(traces, tmp_path, metrics=["whatif.*"])
    (row,) = rows(traces, tmp_path)
    assert (row["value"], row["status"], row["reason"]) == (None, "not_applicable", NOT_REPLAYED)
    assert rows(traces, tmp_path, metrics=["*", NAME]) == asked
    assert rows(traces, tmp_path) == [row]


def test_a_report_replays_a_small_run(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(store: Path) -> list[object]:
        found = builtins(full_results(cclbench.run(traces, store=store), Selection()))
        return [row for row in found if row["metric"] == NAME]

    run = cclbench.run(traces, store=tmp_path / "small")
    asked = rows(traces, tmp_path / "small", metrics=[NAME])
    assert shown(tmp_path / "small") == asked == shown(tmp_path / "small")
    kept = run.sql("SELECT value FROM results WHERE metric LIKE 'whatif.%' AND stat IS NULL").to_pylist()
    assert kept == [{"value": asked[0]["value"]}]
    monkeypatch.setattr("cclbench.results.PASSING_ROWS", 100)
    (row,) = shown(tmp_path / "large")
    assert row["reason"] == NOT_REPLAYED  # type: ignore[index]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        *((own, "all ranks' steps") for own in ({"window": "trace"}, {"steps": (0, 1)}, {"ranks": [0]})),
        ({"model": False}, "models are disabled"),
    ],
)
def test_a_narrowed_run_is_not_replayed_nor_one_without_models(
    options: dict[str, object], why: str, traces: Path, tmp_path: Path
) -> None:
    (row,) = rows(traces, tmp_path, metrics=[NAME], **options)
    assert row["status"] == "not_applicable"
    assert why in row["reason"]


def test_a_run_without_collectives_is_not_replayed(tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    write(simulate(Layout(), Program((Compute(20_000),))), alone)
    (row,) = rows(alone, tmp_path, metrics=[NAME])
    assert row["reason"] == "no collective is part of the replay"
