# SPDX-License-Identifier: Apache-2.0
"""scripts/slurm/ makes the run that one process makes: by Slurm where it answers, else by a stand-in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.trees import files

import cclbench

SBATCH = """\
#!/bin/sh
# Runs the job at once, an array's tasks one after the other.
first=1 last=1
for word in "$@"; do
  case $word in --array=*-*) range=${word#--array=} first=${range%-*} last=${range#*-} ;; esac
  job=$word
done
for SLURM_ARRAY_TASK_ID in $(seq "$first" "$last"); do
  export SLURM_ARRAY_TASK_ID
  bash "$job" > "$PWD/job-$SLURM_ARRAY_TASK_ID.out" 2>&1 || exit 1
done
echo 1
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables with which `sbatch` runs jobs, and jobs find `cclbench`."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    asks = shutil.which("sinfo")
    if asks is None or subprocess.run([asks], capture_output=True, check=False).returncode:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "sbatch").write_text(SBATCH)
        (folder / "sbatch").chmod(0o755)
        path = f"{folder}:{path}"
    return {**os.environ, "PATH": path}


def test_an_array_and_its_merge(repository: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    source, store = repository / "traces" / "tiny-llama-ddp4-gloo-cpu", tmp_path / "store"
    submit = repository / "scripts" / "slurm" / "submit.sh"

    def submitted(*words: object) -> subprocess.CompletedProcess[str]:
        told = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
        return subprocess.run([submit, *map(str, words)], check=False, **told)

    wrong = submitted()
    assert (wrong.returncode, "submit.sh SOURCE STORE SHARDS" in wrong.stderr) == (2, True)
    done = submitted(source, store, 3)
    assert done.returncode == 0, done.stderr
    scripts = [line.rpartition("/")[2] for line in done.stdout.splitlines()[:2]]
    assert scripts == ["ingest.sbatch", "merge.sbatch"]
    alone = cclbench.ingest(source, store=tmp_path / "alone")
    until = time.monotonic() + 300
    while [path.name for path in store.iterdir()] != [alone.id] and time.monotonic() < until:
        time.sleep(1)
    assert files(store) == files(alone.store)
