# SPDX-License-Identifier: Apache-2.0
"""Which data points a branch changes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from cclbench.contribute.changed import changed_since
from cclbench.ground.errors import UsageError


def git(folder: Path, *words: str) -> str:
    who = {
        f"GIT_{role}_{what}": "x@example.org"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-C", str(folder), *words]
    done = subprocess.run(command, check=True, capture_output=True, env=os.environ | who | alone)
    return done.stdout.decode().strip()


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n" * (1 + len(list(folder.rglob("*")))))


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    """Four data points below a folder of a repository, on a branch that started at `main`."""
    folder = tmp_path / "points"
    git(tmp_path, "init", "-q", "-b", "main")
    for name in ("a", "b", "c", "d"):
        write(folder, f"workload_cards/{name}.yaml", f"traces/{name}/manifest.json", f"scripts/{name}/run.sh")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "begin")
    git(tmp_path, "checkout", "-q", "-b", "mine")
    return folder


def commit(collection: Path) -> None:
    git(collection, "add", "-A", ".")
    git(collection, "commit", "-q", "-m", "change")


def test_card_traces_and_scripts_count(collection: Path) -> None:
    assert changed_since(collection, "main") == []
    write(collection, "workload_cards/a.yaml", "traces/b/sub/x y\n.json", "scripts/c/run.sh")
    write(collection, "workload_cards/new.yaml", "scripts/workloads/shared.py", "README.md")
    commit(collection)
    assert changed_since(collection, "main") == ["a", "b", "c", "new"]


def test_a_calibration_counts(collection: Path) -> None:
    write(collection, "workload_cards/d.calibration.yml")
    commit(collection)
    assert changed_since(collection, "main") == ["d"]


def test_what_others_changed_meanwhile_does_not_count(collection: Path) -> None:
    write(collection, "traces/a/x.json")
    commit(collection)
    git(collection, "checkout", "-q", "main")
    write(collection, "traces/d/x.json")
    commit(collection)
    git(collection, "checkout", "-q", "mine")
    assert changed_since(collection, "main") == ["a"]


def test_what_is_gone_is_left_out_and_what_is_half_gone_is_not(collection: Path) -> None:
    gone = ("traces/a", "workload_cards/a.yaml", "scripts/a", "workload_cards/b.yaml")
    git(collection, "rm", "-q", "-r", *gone)
    git(collection, "commit", "-q", "-m", "remove")
    assert changed_since(collection, "main") == ["b"]


@pytest.mark.parametrize(
    "commit_name", ["nowhere", "--output=/tmp/x", "-x", "a b", "main; touch x", "\x1b[31m"]
)
def test_a_commit_that_git_does_not_know(collection: Path, commit_name: str) -> None:
    with pytest.raises(UsageError, match="git cannot compare") as raised:
        changed_since(collection, commit_name)
    assert str(raised.value).isprintable()


def test_a_folder_that_is_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(UsageError, match="git cannot compare"):
        changed_since(tmp_path, "main")


def test_no_git_at_all(collection: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="git cannot be run"):
        changed_since(collection, "main")


@pytest.mark.parametrize(
    "config",
    [
        ("core.fsmonitor", "touch RAN"),
        ("diff.external", "touch RAN"),
        ("core.sshCommand", "touch RAN"),
        ("core.pager", "touch RAN"),
        ("core.hooksPath", "HOOKS"),
    ],
    ids=lambda pair: pair[0],
)
def test_a_strangers_git_configuration_runs_nothing(
    collection: Path, tmp_path: Path, config: tuple[str, str]
) -> None:
    write(collection, "traces/a/manifest.json")
    commit(collection)
    ran = tmp_path / "ran"
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    for hook in ("post-index-change", "fsmonitor-watchman", "reference-transaction"):
        (hooks / hook).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (hooks / hook).chmod(0o755)
    name, value = config
    git(collection, "config", name, value.replace("RAN", str(ran)).replace("HOOKS", str(hooks)))
    (tmp_path / ".gitattributes").write_text("* diff=evil\n")
    git(collection, "config", "diff.evil.textconv", f"touch {ran}; cat")
    ran.unlink(missing_ok=True)
    assert changed_since(collection, "main") == ["a"]
    assert not ran.exists()


def test_what_a_repository_lacks_is_not_fetched(collection: Path, tmp_path: Path) -> None:
    write(collection, "traces/a/manifest.json")
    commit(collection)
    ran = tmp_path / "ran"
    git(collection, "config", "remote.evil.url", f"ext::touch {ran}")
    git(collection, "config", "remote.evil.promisor", "true")
    git(collection, "config", "core.repositoryFormatVersion", "1")
    git(collection, "config", "extensions.partialClone", "evil")
    git(collection, "config", "protocol.ext.allow", "always")
    tree = git(collection, "rev-parse", "main^{tree}")
    (tmp_path / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    with pytest.raises(UsageError, match="git cannot compare"):
        changed_since(collection, "main")
    assert not ran.exists()
