# SPDX-License-Identifier: Apache-2.0
"""Hostile texts in terminals, pages and forms."""

from __future__ import annotations

import csv
import io
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
COMMANDS = (
    ("run", "{card}"), ("run", "{card}", "-v"), ("run", "{traces}"), ("run", "{card}", "--window", "trace"),
    ("ingest", "{card}", "-v"), ("metrics", "{card}", "--metric", "compute.dominant_kernel"),
    ("compare", "{card}", "{other}"), ("compare", "{card}", "{other}", "-v"),
    ("compare", "{card}", "{traces}"), ("compare", "{card}", "{other}", "--fail-on", "time.step > 5 s"),
    ("whatif", "{card}", "--set", "scale_up.bandwidth=x2", "-v"),
    ("sql", "{card}", "SELECT DISTINCT name FROM events"), ("sql", "{card}", "FROM groups"),
    ("sql", "{card}", 'SELECT 1 AS "\x1b[31m\u202e<b>"'), ("list", "runs"), ("card", "validate", "{card}"),
    ("card", "show", "{card}"), ("claims",), ("claims", "-v"),
)  # fmt: skip


def assert_clean(text: str) -> None:
    """Printable characters and line breaks: nothing moves the cursor, colours, rings or turns a line."""
    assert not {c for c in text if not c.isprintable()} - {"\n"}


@pytest.mark.parametrize(
    "words", COMMANDS, ids=lambda words: " ".join(words)[:60].encode("unicode_escape").decode()
)
def test_the_terminal_stays_clean(
    call: Call, cards: tuple[Path, Path], words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = cards[0].parent.parent
    monkeypatch.chdir(root)  # paths as short as a person's
    card, other = (path.relative_to(root) for path in cards)
    places = {"card": card, "other": other, "traces": Path("traces") / card.stem}
    answer = call(*(word.format(**places) if word.startswith("{") else word for word in words))
    assert answer.code == 0, answer.err[:1000]
    assert_clean(answer.out)
    assert_clean(answer.err)
    if words[:2] != ("card", "show"):  # which is the card, whole
        assert max(map(len, answer.out.splitlines())) <= 80
        assert len(answer.out) < 60_000


def test_cards_are_listed(call: Call, cards: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(cards[0].parent.parent)
    answer = call("list", "cards")
    assert answer.code == 0
    assert_clean(answer.out)
    assert len(answer.out) < 20_000


@pytest.mark.parametrize(
    "words",
    [
        ("{}",), ("explain", "{}"), ("run", "{}"), ("run", "{card}", "--metric", "{}"),
        ("compare", "{card}", "{}"), ("compare", "{card}", "{card}", "--fail-on", "{}"),
        ("whatif", "{card}", "--set", "{}"), ("sql", "{card}", "{}"), ("card", "show", "{}"),
        ("verify", "{}"), ("claims", "{}"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_hostile_arguments_are_refused(call: Call, cards: tuple[Path, Path], words: tuple[str, ...]) -> None:
    for text in job.SHORT:
        if "\x00" in text:  # which no argument of a program holds
            continue
        answer = call(*(text if word == "{}" else cards[0] if word == "{card}" else word for word in words))
        assert answer.code in (2, 3), (text, answer.out)
        assert answer.out == ""
        assert answer.err.startswith("error: "), answer.err
        assert_clean(answer.err)
        assert answer.err.count("\n") <= 3, answer.err


@pytest.mark.parametrize("place", ["name", "device", "description"])
def test_half_a_character_is_refused_or_shown_as_what_it_is(call: Call, tmp_path: Path, place: str) -> None:
    """A lone surrogate, which JSON can spell and UTF-8 cannot."""
    document = job.trace(0)
    marked = {
        "name": lambda: document["traceEvents"][3].update(name="HALF"),
        "device": lambda: document["deviceProperties"][0].update(name="HALF"),
        "description": lambda: document["distributedInfo"]["pg_config"][0].update(pg_desc="HALF"),
    }
    marked[place]()
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(document).replace("HALF", "\\ud800"))
    for form in ("table", "json", "csv", "md"):
        answer = call("run", path, "--format", form)
        assert answer.code in (0, 3), answer.err
        assert "Traceback" not in answer.err
        if answer.code == 3:
            assert str(path) in answer.err


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


def test_the_viewer_s_trace_has_the_names(call: Call, cards: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "all.json"
    assert call("open", cards[0], "-o", path).code == 0
    names = {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}
    assert set(job.SHORT) <= names


NAMES = "SELECT DISTINCT name FROM events WHERE kind = 'kernel' AND name NOT LIKE 'nccl%'"
IN_FORMS = (
    ("run", "{card}"), ("compare", "{card}", "{other}"), ("sql", "{card}", NAMES),
    ("sql", "{card}", "FROM groups"), ("list", "runs"), ("claims",),
)  # fmt: skip


@pytest.fixture
def answered(call: Call, cards: tuple[Path, Path]) -> Callable[..., str]:
    """A command's data in a form, of a store with a run."""
    assert call("run", cards[0]).code == 0

    def run(words: tuple[str, ...], form: str) -> str:
        places = dict(zip(("{card}", "{other}"), cards, strict=True))
        answer = call(*(places.get(word, word) for word in words), "--format", form)
        assert answer.code == 0, answer.err
        return str(answer.out)

    return run


def test_json_and_csv_hold_the_names_as_they_are(answered: Callable[..., str]) -> None:
    """Also one that a spreadsheet would compute: a changed name would be another kernel's."""
    told = {row["name"] for row in json.loads(answered(("sql", "{card}", NAMES), "json"))["rows"]}
    assert told == set(job.TEXTS)
    short = f"{NAMES} AND length(name) < 1000"  # Python's csv module reads cells of up to 131,072 characters
    read = csv.DictReader(io.StringIO(answered(("sql", "{card}", short, "--raw"), "csv"), newline=""))
    assert {row["name"] for row in read} == set(job.SHORT)


def rendered(text: str) -> str:
    """Markdown without what is escaped and without code: what is left may format."""
    return re.sub(r"\\[!-/:-@\[-`{-~]", "", re.sub(r"(?<!\\)`[^`\n]*`", "", text))


@pytest.mark.parametrize("words", IN_FORMS, ids=" ".join)
def test_markdown_keeps_its_tables(answered: Callable[..., str], words: tuple[str, ...]) -> None:
    text = answered(words, "md")
    assert not {c for c in text if not c.isprintable()} - {"\n"}
    own = re.sub(r"</?details>|</?summary>", "", rendered(text))
    assert not re.search(r"<[a-zA-Z/!]", own)
    assert "](" not in own
    assert "://" not in own
    assert "www." not in own
    assert "@" not in own
    assert "$" not in own
    columns = None
    for line in text.splitlines():
        if not line.startswith("|"):
            columns = None
            continue
        cells = rendered(line).count("|")
        assert cells == (columns or cells), line[:300]
        columns = cells
