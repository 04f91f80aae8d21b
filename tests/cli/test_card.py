# SPDX-License-Identifier: Apache-2.0
"""Cards on the command line, and data points contributed with them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from helpers.command_line import Call
from helpers.contributed import CARD
from jsonschema import Draft7Validator

from cclbench.cli import contribute as command
from cclbench.cli.card import card
from cclbench.contribute.completion import CardGap
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


TOKEN = "hf_" + "A" * 34
SECRETS = (b"ada-lovelace", b"node17.example.org", b"10.1.2.3", TOKEN.encode(), b"/home/ada-lovelace")


@pytest.fixture
def arguments(tmp_path: Path, document: dict[str, Any]) -> list[str]:
    """A call that contributes a small trace with secrets in it."""
    for folder in ("capture", "launch", "collection"):
        (tmp_path / folder).mkdir()
    document["hostname"] = "node17.example.org"
    document["env"] = {"USER": "ada-lovelace", "HF_TOKEN": TOKEN, "MASTER_ADDR": "10.1.2.3"}
    packed = gzip.compress(json.dumps(document).encode(), mtime=0)
    (tmp_path / "capture" / "rank0.json.gz").write_bytes(packed)
    script = f"#!/bin/sh\nexport HF_TOKEN={TOKEN}\ncd /home/ada-lovelace/run && ssh node17.example.org\n"
    (tmp_path / "launch" / "run.sh").write_text(script)
    (tmp_path / "my-job.yaml").write_text(CARD)
    fixed = (tmp_path / "my-job.yaml", "--traces", tmp_path / "capture", "--scripts", tmp_path / "launch")
    where = ("--collection", tmp_path / "collection", "--licence", "CC-BY-4.0", "--jobs", "1")
    return [str(word) for word in ("contribute", *fixed, *where)]


def test_a_newcomer_sees_what_was_done(call: Call, arguments: list[str], tmp_path: Path) -> None:
    answer = call(*arguments)
    assert (answer.code, answer.err) == (0, "")
    for words in (
        "Created", "Filled in from the traces", "Redacted, by kind", "Verified", "Next",
        "  cclbench verify my-job", "  git add workload_cards/my-job.yaml traces/my-job scripts/my-job",
    ):  # fmt: skip
        assert words in answer.out
    # Commands are not wrapped: they are to be copied.
    assert max(map(len, answer.out.partition("Next")[0].splitlines())) <= 80
    found = [p for p in (tmp_path / "collection").rglob("*") if p.is_file()]
    for path in found:
        content = path.read_bytes()
        plain = gzip.decompress(content) if path.suffix == ".gz" else content
        assert [secret for secret in SECRETS if secret in plain] == [], path.name
    verified = call("verify", "my-job", "--collection", tmp_path / "collection", "--jobs", "1")
    assert (verified.code, verified.err) == (0, "")


def test_json_has_everything_and_no_secret(call: Call, arguments: list[str], tmp_path: Path) -> None:
    """What a card lacks is listed, and nothing asked."""
    card = tmp_path / "my-job.yaml"
    card.write_text(CARD.replace("phase: training", "dataset: c4"))
    answer = call(*arguments, "--no-input")
    assert (answer.code, answer.out) == (1, "")
    assert "  workload.phase: " in answer.err
    assert list((tmp_path / "collection").iterdir()) == []
    card.write_text(CARD)
    document = json.loads(call(*arguments, "--json").out)
    assert document["schema"] == "contribution.v1"
    assert [file["path"] for file in document["files"]] == ["rank0.json.gz"]
    assert document["rows_equal"] > 100
    assert document["redactions"]
    assert all(set(row) == {"file", "place", "kind", "count"} for row in document["redactions"])
    assert not any(secret.decode() in json.dumps(document["redactions"]) for secret in SECRETS)


def test_people_are_asked_again(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    typed = iter(["", "many", "16", ""])
    monkeypatch.setattr("click.prompt", lambda *_, **__: next(typed))
    batch = CardGap("workload.batch.global", "samples a step", "16", "every card has it", True)
    assert command._prompt_for_gap(batch) == 16
    said = capsys.readouterr().err
    assert "workload.batch.global: samples a step; every card has it" in said
    assert 'is "many" but must be a whole number' in said
    nobody = CardGap("workload.dataset", "data set", "c4", "nobody needs it", False, optional=True)
    assert command._prompt_for_gap(nobody) is None


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (("--external", "50"), 2, "'50' has no unit, like"),
        (("--external", "0.1 kB", "--outside", "x"), 2, "too large for the collection"),
        (("--url", "http://example.org"), 2, "not an https address"),
        (("--collection", "/nowhere"), 2, "does not exist"),
        (("--traces", "/nowhere"), 3, "no such file or folder"),
        (("--scripts", "/nowhere"), 3, "is not a folder"),
    ],
)
def test_bad_calls(call: Call, arguments: list[str], change: tuple[str, ...], code: int, words: str) -> None:
    answer = call(*arguments, *change)
    assert (answer.code, answer.out) == (code, "")
    assert words in answer.err
    assert len(answer.err.splitlines()) <= 3


def test_traces_of_graph_captures_are_refused(call: Call, arguments: list[str], test_data: Path) -> None:
    answer = call(*arguments, "--traces", test_data / "graph_replay" / "vllm_decode_mi300x")
    assert (answer.code, answer.out) == (3, "")
    assert "graph_capture_rank_0.pt.trace.json.gz: is the trace of a graph's capture" in answer.err


def test_the_review_list_names_what_can_be_revealed(call: Call, arguments: list[str], tmp_path: Path) -> None:
    answer = call(*arguments)
    assert "metadata of the program: 2 in rank0.json.gz" in answer.out
    assert "text that is no public name" in answer.out
    again = call(*arguments, "--replace", "--reveal", "hostname", "--json")
    assert again.code == 0
    document = json.loads(again.out)
    assert document["revealed"] == ["hostname"]
    collection = tmp_path / "collection"
    trace = json.loads(gzip.decompress((collection / "traces/my-job/rank0.json.gz").read_bytes()))
    assert trace["hostname"] == "node17.example.org"
    assert "env" not in trace or "MASTER_ADDR" not in trace["env"]
    manifest = json.loads((collection / "traces/my-job/manifest.json").read_text())
    assert manifest["revealed"] == ["hostname"]
    recorded = call("verify", "my-job", "--record", "--collection", collection, "--jobs", "1")
    assert recorded.code == 0
    assert json.loads((collection / "traces/my-job/manifest.json").read_text())["revealed"] == ["hostname"]
