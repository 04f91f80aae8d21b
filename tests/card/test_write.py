# SPDX-License-Identifier: Apache-2.0
"""What is written reads back as it was, in any reader's YAML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cclbench.card.json_schema import card_schema
from cclbench.card.read import parse_card
from cclbench.card.write import render_card

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=200)


def cards() -> st.SearchStrategy[dict[str, Any]]:
    trace = st.fixed_dictionaries(
        {"path": texts}, optional={"ranks": st.lists(st.integers(0, 2**63 - 1), min_size=1)}
    )
    return st.fixed_dictionaries(
        {"version": st.just(2), "id": texts, "description": texts},
        optional={
            "workload": st.fixed_dictionaries({"phase": texts}, optional={"dataset": texts}),
            "software": st.fixed_dictionaries(
                {
                    "communication": st.fixed_dictionaries(
                        {
                            "protocols": st.lists(texts, min_size=1),
                            "environment": st.dictionaries(texts, st.text(max_size=9), min_size=1).filter(
                                safe
                            ),
                        }
                    )
                }
            ),
            "evidence": st.fixed_dictionaries({"traces": st.lists(trace, min_size=1, max_size=3)}),
        },
    )


def safe(environment: dict[str, str]) -> bool:
    return all(
        not any("\ud800" <= c <= "\udfff" or c < " " or "\x7f" <= c < "\xa0" for c in v)
        for v in environment.values()
    )


@given(card=cards())
def test_a_written_card_reads_back_here_and_in_other_readers(card: dict[str, Any]) -> None:
    """YAML 1.1 turns yes, 12:30 and dates into something else unless they are quoted."""
    document = parse_card(render_card(card), "x.yaml")
    assert document.value == yaml.safe_load(render_card(card)) == card
    assert document.problems == ()


@pytest.mark.parametrize(
    "word",
    [
        *["yes", "OFF", "n", "null", "~", "2.10", "1e9", "0x1", "12:30", "2024-01-31", "'", "."],
        "- x",
        "a: b",
        "a #b",
        "",
    ],
)
def test_a_word_that_could_be_read_otherwise_is_quoted(word: str) -> None:
    text = render_card({"version": 2, "id": word})
    assert f'id: "{word}"' in text or word == ""
    assert word == "" or yaml.safe_load(text)["id"] == word


def test_a_long_description_is_folded_within_a_hundred_columns() -> None:
    description = "words of a sentence " * 20
    text = render_card({"version": 2, "id": "x", "description": description.strip()})
    lines = text.split("workload")[0].splitlines()
    assert "description: >-" in lines
    assert max(map(len, lines)) <= 102
    assert parse_card(text, "x").value["description"] == description.strip()


def test_what_is_missing_is_marked_where_it_belongs() -> None:
    text = render_card(
        {"version": 2, "id": "x", "hardware": {"count": 8}}, {"hardware.system": "maybe a dgx"}
    )
    lines = text.splitlines()
    at = lines.index("hardware:")
    told = "# to fill in: catalog id of the accelerator"
    assert lines[at + 1] == f"  # accelerator: nvidia-h100-sxm  {told}"
    assert lines[at + 2] == "  count: 8"
    assert any(line.startswith("  # system: ") and line.endswith("; maybe a dgx") for line in lines)
    place = lines.index("# contributor:")
    assert lines[place + 1] == "#   name: Ada Lovelace  # to fill in: name"


@given(card=cards())
def test_every_gap_is_valid_once_it_is_uncommented(card: dict[str, Any]) -> None:
    text = re.sub(r"^( *)# (?=( *)(?:\w+:|- ))", r"\1", render_card(card), flags=re.MULTILINE)
    filled = parse_card(text, "x.yaml")
    assert filled.problems == ()
    assert missing(card_schema(), filled.value) == []
    assert not any(value in (None, {}, []) for value in leaves_of(filled.value) if value != "")


def missing(part: dict[str, Any], value: dict[str, Any], prefix: str = "") -> list[str]:
    """What the schema knows and the card lacks."""
    found = []
    for key, below in part["properties"].items():
        if key not in value:
            found.append(prefix + key)
        elif "properties" in below:
            found += missing(below, value[key], f"{prefix}{key}.")
    return found


def leaves_of(value: Any) -> Iterator[Any]:
    """All that is no mapping; an empty mapping itself."""
    if isinstance(value, dict) and value:
        for below in value.values():
            yield from leaves_of(below)
    else:
        yield value


def test_a_note_on_a_value_stands_above_it_and_gaps_may_be_left_out() -> None:
    lines = render_card({"version": 2, "id": "x"}, {"id": "choose\na name \x1b[31m"}).splitlines()
    assert lines[lines.index("id: x") - 1].startswith("# to fill in: choose")
    assert "\x1b" not in "".join(lines)
    text = render_card({"version": 2, "id": "x", "workload": {"phase": "training"}}, gaps=False)
    assert text == "version: 2\nid: x\nworkload:\n  phase: training\n"
