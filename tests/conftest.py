# SPDX-License-Identifier: Apache-2.0
"""Fixtures shared by all tests; makes the package `synthetic` importable."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.append(str(REPOSITORY / "tests"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout's root: workload_cards/, traces/ and scripts/ lie below it."""
    return REPOSITORY


@pytest.fixture(scope="session")
def evidence_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for runs of evidence that tests read and never change: a trace is read once a session."""
    return tmp_path_factory.mktemp("evidence") / "store"


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of external evidence; its absence skips a test on a bare machine and fails it in CI."""
    folder = Path(os.environ.get("CCLBENCH_TEST_DATA", REPOSITORY.parent / "shared" / "fixtures"))
    if not folder.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"CI needs the external evidence, and {folder} is missing")
        pytest.skip(f"external evidence not found at {folder}; set CCLBENCH_TEST_DATA")
    return folder
