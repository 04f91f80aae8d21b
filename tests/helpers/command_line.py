# SPDX-License-Identifier: Apache-2.0
"""`cclbench ARGUMENTS` in this process, and what it gave."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cclbench.cli import main


class Answer(NamedTuple):
    """What a call of the command line gave."""

    code: int
    out: str
    err: str


Call = Callable[..., Answer]
Told = Callable[..., Any]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """`cclbench ARGUMENTS` in this process, with `tmp_path / "store"` as the store."""
    monkeypatch.setenv("CCLBENCH_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: object) -> Answer:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return run


@pytest.fixture
def told(call: Call) -> Told:
    return lambda *words: json.loads(call(*words, "--json").out)
