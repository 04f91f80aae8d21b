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


def test_a_missing_file_is_named_and_does_not_keep_the_card_from_loading(complete: Path) -> None:
    trace = complete.parent.parent / "traces/tiny/rank0.json"
    trace.unlink()
    assert messages(complete) == [f"evidence.traces[0].path: no such file: {trace}"]
    assert load_card(complete).evidence.traces[0].path == "traces/tiny/rank0.json"


def test_a_changed_file_is_told_by_its_hash(complete: Path) -> None:
    (complete.parent.parent / "traces/tiny/rank0.json").write_bytes(b"{}\n")
    (message,) = messages(complete)
    assert message.startswith("evidence.traces[0].sha256: does not match")


def test_a_grown_file_is_told_by_its_size_too(complete: Path) -> None:
    (complete.parent.parent / "traces/tiny/rank0.json").write_bytes(b"[1]\n")
    assert "evidence.traces[0].bytes: is 3, but the file has 4 bytes" in messages(complete)


def test_a_folder_is_no_trace(changed: Change) -> None:
    assert "is a folder; name its files" in messages(changed("traces/tiny/rank0.json", "traces/tiny"))[0]


def test_a_missing_launch_script_is_named(changed: Change) -> None:
    (message,) = messages(changed("scripts/tiny/run.sh", "scripts/tiny/walk.sh"))
    assert message.startswith("evidence.launch: no such file")


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../outside", "traces/../../outside", "C:/x", r"traces\\x", r'"a\0b"', "//host/x", "c:x"],
)
def test_a_path_that_leads_out_is_refused_on_load(changed: Change, path: str) -> None:
    card = changed("path: traces/tiny/rank0.json", f"path: {path}")
    with pytest.raises(CheckFailed, match=r"evidence\.traces\[0\]\.path: (must|contains)"):
        load_card(card)


def test_a_link_that_leads_out_is_refused(complete: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "rank0.json"
    outside.write_bytes(b"[]\n")
    trace = complete.parent.parent / "traces/tiny/rank0.json"
    trace.unlink()
    trace.symlink_to(outside)
    assert messages(complete) == ["evidence.traces[0].path: leads out of the card's folder through a link"]


def test_a_loop_of_links_is_a_problem_and_no_crash(complete: Path) -> None:
    trace = complete.parent.parent / "traces/tiny/rank0.json"
    trace.unlink()
    trace.symlink_to(trace)
    assert len(messages(complete)) == 1


def test_paths_start_beside_workload_cards_or_at_the_card(tmp_path: Path) -> None:
    assert root_of(tmp_path / "workload_cards" / "x.yaml") == tmp_path
    assert root_of(tmp_path / "elsewhere" / "x.yaml") == tmp_path / "elsewhere"


def test_a_file_that_is_elsewhere_may_be_missing_here(changed: Change) -> None:
    card = changed(
        "      format: kineto\n", "      format: kineto\n      url: https://example.org/rank0.json\n"
    )
    assert messages(card) == []  # it is here as well, and is what the card says
    (card.parent.parent / "traces/tiny/rank0.json").unlink()
    (problem,) = validate_card(card)
    assert (problem.severity, problem.path) == ("warning", "evidence.traces[0].url")
    assert "not here" in problem.message


@pytest.mark.parametrize("url", ["http://example.org/x", "ftp://example.org/x", "/x", '"https://a b"'])
def test_a_file_is_elsewhere_only_by_https(changed: Change, url: str) -> None:
    card = changed("      format: kineto\n", f"      format: kineto\n      url: {url}\n")
    assert "evidence.traces[0].url: is " in messages(card)[0]


def test_a_file_elsewhere_needs_what_it_must_be(changed: Change) -> None:
    card = changed("      bytes: 3\n", "      url: https://example.org/rank0.json\n")
    assert messages(card) == [
        "evidence.traces[0].url: requires sha256 and bytes, which identify the file there"
    ]
