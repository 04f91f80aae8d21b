# SPDX-License-Identifier: Apache-2.0
"""Pages and pictures hold hostile texts as texts, and stay small."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from helpers import hostile_job as job

Call = Callable[..., Any]
MOST = 1_000_000
"""Characters of a page of this small job; a name alone has as many."""


class Tags(HTMLParser):
    """A page's elements, and the attributes that could run or load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.live: list[tuple[str, str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for key, value in attrs:
            local = (value or "").startswith(("#", "data:image/png;base64,"))
            if key.startswith("on") or (key in ("href", "src", "xlink:href", "action") and not local):
                self.live.append((tag, key, value))


def assert_page_is_safe(text: str) -> None:
    """Only what the template wrote is markup."""
    found = Tags(text)
    assert found.live == []
    assert found.tags["script"] <= 1
    for tag in ("iframe", "object", "embed", "form", "base", "img"):
        assert not found.tags[tag], tag
    assert len(text) < MOST
    assert not set(text) & set("\x00\x07\x1b\x85\x9b\u202e\u2066")
    # A template that took a text for its own would have computed this.
    assert "{{ 7 * 7 }}" in text


@pytest.mark.parametrize(
    "words", [("report", "{card}"), ("compare", "-q", "{card}", "{other}")], ids=" ".join
)
def test_html(call: Call, cards: tuple[Path, Path], tmp_path: Path, words: tuple[str, ...]) -> None:
    places = dict(zip(("{card}", "{other}"), cards, strict=True))
    path = tmp_path / "page.html"
    answer = call(*(places.get(word, word) for word in words), "-o", path)
    assert (answer.code, answer.err) == (0, f"wrote {path}\n")
    assert_page_is_safe(path.read_text())


@pytest.mark.parametrize(
    "words", [("timeline", "{card}", "-o"), ("run", "-q", "{card}", "--plot")], ids=" ".join
)
@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_pictures(
    call: Call, cards: tuple[Path, Path], tmp_path: Path, words: tuple[str, ...], suffix: str
) -> None:
    path = tmp_path / f"picture.{suffix}"
    assert call(*(cards[0] if word == "{card}" else word for word in words), path).code == 0
    assert path.stat().st_size < MOST
    if suffix == "svg":
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.parse(path).iter()}  # noqa: S314 - ours
        assert not tags & {"script", "a", "img", "image", "foreignObject", "b"}
        assert not re.search(r"\son\w+=", path.read_text())


def test_the_trace_for_the_viewer_is_json_with_the_names_as_they_are(
    call: Call, cards: tuple[Path, Path], tmp_path: Path
) -> None:
    path = tmp_path / "all.json"
    assert call("open", cards[0], "-o", path).code == 0
    names = {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}
    assert set(job.SHORT) <= names
