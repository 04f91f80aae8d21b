# SPDX-License-Identifier: Apache-2.0
"""JSON stays JSON, CSV keeps its cells, Markdown its tables, whatever texts they hold."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import hostile_job as job

Call = Callable[..., Any]
NAMES = "SELECT DISTINCT name FROM events WHERE kind = 'kernel' AND name NOT LIKE 'nccl%'"
COMMANDS = (
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


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_markdown_keeps_its_tables_and_links_nowhere(
    answered: Callable[..., str], words: tuple[str, ...]
) -> None:
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
