# SPDX-License-Identifier: Apache-2.0
"""The section of operators: its rows, its charts, what has no cost, hostile names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from helpers.parsed_page import Page
from helpers.report_run import Event, comparison, row, subject
from helpers.typed import rewrite_manifest

from cclbench.analyzers.view.work_keys import DEEPEST
from cclbench.comparison.operators import subject_operator_tables
from cclbench.comparison.subject import ComparisonSubject
from cclbench.operator_table import operator_costs
from cclbench.present import operators as module
from cclbench.present.charts.modules import module_chart, module_tree
from cclbench.present.charts.operator_roofline import operator_roofline, points_of
from cclbench.present.charts.phases import phase_charts, phases_of
from cclbench.present.operators import NO_OPERATORS, operator_section
from cclbench.present.page import comparison_page, run_page

CALLS: dict[str, dict[str, Any]] = {
    "gemm": {"name": "aten::mm", "shapes": "[[1000,1000],[1000,1000]]", "module": "Net_0/Linear_10"},
    "add": {"name": "aten::add", "shapes": "[[2000,1000],[2000,1000]]", "module": "Net_0"},
    "sort": {"name": "mine::sort_of", "module": "Net_0/Linear_2"},
}
for _name in ("gemm", "add"):
    CALLS[_name]["dtypes"] = '["c10::BFloat16","c10::BFloat16"]'
EVENTS: tuple[Event, ...] = (
    (0, "gemm", "gemm", 1000, 100),
    (1, "gemm", "gemm", 2000, 300),
    (0, "add", "elementwise", 1200, 200),
    (0, "sort", "other", 1500, 50),
    (1, "alone", "other", 2500, 10),
)
H100 = {"world_size": 2, "works_on": "device", "device_name": "NVIDIA H100 80GB HBM3"}


def run_of(path: Path, calls: dict[str, dict[str, Any]] = CALLS, **how: Any) -> ComparisonSubject:
    """A run of those calls on H100s: 989 TFLOP/s in bf16, 67 in fp32, 3.35 TB/s."""
    made = subject(path, "", events=how.pop("events", EVENTS), calls=calls, **how)
    manifest = made.stored.path / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"an accelerator"', '"NVIDIA H100 80GB HBM3"'))
    rewrite_manifest(made.stored.path)
    return ComparisonSubject("", type(made.stored)(made.stored.path), made.results, None)


def test_rows_by_operator_and_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """660 ns; mm is 2e9 FLOP and 6e6 B a call, twice; add 2e6 FLOP and 12e6 B."""
    found = operator_section(run_of(tmp_path / "run"))
    expected = [(("aten::mm", "bf16[1000,1000], bf16[1000,1000]"), 2, 400)]
    expected += [(("aten::add", "bf16[2000,1000], bf16[2000,1000]"), 1, 200), (("mine::sort_of", ""), 1, 50)]
    expected += [(("alone", ""), 1, 10)]
    assert [(line.operator_and_shapes, line.calls, line.time_ns) for line in found.rows] == expected
    mm, add = found.rows[:2]
    assert (mm.family, mm.precision, add.precision) == ("matrix product", "bf16", "fp32")
    assert mm.flops_per_s == pytest.approx(4e9 / 400e-9)
    # no H100 is that fast
    assert (mm.mark, mm.roofline_s, mm.gap_s) == ("above", None, None)
    assert mm.marked_roofline_s == pytest.approx(4e9 / 989e12, rel=1e-3)
    assert found.windows == 4
    assert found.coverage == "linked to operators 98.5 %; of compute time 90.9 % has FLOPs and bytes"
    assert found.unmodelled == (
        "sort of mine::sort_of: 50.0 ns, 7.6 %: no cost model for this operator",
        "alone: 10.0 ns, 1.5 %: no operator call is linked to it",
    )
    headings = [column.heading for column in found.columns]
    assert headings[:8] == ["calls", "time", "share", "achieved", "roofline", "model", "mean", "p50"]
    assert {"M·N·K", "type", "peak", "attainable"} <= set(headings)
    page = Page(run_page(run_of(tmp_path / "page")))
    assert "1000·1000·1000" in page.text
    # what is not listed is counted with its time; work outside of the windows is none of it
    monkeypatch.setattr(module, "MOST_ROWS", 2)
    fewer = operator_section(run_of(tmp_path / "fewer"))
    assert len(fewer.rows) == 2
    assert fewer.notes[0] == "2 more rows with 60.0 ns: cclbench ops --by shape lists all"
    outside = operator_section(run_of(tmp_path / "outside", events=((0, "gemm", "gemm", 9000, 1),)))
    assert outside.rows == ()
    assert len(outside.notes) <= 1


def test_tables_that_are_at_hand_are_not_summed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path / "run")
    pages = [run_page(run)]
    (operators,) = subject_operator_tables([run]).values()
    monkeypatch.setattr(module, "operator_costs_by", None)
    pages.append(run_page(run, operators=operators))
    first, second = (re.sub(r"partition-h[0-9a-f]+", "hatch", page) for page in pages)
    assert first == second


def test_without_operators_a_line_says_why(tmp_path: Path) -> None:
    run = subject(tmp_path / "run")
    found = operator_section(run)
    assert (found.rows, found.charts, found.notes) == ((), (), (NO_OPERATORS,))
    text = run_page(run)
    assert "record_shapes" in text
    assert 'id="operator-table"' not in text
    both = comparison_page(comparison(run, subject(tmp_path / "b", "B")))
    assert f"A, B: {NO_OPERATORS}" in Page(both).text


def test_the_roofline_has_what_has_flops(tmp_path: Path) -> None:
    table = operator_costs(run_of(tmp_path / "run").stored, "shape")
    points = points_of(table)
    expected = [("aten::mm", "bf16"), ("aten::add", "fp32")]
    assert [(point.row.operator, point.precision) for point in points] == expected
    assert points[0].intensity == pytest.approx(2e9 / 6e6)
    assert table.roof.peaks == {"bf16": 989e12, "fp32": 67e12}
    chart = operator_roofline(table)
    assert "without a cost model), 9.1 % of the time, are not drawn" in chart.missing[0]
    assert chart.svg is not None
    titles = [e.text or "" for e in ET.fromstring(chart.svg).iter("title")]  # noqa: S314 - our own
    told = "aten::mm\nbf16[1000,1000], bf16[1000,1000]\n400 ns in 2 calls"
    assert any(text.startswith(told) for text in titles)
    assert "peak of fp32: 67.0 TFLOP/s, from the catalog" in titles
    assert "device memory: 3.35 TB/s" in titles


def test_modules_hold_those_within_them(tmp_path: Path) -> None:
    table = operator_costs(run_of(tmp_path / "run").stored, "module")
    root = module_tree(table)
    assert root.time_ns == 660
    net = root.children["Net_0"]
    assert (net.time_ns, net.own_ns) == (650, 200)
    assert {name: child.time_ns for name, child in net.children.items()} == {"Linear_10": 400, "Linear_2": 50}
    chart = module_chart(table)
    assert chart.svg is not None
    titles = [e.text or "" for e in ET.fromstring(chart.svg).iter("title")]  # noqa: S314 - our own
    assert [text.partition("\n")[0] for text in titles] == [
        *("device time", "Net_0", "launched by no module", "Net_0/Linear_10", "Net_0/Linear_2")
    ]
    assert titles[1].startswith("Net_0\n650 ns, 98.5 % of the device time\n200 ns outside of the modules")


def test_a_path_without_end_is_cut(tmp_path: Path) -> None:
    deep = "/".join(f"Block_{n}" for n in range(5000))
    table = operator_costs(
        run_of(tmp_path / "run", {"gemm": CALLS["gemm"] | {"module": deep}}).stored, "module"
    )
    node, depth = module_tree(table), 0
    while node.children:
        node, depth = max(node.children.values(), key=lambda one: one.time_ns), depth + 1
    assert depth == DEEPEST
    assert module_chart(table).svg is not None


def test_without_modules_there_is_no_icicle(tmp_path: Path) -> None:
    calls = {
        name: {key: value for key, value in call.items() if key != "module"} for name, call in CALLS.items()
    }
    chart = module_chart(operator_costs(run_of(tmp_path / "run", calls).stored, "module"))
    why = "the trace names no modules: with_stack records them in PyTorch, jax.named_scope in JAX"
    assert (chart.svg, chart.missing) == (None, (why,))


def test_phases_are_those_of_the_metric(tmp_path: Path) -> None:
    rows = [row("time.phase", 0.1), row("time.phase", 0.07, category="backward")]
    rows += [row("time.phase", 0.03, category="forward")]
    run = subject(tmp_path / "run", "", rows=rows)
    assert phases_of(run) == [("forward", 0.03), ("backward", 0.07)]
    (chart,) = phase_charts(run)
    assert "70.0 %" in str(chart.svg)
    assert list(phase_charts(subject(tmp_path / "other", "", rows=rows[:2]))) == []


def test_the_op_profile_is_of_compiled_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A level for each key, folded; of many rows those with most time, none without those that hold it."""
    run = run_of(tmp_path / "run", events=EVENTS[:3], program="jit_step")
    profile = operator_section(run).profile
    assert profile is not None
    expected = [(1, "jit_step", 600), (2, "gemm", 400)]
    expected += [(3, "aten::mm(bf16[1000,1000], bf16[1000,1000])", 400), (2, "elementwise", 200)]
    expected += [(3, "aten::add(bf16[2000,1000], bf16[2000,1000])", 200)]
    assert [(row.depth, row.words[-1], row.time_ns) for row in profile.rows] == expected
    assert profile.more == 0
    assert profile.rows[2].operator_and_shapes == ("aten::mm", "bf16[1000,1000], bf16[1000,1000]")
    assert {"share", "of peak", "wasted"} <= {column.heading for column in profile.columns}
    monkeypatch.setattr(module, "MOST_ROWS", 3)
    fewer = operator_section(run).profile
    assert fewer is not None
    assert ([row.depth for row in fewer.rows], fewer.more) == ([1, 2, 3], 2)
    text = run_page(run)
    assert '<details id="op-profile"><summary>' in text
    assert "2 rows with less time" in text
    assert operator_section(run_of(tmp_path / "eager")).profile is None
