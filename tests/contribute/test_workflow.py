# SPDX-License-Identifier: Apache-2.0
"""The check of contributors' pull requests: what it may do, and that no text of theirs becomes a command."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml


@pytest.fixture
def workflow(repository: Path) -> dict[Any, Any]:
    """The workflow; YAML 1.1 reads its `on` as true."""
    loaded = yaml.safe_load((repository / ".github" / "workflows" / "data-points.yml").read_text())
    assert isinstance(loaded, dict)
    return loaded


def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_it_may_only_read(workflow: dict[Any, Any]) -> None:
    assert set(workflow[True]) == {"pull_request"}  # never pull_request_target, which has secrets
    assert workflow["permissions"] == {"contents": "read"}
    assert [job.get("permissions") for job in workflow["jobs"].values()] == [None]
    assert "secrets" not in str(workflow)
    checkout = next(step for step in steps(workflow) if step.get("uses", "").startswith("actions/checkout@"))
    assert checkout["with"]["persist-credentials"] is False


def test_actions_are_pinned_to_a_version(workflow: dict[Any, Any]) -> None:
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"actions/[a-z-]+@v\d+", name)] == []


def test_nothing_of_the_event_is_put_into_a_script(workflow: dict[Any, Any]) -> None:
    assert [step["run"] for step in steps(workflow) if "${{" in step.get("run", "")] == []
    for job in workflow["jobs"].values():
        assert job["env"] == {"BASE": "${{ github.event.pull_request.base.sha }}"}


def test_names_of_cards_are_arguments_and_nothing_else(workflow: dict[Any, Any], tmp_path: Path) -> None:
    (script,) = [step["run"] for step in steps(workflow) if "card validate" in step.get("run", "")]
    names = [
        "a.yaml",
        "--help.yaml",
        "$(touch pwned).yaml",
        "x; touch pwned;.yaml",
        "new\nline.yaml",
        "ü '\".yaml",
    ]
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "cclbench"
    fake.write_text('#!/bin/sh\nprintf "%s\\0" "$@" > "$RUNNER_TEMP/arguments"\n')
    fake.chmod(0o755)
    collection = tmp_path / "collection"
    (collection / "workload_cards").mkdir(parents=True)
    (collection / "workload_cards" / "old.yaml").write_text("x")
    roles = [f"GIT_{role}_{what}" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    environment = {
        **dict.fromkeys(roles, "ada@example.org"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "RUNNER_TEMP": str(tmp_path),
        "BASE": "main",
    }

    def run(command: str) -> None:
        words = ["bash", "-c", command]
        subprocess.run(words, cwd=collection, env=environment, check=True, capture_output=True)

    run("git init -q -b main . && git add -A && git commit -q -m old && git checkout -q -b new")
    run(script)
    assert not (tmp_path / "arguments").exists()  # no card changed: nothing to validate
    for name in names:
        (collection / "workload_cards" / name).write_text("x")
    run("git rm -q workload_cards/old.yaml && git add -A && git commit -q -m new")
    run(script)
    told = (tmp_path / "arguments").read_text().split("\0")[:-1]
    assert told[:3] == ["card", "validate", "--"]
    assert sorted(told[3:]) == sorted(f"workload_cards/{name}" for name in names)
    assert [path.name for path in tmp_path.rglob("pwned")] == []
