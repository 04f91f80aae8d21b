# SPDX-License-Identifier: Apache-2.0
"""What is quick does not import what is slow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from cclbench.cli import main
assert main(sys.argv[2:]) == 0
print(*sorted(set(sys.argv[1].split(",")) & set(sys.modules)), file=sys.stderr)
"""
SLOW = "pandas,matplotlib,duckdb,multiprocessing.forkserver,cclbench.ingestion.traces,cclbench.replay.answer"


def imported(*words: object, slow: str = SLOW) -> list[str]:
    """The slow modules that a command has imported."""
    command = [sys.executable, "-c", PROGRAM, slow, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr.split()


def test_a_stored_run_is_shown_without_them(repository: Path, tmp_path: Path) -> None:
    card = repository / "workload_cards" / "tiny-jax-dp2-tp4-cpu.yaml"
    words = ("run", card, "--store", tmp_path, "--jobs", 1)
    imported(*words)
    assert imported(*words, slow=f"{SLOW},cclbench.studies.published") == []
    assert imported(*words, "--json", "--metric", "time.*") == []


def test_no_run_loads_pandas_before_a_frame_is_asked_for(repository: Path, tmp_path: Path) -> None:
    """Neither what reads traces nor what computes metrics; then pyarrow finds it after all."""
    card = repository / "workload_cards" / "tiny-llama-profile-ddp2-gloo-cpu.yaml"
    assert imported("run", card, "--store", tmp_path / "first", "--jobs", 1, slow="pandas") == []
    program = f"""
import sys, cclbench
run = cclbench.run({str(card)!r}, store={str(tmp_path / "second")!r}, jobs=1)
assert "pandas" not in sys.modules
frame = run.steps().to_pandas()
import pandas, pyarrow
assert isinstance(frame, pandas.DataFrame) and len(frame) == len(run.steps())
assert pyarrow.array(frame["rank"]).to_pylist() == run.steps()["rank"].to_pylist()
assert pyarrow.Table.from_pandas(frame).num_rows == len(frame)
assert len(run.results) == len(run.rows)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
