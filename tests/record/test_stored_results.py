# SPDX-License-Identifier: Apache-2.0
"""Results that the store has are not computed again, and are the same rows as when they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import cclbench
from cclbench import engine, results
from cclbench.ground.errors import UsageError
from cclbench.record.run import Run

CARD = "tiny-llama-fsdp2-tp2-gloo-cpu.yaml"


@pytest.fixture(scope="module")
def stored(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in a store of its own, without results."""
    return cclbench.ingest(repository / "workload_cards" / CARD, store=tmp_path_factory.mktemp("store"))


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is computed on ranks, in order."""
    done: list[str] = []
    every = engine.Engine.gather

    def counted(*arguments: Any, what: str = "", **options: Any) -> Any:
        done.append(what)
        return every(*arguments, what=what, **options)

    monkeypatch.setattr(engine.Engine, "gather", counted)
    return done


def cold(stored: Run, **options: Any) -> Run:
    (stored.path / "results.parquet").unlink(missing_ok=True)
    return cclbench.metrics(stored, **options)


@pytest.mark.parametrize("options", [{}, {"window": "trace"}, {"model": False}])
def test_stored_rows_are_the_computed_ones(stored: Run, computed: list[str], options: dict[str, Any]) -> None:
    first = cold(stored, **options)
    assert computed == ["computing metrics"]
    again = cclbench.metrics(stored, **options)
    assert computed == ["computing metrics"]
    assert (again.rows, again.window) == (first.rows, first.window)
    assert {row["rank"] for row in again.rows} == {None, 0, 1, 2, 3}


@pytest.mark.parametrize(
    "patterns",
    [
        ["time.*"],
        ["comm.count", "time.step"],
        ["bandwidth_utilization_allgather_group_6"],
        ["serving.*"],
        "*",
    ],
)
def test_of_stored_rows_those_asked_for_are_taken(
    stored: Run, computed: list[str], patterns: list[str]
) -> None:
    alone = cold(stored, metrics=patterns)
    cold(stored)
    computed.clear()
    again = cclbench.metrics(stored, metrics=patterns)
    assert computed == []
    assert (again.rows, again.window) == (alone.rows, alone.window)


@pytest.mark.parametrize(
    "options", [{"window": "trace"}, {"model": False}, {"ranks": [0]}, {"steps": (0, 99)}]
)
def test_other_options_are_computed(stored: Run, computed: list[str], options: dict[str, Any]) -> None:
    alone = cold(stored, **options)
    cold(stored)
    computed.clear()
    assert cclbench.metrics(stored, **options).rows == alone.rows
    assert computed == ["computing metrics"]


def test_a_replay_comes_and_goes_with_the_question(stored: Run, computed: list[str]) -> None:
    replayed = cold(stored, metrics=["*", "whatif.*"])
    plain = cold(stored)
    assert plain.rows != replayed.rows
    computed.clear()
    for _ in range(2):
        assert cclbench.metrics(stored, metrics=["*", "whatif.*"]).rows == replayed.rows
        assert cclbench.metrics(stored).rows == plain.rows
    assert computed == []


def test_metrics_that_changed_are_computed(
    stored: Run, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cold(stored)
    monkeypatch.setattr(results, "_metrics_code_hash", lambda: "another")
    cclbench.metrics(stored)
    assert computed == ["computing metrics", "computing metrics"]


def test_a_wrong_selection_is_refused_as_before(stored: Run) -> None:
    cold(stored)
    with pytest.raises(UsageError, match="unknown window"):
        cclbench.metrics(stored, window="stepz")
    with pytest.raises(UsageError, match="has no rank"):
        cclbench.metrics(stored, ranks=[9])
