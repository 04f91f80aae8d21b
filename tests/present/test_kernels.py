# SPDX-License-Identifier: Apache-2.0
"""The kernel table: what begins in the windows, and what is left out of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.report_run import Event, stored, subject

from cclbench.present import kernels as module
from cclbench.present.kernels import absence_words, kernel_table, kernels_of
from cclbench.present.page import run_page


def test_what_begins_in_a_window_counts_whole(tmp_path: Path) -> None:
    assert kernels_of(stored(tmp_path / "other"), "trace") is None  # no window of the whole trace was stored
    found = kernels_of(stored(tmp_path / "run"), "steps")
    expected = [("gemm_a", "gemm", 3, 600), ("reduce_b", "reduction", 1, 500)]
    assert [(t.name, t.category, t.calls, t.ns) for t in found.times] == expected
    assert (found.kind, found.names, found.all_ns, found.windows, found.window_ns) == (
        *("kernel", 2, 1100, 4, 4000),
    )


def test_a_cpu_has_operators_and_a_run_without_kernels_says_why(tmp_path: Path) -> None:
    table = kernel_table([subject(tmp_path / "run", kind="op", letter="")])
    assert table.runs[0][1].kind == "op"
    assert table.notes == ("CPU operators nest: their time includes that of the operators they call",)
    without = subject(tmp_path / "none", events=(), letter="")
    assert kernel_table([without]).notes == ("no kernels: its results have no compute.kernel_count",)


def test_what_is_not_listed_is_counted_with_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 1)
    run = subject(tmp_path / "run", letter="")
    table = kernel_table([run])
    assert [line.first.name for line in table.lines] == ["gemm_a"]
    assert table.notes == ("1 more names with 500 ns (45.5 % of the summed time) are not listed",)


def test_runs_beside_each_other(tmp_path: Path) -> None:
    events: tuple[Event, ...] = ((0, "gemm_a", "gemm", 1000, 1000), (1, "new_c", "other", 1000, 40))
    runs = [subject(tmp_path / "a"), subject(tmp_path / "b", "B", events=events)]
    table = kernel_table(runs)
    # Seconds per step and rank: sums over four windows.
    assert [(line.first.name, line.per_step, line.changes) for line in table.lines] == [
        ("gemm_a", (150e-9, 250e-9), (100,)),
        ("reduce_b", (125e-9, 0.0), (-125,)),
        ("new_c", (0.0, 10e-9), (10,)),
    ]
    assert [line.times[1] is None for line in table.lines] == [False, True, False]
    assert absence_words(table.runs[1][1]) == "did not run"


def test_a_name_beyond_those_read_may_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NAMES", 1)
    events: tuple[Event, ...] = ((0, "reduce_b", "reduction", 1000, 1000), (1, "gemm_a", "gemm", 1000, 40))
    runs = [subject(tmp_path / "a"), subject(tmp_path / "b", "B", events=events)]
    table = kernel_table(runs)
    assert {line.first.name: line.changes for line in table.lines} == {"gemm_a": (None,), "reduce_b": (None,)}
    assert absence_words(table.runs[0][1]) == "not among the 1 names with the most time"


def test_long_names_that_begin_alike_are_told_apart(tmp_path: Path) -> None:
    long = "n" * 1_000_000
    events: tuple[Event, ...] = ((0, f"{long}a", "gemm", 1000, 10), (0, f"{long}b", "gemm", 1100, 20))
    run = subject(tmp_path / "run", events=events, letter="")
    assert [(line.first.length, line.times[0].ns) for line in kernel_table([run]).lines if line.times[0]] == [
        (1_000_001, 20),
        (1_000_001, 10),
    ]
    assert {len(line.first.name) for line in kernel_table([run]).lines} == {2000}


def test_the_page_has_labels_of_kernels(tmp_path: Path) -> None:
    """Of a name that is longer than what a page shows of one."""
    functor = "at::native::CUDAFunctor_add<c10::BFloat16>"
    name = f"void at::native::vectorized_elementwise_kernel<8, {functor} >({', '.join([functor] * 5)})"
    run = subject(tmp_path / "run", events=((0, name, "elementwise", 1000, 10),), letter="")
    assert "vectorized_elementwise_kernel&lt;8,CUDAFunctor_add&lt;BFloat16&gt;&gt;</bdi>" in run_page(run)
