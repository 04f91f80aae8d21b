# SPDX-License-Identifier: Apache-2.0
"""Fixtures shared by all tests; makes `helpers` importable."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.append(str(REPOSITORY / "tests"))

from helpers.evidence import Evidence, missing  # noqa: E402 - a helper of tests

# A background job of a shell ignores Ctrl-C, as would the commands that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# HYPOTHESIS_PROFILE names one of three.  Deadlines and these checks measure the machine, not the code.
settings.register_profile(
    "dev",
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
settings.register_profile(
    "ci", settings.get_profile("dev"), max_examples=50, derandomize=True, database=None, print_blob=True
)
settings.register_profile("thorough", settings.get_profile("dev"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


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
    """The folder of external evidence; what it lacks skips a test on a bare machine and fails it in CI."""
    folder = Path(os.environ.get("CCLBENCH_TEST_DATA", REPOSITORY.parent / "shared" / "fixtures"))
    if not folder.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"CI needs the external evidence, and {folder} is missing")
        pytest.skip(f"external evidence not found at {folder}: scripts/fetch_fixtures.py downloads it")
    if os.environ.get("CI") or not missing(folder):
        return folder
    Evidence.folder = folder
    return Evidence(folder)
