# SPDX-License-Identifier: Apache-2.0
"""The file is read whole, or refused with the row's number."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cclbench.ground.errors import InputError
from cclbench.studies.published import leaderboard
from cclbench.studies.published.leaderboard import Publication, read_leaderboard

GOOD = {"trace": "t", "metadata": {"workload_name": "a"}, "metrics": {"mfu": 50.0, "ttft": None}}


def test_the_real_file_and_whole_numbers(board: Publication, board_of: Callable[..., Path]) -> None:
    assert len(board.rows) == 102
    assert len({row.sha256 for row in board.rows}) == 102
    assert board.generated_at == "2026-05-07T07:17:59.275695+00:00"
    assert len({column for row in board.rows for column in row.metrics}) == 25
    told = [value for row in board.rows for value in row.metrics.values()]
    assert (len(told), sum(value is not None for value in told)) == (2139, 1742)
    board = read_leaderboard(board_of(GOOD | {"metrics": {"mfu": 50}}))
    assert board.rows[0].metrics == {"mfu": 50.0}


WRONG = "row 2: Expected `float | null`, got `{}` - at `$.metrics[...]`"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([], "row 2: Expected `object`, got `array`"),
        ({"metrics": {}}, "row 2: Object missing required field `trace`"),
        (GOOD | {"more": 1}, "row 2: Object contains unknown field `more`"),
        (GOOD | {"metadata": "x"}, "row 2: Expected `object`, got `str` - at `$.metadata`"),
        (GOOD | {"metadata": {}}, "row 2: its metadata has no workload_name"),
        (GOOD | {"metadata": {"workload_name": 7}}, "row 2: its metadata has no workload_name"),
        (GOOD | {"metrics": {"mfu": "50"}}, WRONG.format("str")),
        (GOOD | {"metrics": {"mfu": True}}, WRONG.format("bool")),
        (GOOD | {"metrics": {"mfu": [1]}}, WRONG.format("array")),
        (GOOD | {"trace": "\ud800"}, "row 2: contains text that is not Unicode"),
        (None, "row 2: Expected `object`, got `null`"),
    ],
)
def test_a_bad_row_is_named(board_of: Callable[..., Path], row: Any, words: str) -> None:
    path = board_of(GOOD, row)
    with pytest.raises(InputError) as caught:
        read_leaderboard(path)
    assert caught.value.what == words
    assert caught.value.where == str(path)


INFINITE = '{"rows": [{"trace": "", "metadata": {"workload_name": "a"}, "metrics": {"mfu": 1e999}}]}'
BEYOND = json.dumps({"rows": [GOOD | {"metrics": {"mfu": 10**400}}]})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not valid JSON"), ("{", "is not valid JSON"), ("[]", "has no list of rows"),
        ('{"rows": {}}', "has no list of rows"), ('{"rows": []}', "has no list of rows"),
        ('{"rows": [], "rows": []}', 'the key "rows" is repeated'),
        ('{"rows": [NaN]}', "NaN is not a JSON number"),
        ('{"rows": [-Infinity]}', "-Infinity is not a JSON number"),
        (INFINITE, 'row 1: "mfu" is not a finite number'), (BEYOND, "row 1"),
        ('{"rows": ' + "[" * 200_000, "is nested too deeply"),
        ('{"rows": [' + "9" * 5000 + "]}", "is not valid JSON"), ("\x00", "is not valid JSON"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "board.json"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_leaderboard(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file"):
        read_leaderboard(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        read_leaderboard(tmp_path / "none")
    with pytest.raises(InputError, match="cannot be read"):
        read_leaderboard(Path("a\0b"))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InputError, match="is not valid JSON"):
        read_leaderboard(tmp_path / "bytes")


def test_bounds(board_of: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = board_of(GOOD, GOOD)
    monkeypatch.setattr(leaderboard, "_MOST_ROWS", 1)
    with pytest.raises(InputError, match="has 2 rows, more than 1"):
        read_leaderboard(path)
    monkeypatch.setattr(leaderboard, "LARGEST_BYTES", 10)
    with pytest.raises(InputError, match="is over"):
        read_leaderboard(path)
