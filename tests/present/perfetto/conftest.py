# SPDX-License-Identifier: Apache-2.0
"""Runs to show, each ingested once; makes `trace_viewer` importable."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import cclbench

sys.path.append(str(Path(__file__).parent))

Opened = Callable[[str], cclbench.Run]


@pytest.fixture(scope="session")
def opened(repository: Path, test_data: Path, evidence_store: Path) -> Opened:
    """`opened(name)`: a shipped data point by its id, or a file or folder of the external evidence."""

    @cache
    def run(name: str) -> cclbench.Run:
        card = repository / "workload_cards" / f"{name}.yaml"
        return cclbench.ingest(card if card.exists() else test_data / name, store=evidence_store)

    return run
