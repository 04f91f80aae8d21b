# SPDX-License-Identifier: Apache-2.0
"""What a SOURCE is taken to hold: which files, which card, and when it counts as changed."""

from __future__ import annotations

import gzip
import os
from hashlib import sha256
from pathlib import Path

import pytest

from cclbench.ground.errors import InputError, UsageError
from cclbench.ingestion.source import find_source

TRACE = b'{"schemaVersion": 1, "traceEvents": []}'
CARD = """\
version: 2
id: job
description: A job.
workload: {phase: training}
hardware: {accelerator: generic-cpu, count: 10}
"""


def card_with(*traces: str) -> str:
    """A card with those entries under evidence.traces."""
    return CARD + "evidence:\n  traces:\n" + "".join(f"    - {trace}\n" for trace in traces)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job's folder: two ranks, one of them in a folder of its own."""
    job = tmp_path / "my job"
    (job / "node1").mkdir(parents=True)
    (job / "rank0.json").write_bytes(TRACE)
    (job / "node1" / "rank1.json.gz").write_bytes(gzip.compress(TRACE))
    return job


def refused(source: Path | str) -> InputError:
    """The error a source is refused with; it is short and names a place."""
    with pytest.raises(InputError) as raised:
        find_source(source)
    assert len(str(raised.value).splitlines()) <= 3
    assert len(str(raised.value)) < 500
    return raised.value


def test_a_file_is_its_own_source(folder: Path) -> None:
    found = find_source(folder / "rank0.json")
    (file,) = found.files
    assert (file.name, file.reader, file.bytes) == ("rank0.json", "kineto", len(TRACE))
    assert file.sha256 == sha256(TRACE).hexdigest()
    assert (found.card, found.ignored, found.name) == (None, (), "rank0")


def test_a_folder_holds_the_traces_below_it(folder: Path) -> None:
    (folder / "README.txt").write_text("notes")
    (folder / "nodes.json").write_text('{"schema": "1.1.0", "nodes": []}')
    (folder / "mlruns.db").write_bytes(b"SQLite format 3\0" + bytes(100))  # another program's
    found = find_source(folder)
    assert [file.name for file in found.files] == ["node1/rank1.json.gz", "rank0.json"]
    assert (found.ignored, found.name) == (("README.txt", "mlruns.db", "nodes.json"), "my-job")


def test_a_folder_may_hold_its_card_and_other_yaml(folder: Path) -> None:
    (folder / "job.yaml").write_text(CARD)
    (folder / "trainer.yaml").write_text("optimizer:\n  workload: 3\nlr: 0.1\n")
    found = find_source(folder)
    assert (found.card, found.ignored) == (folder / "job.yaml", ("trainer.yaml",))


def test_two_cards_in_a_folder_are_refused_by_name(folder: Path) -> None:
    (folder / "job.yaml").write_text(CARD)
    (folder / "node1" / "other.yml").write_text(CARD)
    error = refused(folder)
    assert "2 cards (job.yaml and node1/other.yml)" in str(error)
    assert error.where == str(folder)


def test_a_store_within_the_folder_is_no_part_of_it(folder: Path) -> None:
    """`cclbench run .` keeps its runs in ./runs, with the card's copy: the second call finds the same."""
    (folder / "job.yaml").write_text(CARD)
    before = find_source(folder)
    run = folder / "runs" / "job-01234567"
    for part in ("events", "steps", "collectives"):
        (run / part).mkdir(parents=True)
    (run / "manifest.json").write_text("{}")
    (run / "card.yaml").write_text(CARD)
    (folder / "runs" / ".unfinished-1-host-ab").mkdir()
    (folder / "runs" / ".unfinished-1-host-ab" / "card.yaml").write_text(CARD)
    assert find_source(folder) == before


def test_a_card_leads_to_its_traces(folder: Path) -> None:
    digest = sha256(TRACE).hexdigest()
    path = folder / "job.yaml"
    first = f"{{path: rank0.json, format: kineto, ranks: [5], sha256: {digest}}}"
    path.write_text(card_with(first, "{path: node1/rank1.json.gz, format: kineto, ranks: [6]}"))
    found = find_source(path)
    assert (found.card, found.name) == (path, "job")
    expected = [("rank0.json", (5,)), ("node1/rank1.json.gz", (6,))]
    assert [(file.name, file.ranks_by_card) for file in found.files] == expected


@pytest.mark.parametrize(
    ("trace", "more", "said"),
    [("rank9.json", "", "missing"), ("rank0.json", f", sha256: {'a' * 64}", "SHA-256 differs")],
)
def test_cards_of_missing_or_changed_traces_name_both(folder: Path, trace: str, more: str, said: str) -> None:
    path = folder / "job.yaml"
    path.write_text(card_with(f"{{path: {trace}, format: kineto, ranks: [0]{more}}}"))
    error = refused(path)
    assert error.where == str(folder / trace)
    assert said in str(error)
    assert str(path) in str(error)
    path.write_text(CARD)  # without any
    assert "evidence.traces" in str(refused(path))


def test_the_fingerprint_tells_contents_names_card_and_options_alone(folder: Path, tmp_path: Path) -> None:
    first = find_source(folder).fingerprint("a")
    assert find_source(folder).fingerprint("a") == first
    assert find_source(folder).fingerprint("b") != first
    (folder / "notes.txt").write_text("no trace")
    assert find_source(folder).fingerprint("a") == first
    (folder / "job.yaml").write_text(CARD)
    with_card = find_source(folder).fingerprint("a")
    (folder / "job.yaml").write_text(CARD + "# a word\n")
    with_other_card = find_source(folder).fingerprint("a")
    (folder / "rank0.json").write_bytes(TRACE + b"\n")
    with_other_trace = find_source(folder).fingerprint("a")
    (folder / "rank0.json").rename(folder / "rank00.json")
    renamed = find_source(folder).fingerprint("a")
    assert len({first, with_card, with_other_card, with_other_trace, renamed}) == 5
    elsewhere = folder.rename(tmp_path / "elsewhere")
    assert find_source(elsewhere).fingerprint("a") == renamed


def test_what_is_not_there_gets_the_nearest_name(folder: Path) -> None:
    error = refused(folder / "rank.json")
    assert "no such file or folder" in str(error)
    assert "rank0.json" in str(error)
    assert "there is no" in str(refused(folder / "nowhere" / "rank0.json"))


def test_a_hint_does_not_list_a_large_folder(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"{number:09}.json").write_bytes(TRACE)
    assert refused(tmp_path / "x").hint is None


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        *(("empty.json", b"", "the file is empty"), ("blank.json", b" \n", "the file is empty")),
        ("text.json", b"hello", "is no trace of a known format"),
        ("rank0.json.gz", b"\x1f\x8b" + b"\xff" * 40, "gzip stream is damaged at its beginning"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    error = refused(tmp_path / name)
    assert reason in str(error)
    assert str(error.where).startswith(str(tmp_path / name))


def test_a_cut_gzip_file_is_recognised_by_what_is_left(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(TRACE + b" " * 50 + os.urandom(4000).hex().encode())[:-600])
    assert find_source(path).files[0].reader == "kineto"


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b" + b"\xff" * 40])
def test_a_damaged_trace_in_a_folder_is_not_passed_over(folder: Path, content: bytes) -> None:
    (folder / "rank2.json.gz").write_bytes(content)
    assert str(refused(folder).where).startswith(str(folder / "rank2.json.gz"))
    (folder / "rank2.json.gz").rename(folder / "worker.log")
    assert find_source(folder).ignored == ("worker.log",)


def test_folders_without_traces_are_refused(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    assert "the folder is empty" in str(refused(tmp_path / "job"))
    (tmp_path / "job" / "notes.txt").write_text("x")
    assert "none of its files is a trace" in str(refused(tmp_path / "job"))


def test_a_folder_that_cannot_be_listed_is_not_empty(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = os.scandir

    def forbidden(path: str | Path) -> object:
        if str(path).endswith("node1"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", forbidden)
    error = refused(folder)
    assert error.where == str(folder / "node1")
    assert "cannot be read: Permission denied" in str(error)


def test_impossible_names_and_pipes_are_refused_and_a_tilde_is_the_home_folder(folder, tmp_path, monkeypatch):
    for name in ("x" * 5000, "a\0b"):
        assert "cannot be read" in str(refused(tmp_path / name))
    os.mkfifo(tmp_path / "pipe")
    assert "neither a file nor a folder" in str(refused(tmp_path / "pipe"))
    with pytest.raises(UsageError, match="empty"):  # which does not mean this folder
        find_source("")
    monkeypatch.setenv("HOME", str(folder))
    assert find_source("~/rank0.json").files[0].path == folder / "rank0.json"


def test_a_report_is_answered_with_the_command_that_exports_it(tmp_path: Path) -> None:
    report = tmp_path / "rank 0.nsys-rep"
    report.write_bytes(b"anything")
    for source in (report, tmp_path):
        with pytest.raises(InputError) as caught:
            find_source(source)
        assert caught.value.where == str(report)
        assert "nsys export --type sqlite --include-blobs=true" in str(caught.value)
    (tmp_path / "rank0.json").write_text('{"schemaVersion": 1, "traceEvents": []}')
    assert find_source(tmp_path).ignored == ("rank 0.nsys-rep",)


def test_chrome_json_derived_from_an_xplane_is_not_read_twice(tmp_path: Path, monkeypatch) -> None:
    import cclbench.ingestion.source as source

    readers = {".pb": "xplane", ".gz": "xla_json", ".json": "kineto"}
    monkeypatch.setattr(source, "reader_of", lambda path, **_: readers[path.suffix])
    for name in ("host.xplane.pb", "host.trace.json.gz", "other.trace.json.gz", "rank0.json"):
        (tmp_path / name).write_bytes(name.encode())
    found = find_source(tmp_path)
    assert [file.name for file in found.files] == ["host.xplane.pb", "other.trace.json.gz", "rank0.json"]
    assert found.notes == ("host.trace.json.gz was derived from the .xplane.pb beside it and was not read",)


def test_one_content_under_two_names_is_refused(folder: Path) -> None:
    (folder / "again.json").write_bytes((folder / "rank0.json").read_bytes())
    with pytest.raises(InputError, match=r"rank0\.json: has the same content as again\.json.*count twice"):
        find_source(folder)


def test_a_file_that_changes_while_it_is_read_is_refused(folder: Path) -> None:
    found = find_source(folder / "rank0.json")
    found.require_unchanged()
    os.utime(folder / "rank0.json", ns=(1, 1))
    found.require_unchanged()
    content = (folder / "rank0.json").read_bytes()
    (folder / "rank0.json").write_bytes(b" " + content[1:])
    with pytest.raises(InputError, match="changed while it was read"):
        found.require_unchanged()
    (folder / "rank0.json").unlink()
    with pytest.raises(InputError, match="cannot be read"):
        found.require_unchanged()


def test_a_cards_file_may_lie_elsewhere(folder: Path) -> None:
    card = folder / "job.yaml"
    card.write_text(card_with("path: traces/big.json"))
    found = find_source(card, elsewhere={"traces/big.json": folder / "rank0.json"})
    assert [(file.name, file.path) for file in found.files] == [("traces/big.json", folder / "rank0.json")]
    url = "https://example.org/big.json"
    card.write_text(card_with(f"{{path: traces/big.json, sha256: {'ab' * 32}, bytes: 1, url: {url}}}"))
    said = str(refused(card))
    assert said.startswith(f"{folder / 'traces' / 'big.json'}: ")
    assert f"cclbench card fetch '{card}' downloads it from https://example.org/big.json" in said
