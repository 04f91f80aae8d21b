# SPDX-License-Identifier: Apache-2.0
"""Process groups that no trace states, as commands tell of them, and the switch that leaves them unknown."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import click
import pytest
from helpers.command_line import Call, Told
from helpers.synthetic import Collective, Compute, Distortion, Layout, Program, simulate, write
from helpers.typed import figures

from cclbench.analyzers.rows import with_caveat
from cclbench.cli import cli

from .conftest import words_of

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


def test_metrics_that_rest_on_groups_say_what_is_not_noticed(call: Call) -> None:
    document = json.loads(call("explain", "comm.wait", "time.idle", "--json").out)
    wait, idle = document["metrics"]
    assert "balanced subgroups in lockstep" in wait["limits"]
    assert idle["limits"] is None
    assert "limits" in call("explain", "comm.wait").out
    assert "limits" not in call("explain", "time.idle").out


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
