# SPDX-License-Identifier: Apache-2.0
"""A store with two runs."""

from __future__ import annotations

from pathlib import Path

import pytest

import cclbench


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A store with two runs."""
    folder = tmp_path_factory.mktemp("agents")
    for name in ("ddp4", "fsdp4"):
        cclbench.run(repository / "workload_cards" / f"tiny-llama-{name}-gloo-cpu.yaml", store=folder)
    return folder
