# SPDX-License-Identifier: Apache-2.0
"""Hangs by Flight Recorder dumps: who waits, who never called, who called something else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import cclbench
from cclbench.findings.finding import Finding

Calls = Sequence[tuple[int, str, str]]
"""Sequence number, kind and state."""


def found(folder: Path, ranks: Mapping[int, Calls]) -> list[Finding]:
    (folder / "dumps").mkdir()
    for rank, calls in ranks.items():
        entries = [
            {"profiling_name": f"nccl:{kind}", "process_group": ["0", "default_pg"], "state": state}
            | {"collective_seq_id": seq, "time_created_ns": 1_000 * seq + rank}
            | {f"{way}_sizes": [[1024]] for way in ("input", "output")}
            | {f"{way}_dtypes": ["Float"] for way in ("input", "output")}
            for seq, kind, state in calls
        ]
        groups = {"0": {"name": "0", "ranks": "[0, 1, 2, 3]"}}
        dump = {"version": "2.10", "rank": rank, "pg_config": groups, "entries": entries}
        (folder / "dumps" / f"nccl_trace_rank_{rank}.json").write_text(json.dumps(dump))
    run = cclbench.run(folder / "dumps", store=folder / "store")
    return [one for one in run.findings if one.name == "unfinished_collectives"]


DONE = [(40, "all_reduce", "completed"), (41, "all_gather", "completed")]
STUCK = [*DONE, (42, "all_reduce", "started"), (43, "all_gather", "scheduled")]


def test_a_rank_that_never_called(tmp_path: Path) -> None:
    (one,) = found(tmp_path, {0: STUCK, 1: STUCK, 2: STUCK, 3: DONE})
    assert (
        "42: ranks 0, 1, 2 had not completed it; rank 3 had not called it (its last is all_gather"
        in one.claim
    )
    assert (one.ranks, one.confidence, one.gain_s) == ([3], "high", None)
    (shown,) = one.evidence
    expected = ("comm.unfinished", "all_reduce", "0-3", 6.0)
    assert (shown.metric, shown.collective, shown.group, shown.value) == expected
    assert "0-3" in one.query


def test_a_rank_that_calls_something_else(tmp_path: Path) -> None:
    other = [*DONE, (42, "broadcast", "started")]
    (one,) = found(tmp_path, {0: STUCK, 1: STUCK, 2: other, 3: STUCK})
    assert "ranks 0, 1, 3 had not completed it; rank 2 calls broadcast there" in one.claim
    assert one.ranks == [2]


def test_all_ranks_in_one_call(tmp_path: Path) -> None:
    (one,) = found(tmp_path, dict.fromkeys(range(4), STUCK))
    assert (one.ranks, one.confidence) == ([], "medium")
    assert "never" not in one.claim


@pytest.mark.parametrize("calls", [DONE, []])
def test_a_job_that_went_on_hangs_nowhere(tmp_path: Path, calls: Calls) -> None:
    assert found(tmp_path, {0: DONE, 1: calls, 2: DONE, 3: DONE}) == []
