# SPDX-License-Identifier: Apache-2.0
"""The hostile job on disk, two data points of it, and the command line in an empty folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers import hostile_job as job
from helpers.command_line import Answer

from cclbench.cli import main


@pytest.fixture(scope="session")
def cards(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two cards of the job that differ in a number; their traces lie beside them."""
    folder = tmp_path_factory.mktemp("data-points")
    return job.write(folder), job.write(folder, "other", layers=3)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all tests: a run is read once."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: Path
) -> Iterator[Callable[..., Answer]]:
    """`cclbench ARGUMENTS` in an empty folder, where nothing may appear."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("CCLBENCH_STORE", str(store))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("cclbench.engine.available_cores", lambda: 1)  # a process of its own takes a second

    def run(*arguments: object) -> Answer:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    yield run
    assert list(here.iterdir()) == []
    assert not [path for folder in (tmp_path, *store.parents) for path in folder.glob(f"*{job.PLANTED}*")]
