# SPDX-License-Identifier: Apache-2.0
"""`cclbench whatif` on a small run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from helpers.command_line import Call
from helpers.synthetic import Collective, Compute, Layout, Link, Network, Program, simulate, write

import cclbench


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks, five sizes of all-reduce a step, between kernels."""
    ops = [op for i in range(1, 6) for op in (Compute(20_000), Collective("all_reduce", "dp", i << 20))]
    folder = tmp_path_factory.mktemp("whatif") / "traces"
    program = Program((*ops, Compute(20_000)), steps=2)
    write(simulate(Layout(dp=2, gpus_per_host=2), program, Network(Link(5_000, 100))), folder)
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for tests that only ask: the traces are read once."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def whatif(call: Call, traces: Path, store: Path) -> Call:
    """The command on those traces."""
    return lambda *words: call("whatif", traces, "--store", store, *words)


def test_the_page_and_the_result(whatif: Call, repository: Path) -> None:
    words = ("--set", "scale_up.bandwidth=x2")
    code, out, _ = whatif(*words, "--sweep", "kernels.time=x1..x2")
    assert code == 0
    text = " ".join(out.split())
    for said in ("measured", "replayed unchanged", words[1], "knee of kernels.time", "comm."):
        assert said in text
    code, out, _ = whatif(*words, "--json")
    assert code == 0
    document = json.loads(out)
    schema = json.loads((repository / "cclbench" / "schemas" / "result.json").read_text())
    jsonschema.validate(document, schema)
    rows = document["results"]
    (speedup,) = [r["value"] for r in rows if (r["metric"], r["stat"]) == ("whatif.speedup", None)]
    assert 1 < speedup < 2


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ("", 2, "no setting is given"),
        ("--set scale_up.bandwith=x2", 2, "did you mean scale_up.bandwidth"),
        ("--set scale_up=nvlink4", 3, "needs a named machine; give --system ID"),
        ("--set kernels.time=x2 --contention 0.5", 2, "is not off, fit or a factor"),
        ("--set kernels.time=x2 --system dgx-h1000", 2, "did you mean dgx-h100"),
        ("--sweep kernels.time=x2", 2, "is not KEY=xA..xB"),
        ("--set kernels.time=x2 --ranks 7", 2, "has no rank 7"),
        ("--set kernels.time=x2 --set kernels.time=x3", 2, "kernels.time is set twice"),
        ("--set scale_up=infiniband-ndr", 2, "infiniband-ndr is a scale_out fabric"),
        ("--set kernels.time=x2 --system mi300x-8gpu", 2, "has amd-mi300x, the traces name NVIDIA H100"),
        ("--scenario kernels.time=x1 --scenario kernels.time=x3 --save x", 2, "there are 2 scenarios"),
    ],
)
def test_errors_say_what_to_do(arguments: str, code: int, says: str, whatif: Call) -> None:
    found, out, err = whatif(*arguments.split())
    assert (found, out) == (code, "")
    assert says in " ".join(err.split())


def test_a_system_of_another_device_may_be_forced(whatif: Call) -> None:
    asked = ("--system", "mi300x-8gpu", "--force-system", "--set", "scale_up.bandwidth=x2")
    code, out, _ = whatif(*asked)
    assert (code, "mi300x-8gpu" in out) == (0, True)


def test_a_setting_that_touches_nothing_is_no_answer(whatif: Call) -> None:
    asked = ("--per-node", "2", "--set", "scale_out.bandwidth=x2")
    code, out, _ = whatif(*asked, "--json")
    rows = {r["metric"]: r for r in json.loads(out)["results"] if r["category"] and r["stat"] is None}
    assert code == 0
    for name in ("whatif.step", "whatif.speedup"):
        assert (rows[name]["value"], rows[name]["status"]) == (None, "not_applicable")
        assert "no collective of the run crosses scale_out" in rows[name]["reason"]
    out = whatif(*asked).out
    assert "no effect" in out
    assert "1.00×" not in out
    out = whatif(*asked, "--set", "kernels.time=x2").out
    assert "scale_out.bandwidth has no effect" in " ".join(out.split())
    assert "x2   no effect" not in out


def test_contention_may_be_fitted(whatif: Call) -> None:
    code, out, _ = whatif("--set", "kernels.time=x2", "--contention", "fit", "-q")
    assert (code, "inferred" in out) == (0, False)


def test_the_api_gives_what_the_command_prints(traces: Path, tmp_path: Path) -> None:
    found = cclbench.whatif(traces, "scale_up.bandwidth=x2", store=tmp_path)
    assert found == cclbench.whatif(cclbench.ingest(traces, store=tmp_path), "scale_up.bandwidth=x2")
    assert [one.scenario.label for one in found.predicted] == ["scale_up.bandwidth=x2"]
    assert found.measured_ns


def test_the_page_shows_its_output(repository: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    page = (repository / "docs" / "hardware-model.md").read_text()
    block = r"```console\n\$ COLUMNS=(\d+) cclbench whatif ([^\n]*)\n(.*?)```"
    ((columns, line, shown),) = re.findall(block, page, re.DOTALL)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.chdir(repository)
    code, out, _ = call("whatif", *line.split())
    assert code == 0
    assert [text.rstrip() for text in out.strip("\n").splitlines()] == shown.splitlines()


def test_a_scenario_is_saved_and_replayed_from_its_file(whatif: Call, tmp_path: Path) -> None:
    kept = tmp_path / "kept.yaml"
    first = whatif("--json", "--set", "kernels.time=x2", "--save", kept)
    second = whatif("--json", "--scenario", kept)
    assert (first.code, second.code) == (0, 0)
    assert json.loads(first.out)["results"] == json.loads(second.out)["results"]
    kept.write_text("name: slow\nset:\n  kernels.time: x2\n")
    named = json.loads(whatif("--json", "--scenario", kept).out)["results"]
    assert {row["category"] for row in named} == {None, "slow"}
