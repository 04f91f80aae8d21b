# SPDX-License-Identifier: Apache-2.0
"""Drawings as a page takes them."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest
from helpers.report_run import HOSTILE

from cclbench.present.charts.chart import HALF_PX, Titles, blank_canvas
from cclbench.present.charts.palette import COLOURS, MARKERS, light_colour
from cclbench.present.charts.svg import drawn_svg
from cclbench.present.words import bound_text


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
