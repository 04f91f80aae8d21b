# SPDX-License-Identifier: Apache-2.0
"""A run in S3 one of whose objects was lost, replaced or changed: no command takes a number from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.s3_service import Service

import cclbench
from cclbench.cli import main
from cclbench.record.inventory import OTHER_CONTENT
from cclbench.workspace import store_at

STORE = "s3://bucket/runs"
Change = Callable[[Service, str, bytes], None]


def delete(s3: Service, key: str, _: bytes) -> None:
    s3.direct("DELETE", f"/bucket/{key}")


def truncate(s3: Service, key: str, content: bytes) -> None:
    s3.put(key, content[:-1])


def append(s3: Service, key: str, content: bytes) -> None:
    s3.put(key, content + b"\0")


def add(s3: Service, key: str, content: bytes) -> None:
    s3.put(key.replace(".parquet", "-copy.parquet"), content)


@pytest.fixture
def run(
    s3: Service, job: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> tuple[str, dict[str, bytes]]:
    """A run with results in the bucket, and its objects."""
    monkeypatch.setenv("CCLBENCH_STORE", STORE)
    monkeypatch.setenv("COLUMNS", "10000")
    monkeypatch.chdir(tmp_path)
    made = cclbench.run(job, store=STORE)
    return made.id, s3.objects(f"runs/{made.id}/")


def restore(s3: Service, objects: dict[str, bytes]) -> None:
    for key in s3.objects(key_of(objects)):
        if key not in objects:
            delete(s3, key, b"")
    for key, content in objects.items():
        s3.put(key, content)


def key_of(objects: dict[str, bytes]) -> str:
    return next(iter(objects)).partition("/")[0] + "/"


@pytest.mark.parametrize("change", [delete, truncate, append, add])
def test_no_command_takes_a_number_from_a_run_with_a_changed_object(
    s3: Service, run: tuple[str, dict[str, bytes]], change: Change, capsys: pytest.CaptureFixture[str]
) -> None:
    name, objects = run
    tables = [key for key in objects if key.endswith(".parquet") and "results" not in key]
    for key in tables:
        restore(s3, objects)
        change(s3, key, objects[key])
        for words in (
            ["sql", name, "SELECT count(*) FROM steps"],
            ["metrics", name, "--jobs", "1"],
            ["report", name, "-o", "out.html", "--jobs", "1"],
        ):
            capsys.readouterr()
            assert main(words) == 3, (key, words)
            out, error = capsys.readouterr()
            assert out == ""
            assert f"s3://bucket/runs/{name}/{'/'.join(key.split('/')[2:])}"[:-8] in error
            assert f"cclbench verify --run {name}" in error
        assert main(["list", "runs", "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        assert row.keys() == {"run", "problem"}
    assert not Path("out.html").exists()


def test_swapped_objects_are_told_apart(
    s3: Service, run: tuple[str, dict[str, bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    name, objects = run
    pairs = ((key, key.replace("rank=0", "rank=1")) for key in objects if "rank=0" in key)
    alike = (pair for pair in pairs if len({len(objects[key]) for key in pair}) == 1)
    first, second = next(pair for pair in alike if objects[pair[0]] != objects[pair[1]])
    s3.put(first, objects[second])
    s3.put(second, objects[first])
    assert main(["sql", name, f"FROM {first.split('/')[2]}"]) == 3
    assert OTHER_CONTENT in capsys.readouterr().err
    assert main(["verify", "--run", name, "--json"]) == 3
    (found,) = json.loads(capsys.readouterr().out)["runs"]
    assert [f"runs/{name}/{change['path']}" for change in found["changes"]] == [first, second]


def test_a_check_asks_for_a_listing_and_no_object(s3: Service, run: tuple[str, dict[str, bytes]]) -> None:
    name, _ = run
    s3.asked.clear()
    assert store_at(STORE).get(name).ranks == [0, 1]
    assert not [path for _, path in s3.asked if "rank=" in path]
    s3.asked.clear()
    (listed,) = store_at(STORE).runs()
    assert listed.ranks == [0, 1]
    assert not [path for _, path in s3.asked if "rank=" in path]


def test_naming_the_source_rewrites_a_run(s3: Service, job: Path, run: tuple[str, dict[str, bytes]]) -> None:
    name, objects = run
    delete(s3, f"runs/{name}/groups.parquet", b"")
    add(s3, f"runs/{name}/steps/rank=0.parquet", b"")
    assert cclbench.ingest(job, store=STORE).id == name
    assert s3.objects(f"runs/{name}/").keys() == objects.keys() - {f"runs/{name}/results.parquet"}
    assert store_at(STORE).get(name).verify_files().changes == []
