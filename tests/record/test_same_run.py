# SPDX-License-Identifier: Apache-2.0
"""However a run is made, its files are the same bytes: by processes, on a cluster, of shards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from helpers.synthetic import Program, simulate, write
from helpers.synthetic.program import Collective, Compute, Layout, Network
from helpers.trees import files

import cclbench
from cclbench.engine import dask as dask_engine
from cclbench.ground.errors import CclbenchError, InputError, UsageError
from cclbench.ingestion.shards import SHARD, Shard, ingest_shard, merge_shards
from cclbench.record.manifest import Options
from cclbench.record.store import Store

RANKS = 8


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """Traces of two kinds: eight simulated ranks by one, eight devices of one file by the other."""
    folder = tmp_path_factory.mktemp("source") / "job"
    program = Program(tuple([Compute(2_000_000), Collective("all_reduce", "dp", 1 << 20)] * 3), steps=4)
    write(simulate(Layout(dp=RANKS), program, Network(), 1), folder)
    (profile,) = (repository / "traces" / "tiny-jax-dp2-tp4-cpu").glob("**/*.xplane.pb")
    shutil.copy(profile, folder)
    return folder


@pytest.fixture(scope="module")
def alone(job: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the run that one process makes, its results among them."""
    run = cclbench.run(job, store=tmp_path_factory.mktemp("alone"))
    assert len(run.ranks) == RANKS
    assert len(run.sources[0].ranks) == 8
    return files(run.path)


def left(store: Path) -> list[str]:
    """What is in a store."""
    return [path.name for path in store.iterdir()] if store.is_dir() else []


def test_by_processes(job: Path, alone: dict[str, bytes], tmp_path: Path) -> None:
    assert files(cclbench.run(job, store=tmp_path, jobs=3).path) == alone


# ----------------------------------------------------------------------------------- shards


@pytest.fixture(scope="module")
def shards(job: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Eight of them, in folders of their own."""
    stores = [tmp_path_factory.mktemp("shard") for _ in range(8)]
    return [ingest_shard(job, Store(s), Options(), n, 8)[0] for n, s in enumerate(stores, 1)]


@pytest.mark.parametrize("order", range(3))
def test_shards_in_any_order(shards: list[Path], alone: dict[str, bytes], tmp_path: Path, order: int) -> None:
    before = [files(shard) for shard in shards]
    mixed = Random(order).sample(shards, len(shards))  # noqa: S311 - wants repeating, not guessing
    # A store of that name holds folders of its own, not those of a second kind of traces.
    run = merge_shards(mixed, Store(tmp_path / "sources"))
    assert files(cclbench.metrics(run).path) == alone
    assert [files(shard) for shard in shards] == before


def test_shards_share_the_files_evenly_and_each_once(shards: list[Path], job: Path) -> None:
    records = [msgspec.json.decode((shard / SHARD).read_bytes(), type=Shard) for shard in shards]
    own = [{file.name for file in record.files} for record in records]
    assert set().union(*own) == {path.name for path in job.iterdir()}
    assert sum(map(len, own)) == RANKS + 1
    assert max(map(len, own)) == 2


def test_a_shard_made_again_is_the_same(job: Path, tmp_path: Path) -> None:
    first, _ = ingest_shard(job, Store(tmp_path), Options(), 2, 3)
    made = files(first)
    again, _ = ingest_shard(job, Store(tmp_path), Options(), 2, 3)
    assert again == first
    assert files(again) == made
    assert left(tmp_path) == [first.name]


def test_who_counts_shards_from_0_calls_the_last_one_0(job: Path, tmp_path: Path) -> None:
    counted = [ingest_shard(job, Store(tmp_path / "a"), Options(), n, 2)[1].index for n in (0, 1)]
    assert counted == [1, 0]


def test_shards_that_are_not_of_one_run_are_refused(shards: list[Path], job: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")

    def refused(*folders: Path) -> str:
        with pytest.raises((UsageError, InputError)) as raised:
            merge_shards(folders, store)
        assert left(store.folder) == []
        assert len(str(raised.value).splitlines()) <= 3
        return str(raised.value)

    assert "of 8 shards 2, 5 are missing" in refused(*(shards[n] for n in (0, 2, 3, 5, 6, 7)))
    copy = tmp_path / "copy"
    shutil.copytree(shards[3], copy)
    assert "are both shard 4 of 8" in refused(*shards, copy)
    other, _ = ingest_shard(job, Store(tmp_path / "other"), Options(step_annotation="x"), 1, 8)
    assert "not of one run" in refused(other, *shards[1:])
    assert "is no shard" in refused(job)
    text = (copy / SHARD).read_text()
    (copy / SHARD).write_text(text.replace(cclbench.__version__, "0.0.1"))
    assert "another version" in refused(*shards[:3], copy, *shards[4:])
    (copy / SHARD).write_text(text[:-20])
    assert "damaged" in refused(*shards[:3], copy, *shards[4:])
    (copy / SHARD).write_text(json.dumps(json.loads(text) | {"members": []}))
    assert "do not hold all files" in refused(*shards[:3], copy, *shards[4:])
    (copy / SHARD).write_text(text.replace('"000.part"', '"../../x.part"'))
    assert "damaged" in refused(*shards[:3], copy, *shards[4:])
    (copy / SHARD).write_text(text)
    (part,) = copy.glob("**/*.part")
    known = part.read_bytes()
    part.write_bytes(known[:-1])
    assert "not what was written" in refused(*shards[:3], copy, *shards[4:])
    rows = next(copy.glob("**/kernel-*.parquet"))
    whole = rows.read_bytes()
    rows.write_bytes(whole[: len(whole) // 3] + b"\xff" * 64 + whole[len(whole) // 3 + 64 :])
    part.write_bytes(known)
    assert "not what was written" in refused(*shards[:3], copy, *shards[4:])
    rows.write_bytes(whole)
    part.unlink()
    part.symlink_to(job / "rank0.json")
    assert "is a link" in refused(*shards[:3], copy, *shards[4:])


def test_a_source_that_changed_after_its_shards_is_refused(job: Path, tmp_path: Path) -> None:
    source = tmp_path / "job"
    shutil.copytree(job, source)
    made = [ingest_shard(source, Store(tmp_path / "a"), Options(), n, 2)[0] for n in (1, 2)]
    trace = next(path for path in source.iterdir() if path.suffix == ".json")
    trace.write_bytes(trace.read_bytes() + b" ")
    with pytest.raises(InputError, match="changed while it was read"):
        merge_shards(made, Store(tmp_path / "b"))
    assert left(tmp_path / "b") == []
    again, _ = ingest_shard(source, Store(tmp_path / "a"), Options(), 1, 2)
    with pytest.raises(UsageError, match="its source has changed since"):
        merge_shards([again, made[1]], Store(tmp_path / "b"))


@pytest.mark.parametrize("share", [(3, 2), (1, 0), (1, 1 << 20)])
def test_shares_that_there_are_not(job: Path, tmp_path: Path, share: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="there is no shard"):
        ingest_shard(job, Store(tmp_path), Options(), *share)


# ------------------------------------------------------------------------------------- Dask


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """A client of a cluster of this machine."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


def after(count: int, action: Callable[[], object]) -> Callable[[str, int, int], None]:
    """Progress that acts once, when that many traces are read."""
    done: list[bool] = []

    def progress(what: str, finished: int, _: int) -> None:
        if what == "reading traces" and finished >= count and not done:
            done.append(True)
            action()

    return progress


def test_by_a_cluster_that_stays_open(job: Path, alone: dict[str, bytes], tmp_path: Path) -> None:
    with cluster(2) as client:
        assert files(cclbench.run(job, store=tmp_path, client=client).path) == alone
        assert client.submit(abs, -1).result() == 1


def test_by_a_cluster_of_this_machine(job: Path, alone: dict[str, bytes], tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    assert files(cclbench.run(job, store=tmp_path, engine="dask", jobs=2).path) == alone


def test_by_a_cluster_of_which_a_worker_is_killed(job: Path, alone: dict[str, bytes], tmp_path: Path) -> None:
    with cluster(3) as client:
        victim = next(iter(client.run(os.getpid).values()))
        killed = after(2, lambda: os.kill(victim, signal.SIGKILL))
        assert files(cclbench.run(job, store=tmp_path, client=client, progress=killed).path) == alone
        assert victim not in client.run(os.getpid).values()


@contextmanager
def scheduler(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address and process of a scheduler with one worker, as people start them."""
    pytest.importorskip("distributed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    started = []
    for words in (
        ["dask_scheduler", "--host", address, "--no-dashboard"],
        ["dask_worker", address, "--nthreads", "1", "--no-dashboard", "--local-directory", str(tmp_path)],
    ):
        command = [sys.executable, "-m", f"distributed.cli.{words[0]}", *words[1:]]
        started.append(subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
    try:
        yield address, started[0]
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(30)


def test_by_a_scheduler_and_when_it_goes_away(job: Path, alone: dict[str, bytes], tmp_path: Path) -> None:
    with scheduler(tmp_path / "dask") as (address, process):
        assert files(cclbench.run(job, store=tmp_path / "a", engine=address).path) == alone
        begun = time.monotonic()
        with pytest.raises(CclbenchError, match="lost the connection to the cluster") as raised:
            cclbench.run(job, store=tmp_path / "b", engine=address, progress=after(1, process.kill))
        assert time.monotonic() - begun < 120
        assert raised.value.where == address
        assert left(tmp_path / "b") == []


def test_a_scheduler_that_is_not_there_is_told(job: Path, tmp_path: Path, monkeypatch: Any) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(dask_engine, "_CONNECT_S", 1)
    with pytest.raises(UsageError, match="no Dask cluster answers"):
        cclbench.run(job, store=tmp_path / "a", engine="tcp://127.0.0.1:1")
    assert left(tmp_path / "a") == []


def test_workers_of_another_version_are_refused(job: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(dask_engine, "_library_versions", lambda: {"cclbench": "0.0.1"})
    told = {"tcp://a:1": {"cclbench": "0.0.2"}}
    with cluster(1) as client:
        monkeypatch.setattr(client, "run", lambda *_: told)
        with pytest.raises(UsageError, match=r"tcp://a:1 has cclbench 0\.0\.2, here it is 0\.0\.1"):
            cclbench.run(job, store=tmp_path / "a", client=client)
    assert left(tmp_path / "a") == []


def test_workers_that_do_not_see_the_store_are_told(job: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(dask_engine, "_missing_paths", list)
    with cluster(1) as client, pytest.raises(UsageError, match="does not see") as raised:
        cclbench.run(job, store=tmp_path / "a", client=client)
    assert "file system that all workers share" in str(raised.value)
    assert left(tmp_path / "a") == []
