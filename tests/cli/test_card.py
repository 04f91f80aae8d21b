# SPDX-License-Identifier: Apache-2.0
"""`cclbench card`: output, files written, and errors that become exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft7Validator

from cclbench.cli.card import card
from cclbench.ground.errors import CheckFailed, InputError, UsageError

V2 = "version: 2\nid: {id}\ndescription: x\nworkload: {{phase: inference}}\n"
V1 = "version: 1\ndescription: x\nworkload: {model: {phase: inference, granularity: layer}}\n"


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(card, [str(arg) for arg in args])


@pytest.fixture
def cards(tmp_path: Path) -> dict[str, Path]:
    """A valid card, one with two unknown keys, and one of version 1."""
    bad = V2.format(id="bad") + "tp: 4\nhardwear: 1\n"
    texts = {"good": V2.format(id="good"), "bad": bad, "old": V1}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return {name: tmp_path / f"{name}.yaml" for name in texts}


@pytest.fixture
def good(cards: dict[str, Path]) -> Path:
    return cards["good"]


@pytest.fixture
def bad(cards: dict[str, Path]) -> Path:
    return cards["bad"]


@pytest.fixture
def old(cards: dict[str, Path]) -> Path:
    return cards["old"]


def test_validate_names_every_problem_of_every_card(good: Path, bad: Path, tmp_path: Path) -> None:
    """A valid card passes, with warnings."""
    result = run("validate", good)
    assert result.exit_code == 0
    assert f"warning: {good}: hardware.accelerator: is not filled in" in result.stdout.replace(":1:", ":")
    result = run("validate", good, bad)
    assert isinstance(result.exception, CheckFailed)
    assert str(result.exception) == "1 of 2 cards are invalid"
    assert f"{good}: valid" in result.stdout
    assert f"error: {bad}:5: tp: unknown key; it belongs at parallelism.tp" in result.stdout
    assert f"error: {bad}:6: hardwear: unknown key; did you mean hardware?" in result.stdout
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: b: c\n")
    result = run("validate", "--json", good, bad, broken)
    assert isinstance(result.exception, InputError)
    document = json.loads(result.stdout)
    assert document["schema"] == "card-validation.v1"
    valid = {Path(row["file"]).name: row["valid"] for row in document["files"]}
    assert valid == {"good.yaml": True, "bad.yaml": False, "broken.yaml": False}
    problem = next(p for p in document["files"][1]["problems"] if p["severity"] == "error")
    about = {"severity": "error", "file": str(bad), "line": 5, "path": "tp"}
    assert problem == about | {"message": "unknown key; it belongs at parallelism.tp"}
    assert "broken.yaml:1:5: is not valid YAML" in document["files"][2]["problems"][0]["message"]


def test_upgrade_prints_the_card_and_warns_on_stderr(old: Path, good: Path) -> None:
    """Written to a file, it is a valid card; one that is there is not overwritten."""
    result = run("upgrade", old)
    assert result.exit_code == 0
    assert result.stdout.startswith("version: 2\nid: old\ndescription: x\n")
    warning = f'{old}:3: workload.model.granularity: "layer" has no home in version 2; left out'
    assert result.stderr == f"warning: {warning}\n"
    document = json.loads(run("upgrade", old, "--json").stdout)
    assert document["schema"] == "card-upgrade.v1"
    assert document["card"].startswith("version: 2\n")
    assert [warning["line"] for warning in document["warnings"]] == [3]
    assert document["problems"] == []
    before = good.read_text()
    result = run("upgrade", old, "-o", good)
    assert isinstance(result.exception, UsageError)
    assert "--force" in str(result.exception)
    assert good.read_text() == before
    assert run("upgrade", old, "-o", good, "--force").exit_code == 0
    assert good.read_text() != before
    assert run("validate", good).exit_code == 0


def test_a_card_that_does_not_become_valid_is_written_and_fails(tmp_path: Path) -> None:
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(V1.replace("description: x\n", ""))
    result = run("upgrade", old, "-o", new)
    assert isinstance(result.exception, CheckFailed)
    assert "description: is missing" in str(result.exception)
    assert new.read_text().startswith("version: 2\n")
    assert result.stdout == ""


def test_a_write_that_fails_is_named_and_leaves_nothing(old: Path, tmp_path: Path) -> None:
    result = run("upgrade", old, "-o", tmp_path / "missing" / "new.yaml")
    assert isinstance(result.exception, InputError)
    assert "cannot be written: No such file or directory" in str(result.exception)
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    assert isinstance(run("upgrade", old, "-o", tmp_path / "folder", "--force").exception, InputError)
    assert sorted(tmp_path.iterdir()) == before


def test_show_is_for_people(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(
        V2.format(id="x").replace("description: x", 'description: "one\\n\\u202Etwo"')
        + "hardware: {scale_out: {bandwidth: 200 Gb/s}}\n"
        + "evidence: {traces: [{path: traces/x/r0.json, format: kineto, ranks: [0, 1], bytes: 1500000}]}\n"
    )
    result = run("show", path)
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert lines[:3] == ["x", "one", "\\u202etwo"]
    assert "workload.phase inference" in lines
    assert "hardware.scale_out.bandwidth 200 Gb/s = 25.0 GB/s" in lines
    assert "evidence.traces traces/x/r0.json; kineto; ranks 0, 1; 1.50 MB" in lines


def test_show_as_json_is_the_card(good: Path, bad: Path) -> None:
    """An invalid one is refused with all problems."""
    card = {"version": 2, "id": "good", "description": "x", "workload": {"phase": "inference"}}
    assert json.loads(run("show", good, "--json").stdout)["card"] == card
    result = run("show", bad)
    assert isinstance(result.exception, CheckFailed)
    assert len(str(result.exception).splitlines()) == 2


def test_the_schema_is_printed_for_editors() -> None:
    schema = json.loads(run("schema").stdout)
    Draft7Validator.check_schema(schema)
    assert schema["properties"]["version"]["const"] == 2
