# SPDX-License-Identifier: Apache-2.0
"""Columns of operators' tables, and kernels."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.report_run import Event, stored, subject
from rich.console import Console

from cclbench.analyzers.view.durations import durations_by_code
from cclbench.analyzers.view.operator_rows import OperatorRow
from cclbench.analyzers.view.operator_sums import SEVERAL_KERNELS
from cclbench.operator_table import OperatorTable, Unmodelled
from cclbench.operators.product_sizes import ProductSizes
from cclbench.present import kernels as module
from cclbench.present.kernels import absence_words, kernel_table, kernels_of
from cclbench.present.operator_columns import SHOWN, roofline_words, shown_words
from cclbench.present.page import run_page
from cclbench.present.terminal.operators import operators_page

TEXT = {column.heading: column.text for column in SHOWN}


def a_row(*words: str, **changes: Any) -> OperatorRow:
    """A row of 1,234 calls in 9.87 ms, 58.5 % of its roofline."""
    durations = durations_by_code(np.zeros(2, np.int64), np.array([7000, 9000]), 1)[0]
    values: dict[str, Any] = {"calls": 1234, "time_ns": 9_870_000, "share": 0.987, "durations": durations}
    values |= {"flops": 6e9, "bytes": 3e6, "flops_per_s": 6.45e14, "bytes_per_s": 1.16e12}
    values |= {"roofline_s": 5.85e-3, "gap_s": 4.15e-3, "bound": "compute", "modelled_share": 1.0}
    values |= {"why_not": None, "operator": "aten::mm", "family": None, "precision": "bf16"}
    return OperatorRow(words=words, **(values | changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "58.5 % C"),
        ({"bound": "memory", "mark": "cache"}, "58.5 % M*"),
        ({"modelled_share": 0.4, "why_not": "unknown"}, "58.5 % C~"),
        ({"modelled_share": 0.0, "why_not": "unknown", "roofline_s": None}, "no model"),
        ({"modelled_share": 0.0, "why_not": SEVERAL_KERNELS, "roofline_s": None}, "several"),
        ({"roofline_s": None, "mark": "above", "marked_time_s": 1.0, "marked_roofline_s": 1.2}, "120.0 %!"),
        # a collective has no model and lacks none
        ({"modelled_share": 0.0, "roofline_s": None, "bound": "unknown"}, ""),
    ],
)
def test_distance_from_the_roofline(changes: dict[str, Any], words: str) -> None:
    assert roofline_words(a_row("x", **changes)) == words


@pytest.mark.parametrize(
    ("heading", "changes", "text"),
    [
        # the rate is of what bounds the row
        ("achieved", {}, "645 TFLOP/s"),
        ("achieved", {"bound": "memory"}, "1.16 TB/s"),
        ("achieved", {"bound": "unknown"}, "1.16 TB/s"),
        ("achieved", {"bound": "unknown", "family": "matrix product"}, "645 TFLOP/s"),
        ("achieved", {"flops_per_s": None, "bytes_per_s": None}, ""),
        # coverage is whole only if all is modelled
        ("model", {"modelled_share": 1.0}, "100 %"),
        ("model", {"modelled_share": 0.99999}, "99.9 %"),
        ("model", {"modelled_share": 0.625}, "62.5 %"),
        ("model", {"modelled_share": 0.0}, ""),
        ("share", {"share": 0.0001}, "<0.1 %"),
        ("M·N·K", {"product": ProductSizes(1, 8, 2, 3)}, "8·2·3"),
        ("M·N·K", {"product": ProductSizes(16, 8, 2, 3)}, "16 x 8·2·3"),
        ("layout", {"product": ProductSizes(1, 8, 2, 3, "NT")}, "NT"),
        ("gap", {"gap_s": None}, ""),
        ("p50", {}, "8.00 µs"),
        ("p90", {}, "8.80 µs"),
        ("max", {}, "9.00 µs"),
    ],
)
def test_a_cell(heading: str, changes: dict[str, Any], text: str) -> None:
    assert TEXT[heading](a_row("x", **changes)) == text


def test_words_of_a_row() -> None:
    shape = a_row("aten::sdpa(bf16[1,2], bf16[1,2], bf16[1,2], fp32[1], long int[], long int[])")
    assert list(shown_words(shape, ("shape",))) == ["aten::sdpa(bf16[1,2] ×3, fp32[1], long int[] ×2)"]
    lists = a_row("aten::cat(2 x bf16[1], 2 x bf16[1])")
    assert list(shown_words(lists, ("shape",))) == ["aten::cat(2 x bf16[1] ×2)"]
    both = a_row("aten::mm", "aten::mm(bf16[1,2], bf16[2,3])")
    assert list(shown_words(both, ("op", "shape"))) == ["aten::mm", "(bf16[1,2], bf16[2,3])"]
    assert list(shown_words(a_row("Net_0/Layer_1", depth=2), ("module",))) == ["  Layer_1"]
    compiled = a_row("jit_f", "copy", "a/b", depth=3)
    assert list(shown_words(compiled, ("program", "category", "op"))) == ["    a/b"]
    assert list(shown_words(a_row("\x1b[31mred"), ("op",))) == ["\\x1b[31mred"]


def shown(width: int, *, by: str = "op", verbose: bool = False, first: OperatorRow | None = None) -> str:
    """The page of three rows with the widest cells, or of another one."""
    long = "aten::_scaled_dot_product_cudnn_attention_backward_of_a_long_name" * 4
    rows = [
        a_row(long, bound="memory", mark="cache", modelled_share=0.5, why_not="unknown", row=1),
        a_row("void_kernel<" + "float," * 60 + ">", row=2),
        a_row("short", row=300, product=ProductSizes(16, 8192, 2688, 1024, "NT"), assumes="a mask"),
    ]
    times = {"time_ns": 10_000_000, "chosen_ns": 10_000_000, "unmodelled_ns": 5_000_000, "gap_s": 4e-3}
    shares = {"linked_share": 1.0, "modelled_share": 0.5, "roof": None}
    found = OperatorTable(
        run="run",
        by=by,
        window="steps",
        ranks=(0,),
        windows=1,
        all_rows=3,
        notes=(),
        **times,
        **shares,
        rows=tuple(rows) if first is None else (first,),
        unmodelled=(Unmodelled("sort_k", "mine::sort", 3, 5e-3, 0.5, "no cost model"),),
    )
    text = io.StringIO()
    Console(width=width, file=text).print(*operators_page(found, verbose=verbose), sep="\n")
    return text.getvalue()


@pytest.mark.parametrize("width", [80, 100, 140, 200])
@pytest.mark.parametrize("verbose", [False, True])
def test_the_widest_cells_fit_a_terminal(width: int, verbose: bool) -> None:
    lines = shown(width, verbose=verbose).splitlines()
    assert max(map(len, lines)) <= width
    (head, *more) = (line for line in lines if line.startswith("row "))
    assert {"calls", "time", "share", "achieved", "roofline", "gap"} <= set(head.split())
    assert bool(more) == verbose
    assert ("p90" in head) == (width >= 140)
    assert any("short" in line and " 58.5 % C " in f"{line} " for line in lines)


def test_unmodelled_time_stands_beside_the_gap_and_assumptions_below() -> None:
    text = " ".join(shown(80).split())
    assert "above the roofline 4.00 ms, 40.0 %; without a model 5.00 ms, 50.0 %" in text
    assert "- sort_k of mine::sort: 5.00 ms, 50.0 %: no cost model" in text
    assert "Assumptions - row 300: a mask" in text


def test_names_end_their_lines_behind_arguments_and_long_ones_keep_what_tells_them_apart() -> None:
    def lines(by: str, *words: str) -> list[str]:
        text = shown(80, by=by, first=a_row(*words, row=7))
        rows = (line for line in text.splitlines() if "1,234" in line or line.startswith("    "))
        return [line[4:].partition(" 1,234 ")[0].strip() for line in rows]

    shape = "aten::mm(bf16[8192,1024], bf16[1024,2688])"
    assert lines("shape", shape)[:2] == ["aten::mm(bf16[8192,1024],", "bf16[1024,2688])"]
    module = "TinyLlama_*/Layer_*/FeedForward_*/Linear_*"
    expected = ["aten::mm", "TinyLlama_*/Layer_*/", "FeedForward_*/Linear_*"]
    assert lines("op,class", "aten::mm", module)[1:4] == expected
    kernel = "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_64x64x64_1x4x1_cga1x1x1_kernel0_0"
    text = "".join(lines("kernel", kernel)[:3])
    assert "flash_bprop" in text
    assert "64x64x64_1x4x1" in text


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
    expected = [("gemm_a", (150e-9, 250e-9), (100,)), ("reduce_b", (125e-9, 0.0), (-125,))]
    expected += [("new_c", (0.0, 10e-9), (10,))]
    assert [(line.first.name, line.per_step, line.changes) for line in table.lines] == expected
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
    expected = [(1_000_001, 20), (1_000_001, 10)]
    assert [
        (line.first.length, line.times[0].ns) for line in kernel_table([run]).lines if line.times[0]
    ] == expected
    assert {len(line.first.name) for line in kernel_table([run]).lines} == {2000}


def test_the_page_has_labels_of_kernels(tmp_path: Path) -> None:
    """Of a name that is longer than what a page shows of one."""
    functor = "at::native::CUDAFunctor_add<c10::BFloat16>"
    name = f"void at::native::vectorized_elementwise_kernel<8, {functor} >({', '.join([functor] * 5)})"
    run = subject(tmp_path / "run", events=((0, name, "elementwise", 1000, 10),), letter="")
    assert "vectorized_elementwise_kernel&lt;8,CUDAFunctor_add&lt;BFloat16&gt;&gt;</bdi>" in run_page(run)
