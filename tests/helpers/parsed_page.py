# SPDX-License-Identifier: Apache-2.0
"""A page as tests look at it."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser

VOID = {"meta", "input", "wbr", "br", "img", "link"}


class Page(HTMLParser):
    """A page's elements, ids, references and visible texts; it asserts that tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self.titles: list[str] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in VOID:
            self._open.append(tag)
        kept = {"id": self.ids, "title": self.titles} | dict.fromkeys(("href", "src", "action"), self.links)
        for key, value in attrs:
            self.attributes.add(key)
            if key in kept:
                kept[key].append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)
