# SPDX-License-Identifier: Apache-2.0
"""A data point is verified only while nothing of it differs from its record."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cclbench.contribute import verify as module
from cclbench.contribute.evidence import evidence_elsewhere
from cclbench.contribute.manifest import read_manifest
from cclbench.contribute.place import DataPointPlace, data_point_ids, existing_place, file_names
from cclbench.contribute.verify import Verdict, record_data_point, verify_data_point
from cclbench.ground.errors import CheckFailed, InputError, UsageError


@pytest.fixture
def point(contributed: Path, tmp_path: Path) -> DataPointPlace:
    """A contributed data point, to be spoilt."""
    shutil.copytree(contributed, tmp_path / "collection")
    return DataPointPlace(tmp_path / "collection", "my-job")


def append(path: Path, text: str) -> None:
    """Make a file longer."""
    path.write_bytes(path.read_bytes() + text.encode())


def checked(point: DataPointPlace, *folders: Path, fetching: bool = False) -> Verdict:
    """What verifying says."""
    with evidence_elsewhere(folders, fetching=fetching) as elsewhere:
        return verify_data_point(point, elsewhere)


def change(point: DataPointPlace, alter: Callable[[dict[str, Any]], object]) -> None:
    """Alter the manifest."""
    document = json.loads(point.manifest_path.read_text())
    alter(document)
    point.manifest_path.write_text(json.dumps(document))


def step(document: dict[str, Any]) -> dict[str, Any]:
    """The row of the mean step time, 100 µs: that of the first step, after which the second is open."""
    rows = document["results"]["rows"]
    return next(r for r in rows if r["metric"] == "time.step" and not {"stat", "step"} & r.keys())


def test_an_untouched_one_is_verified(point: DataPointPlace) -> None:
    verdict = checked(point)
    assert (verdict.status, verdict.reasons) == ("verified", ())
    assert [(file.path, file.state) for file in verdict.files] == [
        ("rank0.json", "ok"),
        ("rank1.json.gz", "ok"),
    ]
    assert verdict.comparison.rows == verdict.comparison.exact > 100


SPOILT: dict[str, tuple[Callable[[DataPointPlace], object], str, str]] = {
    "a byte more": (
        lambda p: append(p.traces_folder / "rank0.json", "\n"),
        "changed",
        "rank0.json: has 2,105 bytes, but 2,104 are recorded",
    ),
    "a byte otherwise": (
        lambda p: (p.traces_folder / "rank0.json").write_bytes(
            (p.traces_folder / "rank0.json").read_bytes().replace(b'"dur": 40', b'"dur": 41')
        ),
        "changed",
        "rank0.json: its SHA-256 is ",
    ),
    "a file gone": (
        lambda p: (p.traces_folder / "rank0.json").unlink(),
        "changed",
        "rank0.json: there is no such file",
    ),
    "a file more": (
        lambda p: (p.traces_folder / "x.json").write_text("{}"),
        "changed",
        "x.json: the manifest does not list it",
    ),
    "a link": (lambda p: (p.traces_folder / "x.json").symlink_to("/etc/passwd"), "unreadable", "is a link"),
    "a comment in the card": (
        lambda p: append(p.card_path, "# mine\n"),
        "changed",
        "the card differs from the one of the recorded results",
    ),
    "an invalid card": (lambda p: p.card_path.write_text("version: 2\n"), "invalid", "is missing"),
    "a card that is no YAML": (lambda p: p.card_path.write_text("{"), "unreadable", "not valid YAML"),
    "no card": (lambda p: p.card_path.unlink(), "unrecorded", "there is no"),
    "no manifest": (lambda p: p.manifest_path.unlink(), "unrecorded", "there is no"),
    "an empty manifest": (lambda p: p.manifest_path.write_text(""), "unreadable", "is not valid JSON"),
    "another value": (
        lambda p: change(p, lambda d: step(d).update(value=7.6e-05)),
        "changed",
        "time.step: recorded 7.6e-05 s, computed 0.0001 s",
    ),
    "a row left out": (
        lambda p: change(p, lambda d: d["results"]["rows"].remove(step(d))),
        "changed",
        "time.step: recorded no such row, computed 0.0001 s",
    ),
    "another digest": (
        lambda p: change(p, lambda d: d["results"]["metrics"]["time.idle"].update(sha256="0" * 64)),
        "changed",
        "time.idle (rows of single ranks): recorded ",
    ),
    "another version": (
        lambda p: change(p, lambda d: d["results"]["metrics"]["time.idle"].update(version=9)),
        "re-record",
        "definition changed: time.idle",
    ),
    "a metric that is gone": (
        lambda p: change(
            p,
            lambda d: d["results"]["metrics"].update(
                {"time.lunch": {"version": 1, "rows": 1, "sha256": "0" * 64}}
            ),
        ),
        "re-record",
        "definition changed: time.lunch",
    ),
    "a value of another cclbench": (
        lambda p: change(p, lambda d: (d.update(cclbench="0.0.9"), step(d).update(value=1.0))),
        "re-record",
        "recorded with cclbench 0.0.9, this is ",
    ),
    "another id": (lambda p: change(p, lambda d: d.update(id="x")), "changed", 'the manifest belongs to "x"'),
    "card and manifest disagree": (
        lambda p: change(p, lambda d: d["files"][0].update(url="https://example.org/x")),
        "changed",
        "card and manifest differ in traces/my-job/rank0.json",
    ),
    "a file that only the card names": (
        lambda p: change(p, lambda d: d["files"].pop(0)),
        "changed",
        "the card names traces/my-job/rank0.json, which the manifest does not list",
    ),
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_differs_is_named(point: DataPointPlace, name: str) -> None:
    spoil, status, words = SPOILT[name]
    spoil(point)
    verdict = checked(point)
    assert verdict.status == status
    assert words in "\n".join(verdict.reasons)


def test_the_same_values_by_another_cclbench_are_verified(point: DataPointPlace) -> None:
    change(point, lambda d: d.update(cclbench="0.0.9"))
    assert checked(point).status == "verified"


def test_a_metric_that_was_not_recorded_is_only_told(point: DataPointPlace) -> None:
    def forget(document: dict[str, Any]) -> None:
        del document["results"]["metrics"]["time.step"]
        document["results"]["rows"] = [r for r in document["results"]["rows"] if r["metric"] != "time.step"]

    change(point, forget)
    verdict = checked(point)
    assert verdict.status == "verified"
    assert verdict.notes == ("newer than the record: time.step",)


def outside(point: DataPointPlace, folder: Path) -> Path:
    """Rank 0's trace taken out of the collection."""
    folder.mkdir(parents=True)
    moved = folder / "rank0.json"
    shutil.move(point.traces_folder / "rank0.json", moved)
    url = "https://example.org/rank0.json"
    change(point, lambda d: d["files"][0].update(url=url))
    card = point.card_path.read_text()
    point.card_path.write_text(
        card.replace(
            "    - path: traces/my-job/rank0.json\n",
            f"    - path: traces/my-job/rank0.json\n      url: {url}\n",
        )
    )
    change(point, lambda d: d.update(card=module.file_digest(point.card_path)[0]))
    return moved


def test_evidence_may_lie_beside_in_a_folder_or_archive(point: DataPointPlace, tmp_path: Path) -> None:
    outside(point, tmp_path / "big" / "my-job")
    assert checked(point).status == "not here"
    assert checked(point, tmp_path / "big").status == "verified"
    assert checked(point, tmp_path / "big" / "my-job").status == "verified"
    with tarfile.open(tmp_path / "big.tar.gz", "w:gz") as file:
        file.add(tmp_path / "big" / "my-job" / "rank0.json", "rank0.json")
    assert checked(point, tmp_path / "big.tar.gz").status == "verified"


def test_evidence_beside_must_be_what_is_recorded(point: DataPointPlace, tmp_path: Path) -> None:
    append(outside(point, tmp_path / "big"), " ")
    assert checked(point, tmp_path / "big").status == "changed"


def test_what_cannot_be_fetched_is_not_here(
    point: DataPointPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = outside(point, tmp_path / "big")

    def refuse(url: str, *_: Path, **__: Any) -> None:
        raise InputError("the server answers 404", where=url)

    monkeypatch.setenv("CCLBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("cclbench.contribute.remote.fetch_file", refuse)
    verdict = checked(point, fetching=True)
    assert verdict.status == "not here"
    assert verdict.reasons == ("rank0.json: https://example.org/rank0.json: the server answers 404",)

    def give(_: str, target: Path, **__: Any) -> None:
        target.parent.mkdir(parents=True)
        shutil.copyfile(moved, target)

    monkeypatch.setattr("cclbench.contribute.remote.fetch_file", give)
    assert checked(point, fetching=True).status == "verified"
    monkeypatch.setattr("cclbench.contribute.remote.fetch_file", refuse)
    assert [checked(point, fetching=fetching).status for fetching in (True, False)] == ["verified"] * 2


def test_no_folder_of_evidence_is_a_wrong_call(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="neither a folder nor an archive"),
        evidence_elsewhere([tmp_path / "none"]),
    ):
        pass


def recorded(point: DataPointPlace) -> None:
    with evidence_elsewhere([]) as nowhere:
        record_data_point(point, nowhere)


def test_recording_again_changes_nothing(point: DataPointPlace) -> None:
    before = point.manifest_path.read_bytes()
    recorded(point)
    assert point.manifest_path.read_bytes() == before


def test_a_card_that_was_changed_can_be_recorded(point: DataPointPlace) -> None:
    point.card_path.write_text(point.card_path.read_text().replace("global: 16", "global: 32"))
    assert checked(point).status == "changed"
    recorded(point)
    assert checked(point).status == "verified"
    redactions = read_manifest(point.manifest_path).redactions
    assert redactions == {"metadata of the program": 2, "text that is no public name": 4}


def test_evidence_that_was_changed_cannot_be_recorded(point: DataPointPlace) -> None:
    append(point.traces_folder / "rank0.json", " ")
    before = point.manifest_path.read_bytes()
    with pytest.raises(CheckFailed, match=r"rank0\.json: has 2,105 bytes"):
        recorded(point)
    assert point.manifest_path.read_bytes() == before


def test_a_manifest_can_be_made_where_there_is_none(point: DataPointPlace) -> None:
    point.manifest_path.unlink()
    recorded(point)
    assert checked(point).status == "verified"
    assert read_manifest(point.manifest_path).redactions is None  # nobody counted them


def test_the_collections_data_points_are_found(point: DataPointPlace) -> None:
    (point.collection / "traces" / "other").mkdir()
    (point.collection / "traces" / ".hidden").mkdir()
    assert data_point_ids(point.collection) == ["my-job", "other"]
    assert existing_place(point.collection, "my-job") == point
    with pytest.raises(UsageError, match="did you mean my-job"):
        existing_place(point.collection, "my-jop")


def test_files_are_listed_by_name(tmp_path: Path) -> None:
    for name in ("b/c.json", "a.json", "b/a.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert list(file_names(tmp_path)) == ["a.json", "b/a.json", "b/c.json"]
