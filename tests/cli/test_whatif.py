# SPDX-License-Identifier: Apache-2.0
"""`cclbench whatif` on a small run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from helpers.synthetic import Collective, Compute, Layout, Link, Network, Program, simulate, write

import cclbench
from cclbench.cli import main


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


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["whatif", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_page_has_steps_speedup_and_the_path(
    traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = called(
        capsys,
        str(traces),
        "--store",
        str(tmp_path),
        "--set",
        "scale_up.bandwidth=x2",
        "--sweep",
        "kernels.time=x1..x2",
    )
    assert code == 0
    text = " ".join(out.split())
    for words in ("measured", "replayed unchanged", "scale_up.bandwidth=x2", "knee of kernels.time", "comm."):
        assert words in text


def test_json_is_a_result(
    traces: Path, tmp_path: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = called(
        capsys, str(traces), "--store", str(tmp_path), "--set", "scale_up.bandwidth=x2", "--json"
    )
    assert code == 0
    document = json.loads(out)
    jsonschema.validate(
        document, json.loads((repository / "cclbench" / "schemas" / "result.json").read_text())
    )
    speedups = [
        r["value"] for r in document["results"] if r["metric"] == "whatif.speedup" and r["stat"] is None
    ]
    assert len(speedups) == 1
    assert 1 < speedups[0] < 2


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "no setting is given"),
        (("--set", "scale_up.bandwith=x2"), 2, "did you mean scale_up.bandwidth"),
        (("--set", "scale_up=nvlink4"), 3, "needs a named machine; give --system ID"),
        (("--set", "kernels.time=x2", "--contention", "0.5"), 2, "is not off, fit or a factor"),
        (("--set", "kernels.time=x2", "--system", "dgx-h1000"), 2, "did you mean dgx-h100"),
        (("--sweep", "kernels.time=x2"), 2, "is not KEY=xA..xB"),
        (("--set", "kernels.time=x2", "--ranks", "7"), 2, "has no rank 7"),
        (("--set", "kernels.time=x2", "--set", "kernels.time=x3"), 2, "kernels.time is set twice"),
        (("--set", "scale_up=infiniband-ndr"), 2, "infiniband-ndr is a scale_out fabric"),
        (
            ("--set", "kernels.time=x2", "--system", "mi300x-8gpu"),
            2,
            "--system mi300x-8gpu has amd-mi300x, the traces name NVIDIA H100",
        ),
    ],
)
def test_errors_say_what_to_do(
    arguments: tuple[str, ...],
    code: int,
    says: str,
    traces: Path,
    store: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found, out, err = called(capsys, str(traces), "--store", str(store), *arguments)
    assert found == code
    assert not out
    assert says in " ".join(err.split())


def test_a_system_of_another_device_may_be_forced(
    traces: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--system", "mi300x-8gpu", "--force-system", "--set", "scale_up.bandwidth=x2")
    code, out, _ = called(capsys, str(traces), "--store", str(store), *asked)
    assert code == 0
    assert "mi300x-8gpu" in out


def test_a_setting_that_touches_nothing_is_no_answer(
    traces: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (str(traces), "--store", str(store), "--per-node", "2")
    code, out, _ = called(capsys, *asked, "--set", "scale_out.bandwidth=x2", "--json")
    rows = {r["metric"]: r for r in json.loads(out)["results"] if r["category"] and r["stat"] is None}
    assert code == 0
    for name in ("whatif.step", "whatif.speedup"):
        assert (rows[name]["value"], rows[name]["status"]) == (None, "not_applicable")
        assert "no collective of the run crosses scale_out" in rows[name]["reason"]
    code, out, _ = called(capsys, *asked, "--set", "scale_out.bandwidth=x2")
    assert "no effect" in out
    assert "1.00×" not in out
    code, out, _ = called(capsys, *asked, "--set", "scale_out.bandwidth=x2", "--set", "kernels.time=x2")
    assert "scale_out.bandwidth has no effect" in " ".join(out.split())
    assert "x2   no effect" not in out


def test_contention_may_be_fitted(traces: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(
        capsys, str(traces), "--store", str(store), "--set", "kernels.time=x2", "--contention", "fit", "-q"
    )
    assert code == 0
    assert "inferred" not in out


def test_the_api_gives_what_the_command_prints(traces: Path, tmp_path: Path) -> None:
    found = cclbench.whatif(traces, "scale_up.bandwidth=x2", store=tmp_path)
    assert found == cclbench.whatif(cclbench.ingest(traces, store=tmp_path), "scale_up.bandwidth=x2")
    assert [one.scenario.label for one in found.predicted] == ["scale_up.bandwidth=x2"]
    assert found.measured_ns


def test_the_page_shows_what_its_command_prints(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (repository / "docs" / "hardware-model.md").read_text()
    ((columns, line, shown),) = re.findall(
        r"```console\n\$ COLUMNS=(\d+) cclbench whatif ([^\n]*)\n(.*?)```", page, re.S
    )
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.chdir(repository)
    code, out, _ = called(capsys, *line.split(), "--store", str(tmp_path))
    assert code == 0
    assert [text.rstrip() for text in out.strip("\n").splitlines()] == shown.splitlines()


def test_a_scenario_is_saved_and_replayed_from_its_file(
    traces: Path, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.yaml"
    asked = (str(traces), "--store", str(store), "--json")
    code, first, _ = called(capsys, *asked, "--set", "kernels.time=x2", "--save", str(kept))
    assert code == 0
    code, second, _ = called(capsys, *asked, "--scenario", str(kept))
    assert code == 0
    assert json.loads(first)["results"] == json.loads(second)["results"]
    kept.write_text("name: slow\nset:\n  kernels.time: x2\n")
    code, named, _ = called(capsys, *asked, "--scenario", str(kept))
    assert {row["category"] for row in json.loads(named)["results"]} == {None, "slow"}
    code, _, err = called(
        capsys, *asked, "--scenario", "kernels.time=x1", "--scenario", "kernels.time=x3", "--save", str(kept)
    )
    assert code == 2
    assert "there are 2 scenarios" in err
