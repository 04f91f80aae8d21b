# SPDX-License-Identifier: Apache-2.0
"""Who is late over steps and captures: jobs of four ranks whose lateness is made up, times in µs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cclbench
from cclbench.cli import main
from cclbench.record.run import Run
from cclbench.stragglers import RunStragglers, find_stragglers

MAPPING = """\
version: 1
files: job.csv
columns: {rank: rank, step: step, operator: op, start: start, duration: took}
time: {unit: us, from: step}
place: {dp: rank}
operators: {work: {does: compute}, sum: {does: all_reduce, over: [dp]}}
"""
CALLS = 8
Late = Callable[[int, int, int], int]
"""How much longer a rank computes before a call of a step."""


def job(folder: Path, late: Late, steps: int = 24) -> Run:
    """CALLS all-reduces of 10 µs a step, before each 100 µs of compute, up to 9 by chance, and `late`."""
    folder.mkdir()
    chance = np.random.default_rng(1)
    lines = ["rank,step,op,start,took"]
    for step in range(steps):
        begin = [0] * 4
        for call in range(CALLS):
            took = [100 + int(chance.integers(10)) + late(rank, step, call) for rank in range(4)]
            arrived = [at + own for at, own in zip(begin, took, strict=True)]
            end = max(arrived) + 10
            for rank in range(4):
                lines += [f"{rank},{step},work,{begin[rank]},{took[rank]}"]
                lines += [f"{rank},{step},sum,{arrived[rank]},{end - arrived[rank]}"]
            begin = [end] * 4
    (folder / "timeline.yaml").write_text(MAPPING)
    (folder / "job.csv").write_text("\n".join(lines) + "\n")
    return cclbench.ingest(folder, store=folder.parent / "store", jobs=1)


def only(run: Run) -> RunStragglers:
    (found,) = find_stragglers([run]).runs
    return found


def test_always_the_same_rank(tmp_path: Path) -> None:
    found = only(job(tmp_path / "job", lambda rank, *_: 50 * (rank == 2)))
    assert (found.named, found.pattern) == (2, "always")
    assert "latest in 24 of 24 steps (p = " in found.words
    assert "; it computes longer" in found.words
    first = found.ranks[0]
    assert (first.rank, first.latest, first.cause) == (2, 24, "compute")
    # 8 calls, each 50 later than the others, give or take the chance of 9
    assert first.mean_s == pytest.approx(8 * 50e-6, rel=0.1)
    assert found.slowdown == pytest.approx((110 + 4.5 + 50) / (110 + 4.5), rel=0.03)
    assert len(found.rows) == 4 * 24


@pytest.mark.parametrize(
    ("late", "named", "pattern", "words"),
    [
        (lambda rank, step, _: 5 * step * (rank == 1), 1, "drifting", "its lateness drifts, from "),
        (lambda rank, step, _: 80 * (rank == 3 and step % 3 == 0), 3, "periodic", ": in every 3rd step (p"),
        (lambda rank, step, _: 80 * (rank == 3 and step >= 10), 3, "since", ": since step 10 (p = "),
        # as sequence lengths that are drawn anew in each step: who is late in one call is in all of them
        (
            lambda rank, step, _: 80 * (rank == step % 4),
            None,
            "moving",
            "in 24 of 24 steps one is late by more than 1 %, and not the same: rank 0 in 6",
        ),
        (lambda *_: 0, None, "moving", "which chance explains (p = "),
    ],
)
def test_lateness_over_time(tmp_path: Path, late: Late, named: int | None, pattern: str, words: str) -> None:
    found = only(job(tmp_path / "job", late))
    assert (found.named, found.pattern) == (named, pattern)
    assert words in found.words
    expected = (3 if pattern == "periodic" else None, 10 if pattern == "since" else None)
    assert (found.period, found.since) == expected


ALWAYS: Late = lambda rank, *_: 50 * (rank == 2)  # noqa: E731
TURNS: Late = lambda rank, step, _: 80 * (rank == step % 4)  # noqa: E731


@pytest.mark.parametrize("late", [ALWAYS, TURNS])
def test_metric_command_and_finding_name_the_same_rank(late: Late, tmp_path: Path) -> None:
    run = job(tmp_path / "job", late)
    found = only(run)
    told = cclbench.metrics(run, metrics=["balance.straggler_rank"]).rows
    rows = [row for row in told if row["value"] is not None]
    stats = [row["stat"] or "" for row in rows]
    named = {int(row["category"]) for row in rows if row["stat"] == "late_by"}
    causes = {stat.removeprefix("excess_") for stat in stats if stat.startswith("excess_")}
    (p,) = (row["value"] for row in rows if row["stat"] == "p_value")
    findings = {one.name: one.ranks for one in run.findings}
    blamed = {rank for name in ("late_rank", "slow_device") for rank in findings.get(name, ())}
    assert named == blamed == ({found.named} if found.named is not None else set())
    assert causes == ({found.cause} if found.cause is not None else set())
    assert p == pytest.approx(found.p_value, rel=1e-9)


def test_several_captures(tmp_path: Path) -> None:
    second, third = (
        job(tmp_path / f"job-{late}", lambda rank, *_, late=late: 50 * (rank == late)) for late in (2, 3)
    )
    quiet = job(tmp_path / "quiet", lambda *_: 0)
    moves = "another rank stands out from capture to capture"
    said = {
        (second, second): "rank 2 stands out in all 2 captures: it comes back with its machine or its work",
        (second, quiet): "rank 2 stands out in 1 of 2 captures, and in the others nobody does",
        (second, third): f"{moves} (rank 2 in 1, rank 3 in 1 of 2): it moves",
        (quiet, quiet): "no rank stands out in any of 2 captures",
    }
    for runs, words in said.items():
        assert find_stragglers(runs).words == words


def test_a_page_of_80_columns_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = job(tmp_path / "job", lambda rank, *_: 50 * (rank == 2))
    place = ("--store", str(tmp_path / "store"))
    assert main(["stragglers", run.id, run.id, *place]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("rank 2 is late by ")
    assert lines[-1].startswith("rank 2 stands out in all 2 captures")
    assert main(["stragglers", run.id, "--json", *place]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["words"]) == ("stragglers.v2", None)
    assert told["runs"][0]["named"] == 2
    assert set(told["rows"][0]) == {"run", "rank", "step", "late_s", "latest", "cause"}
    assert main(["stragglers", run.id, "--steps", "3:5", "--format", "csv", *place]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + 2 * 4
