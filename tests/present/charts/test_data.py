# SPDX-License-Identifier: Apache-2.0
"""Charts: their data, ticks, colours and pictures."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from helpers.report_run import HOSTILE, by_rank, by_step, results, row, subject
from helpers.typed import PUBLISHED
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from cclbench.comparison.comparison import PARTS, PartChange, Versus
from cclbench.comparison.fingerprint import UNKNOWN
from cclbench.comparison.subject import ComparisonSubject
from cclbench.present.charts import straggler as heat
from cclbench.present.charts.bandwidth import bandwidth_chart, points_of, roofs_of
from cclbench.present.charts.chart import HALF_PX, Chart, Titles, blank_canvas
from cclbench.present.charts.overlap import overlap_chart
from cclbench.present.charts.overlap import points_of as steps_of
from cclbench.present.charts.palette import COLOURS, MARKERS, SLICES, light_colour
from cclbench.present.charts.partition import partition_chart
from cclbench.present.charts.phases import _COLOURS
from cclbench.present.charts.roofline import roofline_chart
from cclbench.present.charts.straggler import (
    LatenessByStep,
    limit_of,
    pool_lateness,
    rank_lateness,
    straggler_chart,
)
from cclbench.present.charts.svg import drawn_svg
from cclbench.present.charts.ticks import QuantityFormatter, index_axis, logarithmic_axis, quantity_axis
from cclbench.present.charts.waterfall import signed_time, waterfall_chart
from cclbench.present.words import bound_text

Rows = list[dict[str, object]]
EMPTY = dict.fromkeys(("ratio", "low", "high", "spread", "captures_needed")) | {"work": UNKNOWN, "words": ""}


def one(path: Path, rows: Rows | None = None) -> ComparisonSubject:
    return subject(path / "run", "", rows=rows)


def test_a_steps_overlap_is_that_of_all_ranks(tmp_path: Path) -> None:
    # Step 3: (10 + 10) of (60 + 40) ms; step 4: (30 + 0) of (60 + 40) ms.
    points, silent = steps_of(one(tmp_path).results)
    assert points == [(3, pytest.approx(0.2), 0.1), (4, pytest.approx(0.3), 0.1)]
    assert silent == 0


def test_steps_without_communication_are_counted(tmp_path: Path) -> None:
    rows = [*(row("time.step", 0.1, step=step) for step in (3, 4)), *by_step("time.overlapped", [[0.1, 0.0]])]
    rows += [*by_step("comm.time", [[0.2, 0.0]])]
    run = one(tmp_path, rows)
    assert steps_of(run.results) == ([(3, 0.5, 0.1)], 1)
    assert overlap_chart([run]).missing == (
        "not drawn: 1 step without communication on any rank",
        "one step: 50.0 % of its communication is hidden",
    )
    assert overlap_chart([run]).svg is None  # a chart of one mark shows nothing


@pytest.mark.parametrize(
    ("chart", "rows", "missing"),
    [
        (overlap_chart, [row("overlap.ratio", None, "1", reason="there is no communication")],
         "no overlap: there is no communication"),
        (roofline_chart, [row("memory.bound_share", None, "1", reason="no kernel states both")],
         "no roofline: no kernel states both"),
        (
            bandwidth_chart,
            [
                *(r for r in results() if r["metric"] != "comm.bandwidth_utilization"),
                row("comm.bandwidth_utilization", None, "1", reason="no rate is known"),
            ],
            "no roofline: no rate is known",
        ),
        (lambda runs: straggler_chart(*runs), by_step("comm.wait", [[0.1]]), "needs at least two ranks"),
    ],
)  # fmt: skip
def test_reasons_for_no_chart(tmp_path: Path, chart: Callable[..., Chart], rows: Rows, missing: str) -> None:
    found = chart([one(tmp_path, rows)])
    assert found.missing == (missing,)
    assert (found.svg is None) == (chart is not bandwidth_chart)


def test_published_figures_are_one_hollow_mark(tmp_path: Path) -> None:
    told = {"provenance": "published", "reason": "summed over streams"}
    rows = [row("overlap.ratio", 0.8, "1", **told), row("time.step", 1.4, **told)]
    made = [
        subject(tmp_path / letter, letter, rows=rows, published=PUBLISHED, ranks=[]) for letter in ("A", "B")
    ]
    chart = overlap_chart(made)
    assert "the run: overlap 80.0 %, step time 1.40 s" in str(chart.svg)
    assert "time.step, published: summed over streams" in str(chart.svg)
    mark, _ = re.findall(r"<use[^>]*>(?=<title>[AB]: the run)", str(chart.svg))
    assert 'stroke="var(--compute)"' in mark
    assert 'fill="none"' in mark or 'fill-opacity="0"' in mark


def test_bandwidth_by_size_and_what_the_links_carry(tmp_path: Path) -> None:
    run = one(tmp_path)
    points = [(p.kind, p.group, p.low, p.high, p.row.value) for p in points_of(run)]
    assert points == [("all_reduce", "0-1", 2**10, 2**12, 2e9), ("all_reduce", "0-1", 2**20, 2**22, 4e9)]
    (roof,) = roofs_of(run)
    assert (roof.rate, roof.groups) == (12e9, ("0-1",))  # 3 GB/s are a quarter of it
    assert "12.0 GB/s by the catalog" in str(bandwidth_chart([run]).svg)


def test_modelled_bandwidth_is_hollow(tmp_path: Path) -> None:
    rows = [r | {"provenance": "modelled"} for r in results() if r["metric"] == "comm.busbw"]
    svg = str(bandwidth_chart([one(tmp_path, rows)]).svg)
    assert "comm.busbw, modelled" in svg
    assert 'fill="none" stroke="var(--compute)"' in svg or "fill-opacity" in svg


def test_who_waits_less_than_the_median_comes_late(tmp_path: Path) -> None:
    late, why = rank_lateness(one(tmp_path))
    assert (late is not None, why) == (True, "")
    np.testing.assert_allclose(late.values.tolist(), [[-0.01, -0.01], [0.01, 0.01]])


def test_without_waits_who_computes_longer_does(tmp_path: Path) -> None:
    rows = [row("comm.wait", None, reason="one rank is missing")]
    rows += [*by_step("compute.time", [[1.0, 2.0], [3.0, 2.0]])]
    late, _ = rank_lateness(one(tmp_path, rows))
    assert late.values.tolist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert "Waiting is unknown: one rank is missing." in late.words


def test_many_steps_keep_each_blocks_largest_and_many_ranks_the_latest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heat, "MOST_COLUMNS", 2)
    values = np.ma.array([[1.0, -5.0, 2.0, 0.5], [0.0, 1.0, -3.0, 4.0]])
    shown, notes = pool_lateness(LatenessByStep(np.array([0, 1]), np.arange(4), values, ""))
    assert shown.values.tolist() == [[-5.0, 2.0], [1.0, 4.0]]
    assert shown.steps.tolist() == [0, 2]
    assert notes == ["a column is 2 steps: the largest magnitude of each rank"]
    monkeypatch.setattr(heat, "MOST_ROWS", 2)
    values = np.ma.array([[1.0], [-1.0], [3.0]])
    shown, notes = pool_lateness(LatenessByStep(np.array([4, 5, 6]), np.arange(1), values, ""))
    assert shown.ranks.tolist() == [4, 6]
    assert notes == ["the 1 least late ranks are not drawn"]


def test_a_single_outlier_does_not_hide_all_others() -> None:
    values = np.ma.array([[0.001] * 99 + [1.0]])
    assert limit_of(values) == pytest.approx(0.001)
    assert limit_of(np.ma.zeros((2, 2))) > 0


def test_the_partition_tells_waiting_from_transfer_where_all_ranks_can(tmp_path: Path) -> None:
    """Measured on each: a rank that lacks it, or has it modelled, leaves one part for both."""

    def labels(rows: Rows | None) -> list[str]:
        chart = partition_chart([one(tmp_path, rows)])
        assert rows or "rank 0: exposed wait 20.0 ms, 20.0 % of 100 ms" in str(chart.svg)
        return [label for _, _, label in chart.legend]

    ends = ["compute only", "overlapped"], ["idle"]
    assert labels(None) == [*ends[0], "exposed transfer", "exposed wait", *ends[1]]
    lacking = [r for r in results() if not (r["metric"] == "time.exposed_wait" and r["rank"] == 1)]
    modelled = [r for r in results() if r["metric"] != "time.exposed_transfer"]
    modelled += by_rank("time.exposed_transfer", (0.03, 0.03), provenance="modelled")
    for rows in (lacking, modelled):
        assert labels(rows) == [*ends[0], "exposed communication", *ends[1]]


def test_the_waterfall_gives_each_part_to_the_nanosecond() -> None:
    moved = {"compute": 7, "exposed_transfer": -3, "idle_host": 1}
    changes = tuple(PartChange(part, 0.0, 0.0, moved.get(part, 0)) for part in PARTS)
    versus = Versus("A", "B", "time.step", **EMPTY, outcome="undecided", change_ns=5, changes=changes)
    svg = str(waterfall_chart(versus).svg)
    assert "+7 ns" in svg
    assert "−3.00 ns" in svg
    assert "time.step of B minus that of A: +5 ns" in svg
    assert signed_time(0) == "0"
    without = Versus("A", "B", "time.step", **EMPTY, outcome="not comparable", change_ns=None)
    assert waterfall_chart(without).missing == ("A or B has no partition of its step",)


def picture(text: str = "a bar", name: str = "one") -> ET.Element:
    """One hatched bar and three marks, all with hover texts."""

    def draw() -> tuple[object, Titles]:
        figure, axes = blank_canvas(HALF_PX, 200, left=40, right=10, top=10, bottom=30)
        (bar,) = axes.barh(0, 1, color=light_colour("wait"), hatch="//", edgecolor=light_colour("wait-hatch"))
        bar.set_gid("bar")
        (marks,) = axes.plot(
            [0.1, 0.2, 0.3], [0, 0, 0], marker="o", linestyle="none", color=light_colour("compute")
        )
        marks.set_gid("marks")
        axes.text(0, 0, bound_text(text, 60))
        return figure, {"bar": text, "marks": ["first", "second", "third"]}

    return ET.fromstring(drawn_svg(draw, name=name, label=text))  # type: ignore[arg-type]  # noqa: S314


def test_a_drawing_is_plain_with_hover_texts_in_the_themes_colours() -> None:
    """No style, no namespace and no metadata."""
    root = picture()
    assert root.tag == "svg"
    known = ("svg", "g", "path", "defs", "clipPath", "rect", "use", "text", "title", "pattern")
    assert {element.tag for element in root.iter()} <= {*known}
    assert not [element for element in root.iter() if "style" in element.attrib]
    assert [element.text for element in root.iter("title")] == ["a bar", "first", "second", "third"]
    text = ET.tostring(root, encoding="unicode")
    assert "font-family" not in text
    for name in ("wait", "wait-hatch", "compute"):
        assert f"var(--{name})" in text
        assert light_colour(name) not in text


def test_ids_are_unique_among_charts_and_references_follow() -> None:
    ids: list[str] = []
    for name in ("one", "two"):
        root = picture(name=name)
        own = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
        assert all(i.startswith(f"{name}-") for i in own)
        text = ET.tostring(root, encoding="unicode")
        assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text)) != set()
        assert {a or b for a, b in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text)} <= set(own)
        ids += own
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_are_texts(text: str) -> None:
    root = picture(text)
    assert bound_text(text, 60) in [element.text for element in root.iter("text")]
    assert "\n".join(map(bound_text, text.split("\n"))) in [element.text for element in root.iter("title")]


def test_the_light_colours_can_be_told_apart() -> None:
    assert len({pair[0] for pair in COLOURS.values()}) == len(COLOURS)
    assert len(set(MARKERS.values())) == len(MARKERS)


def labels_of(low: float, high: float, unit: str) -> list[str]:
    axes = Figure().add_subplot()
    axes.set_xlim(low, high)
    quantity_axis(axes.xaxis, unit)
    places = axes.xaxis.get_major_locator()()
    return axes.xaxis.get_major_formatter().format_ticks(places)


@pytest.mark.parametrize(
    ("low", "high", "unit", "first"),
    [
        (0.0170, 0.0188, "s", ["17.0 ms", "17.5 ms", "18.0 ms", "18.5 ms"]),
        (0.0, 2.1e9, "B", ["0.0 GB", "0.5 GB", "1.0 GB", "1.5 GB", "2.0 GB"]),
        (0.032, 0.036, "1", ["3.2 %", "3.3 %", "3.4 %", "3.5 %", "3.6 %"]),
        (0.0, 12.0, "requests", ["0 requests", "2 requests", "4 requests"]),
    ],
)
def test_ticks_differ_by_the_same_amount(low: float, high: float, unit: str, first: list[str]) -> None:
    shown = labels_of(low, high, unit)
    assert [label for label in shown if label in first] == first
    numbers = [float(label.split()[0]) for label in shown]
    steps = {round(b - a, 9) for a, b in pairwise(numbers)}
    assert len(steps) == 1


@given(st.floats(1e-9, 1e15), st.floats(2, 1e6))
def test_a_logarithmic_axis_has_ticks_within_its_limits(low: float, ratio: float) -> None:
    axes = Figure().add_subplot()
    axes.set_yscale("log")
    axes.set_ylim(low, low * ratio)
    logarithmic_axis(axes.yaxis)
    within = [tick for tick in axes.yaxis.get_major_locator()() if low <= tick <= low * ratio]
    assert 1 <= len(within) <= 12


def test_changes_have_a_sign_and_their_own_size() -> None:
    ticks = QuantityFormatter("s", size=1e-9, signed=True)
    axes = Figure().add_subplot()
    axes.xaxis.set_major_formatter(ticks)
    assert ticks.format_ticks([-5e6, 0.0, 5e6, 1e7]) == ["−5 ms", "0 ms", "+5 ms", "+10 ms"]
    assert ticks.format_ticks([]) == []


def test_no_step_is_left_out_between_two_labelled_ones() -> None:
    axes = Figure().add_subplot()
    index_axis(axes.xaxis, [str(step) for step in range(3, 15)], 16)
    axes.set_xlim(-0.5, 11.5)
    shown = axes.xaxis.get_major_formatter().format_ticks(axes.get_xticks())
    assert shown == [str(step) for step in range(3, 15)]
    index_axis(axes.xaxis, [str(step) for step in range(100)], 6)
    assert [round(x) for x in axes.get_xticks()] == [0, 20, 40, 60, 80]


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2.1 defines it."""
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = (v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in channels)
    return sum(weight * v for weight, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


PAIRS = {*((one.colour, one.ink) for part in SLICES for one in (part, *part.finer)), *_COLOURS.values()}


@pytest.mark.parametrize("theme", [0, 1])
@pytest.mark.parametrize(("colour", "ink"), sorted(PAIRS))
def test_ink_stands_out(colour: str, ink: str, theme: int) -> None:
    bright, dark = sorted((luminance(COLOURS[name][theme]) for name in (colour, ink)), reverse=True)
    assert (bright + 0.05) / (dark + 0.05) >= 3
