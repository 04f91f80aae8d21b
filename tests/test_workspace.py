# SPDX-License-Identifier: Apache-2.0
"""The door: one list of options, a store that is resolved once, names that become runs."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from pathlib import Path

import pytest

import cclbench
from cclbench import api
from cclbench.comparison.build import compare
from cclbench.ground.errors import UsageError
from cclbench.record.store import Store
from cclbench.sweep_sources import read_sweeps
from cclbench.workspace import WorkspaceOptions, open_run, store_at, workspace

CARD = Path("workload_cards") / "tiny-llama-ddp4-gloo-cpu.yaml"
FUNCTIONS = (*(api.run, api.ingest, api.whatif, api.search, api.export), *(compare, open_run, read_sweeps))


def test_the_options_of_the_signature_are_those_of_the_type() -> None:
    listed = signature(workspace).parameters
    assert list(listed) == list(WorkspaceOptions.__annotations__)
    assert {name: str(one.annotation) for name, one in listed.items()} == {
        name: hint.__forward_arg__ for name, hint in WorkspaceOptions.__annotations__.items()
    }


@pytest.mark.parametrize("function", FUNCTIONS)
def test_help_shows_the_options_of_each_function_that_opens_runs(function: Callable[..., object]) -> None:
    shown = signature(function).parameters
    assert {name: shown[name].default for name in WorkspaceOptions.__annotations__} == {
        name: one.default for name, one in signature(workspace).parameters.items()
    }
    assert all(one.kind is not one.VAR_KEYWORD for one in shown.values())


def test_an_id_a_source_and_a_run_are_one_run(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = cclbench.ingest(repository / CARD, store=tmp_path)
    with workspace(store=tmp_path) as used:
        assert used.open_run(run) is run
        assert used.open_run(run.id).path == used.open_run(repository / CARD).path == run.path
        with pytest.raises(UsageError, match="no run 'another'"):
            used.open_run("another")
    with pytest.raises(TypeError, match="unexpected keyword argument 'stores'"):
        cclbench.run(tmp_path, stores=tmp_path)  # type: ignore[call-arg]
    # a store is resolved once
    monkeypatch.setenv("CCLBENCH_STORE", str(tmp_path / "usual"))
    assert store_at().folder == tmp_path / "usual"
    store = Store(tmp_path)
    with workspace(store=store) as used:
        assert used.store is store
