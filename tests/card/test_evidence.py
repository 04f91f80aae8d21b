# SPDX-License-Identifier: Apache-2.0
"""Files that a card names: there, unchanged, and inside their folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cclbench.card import load_card, root_of, validate_card
from cclbench.ground.errors import CheckFailed

Change = Callable[[str, str], Path]


def messages(card: Path) -> list[str]:
    return [f"{problem.path}: {problem.message}" for problem in validate_card(card)]


def trace_of(card: Path) -> Path:
    return card.parent.parent / "traces/tiny/rank0.json"


def link_out(trace: Path) -> None:
    trace.rename(trace.parents[3] / "outside.json")
    trace.symlink_to(trace.parents[3] / "outside.json")


def link_to_itself(trace: Path) -> None:
    trace.unlink()
    trace.symlink_to(trace)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(Path.unlink, ["path: no such file: "], id="missing"),
        pytest.param(lambda t: t.write_bytes(b"{}\n"), ["sha256: does not match"], id="changed"),
        pytest.param(
            lambda t: t.write_bytes(b"[1]\n"),
            ["sha256: does not match", "bytes: is 3, but the file has 4 bytes"],
            id="grown",
        ),
        pytest.param(link_out, ["path: leads out of the card's folder through a link"], id="a link out"),
        pytest.param(link_to_itself, ["path: "], id="a loop of links"),
    ],
)
def test_a_file_that_is_not_the_cards_is_told(
    complete: Path, damage: Callable[[Path], object], said: list[str]
) -> None:
    damage(trace_of(complete))
    told = messages(complete)
    assert len(told) == len(said), told
    for one, words in zip(told, said, strict=True):
        assert one.startswith(f"evidence.traces[0].{words}")


def test_a_folder_or_a_script_that_is_not_there_is_named(changed: Change) -> None:
    (message,) = messages(changed("scripts/tiny/run.sh", "scripts/tiny/walk.sh"))
    assert message.startswith("evidence.launch: no such file")
    assert "is a folder; name its files" in messages(changed("traces/tiny/rank0.json", "traces/tiny"))[0]


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../outside", "traces/../../outside", "C:/x", r"traces\\x", r'"a\0b"', "//host/x", "c:x"],
)
def test_a_path_that_leads_out_is_refused_on_load(changed: Change, path: str) -> None:
    card = changed("path: traces/tiny/rank0.json", f"path: {path}")
    with pytest.raises(CheckFailed, match=r"evidence\.traces\[0\]\.path: (must|contains)"):
        load_card(card)


def test_paths_start_beside_workload_cards_or_at_the_card(tmp_path: Path) -> None:
    assert root_of(tmp_path / "workload_cards" / "x.yaml") == tmp_path
    assert root_of(tmp_path / "elsewhere" / "x.yaml") == tmp_path / "elsewhere"


def test_a_file_that_is_elsewhere_may_be_missing_here(changed: Change) -> None:
    card = changed(
        "      format: kineto\n", "      format: kineto\n      url: https://example.org/rank0.json\n"
    )
    assert messages(card) == []  # it is here as well, and is what the card says
    trace_of(card).unlink()
    (problem,) = validate_card(card)
    assert (problem.severity, problem.path) == ("warning", "evidence.traces[0].url")
    assert "not here" in problem.message
    card.write_text(card.read_text().replace("url:", "# url:"))
    assert load_card(card).evidence.traces[0].path == "traces/tiny/rank0.json"  # though it is an error


@pytest.mark.parametrize("url", ["http://example.org/x", "ftp://example.org/x", "/x", '"https://a b"'])
def test_a_file_is_elsewhere_only_by_https(changed: Change, url: str) -> None:
    card = changed("      format: kineto\n", f"      format: kineto\n      url: {url}\n")
    assert "evidence.traces[0].url: is " in messages(card)[0]


def test_a_file_elsewhere_needs_what_it_must_be(changed: Change) -> None:
    card = changed("      bytes: 3\n", "      url: https://example.org/rank0.json\n")
    assert messages(card) == [
        "evidence.traces[0].url: requires sha256 and bytes, which identify the file there"
    ]
