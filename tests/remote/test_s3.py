# SPDX-License-Identifier: Apache-2.0
"""Sources and stores in S3, over HTTP: the same runs as in folders whatever the service does, or an error."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import trees
from helpers.mcp_session import Server, answer, refusal, session
from helpers.page_commands import blocks, here, printed_by
from helpers.s3_service import Fault, Service
from mcp.client import Client

import cclbench
from cclbench.cli import main
from cclbench.comparison.build import compare
from cclbench.ground.errors import CclbenchError, InputError, UsageError
from cclbench.ground.scratch import cache_folder
from cclbench.remote import objects
from cclbench.remote.url import location_of
from cclbench.workspace import store_at

STORE = "s3://bucket/runs"


def files(folder: Path, *besides: str) -> dict[str, bytes]:
    return {name: content for name, content in trees.files(folder).items() if name not in besides}


def told(act: Callable[[], object]) -> CclbenchError:
    """The error: one to three lines, and nothing of the request in it."""
    with pytest.raises(CclbenchError) as raised:
        act()
    text = str(raised.value)
    assert len(text.splitlines()) <= 3
    assert not any(word in text for word in ("secret", "Signature", "Authorization", "127.0.0.1", "spool"))
    return raised.value


@pytest.fixture
def source(s3: Service, job: Path) -> str:
    s3.put_folder(job, "traces/job")
    return "s3://bucket/traces/job"


def test_source_and_store_give_what_folders_do(s3: Service, job: Path, source: str, tmp_path: Path) -> None:
    here = cclbench.run(job, store=tmp_path / "runs")
    there = cclbench.run(source, store=STORE)
    assert there.id == here.id
    assert there.rows == here.rows
    own, copied = files(here.path, "manifest.json"), files(there.path, "manifest.json")
    assert copied == own
    stored = s3.objects("runs/")
    assert {f"runs/{there.id}/{name}": content for name, content in own.items()} == {
        key: content for key, content in stored.items() if not key.endswith("/manifest.json")
    }
    ours, theirs = (json.loads((run.path / "manifest.json").read_text()) for run in (here, there))
    assert theirs.pop("sha256") != ours.pop("sha256")
    assert theirs.pop("source") == source
    assert ours.pop("source") == str(job)
    assert theirs == ours


def test_shards_are_made_in_a_folder_and_merged_into_s3(
    s3: Service,
    job: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["ingest", str(job), "--shard", "1/1", "--store", STORE]) == 2
    assert "shards cannot be stored at a URL" in capsys.readouterr().err
    assert list(tmp_path.glob("s3:*")) == []
    assert main(["ingest", str(job), "--shard", "1/1", "--store", "shards", "--json"]) == 0
    (shard,) = json.loads(capsys.readouterr().out)["shards"]
    assert main(["merge", shard["shard"], "--store", STORE, "-q"]) == 0
    here = cclbench.ingest(job, store=tmp_path / "runs")
    stored = s3.objects(f"runs/{here.id}/")
    assert {name.removeprefix(f"runs/{here.id}/"): told for name, told in stored.items()} == files(here.path)
    assert list(tmp_path.glob("s3:*")) == []


def test_commands_work_on_a_store_in_s3(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*words: str) -> str:
        assert main(words) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    run = json.loads(command("run", source, "--store", STORE, "--jobs", "1", "--json"))["run"]["id"]
    monkeypatch.setenv("CCLBENCH_STORE", STORE)
    (row,) = json.loads(command("list", "runs", "--json"))["rows"]
    assert (row["run"], row["source"], row["ranks"]) == (run, source, 2)
    assert json.loads(command("sql", run, "SELECT count(*) AS n FROM events", "--json"))["rows"][0]["n"] > 0
    assert "time.step" in command("metrics", run, "--jobs", "1", "--metric", "time.step")
    command("report", run, "-o", "page.html", "--jobs", "1", "-q")
    assert run in Path("page.html").read_text()
    other = cclbench.ingest(f"{source}/rank0.json", store=STORE)
    compared = compare(run, other.id, store=STORE).subjects
    assert [subject.stored.id for subject in compared] == [run, other.id]
    assert not Path("runs").exists()
    assert not Path("s3:").exists()


def test_a_card_brings_the_traces_it_names(s3: Service, job: Path, tmp_path: Path, repository: Path) -> None:
    folder = tmp_path / "collection"
    text = (repository / "workload_cards" / "tiny-llama-ddp4-gloo-cpu.yaml").read_text()
    head = text.partition("\nevidence:")[0]
    (folder / "workload_cards").mkdir(parents=True)
    card = folder / "workload_cards" / "tiny-llama-ddp4-gloo-cpu.yaml"
    card.write_text(head + "\nevidence:\n  traces:\n    - path: traces/rank0.json\n")
    shutil.copytree(job, folder / "traces")
    s3.put_folder(folder, "points")
    url = "s3://bucket/points/workload_cards/tiny-llama-ddp4-gloo-cpu.yaml"
    here, there = cclbench.ingest(card, store=tmp_path / "runs"), cclbench.ingest(url, store=tmp_path / "b")
    assert there.id == here.id
    assert there.manifest["card"]["path"] == there.manifest["source"] == url
    s3.direct("DELETE", "/bucket/points/traces/rank0.json")
    error = told(lambda: cclbench.ingest(url, store=tmp_path / "others"))
    assert error.where == "s3://bucket/points/traces/rank0.json"
    assert "missing" in error.what


def test_what_is_in_a_hidden_folder_or_a_run_is_not_read(s3: Service, source: str, tmp_path: Path) -> None:
    plain = cclbench.ingest(source, store=tmp_path / "runs")
    run = cclbench.ingest(source, store=f"{source}/runs")
    s3.put("traces/job/.git/rank0.json", b"{")
    s3.put("traces/job/folder/", b"")
    assert run.id == plain.id
    assert cclbench.ingest(source, store=tmp_path / "runs").id == plain.id
    assert s3.counted("GET", ".git") == 0


def test_an_unchanged_run_is_not_brought_again(s3: Service, source: str) -> None:
    run = cclbench.ingest(source, store=STORE)
    s3.asked.clear()
    assert store_at(STORE).get(run.id).path == run.path
    assert s3.counted("GET", ".parquet") + s3.counted("GET", "manifest.json") == 0


@pytest.mark.parametrize("harm", ["deleted", "damaged", "unsealed", "all"])
def test_a_damaged_copy_is_not_trusted(source: str, harm: str) -> None:
    run = cclbench.ingest(source, store=STORE)
    steps = run.steps()
    table = run.path / "steps" / "rank=1.parquet"
    content = table.read_bytes()
    if harm == "deleted":
        table.unlink()
    elif harm == "damaged":
        table.write_bytes(content[:-1] + b"x")
    elif harm == "unsealed":
        (run.path.parent / "whole.json").unlink()
    else:
        shutil.rmtree(cache_folder())
    again = store_at(STORE).get(run.id)
    assert (again.path / "steps" / "rank=1.parquet").read_bytes() == content
    assert again.steps().equals(steps)


def test_new_results_reach(s3: Service, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = cclbench.ingest(source, store=STORE)
    assert run.saved_results is None
    monkeypatch.setenv("CCLBENCH_CACHE", str(tmp_path / "another machine"))
    computed = cclbench.metrics(run.id, store=STORE)
    monkeypatch.setenv("CCLBENCH_CACHE", str(tmp_path / "cache"))
    kept = store_at(STORE).get(run.id).saved_results
    assert kept is not None
    assert len(kept) == len(computed.rows)
    # a store that may only be read keeps none
    alone = cclbench.ingest(f"{source}/rank0.json", store=STORE)
    s3.fail("forbidden", "results.parquet", "PUT")
    assert cclbench.metrics(alone.id, store=STORE).rows
    assert s3.objects(f"runs/{alone.id}/results") == {}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second of silence is enough."""
    monkeypatch.setattr(objects, "SECONDS", 0.5)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("fault", ["503", "reset", "short", "slow"])
def test_a_fault_that_passes(s3: Service, job: Path, source: str, tmp_path: Path, fault: Fault) -> None:
    for part in ("list-type", "rank0.json"):
        s3.fail(fault, part)
    s3.fail("503", "steps/", "PUT", times=2)
    there, here = cclbench.ingest(source, store=STORE), cclbench.ingest(job, store=tmp_path / "runs")
    assert s3.faults == []
    assert there.id == here.id
    assert files(there.path, "manifest.json") == files(here.path, "manifest.json")


def test_what_came_stays(s3: Service, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "BLOCK", 500)

    def fail_once(_method: str, _path: str) -> None:
        if s3.counted("GET", "rank0.json") == 3:
            s3.before = lambda _method, _path: None
            s3.fail("503", "rank0.json")

    s3.before = fail_once
    size = cclbench.ingest(source, store=tmp_path / "runs").record.ranks[0].files[0].bytes
    assert s3.counted("GET", "rank0.json") == -(-size // 500) + 1


def test_a_lasting_fault_is_one_error_and_leaves_nothing(s3: Service, source: str) -> None:
    s3.fail("503", "rank1.json", times=50)
    error = told(lambda: cclbench.ingest(source, store=STORE))
    assert (error.exit_code, error.where) == (3, f"{source}/rank1.json")
    assert f"failed, {objects.ATTEMPTS} times: 503 SlowDown" in error.what
    assert s3.counted("GET", "rank1.json") == objects.ATTEMPTS
    assert s3.objects("runs/") == {}


@pytest.mark.parametrize(("fault", "words"), [("expired", "have expired"), ("forbidden", "access denied")])
@pytest.mark.parametrize("part", ["", "list-type", "rank0.json"])
def test_refusals_are_told_at_once(s3: Service, source: str, fault: Fault, words: str, part: str) -> None:
    s3.fail(fault, part, times=9)
    s3.fail(fault, part, "HEAD", times=9)
    error = told(lambda: cclbench.ingest(source, store="s3://bucket/runs"))
    assert (error.exit_code, words in error.what) == (3, True)
    assert s3.counted("GET", part) <= 1


def test_a_changed_object_is_refused(s3: Service, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "BLOCK", 500)

    def change(_: str, path: str) -> None:
        if "rank0.json" in path and s3.counted("GET", "rank0.json") == 2:
            s3.put("traces/job/rank0.json", b"x" * 9000)

    s3.before = change
    error = told(lambda: cclbench.ingest(source, store=STORE))
    assert (error.where, error.what) == (f"{source}/rank0.json", "changed while it was read")
    assert s3.counted("GET", "rank0.json") == 2


@pytest.mark.usefixtures("source")
def test_an_empty_store_is_empty_and_what_is_not_there_is_told(tmp_path: Path) -> None:
    assert cclbench.runs(STORE) == []
    assert "no such bucket" in told(lambda: cclbench.runs("s3://no-bucket/runs")).what
    error = told(lambda: cclbench.metrics("nothing", store=STORE))
    assert "no run 'nothing' in s3://bucket/runs" in error.what
    for missing in ("s3://bucket/nothing", "s3://bucket/traces/job/r7.json", "s3://no-bucket/x"):
        error = told(lambda missing=missing: cclbench.ingest(missing, store=tmp_path / "runs"))  # type: ignore[misc]
        assert (error.exit_code, error.where) == (3, missing)
        assert error.what == ("no such bucket" if "no-" in missing else "no such file or folder")


def test_no_credentials_is_an_error(s3: Service, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    from s3fs import S3FileSystem

    S3FileSystem.clear_instance_cache()
    error = told(lambda: cclbench.ingest(source, store=STORE))
    assert (error.exit_code, error.what) == (3, "access denied (NoCredentialsError)")
    assert s3.asked == []


def test_an_upload_that_fails_leaves_no_run_and_the_next_one_works(s3: Service, source: str) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cclbench.ingest(source, store=STORE, progress=interrupt)
    assert s3.objects("runs/") == {}
    s3.fail("forbidden", "collectives/rank%3D1", "PUT")
    assert told(lambda: cclbench.ingest(source, store=STORE)).exit_code == 3
    assert s3.faults == []
    assert cclbench.runs(STORE) == []
    (left,) = {key.split("/")[1] for key in s3.objects("runs/")}
    s3.put(f"runs/{left}/events/rank=7/kernel-000.parquet", b"left by another version")
    s3.asked.clear()
    run = cclbench.ingest(source, store=STORE)
    assert run.id == left
    assert {run["run"] for run in cclbench.runs(STORE)} == {left}
    assert not any("rank=7" in key for key in s3.objects("runs/"))
    assert "manifest.json" in [path for method, path in s3.asked if method == "PUT"][-1]


def test_a_large_file_is_written_in_parts(s3: Service, tmp_path: Path) -> None:
    content = bytes(range(256)) * (objects.BLOCK * 5 // 2 // 256)
    (tmp_path / "large").write_bytes(content)
    url = location_of("s3://bucket/x")
    assert url is not None
    s3.fail("503", "partNumber=2", "PUT")
    below = objects.Objects(url)
    below.upload_all([(tmp_path / "large", "large")])
    assert s3.faults == []
    below.download_all(below.list_all(), tmp_path / "back")
    assert (tmp_path / "back" / "large").read_bytes() == content
    assert (s3.counted("PUT", "partNumber"), s3.counted("GET", "/large")) == (5, 3)


def test_ctrl_c_in_mid_read_ends_the_command_at_once(s3: Service, source: str, tmp_path: Path) -> None:
    s3.fail("slow", ".json", times=9)
    # Another thread receives the signal: no wait of the main thread is interrupted by it.
    script = (
        "import signal, sys, threading, time; from cclbench.cli import main\n"
        "threading.Thread(target=time.sleep, args=[60], daemon=True).start()\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}); sys.exit(main())"
    )
    command = [sys.executable, "-c", script, "ingest", source, "--store", str(tmp_path / "runs")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=os.environ)
    while len(s3.faults) > 7:  # both ranks are being read
        time.sleep(0.05)
    time.sleep(0.5)  # the main thread waits for them
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    _, told = process.communicate(timeout=20)
    assert (process.returncode, told.decode().strip()) == (130, "interrupted")
    assert time.monotonic() - begun < 4.5  # the service would be silent for 5 s
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        *((["job/../../outside.json"], "leads upwards"), (["job//etc/passwd"], "empty parts")),
        *((["job/a\x01b.json"], "control characters"), (["job/a\\b.json"], "not a relative path")),
        (["job/Rank0.json", "job/rank0.JSON"], "only in case or Unicode form"),
        (["job/A/x.json", "job/a/y.json"], "only in case or Unicode form"),
        (["job/\u00e9.json", "job/e\u0301.json"], "only in case or Unicode form"),
        (["job/x", "job/x/y.json"], "also a folder of that name"),
    ],
)
def test_names_elsewhere_are_refused(s3: Service, tmp_path: Path, keys: list[str], words: str) -> None:
    for key in keys:
        s3.put(key, b"{}")
    with pytest.raises(InputError, match=words) as raised:
        cclbench.ingest("s3://bucket/job", store=tmp_path / "runs")
    assert str(raised.value).isprintable()
    assert not list(tmp_path.rglob("outside*"))


def test_a_large_source(s3: Service, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = shutil._ntuple_diskusage(100, 0, 100)  # type: ignore[attr-defined]
    for place, name, value, words in (
        (shutil, "disk_usage", lambda _: full, "has 100 bytes free"),
        (objects, "MOST_OBJECTS", 2, "more than 2 objects"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value)
            assert words in str(told(lambda: cclbench.ingest(source, store=tmp_path / "runs")))
    assert s3.counted("GET", ".json") == 0


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    for url, library in {"s3://bucket/x": "s3fs", "gs://bucket/x": "gcsfs", "az://folder/x": "adlfs"}.items():
        with pytest.raises(UsageError, match=rf"needs {library}; .*pip install '\.\[remote\]'"):
            cclbench.ingest(url, store=tmp_path / "runs")


def test_what_is_not_read_is_not_fetched(s3: Service, job: Path, source: str, tmp_path: Path) -> None:
    """Of 72 MB beside the traces as much as it takes to see that they are none."""
    beside = {f"weights/{n}.bin": b"\0\1" * (2 << 20) for n in range(8)} | {
        "steps.txt": b"step\n" * (5 << 20),
        "notes/large.yaml": b"notes: none\n" * (1 << 20),
    }
    for name, content in beside.items():
        s3.put(f"traces/job/{name}", content)
        (tmp_path / "job" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "job" / name).write_bytes(content)
    shutil.copytree(job, tmp_path / "job", dirs_exist_ok=True)
    sent = s3.sent
    there = cclbench.ingest(source, store=tmp_path / "there")
    sent = s3.sent - sent
    whole = sum(path.stat().st_size for path in job.rglob("*") if path.is_file())
    # 64 KiB of what has zeros and of YAML; of a text up to 16 MiB, in which a job's log may begin late.
    assert sent < whole + 9 * (64 << 10) + (16 << 20) + (1 << 20)
    here = cclbench.ingest(tmp_path / "job", store=tmp_path / "here")
    assert there.id == here.id
    assert files(there.path, "manifest.json") == files(here.path, "manifest.json")


def test_a_large_trace_comes_whole_however_it_is_recognised(s3: Service, source: str, tmp_path: Path) -> None:
    """A log whose first line of NCCL stands behind a mebibyte of others."""
    log = b"x\n" * (1 << 20) + b"host:7:8 [0] NCCL INFO NCCL version 2.21.5+cuda12.4\n" + b"done\n" * 9000
    s3.put("traces/job/slurm.log", log)
    for n in range(60):  # small ones are asked for once each
        s3.put(f"traces/job/logs/{n}.txt", b"nothing")
    s3.asked.clear()
    run = cclbench.ingest(source, store=tmp_path)
    (evidence,) = json.loads((run.path / "manifest.json").read_text())["evidence"]
    assert (evidence["name"], evidence["bytes"]) == ("slurm.log", len(log))
    assert s3.counted("GET", "/logs/") == 60


def test_the_pages_commands_work(s3: Service, job: Path, repository: Path, tmp_path: Path) -> None:
    assert s3.direct("PUT", "/my-bucket")[0] == 200
    for path in job.glob("*.json"):
        assert s3.direct("PUT", f"/my-bucket/traces/job/{path.name}", path.read_bytes())[0] == 200
    page = (repository / "docs" / "object-stores.md").read_text()
    printed = [
        printed_by(block, tmp_path, here(tmp_path), language)
        for language, _, block in blocks(page)
        if language in ("sh", "python")
    ]
    assert len(printed) == 2
    assert "time.step" in printed[0]
    assert "bucket/traces/job" in printed[0]
    assert printed[1].endswith("steps\n")
    assert not (tmp_path / "runs").exists()


def test_s3_is_read_where_it_is_allowed(s3: Service, job: Path, tmp_path: Path) -> None:
    s3.put_folder(job, "traces/job")
    source = "s3://bucket/traces/job"
    s3.asked.clear()

    async def refused(client: Client) -> None:
        error = await refusal(client, "run", source=source)
        assert "no URLs are allowed; allow others with --allow-url of `cclbench mcp`" in error

    async def allowed(client: Client) -> None:
        run = (await answer(client, "run", source=source))["run"]
        (row,) = (await answer(client, "runs"))["rows"]
        assert (row["run"], row["source"], row["ranks"]) == (run, source, 2)

    session(Server(tmp_path / "runs"), refused)
    assert s3.asked == []
    session(Server(tmp_path / "runs", "--allow-url", "s3"), allowed)
    assert s3.asked
