# SPDX-License-Identifier: Apache-2.0
"""Whatever names a trace or a card has, the terminal prints text, of a size that a person can read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def test_all_cards_are_listed_on_a_page(
    call: Call, cards: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_hostile_arguments_are_refused_in_three_lines(
    call: Call, cards: tuple[Path, Path], words: tuple[str, ...]
) -> None:
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
