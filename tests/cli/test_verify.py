# SPDX-License-Identifier: Apache-2.0
"""`cclbench verify` as a person and a pull request's check meet it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers.command_line import Call

ID = "tiny-llama-ddp4-gloo-cpu"


@pytest.fixture
def collection(repository: Path, tmp_path: Path) -> Path:
    """One shipped data point, in a collection of its own."""
    folder = tmp_path / "collection"
    shutil.copytree(repository / "traces" / ID, folder / "traces" / ID)
    shutil.copytree(repository / "scripts" / ID, folder / "scripts" / ID)
    (folder / "workload_cards").mkdir()
    shutil.copyfile(repository / "workload_cards" / f"{ID}.yaml", folder / "workload_cards" / f"{ID}.yaml")
    return folder


@pytest.fixture
def verify(call: Call, collection: Path) -> Call:
    """The command on it."""
    return lambda *words: call("verify", *words, "--collection", collection, "--jobs", "1")


def test_a_shipped_data_point_is_verified(verify: Call) -> None:
    """Every form tells the same."""
    answer = verify(ID)
    assert (answer.code, answer.err) == (0, "")
    header, _, line = answer.out.splitlines()
    assert header.split() == ["id", "status", "files", "rows", "exact", "changed"]
    assert line.split()[:3] == [ID, "verified", "4"]
    document = json.loads(verify("--all", "--json").out)
    assert document["schema"] == "verification.v1"
    (point,) = document["data_points"]
    assert (point["id"], point["status"], len(point["files"])) == (ID, "verified", 4)
    assert point["comparison"]["changes"] == []
    assert verify(ID, "--format", "csv").out.splitlines()[1].startswith(f"{ID},verified,4,")
    assert verify(ID, "--format", "md").out.splitlines()[2].startswith(f"| {ID} | verified | 4 |")


def test_a_changed_value_fails_with_both(verify: Call, collection: Path) -> None:
    """Recording is verified at once."""
    path = collection / "traces" / ID / "manifest.json"
    document = json.loads(path.read_text())
    rows = document["results"]["rows"]
    row = next(r for r in rows if r["metric"] == "time.idle" and "step" not in r)
    true, row["value"] = row["value"], 0.125
    path.write_text(json.dumps(document))
    answer = verify(ID)
    assert answer.code == 1
    assert f"time.idle: recorded 0.125 s, computed {true!r} s" in " ".join(answer.out.split())
    assert answer.err == "error: 1 of 1 data points are not verified\n"
    path.unlink()
    assert verify(ID).code == 1
    answer = verify("--record", ID)
    assert (answer.code, answer.err.startswith("recorded ")) == (0, True)


def test_an_unreadable_one_does_not_keep_the_others(verify: Call, collection: Path) -> None:
    (collection / "workload_cards" / "broken.yaml").write_text("{")
    (collection / "traces" / "broken").mkdir()
    (collection / "traces" / "broken" / "manifest.json").write_text("{")
    answer = verify("--all")
    assert answer.code == 3
    listed = [line.split()[:2] for line in answer.out.splitlines()[2:4]]
    assert listed == [["broken", "unreadable"], [ID, "verified"]]
    assert "error: 1 of 2 data points are not verified" in answer.err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ((), 2, "name data points, or give one of --all and"),
        ((ID, "--all"), 2, "name data points, or give one of --all and"),
        (("tiny-llama-ddp4",), 2, f"did you mean {ID}"),
        (("../../etc",), 2, "no data point"),
        (("\x1b[31m",), 2, "no data point"),
        ((ID, "--evidence", "/nowhere"), 2, "neither a folder nor an archive"),
        (("--changed-since", "-x"), 2, "git"),
        (("--changed-since", ""), 2, "there is no commit to compare with"),
    ],
)
def test_a_wrong_call_is_told(verify: Call, words: tuple[str, ...], code: int, told: str) -> None:
    answer = verify(*words)
    assert (answer.code, answer.out) == (code, "")
    assert told in answer.err
    assert answer.err.replace("\n", "").isprintable()


def test_an_empty_folder_has_nothing_to_verify(call: Call, tmp_path: Path) -> None:
    answer = call("verify", "--all", "--collection", tmp_path)
    assert answer.code == 2
    assert "holds no workload_cards/" in answer.err
