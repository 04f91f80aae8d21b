# SPDX-License-Identifier: Apache-2.0
"""Gains are replayed once for a run, a scope and this code; what else is in their file is not believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import cclbench
from cclbench.findings.diagnosis import findings_of_run
from cclbench.findings.gains import ReplayGains
from cclbench.findings.kept_gains import GAINS_FILE
from cclbench.replay.answer import Replay


@pytest.fixture(scope="module")
def store(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("store")
    cclbench.run(repository / "workload_cards" / "tiny-llama-fsdp2-tp2-gloo-cpu.yaml", store=store)
    return store


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is replayed from now on."""
    made: list[Any] = []
    original = Replay.__init__

    def replay(self: Replay, *args: Any, **options: Any) -> None:
        made.append(options)
        original(self, *args, **options)

    monkeypatch.setattr(Replay, "__init__", replay)
    return made


def stored(store: Path, **options: Any) -> cclbench.Run:
    (path,) = (path for path in store.iterdir() if not path.name.startswith("."))
    return cclbench.run(path.name, store=store, **options)


def test_a_gain_is_replayed_once(store: Path, replays: list[Any]) -> None:
    run = stored(store)
    first = findings_of_run(run, run.figures)
    assert len(replays) == 1
    assert any(one.gain_s is not None for one in first)
    assert findings_of_run(run, run.figures) == first
    assert len(replays) == 1


def test_other_steps_are_replayed_anew(store: Path, replays: list[Any]) -> None:
    run = stored(store, steps=(3, 6))
    some = findings_of_run(run, run.figures)
    assert len(replays) == 1
    assert [*ReplayGains(run, run.figures.scope)._rank_view(0).windows.steps] == [3, 4, 5]
    whole = stored(store)
    assert findings_of_run(whole, whole.figures) != some


@pytest.mark.parametrize("change", ["by", "type", "cut"])
def test_a_file_of_other_code_or_damaged_is_replaced(store: Path, replays: list[Any], change: str) -> None:
    run = stored(store)
    right = findings_of_run(run, run.figures)
    path = run.path / GAINS_FILE
    kept = json.loads(path.read_bytes())
    wrong = {settings: [[0, 9], [0, 0.9]] for settings in kept["gains"]}
    if change == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    else:
        path.write_text(
            json.dumps(kept | ({"by": "other", "gains": wrong} if change == "by" else {"gains": [1]}))
        )
    replays.clear()
    assert findings_of_run(run, run.figures) == right
    assert len(replays) == 1
    assert json.loads(path.read_bytes()) == kept
