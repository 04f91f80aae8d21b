# SPDX-License-Identifier: Apache-2.0
"""The check of contributors' pull requests: what it may do, and that no text of theirs becomes a command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
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


@pytest.fixture
def action(repository: Path) -> dict[str, Any]:
    """The composite action that the workflow uses."""
    text = (repository / ".github" / "actions" / "data-points" / "action.yml").read_text()
    loaded = yaml.safe_load(text)
    assert loaded["runs"]["using"] == "composite"
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


def test_actions_are_pinned_to_a_version_and_ours_uses_none(
    workflow: dict[Any, Any], action: dict[str, Any]
) -> None:
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used.pop() == "./.github/actions/data-points"
    assert [name for name in used if not re.fullmatch(r"actions/[a-z-]+@v\d+", name)] == []
    assert [step for step in action["runs"]["steps"] if "uses" in step] == []


def test_nothing_of_the_event_is_put_into_a_script(workflow: dict[Any, Any], action: dict[str, Any]) -> None:
    """The only text from the event is a commit's hash, which scripts get as a variable."""
    assert [step["run"] for step in steps(workflow) if "run" in step] == []
    assert steps(workflow)[-1]["with"] == {"base": "${{ github.event.pull_request.base.sha }}"}
    assert [step["run"] for step in action["runs"]["steps"] if "${{" in step["run"]] == []
    values = {value for step in action["runs"]["steps"] for value in step.get("env", {}).values()}
    assert values == {"${{ inputs.base }}", "${{ inputs.site }}"}


def git(folder: Path, *words: str) -> str:
    roles = [f"GIT_{role}_{what}" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")]
    environment = {**os.environ, **dict.fromkeys(roles, "ada@example.org"), "GIT_CONFIG_GLOBAL": os.devnull}
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(contributed: Path, tmp_path: Path) -> Path:
    """A clone, with a branch, of a bare repository that holds one data point."""
    shutil.copytree(contributed, tmp_path / "work")
    git(tmp_path / "work", "init", "-q", "-b", "main")
    git(tmp_path / "work", "add", "-A")
    git(tmp_path / "work", "commit", "-q", "-m", "a collection")
    git(tmp_path, "clone", "-q", "--bare", "work", "origin.git")
    git(tmp_path, "clone", "-q", "origin.git", "checkout")
    git(tmp_path / "checkout", "checkout", "-q", "-b", "change")
    return tmp_path / "checkout"


def run_steps(action: dict[str, Any], checkout: Path, **inputs: str) -> dict[str, tuple[int, str]]:
    """Exit code and output of each step after the installation, up to a failure."""
    place = Path(__file__).resolve().parents[2] / ".github" / "actions" / "data-points"
    (checkout.parent / "bin").mkdir(exist_ok=True)
    command = checkout.parent / "bin" / "cclbench"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m cclbench "$@"\n')
    command.chmod(0o755)
    outcomes = {}
    for step in action["runs"]["steps"][1:]:
        given = {key: inputs.get(value[11:-3], "") for key, value in step.get("env", {}).items()}
        environment = {
            **os.environ,
            **given,
            "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_ACTION_PATH": str(place),
            "GITHUB_STEP_SUMMARY": str(checkout.parent / "summary.md"),
        }
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(
            words, cwd=checkout, env=environment, capture_output=True, text=True, check=False
        )
        outcomes[step["name"]] = (done.returncode, done.stdout + done.stderr)
        if done.returncode:
            break
    return outcomes


def test_its_steps_on_a_clone_of_a_bare_repository(
    action: dict[str, Any], checkout: Path, tmp_path: Path
) -> None:
    card = checkout / "workload_cards" / "my-job.yaml"
    for former, now in (("global: 16", "global: 32"), ("per_node: 2", "per_node: 1")):
        card.write_text(card.read_text().replace(former, now))
    git(checkout, "commit", "-q", "-a", "-m", "another batch")
    refused = run_steps(action, checkout, base="origin/main")
    assert [code for code, _ in refused.values()] == [0, 1]  # the results are those of the former card
    subprocess.run(
        [sys.executable, "-m", "cclbench", "verify", "--record", "my-job"],
        cwd=checkout,
        check=True,
        capture_output=True,
    )
    shutil.copytree(checkout / "traces" / "my-job", checkout / "traces" / "$(touch pwned)")
    git(checkout, "add", "-A")
    git(checkout, "commit", "-q", "-m", "recorded")
    shutil.rmtree(checkout / "traces" / "$(touch pwned)")
    git(checkout, "commit", "-q", "-a", "-m", "without a strange name")
    passed = run_steps(action, checkout, base="origin/main")
    assert [code for code, _ in passed.values()] == [0, 0, 0, 0], passed
    assert "no site was asked for" in str(passed)
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("## my-job, against the base\n")
    assert "global batch" in summary
    assert "Not compared" not in summary
    assert not list(tmp_path.rglob("pwned"))
    assert git(checkout, "status", "--porcelain") == ""


def test_names_of_cards_are_arguments_and_nothing_else(repository: Path, tmp_path: Path) -> None:
    script = repository / ".github" / "actions" / "data-points" / "validate.sh"
    names = ["a.yaml", "--help.yaml", "$(touch pwned).yaml", "x; touch pwned;.yaml", "new\nline.yaml"]
    names.append("ü '\".yaml")
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
    run(str(script))
    assert not (tmp_path / "arguments").exists()  # no card changed: nothing to validate
    for name in names:
        (collection / "workload_cards" / name).write_text("x")
    run("git rm -q workload_cards/old.yaml && git add -A && git commit -q -m new")
    run(str(script))
    told = (tmp_path / "arguments").read_text().split("\0")[:-1]
    assert told[:3] == ["card", "validate", "--"]
    assert sorted(told[3:]) == sorted(f"workload_cards/{name}" for name in names)
    assert [path.name for path in tmp_path.rglob("pwned")] == []
