# SPDX-License-Identifier: Apache-2.0
"""A contribution: whole or not at all, nothing secret in it, no result changed."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from cclbench.card import load_card, validate_card
from cclbench.contribute import package, redaction
from cclbench.contribute.completion import CardGap
from cclbench.contribute.evidence import evidence_elsewhere
from cclbench.contribute.manifest import read_manifest
from cclbench.contribute.package import Contribution, PackageOptions, make_data_point
from cclbench.contribute.place import DataPointPlace, data_point_ids
from cclbench.contribute.redaction import public_names
from cclbench.contribute.redaction.publisher import UNLISTED
from cclbench.contribute.verify import verify_data_point
from cclbench.engine import engine_of
from cclbench.formats.rewriting import METADATA
from cclbench.ground.errors import CheckFailed, InputError, UsageError
from cclbench.hardware.calibration import Calibration, read_calibration, write_calibration
from cclbench.hardware.sweep import Sweep

Tree = Callable[[Path], dict[str, bytes]]
SECRET = b"ada-lovelace"
STAND_IN = r"x[jqvwxyz]{14}"
OPTIONAL = ["hardware.system", "hardware.price_per_device_hour"]
"""What metrics of the job need besides, and a contributor need not know."""


def made(job: Any, **wishes: Any) -> Contribution:
    """A contribution of the job."""
    wanted = PackageOptions(**{"licence": "Apache-2.0", **wishes})
    return make_data_point(job.card, job.traces, job.scripts, job.collection, wanted)


def unchanged(job: Any, files: Tree, error: type[Exception], words: str, **wishes: Any) -> str:
    """The message of a contribution that fails and leaves the collection as it was."""
    before = files(job.collection)
    with pytest.raises(error, match=words) as raised:
        made(job, **wishes)
    assert files(job.collection) == before
    assert list(job.collection.glob(".*")) == []
    return str(raised.value)


def test_several_logs_keep_their_public_names(job: Any) -> None:
    """Rows by log name it by its place in the collection, not by that among the originals."""
    shutil.rmtree(job.traces)
    job.traces.mkdir()
    for number, ms in ((1, 20.5), (2, 21.5)):
        lines = (
            f" iteration {step:8}/ 12 | consumed samples: {step * 8:12} |"
            f" elapsed time per iteration (ms): {ms} | global batch size: 8 | lm loss: {8 / step:.6E} |"
            for step in range(1, 13)
        )
        (job.traces / f"run-{number:02}.log").write_text("\n".join(lines) + "\n")
    told = made(job, allow_gaps=True)
    assert sorted(path.name for path in told.place.traces_folder.glob("*.log")) == [
        "run-01.log",
        "run-02.log",
    ]
    with evidence_elsewhere([]) as nowhere:
        assert verify_data_point(told.place, nowhere).status == "verified"


def test_several_processes_publish_what_one_does(
    job: Any, files: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card's texts are published first, here: the same names and salt then go to each process."""
    monkeypatch.setattr(public_names, "token_bytes", bytes)
    reworded(job, "{name: pytorch}", "{name: pytorch}, communication: {environment: {ACME_ROUTE: coral}}")
    published = []
    for jobs in (1, 2):
        with engine_of(jobs=jobs) as engine:
            wanted = PackageOptions(licence="Apache-2.0", replace=True)
            make_data_point(job.card, job.traces, job.scripts, job.collection, wanted, engine=engine)
        published.append(files(job.collection))
    assert len(published[0]) > 3
    assert published[0] == published[1]


def test_a_data_point_is_whole(job: Any, files: Tree) -> None:
    originals = files(job.folder)
    told = made(job)
    assert files(job.folder) == originals
    found = files(job.collection)
    assert set(found) == {
        *("workload_cards/my-job.yaml", "scripts/my-job/run.sh", "traces/my-job/manifest.json"),
        *("traces/my-job/rank0.json", "traces/my-job/rank1.json.gz"),
    }
    assert not any(SECRET in content for content in found.values())
    script = found["scripts/my-job/run.sh"].decode()
    assert re.fullmatch(rf"#!/bin/sh\n# by {STAND_IN}\ntorchrun train.py\n", script)
    assert (job.collection / "scripts/my-job/run.sh").stat().st_mode & 0o111
    assert told.left_out == ("notes.txt", ".env")
    assert (told.renamed, told.uploads, told.configured) == ((), (), ())
    assert [gap.path for gap in told.gaps] == OPTIONAL
    one, other = (job.traces / name for name in ("rank0.json", "rank1.json.gz"))
    assert told.sizes.files == one.stat().st_size + other.stat().st_size
    assert told.sizes.plain == one.stat().st_size + len(gzip.decompress(other.read_bytes()))
    assert told.sizes.parquet > 10_000
    assert {one.file for one in told.redactions} == {"rank0.json", "rank1.json.gz", "run.sh", "my-job.yaml"}
    assert told.rows > 300


def test_the_card_knows_its_evidence(job: Any) -> None:
    told = made(job)
    card = load_card(told.place.card_path)
    assert validate_card(told.place.card_path) == []
    assert re.fullmatch(rf"One rank of two, on {STAND_IN}\.", card.description)
    assert card.evidence.launch == "scripts/my-job/run.sh"
    first, second = card.evidence.traces
    content = (job.collection / first.path).read_bytes()
    assert (first.path, first.format, first.ranks) == ("traces/my-job/rank0.json", "kineto", (0,))
    assert (first.sha256, first.bytes) == (sha256(content).hexdigest(), len(content))
    assert (second.licence, second.url) == ("Apache-2.0", None)


def test_the_traces_tell_what_the_card_lacks(job: Any) -> None:
    told = made(job)
    assert told.inferred == (
        'hardware.accelerator: "nvidia-a100-sxm-80gb"',
        "hardware.count: 2",
        'software.communication.library: "nccl"',
    )
    # Each trace lists the one device that its process sees, which is no count of the node's.
    assert told.contradictions == ('workload.precision: the card says "bf16", the traces "fp32"',)
    card = load_card(told.place.card_path)
    assert (card.hardware.count, card.workload.precision) == (2, "bf16")


def test_the_manifest_records_files_redactions_and_results(job: Any) -> None:
    told = made(job)
    manifest = read_manifest(told.place.manifest_path)
    assert [file.path for file in manifest.files] == ["rank0.json", "rank1.json.gz"]
    assert manifest.redactions == {
        METADATA: 2,
        UNLISTED: 4,
    }  # a field of each trace and its name; the script, the card
    assert manifest.card == sha256(told.place.card_path.read_bytes()).hexdigest()
    steps = {
        row.step: row.value
        for row in manifest.results.rows
        if row.metric == "time.step" and row.step is not None
    }
    assert steps == {0: 100e-6, 1: 50e-6}  # from the first device row to the next step's, to the last's end
    assert len(manifest.results.metrics) == told.recorded
    with evidence_elsewhere([]) as nowhere:
        assert verify_data_point(told.place, nowhere).status == "verified"


def calibrated(job: Any, *, of: str = "dgx-a100", release: str = "2.19.3") -> Path:
    """The file of the calibration that the job's card names from now on."""
    reworded(job, "{per_node: 2}", "{per_node: 2, system: dgx-a100, calibration: ada-lovelace.yaml}")
    swept = Sweep("all_reduce", 2, 1, (1 << 20, 1 << 22), (3e-5, 5e-5), release)
    path: Path = job.card.with_name("ada-lovelace.yaml")
    write_calibration(Calibration(of, (swept,)), path)
    path.write_text(f"# ada-lovelace measured it\n{path.read_text()}")
    return path


def test_a_calibration_lies_beside_the_card(job: Any, files: Tree) -> None:
    original = calibrated(job)
    told = made(job)
    beside_it = told.place.calibration_path
    assert "workload_cards/my-job.calibration.yml" in files(job.collection)
    assert data_point_ids(job.collection) == ["my-job"]
    assert load_card(told.place.card_path).hardware.calibration == beside_it.name
    assert SECRET not in beside_it.read_bytes()
    assert read_calibration(beside_it) == read_calibration(original)
    assert read_manifest(told.place.manifest_path).calibration == sha256(beside_it.read_bytes()).hexdigest()
    with evidence_elsewhere([]) as nowhere:
        assert verify_data_point(told.place, nowhere).status == "verified"
        beside_it.write_text(beside_it.read_text().replace("3.0e-05", "2.0e-05"))
        changed = verify_data_point(told.place, nowhere)
        assert changed.status == "changed"
        assert changed.reasons == ("the calibration differs from the one of the recorded results",)
        beside_it.unlink()
        assert verify_data_point(told.place, nowhere).status == "unreadable"
        beside_it.symlink_to(original)
        assert verify_data_point(told.place, nowhere).reasons == (
            f"{beside_it}: is a link; put the file itself there",
        )


def test_a_data_point_that_makes_way_takes_its_calibration_along(job: Any, files: Tree) -> None:
    calibrated(job)
    assert made(job).calibrated
    reworded(job, ", calibration: ada-lovelace.yaml", "")
    unchanged(job, files, UsageError, "the data point my-job exists already")
    told = made(job, replace=True)
    assert (told.calibrated, told.place.calibration_path.exists()) == (False, False)
    assert read_manifest(told.place.manifest_path).calibration is None


def test_an_archive_is_as_good_as_a_folder(job: Any, files: Tree, tmp_path: Path) -> None:
    made(job)
    by_folder = files(job.collection)
    archive = tmp_path / "capture.tar.gz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(job.traces, "capture")
    told = make_data_point(
        job.card, archive, job.scripts, job.collection, PackageOptions(licence="Apache-2.0", replace=True)
    )
    assert [path for path, _ in told.files] == ["capture/rank0.json", "capture/rank1.json.gz"]
    content = files(job.collection)["traces/my-job/capture/rank0.json"].decode()
    assert re.sub(STAND_IN, "", content) == re.sub(
        STAND_IN, "", by_folder["traces/my-job/rank0.json"].decode()
    )


def test_names_are_redacted_and_made_safe(job: Any, files: Tree) -> None:
    (job.traces / "rank0.json").rename(job.traces / "ada-lovelace $(rm x)\x1b[31m rank0.json")
    told = made(job)
    ((_, new),) = told.renamed
    assert re.fullmatch(rf"{STAND_IN}[\w-]*-rank0.json", new)
    assert f"traces/my-job/{new}" in files(job.collection)


def test_a_redaction_that_changes_a_result_is_refused(
    job: Any, files: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    careful = redaction.redact_evidence

    def careless(source: Path, target: Path, *more: Any, **named: Any) -> list[Any]:
        told: list[Any] = careful(source, target, *more, **named)
        target.write_bytes(target.read_bytes().replace(b'"dur": 40', b'"dur": 41'))
        return told

    monkeypatch.setattr(redaction, "redact_evidence", careless)
    text = unchanged(job, files, CheckFailed, "would change results")
    # Ranks, of which one is changed, and their mean.
    assert "balance.load_imbalance: 1.0 ratio became 1.0123456790123457 ratio" in text
    assert "more" in text.splitlines()[-1]


def test_what_is_there_stays_unless_replaced(job: Any, files: Tree) -> None:
    made(job)
    (job.scripts / "run.sh").write_text("true\n")
    unchanged(job, files, UsageError, "exists already")
    (job.collection / "traces/my-job/old.json").write_text("old")
    made(job, replace=True)
    assert "traces/my-job/old.json" not in files(job.collection)
    assert files(job.collection)["scripts/my-job/run.sh"] == b"true\n"


def test_the_collections_own_card_is_completed(job: Any) -> None:
    own = job.collection / "workload_cards" / "my-job.yaml"
    own.parent.mkdir()
    shutil.copyfile(job.card, own)
    told = make_data_point(own, job.traces, job.scripts, job.collection, PackageOptions(licence="Apache-2.0"))
    assert load_card(told.place.card_path).hardware.count == 2


def test_originals_are_not_overwritten(job: Any, files: Tree) -> None:
    shutil.copytree(job.traces, job.collection / "traces" / "my-job")
    before = files(job.collection)
    with pytest.raises(UsageError, match="is where the data point would be written"):
        make_data_point(
            job.card,
            job.collection / "traces" / "my-job",
            job.scripts,
            job.collection,
            PackageOptions(licence="Apache-2.0", replace=True),
        )
    assert files(job.collection) == before


@pytest.mark.parametrize("when", ["source_rows", "record_data_point", "put_in_place"])
def test_an_interruption_leaves_nothing(
    job: Any, files: Tree, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(package, when, interrupted)
    with pytest.raises(KeyboardInterrupt):
        made(job)
    assert files(job.collection) == {}
    assert list(job.collection.iterdir()) == []


def test_large_files_stay_outside(job: Any, files: Tree, tmp_path: Path) -> None:
    outside = tmp_path / "upload"
    told = made(job, external=1000, outside=outside, url="https://example.org/t/")
    assert told.uploads == ((outside / "my-job/rank0.json", "https://example.org/t/my-job/rank0.json"),)
    assert set(files(outside)) == {"my-job/rank0.json"}
    assert "traces/my-job/rank0.json" not in files(job.collection)
    first, second = load_card(told.place.card_path).evidence.traces
    assert (first.url, second.url) == ("https://example.org/t/my-job/rank0.json", None)
    (problem,) = validate_card(told.place.card_path)
    assert (problem.severity, problem.path) == ("warning", "evidence.traces[0].url")
    with evidence_elsewhere([]) as nowhere:
        verdict = verify_data_point(told.place, nowhere)
    assert (verdict.status, verdict.reasons) == (
        "not here",
        ("rank0.json: 2.10 kB at https://example.org/t/my-job/rank0.json",),
    )
    with evidence_elsewhere([outside]) as there:
        assert verify_data_point(told.place, there).status == "verified"


def test_large_files_need_a_place(job: Any, files: Tree, tmp_path: Path) -> None:
    unchanged(job, files, UsageError, "too large for the collection", external=1000)
    unchanged(
        job, files, UsageError, "not an https address", external=1000, outside=tmp_path, url="http://x.org"
    )
    (tmp_path / "my-job").mkdir()
    unchanged(job, files, UsageError, "exists already", external=1000, outside=tmp_path, url="https://x.org")
    assert list((tmp_path / "my-job").iterdir()) == []


def test_what_nobody_knows_is_listed(job: Any, files: Tree) -> None:
    job.card.write_text("id: my-job\nworkload: {batch: {global: 16}}\n")
    (job.scripts / "other.sh").write_text("true\n")
    (job.scripts / "run.sh").rename(job.scripts / "start.sh")
    text = unchanged(job, files, CheckFailed, "the card lacks fields", licence=None)
    for path in (
        *("evidence.launch", "evidence.traces.licence", "description", "workload.phase"),
        *("workload.model.name", "workload.model.layers", "workload.batch.sequence_length"),
    ):
        assert f"  {path}: " in text
    assert text.count("workload.model.name") == 1
    assert not any(path in text for path in (*OPTIONAL, "parallelism"))
    assert "hardware.count" not in text  # the traces tell it
    assert "workload.batch.global" not in text  # the card has it


def test_gaps_that_only_metrics_mind_can_stay(job: Any) -> None:
    job.card.write_text(
        job.card.read_text().replace("precision: bf16", "dataset: c4").replace("layers: 2, ", "")
    )
    told = made(job, allow_gaps=True)
    # The precision is the traces'.
    assert [gap.path for gap in told.gaps if not gap.optional] == ["workload.model.layers"]


def test_answers_fill_the_card(job: Any) -> None:
    job.card.write_text(
        job.card.read_text().replace("phase: training", "dataset: c4").replace("layers: 2, ", "")
    )
    asked: list[str] = []

    def ask(gap: CardGap) -> Any:
        asked.append(gap.path)
        answers = {"workload.phase": "training", "evidence.traces.licence": "CC-BY-4.0"}
        answers["workload.model.layers"] = "2"
        assert (gap.required or not gap.optional) == (gap.path in answers)
        return gap.parse_answer(answers[gap.path]) if gap.path in answers else None

    told = make_data_point(job.card, job.traces, job.scripts, job.collection, PackageOptions(), ask=ask)
    first, last = ["evidence.traces.licence", "workload.phase"], ["workload.model.layers"]
    assert asked == [*first, *last, *OPTIONAL]
    card = load_card(told.place.card_path)
    assert (card.workload.phase, card.evidence.traces[0].licence) == ("training", "CC-BY-4.0")
    assert [gap.path for gap in told.gaps] == OPTIONAL


def test_answers_that_contradict_are_asked_for_again(job: Any) -> None:
    reworded(job, "parallelism: {dp_replicate: 2}\n", "")
    reworded(job, "{per_node: 2}", "{count: 2, per_node: 2}")
    for rank in ("rank0.json",):
        content = (job.traces / rank).read_text().replace("NVIDIA A100-SXM4-80GB", "Unheard of")
        (job.traces / rank).write_text(content)
    (job.traces / "rank1.json.gz").unlink()
    answers = {
        "parallelism": iter(["tp=3", "tp=2"]),
        "hardware.accelerator": iter(["amd-mi300", "amd-mi300x"]),
    }
    refused: list[str | None] = []

    def ask(gap: CardGap) -> Any:
        refused.append(gap.refused)
        return gap.parse_answer(next(answers[gap.path])) if gap.path in answers else None

    wished = PackageOptions(licence="Apache-2.0")
    told = make_data_point(job.card, job.traces, None, job.collection, wished, ask=ask)
    near, product = filter(None, refused)
    assert "is amd-mi300, no accelerator of the catalog; did you mean amd-mi300a or amd-mi300x" in near
    assert "= 3, but hardware.count is 2" in product
    card = load_card(told.place.card_path)
    assert (card.hardware.accelerator, card.parallelism.tp) == ("amd-mi300x", 2)
    assert "evidence.launch: launch script; without it nobody" in str(told.gaps[-1])
    assert not told.place.scripts_folder.exists()


def cut(job: Any) -> None:
    path = job.traces / "rank1.json.gz"
    path.write_bytes(path.read_bytes()[:200])


def emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def reworded(job: Any, old: str, new: str) -> None:
    text = job.card.read_text()
    assert old in text
    job.card.write_text(text.replace(old, new))


SPOILT: dict[str, Callable[[Any], object]] = {
    "a trace cut short": cut,
    "no trace": lambda job: [path.unlink() for path in job.traces.glob("rank*")],
    "an empty folder": lambda job: emptied(job.traces),
    "no folder of traces": lambda job: shutil.rmtree(job.traces),
    "no scripts": lambda job: (job.scripts / "run.sh").unlink(),
    "no folder of scripts": lambda job: shutil.rmtree(job.scripts),
    "a link among the scripts": lambda job: (job.scripts / "passwd").symlink_to("/etc/passwd"),
    "large scripts": lambda job: (job.scripts / "weights.bin").write_bytes(bytes(10_000_001)),
    "no card": lambda job: job.card.unlink(),
    "a card that is no YAML": lambda job: job.card.write_text("{"),
    "a card of version 1": lambda job: job.card.write_text("version: 1\n"),
    "a card with a wrong field": lambda job: reworded(job, "heads: 8", "heads: many"),
    "a card that contradicts itself": lambda job: reworded(job, "dp_replicate: 2", "dp_replicate: 3"),
    "no calibration": lambda job: calibrated(job).unlink(),
    "a calibration of another machine": lambda job: calibrated(job, of="dgx-h100"),
    "a calibration that is none": lambda job: calibrated(job).write_text("system: [\n"),
    "a calibration that redaction changes": lambda job: calibrated(job, release="2.19 ada-lovelace"),
    "a calibration elsewhere": lambda job: reworded(job, "{per_node: 2}", "{calibration: ../x.yaml}"),
    "an id with a slash": lambda job: reworded(job, "id: my-job", "id: ../my-job"),
}


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("a trace cut short", InputError, "rank1.json.gz"),
        ("no trace", InputError, "none of its files is a trace"),
        ("an empty folder", InputError, "the folder is empty"),
        ("no folder of traces", InputError, "no such file or folder"),
        ("no scripts", UsageError, "contains no script"),
        ("no folder of scripts", InputError, "is not a folder"),
        ("a link among the scripts", InputError, "is a link"),
        ("large scripts", UsageError, "too much for launch scripts"),
        ("no card", InputError, "cannot be read"),
        ("a card that is no YAML", InputError, "not valid YAML"),
        ("a card of version 1", CheckFailed, "cclbench card upgrade"),
        ("a card with a wrong field", CheckFailed, "workload.model.heads: is .many. but must be"),
        ("a card that contradicts itself", CheckFailed, "parallelism"),
        ("no calibration", InputError, "names this calibration, and it is no file"),
        (
            "a calibration of another machine",
            InputError,
            "of dgx-h100, the card's hardware.system is dgx-a100",
        ),
        ("a calibration that is none", InputError, "is not a calibration"),
        ("a calibration that redaction changes", CheckFailed, "redaction would change the calibration"),
        ("a calibration elsewhere", CheckFailed, "hardware.calibration: is"),
        ("an id with a slash", CheckFailed, "id: is"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_written(
    job: Any, files: Tree, name: str, error: type[Exception], words: str
) -> None:
    SPOILT[name](job)
    unchanged(job, files, error, words)


def test_a_truncated_trace_can_be_allowed(job: Any) -> None:
    text = (job.traces / "rank0.json").read_text()
    (job.traces / "rank0.json").write_text(text[: text.rindex('{"ph"') + 20])
    told = made(job, reading=package.Options(allow_truncated=True))
    assert read_manifest(told.place.manifest_path).ingest.allow_truncated
    with evidence_elsewhere([]) as nowhere:
        assert verify_data_point(told.place, nowhere).status == "verified"


def test_evidence_without_traces_is_a_data_point_too(job: Any, test_data: Path) -> None:
    emptied(job.traces)
    shutil.copyfile(test_data / "nccl_tests" / "aws_p5_2n16_allreduce.csv", job.traces / "sweep.csv")
    told = made(job, allow_gaps=True)
    assert [path for path, _ in told.files] == ["sweep.csv"]


def test_the_json_of_a_manifest_has_no_host(job: Any) -> None:
    told = made(job)
    assert str(job.folder) not in json.dumps(json.loads(told.place.manifest_path.read_text()))
    assert isinstance(told.place, DataPointPlace)
