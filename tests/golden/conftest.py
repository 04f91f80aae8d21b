# SPDX-License-Identifier: Apache-2.0
"""Runs of real traces, each computed once a session, in one store."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import cclbench
from cclbench.record.run import Run

Measure = Callable[..., Run]
Rows = Callable[[Path], list[dict[str, Any]]]


@pytest.fixture(scope="session")
def kineto(test_data: Path) -> Path:
    """The folder of real PyTorch traces, one folder a capture."""
    return test_data / "kineto"


@pytest.fixture(scope="session")
def measure(evidence_store: Path) -> Measure:
    """`measure(source, window)`: all metrics of a source, shared by all tests that ask for them."""

    @cache
    def run(source: Path, window: str = "steps") -> Run:
        return cclbench.run(source, store=evidence_store, window=window)

    return run


@pytest.fixture(scope="session")
def complete_rows() -> Rows:
    """`complete_rows(file)`: the JSON's own rows with a duration, times as the decimals written there."""

    @cache
    def rows(path: Path) -> list[dict[str, Any]]:
        trace = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
        events = trace if isinstance(trace, list) else trace["traceEvents"]
        return [event for event in events if event.get("ph") == "X"]

    return rows
