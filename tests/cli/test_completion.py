# SPDX-License-Identifier: Apache-2.0
"""What a shell completes: runs of the store, names of metrics, settings; in which order runs are listed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from helpers.command_line import Call


def completed(words: str, store: Path) -> list[str]:
    """What the shell's own way of asking answers for the last of the words."""
    at = len(words.split()) - (not words.endswith(" "))
    asked = {"_CCLBENCH_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
    program = str(Path(sys.executable).parent / "cclbench")
    environment = os.environ | asked | {"CCLBENCH_STORE": str(store)}
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_commands_runs_and_metrics_are_completed(stored: str, tmp_path: Path) -> None:
    """A store that is none completes nothing."""
    store = tmp_path / "store"
    assert {"plain,run", "plain,explain"} <= set(completed("cclbench ", store))
    for command in ("report", "compare", "remove", "stragglers", "run"):
        assert f"plain,{stored}" in completed(f"cclbench {command} {stored[:4]}", store), command
    assert completed("cclbench report nothing-like-it", store) == ["file,nothing-like-it"]
    assert completed("cclbench report x", tmp_path / "nowhere") == ["file,x"]
    exposed = completed("cclbench metrics x --metric time.exposed_w", store)
    assert exposed == ["plain,time.exposed_wait"]
    assert completed("cclbench history --metric time.exposed_w", store) == exposed
    assert completed("cclbench explain late_r", store) == ["plain,late_rank"]
    settings = completed("cclbench whatif x --set scale_up.b", store)
    assert settings == ["plain,scale_up.bandwidth="]
    assert "plain,collective." in completed("cclbench whatif x --set coll", store)
    assert completed("cclbench report @", store) == ["plain,@last", "file,@"]
    assert completed("cclbench project x --system aws-p5e", store) == ["plain,aws-p5e", "plain,aws-p5en"]
    assert "plain,nvidia-h100-sxm" in completed("cclbench hardware show nvidia-h100-s", store)
    assert completed("cclbench ops x --by op,ph", store) == ["plain,op,phase"]
    assert completed("cclbench compare a b --fail-on time.exposed_w", store) == exposed


def test_runs_are_listed_by_time(call: Call, trace: Path, tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / trace.name).write_bytes(trace.read_bytes())
        call("ingest", tmp_path / name)
    for age, name in enumerate("bca"):
        (manifest,) = (tmp_path / "store").glob(f"{name}-*/manifest.json")
        os.utime(manifest, (2e9 - age, 2e9 - age))
    rows = json.loads(call("list", "runs", "--json").out)["rows"]
    assert [row["run"][0] for row in rows] == ["b", "c", "a"]
