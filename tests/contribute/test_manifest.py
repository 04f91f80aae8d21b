# SPDX-License-Identifier: Apache-2.0
"""Manifests of data points: written, read back, and refused where they are not what they should be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.typed import figures

from cclbench.contribute import manifest
from cclbench.contribute.manifest import DataPointFile, DataPointManifest, read_manifest
from cclbench.contribute.record import MetricDigest, RecordedResults
from cclbench.ground.errors import InputError
from cclbench.ground.json_schema import packaged_schema
from cclbench.record.manifest import Options

SHA = "ab" * 32
ROW = {"metric": "time.step", "value": 0.1, "unit": "s", "status": "ok", "window": "steps", "version": 1}


@pytest.fixture
def good() -> DataPointManifest:
    """One file here, one elsewhere."""
    return DataPointManifest(
        id="my-job",
        cclbench="0.1.0",
        card=SHA,
        ingest=Options(step_annotation="train_.*"),
        files=[
            DataPointFile("a.json", SHA, 3),
            DataPointFile("b/c.json", SHA, 5, "https://example.org/c.json"),
        ],
        redactions={"user name": 2},
        results=RecordedResults({"time.step": MetricDigest(1, 2, SHA)}, figures([ROW])),
    )


def test_what_is_written_is_read_back(tmp_path: Path, good: DataPointManifest) -> None:
    path = tmp_path / "manifest.json"
    path.write_text(good.as_text())
    assert read_manifest(path) == good
    assert json.loads(good.as_text())["files"][0] == {"path": "a.json", "sha256": SHA, "bytes": 3}


def test_a_file_and_a_row_have_a_line_each(good: DataPointManifest) -> None:
    lines = good.as_text().splitlines()
    assert '  {"path": "a.json", "sha256": "' + SHA + '", "bytes": 3},' in lines
    assert "   " + json.dumps(ROW) in lines


def test_the_schema_is_a_schema() -> None:
    from jsonschema import Draft7Validator

    Draft7Validator.check_schema(dict(packaged_schema("manifest-data-point")))


def file_is(**change: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["files"][0].update(change)


BAD: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another format": (lambda d: d.update(schema="data-point.v2"), "schema: is .data-point.v2. but must be"),
    "an old manifest": (lambda d: [d.pop(k) for k in list(d) if k != "files"], "is missing"),
    "an unknown key": (lambda d: d.update(extra=1), "extra: unknown key"),
    "an id with a slash": (lambda d: d.update(id="../x"), "id: is"),
    "no files": (lambda d: d.update(files=[]), "files: is empty"),
    "a path upwards": (file_is(path="../../etc/passwd"), "does not stay"),
    "an absolute path": (file_is(path="/etc/passwd"), "does not stay"),
    "a path with two spellings": (file_is(path="./a.json"), "does not stay"),
    "a backslash": (file_is(path="..\\a.json"), "does not stay"),
    "a file twice": (lambda d: d["files"].append(d["files"][0]), "lists a file twice"),
    "a hash too short": (file_is(sha256="ab"), r"files\[0\].sha256"),
    "bytes as text": (file_is(bytes="3"), "whole number"),
    "negative bytes": (file_is(bytes=-1), "at least 0"),
    "a URL without encryption": (file_is(url="http://example.org"), r"files\[0\].url"),
    "a row of no metric": (lambda d: d["results"].update(metrics={}), "not among its metrics"),
    "no rows": (lambda d: d["results"].update(rows=[]), "rows: is empty"),
    "a modelled row": (lambda d: d["results"]["rows"][0].update(provenance="modelled"), "provenance"),
    "a value as text": (lambda d: d["results"]["rows"][0].update(value="0.1"), "value"),
    "a row of a rank": (lambda d: d["results"]["rows"][0].update(rank=0), "rank: unknown key"),
    "a version of none": (lambda d: d["results"]["metrics"]["time.step"].update(version=0), "at least 1"),
    "a very long expression": (lambda d: d["ingest"].update(step_annotation="x" * 300), "step_annotation"),
    "zero redactions": (lambda d: d.update(redactions={"host": 0}), "at least 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, good: DataPointManifest, name: str) -> None:
    spoil, words = BAD[name]
    document = json.loads(good.as_text())
    spoil(document)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=words) as raised:
        read_manifest(path)
    assert raised.value.where == str(path)
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"a": NaN}', b"[" * 100_000, b'{"a":' * 100_000, b"\0" * 10],
)
def test_what_is_no_json_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "manifest.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"is not (?:valid JSON|a JSON object)"):
        read_manifest(path)


def test_a_huge_manifest_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "LARGEST_BYTES", 1 << 20)
    path = tmp_path / "manifest.json"
    path.write_bytes(b" " * ((1 << 20) + 1))
    with pytest.raises(InputError, match="over 1 MB"):
        read_manifest(path)


def test_a_missing_one_and_a_folder_are_told(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            read_manifest(path)
