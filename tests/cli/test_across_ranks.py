# SPDX-License-Identifier: Apache-2.0
"""One rank alone, both, ranks of different jobs, and groups that no trace states, on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
from helpers.command_line import Call, Told
from helpers.synthetic import Collective, Compute, Distortion, Layout, Program, simulate, write
from helpers.typed import figures

from cclbench.analyzers.rows import with_caveat
from cclbench.cli import cli

from .conftest import words_of

NEEDS_ALL_RANKS = {f"comm.{name}" for name in ("wait", "transfer", "skew", "alpha", "beta")}
NEEDS_ALL_RANKS |= {"time.exposed_wait", "time.exposed_transfer"}
NEEDS_ALL_RANKS |= {"balance.straggler_rank", "balance.straggler_delay"}


@pytest.fixture
def folder(trace: Path) -> Path:
    """A folder with rank 0 of 2."""
    folder = trace.parent / "traces"
    folder.mkdir()
    trace.rename(folder / "rank0.json")
    return folder


@pytest.fixture
def both(folder: Path, document: dict[str, Any]) -> Path:
    """The same step on rank 1, whose all-reduce begins 10 µs later and ends when rank 0's ends."""
    document["distributedInfo"]["rank"] = 1
    for event in document["traceEvents"]:
        if event["name"].startswith("nccl"):
            event["ts"] += 10
            event["dur"] -= 10
    (folder / "rank1.json").write_text(json.dumps(document))
    return folder


def test_one_rank_alone_has_no_number_that_needs_the_others(call: Call, told: Told, folder: Path) -> None:
    shown = words_of(call("metrics", folder).out)
    said = "matched 0 of 2 parts of collectives across ranks; 2: no other rank's trace has it; "
    assert f"{said}waiting and transfer cannot be separated" in shown
    assert "ranks 0; 1 of 2 ranks has a trace" in shown
    assert "problem" not in shown
    answer = told("run", folder)
    assert answer["run"]["clocks"] is None
    assert answer["run"]["matching"]["complete"] == 0
    rows = [row for row in answer["results"] if row["metric"] in NEEDS_ALL_RANKS]
    assert {row["metric"] for row in rows} == NEEDS_ALL_RANKS
    assert all(row["value"] is None and row["status"] == "not_applicable" and row["reason"] for row in rows)


def test_with_both_ranks_waiting_is_told_from_transfer(call: Call, told: Told, both: Path) -> None:
    shown = words_of(call("metrics", both).out)
    assert "matched 4 of 4 parts of collectives across ranks clocks not corrected" in shown
    # Rank 0's all-reduce is exposed for its last 10 of 30 µs; rank 1 came after 10 µs: transfer, all of it.
    first = words_of(call("run", both).out)
    assert "take 10.0 µs of a step on rank 0 while nothing computes (all_reduce 10.0 µs);" in first
    assert "rank 1 comes last" not in first
    answer = told("run", both)
    assert answer["run"]["matching"]["complete"] == 2
    assert answer["run"]["clocks"]["corrected"] == []
    keys = ("collective", "step", "group", "stat")
    rows = [row for row in answer["results"] if all(row[key] is None for key in keys)]
    waited = {row["rank"]: row["value"] for row in rows if row["metric"] == "comm.wait"}
    assert (waited[0], waited[1]) == (pytest.approx(10e-6), 0)


H100 = {"name": "NVIDIA H100 80GB HBM3", "warpSize": 32}
A100 = {"name": "NVIDIA A100-SXM4-80GB", "warpSize": 32}
MI300X = {"name": "AMD Instinct MI300X", "warpSize": 64}


@pytest.mark.parametrize(
    ("devices", "groups", "said"),
    [
        ((H100, MI300X), ((0, 1), (0, 1)), "NVIDIA H100 80GB HBM3 in rank0.json and AMD Instinct MI300X in"),
        (({"warpSize": 32}, {"warpSize": 64}), (None, None), "an NVIDIA GPU in rank0.json and an AMD GPU in"),
        ((H100, A100), (None, None), "NVIDIA H100 80GB HBM3 in rank0.json and NVIDIA A100-SXM4-80GB in"),
        ((H100, A100), ((0, 1), (1, 2)), "NVIDIA H100 80GB HBM3 in rank0.json and NVIDIA A100-SXM4-80GB in"),
        ((H100, A100), ((0, 1), (0, 1)), None),
        ((H100, H100), (None, None), None),
        ((H100, {}), (None, None), None),
    ],
)
def test_accelerators_that_no_one_job_has_are_refused(
    call: Call, folder: Path, document: dict[str, Any], devices: Any, groups: Any, said: str | None
) -> None:
    """Two vendors never work together; two models do where both ranks are in one process group."""
    for rank, (device, ranks) in enumerate(zip(devices, groups, strict=True)):
        listed = [] if ranks is None else [{"pg_name": "7", "pg_desc": "mesh", "ranks": list(ranks)}]
        info = {"rank": rank, "pg_config": listed}
        changed = {**document, "deviceProperties": [{"id": 0, **device}], "distributedInfo": info}
        (folder / f"rank{rank}.json").write_text(json.dumps(changed))
    answer = call("ingest", folder)
    assert answer.code == (0 if said is None else 3), answer.err
    assert said is None or f"traces of different jobs: {said} rank1.json; run one job" in words_of(answer.err)


SAID = "process groups are inferred (R1): all 4 ranks run one sequence of 8 collectives in step"
READING = (
    *("run", "ingest", "metrics", "sql", "sequences", "whatif", "compare", "report", "timeline", "open"),
    *("contribute", "export"),
    *("hardware validate", "hardware calibrate"),
)
"""Commands that take a SOURCE, or a run's id or a SOURCE."""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four data-parallel ranks that state no process group."""
    folder = tmp_path_factory.mktemp("silent") / "traces"
    step = (Compute(200_000), Collective("all_reduce", "dp", 96 * 1024))
    truth = simulate(Layout(dp=4), Program(step * 4, steps=2, jitter=300), seed=1)
    write(truth, folder, Distortion(metadata="none", listed_groups=False))
    return folder


@pytest.mark.parametrize("path", READING)
def test_every_command_that_reads_traces_has_the_switch(path: str) -> None:
    command: click.Command | None = cli
    for name in path.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name)
    (option,) = [one for one in command.params if one.name == "inference"]
    assert option.opts == ["--no-inference"]
    assert option.default is True


def test_a_page_says_what_groups_rest_on(call: Call, told: Told, traces: Path) -> None:
    first, out = (words_of(call(command, traces).out) for command in ("run", "metrics"))
    for page in (first, out):
        assert "groups 0-3 inferred (R1): all 4 ranks run one sequence of 8 collectives in step" in page
    assert out.count(SAID) == 1, "one note for all metrics"
    resting = [
        one for one in told("diagnose", traces)["findings"] if one["name"] in ("uneven_ranks", "late_rank")
    ]
    assert resting
    assert all(one["because"].endswith(SAID) for one in resting)
    quiet = words_of(call("metrics", traces, "--no-inference").out)
    assert "groups" not in quiet.split("Notes")[0]
    assert "32: its process group is unknown" in quiet
    assert "inferred" not in quiet
    groups = told("sql", traces, 'SELECT "group", size, source FROM groups')
    assert groups["rows"] == [{"group": "0-3", "size": 4, "source": "inferred"}]


def test_a_condition_that_does_not_hold_is_named(call: Call, traces: Path, tmp_path: Path) -> None:
    for rank in range(3):
        shutil.copy(traces / f"rank{rank}_trace.json", tmp_path)
    out = words_of(call("ingest", tmp_path).out)
    assert "groups neither stated nor inferred: 3 of 4 ranks have a trace" in out


@pytest.mark.parametrize("command", ["metrics", "whatif", "sql"])
def test_a_run_with_inferred_groups_is_not_one_without(call: Call, traces: Path, command: str) -> None:
    run = json.loads(call("ingest", traces, "--json").out)["runs"][0]["run"]
    more = {"whatif": ["--set", "kernels.time=x2"], "sql": ["SELECT 1"]}.get(command, [])
    assert call(command, run, *more).code == 0
    answer = call(command, run, *more, "--no-inference")
    assert answer.code == 2
    assert "has inferred process groups" in answer.err
    assert call(command, traces, *more, "--no-inference").code == 0


def test_rows_that_rest_on_groups_carry_the_caveat() -> None:
    keys = ("metric", "value", "reason", "group")
    rows = (
        ("comm.wait", 1.0, "left out: 2", None),
        ("comm.skew", 1.0, None, None),
        ("comm.skew", None, "none", None),
        ("comm.count", 1.0, None, None),
        ("comm.count", 1.0, None, "0-3"),
        ("time.idle", 1.0, None, None),
    )
    given = figures(dict(zip(keys, row, strict=True)) for row in rows)
    reasons = [one.reason for one in with_caveat(given, "inferred")]
    assert reasons == ["left out: 2; inferred", "inferred", "none", None, "inferred", None]
    assert with_caveat(given, None) == given
