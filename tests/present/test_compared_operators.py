# SPDX-License-Identifier: Apache-2.0
"""Differences by operator as people see them: cut, summed, told apart from names of strangers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.parsed_page import Page
from helpers.report_run import comparison, subject
from rich.console import Console

from cclbench.comparison.comparison import (
    CallCount,
    Comparison,
    ReplacedCalls,
    WorkChange,
    WorkDifference,
    WorkTime,
)
from cclbench.present import sections
from cclbench.present.markdown import comparison_markdown
from cclbench.present.page import comparison_page
from cclbench.present.terminal.comparison import terminal_page


def work(name: str, before: int | None, after: int | None, **other: object) -> WorkChange:
    """Of so many ms in A and in B, half of it the roofline's."""
    sides = [None if ms is None else WorkTime(ms / 1e3, 2.0, ms / 2e3, 0.5) for ms in (before, after)]
    change_ns = ((after or 0) - (before or 0)) * 1_000_000
    return WorkChange(name, other.pop("other_name", None), *sides, change_ns, **other)  # type: ignore[arg-type]


def compared(path: Path, *changes: WorkChange, modules: tuple[WorkChange, ...] = ()) -> Comparison:
    """Two runs that differ in those operators."""
    both = [[one.before for one in changes], [one.after for one in changes]]
    sides = [sum(side.time_s for side in one if side) for one in both]
    change_ns = sum(one.change_ns for one in changes)
    found = WorkDifference("A", "B", *sides, change_ns, changes, modules)
    return comparison(subject(path / "a"), subject(path / "b", "B"), operators=(found,))


def on_terminal(found: Comparison, **how: int) -> list[str]:
    """Lines of 80 columns, those of operators alone."""
    console = Console(width=80, highlight=False, markup=False, emoji=False, color_system=None)
    with console.capture() as captured:
        for part in terminal_page(found, **how):
            console.print(part)
    lines = captured.get().splitlines()
    begin = lines.index(sections.WORKS)
    return lines[begin + 1 : lines.index("", begin)]


@pytest.fixture
def found(tmp_path: Path) -> Comparison:
    """Seven operators, of which mm is called with two shapes and the convolution has another name in B."""
    shapes = (work("[2,2]", 30, 60), work("[4,4]", 20, 10))
    return compared(
        tmp_path,
        work("aten::cudnn_convolution", 100, 20, other_name="aten::miopen_convolution"),
        work("aten::mm", 50, 70, shapes=shapes),
        *(work(f"op{n}", n, None) for n in (9, 8, 7, 6, 5)),
        modules=(work("Net/Layer", 185, 90),),
    )


def test_the_terminal_cuts_and_sums(found: Comparison) -> None:
    lines = on_terminal(found)
    assert [" ".join(line.split()) for line in lines] == [
        "by operator A B difference of A's roof of B's roof",
        "aten::cud...onvolution 100 ms 20.0 ms -80.0 ms 50.0 % 50.0 %",
        *("aten::mm 50.0 ms 70.0 ms +20.0 ms 50.0 % 50.0 %", "op9 9.00 ms 0 s -9.00 ms 50.0 %"),
        *("op8 8.00 ms 0 s -8.00 ms 50.0 %", "op7 7.00 ms 0 s -7.00 ms 50.0 %"),
        *("2 others 11.0 ms 0 s -11.0 ms", "all 185 ms 90.0 ms -95.0 ms"),
        "by module A B difference of A's roof of B's roof",
        *("Net/Layer 185 ms 90.0 ms -95.0 ms 50.0 % 50.0 %", "all 185 ms 90.0 ms -95.0 ms"),
        "aten::cudnn_convolution of A and aten::miopen_convolution of B are matched by",
        "cost model and FLOPs",
    ]
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if "[2,2]" in line]
    whole = on_terminal(found, verbosity=1)
    expected = [["[2,2]", "30.0", "ms", "60.0"], ["[4,4]", "20.0", "ms", "10.0"]]
    assert [line.split()[:4] for line in whole if line.startswith("    [")] == expected
    assert not [line for line in whole if "others" in line]


def test_markdown_has_the_rooflines(found: Comparison) -> None:
    text = comparison_markdown(found)
    names = "`aten::cudnn_convolution / aten::miopen_convolution`"
    assert f"| {names} | 100 ms | 20.0 ms | -80.0 ms | 50.0 ms (50.0 %) | 10.0 ms (50.0 %) |" in text
    assert "| &nbsp;&nbsp;`[2,2]` | 30.0 ms | 60.0 ms | +30.0 ms |" in text
    assert "| **all** | **185 ms** | **90.0 ms** | **-95.0 ms** |  |  |" in text
    assert "are matched by cost model and FLOPs" in text


def test_the_page_has_all_of_it(found: Comparison) -> None:
    text = comparison_page(found)
    shown = re.sub(r"\s+", " ", Page(text).text)
    assert "Where B's device time differs from A's" in shown
    assert "aten::miopen_convolution" in shown
    assert "all185 ms90.0 ms−95.0 ms" in shown
    assert "+30,000,000 ns" in "".join(Page(text).titles)


def test_without_a_roofline_it_has_no_column(tmp_path: Path) -> None:
    plain = WorkChange("mm", None, WorkTime(1.0, 1.0, None, None), None, -(10**9))
    one = compared(tmp_path, plain)
    assert on_terminal(one)[0].split() == ["by", "operator", "A", "B", "difference"]
    assert "roofline" not in comparison_markdown(one)
    assert "roofline of A" not in comparison_page(one)


def test_calls_in_place_of_each_other(tmp_path: Path) -> None:
    """On a terminal with as many inner modules as fit; names of strangers cannot break a table or a page."""
    counts = (CallCount("aten::mul", 2.0), CallCount("a|b<i>", 0.5))
    call = ReplacedCalls("forward", "Net_*/Layer_*/FeedForward_*", counts, (), 3e-3, 0.0, -3_000_000)
    mm = (CallCount("aten::mm", 1.0),)
    equal = ReplacedCalls("forward", "Net_*", mm, mm, 1e-3, 1e-3, 0)
    found = WorkDifference("A", "B", 4e-3, 1e-3, -3_000_000, (), replaced=(call, equal))
    one = comparison(subject(tmp_path / "a"), subject(tmp_path / "b", "B"), operators=(found,))
    lines = [" ".join(line.split()) for line in on_terminal(one)]
    assert lines == [
        *("in place of each other A B difference", "forward FeedForward_* 3.00 ms 0 s -3.00 ms"),
        *("A: 2 × aten::mul, 0.5 × a|b<i>", "B: none", "equal calls 1.00 ms 1.00 ms 0 s"),
        "all 4.00 ms 1.00 ms -3.00 ms",
    ]
    (row,) = [line for line in comparison_markdown(one).splitlines() if "FeedForward" in line]
    assert len(re.findall(r"(?<!\\)\|", row)) == 5
    text = comparison_page(one)
    assert "2 × aten::mul, 0.5 × a|b<i>" in Page(text).text
    assert "<i>" not in text
